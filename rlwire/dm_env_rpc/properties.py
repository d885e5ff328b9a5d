"""The properties extension: values beside the steps that clients read, write and list.

`Properties` are a server's or a world's; `PropertiesExtension` is a client's. Keys form a tree at
periods. A property has a value, or holds other properties, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.casting import cast
from rlwire.codecs.msgpack import encode
from rlwire.dm_env_rpc.client import StatusError
from rlwire.dm_env_rpc.world import World
from rlwire.environments.driver import Driven
from rlwire.errors import EncodeError, RemoteProtocolError, quoted
from rlwire.limits import DEFAULT
from rlwire.sessions.dm_env_rpc import Code, without_spec
from rlwire.transports.waits import Asyncio, Blocking, SharedClient, Waits, driven

PICTURE = "rlwire.render"
RENDER_FPS = "rlwire.render_fps"


# ---- the server's side --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
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

    A world's are its attribute ``properties``. Connections that have joined it see both, the
    world's first. Callbacks run in the thread of the connection that asks: a world's one at a time,
    a server's by several threads at once. A ValueError from a callback says that the value is
    wrong, a PermissionError that access is denied.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

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
            key: unique; a period nests.
            shape: of its value; a negative dimension is variable.
            dtype: of its value; NumPy's or dm_env_rpc's.
            minimum: inclusive bound, checked when a client writes.
            maximum: as `minimum`.
            read: returns the value; None for a write-only property.
            write: takes a value of this shape, dtype and range; None for a read-only property.
            description: text for people.

        Raises:
            ValueError, EncodeError: the key is taken, or an argument is invalid.
        """
        if read is None and write is None:
            raise ValueError(f"the property {key!r} needs read or write")
        spec = codec.make_spec(key, shape, dtype, minimum, maximum)
        if not all(key.split(".")):
            raise ValueError(f"{key!r} is no key: its parts between periods must not be empty")
        if key in self._entries:
            raise ValueError(f"there is a property {key!r} already")
        self._entries[key] = _Entry(spec, read, write, description)


def pictures_of(driven: Driven) -> Properties | None:
    """Return the properties with which `rlwire.make` renders an environment, or None.

    `PICTURE` is ``environment.render()``, (height, width, 3) uint8, as MessagePack, since a spec
    has at most one variable dimension. `RENDER_FPS` is the frame rate of its videos in Hz.
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


class PropertyService:
    """Answers the extension's requests: a server's `Extension`."""

    def __init__(self, properties: Properties | None = None) -> None:
        self._own = Properties() if properties is None else properties

    def __call__(self, message: codec.AnyMessage, world: World | None) -> codec.AnyMessage:
        limits = without_spec(DEFAULT, len(message.value))
        request = codec.decode_property_request(message, limits=limits)
        if request is None:
            raise StatusError(Code.INVALID_ARGUMENT, "the property request has no payload")
        entries = dict(self._own._entries)
        for of_world in (getattr(world, "pictures", None), getattr(world, "properties", None)):
            if of_world is not None:
                entries |= of_world._entries
        return codec.encode_property_response(_answer(request, entries))


def _answer(request: codec.PropertyRequest, entries: dict[str, _Entry]) -> codec.PropertyResponse:
    key = request.key
    entry, below = entries.get(key), _below(key, entries)
    if entry is None and not below and (key or not isinstance(request, codec.ListPropertyRequest)):
        names = ", ".join(list(_below("", entries))[:20]) or "none"
        raise StatusError(Code.NOT_FOUND, f"there is no {_shown(key)}; the outermost are: {names}")
    if isinstance(request, codec.ListPropertyRequest):
        if not below and key:
            raise StatusError(Code.INVALID_ARGUMENT, f"{_shown(key)} holds no properties")
        return codec.ListPropertyResponse(tuple(below.values()))
    if entry is None:
        raise StatusError(
            Code.PERMISSION_DENIED, f"{_shown(key)} has no value, it only holds properties"
        )
    if isinstance(request, codec.ReadPropertyRequest):
        if entry.read is None:
            raise StatusError(Code.PERMISSION_DENIED, f"{_shown(key)} cannot be read")
        return codec.ReadPropertyResponse(_fit(entry, entry.read()))
    if entry.write is None:
        raise StatusError(Code.PERMISSION_DENIED, f"{_shown(key)} cannot be written")
    try:
        value = _fit(entry, request.value)
        codec.check_bounds(entry.spec, value)
    except EncodeError as error:  # the client's value
        raise StatusError(Code.INVALID_ARGUMENT, str(error)) from None
    entry.write(value)
    return codec.WritePropertyResponse()


def _below(key: str, entries: dict[str, _Entry]) -> dict[str, codec.PropertySpec]:
    prefix = key + "." if key else ""
    found: dict[str, codec.PropertySpec] = {}
    for name, entry in entries.items():
        if not name.startswith(prefix):
            continue
        first, _, rest = name[len(prefix) :].partition(".")
        spec = found.setdefault(
            prefix + first, codec.PropertySpec(codec.TensorSpec(prefix + first))
        )
        if rest:
            spec.is_listable = True
            continue
        spec.spec = entry.spec
        spec.is_readable = entry.read is not None
        spec.is_writable = entry.write is not None
        spec.description = entry.description
    return found


def _shown(key: str) -> str:
    return f"property {quoted(key, 200)}"


def _fit(entry: _Entry, value: Any) -> Any:
    """Return a value in its spec's dtype and shape."""
    spec = entry.spec
    if spec.dtype == codec.DataType.PROTO:
        return value
    try:
        array = np.asarray(value)
    except ValueError as error:  # such as a jagged list
        raise EncodeError(f"the value of {_shown(spec.name)} is no array: {error}") from None
    if len(array.shape) != len(spec.shape) or any(
        size != wanted for size, wanted in zip(array.shape, spec.shape, strict=True) if wanted >= 0
    ):
        raise EncodeError(
            f"the value of {_shown(spec.name)} must have the shape {spec.shape}, not {array.shape}"
        )
    if spec.dtype == codec.DataType.STRING:
        if array.dtype.kind != "U":
            raise EncodeError(f"the value of {_shown(spec.name)} must be text, not {array.dtype}")
        return array if spec.shape else str(array.item())
    array = cast(array, codec.numpy_dtype(spec.dtype), f"the value of {_shown(spec.name)}")
    return array if spec.shape else array[()]


# ---- the client's side --------------------------------------------------------------------------


class _PropertiesExtension(SharedClient):
    def __init__(self, client: Any) -> None:
        self._client = client

    @driven
    def read(self, key: str) -> Waits[Any]:
        """Return a value, a scalar or an array.

        Raises:
            KeyError: there is no such property.
            PermissionError: it cannot be read.
            StatusError: the server answers with another error.
        """
        return (
            yield from self._ask(codec.ReadPropertyRequest(key), codec.ReadPropertyResponse)
        ).value

    @driven
    def write(self, key: str, value: Any) -> Waits[None]:
        """Set a value; errors as for `read`, ValueError if the server rejects the value."""
        yield from self._ask(codec.WritePropertyRequest(key, value), codec.WritePropertyResponse)

    @driven
    def list(self, key: str = "") -> Waits[tuple[codec.PropertySpec, ...]]:
        """Return the properties below `key`, or the outermost; ``spec.name`` is a property's key.

        Errors as for `read`, ValueError if it holds none.
        """
        return (
            yield from self._ask(codec.ListPropertyRequest(key), codec.ListPropertyResponse)
        ).values

    def _ask(self, request: codec.PropertyRequest, awaited: type) -> Waits[Any]:
        message = codec.encode_property_request(request)
        try:
            response = codec.decode_property_response((yield self._client.extension(message)))
        except StatusError as error:
            kind = _BUILTIN.get(error.code)
            if kind is None:
                raise
            raise kind(error.message) from error
        if not isinstance(response, awaited):
            came = "nothing" if response is None else f"a {type(response).__name__}"
            raise RemoteProtocolError(f"a {awaited.__name__} was expected, not {came}")
        return response


_BUILTIN: dict[int, type[Exception]] = {
    Code.NOT_FOUND: KeyError,
    Code.PERMISSION_DENIED: PermissionError,
    Code.INVALID_ARGUMENT: ValueError,
}


class PropertiesExtension(Blocking, _PropertiesExtension):
    """The properties of a `Client`'s server, and of the world that is joined."""


class AsyncPropertiesExtension(Asyncio, _PropertiesExtension):
    """`PropertiesExtension` with coroutines, over an `AsyncClient`."""
