"""Options of OpenAI Universe: of the rewarder, and of the pixels beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from rlwire._options import (
    Hz,
    Into,
    MakingOptions,
    Name,
    Natural,
    OriginOptions,
    Reads,
    Seconds,
    SecretFile,
    SecretOptions,
    Side,
    StreamClientOptions,
    StreamServerOptions,
    flag,
)
from rlwire.transports.sockets import Timeouts
from rlwire.universe.rewarder.server import TIMEOUTS


def _key_action(written: str) -> tuple[str, Any]:
    keys, _, action = written.rpartition("=")
    try:
        return keys, json.loads(action)
    except ValueError:
        raise ValueError(f"expected KEYS=ACTION, the action in JSON, not {written!r}") from None


@dataclass(frozen=True)
class _PasswordOptions(SecretOptions):
    """Of both sides.

    Attributes:
        password: the secret itself, as the original's URLs have it; others may see it there.
        ping_interval: how often the other side is asked for a sign of life.
        ping_timeout: how long it may be in coming.
    """

    password: Annotated[str | None, Into("auth")] = None
    ping_interval: Seconds | None = 20.0
    ping_timeout: Seconds | None = 20.0


@dataclass(frozen=True)
class UniverseServerOptions(MakingOptions, OriginOptions, _PasswordOptions, StreamServerOptions):
    """Of a server of an environment in real time.

    Attributes:
        rate: steps a second.
        keys: the action, in JSON, of keys and buttons that a viewer holds down, such as Left=3,
            Left+space=5 or Button1=1 (default: those that the environment has for people).
        play: instead of keys, a function that returns the action.
        frames: what viewers see (default: the observation if it is a picture in colour, or else
            what the environment renders).
        page: also serve a page for browsers, on port 6080 of the same host.
        page_port: the same, on another port.
        novnc: the folder of npm's @novnc/novnc, which the page needs (default:
            node_modules/@novnc/novnc).
        view_auth: a second password of VNC, for people who shall only watch.
        view_auth_file: the secret in this file: VNC's viewers that have it look on, and cannot
            play.
        lockstep: make one step for each action instead.
        name: what it is called (default: its own name).
        seed: from which all seeds are made.
        about: what clients are told of the environment besides.
        backlog: bytes that may wait for a client that does not read.
        pixels: options of the `RfbServer` alone.
    """

    timeouts: Timeouts | None = TIMEOUTS
    rate: Hz = 60.0
    keys: Annotated[dict[str, Any], Reads(_key_action, "KEYS=ACTION")] | None = None
    play: Any = None
    frames: Literal["observation", "render"] | None = None
    page: Annotated[Any, Reads(flag, None)] = None
    page_port: Annotated[Natural | None, Into("page")] = None
    novnc: Annotated[str, Reads(str, "PATH")] | None = None
    view_auth: Any = None
    view_auth_file: Annotated[SecretFile | None, Into("view_auth")] = None
    lockstep: bool = False
    name: Name | None = None
    seed: int | None = None
    about: Any = None
    backlog: Natural = 1 << 20
    pixels: Any = None


@dataclass(frozen=True)
class UniverseClientOptions(_PasswordOptions, StreamClientOptions):
    """Of a client of the rewarder.

    Attributes:
        observer: look on, and do not act.
        attach: whether to go on with what the server has running.
        session_settings: a `ClientSettings`.
    """

    observer: bool = False
    attach: bool | None = None
    session_settings: Any = None


@dataclass(frozen=True)
class UniverseEnvironmentOptions(UniverseClientOptions):
    """Of `rlwire.make` over Universe.

    Attributes:
        timeout: without pixels, how long a step may take.
        start_timeout: with pixels, how long the remote may take to be there.
        reset_timeout: how long an episode may take to begin.
        rate: with pixels, steps a second; None not to wait.
        actions: with pixels, the lists of events that the numbers of a Discrete stand for.
        rewarder: with pixels, options of the connection to the rewarder alone.
        pixels: options of the connection for the pixels alone.
        replace: with pixels, returns another remote for one that is lost.
    """

    timeout: Seconds = 10.0
    start_timeout: Seconds = 30.0
    reset_timeout: Seconds | None = None
    rate: Hz | None = 60.0
    actions: Any = None
    rewarder: Any = None
    pixels: Any = None
    replace: Any = None


OPTIONS: Final[Mapping[Side, type]] = {
    "server": UniverseServerOptions,
    "client": UniverseClientOptions,
    "environment": UniverseEnvironmentOptions,
}
