"""PERLERT's mappings, such as ``x:0.54,y:1,2``, to values."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import numpy as np
from typing_extensions import Buffer

from rlwire.codecs.casting import as_array
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, quoted
from rlwire.limits import DEFAULT, Limits

__all__ = ["text_to_mapping"]

_ITEM = 256  # bytes that an item counts, whatever its type: see Limits
_WHOLE = re.compile("[+-]?[0-9]{1,4300}").fullmatch
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)",
    re.IGNORECASE | re.ASCII,
).fullmatch


def text_to_mapping(text: str | Buffer, *, limits: Limits | None = DEFAULT) -> dict[str, Any]:
    """Return the mapping in a text such as ``x:0.54,y:1,2``.

    A name is followed by a colon and one value, or several separated by commas. A value is a bool,
    an int, a float, or text. Several numbers or bools become an array if it is equal to them, other
    values a list.
    """
    limits = DEFAULT if limits is None else limits
    if not isinstance(text, str):
        try:
            text = str(memoryview(text), "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError("a string is not UTF-8", offset=error.start) from None
    items = text.split(",", limits.items) if text else []
    if len(items) > limits.items:
        raise LimitExceeded("items", limits.items, text.count(",") + 1, offset=0)
    found: dict[str, list[Any]] = {}
    parts: list[Any] | None = None
    at = 0
    for item in items:
        name, colon, value = item.partition(":") if ":" in item else ("", "", item)
        if ":" in value or ";" in item or "=" in item:
            end = next(re.finditer("[;=]|:[^:]*:", item)).end()
            raise DecodeError(f"unexpected {item[end - 1]!r}", offset=_bytes(text, at + end - 1))
        if colon:
            if not name or name in found:
                what = f"duplicate name {quoted(name)}" if name else "an empty name"
                raise DecodeError(what, offset=_bytes(text, at))
            parts = found[name] = []
        elif parts is None:
            raise DecodeError("a value without a name", offset=_bytes(text, at))
        parts.append(_value(value))
        at += len(item) + 1
    size = _ITEM * len(items) + len(text) * (1 if text.isascii() else 4)
    if size > limits.expanded:
        raise LimitExceeded("expanded", limits.expanded, size, offset=0)
    return {name: _values(parts) for name, parts in found.items()}


def _bytes(text: str, characters: int) -> int:
    return len(text[:characters].encode("utf-8", "surrogatepass"))


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE(text):
        return int(text)
    return float(text) if _NUMBER(text) else text


def _values(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    kinds = {type(part) for part in parts}
    if kinds == {bool} or kinds <= {int, float}:
        with contextlib.suppress(EncodeError, OverflowError):  # no array is equal
            wide = kinds == {int} and max(parts) >= 2**63 and min(parts) >= 0
            array = as_array(np.array(parts, np.uint64) if wide else parts, "it")
            return parts if array.dtype.hasobject else array
    return parts
