"""`RemoteEnvironment`: an `Endpoint` as a `gymnasium.Env`.

Needs Gymnasium (the extra ``gym``). Not here: how a protocol carries it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlwire.environments.driver import drive
from rlwire.environments.endpoint import Endpoint
from rlwire.environments.spaces import gymnasium_space
from rlwire.errors import on_error, optional

with optional("gymnasium", "gym"):
    import gymnasium
    from gymnasium.envs.registration import EnvSpec, register, registry

__all__ = ["ID", "RemoteEnvironment", "Secret", "given_spaces", "spaces_like"]

ID = "rlwire/Remote-v0"
"""What `rlwire` registers it as with Gymnasium, whichever of the two a program imports first."""

if ID not in registry:
    register(ID, entry_point="rlwire:make")


class RemoteEnvironment(gymnasium.Env):
    """An environment that is somewhere else, for its trainer.

    What a lost connection does is said in `Endpoint`. It belongs to one thread.

    Args:
        endpoint: which environment; closed with this.
        arguments: those that `rlwire.make` makes it again with, for its `spec`.
        render_mode: ``"rgb_array"`` has the endpoint render.

    Attributes:
        endpoint: the same, for what is of the protocol alone.
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
        """Begin an episode.

        Raises:
            RlwireError: the environment refuses, or cannot be reached.
        """
        super().reset(seed=seed)
        self.endpoint.begin_reset(seed, options)
        observation, info = self.endpoint.finish()
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act.

        Raises:
            EncodeError: the action cannot be sent.
            LocalProtocolError: there is no episode, call `reset`.
            RlwireError: the environment refuses.
        """
        endpoint = self.endpoint
        endpoint.begin_step(action)
        return endpoint.finish()

    def render(self) -> Any:
        """Return the environment's picture, (height, width, 3) uint8; None without a render mode.

        Raises:
            RlwireError: the server cannot be reached, or cannot render.
        """
        return self.endpoint.render()

    def close(self) -> None:
        """Leave, and close the connection."""
        self.endpoint.close()


class Secret:
    """A password or key that an environment's `spec` keeps and does not show.

    Attributes:
        value: the secret.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def of(cls, value: Any) -> Secret:
        """Return a value as a secret, which it may be already."""
        return value if isinstance(value, Secret) else cls(value)

    def __repr__(self) -> str:
        return "<secret>"


def given_spaces(
    like: Any, observation_space: Any, action_space: Any, agent: str | None = None
) -> dict[str, Any]:
    """Return the spaces by name: as they are, or those of `like`.

    Raises:
        TypeError: both are given.
    """
    if like is not None:
        if observation_space is not None or action_space is not None:
            raise TypeError("give the spaces, or an environment that has them, not both")
        observation_space, action_space = spaces_like(like, agent)
    return {"observation_space": observation_space, "action_space": action_space}


def spaces_like(environment: Any, agent: str | None = None) -> tuple[Any, Any]:
    """Return the observation and the action space of an environment, or of one of this name.

    Args:
        environment: an environment, or a name such as ``"CartPole-v1"``, ``"gym:CartPole-v1"`` or
            ``"mpe2.simple_spread_v3:parallel_env"``, which is made for it and closed.
        agent: whose, of PettingZoo's environments; None for the first.
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
