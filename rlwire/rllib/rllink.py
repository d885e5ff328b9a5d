"""RLlib behind RLlink: `RLlinkEnvRunner` samples for its algorithms, `ModulePolicy` acts for them.

Here is what one runner does, for as many simulators as connect to it. Source:
`ray.rllib.env.external` of Ray 2.60. Needs the extra ``rllib``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

import numpy as np

from rlwire.codecs.rllink import SetConfig, SetState
from rlwire.errors import optional
from rlwire.rllib.runners import Runner, spaces_of
from rlwire.rllink.client import PORT
from rlwire.rllink.server import Server

with optional("ray", "rllib"):
    from ray import cloudpickle
with optional("torch", "rllib"):
    import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

__all__ = ["ModulePolicy", "RLlinkEnvRunner"]

logger = logging.getLogger(__name__)

_QUIET: Final = 60.0  # seconds without samples after which the log says where it listens
_MODULE = "rl_module"  # the entry of a state that has a module's weights


class RLlinkEnvRunner(Runner):
    """A runner of RLlib's new API stack that simulators send episodes to.

    ::

        config = PPOConfig().environment(
            observation_space=..., action_space=..., env_config={"port": 5555}
        ).env_runners(env_runner_cls=RLlinkEnvRunner, num_env_runners=2)

    A runner listens at the port and its `worker_index`, as Ray's own does: 5556 and 5557 here, and
    5555 with ``num_env_runners=0``.

    Clients are told RLlib's config as its own runner tells it (a pickle, which only RLlib's clients
    read), how many steps RLlib wants of a message, and whether they must wait for new weights.

    The `env_config` may have: ``host`` (by default ``"localhost"``), ``port`` (5555; 0 for any,
    found by `rlwire.rllib.directory.runners`), ``steps`` of a message (by default RLlib's
    rollout fragment), ``on_policy`` (by default true), ``name`` (where several algorithms share a
    cluster), and ``server``, more options of `rllink.Server`.

    Args:
        config: the algorithm's.
        options: RLlib's own, such as `worker_index`.
    """

    def __init__(self, *, config: AlgorithmConfig, **options: Any) -> None:
        super().__init__(config=config, **options)
        if self.listens:
            told: Mapping[str, Any] = self.config.env_config
            port = int(told.get("port", PORT))
            self.server = Server(
                (told.get("host", "localhost"), port and port + self.worker_index),
                config=SetConfig(
                    int(
                        told.get("steps")
                        or self.config.get_rollout_fragment_length(self.worker_index)
                    ),
                    bool(told.get("on_policy", True)),
                    cloudpickle.dumps(self.config),  # functions in it too
                ),
                **told.get("server", {}),
            )
            self._publish()
            self.server.start()
            self.started()
            self._quiet = monotonic() + _QUIET  # when it is to say that nothing came

    def sample(self, **options: Any) -> list[Any]:
        """Return the episodes that simulators have sent, and wait for some if there are none.

        No longer than the config's `sample_timeout_s`; then there are none.
        """
        if self.server is None:
            return []
        episodes = []
        for episode in self._wait():
            try:
                episodes.append(SingleAgentEpisode.from_state(episode.to_state()).to_numpy())
            except Exception as error:  # a simulator's: others go on
                logger.warning("an episode of %d steps is of no use: %s", len(episode), error)
        return self.sampled(episodes)

    def _wait(self) -> list[Any]:
        """Return what came within `sample_timeout_s`; the log says where nothing comes."""
        timeout = self.config.sample_timeout_s
        end = math.inf if timeout is None else monotonic() + timeout
        while True:
            until = min(end, self._quiet)
            found: list[Any] = self.server.sample(max(until - monotonic(), 0.0))
            now = monotonic()
            if found:
                self._quiet = now + _QUIET
            elif now >= self._quiet:
                logger.warning(
                    "no samples for %g s: the runner with worker_index %d listens at %s, and has "
                    "%d clients",
                    _QUIET, self.worker_index, self.url, self.server.statistics().clients,
                )  # fmt: skip
                self._quiet = now + _QUIET
            if found or now >= end or now < until:  # before its time: the server has stopped
                return found

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take new weights, and give them to the simulators."""
        super().set_state(state)
        self._publish()

    def _publish(self) -> None:
        if self.server is not None:
            weights = _arrays(self.module.get_state())
            self.server.set_state(SetState(self._number, {_MODULE: weights}))


class ModulePolicy:
    """A policy that runs RLlib's module here, with the weights that the trainer sends.

    For Discrete spaces; see `rlwire.rllink.environment`.

    Args:
        config: the algorithm's, made by the program itself. What the trainer sends is a pickle,
            and is never opened here.
        explore: whether actions are drawn; else the likeliest is taken.
        seed: of the draws.
    """

    def __init__(
        self, config: AlgorithmConfig, *, explore: bool = True, seed: int | None = None
    ) -> None:
        spec = config.get_rl_module_spec(spaces=spaces_of(config), inference_only=True)
        self._module = spec.build()
        self._explore = explore
        self._random = np.random.default_rng(seed)
        self._of: SetState | None = None

    def __call__(self, observation: Any, weights: SetState) -> tuple[int, dict[str, Any]]:
        """Return an action, its distribution's inputs and its probability's logarithm."""
        if weights is not self._of:
            assert weights.state is not None
            self._module.set_state(weights.state[_MODULE])
            self._of = weights
        module = self._module
        forward = module.forward_exploration if self._explore else module.forward_inference
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


def _arrays(state: Any) -> Any:
    """Return a state with arrays in the places of tensors."""
    if isinstance(state, Mapping):
        return {name: _arrays(part) for name, part in state.items()}
    return state.detach().cpu().numpy() if isinstance(state, torch.Tensor) else state
