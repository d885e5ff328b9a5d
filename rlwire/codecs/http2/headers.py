"""Header fields of HTTP/2: HPACK, by the `hpack` package, and the rules that a field must keep.

Source: RFC 7541; RFC 9113, section 8.2.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from rlwire.codecs import http2
from rlwire.errors import EncodeError, LimitExceeded, optional, quoted
from rlwire.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from typing_extensions import Buffer

_hpack = logging.getLogger("hpack")
if _hpack.level == logging.NOTSET:  # it logs each field at DEBUG
    _hpack.setLevel(logging.INFO)

Fields: TypeAlias = Sequence[tuple[str, str]]
"""Names and values, in order; characters are bytes (latin-1)."""

TABLE = 4096
"""Bytes of a dynamic table: what we announce (SETTINGS_HEADER_TABLE_SIZE), and the most we use."""

_SECRET = frozenset(["authorization", "cookie", "proxy-authorization"])
# Other for each call: they would push what repeats out of the table.
_PASSING = frozenset(["grpc-message", "grpc-timeout", "grpc-status-details-bin", "content-length"])
_NAME = re.compile(r":?[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(r"[^\0\r\n]*")
_CONNECTION = frozenset(
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"]
)


class Headers:
    """The header fields of one connection, both ways: what is sent must be compressed in order."""

    __slots__ = ("_decoder", "_encoder", "_most", "_never")

    def __init__(self, limits: Limits | None = None) -> None:
        with optional("hpack", "grpc"):
            import hpack
        self._most = (limits or DEFAULT).header
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder(max_header_list_size=self._most)
        self._decoder.max_allowed_table_size = TABLE
        self._never = hpack.NeverIndexedHeaderTuple

    def resize(self, size: int) -> None:
        """Use a table of the size that the peer has, up to `TABLE`; 4,096 before it says so."""
        self._encoder.header_table_size = min(size, TABLE)

    def encode(self, fields: Iterable[tuple[str, str]]) -> bytes:
        """Return a header block; what it takes for granted is only known to who has had all before.

        Secrets, and what no second call has, are never put into a table (RFC 7541, section 7.1.3).
        """
        given = []
        for name, value in fields:
            if _NAME.fullmatch(name) is None:
                raise EncodeError(f"no header field has the name {quoted(name)}")
            if _VALUE.fullmatch(value) is None or value != value.strip(" \t"):
                raise EncodeError(f"the header field {name} cannot be {quoted(value)}")
            try:
                pair = name.encode("latin-1"), value.encode("latin-1")
            except UnicodeEncodeError:
                raise EncodeError(
                    f"the header field {name} cannot be {quoted(value)}: not latin-1"
                ) from None
            never = name in _SECRET or name in _PASSING
            given.append(self._never(*pair) if never else pair)
        return bytes(self._encoder.encode(given))

    def decode(self, block: Buffer) -> list[tuple[str, str]]:
        """Return the fields of a whole header block."""
        import hpack

        try:
            fields = self._decoder.decode(bytes(block), raw=True)
        except hpack.OversizedHeaderListError:
            # It stops where the limit is passed, so the size is known to be more.
            raise LimitExceeded("header", self._most, self._most + 1) from None
        except (hpack.HPACKError, UnicodeError, IndexError) as error:
            raise http2.Http2Error(str(error), http2.COMPRESSION_ERROR) from None
        return [(str(name, "latin-1"), str(value, "latin-1")) for name, value in fields]


def malformed(fields: Fields, pseudo: Iterable[str] = ()) -> str:
    """Return what is wrong with a list of fields by RFC 9113, sections 8.2 and 8.3; or nothing.

    The pseudo-header fields `pseudo` must be there once, ``:authority`` at most, and no others.
    """
    wanted = set(pseudo)
    regular = False
    for name, value in fields:
        if _NAME.fullmatch(name) is None:
            return f"no field has the name {quoted(name)}"
        if _VALUE.fullmatch(value) is None or value != value.strip(" \t"):
            return f"the field {name} cannot be {quoted(value)}"
        if name[0] == ":":
            if regular:
                return f"{name} stands behind a field that is none of HTTP's own"
            if name not in wanted:
                return f"{name} is unknown here, or there twice"
            wanted.discard(name)
            continue
        regular = True
        if name in _CONNECTION or (name == "te" and value != "trailers"):
            return f"{name}: {quoted(value)} is of HTTP/1"
    wanted.discard(":authority")
    return f"there is no {min(wanted)}" if wanted else ""
