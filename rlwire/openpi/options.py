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
    """Of both kinds of servers; clients receive `metadata` when they connect."""

    metadata: Any = None


@dataclass(frozen=True)
class OpenPIListenerOptions(_PolicyOptions):
    """Of a trainer whose environments call over openpi.

    Attributes:
        horizon: actions of a chunk (default: one action, no chunk).
    """

    horizon: _options.Positive | None = None


@dataclass(frozen=True)
class OpenPIServerOptions(_options.LearningOptions, _PolicyOptions):
    """Of a server of a policy.

    Attributes:
        workers: one event loop for all clients, or a thread for each; the policy is called once at
            a time.
        threads: of the policy, beside the event loop; 0 calls it on the loop, for policies that
            take microseconds.
        timing: send clients the time that the policy took.
    """

    workers: Literal["threads", "asyncio"] = "asyncio"
    threads: _options.Natural = 1
    timing: bool = True


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
