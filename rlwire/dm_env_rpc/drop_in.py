"""The drop-in for the dm_env_rpc package: `rlwire.install("dm_env_rpc")`.

Packing: the package converts each array through a Python list. The drop-in converts it through its
wire form, which protobuf reads and writes in C. Values that rlwire's codec rejects go to the
package's own code, which raises its own errors.

Transport, with ``transport=True``: the package's connections over insecure channels and local
credentials use rlwire's HTTP/2, with one TCP connection each. Other calls on these channels use
grpcio, and so do channels with other credentials, arguments, compression, interceptors or a proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any
from urllib.request import getproxies
from weakref import WeakKeyDictionary

import numpy as np

from rlwire.codecs.dm_env_rpc import AnyMessage, ProtoArray, decode_tensor, encode_tensor
from rlwire.dm_env_rpc.channel import METHOD
from rlwire.dm_env_rpc.client import KEEP_ALIVE
from rlwire.errors import LimitExceeded, RlwireError
from rlwire.limits import Limits
from rlwire.sessions import grpc as calls
from rlwire.transports import tcp, tcp_asyncio
from rlwire.transports.address import Address, parse
from rlwire.transports.sockets import Timeouts
from rlwire.transports.waits import Waits, drive, drive_async

logger = logging.getLogger(__name__)

# The package has no limits, and its values are in memory already.
_LIMITS = Limits(message=2**31, expanded=2**40, string=2**31)

_MESSAGES = (AnyMessage, ProtoArray)

# Payloads that are a single bytes field: the package returns views of them.
_BYTES = {"int8s": np.dtype(np.int8), "uint8s": np.dtype(np.uint8)}

_originals: list[tuple[Any, str, Any]] = []


def install(*, transport: bool = False) -> None:
    """Replace the package's packing, and with `transport` its connections. Idempotent.

    Functions imported before (``from ... import pack_tensor``) stay the package's.
    """
    replaced = [name for _owner, name, _original in _originals]
    if transport and "insecure_channel" not in replaced:
        _replace_transport()
    if "pack_tensor" in replaced:
        return
    from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils

    _replace(tensor_utils, "pack_tensor", _pack_tensor(tensor_utils.pack_tensor, dm_env_rpc_pb2))
    _replace(
        tensor_utils,
        "unpack_tensor",
        _unpack_tensor(tensor_utils.unpack_tensor, tensor_utils.reshape_array),
    )
    logger.debug("dm_env_rpc now packs tensors with rlwire")


def uninstall() -> None:
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def _replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    replacement.__name__ = name
    replacement.__doc__ = original.__doc__
    replacement.__module__ = __name__
    _originals.append((owner, name, original))
    setattr(owner, name, replacement)


def _pack_tensor(original: Callable[..., Any], pb2: Any) -> Callable[..., Any]:
    parse = pb2.Tensor.FromString

    def pack_tensor(value: Any, dtype: Any = None, try_compress: bool = False) -> Any:
        try:
            data = encode_tensor(value, dtype, try_compress=try_compress, limits=_LIMITS)
        except (RlwireError, TypeError, AttributeError):
            return original(value, dtype, try_compress)
        return parse(data)

    return pack_tensor


def _unpack_tensor(original: Callable[..., Any], reshape: Callable[..., Any]) -> Callable[..., Any]:
    def unpack_tensor(tensor_proto: Any) -> Any:
        try:
            payload = tensor_proto.WhichOneof("payload")
            if payload in _BYTES:
                array = np.frombuffer(getattr(tensor_proto, payload).array, _BYTES[payload])
                if array.size != 1:
                    return reshape(array, tensor_proto.shape)
            value = decode_tensor(tensor_proto.SerializeToString(), limits=_LIMITS)
        except (RlwireError, TypeError, AttributeError):
            return original(tensor_proto)
        # Messages stay protobuf's own objects.
        return original(tensor_proto) if isinstance(value, _MESSAGES) else value

    return unpack_tensor


_NO_TIMEOUT = Timeouts(read=None, write=None, idle=None)
_UNLIMITED = 2**31 - 2**20
_RECEIVED, _SENT = "grpc.max_receive_message_length", "grpc.max_send_message_length"
# Channel arguments without effect here.
_IGNORED = {
    "grpc.enable_retries", "grpc.enable_http_proxy", "grpc.use_local_subchannel_pool",
    "grpc.primary_user_agent", "grpc.secondary_user_agent",
}  # fmt: skip

_targets: WeakKeyDictionary[Any, tuple[Address, dict[str, Any]]] = WeakKeyDictionary()
"""The address and session options of each grpcio channel."""


def _replace_transport() -> None:
    import grpc
    import grpc.aio
    from dm_env_rpc.v1 import async_connection, connection

    for module in (grpc, grpc.aio):
        for name in ("insecure_channel", "secure_channel"):
            _replace(module, name, _make_channel(getattr(module, name)))
    for owner, stream in (
        (connection.Connection, _BlockingStream),
        (async_connection.AsyncConnection, _AsyncStream),
    ):
        _replace(owner, "__init__", _make_connection(owner.__init__, stream))


def _make_channel(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def make_channel(*arguments: Any, **options: Any) -> Any:
        channel = original(*arguments, **options)
        target = _target(**signature.bind(*arguments, **options).arguments)
        if target is not None:
            _targets[channel] = target
        return channel

    return make_channel


def _target(
    target: str, options: Any = None, credentials: Any = None, **others: Any
) -> tuple[Address, dict[str, Any]] | None:
    """Return a channel's address and session options, or None to leave it to grpcio."""
    given = dict(options or ())
    # `others` are compression (0 is none) and interceptors.
    if any(others.values()) or not given.keys() <= {_RECEIVED, _SENT} | _IGNORED:
        return None
    kind = type(getattr(credentials, "_credentials", None)).__name__
    if credentials is not None and kind != "LocalChannelCredentials":
        return None
    for scheme in ("dns:///", "ipv4:", "ipv6:"):
        target = target.removeprefix(scheme)
    try:
        where = parse(target.replace("unix://", "unix:", 1))
    except ValueError:
        return None
    if not (where.path or where.loopback) and (credentials is not None or getproxies()):
        return None
    received, sent = given.get(_RECEIVED, 4 * 1024 * 1024), given.get(_SENT, -1)
    received = _UNLIMITED if received < 0 else min(received, _UNLIMITED)
    return where, {
        "authority": "localhost" if where.path else str(where),
        "secure": False,
        "limits": Limits(received=received, message=received),
        "max_sent": _UNLIMITED if sent < 0 else min(sent, _UNLIMITED),
        **KEEP_ALIVE,
    }


def _make_connection(original: Callable[..., Any], stream: type[_Stream]) -> Callable[..., Any]:
    def __init__(self: Any, channel: Any, metadata: Any = None) -> None:
        target = _targets.get(channel)
        if target is None:
            original(self, channel, metadata)
        else:
            self._stream = stream(*target, metadata)

    return __init__


def _status_of(error: BaseException) -> calls.CallStatus:
    if isinstance(error, calls.CallEnded):
        return error.status
    if isinstance(error, LimitExceeded):
        way = "Sent" if error.limit == "max_sent" else "Received"
        words = f"CLIENT: {way} message larger than max ({error.size} vs. {error.maximum})"
        return calls.CallStatus("RESOURCE_EXHAUSTED", words)
    return calls.CallStatus("UNAVAILABLE", str(error))


class _Stream:
    """A call with a connection of its own, opened when the first message is read."""

    connect: Any
    _make_lock: Any

    def __init__(self, where: Address, options: dict[str, Any], metadata: Any) -> None:
        from dm_env_rpc.v1.dm_env_rpc_pb2 import EnvironmentRequest, EnvironmentResponse

        self._encode, self._decode = EnvironmentRequest.SerializeToString, EnvironmentResponse
        self._where, self._options = where, options
        self._metadata = [(str(name), value) for name, value in metadata or ()]
        self._connection: Any = None
        self._waiting: list[bytes] = []  # requests that the next `read` sends
        self._end: calls.CallStatus | None = None
        self._lock = self._make_lock()

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
            session = calls.GrpcClientSession(
                calls.GrpcRawMessages(), METHOD, metadata=self._metadata, **self._options
            )
            self._connection = yield self.connect(self._where, session, timeout=_NO_TIMEOUT)
        connection, waiting = self._connection, self._waiting
        while len(waiting) > 1:
            yield connection.send(waiting.pop(0))
        if waiting:
            return (yield connection.exchange(waiting.pop()))
        return (yield connection.receive())

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(RuntimeError):  # its event loop is closed
                connection.close()

    def __del__(self) -> None:
        self.close()  # the package never closes a stream


class _BlockingStream(_Stream):
    """Replaces the package's StreamReaderWriter; threads may use it in turn."""

    connect = staticmethod(tcp.connect)
    _make_lock = threading.Lock

    def write(self, request: Any) -> None:
        with self._lock:
            self._waiting.append(self._encode(request))

    def read(self) -> Any:
        with self._lock:
            if self._connection is not None:
                self._connection.release()
            found = drive(self._read())
        if not isinstance(found, calls.CallStatus):
            return found
        if found.code == "OK":
            raise StopIteration
        raise _rpc_error()(found)


class _AsyncStream(_Stream):
    """Replaces the package's call of grpc.aio."""

    connect = staticmethod(tcp_asyncio.connect)
    _make_lock = asyncio.Lock

    async def write(self, request: Any) -> None:
        self._waiting.append(self._encode(request))

    async def read(self) -> Any:
        async with self._lock:
            found = await drive_async(self._read())
        if not isinstance(found, calls.CallStatus):
            return found
        import grpc.aio

        if found.code == "OK":
            return grpc.aio.EOF
        raise grpc.aio.AioRpcError(
            grpc.StatusCode[found.code],
            grpc.aio.Metadata(),
            grpc.aio.Metadata(*found.metadata),
            found.details,
        )


@functools.cache
def _rpc_error() -> type[Exception]:
    import grpc

    class RpcError(grpc.RpcError):
        """The status of an ended stream, with grpc.Call's accessors."""

        def __init__(self, status: calls.CallStatus) -> None:
            super().__init__(str(status))
            self.code = lambda: grpc.StatusCode[status.code]
            self.details = lambda: status.details
            self.trailing_metadata = lambda: status.metadata
            self.initial_metadata = tuple

    return RpcError
