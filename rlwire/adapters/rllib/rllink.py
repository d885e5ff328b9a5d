"""RLlib behind RLlink: `RLlinkEnvRunner` samples for its algorithms, `ModulePolicy` acts for them.

Here is what one runner does, for as many simulators as connect to it. Source:
`ray.rllib.env.external` of Ray 2.60. Needs the extra ``rllib``.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlwire.adapters.rllib.runners import Runner
from rlwire.adapters.rllink.client import PORT
from rlwire.adapters.rllink.server import RLlinkServer
from rlwire.codecs.rllink import SetConfig, SetState
from rlwire.errors import optional

with optional("ray", "rllib"):
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
with optional("torch", "rllib"):
    import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

__all__ = ["ModulePolicy", "RLlinkEnvRunner"]

_MODULE = "rl_module"  # the entry of a state that has a module's weights


class RLlinkEnvRunner(Runner):
    """A runner of RLlib's new API stack that simulators send episodes to.

    ::

        config = PPOConfig().environment(
            observation_space=..., action_space=..., env_config={"port": 5555}
        ).env_runners(env_runner_cls=RLlinkEnvRunner, num_env_runners=2)

    Clients are told RLlib's config as its own runner tells it (a pickle, which only RLlib's clients
    read), how many steps RLlib wants of a message, and whether they must wait for new weights.

    The `env_config` may have: ``host`` (by default ``"localhost"``), ``port`` (5555; 0 for any,
    found by `rlwire.adapters.rllib.runners.runners`), ``steps`` of a message (by default RLlib's
    rollout fragment), ``on_policy`` (by default true), and ``server``, more options of
    `RLlinkServer`.

    Args:
        config: the algorithm's.
        options: RLlib's own, such as `worker_index`.
    """

    port = PORT

    def __init__(self, *, config: AlgorithmConfig, **options: Any) -> None:
        super().__init__(config=config, **options)
        if self.listens:
            told: Mapping[str, Any] = self.config.env_config
            self.server = RLlinkServer(
                self.where,
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
            self.started()

    def sample(self, **options: Any) -> list[Any]:
        """Return the episodes that simulators have sent, and wait for some if there are none.

        No longer than the config's `sample_timeout_s`; then there are none.
        """
        if self.server is None:
            return []
        return self.sampled(
            [
                SingleAgentEpisode.from_state(episode.to_state()).to_numpy()
                for episode in self.server.sample(self.config.sample_timeout_s)
            ]
        )

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take new weights, and give them to the simulators."""
        super().set_state(state)
        self._publish()

    def _publish(self) -> None:
        if self.server is not None:
            weights = {name: _array(part) for name, part in self.module.get_state().items()}
            self.server.set_state(SetState(self._number, {_MODULE: weights}))


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


def _array(part: Any) -> Any:
    return part.detach().cpu().numpy() if isinstance(part, torch.Tensor) else part
