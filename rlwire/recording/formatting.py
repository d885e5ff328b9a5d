"""Decoded values as text of one line, as JSON and as images."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rlwire.errors import quoted, shown

LISTED: Final = 1024
"""Elements of the largest array that JSON has as a list; a larger one is base64."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the paths and parts of a nested value; a flat list is one part."""
    nested = (dict, list, tuple, np.ndarray)
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(each, nested) for each in value):
        for place, each in enumerate(value):
            yield from leaves(each, f"{path}[{place}]")
    else:
        yield path, value


def brief(value: Any, most: int) -> str:
    """Return a nested value as printable text, such as `state=float32[4] 0.1 0.2 ...`."""
    text = ""
    for path, part in leaves(value):
        text += (" " if text else "") + (f"{path}=" if path else "") + _part(part)
        if len(text) > most:
            break
    text = shown(text[: most + 1], 10 * most + 10)
    return text if len(text) <= most else text[: max(0, most - 3)] + "..."


def _part(value: Any) -> str:
    if isinstance(value, np.ndarray):
        first = " ".join(map(str, value.flat[:4] if value.ndim else [value[()]]))
        more = " ..." if value.size > 4 else ""
        return f"{value.dtype}{list(value.shape)} {first}{more}".replace(", ", ",")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"bytes[{len(value)}] {bytes(value[:8]).hex()}" + "..." * (len(value) > 8)
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(map(_part, value[:4]))}{' ...' * (len(value) > 4)}]"
    return quoted(value) if isinstance(value, str) else shown(str(value), 100)


def plain(value: Any) -> Any:
    """Return a value of JSON: arrays as dtype, shape and values or base64, NaN as "nan"."""
    if isinstance(value, np.ndarray):
        told: dict[str, Any] = {"dtype": str(value.dtype), "shape": list(value.shape)}
        if value.size <= LISTED or value.dtype.hasobject:
            return {**told, "values": plain(value.ravel().tolist())}
        return {**told, "base64": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, type(None))) else quoted(value)


def images(value: Any) -> Iterator[Any]:
    """Yield arrays that look like images: uint8, of 8 x 8 pixels or more, grey or RGB."""
    for _, part in leaves(value):
        if not isinstance(part, np.ndarray) or part.dtype != np.uint8 or part.ndim < 2:
            continue
        if part.shape[2:] in ((), (1,), (3,)) and min(part.shape[:2]) >= 8:
            yield part.squeeze(2) if part.shape[2:] == (1,) else part
