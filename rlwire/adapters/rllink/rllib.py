"""RLlib behind RLlink: `RLlinkEnvRunner` samples for its algorithms, `ModulePolicy` acts for them.

What is distributed is Ray's: it places runners, starts them again, and learns. Here is what one
runner does, for as many simulators as connect to it. Source: `ray.rllib.env.env_runner.EnvRunner`
and the runner for external inference of Ray 2.60. Needs the extra ``rllib``.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlwire.adapters.rllink.client import PORT
from rlwire.adapters.rllink.server import RLlinkServer
from rlwire.codecs.rllink import SetConfig, SetState
from rlwire.errors import optional

with optional("ray", "rllib"):
    import ray
with optional("torch", "rllib"):
    import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env import INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils import metrics as names
from ray.rllib.utils.checkpoints import Checkpointable

__all__ = ["ModulePolicy", "RLlinkEnvRunner", "runners"]

_DIRECTORY = "rlwire.rllink"  # the actor that knows where runners listen
_MODULE = "rl_module"  # the entry of a state that has a module's weights


class RLlinkEnvRunner(EnvRunner, Checkpointable):  # type: ignore[misc]
    """A runner of RLlib's new API stack that has no environments: simulators send it episodes.

    ::

        config = PPOConfig().environment(
            observation_space=..., action_space=..., env_config={"port": 5555}
        ).env_runners(env_runner_cls=RLlinkEnvRunner, num_env_runners=2)

    A runner listens on ``port`` and its number; the one in the algorithm's own process has number
    0, and listens only where it is the only one. Clients are told RLlib's config as its own runner
    tells it (a pickle, which only RLlib's clients read), how many steps RLlib wants of a message,
    and whether they must wait for new weights.

    The `env_config` may have: ``host`` (by default ``"localhost"``), ``port`` (5555; 0 for any,
    found by `runners`), ``steps`` of a message (by default RLlib's rollout fragment), ``on_policy``
    (by default true), and ``server``, more options of `RLlinkServer`.

    Args:
        config: the algorithm's.
        options: RLlib's own, such as `worker_index`.
    """

    def __init__(self, *, config: AlgorithmConfig, **options: Any) -> None:
        super().__init__(config=config, **options)
        self.worker_index = options.get("worker_index") or 0
        told: Mapping[str, Any] = self.config.env_config
        self._number = 0
        self._pieces: dict[str, list[Any]] = defaultdict(list)
        self._done: list[Any] = []
        self.module = self.config.get_rl_module_spec(
            spaces=self.get_spaces(), inference_only=True
        ).build()
        self.server: RLlinkServer | None = None
        if self.worker_index or not self.config.num_env_runners:
            port = int(told.get("port", PORT))
            self.server = RLlinkServer(
                (told.get("host", "localhost"), port and port + self.worker_index),
                config=SetConfig(
                    int(
                        told.get("steps")
                        or self.config.get_rollout_fragment_length(self.worker_index)
                    ),
                    bool(told.get("on_policy", True)),
                    pickle.dumps(self.config),
                ),
                **told.get("server", {}),
            )
            self._publish()
            self.server.start()
            if ray.is_initialized():
                _directory().register.remote(self.worker_index, self.server.url)

    def assert_healthy(self) -> None:
        """Raise AssertionError if it does not listen."""
        assert self.server is None or self.server.address is not None

    def sample(self, **options: Any) -> list[Any]:
        """Return the episodes that simulators have sent, and wait for some if there are none.

        No longer than the config's `sample_timeout_s`; then there are none.
        """
        if self.server is None:
            return []
        episodes = [
            SingleAgentEpisode.from_state(episode.to_state()).to_numpy()
            for episode in self.server.sample(self.config.sample_timeout_s)
        ]
        for episode in episodes:
            if episode.is_done:
                self._done.append(episode)
            else:
                self._pieces[episode.id_].append(episode)
        self._count(sum(map(len, episodes)), sum(episode.is_done for episode in episodes))
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
        """Take new weights, and give them to the simulators."""
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
        self._publish()

    def stop(self) -> None:
        """Stop listening."""
        if self.server is not None:
            self.server.stop()

    def _publish(self) -> None:
        if self.server is not None:
            weights = {name: _array(part) for name, part in self.module.get_state().items()}
            self.server.set_state(SetState(self._number, {_MODULE: weights}))

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


class ModulePolicy:
    """A policy that runs RLlib's module here, with the weights that the trainer sends.

    For Discrete spaces; see `rlwire.adapters.rllink.policies`.

    Args:
        config: the algorithm's, made by the program itself. What the trainer sends is a pickle,
            and is never opened here.
        explore: whether actions are drawn; else the likeliest is taken.
        seed: of the draws.
    """

    def __init__(
        self, config: AlgorithmConfig, *, explore: bool = True, seed: int | None = None
    ) -> None:
        self._module = config.get_rl_module_spec(
            spaces={DEFAULT_MODULE_ID: (config.observation_space, config.action_space)},
            inference_only=True,
        ).build()
        self._explore = explore
        self._random = np.random.default_rng(seed)
        self._of: SetState | None = None

    def __call__(self, observation: Any, weights: SetState) -> tuple[int, dict[str, Any]]:
        """Return an action, its distribution's inputs and its probability's logarithm."""
        if weights is not self._of:
            assert weights.state is not None
            self._module.set_state(weights.state[_MODULE])
            self._of = weights
        forward = (
            self._module.forward_exploration if self._explore else self._module.forward_inference
        )
        with torch.no_grad():
            batch = {Columns.OBS: torch.as_tensor(np.asarray(observation, np.float32)[None])}
            inputs = forward(batch)[Columns.ACTION_DIST_INPUTS][0]
            logs = torch.log_softmax(inputs.double(), 0).numpy()
        if self._explore:
            drawn = np.searchsorted(np.cumsum(np.exp(logs)), self._random.random())
            action = min(int(drawn), len(logs) - 1)
        else:
            action = int(logs.argmax())
        return action, {
            Columns.ACTION_DIST_INPUTS: inputs.numpy(),
            Columns.ACTION_LOGP: np.float32(logs[action]),
        }


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


def _array(part: Any) -> Any:
    return part.detach().cpu().numpy() if isinstance(part, torch.Tensor) else part
