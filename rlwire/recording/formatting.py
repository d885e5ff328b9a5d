"""Decoded values as text of one line, as JSON and as images."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rlwire.errors import quoted, shown
from rlwire.recording.messages import Budget

_NESTED: Final = (dict, list, tuple, np.ndarray)
_BYTES: Final = (bytes, bytearray, memoryview)

LISTED: Final = 1024
"""Elements of the largest array that JSON has as a list; a larger one is base64."""


def brief(value: Any, most: int) -> str:
    """Return a value as printable text, such as ``step{state=float32[4] 0.1 0.2 ... reward=1}``."""
    text = ""
    for piece in _pieces(value):
        text += (" " if text and text[-1] != "{" and piece != "}" else "") + piece
        if len(text) > most:
            break
    text = shown(text[: most + 1], 10 * most + 10)
    return text if len(text) <= most else text[: max(0, most - 3)] + "..."


def _pieces(value: Any, name: str = "") -> Iterator[str]:
    if items := _items(value):
        yield from [f"{name}{{"] if name else []
        for key, each in items:
            yield from _pieces(each, str(key))
        yield from ["}"] if name else []
    else:
        yield (f"{name}=" if name else "") + _part(value)


def _items(value: Any) -> list[tuple[Any, Any]]:
    """Return the keys and values of a nested value; numbers in a list are one part."""
    if isinstance(value, (list, tuple)) and any(isinstance(each, _NESTED) for each in value):
        return list(enumerate(value))
    return list(value.items()) if isinstance(value, dict) else []


def _part(value: Any, digits: int = 6) -> str:
    if isinstance(value, np.ndarray):
        first = " ".join(_part(each, 4) for each in value.flat[:4])
        more = " ..." if value.size > 4 else ""
        return f"{value.dtype}{list(value.shape)} {first}{more}".replace(", ", ",")
    if isinstance(value, _BYTES):
        return f"bytes[{len(value)}] {bytes(value[:8]).hex()}" + "..." * (len(value) > 8)
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(map(_part, value[:4]))}{' ...' * (len(value) > 4)}]"
    if isinstance(value, (float, np.floating)):
        return f"{value:.{digits}g}"
    return quoted(str(value)) if isinstance(value, str) else shown(str(value), 100)


def as_json(value: Any, budget: Budget | None = None) -> Any:
    """Return a value of JSON: arrays as dtype, shape and values or base64, NaN as "nan".

    Once `budget` is used up, arrays have no data: a small message may stand for a large array.
    """
    if isinstance(value, np.ndarray):
        listed = value.size <= LISTED or value.dtype.hasobject
        data = {"left out": f"{value.nbytes} bytes"}
        if budget is None or listed or budget.written >= value.nbytes:
            data = as_json(value.ravel().tolist() if listed else value.tobytes())
            data = {"values": data} if listed else data
            if budget is not None:
                budget.written -= value.nbytes
        return {"dtype": str(value.dtype), "shape": list(value.shape), **data}
    if isinstance(value, dict):
        return {str(key): as_json(each, budget) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each, budget) for each in value]
    if isinstance(value, _BYTES):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, type(None))) else quoted(value)


def images(value: Any) -> Iterator[Any]:
    """Yield uint8 arrays of 8 x 8 pixels or more: grey, RGB, or the last of four frames."""
    pixels = isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim in (2, 3)
    if pixels and min(value.shape[:2]) >= 8 and value.shape[2:] in ((), (1,), (3,), (4,)):
        yield value if value.shape[2:] in ((), (3,)) else value[..., -1]
    for _, each in _items(value):
        yield from images(each)
