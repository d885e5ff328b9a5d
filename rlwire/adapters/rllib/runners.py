"""`Runner`: what RLlib's runners over rlwire share, and `runners`, where they listen.

What is distributed is Ray's: it places runners, starts them again, and learns. Here is one runner's
state, its weights and what it tells of episodes. Not here: how it comes by them
(`rlwire.adapters.rllib.rllink`). Source: `ray.rllib.env.env_runner.EnvRunner` and RLlib's own
runners of Ray 2.60.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from rlwire.errors import optional

with optional("ray", "rllib"):
    import ray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils import metrics as names
from ray.rllib.utils.checkpoints import Checkpointable

__all__ = ["Runner", "runners"]

logger = logging.getLogger(__name__)

_DIRECTORY = "rlwire.runners"  # the actor that knows where runners listen


class Runner(EnvRunner, Checkpointable):  # type: ignore[misc]
    """A runner of RLlib's new API stack that has no environments of its own: it has a server.

    The first of an algorithm's runners listens on the port of `env_config`, the next one on the
    next. The one in the algorithm's own process listens only where it is the only one.

    Args:
        config: the algorithm's.
        options: RLlib's own, such as `worker_index`.

    Attributes:
        server: what listens; None where nothing does.
        module: RLlib's, with the newest weights.
    """

    port: int = 0
    """Where the first one listens, unless the `env_config` says another."""

    def __init__(self, *, config: AlgorithmConfig, **options: Any) -> None:
        super().__init__(config=config, **options)
        self.worker_index = options.get("worker_index") or 0
        self.server: Any = None
        self._number = 0
        self._pieces: dict[str, list[Any]] = defaultdict(list)
        self._done: list[Any] = []
        self.module = self.config.get_rl_module_spec(
            spaces=self.get_spaces(), inference_only=True
        ).build()

    @property
    def listens(self) -> bool:
        """Whether it is one of those that have a server."""
        return bool(self.worker_index) or not self.config.num_env_runners

    @property
    def where(self) -> tuple[str, int]:
        """Where it is to listen."""
        told: Mapping[str, Any] = self.config.env_config
        port = int(told.get("port", self.port))
        return told.get("host", "localhost"), port and port + max(self.worker_index - 1, 0)

    def started(self) -> None:
        """Tell the cluster where it listens."""
        if ray.is_initialized():
            _directory().register.remote(self.worker_index, self.server.url)

    def assert_healthy(self) -> None:
        """Raise AssertionError if it does not listen."""
        assert self.server is None or self.server.url

    def get_spaces(self) -> dict[str, Any]:
        """Return the spaces that the config names."""
        spaces = (self.config.observation_space, self.config.action_space)
        return {INPUT_ENV_SPACES: spaces, DEFAULT_MODULE_ID: spaces}

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what makes another one like it."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """Return the module."""
        return [(COMPONENT_RL_MODULE, self.module)]

    def get_state(self, components: Any = None, **options: Any) -> dict[str, Any]:
        """Return the weights and their number."""
        return {
            COMPONENT_RL_MODULE: self.module.get_state(),
            names.WEIGHTS_SEQ_NO: self._number,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take new weights."""
        if COMPONENT_RL_MODULE in state:
            number = state.get(names.WEIGHTS_SEQ_NO, 0)
            # Without a number, weights are to be taken in any case.
            if number == 0 or number > self._number:
                weights = state[COMPONENT_RL_MODULE]
                if isinstance(weights, ray.ObjectRef):
                    weights = ray.get(weights)
                if isinstance(weights, dict) and DEFAULT_MODULE_ID in weights:
                    weights = weights[DEFAULT_MODULE_ID]
                self.module.set_state(weights)
            self._number = max(self._number, number)

    def stop(self) -> None:
        """Stop listening."""
        if self.server is not None:
            self.server.stop()

    def sampled(self, episodes: list[Any]) -> list[Any]:
        """Return episodes, and parts of some, that were sampled; take note of what is in them."""
        steps = done = 0
        for episode in episodes:
            steps += len(episode)
            if episode.is_done:
                done += 1
                self._done.append(episode)
            else:
                self._pieces[episode.id_].append(episode)
        self._count(steps, done)
        return episodes

    def get_metrics(self) -> Any:
        """Return RLlib's metrics of the episodes that ended since the last call."""
        window = self.config.metrics_num_episodes_for_smoothing
        for episode in self._done:
            pieces = [*self._pieces.pop(episode.id_, ()), episode]
            length = sum(map(len, pieces))
            total = sum(piece.get_return() for piece in pieces)
            seconds = sum(piece.get_duration_s() for piece in pieces)
            for name, value in (
                (names.EPISODE_LEN_MEAN, length),
                (names.EPISODE_RETURN_MEAN, total),
                (names.EPISODE_DURATION_SEC_MEAN, seconds),
                ((names.EPISODE_AGENT_RETURN_MEAN, DEFAULT_AGENT_ID), total),
                ((names.EPISODE_MODULE_RETURN_MEAN, DEFAULT_MODULE_ID), total),
            ):
                self.metrics.log_value(name, value, window=window)
            for name, value, reduce in (
                (names.EPISODE_LEN_MIN, length, "min"),
                (names.EPISODE_LEN_MAX, length, "max"),
                (names.EPISODE_RETURN_MIN, total, "min"),
                (names.EPISODE_RETURN_MAX, total, "max"),
            ):
                self.metrics.log_value(name, value, reduce=reduce, window=window)
        self._done.clear()
        return self.metrics.reduce()

    def _count(self, steps: int, done: int) -> None:
        self.num_env_steps_sampled_lifetime += steps
        self._log_env_steps(self._metrics_num_env_steps_sampled, steps)
        log = self.metrics.log_value
        for name, value in (
            (names.NUM_ENV_STEPS_SAMPLED, steps),
            ((names.NUM_AGENT_STEPS_SAMPLED, DEFAULT_AGENT_ID), steps),
            ((names.NUM_MODULE_STEPS_SAMPLED, DEFAULT_MODULE_ID), steps),
            (names.NUM_EPISODES, done),
        ):
            log(name, value, reduce="sum")
        log(
            names.NUM_ENV_STEPS_SAMPLED_LIFETIME,
            steps,
            reduce="lifetime_sum",
            with_throughput=True,
        )
        for name, value in (
            ((names.NUM_AGENT_STEPS_SAMPLED_LIFETIME, DEFAULT_AGENT_ID), steps),
            ((names.NUM_MODULE_STEPS_SAMPLED_LIFETIME, DEFAULT_MODULE_ID), steps),
            (names.NUM_EPISODES_LIFETIME, done),
        ):
            log(name, value, reduce="lifetime_sum")


class _Directory:
    """Knows where the runners of this cluster listen; an actor of Ray's."""

    def __init__(self) -> None:
        self._urls: dict[int, str] = {}

    def register(self, index: int, url: str) -> None:
        self._urls[index] = url

    def urls(self) -> dict[int, str]:
        return self._urls


def _directory() -> Any:
    actor = ray.remote(_Directory)
    return actor.options(
        name=_DIRECTORY,
        namespace="rlwire",
        get_if_exists=True,
        num_cpus=0,
        lifetime="detached",
    ).remote()


def runners() -> dict[int, str]:
    """Return the URL of each runner of this cluster, by its number; Ray must be initialized."""
    found: dict[int, str] = ray.get(_directory().urls.remote())
    return found
