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


_Keys = Annotated[dict[str, Any], _options.Parser(_key_action, "KEYS=ACTION")]


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


@dataclass(frozen=True, kw_only=True)
class UniverseServerOptions(
    _options.MakingOptions, _options.OriginOptions, _PasswordOptions, _options.StreamServerOptions
):
    """Options of a real-time server of an environment.

    Attributes:
        rate: steps per second.
        keys: action, in JSON, for keys and buttons that a viewer holds down, such as Left=3,
            Left+space=5 or Button1=1 (default: the environment's get_keys_to_action).
        frames: source of the viewers' pictures (default: the observation if it is a colour
            picture, otherwise the environment's render()).
        page: also serve a page for browsers, on port 6080 of the same host.
        page_port: also serve a page for browsers, on this port.
        view_auth: password of viewers that may only watch.
        view_auth_file: file with the password of viewers that may only watch.
        lockstep: step once per action instead of at a fixed rate.
        name: environment id that clients receive (default: the environment's name).
        seed: seed of the first episode, unless a client sends one.
        backlog: maximum unsent bytes per client, before a client that does not read is closed.
        play: function that returns actions, instead of `keys`.
        about: dict of facts for clients.
        pixels: dict of options of `rlwire.universe.rfb.RfbServer`.
    """

    timeout: Timeouts | _options.Seconds | None = TIMEOUTS
    rate: _options.Hz = 60.0
    keys: _Keys | None = None
    frames: Literal["observation", "render"] | None = None
    page: Annotated[Any, _options.Parser(_options.flag, None)] = None
    page_port: Annotated[_options.Natural | None, _options.Sets("page")] = None
    view_auth: Any = None
    view_auth_file: Annotated[_options.SecretFile | None, _options.Sets("view_auth")] = None
    lockstep: bool = False
    name: _options.Name | None = None
    seed: int | None = None
    backlog: _options.Natural = 1 << 20
    play: Any = None
    about: Any = None
    pixels: Any = None


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
    "server": UniverseServerOptions,
    "client": UniverseClientOptions,
    "environment": UniverseEnvironmentOptions,
}
