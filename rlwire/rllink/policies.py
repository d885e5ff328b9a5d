"""Policies that run where the simulator is: with the weights that a trainer sends.

A policy is called with an observation and the newest weights (`SetState`), and returns an action,
or an action and what the trainer wants to know of it, such as ``{"action_logp": -0.7}``. It has no
batch: one observation, one action. Not here: RLlib's own modules (`rlwire.rllib.rllink`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from rlwire.codecs.rllink import SetState
from rlwire.errors import RemoteProtocolError, optional

Policy: TypeAlias = Callable[[Any, SetState], Any]


def resolve_policy(policy: Any) -> Policy:
    """Return a policy: as it is, made of its class, or one for files of ONNX if there is none."""
    if policy is None:
        return OnnxPolicy()
    if inspect.isclass(policy):
        policy = policy()
    if not callable(policy):
        raise TypeError(f"a policy is called with observation and weights, {policy!r} cannot be")
    return cast(Policy, policy)


def acted(given: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return the action in what a policy returned, and what it says besides."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        return given
    return given, {}


class OnnxPolicy:
    """Runs the file of ONNX that came with the weights, by `onnxruntime`.

    The model takes a batch of observations as its only input. Its first output are the inputs of
    the actions' distribution, as RLlib exports its modules: the logarithms of probabilities for a
    Discrete space, from which an action is drawn; they and the action's own are sent with it, as
    PPO wants them.

    Args:
        seed: of the draws.

    Raises:
        MissingExtra: onnxruntime is not installed.
    """

    def __init__(self, seed: int | None = None) -> None:
        with optional("onnxruntime", "onnx"):
            import onnxruntime
        self._start = onnxruntime.InferenceSession
        self._random = np.random.default_rng(seed)
        self._model: Any = None
        self._of: SetState | None = None

    def __call__(self, observation: Any, weights: SetState) -> tuple[int, dict[str, Any]]:
        """Return an action that was drawn, its distribution and its probability's logarithm."""
        if weights is not self._of:
            if weights.onnx is None:
                raise RemoteProtocolError(
                    "the trainer sends no file of ONNX: give a policy that knows its weights"
                )
            self._model, self._of = self._start(weights.onnx), weights
        wanted = self._model.get_inputs()
        if len(wanted) != 1:
            raise RemoteProtocolError(f"a model with {len(wanted)} inputs, one is expected")
        batch = np.asarray(observation, np.float32)[None]
        logits = np.asarray(self._model.run(None, {wanted[0].name: batch})[0][0], np.float64)
        shifted = logits - logits.max()
        logs = shifted - np.log(np.exp(shifted).sum())
        action = int(np.searchsorted(np.cumsum(np.exp(logs)), self._random.random()))
        action = min(action, len(logs) - 1)
        return action, {
            "action_dist_inputs": logits.astype(np.float32),
            "action_logp": np.float32(logs[action]),
        }
