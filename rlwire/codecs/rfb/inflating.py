"""Which inflater RFB's streams use: the fastest that is installed.

The packages ``zlib-ng`` and ``isal`` inflate what Tight has of a large screen in half of zlib's
time; what ZRLE has, isal in half of zlib's and two thirds of zlib-ng's; small pieces zlib-ng in
half of isal's (``python benchmarks/bench_rfb_decode.py --inflaters``). All have the interface of
the standard library's `zlib.decompressobj`.
"""

from __future__ import annotations

import importlib
from typing import Any

INFLATERS = {"zlib-ng": "zlib_ng.zlib_ng", "isal": "isal.isal_zlib", "zlib": "zlib"}
"""The modules that have what makes a stream, and what streams raise."""


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
