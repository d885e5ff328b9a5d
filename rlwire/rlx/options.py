"""Options of ``rlx://`` URLs, and of ``rlx-ws://`` URLs for web pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final, Literal

from rlwire import _options
from rlwire.codecs.websocket.handshake import UpgradeRequest
from rlwire.limits import DEFAULT
from rlwire.rlx.metrics import Metrics
from rlwire.sessions.websocket import HttpRefusal
from rlwire.transports.tls import TLS
from rlwire.urls import Where


def _metric(written: str) -> tuple[str, str]:
    name, _, where = written.partition(":")
    if written != "logging" and not (name == "tensorboard" and where):
        raise ValueError(f"expected logging or tensorboard:DIR, not {written!r}")
    return name, where


_Metric = Annotated[Any, _options.Parser(_metric, "logging|tensorboard:DIR")]
_Home = Annotated[Any, _options.Parser(str, "server|ray[:NAME]|MODULE:FACTORY")]


@dataclass(frozen=True, kw_only=True)
class _CodecOptions(_options.LimitOptions):
    """Options of clients and servers.

    Attributes:
        images: decode images to arrays of their own dtype, or to float32.
        dialect: readme for peers that send arrays without a dtype, as RELAAX's README has them.
        dtype: with dialect readme, the dtype of all arrays, such as float32.
    """

    images: Literal["array", "float32"] = "float32"
    dialect: Literal["program", "readme"] = "program"
    dtype: Annotated[Any, _options.Parser(str, "DTYPE")] = None

    @property
    def session(self) -> dict[str, Any]:
        """Arguments of a session."""
        coding = {"images": self.images, "dialect": self.dialect, "dtype": self.dtype}
        return {"limits": self.limits or DEFAULT, **coding}


@dataclass(frozen=True)
class RLXListenerOptions(_CodecOptions, _options.StreamServerOptions):
    """Options of a trainer that environments connect to.

    Attributes:
        images: decode images to arrays of their own dtype, or to float32.
        metrics: write metrics to the log or to TensorBoard event files; or a `Metrics`, which is
            closed when the server stops (default: logging).
    """

    address: Where = "localhost:7001"
    _: KW_ONLY
    images: Literal["array", "float32"] = "array"
    metrics: Metrics | tuple[_Metric, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RLXServerOptions(RLXListenerOptions):
    """Options of `rlwire.rlx.Server`.

    Attributes:
        workers: a thread per connection, one event loop for all connections (agents that reply at
            once), or N processes with threads (agents that compute in Python), which receive
            pickled arguments.
        parameter_server: for algorithm:NAME, run it in this process (server) or on Ray, shared by
            all servers with the same NAME (default: server); for other agents, passed to every
            agent, or the factory that each process calls once.
    """

    images: Literal["array", "float32"] = "float32"
    workers: Literal["threads", "asyncio"] | _options.Positive = "threads"
    parameter_server: _Home = None


@dataclass(frozen=True, kw_only=True)
class RLXServeOptions(_options.LearningOptions, RLXServerOptions):
    """Options of an agent server."""


@dataclass(frozen=True, kw_only=True)
class RLXClientOptions(_CodecOptions, _options.StreamClientOptions):
    """Options of `rlwire.connect`, for environments."""


@dataclass(frozen=True, kw_only=True)
class RLXPlayerOptions(_options.PlayerOptions, RLXClientOptions):
    """Options of `rlwire.play`.

    Attributes:
        exploit: ask the agent not to explore or learn.
    """

    exploit: bool = False


@dataclass(frozen=True)
class RLXPageOptions(_options.OriginOptions, _options.StreamServerOptions):
    """Options of an agent server for web pages; by default a message has at most 4 MiB.

    Attributes:
        parameter_server: passed to every agent; "module:factory" is called once.
        metrics: a sink for the environments' metrics (default: the log).
        arrays: decode lists of numbers in a state to lists, or to arrays of this dtype.
        max_sids: maximum number of environments per WebSocket.
        rlx_tls: TLS to the RLX server that is served by its URL.
        check: function that accepts or rejects a page's handshake request, such as
            `rlwire.sessions.websocket.basic_authorization`.
    """

    address: Where = "localhost:9000"
    _: KW_ONLY
    parameter_server: Any = None
    metrics: Metrics | None = None
    arrays: Literal["lists", "float32", "float64"] = "lists"
    max_sids: _options.Positive = 256
    rlx_tls: TLS = None
    check: Callable[[UpgradeRequest], HttpRefusal | None] | None = None


OPTIONS: Final[_options.Kinds] = {
    "server": RLXServeOptions,
    "listener": RLXListenerOptions,
    "client": RLXClientOptions,
    "player": RLXPlayerOptions,
}
PAGE_OPTIONS: Final[_options.Kinds] = {"server": RLXPageOptions}
