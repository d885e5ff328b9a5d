"""`RemoteEnvironment`: an `Endpoint` as a `gymnasium.Env`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlwire.environments.driver import drive
from rlwire.environments.endpoint import Endpoint
from rlwire.environments.spaces import gymnasium_space
from rlwire.errors import on_error, optional

with optional("gymnasium", "gym"):
    import gymnasium
    from gymnasium.envs.registration import EnvSpec, register, registry

ID = "rlwire/Remote-v0"
"""The id in Gymnasium's registry."""

if ID not in registry:
    register(ID, entry_point="rlwire:make")


class RemoteEnvironment(gymnasium.Env):
    """A remote environment, used by one thread; `Endpoint` describes lost connections.

    Args:
        endpoint: the connection, with the protocol's own attributes and methods; `close` closes it.
        arguments: those of `rlwire.make`, for `spec`.
        render_mode: ``"rgb_array"`` makes `render` return pictures.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        arguments: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            with on_error(endpoint.close):
                endpoint.start_rendering()
            arguments = {**(arguments or {}), "render_mode": render_mode}
        self.endpoint = endpoint
        self.observation_space = endpoint.observation_space
        self.action_space = endpoint.action_space
        self.metadata = dict(endpoint.metadata)
        self.render_mode = endpoint.render_mode
        self.spec = EnvSpec(
            ID,
            entry_point="rlwire:make",
            nondeterministic=endpoint.nondeterministic,
            order_enforce=False,
            disable_env_checker=True,
            kwargs=dict(arguments or {}),
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; RlwireError if the server rejects it or cannot be reached."""
        super().reset(seed=seed)
        self.endpoint.begin_reset(seed, options)
        observation, info = self.endpoint.finish()
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step.

        Raises:
            EncodeError: the action does not fit the action space.
            LocalProtocolError: no episode is running; call `reset`.
            RlwireError: the server rejects the action.
        """
        endpoint = self.endpoint
        endpoint.begin_step(action)
        return endpoint.finish()

    def render(self) -> Any:
        """Return the picture, uint8 of shape (height, width, 3); None without a render mode."""
        return self.endpoint.render()

    def close(self) -> None:
        self.endpoint.close()


@dataclass(repr=False)
class Secret:
    """A password or key in `spec`; `repr` hides it."""

    value: Any

    @classmethod
    def of(cls, value: Any) -> Secret:
        return value if isinstance(value, Secret) else cls(value)

    def __repr__(self) -> str:
        return "<secret>"


def given_spaces(
    like: Any, observation_space: Any, action_space: Any, agent: str | None = None
) -> dict[str, Any]:
    """Return the spaces by name: the given ones, or those of `like`; TypeError for both."""
    if like is not None:
        if observation_space is not None or action_space is not None:
            raise TypeError("pass either like= or observation_space= and action_space=, not both")
        observation_space, action_space = spaces_like(like, agent)
    return {"observation_space": observation_space, "action_space": action_space}


def spaces_like(environment: Any, agent: str | None = None) -> tuple[Any, Any]:
    """Return the observation space and action space of an environment; one by name is made for it.

    Args:
        environment: an environment, or a name such as ``"CartPole-v1"``, ``"gym:CartPole-v1"`` or
            ``"mpe2.simple_spread_v3:parallel_env"``.
        agent: the agent of a PettingZoo environment; None for the first.
    """
    driven = drive(environment)
    try:
        seen, done = driven.observation_space, driven.action_space
    finally:
        if driven.owned:
            driven.close()
    if driven.agents:
        agent = driven.agents[0] if agent is None else agent
        seen, done = seen[agent], done[agent]
    return gymnasium_space(seen), gymnasium_space(done)
