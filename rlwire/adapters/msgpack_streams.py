"""The msgpack package's `Unpacker`, over rlwire's codec: values from a stream of bytes.

Not here: one value in one buffer (`rlwire.adapters.msgpack_api`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rlwire.adapters.msgpack_api import Hook, unpacking
from rlwire.codecs import msgpack
from rlwire.errors import LimitExceeded, RlwireError

__all__ = ["BufferFull", "OutOfData", "Unpacker"]


_READ = 1024 * 1024  # bytes that are asked of a file at once


class OutOfData(RlwireError):
    """There is no whole value; msgpack's own error where the program has imported msgpack."""


class BufferFull(RlwireError):
    """More waits than may wait; msgpack's own error where the program has imported msgpack."""


class Unpacker:
    """The msgpack package's `Unpacker`: feed it bytes, or give it a file, and iterate.

    Args:
        file_like: read from, if given; then nothing can be fed.
        read_size: bytes that are read at once; 0 for 1 MiB, or `max_buffer_size` if that is less.
        use_list: whether arrays become lists, not tuples.
        raw: whether strings become bytes.
        timestamp: what timestamps become: 0 timestamps, 1 seconds, 2 nanoseconds, 3 datetimes.
        strict_map_key: whether keys must be strings or bytes.
        object_hook: called with each map that is no array.
        object_pairs_hook: called with each map as pairs, instead of `object_hook`.
        list_hook: called with each list or tuple.
        unicode_errors: what happens to strings that are not UTF-8, as for `bytes.decode`.
        max_buffer_size: bytes that may wait; 0 for 4 GiB.
        ext_hook: called with code and bytes of an extension.
        max_str_len: bytes of a string; -1 for what the buffer may hold, as for the others.
        max_bin_len: bytes of bytes.
        max_array_len: items of an array.
        max_map_len: entries of a map.
        max_ext_len: bytes of an extension.

    Raises:
        TypeError: an option is unknown, or a hook cannot be called.
        ValueError: an option makes no sense.
    """

    def __init__(
        self,
        file_like: Any = None,
        read_size: int = 0,
        use_list: bool = True,
        raw: bool = False,
        timestamp: int = 0,
        strict_map_key: bool = True,
        object_hook: Hook | None = None,
        object_pairs_hook: Hook | None = None,
        list_hook: Hook | None = None,
        unicode_errors: str | None = None,
        max_buffer_size: int = 100 * 1024 * 1024,
        ext_hook: Callable[[int, bytes], Any] | None = None,
        max_str_len: int = -1,
        max_bin_len: int = -1,
        max_array_len: int = -1,
        max_map_len: int = -1,
        max_ext_len: int = -1,
    ) -> None:
        self._begin(
            file_like,
            read_size,
            max_buffer_size,
            {
                "use_list": use_list,
                "raw": raw,
                "timestamp": timestamp,
                "strict_map_key": strict_map_key,
                "object_hook": object_hook,
                "object_pairs_hook": object_pairs_hook,
                "list_hook": list_hook,
                "unicode_errors": unicode_errors,
                "max_str_len": max_str_len,
                "max_bin_len": max_bin_len,
                "max_array_len": max_array_len,
                "max_map_len": max_map_len,
                "max_ext_len": max_ext_len,
                **({} if ext_hook is None else {"ext_hook": ext_hook}),
            },
        )

    def _begin(self, file: Any, read_size: int, most: int, options: dict[str, Any]) -> None:
        most = most or 2**32 - 1
        if read_size > most:
            raise ValueError(f"read_size={read_size} is more than max_buffer_size={most}")
        if file is not None and not callable(getattr(file, "read", None)):
            raise TypeError(f"file_like must have a method read, {type(file).__name__} has none")
        self._stream = msgpack.Unpacker(max_buffer_size=most, copy=None, **unpacking(options))
        self._read: Callable[[int], Any] | None = None if file is None else file.read
        self._read_size = read_size or min(most, _READ)
        self._passed_by = 0  # bytes that `read_bytes` took from the file itself

    def feed(self, next_bytes: Any) -> None:
        """Take the next bytes.

        Raises:
            BufferFull: more would wait than `max_buffer_size`; nothing was taken.
            AssertionError: there is a file to read from.
        """
        if self._read is not None:
            raise AssertionError("feed() is not for an Unpacker with file_like")
        try:
            self._stream.feed(next_bytes)
        except LimitExceeded as error:
            raise _kind("BufferFull", BufferFull)(str(error)) from None

    def unpack(self) -> Any:
        """Return the next value.

        Raises:
            OutOfData: it is not there as a whole.
            DecodeError, LimitExceeded: it is no value.
        """
        return self._wait_for(lambda: next(self._stream, _NOTHING), _NOTHING)

    def __iter__(self) -> Unpacker:
        return self

    def __next__(self) -> Any:
        if self._read is None:
            return next(self._stream)
        try:
            return self.unpack()
        except _kind("OutOfData", OutOfData):
            raise StopIteration from None

    def skip(self) -> None:
        """Pass over the next value; errors as for `unpack`."""
        self._wait_for(self._stream.skip, False)

    def read_array_header(self) -> int:
        """Take the head of an array and return how many items follow; errors as for `unpack`."""
        count: int = self._wait_for(self._stream.read_array_header, None)
        return count

    def read_map_header(self) -> int:
        """Take the head of a map and return how many entries follow; errors as for `unpack`."""
        count: int = self._wait_for(self._stream.read_map_header, None)
        return count

    def read_bytes(self, nbytes: int) -> bytes:
        """Take up to so many bytes as they are."""
        taken = self._stream.read_bytes(nbytes)
        if len(taken) < nbytes and self._read is not None:
            more = self._read(nbytes - len(taken))
            self._passed_by += len(more)
            taken += more
        return taken

    def tell(self) -> int:
        """Return how many bytes have been consumed since the beginning."""
        return self._stream.tell() + self._passed_by

    def _wait_for(self, attempt: Callable[[], Any], missing: object) -> Any:
        while True:
            try:
                found = attempt()
            except LimitExceeded as error:
                if error.limit != "max_buffer_size":
                    raise
                raise _kind("BufferFull", BufferFull)(str(error)) from None
            if found is not missing:
                return found
            if not self._fill():
                raise _kind("OutOfData", OutOfData)("the next value is not there as a whole")

    def _fill(self) -> bool:
        if self._read is None:
            return False
        stream = self._stream
        data = self._read(min(self._read_size, stream.max_buffer_size - stream.buffered))
        stream.feed(data)
        return len(data) > 0


_NOTHING = object()


def _kind(name: str, ours: type[Exception]) -> type[Exception]:
    """The msgpack package's error of that name, where the program can know it."""
    return getattr(sys.modules.get("msgpack"), name, None) or ours
