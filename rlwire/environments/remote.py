"""`RemoteEnvironment`: an `Endpoint` as a `gymnasium.Env`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rlwire._options import check_count, resolve
from rlwire.environments.driver import drive
from rlwire.environments.endpoint import Endpoint, check_options, check_seed
from rlwire.environments.spaces import DescribedSpaces, episode_of, gymnasium_space
from rlwire.errors import on_error, optional
from rlwire.urls import URL, naming_protocol, parse_url

with optional("gymnasium", "gym"):
    import gymnasium
    from gymnasium.envs.registration import EnvSpec, load_env_creator, register, registry
    from gymnasium.error import ClosedEnvironmentError

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
        episode: fields of `spec` that are used if the peer does not send them.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        arguments: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        episode: Mapping[str, Any] | None = None,
    ) -> None:
        if render_mode is not None:
            with on_error(endpoint.close):
                endpoint.start_rendering()
            arguments = {**(arguments or {}), "render_mode": render_mode}
        self.endpoint = endpoint
        self.closed = False
        self.observation_space = endpoint.observation_space
        self.action_space = endpoint.action_space
        self.metadata = dict(endpoint.metadata)
        self.render_mode = endpoint.render_mode
        self._episode = episode or {}
        self._arguments = dict(arguments or {})
        self.spec = EnvSpec(
            ID,
            entry_point="rlwire:make",
            nondeterministic=endpoint.nondeterministic,
            order_enforce=False,
            disable_env_checker=True,
        )

    @property
    def spec(self) -> EnvSpec | None:
        """The arguments of `rlwire.make`; and the time limit and reward threshold, if known."""
        known = {**self._episode, **self.endpoint.episode}
        return None if self._spec is None else replace(self._spec, **known)

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        # That of gymnasium.make has the user's arguments, with secrets.
        self._spec = None if spec is None else replace(spec, kwargs=self._arguments)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; RlwireError if the server rejects it or cannot be reached."""
        endpoint = self.opened()
        check_options(options)
        check_seed(seed)
        super().reset(seed=seed)
        endpoint.begin_reset(seed, options)
        observation, info = endpoint.finish()
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step.

        Raises:
            EncodeError: the action does not fit the action space.
            LocalProtocolError: no episode is running; call `reset`.
            RlwireError: the server rejects the action.
        """
        if self.closed:
            self.opened()  # raises
        return self.endpoint.step(action)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the arguments of `rlwire.make`: a copy has a connection of its own."""
        if "url" not in self._arguments:
            raise TypeError(
                "an environment of rlwire.listen cannot be pickled or copied: it has its caller's "
                "connection. Copy one of rlwire.make"
            )
        return partial(load_env_creator("rlwire:make"), **self._arguments), ()

    def render(self) -> Any:
        """Return the picture, uint8 of shape (height, width, 3); None without a render mode."""
        return self.opened().render()

    def opened(self) -> Endpoint:
        """Return the endpoint; ClosedEnvironmentError after `close`."""
        if self.closed:
            raise ClosedEnvironmentError("the environment has been closed; make it again")
        return self.endpoint

    def close(self) -> None:
        self.closed = True
        self.endpoint.close()


@dataclass(repr=False)
class Secret:
    """A password or key in `spec`; `repr` hides it."""

    value: Any

    def __repr__(self) -> str:
        return "<secret>"


def connected(
    url: str | URL,
    spaces: tuple[Any, Any, Any],
    *,
    copy: bool,
    render_mode: str | None,
    options: dict[str, Any],
) -> RemoteEnvironment:
    """Connect for `rlwire.make`; `spaces` are like, observation space and action space."""
    if render_mode not in (None, "rgb_array"):
        raise ValueError(
            f'render_mode must be "rgb_array" or None, not {render_mode!r}; for a window, wrap the '
            f"environment in gymnasium.wrappers.HumanRendering"
        )
    if isinstance(options.get("auth"), Secret):  # in a spec
        options = {**options, "auth": options["auth"].value}
    begin, where, keywords = resolve(url, "environment", options)
    if "auth" in keywords:
        named = ("auth_file", "auth_env", "password")
        options = {k: v for k, v in options.items() if k not in named}
        options["auth"] = Secret(keywords["auth"])
        url = parse_url(url)
        url = url.replace(options=tuple(each for each in url.options if each[0] not in named))
    found, episode = given_spaces(*spaces, keywords.get("agent"))
    with naming_protocol(where):
        endpoint = begin(where, copy=copy, **found, **keywords)
    return RemoteEnvironment(
        endpoint, {"url": str(url), "copy": copy, **found, **options}, render_mode, episode
    )


def listening(
    url: str | URL, num_envs: int, spaces: tuple[Any, Any, Any], options: dict[str, Any]
) -> list[RemoteEnvironment]:
    """Listen for `rlwire.listen`; return the environments, which share their `callers`."""
    check_count("num_envs", num_envs)
    begin, where, keywords = resolve(url, "listener", options)
    given, episode = given_spaces(*spaces)
    callers = begin(where, num_envs, **given, **keywords)
    found = [RemoteEnvironment(each, episode=episode) for each in callers.endpoints]
    for env in found:
        env.callers = callers
    return found


def given_spaces(
    like: Any, observation_space: Any, action_space: Any, agent: str | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the spaces by name, the given ones or those of `like`, and its `episode_of`."""
    episode: dict[str, Any] = {}
    if like is not None:
        if observation_space is not None or action_space is not None:
            raise TypeError("pass either like= or observation_space= and action_space=, not both")
        observation_space, action_space, episode = spaces_like(like, agent)
    return {"observation_space": observation_space, "action_space": action_space}, episode


def spaces_like(environment: Any, agent: str | None = None) -> DescribedSpaces:
    """Return the spaces and `episode_of` an environment or a name; `agent` is of PettingZoo's."""
    driven = drive(environment)
    try:
        seen, done = driven.observation_space, driven.action_space
        episode = episode_of(driven.environment)
    finally:
        if driven.owned:
            driven.close()
    if driven.agents:
        agent = driven.agents[0] if agent is None else agent
        seen, done = seen[agent], done[agent]
    return DescribedSpaces(gymnasium_space(seen), gymnasium_space(done), episode)
