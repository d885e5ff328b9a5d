"""Options of OpenAI Universe: the rewarder, and the pixels beside it."""

from __future__ import annotations

import json
from dataclasses import KW_ONLY, dataclass
from types import EllipsisType
from typing import Annotated, Any, Final, Literal

from rlwire import _options
from rlwire.sessions.rfb.client import LOSSLESS
from rlwire.transports.sockets import Timeouts
from rlwire.urls import URL, Where


def _key_action(written: str) -> tuple[str, Any]:
    keys, _, action = written.rpartition("=")
    try:
        return keys, json.loads(action)
    except ValueError:
        raise ValueError(f"expected KEYS=ACTION, the action in JSON, not {written!r}") from None


REWARDER_PORT: Final = 15900
"""The rewarder's port in the document."""

TIMEOUTS: Final = Timeouts(idle=None)  # viewers are silent while nothing changes
_PUSH_TIMEOUTS: Final = Timeouts(idle=None, write=30.0)  # clients are pinged

VNC_PORT: Final = 5900
"""The port of VNC's display 0."""

PASSWORD: Final = "openai"
"""The password in Universe's document, for both connections."""


@dataclass(frozen=True, kw_only=True)
class _PasswordOptions(_options.SecretOptions):
    """Options of both sides.

    Attributes:
        password: plain-text password, as in the original's URLs; other users may see it.
        ping_interval: time without a message before a keep-alive ping.
        ping_timeout: time to wait for a pong.
    """

    password: Annotated[str | None, _options.Sets("auth")] = None
    ping_interval: float | None = 20.0
    ping_timeout: float | None = 20.0


@dataclass(frozen=True)
class PushOptions(_options.OriginOptions, _PasswordOptions, _options.StreamServerOptions):
    """Options of all servers of a rewarder.

    Attributes:
        auth: the password; None accepts all clients (default: a random one, in the log and `url`).
        rate: steps per second.
        backlog: maximum unsent bytes per client, before a client that does not read is closed.
        about: dict of facts for clients, with names that the protocol does not define.
    """

    address: Where = f"127.0.0.1:{REWARDER_PORT}"
    _: KW_ONLY
    auth: _options.Secret | EllipsisType = ...  # type: ignore[assignment]
    timeout: Timeouts | _options.Seconds | None = _PUSH_TIMEOUTS
    rate: _options.Hz = 60.0
    backlog: _options.Positive = 1 << 20
    about: Any = None


@dataclass(frozen=True, kw_only=True)
class RewarderServerOptions(PushOptions):
    """Options of `rlwire.universe.rewarder.RewarderServer`.

    Attributes:
        env_state: the initial state.
        on_action: called with each `AgentAction` on the event loop, which it must not block
            (default: call `actions`).
    """

    env_state: str = "running"
    on_action: Any = None


@dataclass(frozen=True, kw_only=True)
class EnvironmentRewarderOptions(PushOptions):
    """Options of a real-time server of an environment without pixels.

    Attributes:
        lockstep: step once per action instead of at a fixed rate.
        name: environment id that clients receive; resets that request an unknown one are rejected
            (default: the environment's name, or the first of several).
        seed: seed of the first episode, unless a client sends one.
    """

    lockstep: bool = False
    name: _options.Name | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class _ViewOptions:
    """Options of servers for viewers.

    Attributes:
        view_auth: password of viewers that may only watch.
        view_auth_file: file with the password of viewers that may only watch.
    """

    view_auth: Any = None
    view_auth_file: Annotated[_options.SecretFile | None, _options.Sets("view_auth")] = None


@dataclass(frozen=True)
class RfbServerOptions(_ViewOptions, _options.SecretOptions, _options.StreamServerOptions):
    """Options of `rlwire.universe.rfb.RfbServer`.

    Attributes:
        auth: the password, of which VNC uses eight characters (default: none).
        limits: maxima for received messages (default: 1 MiB for a cut text).
    """

    address: Where = f"127.0.0.1:{VNC_PORT}"
    _: KW_ONLY
    timeout: Timeouts | _options.Seconds | None = TIMEOUTS


@dataclass(frozen=True)
class UniverseServerOptions(_ViewOptions, EnvironmentRewarderOptions):
    """Options of `rlwire.universe.server.UniverseServer`.

    Attributes:
        address: both addresses, ``universe://host:5900+15900``; ``host:5900`` has no rewarder. The
            path is the environment's id.
        auth: the password of both connections, of which VNC compares 8 bytes; None accepts all
            clients (default: a random one, in the log and `url`). Universe's clients send "openai".
        keys: action, in JSON, for keys and buttons that a viewer holds down, such as Left=3,
            Left+space=5 or Button1=1 (default: the environment's get_keys_to_action).
        play: function that returns actions, instead of `keys`.
        frames: source of the viewers' pictures (default: the observation if it is a colour
            picture, otherwise the environment's render()).
        page: also serve a page for browsers, on port 6080 of the same host.
        page_port: also serve a page for browsers, on this port.
        pixels: dict of options of `rlwire.universe.rfb.RfbServer`.
    """

    address: URL | str = f"universe://127.0.0.1:{VNC_PORT}+{REWARDER_PORT}"
    _: KW_ONLY
    keys: Annotated[dict[str, Any], _options.Parser(_key_action, "KEYS=ACTION")] | None = None
    play: Any = None
    frames: Literal["observation", "render"] | None = None
    page: Annotated[Any, _options.Parser(_options.flag, None)] = None
    page_port: Annotated[_options.Natural | None, _options.Sets("page")] = None
    pixels: Any = None


@dataclass(frozen=True, kw_only=True)
class UniverseServeOptions(_options.MakingOptions, UniverseServerOptions):
    """Options of a real-time server of an environment."""


@dataclass(frozen=True, kw_only=True)
class RfbClientOptions(_options.SecretOptions, _options.StreamClientOptions):
    """Options of a client of a remote screen.

    Attributes:
        auth: the password for VNC authentication (default: none).
        timeout: to connect, with the handshake, and for a started update.
        shared: whether other viewers may stay.
        encodings: to request, the preferred first.
        quality: 0 to 9 allows JPEG in Tight (default: exact pixels).
        compression: the level, 0 to 9 (default: the server's choice).
        continuous: whether to enable ContinuousUpdates, if the server supports them.
    """

    shared: bool = True
    encodings: tuple[int, ...] = LOSSLESS
    quality: int | None = None
    compression: int | None = None
    continuous: bool = True


@dataclass(frozen=True, kw_only=True)
class UniverseClientOptions(_PasswordOptions, _options.StreamClientOptions):
    """Options of a client of the rewarder.

    Attributes:
        observer: watch only, without resets and actions.
        attach: join the current episode without a reset (default: as observer).
    """

    observer: bool = False
    attach: bool | None = None


@dataclass(frozen=True, kw_only=True)
class UniverseEnvironmentOptions(UniverseClientOptions):
    """Options of `rlwire.make` over Universe.

    Attributes:
        step_timeout: without pixels, time to wait in a step.
        start_timeout: with pixels, time to wait for the connections.
        reset_timeout: time to wait for an episode (default: 120 seconds, with pixels 60).
        rate: with pixels, steps per second.
        actions: with pixels, list of actions, each a list of events (default: the server's space).
        rewarder: with pixels, dict of options of the rewarder's client.
        pixels: with pixels, dict of options of their client.
    """

    step_timeout: float = 10.0
    start_timeout: float = 30.0
    reset_timeout: float | None = None
    rate: _options.Hz = 60.0
    actions: Any = None
    rewarder: Any = None
    pixels: Any = None


OPTIONS: Final[_options.Kinds] = {
    "server": UniverseServeOptions,
    "client": UniverseClientOptions,
    "environment": UniverseEnvironmentOptions,
}
