"""RLlib over RLlink: `RLlinkEnvRunner` receives episodes, `ModulePolicy` acts in simulators.

Source: `ray.rllib.env.external` of Ray 2.60. Needs the extra ``rllib``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from rlwire.codecs.rllink import SetConfig, SetState
from rlwire.errors import optional
from rlwire.rllib.directory import reachable, register
from rlwire.rllink.environment import sampled
from rlwire.rllink.options import PORT
from rlwire.rllink.server import Server
from rlwire.urls import parse_url

with optional("ray", "rllib"):
    import ray
    from ray import cloudpickle
with optional("torch", "rllib"):
    import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env import INPUT_ENV_SPACES
from ray.rllib.env.external.env_runner_server_for_external_inference import (
    EnvRunnerServerForExternalInference,
)
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

__all__ = ["ModulePolicy", "RLlinkEnvRunner"]

logger = logging.getLogger(__name__)

_MOST_BEGUN: Final = 1000  # unfinished episodes kept for metrics
_MODULE: Final = "rl_module"  # key of a module's weights in a state


class RLlinkEnvRunner(EnvRunnerServerForExternalInference):
    """A runner of RLlib's new API stack that receives episodes from any number of simulators.

    ::

        config = PPOConfig().environment(
            observation_space=..., action_space=..., env_config={"port": 5555}
        ).env_runners(env_runner_cls=RLlinkEnvRunner, num_env_runners=2)

    A runner listens at the port plus its `worker_index`, as Ray's own does: 5556 and 5557 here, and
    5555 with ``num_env_runners=0``. Ray's class handles metrics and weights.

    The `env_config` may have: ``host`` (default: ``"localhost"``), ``port`` (5555; 0 lets the
    system choose, see `rlwire.rllib.directory.runners`), ``steps``, the steps in a message
    (RLlib's rollout fragment), ``on_policy`` (true), ``name`` (if several algorithms share a
    cluster), and ``server``, a dict of options of `rllink.Server`.
    """

    def __init__(self, *, config: AlgorithmConfig, **options: Any) -> None:
        self.server: Server | None = None
        options["worker_index"] = options.get("worker_index") or 0
        super().__init__(config=config, **options)
        if self.config.num_env_runners and not self.worker_index:
            return
        given: Mapping[str, Any] = self.config.env_config
        port = int(given.get("port", PORT))
        steps = given.get("steps") or self.config.get_rollout_fragment_length(self.worker_index)
        self.server = Server(
            (given.get("host", "localhost"), port and port + self.worker_index),
            config=SetConfig(
                int(steps),
                bool(given.get("on_policy", True)),
                cloudpickle.dumps(self.config),  # read by RLlib's own clients only
            ),
            **given.get("server", {}),
        )
        self._publish()
        self.server.start()
        self._forget = register(str(given.get("name", "")), self.worker_index, self.url)
        nodes = ray.nodes() if ray.is_initialized() else []
        if sum(node["Alive"] for node in nodes) > 1 and parse_url(self.url).address.loopback:
            logger.warning("%s: other nodes cannot connect; set env_config's host", self.url)

    def _client_message_listener(self) -> None:
        """Do nothing, since the server has its own threads."""

    @property
    def url(self) -> str:
        """The URL for simulators, also on other machines; "" if the runner does not listen."""
        return "" if self.server is None else reachable(self.server.url)

    def assert_healthy(self) -> None:
        assert self.server is None or self.server.url

    def stop(self) -> None:
        server, self.server = self.server, None
        if server is not None:
            self._forget()
            server.stop()

    def sample(self, **options: Any) -> list[Any]:
        """Return received episodes; wait for the first at most the config's `sample_timeout_s`."""
        if self.server is None:
            return []
        clients, url = self.server.statistics()["open"], self.url
        batch = self.server.sample(self.config.sample_timeout_s)
        if not batch and self.server is not None:  # else `stop` was called
            logger.warning(
                "no samples within %g s: runner %d at %s has %d clients; clients of Ray's need the "
                "package msgpack-numpy, which ray[rllib] does not install",
                self.config.sample_timeout_s, self.worker_index, url, clients,
            )  # fmt: skip
        episodes, steps = [], 0
        for received in batch:
            try:
                episode = SingleAgentEpisode.from_state(received.to_state()).to_numpy()
            except Exception as error:
                logger.warning("dropped an invalid episode of %d steps: %s", len(received), error)
                continue
            steps += len(episode)
            if episode.is_done:
                self._done_episodes_for_metrics.append(episode)
            else:
                self._ongoing_episodes_for_metrics[episode.id_].append(episode)
            episodes.append(episode)
        while len(self._ongoing_episodes_for_metrics) > _MOST_BEGUN:  # of lost simulators
            del self._ongoing_episodes_for_metrics[next(iter(self._ongoing_episodes_for_metrics))]
        done = sum(episode.is_done for episode in episodes)
        self.num_env_steps_sampled_lifetime += steps
        SingleAgentEnvRunner._increase_sampled_metrics(self, steps, done)
        # Episodes without steps count for metrics, but learners cannot use them.
        return [episode for episode in episodes if len(episode)]

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._publish()

    def _publish(self) -> None:
        if self.server is not None:
            weights = _arrays(self.module.get_state())
            self.server.set_state(SetState(self._weights_seq_no, {_MODULE: weights}))


class ModulePolicy:
    """A policy for `rlwire.play` that runs RLlib's module with the trainer's weights.

    For Discrete actions. Pass the algorithm's `config`: the trainer sends it as a pickle, which
    rlwire does not load. `seed` is for sampling actions.
    """

    def __init__(self, config: AlgorithmConfig, *, seed: int | None = None) -> None:
        whole = (config.observation_space, config.action_space)
        spaces = {INPUT_ENV_SPACES: whole, DEFAULT_MODULE_ID: whole}
        self._module = config.get_rl_module_spec(spaces=spaces, inference_only=True).build()
        self._random = np.random.default_rng(seed)
        self._of: SetState | None = None

    def __call__(self, observation: Any, weights: SetState) -> tuple[int, dict[str, Any]]:
        """Return an action, its distribution inputs and its log-probability."""
        if weights is not self._of:
            assert weights.state is not None
            self._module.set_state(weights.state[_MODULE])
            self._of = weights
        with torch.no_grad():
            batch = {Columns.OBS: torch.as_tensor(np.asarray(observation, np.float32)[None])}
            inputs = self._module.forward_exploration(batch)[Columns.ACTION_DIST_INPUTS][0]
        return sampled(inputs.numpy(), self._random)


def _arrays(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {name: _arrays(part) for name, part in state.items()}
    return state.detach().cpu().numpy() if isinstance(state, torch.Tensor) else state
