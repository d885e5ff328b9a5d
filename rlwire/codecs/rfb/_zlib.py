"""Inflaters and compressors for RFB's zlib streams: the fastest installed packages.

zlib-ng and isal inflate Tight of a large screen in half of zlib's time. For ZRLE, isal needs two
thirds of zlib-ng's time; for small pieces, zlib-ng needs half of isal's
(``pytest benchmarks -k packed``).
"""

from __future__ import annotations

import importlib
import zlib
from typing import Any

INFLATERS = {"zlib-ng": "zlib_ng.zlib_ng", "isal": "isal.isal_zlib", "zlib": "zlib"}
"""The modules, all with the interface of the standard library's `zlib`."""


def choose(name: str | None = None, first: str = "zlib-ng") -> tuple[Any, type[Exception]]:
    """Return a function that creates inflating streams, and its exception; or ImportError."""
    names = [first, *INFLATERS] if name is None else [name]
    module = _first_of(*[INFLATERS[one] for one in names])
    return module.decompressobj, module.error


def compressor(level: int) -> Any:
    # ISA-L's level 1 needs half of zlib-ng's time. zlib-ng's level 1 compresses half as well.
    names = ("isal.isal_zlib", "zlib_ng.zlib_ng", "zlib")[level > 3 :]
    module = _first_of(*names)
    if module.__name__.startswith("isal"):
        level = 1
    least = 2 if module.__name__.startswith("zlib_ng") else 1
    return module.compressobj(max(least, level), zlib.DEFLATED, -zlib.MAX_WBITS)


def _first_of(*names: str) -> Any:
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return importlib.import_module(names[-1])
