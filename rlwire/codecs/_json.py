"""JSON with msgspec, and with rlwire's limits, errors and arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import chain
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from rlwire.codecs._json_arrays import fits, measure, text_of
from rlwire.codecs.casting import as_array
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, quoted
from rlwire.limits import DEFAULT, Limits

Buffer: TypeAlias = bytes | bytearray | memoryview

_NUMBERS: Final = frozenset((int, float))
_LISTS: Final = frozenset((list,))
_SCALARS: Final = (int, str, type(None))
_DTYPES: Final = "?bBhHiIlLqQefd"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ANY: Final = 2**63  # no limit
_BYTE: Final = re.compile(r" \(byte (\d+)\)$")
_KINDS: Final = re.compile(r"Expected `([^`]*)`, got `([^`]*)`$")


_maxima: Final = attrgetter("message", "string", "items", "expanded", "depth")
_DEFAULTS: Final = _maxima(DEFAULT)  # reading attributes is slow


def bounded(buffer: Buffer, limits: Limits) -> bytes:
    """Return a JSON text as bytes, after checking its size, depth, items and strings."""
    message, string, most, expansion, levels = _DEFAULTS if limits is DEFAULT else _maxima(limits)
    data = buffer if type(buffer) is bytes else bytes(buffer)
    size = len(data)
    if size > message:
        raise LimitExceeded("message", message, size)
    if fits(data, string, most, expansion, levels):
        return data
    items, depth, longest, expanded, _ = measure(data)
    if longest > string:
        raise LimitExceeded("string", string, longest)
    if items > most:
        raise LimitExceeded("items", most, items)
    if expanded > expansion:
        raise LimitExceeded("expanded", expansion, expanded)
    if depth > levels:
        raise LimitExceeded("depth", levels, depth)
    return data


def read(decode: Callable[[bytes], Any], data: bytes, limits: Limits) -> Any:
    """Call msgspec's `decode` with a bounded text, and convert its errors."""
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        raise misfit(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if found := _BYTE.search(str(error)):
            raise DecodeError("JSON is malformed", offset=int(found[1])) from None
        # What is not UTF-8 is a UnicodeDecodeError of msgspec before 0.23.
        try:
            data.decode()
        except UnicodeDecodeError as problem:
            words, at = f"JSON is not UTF-8: {problem.reason}", problem.start
            raise DecodeError(words, offset=at) from None
        raise DecodeError("JSON is truncated", offset=len(data)) from None
    except RecursionError:
        raise LimitExceeded("depth", limits.depth, limits.depth + 1) from None


def misfit(error: Exception, path: str = "$") -> DecodeError:
    """Return a DecodeError for a value of the wrong type; `path` is the path of the text's root."""
    reason, _, inside = str(error).partition(" - at `$")
    found = _KINDS.match(reason)
    words = f"expected {found[1]}, not {found[2]}" if found else "an entry is missing or not valid"
    words = "a number is out of range" if "out of range" in reason else words
    return DecodeError(words, path=path + inside.rstrip("`"))


_decode: Final = msgspec.json.Decoder().decode


def decode(buffer: Buffer, limits: Limits) -> Any:
    """Return the value of a JSON text."""
    return read(_decode, bounded(buffer, limits), limits)


def array_of(value: list[Any], dtype: Any = None) -> Any:
    """Return a list of numbers, nested or not, as an array; None if no array is equal to it.

    Raises:
        OverflowError, FloatingPointError: a number is too large for the dtype.
    """
    # One level at a time, each in a few calls of C functions.
    shape, level = [len(value)], value
    while (kinds := set(map(type, level))) == _LISTS and len(shape) < 32:
        lengths = set(map(len, level))
        if len(lengths) != 1:
            return None
        shape.append(lengths.pop())
        level = list(chain.from_iterable(level))
    if not kinds <= _NUMBERS:
        return None
    if dtype is not None:
        with np.errstate(over="raise"):
            return np.array(level, dtype).reshape(shape)
    array = np.array(level)
    if array.dtype.hasobject:  # integers outside int64 and uint64
        array = np.array(level, np.float64)
    if array.dtype.kind == "f" and any(type(n) is int and n != float(n) for n in level):
        return None  # a float64 would be another number
    return array.reshape(shape)


def arrays_of(value: Any, dtype: Any = None) -> Any:
    """Replace lists of numbers with arrays."""
    if type(value) is dict:
        return {key: arrays_of(item, dtype) for key, item in value.items()}
    if type(value) is not list:
        return value
    array = array_of(value, dtype)
    return [arrays_of(item, dtype) for item in value] if array is None else array


def _plain(value: Any) -> Any:
    """Return a value as one that msgspec can write."""
    if type(value) is np.ndarray and (text := text_of(value)) is not None:
        return msgspec.Raw(text)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.char in _DTYPES:
        return as_array(value, "it").tolist()
    if isinstance(value, Mapping):
        return dict(value)
    for kind in (str, int, float):  # subclasses
        if isinstance(value, kind):
            return kind(value)
    if hasattr(value, "__array__") and not isinstance(value, (np.ndarray, np.generic)):
        return _plain(as_array(value, "it"))
    raise TypeError(f"JSON cannot represent {type(value).__qualname__}")


_encode: Final = msgspec.json.Encoder(enc_hook=_plain).encode


def encode(value: Any, limits: Limits) -> bytes:
    """Return a value as JSON text, with arrays as lists.

    Raises:
        EncodeError: JSON cannot represent a value; the error has its path.
        LimitExceeded: the text exceeds `limits.message` or `limits.depth`.
    """
    try:
        data = _encode(value)
    except RecursionError:
        raise LimitExceeded("depth", limits.depth, limits.depth + 1) from None
    except (TypeError, ValueError, OverflowError):
        check(value, "$", finite=False)
        raise EncodeError(f"JSON cannot represent {quoted(value)}") from None
    size, most = len(data), limits.message
    # For `in`, Python raises an error inside first: bytes are no number.
    if size <= most and data.find(b"null") < 0 and fits(data, _ANY, _ANY, _ANY, limits.depth):
        return data
    _, depth, _, _, nulls = measure(data)
    if nulls:  # msgspec writes NaN and infinities as null
        try:
            check(value, "$")
        except EncodeError:
            check(value, "$", finite=False)  # callers may spell NaN, but not a name that is no text
            raise
    if size > most:
        raise LimitExceeded("message", most, size)
    if depth > limits.depth:
        raise LimitExceeded("depth", limits.depth, depth)
    return data


def check(value: Any, path: str, finite: bool = True, left: int = 500) -> None:
    """Raise EncodeError at the first value that JSON lacks, such as bytes: msgspec has texts."""
    if not left:
        raise EncodeError("a value contains itself", path=path[:40])
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise EncodeError(f"a name must be str, not {type(name).__qualname__}", path=path)
            check(item, f"{path}.{name}", finite, left - 1)
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            check(item, f"{path}[{place}]", finite, left - 1)
    elif isinstance(value, float):
        if finite and not np.isfinite(value):
            raise EncodeError(f"JSON cannot represent {value}", path=path)
    else:
        array = as_array(value, "it", path) if hasattr(value, "__array__") else None
        if array is not None and array.dtype.kind in "OU":
            return check(array.tolist(), path, finite, left - 1)
        known = isinstance(value, _SCALARS) if array is None else array.dtype.char in _DTYPES
        if not known or (isinstance(value, str) and _SURROGATE.search(value)):
            raise EncodeError(f"JSON cannot represent this {type(value).__name__}", path=path)
        if finite and array is not None and not np.isfinite(array).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            index = "".join(map("[{}]".format, where))
            raise EncodeError(f"JSON cannot represent {array[where]}", path=path + index)
