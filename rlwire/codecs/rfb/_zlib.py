"""The inflater and the compressor of RFB's streams: the fastest packages that are installed.

The packages ``zlib-ng`` and ``isal`` inflate Tight of a large screen in half of zlib's time; ZRLE
isal in half of zlib's and two thirds of zlib-ng's; small pieces zlib-ng in half of isal's
(``python benchmarks/bench_rfb_decode.py --inflaters``). At level 1, 33,600 bytes of palette
indices of an Atari frame take ISA-L 12 us (925 bytes are left), zlib-ng's level 2 27 us (801), zlib
39 us (1,010).
"""

from __future__ import annotations

import importlib
import zlib
from typing import Any

INFLATERS = {"zlib-ng": "zlib_ng.zlib_ng", "isal": "isal.isal_zlib", "zlib": "zlib"}
"""The modules that make streams; all have the interface of the standard library's `zlib`."""


def choose(name: str | None = None, first: str = "zlib-ng") -> tuple[str, Any, type[Exception]]:
    """Return the name, the maker of streams and the exception of an inflater."""
    for one in sorted(INFLATERS, key=lambda one: one != first):
        if name in (None, one):
            try:
                module = importlib.import_module(INFLATERS[one])
                return one, module.decompressobj, module.error
            except ImportError:
                if name is not None:
                    raise
    raise ValueError(f"no inflater is called {name!r}: {', '.join(INFLATERS)}")


def compressor(level: int) -> Any:
    """Return a stream of raw deflate."""
    for name in ("isal", "zlib-ng") if level <= 3 else ("zlib-ng",):
        try:
            module = importlib.import_module(INFLATERS[name])
        except ImportError:
            continue
        # zlib-ng's level 1 leaves half more than any other.
        least = 1 if name == "isal" else max(2, level)
        return module.compressobj(least, zlib.DEFLATED, -zlib.MAX_WBITS)
    return zlib.compressobj(max(1, level), zlib.DEFLATED, -zlib.MAX_WBITS)
