"""Options of ``rlx://`` URLs, and of ``rlx-ws://`` URLs for web pages."""

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
class _CodecOptions:
    """Options of clients and servers.

    Attributes:
        images: decode images to arrays of their own dtype, or to float32 (default: float32; array
            for a trainer).
        dialect: readme for peers that send arrays without a dtype, as RELAAX's README has them.
        dtype: with dialect readme, the dtype of all arrays, such as float32.
    """

    images: Literal["array", "float32"] | None = None
    dialect: Literal["program", "readme"] = "program"
    dtype: Annotated[Any, _options.Reads(str, "DTYPE")] = None


@dataclass(frozen=True)
class RLXListenerOptions(_CodecOptions, _options.StreamServerOptions):
    """Options of a trainer that environments connect to.

    Attributes:
        metrics: write metrics to the log or to TensorBoard event files (default: logging).
    """

    metrics: tuple[_Metric, ...] = ()


@dataclass(frozen=True)
class RLXServerOptions(_options.LearningOptions, RLXListenerOptions):
    """Options of an agent server.

    Attributes:
        workers: a thread per connection, one event loop for all connections (agents that reply at
            once), or N processes with threads.
        parameter_server: for algorithm:NAME, run it in this process (server) or on Ray, shared by
            all servers with the same NAME (default: server); for other agents, the factory that
            each process calls once.
    """

    workers: Literal["threads", "asyncio"] | _options.Positive = "threads"
    parameter_server: _Home = None


@dataclass(frozen=True)
class RLXClientOptions(_CodecOptions, _options.StreamClientOptions):
    """Options of `rlwire.connect`, for environments."""


@dataclass(frozen=True)
class RLXPlayerOptions(_options.PlayerOptions, RLXClientOptions):
    """Options of `rlwire.play`.

    Attributes:
        exploit: ask the agent not to explore or learn.
    """

    exploit: bool = False


@dataclass(frozen=True)
class RLXPageOptions(_options.OriginOptions, _options.StreamServerOptions):
    """Options of an agent server for web pages.

    Attributes:
        parameter_server: passed to every agent; "module:factory" is called once.
        metrics: a sink for the environments' metrics (default: the log).
        arrays: decode lists of numbers in a state to lists, or to arrays of this dtype.
        max_sids: maximum number of environments per WebSocket.
        rlx_tls: TLS to the RLX server that is served by its URL.
        check: function that accepts or rejects a page's handshake.
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
