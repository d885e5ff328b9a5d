"""The payload of RFB's extended cut texts: UTF-8 where the plain ones have Latin-1.

An action, the formats it is about, and what belongs to it. Of the formats only text is written and
read: it is the first, so what follows it need not be inflated. Not here: the message around
(`rlwire.codecs.rfb.messages`), who says what when (`rlwire.sessions.rfb.clipboard`).

Source: "The RFB Protocol" (rfbproto.rst), Extended Clipboard.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import DEFAULT, Limits

__all__ = [
    "ACTIONS",
    "CAPS",
    "NOTIFY",
    "PEEK",
    "PROVIDE",
    "REQUEST",
    "TEXT",
    "ClientClipboard",
    "Clipboard",
    "ServerClipboard",
    "decode_clipboard",
    "encode_clipboard",
    "plain_text",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
_Side = TypeVar("_Side", bound="Clipboard")

TEXT = 1
"""The format; others have the bits up to 15."""
CAPS = 1 << 24
"""What one understands, and how many bytes of each format may come unasked."""
REQUEST = 1 << 25
"""Formats are wanted."""
PEEK = 1 << 26
"""It is to be told which formats there are."""
NOTIFY = 1 << 27
"""Which formats there are."""
PROVIDE = 1 << 28
"""What they have."""
ACTIONS = CAPS | REQUEST | PEEK | NOTIFY | PROVIDE

_FORMATS = 0xFFFF
_number = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Clipboard:
    """What one end says of its clipboard, or wants of the other's.

    Attributes:
        flags: one action and its formats; of `CAPS` all actions that are understood.
        sizes: of `CAPS`, bytes for each of the formats, the lowest first.
        text: of `PROVIDE` with `TEXT`; lines end in a line feed alone.
    """

    flags: int
    sizes: tuple[int, ...] = ()
    text: str | None = None


class ClientClipboard(Clipboard):
    """A viewer's."""

    __slots__ = ()


class ServerClipboard(Clipboard):
    """A server's."""

    __slots__ = ()


def plain_text(text: str) -> bytes:
    """Return a text as it is before it is deflated.

    Raises:
        EncodeError: it has half a surrogate pair.
    """
    try:
        return text.replace("\r\n", "\n").replace("\n", "\r\n").encode() + b"\0"
    except UnicodeEncodeError as error:
        raise EncodeError(f"no UTF-8 has {text[error.start]!r}", path="$.text") from None


def encode_clipboard(clipboard: Clipboard) -> bytes:
    """Return the payload.

    Raises:
        EncodeError: as `plain_text`.
        struct.error: a number does not fit into its place.
    """
    head = struct.pack(f">I{len(clipboard.sizes)}I", clipboard.flags, *clipboard.sizes)
    if clipboard.text is None:
        return head
    plain = plain_text(clipboard.text)
    return head + zlib.compress(_number.pack(len(plain)) + plain)


def decode_clipboard(side: type[_Side], payload: Buffer, limits: Limits = DEFAULT) -> _Side:
    """Return what a payload says, as the class of the side that says it.

    Raises:
        DecodeError: it is none.
        LimitExceeded: its text is longer than the limit ``string``.
    """
    if len(payload) < 4:
        raise DecodeError(f"{len(payload)} bytes have no place for a clipboard's flags")
    (flags,) = _number.unpack_from(payload)
    if flags & CAPS:
        count = (flags & _FORMATS).bit_count()
        if len(payload) < 4 + 4 * count:
            raise DecodeError(f"{count} sizes of formats do not fit into {len(payload)} bytes")
        return side(flags, struct.unpack_from(f">{count}I", payload, 4))
    if flags & PROVIDE and flags & TEXT:
        return side(flags, text=_inflate(payload, limits.string))
    return side(flags)


def _inflate(payload: Buffer, most: int) -> str:
    inflater = zlib.decompressobj()
    try:
        head = inflater.decompress(payload[4:], 4)
        size = _number.unpack(head)[0] if len(head) == 4 else 0
        if size > most:
            raise LimitExceeded("string", most, size, offset=4)
        plain = inflater.decompress(inflater.unconsumed_tail, size) if size else b""
        if len(head) < 4 or len(plain) < size:
            raise DecodeError("the clipboard's text is not whole", offset=4)
        return plain.removesuffix(b"\0").decode().replace("\r\n", "\n")
    except zlib.error as error:
        raise DecodeError(f"the clipboard's text: {error}", offset=4) from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"the clipboard's text is no UTF-8: {error.reason}", offset=4) from None
