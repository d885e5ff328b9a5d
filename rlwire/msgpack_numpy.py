"""msgpack-numpy's and openpi-client's packing over rlwire's codec, and both drop-ins.

Bytes and signatures are msgpack-numpy's, or openpi-client's with ``dialect="openpi"``. `unpackb`
returns read-only arrays, as both libraries do: large ones may be views of the message. An
`Unpacker` returns writable ones. Values that the codec rejects are left to the msgpack package,
which need not be installed for the rest. Nothing is pickled and nothing unpickled.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
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
Undo: TypeAlias = list[Callable[[], object]]

# What the msgpack package allows: as much as the bytes hold, which the caller has in memory.
LIMITS = Limits(message=2**59, received=2**59, depth=500, items=2**59, string=2**32, expanded=2**59)

_NOTHING = object()
_DECODERS: dict[Any, codec.Decoder] = {}
_ENCODERS: dict[Dialect, codec.Encoder] = {
    "msgpack_numpy": codec.Encoder(limits=LIMITS),
    "openpi": codec.Encoder(arrays="openpi", limits=LIMITS),
}


# --- the msgpack package's options as the codec has them

# Options that change nothing when they have this value; None changes nothing either.
_DEFAULTS: dict[str, Any] = {
    "autoreset": True,
    "datetime": False,
    "raw": False,
    "timestamp": 0,
    "unicode_errors": "strict",
    "use_bin_type": True,
    "use_list": True,
    "use_single_float": False,
    **{f"max_{kind}_len": -1 for kind in ("str", "bin", "array", "map", "ext")},
}


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that change something."""
    return {
        name: value
        for name, value in options.items()
        if value is not None and not (name in _DEFAULTS and value == _DEFAULTS[name])
    }


def _encoder(dialect: Dialect, options: dict[str, Any]) -> codec.Encoder | None:
    """Return what encodes with a `Packer`'s options; None: the msgpack package has to."""
    given = _given(options)
    given.pop("buf_size", None)
    if not given:
        return _ENCODERS[dialect]
    try:
        return codec.Encoder(**{"arrays": dialect, "limits": LIMITS, **given})
    except (TypeError, ValueError):
        return None


def _decoding(options: dict[str, Any]) -> dict[str, Any] | None:
    """Return an `Unpacker`'s options for the codec; None: the msgpack package has to decode.

    Only bytes mark an array, as in both libraries: a map whose keys are strings stays one.
    Extensions and timestamps are the msgpack package's where the program has imported it.
    """
    given = _given(options)
    if not given.keys() <= {"ext_hook", "strict_map_key", "arrays", "copy", "limits"}:
        return None
    theirs = sys.modules.get("msgpack")
    return {
        "limits": LIMITS,
        "arrays": "bytes",
        "copy": None,
        "timestamp": getattr(theirs, "Timestamp", None),
        "ext_hook": getattr(theirs, "ExtType", codec.ExtType),
        **given,
    }


def _decoder(options: dict[str, Any]) -> codec.Decoder | None:
    if options:
        found = _decoding(options)
        return None if found is None else codec.Decoder(**found)
    return _quick_decoder()


def _quick_decoder() -> codec.Decoder:
    """Return the decoder without options."""
    theirs = sys.modules.get("msgpack")
    found = _DECODERS.get(theirs)
    if found is None:
        found = _DECODERS[theirs] = codec.Decoder(**_decoding({}) or {})
    return found


def _can_unpack(options: dict[str, Any]) -> bool:
    """Return whether our `Unpacker` has these options."""
    own = dict.fromkeys(("file_like", "read_size", "max_buffer_size"))
    return _decoding({**options, **own}) is not None


def _hooked(options: dict[str, Any], hook: Any = None) -> dict[str, Any]:
    """Return options with which the msgpack package decodes arrays."""
    chained = functools.partial(hook or decode, chain=options.get("object_hook"))
    return {**options, "object_hook": chained}


def _package() -> Any:
    """Return the module with the msgpack package's own classes, whatever is patched into it."""
    import msgpack  # noqa: F401

    return sys.modules.get("msgpack._cmsgpack") or sys.modules["msgpack.fallback"]


def _error(name: str, otherwise: type[Exception]) -> type[Exception]:
    """Return the msgpack package's error of that name, if the program can know it."""
    return getattr(sys.modules.get("msgpack"), name, otherwise)


@contextlib.contextmanager
def _rather(refused: RlwireError | BufferError | None) -> Iterator[None]:
    """Raise the codec's error, which names the place, rather than one of our hooks."""
    try:
        yield
    except (RlwireError, ImportError):
        if refused is None:
            raise
        raise refused from None


# --- hooks for the msgpack package

_MARKS = frozenset((b"nd", b"complex", b"__ndarray__", b"__npgeneric__"))
_MAPS = codec.Decoder(arrays=False, limits=LIMITS)
_STRICT: dict[Dialect, codec.Encoder] = {
    "msgpack_numpy": codec.Encoder(strict_types=True, limits=LIMITS),
    "openpi": codec.Encoder(arrays="openpi", strict_types=True, limits=LIMITS),
}
# A hook is given maps inside each other one by one: the depth bounds how often bytes are encoded.
_SHALLOW = codec.Encoder(limits=replace(LIMITS, depth=64))


def encode(obj: Any, chain: Hook | None = None, *, dialect: Dialect = "msgpack_numpy") -> Any:
    """Return the map for an array or NumPy scalar: a packer's ``default=``. `chain` gets others."""
    if isinstance(obj, np.ma.MaskedArray):  # as the originals do
        obj = obj.filled() if dialect == "openpi" else obj.data
    if isinstance(obj, (np.ndarray, np.bool_, np.number, np.datetime64, complex)):
        return _MAPS.decode(_STRICT[dialect].encode(obj))
    return obj if chain is None else chain(obj)


def decode(obj: Any, chain: Hook | None = None) -> Any:
    """Return what a map stands for: an unpacker's ``object_hook=``. `chain` gets other maps."""
    if not _MARKS.isdisjoint(obj):
        with contextlib.suppress(EncodeError, LimitExceeded):
            packed = _SHALLOW.encode(obj)
            if type(found := _quick_decoder().decode(packed)) is not dict:
                return found
    return obj if chain is None else chain(obj)


# --- classes


class Packer:
    """Values to bytes: `pack` is the codec's, every other method the msgpack package's.

    Options are those of the msgpack package's `Packer`.
    """

    def __init__(self, *, dialect: Dialect = "msgpack_numpy", **options: Any) -> None:
        self._dialect = dialect
        self._options = options
        encoder = _encoder(dialect, options)
        self._encode: Callable[[Any], Any] | None = None if encoder is None else encoder.encode
        if encoder is None:
            _ = self._theirs  # a wrong option is an error now

    def pack(self, obj: Any) -> Any:
        """Return a value's bytes; None where they are collected (``autoreset=False``)."""
        refused = None
        if self._encode is not None:
            try:
                return self._encode(obj)
            except RlwireError as error:
                refused = error
        with _rather(refused):
            return self._theirs.pack(obj)

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
    """Values from a stream of bytes: feed it, or give it a file, and iterate.

    Options are those of the msgpack package's `Unpacker`. With one that the codec has not, this is
    that package's.
    """

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """Return the msgpack package's where an option needs it."""
        if cls is Unpacker and not _can_unpack(options):
            return _package().Unpacker(*args, **_hooked(options))
        return super().__new__(cls)

    def __init__(
        self,
        file_like: Any = None,
        read_size: int = 0,
        *,
        max_buffer_size: int = 100 * 2**20,
        **options: Any,
    ) -> None:
        most = max_buffer_size or 2**32 - 1
        if read_size > most:
            raise ValueError(f"read_size={read_size} is more than max_buffer_size={most}")
        self._read: Callable[[int], bytes] | None = None if file_like is None else file_like.read
        self._read_size = read_size or min(most, 2**20)
        self._stream = codec.Unpacker(max_buffer_size=most, **_decoding(options) or {})

    def feed(self, next_bytes: Any) -> None:
        """Take the next bytes: all, or none where more would wait than may."""
        if self._read is not None:
            raise AssertionError("feed() is not for an Unpacker with file_like")
        try:
            self._stream.feed(next_bytes)
        except LimitExceeded as error:
            raise _error("BufferFull", BufferError)(str(error)) from None

    def _whole(self, take: Callable[[codec.Unpacker], Any], missing: object) -> Any:
        """Return what is taken from the stream, once it is there as a whole."""
        while (found := take(self._stream)) is missing:
            if not self._fill():
                raise _error("OutOfData", EOFError)("the next value is not there as a whole")
        return found

    unpack = functools.partialmethod(_whole, lambda stream: next(stream, _NOTHING), _NOTHING)
    skip = functools.partialmethod(_whole, codec.Unpacker.skip, False)
    read_array_header = functools.partialmethod(_whole, codec.Unpacker.read_array_header, None)
    read_map_header = functools.partialmethod(_whole, codec.Unpacker.read_map_header, None)

    def _fill(self) -> bool:
        if self._read is None:
            return False
        room = self._stream.max_buffer_size - self._stream.buffered
        data = self._read(min(self._read_size, room))
        self._stream.feed(data)
        return len(data) > 0

    def __iter__(self) -> Unpacker:
        return self

    def __next__(self) -> Any:
        if self._read is None:
            return next(self._stream)
        try:
            return self.unpack()
        except _error("OutOfData", EOFError):
            raise StopIteration from None

    def read_bytes(self, nbytes: int) -> bytes:
        """Take up to so many bytes as they are."""
        while self._stream.buffered < nbytes and self._fill():
            pass
        return self._stream.read_bytes(nbytes)

    def tell(self) -> int:
        """Return how many bytes have been consumed since the beginning."""
        return self._stream.tell()


# --- functions


def packs(dialect: Dialect, make_packer: Callable[..., Any]) -> Callable[..., Any]:
    """Return `packb` in a dialect: what the codec rejects, a packer hands on."""
    quick = _ENCODERS[dialect].encode

    def packb(o: Any, **kwargs: Any) -> Any:
        """Return a value as bytes; options as for `Packer`."""
        try:
            if not kwargs:
                return quick(o)
            if (encoder := _encoder(dialect, kwargs)) is not None:
                return encoder.encode(o)
        except RlwireError:
            pass
        return make_packer(**kwargs).pack(o)

    return packb


packb = packs("msgpack_numpy", Packer)


def unpackb(packed: Any, **kwargs: Any) -> Any:
    """Return the value in a buffer that holds exactly one; options as for `Unpacker`."""
    decoder = _decoder(kwargs)
    if decoder is None:
        return _package().unpackb(packed, **_hooked(kwargs))
    # Bytes do not change, so arrays may be views of them.
    steady = packed if type(packed) is bytes else memoryview(packed).tobytes()
    return decoder.decode(steady)


def pack(o: Any, stream: Any, **kwargs: Any) -> None:
    """Write a value to a stream; as `packb`."""
    stream.write(packb(o, **kwargs))


def unpack(stream: Any, **kwargs: Any) -> Any:
    """Return the one value in all that a stream has to read; as `unpackb`."""
    return unpackb(stream.read(), **kwargs)


load, loads, dump, dumps = unpack, unpackb, pack, packb


def patch() -> None:
    """Put these functions and classes into the msgpack package, as the original's `patch` does."""
    import msgpack

    for name in set(__all__) - {"patch", "encode", "decode"}:
        setattr(msgpack, name, globals()[name])


# --- drop-ins


class DropIn:
    """`install` and `uninstall` for one library; the former's options are those of `replace`."""

    def __init__(self, replace: Callable[..., Undo]) -> None:
        self._replace = replace
        self._installed: tuple[Undo, dict[str, Any]] | None = None

    def install(self, **options: Any) -> None:
        """Replace the library's packing; again does nothing."""
        options = {name: value for name, value in options.items() if value is not False}
        if self._installed is None:
            self._installed = self._replace(**options), options
        elif self._installed[1] != options:
            raise RuntimeError(f"it is installed with {self._installed[1]}: uninstall it first")

    def uninstall(self) -> None:
        """Give the library its own packing back; does nothing where `install` was not called."""
        if self._installed is not None:
            for undo in reversed(self._installed[0]):
                undo()
            self._installed = None


def _accelerate(
    original: Any, ours: Any, suits: Callable[[dict[str, Any]], bool] = lambda options: True
) -> Callable[[], object]:
    """Have a class make objects of a subclass with our methods; return what undoes it.

    A subclass of a user's own may mean anything by its methods, and is left alone.
    """
    init = original.__init__
    names = list(inspect.signature(init).parameters)[1:]

    class Fast(ours, original):
        _theirs = property(lambda self: super(ours, self))

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(Fast, name, getattr(original, name))

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        named = {**dict(zip(names, args, strict=False)), **kwargs}
        if type(self) is original and suits(named):
            self.__class__ = Fast
            ours.__init__(self, **named)

    original.__init__ = __init__
    return functools.partial(setattr, original, "__init__", init)


def _unpackb_or(hook: Any) -> Any:
    """Return `unpackb` for a library: what the codec rejects, the msgpack package tries."""
    quick = _quick_decoder().decode

    def tried(packed: Any, **kwargs: Any) -> Any:
        try:
            if type(packed) is bytes and not kwargs:
                return quick(packed)
            return unpackb(packed, **kwargs)
        except (RlwireError, BufferError) as error:
            refused = error
        with _rather(refused):
            return _package().unpackb(packed, **_hooked(kwargs, hook))

    return tried


def _different(library: str, name: str, version: str) -> RuntimeError:
    return RuntimeError(
        f"this {library} has another {name}: rlwire's drop-in is made for version {version}"
    )


# msgpack-numpy's functions stay the same objects, wherever a program has them: only their code is
# replaced, by code that runs in its module. Its `pack` calls its `Packer`.
_rlwire: Any = None
_CODE: dict[str, Any] = {
    "packb": lambda o, **kwargs: _rlwire.packb(o, **kwargs) if kwargs else _rlwire.packb(o),
    "unpackb": lambda packed, **kwargs: (
        _rlwire.unpackb(packed, **kwargs) if kwargs else _rlwire.unpackb(packed)
    ),
    "unpack": lambda stream, **kwargs: _rlwire.unpackb(stream.read(), **kwargs),
    "encode": lambda obj, chain=None: _rlwire.encode(obj, chain),
    "decode": lambda obj, chain=None: _rlwire.decode(obj, chain),
}


def _replace_msgpack_numpy(*, pickle: bool = False) -> Undo:
    """Replace the library's functions, and have its classes make faster objects.

    With `pickle` the library goes on to pickle arrays of objects, and to unpickle them: never where
    a message may come from somebody else.
    """
    import msgpack_numpy as library

    for name, code in _CODE.items():
        own = getattr(library, name, None)
        if type(own) is not FunctionType or inspect.signature(own) != inspect.signature(code):
            raise _different("msgpack_numpy", name, "0.4.8")
    for name, option in (("Packer", "datetime"), ("Unpacker", "strict_map_key")):
        init = getattr(library, name, object).__init__
        if type(init) is not FunctionType or option not in inspect.signature(init).parameters:
            raise _different("msgpack_numpy", name, "0.4.8, with msgpack 1")

    def hook(name: str, ours: Any, is_pickle: Callable[[Any], bool]) -> Any:
        own = getattr(library, name)
        theirs = FunctionType(own.__code__, own.__globals__, name, own.__defaults__)
        return lambda obj, chain: (theirs if pickle and is_pickle(obj) else ours)(obj, chain)

    ours = SimpleNamespace(
        packb=packs("msgpack_numpy", library.Packer),
        encode=hook("encode", encode, lambda obj: getattr(obj, "dtype", None) == np.dtype(object)),
        decode=hook("decode", decode, lambda obj: obj.get(b"kind") == b"O"),
    )
    ours.unpackb = _unpackb_or(ours.decode)
    library._rlwire = ours
    undo: Undo = [functools.partial(delattr, library, "_rlwire")]
    for name, code in _CODE.items():
        own = getattr(library, name)
        undo.append(functools.partial(setattr, own, "__code__", own.__code__))
        own.__code__ = code.__code__
    undo.append(_accelerate(library.Packer, Packer))
    undo.append(_accelerate(library.Unpacker, Unpacker, _can_unpack))
    return undo


def _replace_openpi_client() -> Undo:
    """Replace what the library's four partial objects call: they stay the same objects."""
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
        part = _unless_given(option, ours, own.func)
        states[own] = own.__reduce__()[2], part
    undo: Undo = []
    for own, (state, part) in states.items():
        undo.append(functools.partial(own.__setstate__, state))
        own.__setstate__((part, (), {}, state[3]))
    return undo


def _unless_given(option: str, ours: Any, theirs: Any) -> Any:
    """Return ours, but theirs for a call with a hook of the user's own."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return ours(*args)
        return (theirs if option in kwargs else ours)(*args, **kwargs)

    return call


msgpack_numpy_drop_in = DropIn(_replace_msgpack_numpy)
openpi_client_drop_in = DropIn(_replace_openpi_client)
