"""The properties extension: values that clients read, write and list outside of steps.

Servers and worlds have `Properties`, clients a `PropertiesExtension`. Keys form a tree, separated
by periods. A property has a value, or properties below it, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.casting import as_array, cast
from rlwire.codecs.msgpack import encode
from rlwire.dm_env_rpc.client import AsyncClient, Client
from rlwire.dm_env_rpc.status import StatusError
from rlwire.dm_env_rpc.world import World
from rlwire.environments.driver import Driven
from rlwire.errors import EncodeError, RemoteProtocolError, quoted
from rlwire.limits import DEFAULT
from rlwire.sessions.dm_env_rpc import Code, without_spec
from rlwire.transports.waits import Asyncio, Blocking, Waits, driven

PICTURE = "rlwire.render"
RENDER_FPS = "rlwire.render_fps"


@dataclass(frozen=True)
class Property:
    """A property; None for `read` or `write` if clients may not."""

    spec: codec.TensorSpec
    read: Callable[[], Any] | None
    write: Callable[[Any], None] | None
    description: str


class Properties:
    """Properties of a server, or of a world.

    ::

        properties = Properties()
        properties.add("speed", dtype=np.float32, read=lambda: world.speed)
        server = Server(..., properties=properties)

    A world has an attribute ``properties`` of its own. Clients that have joined it see both; for
    equal keys the world's. Callbacks run in the requesting connection's thread: a world's one at a
    time, a server's in several threads at once. Raise ValueError in a callback to reject a value,
    PermissionError to deny access.

    Attributes:
        entries: the properties by key.
    """

    def __init__(self) -> None:
        self.entries: dict[str, Property] = {}

    def add(
        self,
        key: str,
        *,
        shape: Sequence[int] = (),
        dtype: DTypeLike | codec.DataType = np.float64,
        minimum: Any = None,
        maximum: Any = None,
        read: Callable[[], Any] | None = None,
        write: Callable[[Any], None] | None = None,
        description: str = "",
    ) -> None:
        """Register a property.

        Args:
            key: unique; periods nest.
            shape: the value's shape; a negative dimension is variable.
            dtype: the value's dtype, NumPy's or dm_env_rpc's.
            minimum: inclusive lower bound, checked when a client writes.
            maximum: inclusive upper bound.
            read: returns the value; None for write-only.
            write: called with a value of this shape, dtype and range; None for read-only.
            description: text for clients.

        Raises:
            ValueError, EncodeError: the key exists, or an argument is invalid.
        """
        if read is None and write is None:
            raise ValueError(f"property {key!r} needs read= or write=")
        spec = codec.make_spec(key, shape, dtype, minimum, maximum)
        if not all(key.split(".")):
            raise ValueError(f"property key {key!r} has an empty part between periods")
        if key in self.entries:
            raise ValueError(f"property {key!r} exists already")
        self.entries[key] = Property(spec, read, write, description)


def pictures_of(driven: Driven) -> Properties | None:
    """Return the properties that `rlwire.make` renders with, or None without rgb_array.

    A picture is MessagePack, because a spec has at most one variable dimension.
    """
    environment = driven.environment
    if getattr(environment, "render_mode", None) != "rgb_array":
        return None
    fps = float((getattr(environment, "metadata", None) or {}).get("render_fps") or 30.0)
    pictures = Properties()
    pictures.add(
        PICTURE,
        shape=(-1,),
        dtype=np.uint8,
        read=lambda: np.frombuffer(encode(environment.render()), np.uint8),
    )
    pictures.add(RENDER_FPS, read=lambda: fps)
    return pictures


def answer_request(
    of_server: Properties | None, message: codec.AnyMessage, world: World | None
) -> codec.AnyMessage:
    """Return the reply to a property request; an `Extension`, given the server's properties."""
    limits = without_spec(DEFAULT, len(message.value))
    request = codec.decode_property_request(message, limits=limits)
    if request is None:
        raise StatusError(Code.INVALID_ARGUMENT, "the property request has no payload")
    entries: dict[str, Property] = {}
    for found in (of_server, getattr(world, "pictures", None), getattr(world, "properties", None)):
        if found is not None:
            entries |= found.entries
    return codec.encode_property_response(_answer(request, entries))


def _answer(request: codec.PropertyRequest, entries: dict[str, Property]) -> codec.PropertyResponse:
    key = request.key
    entry, below = entries.get(key), _below(key, entries)
    if entry is None and not below and (key or not isinstance(request, codec.ListPropertyRequest)):
        names = ", ".join(list(_below("", entries))[:20]) or "none"
        raise StatusError(Code.NOT_FOUND, f"there is no {_label(key)}; top level: {names}")
    if isinstance(request, codec.ListPropertyRequest):
        if not below and key:
            raise StatusError(Code.INVALID_ARGUMENT, f"{_label(key)} has no properties below it")
        return codec.ListPropertyResponse(tuple(below.values()))
    if entry is None:
        raise StatusError(
            Code.PERMISSION_DENIED, f"{_label(key)} has no value, only properties below it"
        )
    if isinstance(request, codec.ReadPropertyRequest):
        if entry.read is None:
            raise StatusError(Code.PERMISSION_DENIED, f"{_label(key)} cannot be read")
        return codec.ReadPropertyResponse(_fit(entry, entry.read()))
    if entry.write is None:
        raise StatusError(Code.PERMISSION_DENIED, f"{_label(key)} cannot be written")
    try:
        value = _fit(entry, request.value)
        codec.check_bounds(entry.spec, value)
    except EncodeError as error:  # the client's value
        raise StatusError(Code.INVALID_ARGUMENT, str(error)) from None
    entry.write(value)
    return codec.WritePropertyResponse()


def _below(key: str, entries: dict[str, Property]) -> dict[str, codec.PropertySpec]:
    prefix = key + "." if key else ""
    found: dict[str, codec.PropertySpec] = {}
    for name in [name for name in entries if name.startswith(prefix)]:
        first, _, rest = name[len(prefix) :].partition(".")
        child = prefix + first
        spec = found.setdefault(child, codec.PropertySpec(codec.TensorSpec(child)))
        if rest:
            spec.is_listable = True
        else:
            entry = entries[name]
            spec.spec, spec.description = entry.spec, entry.description
            spec.is_readable, spec.is_writable = entry.read is not None, entry.write is not None
    return found


def _label(key: str) -> str:
    return f"property {quoted(key, 200)}"


def _fit(entry: Property, value: Any) -> Any:
    """Convert a value to its spec's dtype; EncodeError if its shape differs."""
    spec = entry.spec
    if spec.dtype == codec.DataType.PROTO:
        return value
    what = f"the value of {_label(spec.name)}"
    dtype = codec.numpy_dtype(spec.dtype)
    is_text = spec.dtype == codec.DataType.STRING
    # NumPy's texts lack NUL at the end, and would have numbers as digits.
    array = np.asarray(value, object) if is_text else as_array(value, what, dtype=dtype)
    if len(array.shape) != len(spec.shape) or any(
        size != wanted for size, wanted in zip(array.shape, spec.shape, strict=True) if wanted >= 0
    ):
        raise EncodeError(f"{what} must have the shape {spec.shape}, not {array.shape}")
    if is_text:
        if others := [item for item in array.flat if not isinstance(item, str)]:
            raise EncodeError(f"{what} must be text, not {quoted(others[0])}")
        return array if spec.shape else str(array.item())
    array = cast(array, dtype, what)
    return array if spec.shape else array[()]


class _PropertiesExtension:
    def __init__(self, client: Client | AsyncClient) -> None:
        self._client = client

    @driven
    def read(self, key: str) -> Waits[Any]:
        """Return a value, a scalar or an array.

        Raises:
            KeyError: there is no such property.
            PermissionError: it cannot be read.
            StatusError: the server answers with another error.
        """
        request = codec.ReadPropertyRequest(key)
        return (yield from self._request(request, codec.ReadPropertyResponse)).value

    @driven
    def write(self, key: str, value: Any) -> Waits[None]:
        """Set a value; errors as in `read`, and ValueError if the server rejects the value."""
        request = codec.WritePropertyRequest(key, value)
        yield from self._request(request, codec.WritePropertyResponse)

    @driven
    def list(self, key: str = "") -> Waits[tuple[codec.PropertySpec, ...]]:
        """Return the properties below `key`, or the top level; ``spec.name`` is a property's key.

        Errors as in `read`, and ValueError if there is none below `key`.
        """
        request = codec.ListPropertyRequest(key)
        return (yield from self._request(request, codec.ListPropertyResponse)).values

    def _request(self, request: codec.PropertyRequest, expected: type) -> Waits[Any]:
        message = codec.encode_property_request(request)
        try:
            response = codec.decode_property_response((yield self._client.extension(message)))
        except StatusError as error:
            kind = _BUILTIN.get(error.code)
            if kind is None:
                raise
            raise kind(error.message) from error
        if not isinstance(response, expected):
            got = "nothing" if response is None else f"a {type(response).__name__}"
            raise RemoteProtocolError(f"expected a {expected.__name__}, not {got}")
        return response


_BUILTIN: dict[int, type[Exception]] = {
    Code.NOT_FOUND: KeyError,
    Code.PERMISSION_DENIED: PermissionError,
    Code.INVALID_ARGUMENT: ValueError,
}


class PropertiesExtension(Blocking, _PropertiesExtension):
    """Reads, writes and lists properties of a `Client`'s server and joined world."""


class AsyncPropertiesExtension(Asyncio, _PropertiesExtension):
    """`PropertiesExtension` with coroutines, over an `AsyncClient`."""
