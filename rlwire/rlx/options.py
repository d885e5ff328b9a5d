"""Options of RLX: of ``rlx://`` and, for pages, of ``rlx-ws://``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from rlwire import _options
from rlwire.transports.sockets import Timeouts


def _metric(written: str) -> tuple[str, str]:
    name, _, where = written.partition(":")
    if written != "logging" and not (name == "tensorboard" and where):
        raise ValueError(f"expected logging or tensorboard:DIR, not {written!r}")
    return name, where


_Metric = Annotated[Any, _options.Reads(_metric, "logging|tensorboard:DIR")]
_Home = Annotated[Any, _options.Reads(str, "server|ray[:NAME]|MODULE:FACTORY")]


@dataclass(frozen=True)
class _DialectOptions:
    """Of both sides; `dtype` is of the arrays of the readme dialect, which do not tell it.

    Attributes:
        dialect: of RLX; readme for peers that follow the table in RELAAX's README.
        images: what an image in a message becomes (default: float32, array for a trainer).
    """

    dialect: Literal["relaax", "readme"] = "relaax"
    dtype: Any = None
    images: Literal["array", "float32", "pil"] | None = None


@dataclass(frozen=True)
class RLXListenerOptions(_DialectOptions, _options.StreamServerOptions):
    """Of a trainer whose environments call over RLX.

    Attributes:
        metrics: where metrics go: a log, or TensorBoard's files (default: logging).
    """

    metrics: tuple[_Metric, ...] = ()


@dataclass(frozen=True)
class RLXServerOptions(_options.LearningOptions, RLXListenerOptions):
    """Of a server of agents over RLX.

    Attributes:
        workers: a thread for each connection, one event loop for all of them (agents that answer
            at once), or N processes with threads.
        parameter_server: of algorithm:NAME, where it lives: in this process, or on Ray, there one
            for all servers that say the same name (default: server); of another agent, what is
            called once in each process, and its result given to every agent.
    """

    workers: Literal["threads", "asyncio"] | _options.Positive = "threads"
    parameter_server: _Home = None


@dataclass(frozen=True)
class RLXClientOptions(_DialectOptions, _options.StreamClientOptions):
    """Of an environment's side of RLX."""


@dataclass(frozen=True)
class RLXPlayerOptions(_options.PlayerOptions, RLXClientOptions):
    """Of `rlwire.play` over RLX.

    Attributes:
        exploit: ask the agent not to explore or learn.
    """

    exploit: bool = False


@dataclass(frozen=True)
class RLXPageOptions(_options.OriginOptions, _options.StreamServerOptions):
    """Of a server of agents for pages; `check` accepts or rejects a page.

    Attributes:
        workers: a thread for each agent, or all of them on one event loop.
        parameter_server: what is called once, and its result given to every agent.
        metrics: a sink for what environments report; by default it is logged.
        arrays: what lists of numbers in a state become.
        max_sids: how many environments one WebSocket may have.
        max_message: bytes of one text from a page (default: 4 MiB).
        max_pending: how many commands of one environment may wait for their answers.
        ping_interval: how often a page is asked for a sign of life.
        ping_timeout: how long it may be in coming.
        rlx_timeout: the times of connections to the RLX server.
    """

    workers: Literal["threads", "asyncio"] = "threads"
    parameter_server: Any = None
    metrics: Any = None
    arrays: Literal["lists", "float32", "float64"] = "lists"
    max_sids: _options.Positive = 256
    max_message: _options.Bytes | None = None
    max_pending: _options.Positive = 16
    ping_interval: float | None = 30.0
    ping_timeout: float | None = 30.0
    rlx_timeout: Timeouts | None = None
    rlx_tls: Any = None
    check: Any = None


OPTIONS: Final[_options.Kinds] = {
    "server": RLXServerOptions,
    "listener": RLXListenerOptions,
    "client": RLXClientOptions,
    "player": RLXPlayerOptions,
}
PAGE_OPTIONS: Final[_options.Kinds] = {"server": RLXPageOptions}
