"""Options of OpenAI Universe: the rewarder, and the pixels beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from rlwire import _options
from rlwire.transports.sockets import Timeouts
from rlwire.universe.rewarder.server import TIMEOUTS


def _key_action(written: str) -> tuple[str, Any]:
    keys, _, action = written.rpartition("=")
    try:
        return keys, json.loads(action)
    except ValueError:
        raise ValueError(f"expected KEYS=ACTION, the action in JSON, not {written!r}") from None


_Keys = Annotated[dict[str, Any], _options.Reads(_key_action, "KEYS=ACTION")]


@dataclass(frozen=True)
class _PasswordOptions(_options.SecretOptions):
    """Options of both sides.

    Attributes:
        password: the password itself, as in the original's URLs; other users may see it there.
        ping_interval: time between keep-alive pings.
        ping_timeout: time until a pong is due.
    """

    password: Annotated[str | None, _options.Into("auth")] = None
    ping_interval: float | None = 20.0
    ping_timeout: float | None = 20.0


@dataclass(frozen=True)
class UniverseServerOptions(
    _options.MakingOptions, _options.OriginOptions, _PasswordOptions, _options.StreamServerOptions
):
    """Options of a server of an environment in real time; others are `UniverseServer`'s.

    Attributes:
        rate: steps a second.
        keys: actions, in JSON, by the keys and buttons that a viewer holds down, such as Left=3,
            Left+space=5 or Button1=1 (default: the environment's get_keys_to_action).
        frames: what viewers see (default: the observation if it is a colour picture, otherwise
            what the environment renders).
        page: also serve a page for browsers, on port 6080 of the same host.
        page_port: the same, on another port.
        view_auth_file: the file with the password of viewers that can only watch.
        lockstep: make one step for each action instead.
        name: the environment's name for clients (default: its own).
        seed: of the first episode, unless a client sends one.
        backlog: bytes that may wait for a client that does not read.
    """

    timeout: Timeouts | _options.Seconds | None = TIMEOUTS
    rate: _options.Hz = 60.0
    keys: _Keys | None = None
    frames: Literal["observation", "render"] | None = None
    page: Annotated[Any, _options.Reads(_options.flag, None)] = None
    page_port: Annotated[_options.Natural | None, _options.Into("page")] = None
    view_auth: Any = None
    view_auth_file: Annotated[_options.SecretFile | None, _options.Into("view_auth")] = None
    lockstep: bool = False
    name: _options.Name | None = None
    seed: int | None = None
    backlog: _options.Natural = 1 << 20
    play: Any = None
    about: Any = None
    pixels: Any = None


@dataclass(frozen=True)
class UniverseClientOptions(_PasswordOptions, _options.StreamClientOptions):
    """Options of a client of the rewarder.

    Attributes:
        observer: only watch.
        attach: join the current episode without a reset.
    """

    observer: bool = False
    attach: bool | None = None


@dataclass(frozen=True)
class UniverseEnvironmentOptions(UniverseClientOptions):
    """Options of `rlwire.make` over Universe; others are `UniverseEnv`'s.

    Attributes:
        step_timeout: without pixels, time for a step.
        start_timeout: with pixels, time until the remote is connected.
        reset_timeout: time until an episode runs.
        rate: with pixels, steps a second.
    """

    step_timeout: float = 10.0
    start_timeout: float = 30.0
    reset_timeout: float | None = None
    rate: _options.Hz = 60.0
    actions: Any = None
    rewarder: Any = None
    pixels: Any = None


OPTIONS: Final[_options.Kinds] = {
    "server": UniverseServerOptions,
    "client": UniverseClientOptions,
    "environment": UniverseEnvironmentOptions,
}
