"""Options of ``rlx://`` and, for pages, of ``rlx-ws://``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from rlwire import _options


def _metric(written: str) -> tuple[str, str]:
    name, _, where = written.partition(":")
    if written != "logging" and not (name == "tensorboard" and where):
        raise ValueError(f"expected logging or tensorboard:DIR, not {written!r}")
    return name, where


_Metric = Annotated[Any, _options.Reads(_metric, "logging|tensorboard:DIR")]
_Home = Annotated[Any, _options.Reads(str, "server|ray[:NAME]|MODULE:FACTORY")]


@dataclass(frozen=True)
class _ImageOptions:
    """Of both sides.

    Attributes:
        images: what an image in a message becomes (default: float32, array for a trainer).
    """

    images: Literal["array", "float32"] | None = None


@dataclass(frozen=True)
class RLXListenerOptions(_ImageOptions, _options.StreamServerOptions):
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
        parameter_server: of algorithm:NAME, where it runs: in this process, or on Ray, shared by
            all servers with the same name (default: server); of another agent, what is called once
            in each process to make it.
    """

    workers: Literal["threads", "asyncio"] | _options.Positive = "threads"
    parameter_server: _Home = None


@dataclass(frozen=True)
class RLXClientOptions(_ImageOptions, _options.StreamClientOptions):
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
        parameter_server: called once; every agent gets the result.
        metrics: a sink for what environments report (default: the log).
        arrays: what lists of numbers in a state become.
        max_sids: how many environments one WebSocket may have.
    """

    parameter_server: Any = None
    metrics: Any = None
    arrays: Literal["lists", "float32", "float64"] = "lists"
    max_sids: _options.Positive = 256
    rlx_tls: Any = None
    check: Any = None


OPTIONS: Final[_options.Kinds] = {
    "server": RLXServerOptions,
    "listener": RLXListenerOptions,
    "client": RLXClientOptions,
    "player": RLXPlayerOptions,
}
PAGE_OPTIONS: Final[_options.Kinds] = {"server": RLXPageOptions}
