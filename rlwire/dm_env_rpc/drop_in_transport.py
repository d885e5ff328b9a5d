"""The dm_env_rpc package's connections over rlwire's HTTP/2.

Programs make channels with grpcio and give them to the package's connections. A channel here keeps
its arguments: the package's connections go over a connection of rlwire's to the same server, and
all other calls go to a channel of grpcio's, which is made for the first of them. Where a channel
may mean something that is not done here (unknown credentials or arguments, compression,
interceptors, a proxy) grpcio's own is returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import get_ident
from typing import Any
from urllib.request import getproxies
from weakref import WeakKeyDictionary, WeakSet

import grpc
import grpc.aio

from rlwire.dm_env_rpc.client import KEEP_ALIVE, METHOD
from rlwire.errors import LimitExceeded, RlwireError
from rlwire.limits import Limits
from rlwire.sessions import grpc as calls
from rlwire.transports import tcp, tcp_asyncio
from rlwire.transports.address import Address, parse
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.waits import Waits, drive, drive_async

_NO_END = Timeouts(read=None, write=None, idle=None)
_AGAIN = 0.2  # seconds between attempts to connect
_NO_COMPRESSION = grpc.Compression.NoCompression
_FOREVER = Backoff(attempts=2**31, deadline=None)
_UNLIMITED = 2**31 - 2**20
_RECEIVED, _SENT = "grpc.max_receive_message_length", "grpc.max_send_message_length"
_NAME = "grpc.ssl_target_name_override"
# Arguments that change nothing here, or nothing that a program could see.
_IGNORED = {
    "grpc.enable_retries", "grpc.enable_http_proxy", "grpc.use_local_subchannel_pool",
    "grpc.primary_user_agent", "grpc.secondary_user_agent",
}  # fmt: skip

# What credentials are that may be done here: "local", or what TLS is made of, in PEM: roots, None
# for the system's, and a client's own key and certificates, None for none. grpcio gives none of it
# back, so these are those that were made since `install`.
_known: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


class _Target:
    """What a channel connects to."""

    def __init__(self, where: Address, options: dict[str, Any], tls: Any) -> None:
        self.where = where
        received = options.get(_RECEIVED, 4 * 1024 * 1024)
        received = _UNLIMITED if received < 0 else min(received, _UNLIMITED)
        sent = options.get(_SENT, -1)
        name = options.get(_NAME)
        self._session_options: dict[str, Any] = {
            "authority": name or ("localhost" if where.path else str(where)),
            "secure": tls is not None,
            "limits": Limits(received=received, message=received),
            "max_sent": _UNLIMITED if sent < 0 else min(sent, _UNLIMITED),
            **KEEP_ALIVE,
        }
        self._options: dict[str, Any] = {"timeout": _NO_END, "tls": tls, "server_hostname": name}

    def dial(
        self, connect: Callable[..., Any], metadata: Iterable[Any], backoff: Backoff | None = None
    ) -> Any:
        """Return a connection with a call of dm_env_rpc's, or what to await for it."""
        metadata = [(str(name), value) for name, value in metadata or ()]
        session = calls.GrpcClientSession(
            calls.GrpcRawMessages(), METHOD, metadata=metadata, **self._session_options
        )
        return connect(self.where, session, backoff=backoff, **self._options)


def _target(target: str, kind: Any, options: Iterable[tuple[str, Any]] | None) -> _Target | None:
    """Return what a channel would connect to, None for one that is left to grpcio."""
    given = dict(options or ())
    if not given.keys() <= {_RECEIVED, _SENT, _NAME} | _IGNORED:
        return None
    for scheme in ("dns:///", "ipv4:", "ipv6:"):
        target = target.removeprefix(scheme)
    try:
        where = parse(target.replace("unix://", "unix:", 1))
    except ValueError:
        return None
    near = bool(where.path) or where.loopback
    if not near and (kind == "local" or getproxies()):
        return None
    if kind in ("plain", "local"):
        return _Target(where, given, None)
    try:
        return _Target(where, given, _tls(*kind))
    except (ssl.SSLError, ValueError):
        return None  # grpcio has its own words for what is wrong with them


def _tls(roots: bytes | None, key: bytes | None, chain: bytes | None) -> ssl.SSLContext:
    """Return a context for what grpcio takes as bytes."""
    context = ssl.create_default_context(cadata=None if roots is None else roots.decode())
    context.set_alpn_protocols(["h2"])
    if key is not None and chain is not None:
        # The ssl module reads a key from a file only; this folder is its user's alone.
        with tempfile.TemporaryDirectory(prefix="rlwire-") as folder:
            pem = Path(folder, "client.pem")
            pem.touch(0o600)
            pem.write_bytes(key.rstrip() + b"\n" + chain)
            context.load_cert_chain(pem, password=_no_password)
    return context


def _no_password() -> str:
    """Refuse a key that is enciphered: nobody is to be asked at the terminal."""
    raise ValueError("the key is enciphered")


def _status_of(error: BaseException) -> calls.CallStatus:
    """Return what gRPC calls an error of ours."""
    if isinstance(error, calls.CallEnded):
        return error.status
    if isinstance(error, LimitExceeded):
        way = "Sent" if error.limit == "max_sent" else "Received"
        words = f"CLIENT: {way} message larger than max ({error.size} vs. {error.maximum})"
        return calls.CallStatus("RESOURCE_EXHAUSTED", words)
    return calls.CallStatus("UNAVAILABLE", str(error))


class _Error(grpc.RpcError):
    """Why a stream is over, with what programs ask of such an error of grpcio's."""

    def __init__(self, status: calls.CallStatus) -> None:
        super().__init__(str(status))
        self._status = status

    def code(self) -> Any:
        return grpc.StatusCode[self._status.code]

    def details(self) -> str:
        return self._status.details

    def trailing_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self._status.metadata

    def initial_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return ()


# ---- streams ------------------------------------------------------------------------------------


class _Stream:
    """A call on a connection of its own, which begins with the first message that is read."""

    connect: Any
    closed_by: str  # the words of an error after the channel was closed

    def __init__(self, channel: Any, metadata: Any) -> None:
        from dm_env_rpc.v1.dm_env_rpc_pb2 import EnvironmentRequest, EnvironmentResponse

        self._encode, self._decode = EnvironmentRequest.SerializeToString, EnvironmentResponse
        self._channel, self._metadata = channel, metadata
        self._connection: Any = None
        self._waiting: list[bytes] = []  # to be sent, which the next `read` does
        self._end: calls.CallStatus | None = None

    def _read(self) -> Waits[Any]:
        """Return a response, or the status with which the call ended."""
        if self._end is None:
            try:
                return self._decode.FromString(bytes((yield from self._exchange())))
            except (RlwireError, OSError) as error:
                self._end = _status_of(error)
                self.close()
        return self._end

    def _exchange(self) -> Waits[Any]:
        if self._connection is None:
            self._channel.streams.add(self)
            self._connection = yield self._channel.target.dial(self.connect, self._metadata)
        connection, waiting = self._connection, self._waiting
        self._hold(connection)
        while len(waiting) > 1:
            yield connection.send(waiting.pop(0))
        if waiting:
            return (yield connection.exchange(waiting.pop()))
        return (yield connection.receive())

    def _hold(self, connection: Any) -> None:
        """Have the connection be this thread's."""

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._channel.streams.discard(self)
        if self._end is None:
            self._end = calls.CallStatus("CANCELLED", self.closed_by)
        if connection is not None:
            with contextlib.suppress(RuntimeError):  # its event loop is closed
                connection.close()

    def __del__(self) -> None:
        self.close()  # the package only forgets it


class _BlockingStream(_Stream):
    """For any threads, one after another, as the package's StreamReaderWriter."""

    connect = staticmethod(tcp.connect)
    closed_by = "Channel closed!"

    def __init__(self, channel: _Channel, metadata: Any) -> None:
        super().__init__(channel, metadata)
        self._lock = threading.Lock()
        self._thread = 0

    def _hold(self, connection: Any) -> None:
        if self._thread != get_ident():
            connection.release()
            self._thread = get_ident()

    def write(self, request: Any) -> None:
        with self._lock:
            self._waiting.append(self._encode(request))

    def read(self) -> Any:
        with self._lock:
            found = drive(self._read())
        if not isinstance(found, calls.CallStatus):
            return found
        if found.code == "OK":
            raise StopIteration
        raise _Error(found)


class _AsyncStream(_Stream):
    """On an event loop: a call of grpc.aio's, as far as the package's AsyncConnection goes."""

    connect = staticmethod(tcp_asyncio.connect)
    closed_by = "Channel is closed."

    def __init__(self, channel: _AsyncChannel, metadata: Any) -> None:
        super().__init__(channel, metadata)
        self._lock = asyncio.Lock()

    async def write(self, request: Any) -> None:
        self._waiting.append(self._encode(request))

    async def read(self) -> Any:
        async with self._lock:
            found = await drive_async(self._read())
        if not isinstance(found, calls.CallStatus):
            return found
        if found.code == "OK":
            return grpc.aio.EOF
        raise grpc.aio.AioRpcError(
            grpc.StatusCode[found.code],
            grpc.aio.Metadata(),
            grpc.aio.Metadata(*found.metadata),
            found.details,
        )


# ---- channels -----------------------------------------------------------------------------------


def _of_original(name: str) -> Any:
    """Return a method that does what grpcio's channel does."""

    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        return getattr(self.original, name)(*arguments, **options)

    return method


class _LazyChannel:
    """Stands for a channel of grpcio's."""

    def __init__(self, target: _Target, make_original: Callable[[], Any]) -> None:
        self.target = target
        self.streams: WeakSet[_Stream] = WeakSet()
        self._lock = threading.Lock()
        self._make_original = make_original
        self._original: Any = None

    @property
    def original(self) -> Any:
        """The channel of grpcio's that it stands for."""
        with self._lock:
            if self._original is None:
                self._original = self._make_original()
            return self._original

    unary_unary = _of_original("unary_unary")
    unary_stream = _of_original("unary_stream")
    stream_unary = _of_original("stream_unary")
    stream_stream = _of_original("stream_stream")

    def _close_streams(self) -> None:
        for stream in list(self.streams):
            stream.close()


class _Channel(_LazyChannel, grpc.Channel):
    """A channel of grpcio's to programs, whose connections of the package's are rlwire's."""

    def __init__(self, target: _Target, make_original: Callable[[], Any]) -> None:
        super().__init__(target, make_original)
        self._watchers: dict[Any, threading.Event] = {}

    def subscribe(self, callback: Callable[[Any], Any], try_to_connect: Any = False) -> None:
        if not try_to_connect:
            self.original.subscribe(callback)
            return
        gone = self._watchers[callback] = threading.Event()
        threading.Thread(target=self._watch, args=(callback, gone), daemon=True).start()

    def _watch(self, callback: Callable[[Any], Any], gone: threading.Event) -> None:
        callback(grpc.ChannelConnectivity.IDLE)
        while not gone.is_set():
            callback(grpc.ChannelConnectivity.CONNECTING)
            try:
                self.target.dial(tcp.connect, ()).close()
            except (RlwireError, OSError):
                callback(grpc.ChannelConnectivity.TRANSIENT_FAILURE)
                gone.wait(_AGAIN)
            else:
                callback(grpc.ChannelConnectivity.READY)
                return

    def unsubscribe(self, callback: Callable[[Any], Any]) -> None:
        gone = self._watchers.pop(callback, None)
        if gone is not None:
            gone.set()
        elif self._original is not None:
            self._original.unsubscribe(callback)

    def close(self) -> None:
        for gone in self._watchers.values():
            gone.set()
        self._close_streams()
        if self._original is not None:
            self._original.close()

    def __enter__(self) -> _Channel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _AsyncChannel(_LazyChannel, grpc.aio.Channel):
    """As `_Channel`, of grpc.aio."""

    async def channel_ready(self) -> None:
        connection = await self.target.dial(tcp_asyncio.connect, (), _FOREVER)
        connection.close()
        await connection.wait_closed()

    get_state = _of_original("get_state")
    wait_for_state_change = _of_original("wait_for_state_change")

    async def close(self, grace: float | None = None) -> None:
        self._close_streams()
        if self._original is not None:
            await self._original.close(grace)

    async def __aenter__(self) -> _AsyncChannel:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


# ---- replacements -------------------------------------------------------------------------------


def _factory(kind: type, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes channels in place of a function of grpcio's."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def make_channel(*arguments: Any, **options: Any) -> Any:
        make = functools.partial(original, *arguments, **options)
        given = signature.bind(*arguments, **options).arguments
        target, wanted = given.pop("target"), given.pop("options", None)
        tls: Any = "plain"
        if "credentials" in signature.parameters:
            credentials = given.pop("credentials")
            tls = None if credentials is None else _known.get(credentials)
        # What is left is compression, or an interceptor.
        more = any(each not in (None, (), [], _NO_COMPRESSION) for each in given.values())
        found = None if more or tls is None else _target(target, tls, wanted)
        return make() if found is None else kind(found, make)

    return make_channel


def _noted(original: Callable[..., Any], kind_of: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def credentials(*arguments: Any, **options: Any) -> Any:
        made = original(*arguments, **options)
        given = inspect.signature(original).bind(*arguments, **options).arguments
        _known[made] = kind_of(**given)
        return made

    return credentials


def _tls_kind(
    root_certificates: Any = None, private_key: Any = None, certificate_chain: Any = None
) -> Any:
    return root_certificates, private_key, certificate_chain


def _initializer(original: Callable[..., Any], channels: type, stream: type) -> Any:
    """Return the ``__init__`` of a connection of the package's."""

    @functools.wraps(original)
    def __init__(self: Any, channel: Any, metadata: Any = None) -> None:
        if isinstance(channel, channels):
            self._stream = stream(channel, metadata)
        else:
            original(self, channel, metadata)

    return __init__


def replacements() -> list[tuple[Any, str, Any]]:
    """Return whose attributes are to be replaced, and with what."""
    from dm_env_rpc.v1 import async_connection, connection

    for make in (
        connection.create_secure_channel_and_connect,
        async_connection.create_secure_async_channel_and_connect,
    ):  # made when the package was imported
        _known[inspect.signature(make).parameters["credentials"].default] = "local"
    found: list[tuple[Any, str, Any]] = [
        (module, name, _factory(kind, getattr(module, name)))
        for module, kind in ((grpc, _Channel), (grpc.aio, _AsyncChannel))
        for name in ("insecure_channel", "secure_channel")
    ]
    for name, kind_of in (
        ("local_channel_credentials", lambda **_: "local"),
        ("ssl_channel_credentials", _tls_kind),
    ):
        found.append((grpc, name, _noted(getattr(grpc, name), kind_of)))
    for owner, channels, stream in (
        (connection.Connection, _Channel, _BlockingStream),
        (async_connection.AsyncConnection, _AsyncChannel, _AsyncStream),
    ):
        replacement = _initializer(owner.__init__, channels, stream)
        found.append((owner, "__init__", replacement))
    return found
