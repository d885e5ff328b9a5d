"""Options of OpenAI Universe: of the rewarder, and of the pixels beside it."""

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
    """Of both sides.

    Attributes:
        password: the secret itself, as the original's URLs have it; others may see it there.
        ping_interval: how often the other side is asked for a sign of life.
        ping_timeout: how long it may be in coming.
    """

    password: Annotated[str | None, _options.Into("auth")] = None
    ping_interval: float | None = 20.0
    ping_timeout: float | None = 20.0


@dataclass(frozen=True)
class UniverseServerOptions(
    _options.MakingOptions,
    _options.OriginOptions,
    _PasswordOptions,
    _options.StreamServerOptions,
):
    """Of a server of an environment in real time.

    `play` is a function that returns the action, instead of `keys`; `about` is what clients get to
    know of the environment besides, and `pixels` has options of the `RfbServer` alone.

    Attributes:
        rate: steps a second.
        keys: the action, in JSON, of keys and buttons that a viewer holds down, such as Left=3,
            Left+space=5 or Button1=1 (default: those that the environment has for people).
        frames: what viewers see (default: the observation if it is a picture in colour, or else
            what the environment renders).
        view_auth_file: the secret in this file: VNC's viewers that have it look on, and cannot
            play.
        lockstep: make one step for each action instead.
        name: what it is called (default: its own name).
        seed: from which all seeds are made.
        backlog: bytes that may wait for a client that does not read.
    """

    timeout: Timeouts | _options.Seconds | None = TIMEOUTS
    rate: _options.Hz = 60.0
    keys: _Keys | None = None
    frames: Literal["observation", "render"] | None = None
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
    """Of a client of the rewarder.

    Attributes:
        observer: look on, and do not act.
        attach: whether to go on with what the server has running.
    """

    observer: bool = False
    attach: bool | None = None


@dataclass(frozen=True)
class UniverseEnvironmentOptions(UniverseClientOptions):
    """Of `rlwire.make` over Universe; those without a text are as of `UniverseEnv`.

    Attributes:
        step_timeout: without pixels, how long a step may take.
        start_timeout: with pixels, how long the remote may take to be there.
        reset_timeout: how long an episode may take to begin.
        rate: with pixels, steps a second.
    """

    step_timeout: float = 10.0
    start_timeout: float = 30.0
    reset_timeout: float | None = None
    rate: _options.Hz = 60.0
    actions: Any = None
    rewarder: Any = None
    pixels: Any = None
    replace: Any = None


OPTIONS: Final[_options.Kinds] = {
    "server": UniverseServerOptions,
    "client": UniverseClientOptions,
    "environment": UniverseEnvironmentOptions,
}
