"""`play`: an environment samples with a trainer's weights and sends what it has sampled.

A policy is called with an observation and the newest weights (`SetState`), and returns an action,
or an action and what the trainer wants to know of it, such as ``{"action_logp": -0.7}``.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from rlwire.codecs.rllink import SetState
from rlwire.environments.loading import load
from rlwire.environments.playing import opened
from rlwire.errors import ConnectionClosed, RemoteProtocolError, optional
from rlwire.rllink.client import Client
from rlwire.rllink.collector import EpisodeCollector
from rlwire.transports.address import AddressLike

Policy: TypeAlias = Callable[[Any, SetState], Any]

_RECONNECTS = 5  # times that a lost trainer is looked for in a row, with the client's waits each


def play(
    environment: Any,
    address: AddressLike,
    *,
    episodes: int = 1,
    seed: int | None = None,
    policy: Any = None,
    steps: int | None = None,
    **options: Any,
) -> list[float]:
    """Play an environment with a trainer's weights, and send it the steps; return each reward.

    A batch has exactly as many steps as the trainer asks for; what is left at the end is sent too.
    When the trainer is lost and comes back, the batch that it had not answered is sampled anew.

    Args:
        environment: an environment, what makes one, its name, or a URL of one that is elsewhere.
        address: the trainer's.
        episodes: how many to play to their ends.
        seed: of the first episode.
        policy: a function of an observation and weights, or ``"module:policy"``; by default what
            runs the ONNX that the trainer sends.
        steps: in a batch, where the trainer does not say (as Ray's, whose config is a pickle).
        options: of `Client`.

    Raises:
        ValueError: neither the trainer nor the caller says how many steps a batch has.
        RemoteProtocolError: an action is none of the environment's.
        ConnectionClosed, OSError: the connection is lost, and cannot be made again.
    """
    act = resolve_policy(load(policy, "'module:policy'") if isinstance(policy, str) else policy)
    totals: list[float] = []
    with opened(environment, seed, "RLlink") as game, Client(address, **options) as client:
        collector, weights = _begin(client, steps)
        lost = 0
        while len(totals) < episodes:
            observation = game.reset()
            collector.reset(observation)
            while not game.over:
                action, outputs = acted(act(observation, weights))
                observation, reward = game.step(action)
                ended = game.over and not game.truncated, game.truncated
                collector.step(action, observation, reward, *ended, outputs=outputs)
                last = game.over and len(totals) == episodes - 1
                if collector.full or last:
                    try:
                        # A client that does not wait for new weights asks for the newest.
                        weights = client.send(collector.take()) or client.get_state()
                        lost = 0
                    except (ConnectionClosed, OSError):
                        lost += 1
                        if lost > _RECONNECTS or last:
                            raise
                        collector, weights = _rejoin(client, steps)
                        if not game.over:
                            collector.reset(observation)
            totals.append(game.total)
    return totals


def _begin(client: Client, steps: int | None) -> tuple[EpisodeCollector, SetState]:
    config = client.get_config()
    wanted = config.env_steps_per_sample or steps
    if wanted is None:
        raise ValueError(
            f"{client.address} does not say how many steps a batch has: give steps= (RLlib's "
            "get_rollout_fragment_length())"
        )
    weights = client.get_state()
    if weights is None:
        raise RemoteProtocolError("the trainer has no weights")
    return EpisodeCollector(wanted), weights


def _rejoin(client: Client, steps: int | None) -> tuple[EpisodeCollector, SetState]:
    """Connect again, and begin a batch; who is about to end may take a connection, and drop it."""
    for _ in range(_RECONNECTS - 1):
        with contextlib.suppress(ConnectionClosed):
            client.connect()
            return _begin(client, steps)
    client.connect()
    return _begin(client, steps)


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
