"""Options of RLX: of ``rlx://`` and, for pages, of ``rlx-ws://``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from rlwire._options import (
    Bytes,
    LearningOptions,
    OriginOptions,
    PlayerOptions,
    Positive,
    Reads,
    Seconds,
    Side,
    StreamClientOptions,
    StreamServerOptions,
)
from rlwire.transports.sockets import Timeouts


def _metric(written: str) -> tuple[str, str]:
    name, _, where = written.partition(":")
    if written != "logging" and not (name == "tensorboard" and where):
        raise ValueError(f"expected logging or tensorboard:DIR, not {written!r}")
    return name, where


@dataclass(frozen=True)
class RLXListenerOptions(StreamServerOptions):
    """Of a trainer whose environments call over RLX.

    Attributes:
        metrics: where metrics go: a log, or TensorBoard's files (default: logging).
        dialect: of RLX; readme for clients that follow the table in RELAAX's README.
        dtype: of the arrays that clients of the readme dialect send, which do not tell it.
        images: what an image in a state becomes.
    """

    metrics: tuple[Annotated[Any, Reads(_metric, "logging|tensorboard:DIR")], ...] = ()
    dialect: Literal["relaax", "readme"] = "relaax"
    dtype: Any = None
    images: Literal["array", "float32", "pil"] | None = None


@dataclass(frozen=True)
class RLXServerOptions(LearningOptions, RLXListenerOptions):
    """Of a server of agents over RLX.

    Attributes:
        workers: a thread for each connection, one event loop for all of them (agents that answer
            at once), or N processes with threads.
        parameter_server: of algorithm:NAME, where it lives: in this process, or on Ray, there one
            for all servers that say the same name (default: server); of another agent, what is
            called once in each process, and its result given to every agent.
    """

    workers: Literal["threads", "asyncio"] | Positive = "threads"
    parameter_server: Annotated[Any, Reads(str, "server|ray[:NAME]|MODULE:FACTORY")] | None = None


@dataclass(frozen=True)
class RLXClientOptions(StreamClientOptions):
    """Of an environment's side of RLX.

    Attributes:
        dialect: of RLX; readme for servers that follow the table in RELAAX's README.
        dtype: of the arrays that a server of the readme dialect sends, which do not tell it.
        images: what an image in an action becomes.
    """

    dialect: Literal["relaax", "readme"] = "relaax"
    dtype: Any = None
    images: Literal["array", "float32", "pil"] = "float32"


@dataclass(frozen=True)
class RLXPlayerOptions(PlayerOptions, RLXClientOptions):
    """Of `rlwire.play` over RLX.

    Attributes:
        exploit: ask the agent not to explore or learn.
    """

    exploit: bool = False


@dataclass(frozen=True)
class RLXPageOptions(OriginOptions, StreamServerOptions):
    """Of a server of agents for pages.

    Attributes:
        workers: a thread for each agent, or all of them on one event loop.
        parameter_server: what is called once, and its result given to every agent.
        metrics: a sink for what environments report; by default it is logged.
        arrays: what lists of numbers in a state become.
        max_sids: how many environments one WebSocket may have.
        max_message: bytes of one text from a page (default: 4 MiB).
        max_pending: how many commands of one environment may wait for their answers.
        check: a callable that accepts or rejects a page's handshake.
        ping_interval: how often a page is asked for a sign of life.
        ping_timeout: how long it may be in coming.
        rlx_timeouts: a `Timeouts`, the times of connections to the RLX server.
        rlx_tls: an SSL context for connections to the RLX server.
    """

    workers: Literal["threads", "asyncio"] = "threads"
    parameter_server: Any = None
    metrics: Any = None
    arrays: Literal["lists", "float32", "float64"] = "lists"
    max_sids: Positive = 256
    max_message: Bytes | None = None
    max_pending: Positive = 16
    check: Any = None
    ping_interval: Seconds | None = 30.0
    ping_timeout: Seconds | None = 30.0
    rlx_timeouts: Timeouts | None = None
    rlx_tls: Any = None


OPTIONS: Final[Mapping[Side, type]] = {
    "server": RLXServerOptions,
    "listener": RLXListenerOptions,
    "client": RLXClientOptions,
    "player": RLXPlayerOptions,
}
PAGE_OPTIONS: Final[Mapping[Side, type]] = {"server": RLXPageOptions}
