"""Which inflater RFB's streams use, the fastest that is installed, and how JPEG is read.

The packages ``zlib-ng`` and ``isal`` inflate what Tight has of a large screen in half of zlib's
time; what ZRLE has, isal in half of zlib's and two thirds of zlib-ng's; small pieces zlib-ng in
half of isal's (``python benchmarks/bench_rfb_decode.py --inflaters``). All have the interface of
the standard library's `zlib.decompressobj`.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs.rfb.jpeg import check_jpeg, read_jpeg
from rlwire.errors import DecodeError

simplejpeg: Any = None
with contextlib.suppress(ImportError):
    simplejpeg = importlib.import_module("simplejpeg")


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


def decode_jpeg(data: bytes, width: int, height: int, base: int) -> NDArray[np.uint8]:
    """Return the pixels of a JPEG file: (height, width, 3), contiguous.

    By the package ``simplejpeg`` where it is installed, in less than half of Pillow's time
    (``python benchmarks/bench_rfb_decode.py --jpeg``).
    """
    shape = (height, width, 3)
    check_jpeg(data, width, height, base)
    if simplejpeg is None:
        return read_jpeg(data, width, height, base)
    try:
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, "RGB")
    except ValueError as problem:
        raise DecodeError(f"the JPEG file is broken: {problem}", offset=base) from None
    if pixels.shape != shape:
        raise DecodeError(f"a JPEG file of the shape {pixels.shape}, not {shape}", offset=base)
    return pixels
