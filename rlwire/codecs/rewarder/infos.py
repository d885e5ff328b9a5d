"""Arrays in an info: an entry of the info records which JSON lists were arrays.

``"rlwire.arrays": {"action_mask": ["int8", 6], "deep": {"x": ["float32", 2, 0]}}`` has the dtype
and shape of each array, nested like the info. Other programs ignore the entry and read lists.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from rlwire.codecs._json import check
from rlwire.codecs.casting import DTYPES, as_array

ARRAYS: Final = "rlwire.arrays"
"""rlwire's entry of an info that lists its arrays."""

BEGUN: Final = "rlwire.info"
"""rlwire's field in the body of ``v0.env.describe`` with the info of the episode's reset."""

SPACES: Final = "rlwire.spaces"
"""rlwire's field of ``v0.env.describe``'s body that describes the spaces; None if JSON cannot."""

SIZE: Final = "rlwire.size"
"""rlwire's field of the same body after a selection: width and height of the pixels."""

OPTIONS: Final = "rlwire.options"
"""rlwire's field in the body of ``v0.env.reset`` with the options of Gymnasium's reset."""

STEPS: Final = "rlwire.steps"
"""rlwire's field in the body of ``v0.env.reset``: `VERSION` if an observation and its reward may
come as one message, and observations as binary messages.
"""

VERSION: Final = 2
"""The version of binary messages."""

NONFINITE: Final = "rlwire.nonfinite"
"""rlwire's field of a body with NaN or infinities, which are texts there; see `spell`."""

TERMINATED: Final = "rlwire.terminated"
TRUNCATED: Final = "rlwire.truncated"
"""rlwire's entries of a final reward's info, of which the first is set beside the second only."""

ERROR: Final = "rlwire.error"
"""rlwire's entry of a final reward's info with the error of a step."""

_NAMES: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_KINDS = "biuf"


def mark_arrays(info: Mapping[str, Any], path: str = "$.body.info") -> Mapping[str, Any]:
    """Return an info with `ARRAYS` if it has arrays; EncodeError for values such as a set."""
    if not info:
        return info
    check(info, path, finite=False)
    marks = _marks(info)
    return {**info, ARRAYS: marks} if marks else info


def _marks(info: Mapping[str, Any]) -> dict[str, Any]:
    marks: dict[str, Any] = {}
    for name, value in info.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
            marks[name] = [str(value.dtype.newbyteorder("=")), *value.shape]
        elif isinstance(value, Mapping) and (inside := _marks(value)):
            marks[name] = inside
    return marks


def spell(value: Any) -> Any:
    """Replace NaN and infinities by their names in ProtoJSON, and prefix texts like these by =."""
    if isinstance(value, str):
        return "=" + value if value.lstrip("=") in _NAMES else value
    if isinstance(value, Mapping):
        return {name: spell(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [spell(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if hasattr(value, "__array__"):
        array = as_array(value, "it")
        if array.dtype.kind in "biufOU" and array.dtype.char != "g":  # NaT.tolist() is None
            return spell(array.tolist())
    return value


def restore_numbers(value: Any) -> Any:
    """Return a value as it was before `spell`, with lists."""
    if isinstance(value, str) and value.lstrip("=") in _NAMES:
        return _NAMES.get(value, value[1:])
    if isinstance(value, dict):
        return {name: restore_numbers(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(restore_numbers, value))
    return value


def restore_arrays(info: dict[str, Any], marks: Any = None) -> dict[str, Any]:
    """Return an info as it was before `mark_arrays`. Lists that do not match the entry stay."""
    if marks is None and ARRAYS not in info:
        return info
    found = dict(info)
    marks = found.pop(ARRAYS) if marks is None else marks
    for name, mark in marks.items() if isinstance(marks, dict) else ():
        value = info.get(name)
        if isinstance(mark, dict) and isinstance(value, dict):
            found[name] = restore_arrays(value, mark)
        elif isinstance(mark, list) and mark and isinstance(value, (list, int, float)):
            found[name] = _array(value, *mark)
    return found


def _array(value: Any, name: Any, *sizes: Any) -> Any:
    if isinstance(name, str) and name in DTYPES and all(type(n) is int and n >= 0 for n in sizes):
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            return np.array(value, name).reshape(sizes)
    return value
