"""msgpack-numpy's packing, replaced: `rlwire.install("msgpack_numpy")`.

Its functions then do what `rlwire.adapters.msgpack_numpy` does, in the places where a program has
them: in its own module, in the msgpack package where its `patch` put them (before or after), and
under names that were imported from it. `Packer` and `Unpacker` stay the classes they are: what they
make is of a subclass. What rlwire's codec refuses, the library's own code is asked about, so that
it raises what it always raised.

Object arrays are the exception. The library pickles them, and unpickles what a peer sends, which
lets the peer run any code. From now on both are refused, unless ``pickle=True`` leaves them, and
nothing else, to the library.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rlwire.adapters import msgpack_streams
from rlwire.adapters.msgpack_api import Hook, decoder, encoder, steady
from rlwire.adapters.msgpack_numpy import packing
from rlwire.errors import RlwireError

__all__ = ["install", "uninstall"]

logger = logging.getLogger(__name__)

_PACKER = (
    "default", "use_single_float", "autoreset", "use_bin_type", "strict_types", "datetime",
    "unicode_errors",
)  # fmt: skip
_UNPACKER = (
    "file_like", "read_size", "use_list", "raw", "timestamp", "strict_map_key", "object_hook",
    "object_pairs_hook", "list_hook", "unicode_errors", "max_buffer_size", "ext_hook",
    "max_str_len", "max_bin_len", "max_array_len", "max_map_len", "max_ext_len",
)  # fmt: skip
_ALIASES = {
    "packb": ("packb", "dumps"),
    "unpackb": ("unpackb", "loads"),
    "pack": ("pack", "dump"),
    "unpack": ("unpack", "load"),
}
_PARTS = (
    "_Packer", "_unpack", "_unpackb", "encode", "decode", "patch", "Packer", "Unpacker",
    *(name for names in _ALIASES.values() for name in names),
)  # fmt: skip

_installed: _Installed | None = None


def install(*, pickle: bool = False) -> None:
    """Replace the library's packing; again does nothing.

    Args:
        pickle: whether the library may go on to pickle arrays of objects, and to unpickle them.
            Never where a message may come from somebody else.

    Raises:
        ImportError: msgpack-numpy, or msgpack, is not installed.
        RuntimeError: this version of it has other parts than 0.4.8, or it is installed already with
            another choice of `pickle`.
    """
    global _installed
    if _installed is not None:
        if _installed.pickle is not pickle:
            raise RuntimeError(f"it is installed with pickle={not pickle}: uninstall it first")
        return
    import msgpack
    import msgpack_numpy

    _check(msgpack_numpy, msgpack)
    _installed = _Installed(msgpack_numpy, msgpack, pickle)
    logger.debug("msgpack_numpy packs with rlwire now")


def uninstall() -> None:
    """Give the library its own packing back; does nothing where `install` was not called."""
    global _installed
    if _installed is not None:
        _installed.undo()
        _installed = None


def _check(library: ModuleType, package: ModuleType) -> None:
    made_for = "rlwire's drop-in is made for version 0.4.8, with msgpack 1"
    absent = [name for name in _PARTS if not hasattr(library, name)]
    if absent:
        raise RuntimeError(f"this msgpack_numpy has no {absent[0]}: {made_for}")
    for name, parameters in (("Packer", _PACKER), ("Unpacker", _UNPACKER)):
        code = getattr(getattr(library, name).__init__, "__code__", None)
        known = code is not None and code.co_varnames[1 : code.co_argcount] == parameters
        if not known or not issubclass(getattr(library, name), getattr(package, name)):
            raise RuntimeError(f"this msgpack_numpy has another {name}: {made_for}")


class _Installed:
    """The library with rlwire's parts in it."""

    def __init__(self, library: ModuleType, package: ModuleType, pickle: bool) -> None:
        self.pickle = pickle
        self._library = library
        self._package = package
        self._original: dict[str, Any] = {name: getattr(library, name) for name in _PARTS}
        self._inits = {name: library.__dict__[name].__init__ for name in ("Packer", "Unpacker")}
        self._parts = self._make_parts()
        for name, part in self._parts.items():
            setattr(library, name, part)
        for name, make in (("Packer", _fast_packer), ("Unpacker", _fast_unpacker)):
            self._original[name].__init__ = make(self._original[name], self._inits[name])
        # What the library's own patch() has put into msgpack is replaced there too.
        self._swap(package, self._original, self._parts)

    def undo(self) -> None:
        for name, part in self._parts.items():
            if getattr(self._library, name) is part:
                setattr(self._library, name, self._original[name])
        for name, init in self._inits.items():
            self._original[name].__init__ = init
        self._swap(self._package, self._parts, self._original)

    def _swap(self, owner: ModuleType, old: dict[str, Any], new: dict[str, Any]) -> None:
        for names in _ALIASES.values():
            for name in names:
                if getattr(owner, name, None) is old[name]:
                    setattr(owner, name, new[name])

    def _make_parts(self) -> dict[str, Any]:
        """Return what takes the place of the library's names."""
        encode = self._or_pickle("encode", packing.encode, _has_objects)
        decode = self._or_pickle("decode", packing.decode, _is_pickled)
        pack_slowly = self._package.Packer
        unpack_slowly = self._original["_unpackb"]
        decodes = (decode, self._original["decode"])
        pack_quickly = encoder("msgpack_numpy", {}).encode
        unpack_quickly = decoder({}).decode

        def packb(o: Any, **kwargs: Any) -> Any:
            try:
                if not kwargs:
                    return pack_quickly(o)
                if kwargs.get("autoreset", True):
                    return encoder("msgpack_numpy", _without(kwargs, "autoreset")).encode(o)
            except RlwireError as error:
                refused: RlwireError | None = error
            else:
                refused = None
            chain = kwargs.pop("default", None)
            with _Rather(refused):
                return pack_slowly(default=functools.partial(encode, chain=chain), **kwargs).pack(o)

        def unpackb(packed: Any, **kwargs: Any) -> Any:
            try:
                if not kwargs and type(packed) is bytes:
                    return unpack_quickly(packed)
                return decoder(kwargs).decode(steady(packed))
            except (RlwireError, BufferError) as error:
                refused = error
            hook = functools.partial(decode, chain=kwargs.get("object_hook"))
            with _Rather(refused):
                return unpack_slowly(packed, **{**kwargs, "object_hook": hook})

        def pack(o: Any, stream: Any, **kwargs: Any) -> None:
            stream.write(packb(o, **kwargs))

        def unpack(stream: Any, **kwargs: Any) -> Any:
            return unpackb(stream.read(), **kwargs)

        def _unpackb(packed: Any, **kwargs: Any) -> Any:
            """What the library's own functions call, under names imported from it before."""
            hook = kwargs.get("object_hook")
            if isinstance(hook, functools.partial) and hook.func in decodes and not hook.args:
                return unpackb(packed, **{**kwargs, "object_hook": hook.keywords.get("chain")})
            return unpack_slowly(packed, **kwargs)

        def _unpack(stream: Any, **kwargs: Any) -> Any:
            return _unpackb(stream.read(), **kwargs)

        functions = {"packb": packb, "unpackb": unpackb, "pack": pack, "unpack": unpack}
        parts: dict[str, Any] = {"encode": encode, "decode": decode}
        parts.update(_unpackb=_unpackb, _unpack=_unpack)
        for function, names in _ALIASES.items():
            parts |= dict.fromkeys(names, functions[function])
        for name, part in parts.items():
            if name in functions or name in ("encode", "decode"):
                part.__name__ = part.__qualname__ = name
                part.__doc__ = self._original[name].__doc__
        return parts

    def _or_pickle(
        self, name: str, ours: Callable[..., Any], is_pickle: Callable[[Any], bool]
    ) -> Callable[..., Any]:
        """Return a hook of ours, which leaves pickles to the library's if that was chosen."""
        theirs = self._original[name]
        pickle = self.pickle

        def hook(obj: Any, chain: Hook | None = None) -> Any:
            if pickle and is_pickle(obj):
                return theirs(obj, chain)
            return ours(obj, chain)

        return hook


def _has_objects(obj: Any) -> bool:
    dtype = getattr(obj, "dtype", None)
    return getattr(dtype, "kind", "") == "O" and isinstance(getattr(obj, "shape", None), tuple)


def _is_pickled(obj: Any) -> bool:
    return obj.get(b"nd") is True and obj.get(b"kind") == b"O"


def _without(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != name}


class _Rather:
    """Around the library's own code: an error of rlwire's in there gives way to the first one.

    That one names the place. The library's own errors pass.
    """

    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None and issubclass(kind, RlwireError) and self._error is not None:
            raise self._error from None


def _fast_packer(original: Any, init: Callable[..., None]) -> Callable[..., None]:
    class Packer(original):
        def pack(self, obj: Any) -> Any:
            try:
                return self._rlwire_encode(obj)
            except RlwireError as error:
                refused = error
            with _Rather(refused):
                return super().pack(obj)

    _name_after(Packer, original)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        options = dict(zip(_PACKER, args, strict=False)) | kwargs
        # A subclass may mean anything by its methods, and what is collected is the library's.
        if type(self) is original and options.pop("autoreset", True):
            self.__class__ = Packer
            self._rlwire_encode = encoder("msgpack_numpy", options).encode

    return __init__


def _fast_unpacker(original: Any, init: Callable[..., None]) -> Callable[..., None]:
    class Unpacker(msgpack_streams.Unpacker, original):
        pass

    _name_after(Unpacker, original)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if type(self) is original:
            self.__class__ = Unpacker
            msgpack_streams.Unpacker.__init__(self, *args, **kwargs)

    return __init__


def _name_after(fast: type, original: type) -> None:
    fast.__name__, fast.__qualname__ = original.__name__, original.__qualname__
    fast.__module__, fast.__doc__ = original.__module__, original.__doc__
