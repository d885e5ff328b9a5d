"""Options of openpi."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from rlwire import _options


@dataclass(frozen=True)
class _ArrayOptions(_options.SecretOptions):
    """Of both sides.

    Attributes:
        arrays: how arrays are written; both are read.
    """

    arrays: Literal["openpi", "msgpack_numpy"] = "openpi"


@dataclass(frozen=True)
class _PolicyOptions(_options.OriginOptions, _ArrayOptions, _options.StreamServerOptions):
    """Of whoever answers observations; `metadata` is what clients get when they connect."""

    metadata: Any = None


@dataclass(frozen=True)
class OpenPIListenerOptions(_PolicyOptions):
    """Of a trainer whose environments call over openpi.

    Attributes:
        horizon: how many actions a chunk has; one that is no chunk if it is not given.
    """

    horizon: _options.Positive | None = None


@dataclass(frozen=True)
class OpenPIServerOptions(_options.LearningOptions, _PolicyOptions):
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
    threads: _options.Natural = 1
    timing: bool = True
    tracebacks: bool = False
    ping_interval: float | None = None
    ping_timeout: float | None = 20.0


@dataclass(frozen=True)
class OpenPIClientOptions(_ArrayOptions, _options.StreamClientOptions):
    """Of a robot or an environment.

    Attributes:
        reconnect: connect again with the next observation when the connection was lost.
    """

    reconnect: bool = True


@dataclass(frozen=True)
class OpenPIPlayerOptions(_options.PlayerOptions, OpenPIClientOptions):
    """Of `rlwire.play` over openpi."""


OPTIONS: Final[_options.Kinds] = {
    "server": OpenPIServerOptions,
    "listener": OpenPIListenerOptions,
    "client": OpenPIClientOptions,
    "player": OpenPIPlayerOptions,
}
