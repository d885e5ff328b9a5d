"""`VecEnv`: a vector of environments for Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlwire.errors import optional

with optional("stable-baselines3", "sb3", "stable_baselines3"):  # first: its extra has all others
    from stable_baselines3.common import vec_env

from rlwire.environments.vector import VectorEnvironment

__all__ = ["VecEnv"]


class VecEnv(vec_env.VecEnv):
    """A vector of environments for Stable-Baselines3.

    ::

        envs = rlwire.make_vec(["dm-env-rpc://localhost:9911"] * 8, sb3=True)
        model = PPO("MlpPolicy", VecMonitor(envs)).learn(100_000)

    If an environment is lost, its episode is truncated, with ``info["lost"]`` and
    ``info["TimeLimit.truncated"]``.

    Args:
        envs: a vector with autoreset mode "SameStep" and ``copy=True``; `close` closes it.
    """

    def __init__(self, envs: VectorEnvironment) -> None:
        mode = getattr(envs.metadata.get("autoreset_mode"), "value", None)
        if mode != "SameStep":
            raise ValueError(
                f"Stable-Baselines3 needs make_vec(..., autoreset_mode='SameStep'), not {mode!r}"
            )
        if not envs.copies:
            raise ValueError("Stable-Baselines3 keeps observations: pass copy=True to make_vec")
        self._envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self.metadata = envs.metadata
        self.spec = envs.spec

    def reset(self) -> Any:
        options = self._options[0]
        if any(each != options for each in self._options):
            raise ValueError("expected the same reset options for all environments of a vector")
        observations, _ = self._envs.reset(seed=self._seeds, options=options or None)
        self.reset_infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for place, info in self._envs.infos:
            self.reset_infos[place] = info
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        envs = self._envs
        found = envs.advance(self._actions)
        observations, rewards, terminations, truncations = envs.results()
        infos: list[dict[str, Any]] = [
            {"TimeLimit.truncated": cut} for cut in (truncations & ~terminations).tolist()
        ]
        for place, info in found:
            if "final_obs" in info:
                infos[place] |= info["final_info"]
                infos[place]["terminal_observation"] = info["final_obs"]
                self.reset_infos[place] = {}
            elif "terminal_observation" in infos[place]:
                self.reset_infos[place] = info
            else:
                infos[place] |= info
        return observations, rewards.astype(np.float32), terminations | truncations, infos

    def close(self) -> None:
        self._envs.close()

    def get_images(self) -> Sequence[Any]:
        return self._envs.render()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return list(self._envs.call_some(self._get_indices(indices), attr_name))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        places = self._get_indices(indices)
        self._envs.call_some(places, "set_wrapper_attr", attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        places = self._get_indices(indices)
        return list(self._envs.call_some(places, method_name, *method_args, **method_kwargs))

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False for each environment: wrappers of remote ones are unknown."""
        return [False for _ in self._get_indices(indices)]
