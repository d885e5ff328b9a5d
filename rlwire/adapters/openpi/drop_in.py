"""openpi-client's packing, replaced: `rlwire.install("openpi_client")`.

Its module `msgpack_numpy` has four partial objects around the msgpack package's functions. They
stay the same objects, so that names which were imported from it are served too; what they call is
replaced. What rlwire's codec refuses, and calls with hooks of their own, the msgpack package is
asked about, so that it raises what it always raised.

One thing is refused that was not: a map that claims to be an array of objects. openpi-client makes
an array of it whose items are addresses in memory, chosen by the peer.
"""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import Any

from rlwire.adapters import msgpack_streams
from rlwire.adapters.msgpack_api import decoder, encoder, steady
from rlwire.adapters.openpi import packing
from rlwire.errors import RlwireError

__all__ = ["install", "uninstall"]

logger = logging.getLogger(__name__)

_NAMES = {
    "Packer": "default",
    "packb": "default",
    "Unpacker": "object_hook",
    "unpackb": "object_hook",
}
_HOOKS = {"default": "pack_array", "object_hook": "unpack_array"}

_originals: list[tuple[Any, Any]] = []


def install() -> None:
    """Replace the library's packing; again does nothing.

    Raises:
        ImportError: openpi-client, or msgpack, is not installed.
        RuntimeError: this version of it has other parts than 0.1.
    """
    if _originals:
        return
    from openpi_client import msgpack_numpy

    own = _check(msgpack_numpy)
    for name, part in _parts(own).items():
        state = own[name].__reduce__()[2]
        _originals.append((own[name], state))
        own[name].__setstate__((part, (), {}, state[3]))
    logger.debug("openpi_client packs with rlwire now")


def uninstall() -> None:
    """Give the library its own packing back; does nothing where `install` was not called."""
    while _originals:
        own, state = _originals.pop()
        own.__setstate__(state)


def _check(library: ModuleType) -> dict[str, Any]:
    """Return the library's partial objects, if they are what is known here."""
    found: dict[str, Any] = {}
    for name, hook in _NAMES.items():
        own = found[name] = getattr(library, name, None)
        if not (
            type(own) is functools.partial
            and not own.args
            and list(own.keywords) == [hook]
            and own.keywords[hook] is getattr(library, _HOOKS[hook], None)
            and isinstance(own.func, type) is name[0].isupper()
        ):
            raise RuntimeError(
                f"this openpi_client has another msgpack_numpy.{name}: rlwire's drop-in is made "
                f"for version 0.1"
            )
    return found


def _parts(own: dict[str, Any]) -> dict[str, Any]:
    """Return what is called instead of the msgpack package's functions."""
    pack_slowly, unpack_slowly = own["packb"].func, own["unpackb"].func
    packer_class: Any = own["Packer"].func
    unpacker_class: Any = own["Unpacker"].func
    pack_array = own["packb"].keywords["default"]
    pack_quickly = encoder("openpi", {}).encode
    unpack_quickly = decoder({}).decode

    def packb(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1:
            try:
                if not kwargs:
                    return pack_quickly(args[0])
                if "default" not in kwargs and kwargs.get("autoreset", True):
                    options = {key: value for key, value in kwargs.items() if key != "autoreset"}
                    return encoder("openpi", options).encode(args[0])
            except RlwireError:
                pass
        return pack_slowly(*args, **{"default": pack_array, **kwargs})

    def unpackb(*args: Any, **kwargs: Any) -> Any:
        refused = None
        if len(args) == 1 and "object_hook" not in kwargs:
            try:
                if not kwargs and type(args[0]) is bytes:
                    return unpack_quickly(args[0])
                return decoder(kwargs).decode(steady(args[0]))
            except (RlwireError, BufferError) as error:
                refused = error
        try:
            return unpack_slowly(*args, **{"object_hook": packing.unpack_array, **kwargs})
        except RlwireError:
            if refused is None:
                raise
        raise refused

    class Packer(packer_class):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(default=pack_array, **kwargs)
            self._rlwire_encode = encoder("openpi", kwargs).encode

        def pack(self, obj: Any) -> Any:
            try:
                return self._rlwire_encode(obj)
            except RlwireError:
                return super().pack(obj)

    class Unpacker(msgpack_streams.Unpacker, unpacker_class):
        pass

    def make_packer(*args: Any, **kwargs: Any) -> Any:
        if args or "default" in kwargs or not kwargs.get("autoreset", True):
            return packer_class(*args, **{"default": pack_array, **kwargs})
        kwargs.pop("autoreset", None)
        return Packer(**kwargs)

    def make_unpacker(*args: Any, **kwargs: Any) -> Any:
        if "object_hook" in kwargs:
            return unpacker_class(*args, **kwargs)
        return Unpacker(*args, **kwargs)

    return {
        "Packer": make_packer,
        "packb": packb,
        "Unpacker": make_unpacker,
        "unpackb": unpackb,
    }
