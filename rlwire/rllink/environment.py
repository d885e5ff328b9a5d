"""`play`: samples an environment with a trainer's weights and sends the episodes.

A policy is called with an observation and the newest weights (`SetState`). It returns an action, or
an action and the model's other outputs, such as ``{"action_logp": -0.7}``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs.rllink import SetState
from rlwire.environments.driver import opened
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    PeerError,
    RemoteProtocolError,
    optional,
)
from rlwire.rllink.client import Client
from rlwire.rllink.collector import EpisodeCollector
from rlwire.serving.fronts import load_instance
from rlwire.transports.address import AddressLike

logger = logging.getLogger(__name__)

Policy: TypeAlias = Callable[[Any, SetState], Any]

_RECONNECTS = 5  # in a row, each with the client's back-off


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
    """Play episodes with a trainer's weights, send them, and return each episode's sum of rewards.

    Each batch has exactly as many steps as the trainer requests, except the last. If the connection
    is lost, a batch without a reply is sampled again. `seed` is of the first episode, `steps` the
    steps per batch if the trainer's config does not set it (Ray pickles its config); `options` are
    those of `Client`.
    """
    act: Policy = OnnxPolicy() if policy is None else load_instance(policy, "'module:policy'")
    if not callable(act):
        raise TypeError(f"policy= must be a function of observation and weights, not {act!r}")
    totals: list[float] = []
    with opened(environment, seed, "RLlink") as game, Client(address, **options) as client:
        collector = _begin(client, steps)
        by_episodes = False
        try:
            weights = client.get_state()
        except (ConnectionClosed, DeadlineExceeded, OSError, PeerError) as error:
            logger.info("%s: no reply to GET_STATE (%s): sending no episodes", address, error)
            by_episodes = True
            collector, weights = _rejoin(client, steps, by_episodes)
        lost = 0
        while len(totals) < episodes:
            observation = game.reset()
            collector.reset(observation)
            while not game.ended:
                action, outputs = acted(act(observation, weights))
                observation, reward = game.step(action)
                ended = game.terminated, game.truncated
                collector.step(action, observation, reward, *ended, outputs=outputs)
                last = game.ended and len(totals) == episodes - 1
                if collector.full or last:
                    try:
                        # Of the document's messages, only this one brings weights.
                        wait = True if by_episodes else None
                        weights = client.send(collector.take(), wait=wait) or client.get_state()
                        lost = 0
                    except (ConnectionClosed, OSError):
                        lost += 1
                        if lost > _RECONNECTS or last:
                            raise
                        collector, weights = _rejoin(client, steps, by_episodes)
                        if not game.ended:
                            collector.reset(observation)
            totals.append(game.total)
    return totals


def _begin(client: Client, steps: int | None) -> EpisodeCollector:
    config = client.get_config()
    wanted = config.env_steps_per_sample or steps
    if wanted is None:
        raise ValueError(
            f"{client.address}: the config does not set the steps per batch: pass steps= (RLlib's "
            "get_rollout_fragment_length())"
        )
    return EpisodeCollector(wanted)


def _rejoin(
    client: Client, steps: int | None, by_episodes: bool
) -> tuple[EpisodeCollector, SetState]:
    """Reconnect, and get weights; a stopping server may accept connections and close them.

    The document has no GET_STATE: `by_episodes` sends an empty batch instead.
    """

    def begin() -> tuple[EpisodeCollector, SetState]:
        client.connect()
        collector = _begin(client, steps)
        weights = client.send([], wait=True) if by_episodes else client.get_state()
        assert weights is not None
        return collector, weights

    for _ in range(_RECONNECTS - 1):
        with contextlib.suppress(ConnectionClosed):
            return begin()
    return begin()


def acted(given: Any) -> tuple[Any, Mapping[str, Any]]:
    """Split a policy's result into the action and its other outputs."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        return given
    return given, {}


def sampled(logits: NDArray[Any], random: np.random.Generator) -> tuple[int, dict[str, Any]]:
    """Draw an action; return it with the outputs that RLlib's PPO needs."""
    logs = logits - np.logaddexp.reduce(logits.astype(np.float64))
    drawn = np.searchsorted(np.cumsum(np.exp(logs)), random.random())
    action = min(int(drawn), len(logs) - 1)
    return action, {"action_dist_inputs": logits, "action_logp": np.float32(logs[action])}


class OnnxPolicy:
    """Runs the ONNX file that is sent with the weights, for Discrete actions.

    The model maps a float32 batch of observations to logits, its first output. The action is
    sampled from them, and returned with `action_dist_inputs` and `action_logp` for RLlib's PPO.

    Args:
        seed: seed for sampling actions.

    Raises:
        MissingExtra: onnxruntime is not installed.
    """

    def __init__(self, seed: int | None = None) -> None:
        with optional("onnxruntime", "onnx"):
            import onnxruntime
        self._load = onnxruntime.InferenceSession
        self._random = np.random.default_rng(seed)
        self._model: Any = None
        self._of: SetState | None = None

    def __call__(self, observation: Any, weights: SetState) -> tuple[int, dict[str, Any]]:
        """Return an action, its distribution's inputs and its log-probability."""
        if weights is not self._of:
            if weights.onnx is None:
                raise RemoteProtocolError(
                    "the trainer sent weights without an ONNX file, as Ray does since 2.44; pass a "
                    "policy for its module (policy=)"
                )
            self._model, self._of = self._load(weights.onnx), weights
        batch = np.asarray(observation, np.float32)[None]
        logits = self._model.run(None, {self._model.get_inputs()[0].name: batch})[0][0]
        return sampled(logits, self._random)
