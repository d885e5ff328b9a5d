"""Options of openpi."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from rlwire import _options


@dataclass(frozen=True)
class _ArrayOptions(_options.SecretOptions):
    """Options of clients and servers.

    Attributes:
        arrays: dialect of encoded arrays; both dialects are decoded.
    """

    arrays: Literal["openpi", "msgpack_numpy"] = "openpi"


@dataclass(frozen=True)
class _PolicyOptions(_options.OriginOptions, _ArrayOptions, _options.StreamServerOptions):
    """Options of servers and trainers.

    Attributes:
        metadata: dict for clients that connect (default: the policy's own).
    """

    metadata: Any = None


@dataclass(frozen=True)
class OpenPIListenerOptions(_PolicyOptions):
    """Options of a trainer that environments connect to.

    Attributes:
        horizon: actions per chunk (default: single actions without chunks).
    """

    horizon: _options.Positive | None = None


@dataclass(frozen=True)
class OpenPIServerOptions(_options.LearningOptions, _PolicyOptions):
    """Options of a policy server.

    Attributes:
        workers: one event loop for all clients, or a thread per client, which calls the policy
            under a lock, and answers no pings meanwhile (openpi's clients leave after 20 s).
        threads: threads that call the policy, beside the event loop; 0 calls the policy on the
            event loop, for policies that take microseconds.
        timing: add the policy's time to each action, as server_timing in milliseconds.
    """

    workers: Literal["threads", "asyncio"] = "asyncio"
    threads: _options.Natural = 1
    timing: bool = True


@dataclass(frozen=True)
class OpenPIClientOptions(_ArrayOptions, _options.StreamClientOptions):
    """Options of a client: a robot or an environment.

    Attributes:
        reconnect: after a lost connection, reconnect and send the observation again, once.
    """

    reconnect: bool = True


@dataclass(frozen=True)
class OpenPIPlayerOptions(_options.PlayerOptions, OpenPIClientOptions):
    """Options of `rlwire.play`."""


OPTIONS: Final[_options.Kinds] = {
    "server": OpenPIServerOptions,
    "listener": OpenPIListenerOptions,
    "client": OpenPIClientOptions,
    "player": OpenPIPlayerOptions,
}
