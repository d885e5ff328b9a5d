"""HTTP/2 header fields: HPACK, with the `hpack` package, and the rules for fields.

Source: RFC 7541; RFC 9113, section 8.2.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rlwire.codecs.http2 import frames
from rlwire.errors import EncodeError, LimitExceeded, RlwireError, is_secret, optional, quoted
from rlwire.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from typing_extensions import Buffer

_hpack = logging.getLogger("hpack")
if _hpack.level == logging.NOTSET:  # it logs each field at DEBUG
    _hpack.setLevel(logging.INFO)

Fields: TypeAlias = Sequence[tuple[str, str]]
"""Names and values, in order. Each character is one byte (latin-1)."""

TABLE = 4096
"""Bytes of the dynamic table, as announced and used (SETTINGS_HEADER_TABLE_SIZE)."""

_SECRET = frozenset(["authorization", "cookie", "proxy-authorization"])

# These differ in each call, and would displace entries that repeat.
_PASSING = frozenset(["grpc-message", "grpc-timeout", "grpc-status-details-bin", "content-length"])
_NAME = re.compile(r":?[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(r"[^\0\r\n]*")
_CONNECTION = frozenset(
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"]
)


class Headers:
    """The HPACK state of one connection, in both directions."""

    __slots__ = ("_decoder", "_encoder", "_most", "_never")

    def __init__(self, limits: Limits | None = None, table: int = TABLE) -> None:
        with optional("hpack", "gym"):
            import hpack
        self._most = (limits or DEFAULT).header
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder(max_header_list_size=self._most)
        self._decoder.max_allowed_table_size = table
        self._never = hpack.NeverIndexedHeaderTuple

    def resize(self, size: int) -> None:
        """Set the size of the peer's table. At most `TABLE` is used."""
        self._encoder.header_table_size = min(size, TABLE)

    def encode(self, fields: Iterable[tuple[str, str]]) -> bytes:
        """Return a header block. Blocks must be sent in order.

        Secrets, and values that differ in each call, never enter a table (RFC 7541, section 7.1.3).
        """
        given = []
        for name, value in fields:
            if _NAME.fullmatch(name) is None:
                raise EncodeError(f"invalid header field name {quoted(name)}")
            if _VALUE.fullmatch(value) is None or value != value.strip(" \t"):
                raise EncodeError(f"invalid value of header field {name}: {quoted(value)}")
            try:
                pair = name.encode("latin-1"), value.encode("latin-1")
            except UnicodeEncodeError:
                raise EncodeError(f"header field {name} is not latin-1: {quoted(value)}") from None
            never = name in _SECRET or name in _PASSING
            given.append(self._never(*pair) if never else pair)
        return bytes(self._encoder.encode(given))

    def decode(self, block: Buffer) -> list[tuple[str, str]]:
        """Return the fields of a whole header block."""
        import hpack

        try:
            fields = self._decoder.decode(bytes(block), raw=True)
        except hpack.OversizedHeaderListError:
            raise LimitExceeded("header", self._most, self._most + 1) from None
        except (hpack.HPACKError, UnicodeError, IndexError):
            words = "a header block is not HPACK, or refers to entries that the table does not have"
            raise frames.Http2Error(words, frames.COMPRESSION_ERROR) from None
        return [(str(name, "latin-1"), str(value, "latin-1")) for name, value in fields]


class SecretBlanker:
    """Puts stars in place of the secrets in one direction's frames, for a recording."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._headers: Headers | None = Headers(limits)
        self._block = bytearray()
        self._flags = 0
        self._skip = 0  # bytes left of a frame that was cut

    def blank(self, data: Buffer) -> Buffer:
        """Return the next bytes, with other header blocks.

        Only the last frame may be cut, after its head. A block that cannot be decoded is left out,
        and so are those after it, which may refer to it.
        """
        view = memoryview(data)
        at = self._skip
        if not at and view[: len(frames.PREFACE)] == frames.PREFACE:
            at = len(frames.PREFACE)
        out: list[Any] = []
        kept = 0  # what is before `kept` is in `out`
        while at + 9 <= len(view):
            kind, end = view[at + 3], at + 9 + int.from_bytes(view[at : at + 3], "big")
            if kind in (frames.HEADERS, frames.CONTINUATION, frames.PUSH_PROMISE):
                out += [view[kept:at], self._headers_in(view[at:end])]
                kept = end
            at = end
        self._skip = max(at - len(view), 0)
        return b"".join([*out, view[kept:]]) if out else data

    def _headers_in(self, frame: memoryview) -> bytes:
        """Return the whole block that a frame ends, as a frame; b"" if more follow."""
        if frame[3] == frames.PUSH_PROMISE:  # which nobody may send: its fields are not known
            self._headers = None
        if self._headers is None:
            return b""
        flags, start, end = frame[4], 9, len(frame)
        if frame[3] == frames.HEADERS:
            self._flags = flags & frames.END_STREAM
            if flags & frames.PADDED and start < end:
                start, end = start + 1, end - frame[start]
            start += 5 if flags & frames.PRIORITIZED else 0
        self._block += frame[start:end]
        if not flags & frames.END_HEADERS:
            return b""
        block, self._block = bytes(self._block), bytearray()
        try:
            fields = [
                (name, "*" * len(value) if is_secret(name) else value)
                for name, value in self._headers.decode(block)
            ]
            number = int.from_bytes(frame[5:9], "big") & 2**31 - 1
            rewritten = self._headers.encode(fields)
            flags = self._flags | frames.END_HEADERS
            return bytes(frames.frame(frames.HEADERS, flags, number, rewritten))
        except EncodeError:
            return b""
        except RlwireError:
            self._headers = None
            return b""


def malformed(fields: Fields, pseudo: Iterable[str] = ()) -> str:
    """Return what violates RFC 9113, sections 8.2 and 8.3, in a list of fields; "" if nothing.

    It must have each pseudo-header field of `pseudo` once (``:authority`` is optional) and no
    others.
    """
    wanted = set(pseudo)
    regular = False
    for name, value in fields:
        if _NAME.fullmatch(name) is None:
            return f"invalid field name {quoted(name)}"
        if _VALUE.fullmatch(value) is None or value != value.strip(" \t"):
            return f"invalid value of field {name}: {quoted(value)}"
        if name[0] == ":":
            if regular:
                return f"{name} follows a regular field"
            if name not in wanted:
                return f"{name} is unexpected or repeated"
            wanted.discard(name)
            continue
        regular = True
        if name in _CONNECTION or (name == "te" and value != "trailers"):
            return f"{name}: {quoted(value)} is a field of HTTP/1"
    wanted.discard(":authority")
    return f"missing {min(wanted)}" if wanted else ""
