"""The functions of msgpack-numpy and openpi-client over rlwire's codec, and both drop-ins.

Bytes and signatures are those of msgpack-numpy, or with ``dialect="openpi"`` of openpi-client.
Arrays are read-only, as in both libraries; large ones may be views of the message. The msgpack
package handles streams (`Unpacker`), and values and options that the codec does not support.
Nothing is pickled or unpickled.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType, SimpleNamespace
from typing import Any, Literal, TypeAlias

import numpy as np

from rlwire.codecs import msgpack as codec
from rlwire.errors import EncodeError, LimitExceeded, RlwireError
from rlwire.limits import Limits

__all__ = [
    "Packer",
    "Unpacker",
    "decode",
    "dump",
    "dumps",
    "encode",
    "load",
    "loads",
    "pack",
    "packb",
    "patch",
    "unpack",
    "unpackb",
]

Dialect: TypeAlias = Literal["msgpack_numpy", "openpi"]
Hook: TypeAlias = Callable[[Any], Any]

# As high as the msgpack package's, because the caller already has the message in memory.
LIMITS = Limits(message=2**59, received=2**59, depth=500, items=2**59, string=2**32, expanded=2**59)

_DECODERS: dict[Any, codec.Decoder] = {}
_ENCODERS: dict[Dialect, codec.Encoder] = {
    "msgpack_numpy": codec.Encoder(limits=LIMITS),
    "openpi": codec.Encoder(arrays="openpi", limits=LIMITS),
}
_DEFAULTS: dict[str, Any] = {"raw": False, "use_bin_type": True, "use_list": True}


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in options.items()
        if value is not None and not (name in _DEFAULTS and value == _DEFAULTS[name])
    }


def _encoder(dialect: Dialect, options: dict[str, Any]) -> codec.Encoder | None:
    given = _given(options)
    if not given:
        return _ENCODERS[dialect]
    try:
        return codec.Encoder(**{"arrays": dialect, "limits": LIMITS, **given})
    except (TypeError, ValueError):
        return None


def _decoder(options: dict[str, Any]) -> codec.Decoder | None:
    """Return a decoder with options of `unpackb`; None if the codec does not support one."""
    theirs = sys.modules.get("msgpack")
    if not options and theirs in _DECODERS:
        return _DECODERS[theirs]
    given = _given(options)
    if not given.keys() <= {"ext_hook", "strict_map_key"}:
        return None
    found = codec.Decoder(
        limits=LIMITS,
        arrays="bytes",
        copy=None,
        timestamp=getattr(theirs, "Timestamp", None),
        **{"ext_hook": getattr(theirs, "ExtType", codec.ExtType), **given},
    )
    if not given:
        _DECODERS[theirs] = found
    return found


def _package() -> Any:
    """Return the module with the msgpack package's original classes, even after `patch`."""
    import msgpack  # noqa: F401

    return sys.modules.get("msgpack._cmsgpack") or sys.modules["msgpack.fallback"]


def _hooked(options: dict[str, Any], hook: Any = None) -> dict[str, Any]:
    chained = functools.partial(hook or decode, chain=options.get("object_hook"))
    return {**options, "object_hook": chained}


def _retry(refused: BaseException, theirs: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the msgpack package; if it is missing or a hook fails, raise the codec's error."""
    try:
        return theirs(*args, **kwargs)
    except (RlwireError, ImportError):
        raise refused from None


_MARKS = frozenset((b"nd", b"complex", b"__ndarray__", b"__npgeneric__"))
_MAPS = codec.Decoder(arrays=False, limits=LIMITS)
_STRICT: dict[Dialect, codec.Encoder] = {
    "msgpack_numpy": codec.Encoder(strict_types=True, limits=LIMITS),
    "openpi": codec.Encoder(arrays="openpi", strict_types=True, limits=LIMITS),
}
# The package calls the hook for each nested map; the depth bounds how often bytes are re-encoded.
_SHALLOW = codec.Encoder(limits=replace(LIMITS, depth=64))


def encode(obj: Any, chain: Hook | None = None, *, dialect: Dialect = "msgpack_numpy") -> Any:
    """Convert an array or NumPy scalar to a map, as a packer's ``default=``; else call `chain`."""
    if isinstance(obj, np.ma.MaskedArray):  # as the originals
        obj = obj.filled() if dialect == "openpi" else obj.data
    if isinstance(obj, (np.ndarray, np.bool_, np.number, np.datetime64, complex)):
        return _MAPS.decode(_STRICT[dialect].encode(obj))
    return obj if chain is None else chain(obj)


def decode(obj: Any, chain: Hook | None = None) -> Any:
    """Convert a map to an array or scalar, as an unpacker's ``object_hook=``; else call `chain`."""
    if not _MARKS.isdisjoint(obj):
        with contextlib.suppress(EncodeError, LimitExceeded):
            found = unpackb(_SHALLOW.encode(obj))
            if type(found) is not dict:
                return found
    return obj if chain is None else chain(obj)


class Packer:
    """The msgpack package's `Packer`, with the codec's `pack`; options are the package's."""

    def __init__(self, *, dialect: Dialect = "msgpack_numpy", **options: Any) -> None:
        self._dialect = dialect
        self._options = options
        self._encoder = _encoder(dialect, options)
        if self._encoder is None:
            _ = self._theirs  # raises for an invalid option

    def pack(self, obj: Any) -> Any:
        """Encode a value; return None with ``autoreset=False``, which collects the bytes."""
        if self._encoder is None:
            return self._theirs.pack(obj)
        try:
            return self._encoder.encode(obj)
        except RlwireError as error:
            return _retry(error, lambda: self._theirs.pack(obj))

    @functools.cached_property
    def _theirs(self) -> Any:
        chain = self._options.get("default")
        hook = functools.partial(encode, chain=chain, dialect=self._dialect)
        return _package().Packer(**{**self._options, "default": hook})

    def __getattr__(self, name: str) -> Any:
        if name[0] == "_":
            raise AttributeError(name)
        return getattr(self._theirs, name)


class Unpacker:
    """The msgpack package's `Unpacker`, for streams, which also decodes arrays."""

    def __new__(cls, file_like: Any = None, read_size: int = 0, **options: Any) -> Any:
        return _package().Unpacker(file_like, read_size=read_size, **_hooked(options))


def packs(dialect: Dialect, make_packer: Callable[..., Any]) -> Callable[..., Any]:
    """Return `packb` of a dialect; values that the codec rejects go to a packer."""
    quick = _ENCODERS[dialect].encode

    def packb(o: Any, **kwargs: Any) -> Any:
        """Encode a value; options are those of `Packer`."""
        if not kwargs:
            try:
                return quick(o)
            except RlwireError:
                pass  # the packer's own error, or its own way
        return make_packer(**kwargs).pack(o)

    return packb


packb = packs("msgpack_numpy", Packer)


def unpackb(packed: Any, **kwargs: Any) -> Any:
    """Decode a buffer with exactly one value; options are those of `Unpacker`."""
    decoder = _decoder(kwargs)
    if decoder is None:
        return _package().unpackb(packed, **_hooked(kwargs))
    # Arrays may be views of bytes, which are immutable; other buffers are copied.
    return decoder.decode(packed if type(packed) is bytes else memoryview(packed).tobytes())


def pack(o: Any, stream: Any, **kwargs: Any) -> None:
    """Encode a value as `packb` does, and write it to a stream."""
    stream.write(packb(o, **kwargs))


def unpack(stream: Any, **kwargs: Any) -> Any:
    """Read a stream to its end, and decode its single value as `unpackb` does."""
    return unpackb(stream.read(), **kwargs)


load, loads, dump, dumps = unpack, unpackb, pack, packb


def patch() -> None:
    """Replace the msgpack package's functions and classes, as msgpack-numpy's `patch` does."""
    import msgpack

    for name in set(__all__) - {"patch", "encode", "decode"}:
        setattr(msgpack, name, globals()[name])


def replace_code(
    undo: contextlib.ExitStack, library: Any, codes: dict[str, Any], ours: SimpleNamespace
) -> None:
    """Replace the code of a library's functions, whose new code finds `ours` as `_rlwire`.

    The functions keep their identity, because programs may have imported them by name.
    """
    library._rlwire = ours
    undo.callback(delattr, library, "_rlwire")
    for name, code in codes.items():
        own = getattr(library, name)
        undo.callback(setattr, own, "__code__", own.__code__)
        own.__code__ = code.__code__


def _unpackb_or(hook: Any) -> Any:
    """Return `unpackb` of a library; messages that the codec rejects go to the msgpack package."""

    def tried(packed: Any, **kwargs: Any) -> Any:
        try:
            return unpackb(packed, **kwargs)
        except (RlwireError, BufferError) as error:
            return _retry(error, _package().unpackb, packed, **_hooked(kwargs, hook))

    return tried


def _different(library: str, name: str, version: str) -> RuntimeError:
    return RuntimeError(
        f"{library}.{name} is not that of version {version}, which rlwire's drop-in replaces: "
        f"install that version"
    )


# Code that runs in msgpack-numpy's module.
_rlwire: Any = None
_CODE: dict[str, Any] = {
    "packb": lambda o, **kwargs: _rlwire.packb(o, **kwargs) if kwargs else _rlwire.packb(o),
    "unpackb": lambda packed, **kwargs: _rlwire.unpackb(packed, **kwargs),
    "unpack": lambda stream, **kwargs: _rlwire.unpackb(stream.read(), **kwargs),
    "encode": lambda obj, chain=None: _rlwire.encode(obj, chain),
    "decode": lambda obj, chain=None: _rlwire.decode(obj, chain),
}


def replace_msgpack_numpy(*, pickle: bool = False) -> contextlib.ExitStack:
    """Replace the code of the library's functions, and `pack` of its packers.

    With `pickle` the library still pickles and unpickles object arrays: only for trusted peers.
    """
    import msgpack_numpy as library

    for name, code in _CODE.items():
        own = getattr(library, name, None)
        if type(own) is not FunctionType or inspect.signature(own) != inspect.signature(code):
            raise _different("msgpack_numpy", name, "0.4.8")
    packer: Any = getattr(library, "Packer", object)
    init: Any = packer.__init__
    own_pack: Any = getattr(packer, "pack", None)
    if type(init) is not FunctionType or "datetime" not in inspect.signature(init).parameters:
        raise _different("msgpack_numpy", "Packer", "0.4.8, with msgpack 1")

    def hook(name: str, ours: Any, is_pickle: Callable[[Any], bool]) -> Any:
        own = getattr(library, name)
        theirs = FunctionType(own.__code__, own.__globals__, name, own.__defaults__)
        return lambda obj, chain: (theirs if pickle and is_pickle(obj) else ours)(obj, chain)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._rlwire = None if args else _encoder("msgpack_numpy", kwargs)

    def pack(self: Any, obj: Any) -> Any:
        encoder = getattr(self, "_rlwire", None)
        if encoder is None:
            return own_pack(self, obj)
        try:
            return encoder.encode(obj)
        except RlwireError as error:
            return _retry(error, own_pack, self, obj)

    ours = SimpleNamespace(
        packb=packs("msgpack_numpy", packer),
        encode=hook("encode", encode, lambda obj: getattr(obj, "dtype", None) == np.dtype(object)),
        decode=hook("decode", decode, lambda obj: obj.get(b"kind") == b"O"),
    )
    ours.unpackb = _unpackb_or(ours.decode)
    undo = contextlib.ExitStack()
    replace_code(undo, library, _CODE, ours)
    packer.__init__, packer.pack = __init__, pack
    undo.callback(setattr, packer, "__init__", init)
    undo.callback(delattr, packer, "pack")
    return undo


def replace_openpi_client() -> contextlib.ExitStack:
    """Replace the functions in the library's four partial objects, which keep their identity."""
    from openpi_client import msgpack_numpy as library

    make_packer = functools.partial(Packer, dialect="openpi")
    known = {
        "Packer": ("default", "pack_array", make_packer),
        "packb": ("default", "pack_array", packs("openpi", make_packer)),
        "Unpacker": ("object_hook", "unpack_array", Unpacker),
        "unpackb": ("object_hook", "unpack_array", _unpackb_or(decode)),
    }
    states = {}
    for name, (option, hook, ours) in known.items():
        own: Any = getattr(library, name, None)
        keywords = {option: getattr(library, hook, None)}
        if type(own) is not functools.partial or own.args or own.keywords != keywords:
            raise _different("openpi_client", f"msgpack_numpy.{name}", "0.1")
        states[own] = own.__reduce__()[2], _unless_given(option, ours, own.func)
    undo = contextlib.ExitStack()
    for own, (state, part) in states.items():
        undo.callback(own.__setstate__, state)
        own.__setstate__((part, (), {}, state[3]))
    return undo


def _unless_given(option: str, ours: Any, theirs: Any) -> Any:
    """Return a function that calls ours, or the library's if the caller passes a hook."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return ours(*args)
        return (theirs if option in kwargs else ours)(*args, **kwargs)

    return call
