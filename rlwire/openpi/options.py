"""Options of openpi."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from rlwire._options import (
    LearningOptions,
    Natural,
    OriginOptions,
    PlayerOptions,
    Positive,
    Seconds,
    SecretOptions,
    Side,
    StreamClientOptions,
    StreamServerOptions,
)


@dataclass(frozen=True)
class _PolicyOptions(OriginOptions, SecretOptions, StreamServerOptions):
    """Of whoever answers observations.

    Attributes:
        arrays: how arrays are written; both are read.
        metadata: what clients are told when they connect.
    """

    arrays: Literal["openpi", "msgpack_numpy"] = "openpi"
    metadata: Any = None


@dataclass(frozen=True)
class OpenPIListenerOptions(_PolicyOptions):
    """Of a trainer whose environments call over openpi.

    Attributes:
        horizon: how many actions a chunk has; one that is no chunk if it is not given.
    """

    horizon: Positive | None = None


@dataclass(frozen=True)
class OpenPIServerOptions(LearningOptions, _PolicyOptions):
    """Of a server of a policy.

    Attributes:
        workers: one event loop for all clients, or a thread for each, in which the policy is
            called once at a time.
        threads: how many the policy thinks in beside the event loop; 0 calls it on the loop, for
            policies that answer at once.
        timing: tell clients how long the policy took.
        tracebacks: tell clients where an error arose.
        ping_interval: how often a client is asked for a sign of life.
        ping_timeout: how long it may be in coming.
    """

    workers: Literal["threads", "asyncio"] = "asyncio"
    threads: Natural = 1
    timing: bool = True
    tracebacks: bool = False
    ping_interval: Seconds | None = None
    ping_timeout: Seconds | None = 20.0


@dataclass(frozen=True)
class OpenPIClientOptions(SecretOptions, StreamClientOptions):
    """Of a robot or an environment.

    Attributes:
        arrays: how arrays are written; both are read.
        reconnect: connect again with the next observation when the connection was lost.
    """

    arrays: Literal["openpi", "msgpack_numpy"] = "openpi"
    reconnect: bool = True


@dataclass(frozen=True)
class OpenPIPlayerOptions(PlayerOptions, OpenPIClientOptions):
    """Of `rlwire.play` over openpi."""


OPTIONS: Final[Mapping[Side, type]] = {
    "server": OpenPIServerOptions,
    "listener": OpenPIListenerOptions,
    "client": OpenPIClientOptions,
    "player": OpenPIPlayerOptions,
}
