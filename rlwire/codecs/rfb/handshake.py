"""RFB's handshake: bytes to values and back.

Source: RFC 6143, sections 7.1 to 7.3, and appendix A for versions 3.3 and 3.7.
"""

from __future__ import annotations

import re
import struct
import warnings
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from rlwire.codecs.rfb.messages import Buffer, PixelFormat
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, optional
from rlwire.limits import DEFAULT, Limits

Version: TypeAlias = tuple[int, int]
"""Major and minor, such as (3, 8)."""

VERSION_SIZE = 12
CHALLENGE_SIZE = 16

_KEY = 8  # bytes of a password that are used
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_VERSION = re.compile(rb"RFB (\d{3})\.(\d{3})\n")
_number = struct.Struct(">I")
_init = struct.Struct(">HH")


class Security(IntEnum):
    INVALID = 0
    NONE = 1
    VNC = 2


_NAMES = {1: "None", 2: "VNC authentication", 18: "TLS", 19: "VeNCrypt", 30: "Apple"}


def security_name(number: int) -> str:
    """Return the number of a security type, with its name if it has a common one."""
    return f"{_NAMES[number]} ({number})" if number in _NAMES else str(number)


def decode_version(buffer: Buffer, offset: int = 0) -> Version:
    data = bytes(buffer[offset : offset + VERSION_SIZE])
    match = _VERSION.fullmatch(data)
    if match is None:
        raise DecodeError(
            f"expected an RFB version, got {data!r}: is the peer a VNC server or viewer?",
            offset=offset,
        )
    return int(match[1]), int(match[2])


def encode_version(version: Version) -> bytes:
    return b"RFB %03d.%03d\n" % version


def reason_size(buffer: Buffer, start: int, end: int, limits: Limits = DEFAULT) -> int:
    """Return the size of the reason at `start`, including its length; 0 while unknown."""
    if end - start < 4:
        return 0
    (length,) = _number.unpack_from(buffer, start)
    if length > limits.header:
        raise LimitExceeded("header", limits.header, length, offset=start)
    return 4 + int(length)


def decode_reason(buffer: Buffer, offset: int = 0) -> str:
    (length,) = _number.unpack_from(buffer, offset)
    data = buffer[offset + 4 : offset + 4 + length]
    try:
        return str(data, "utf-8")  # the RFC names no encoding; old servers write Latin-1
    except UnicodeDecodeError:
        return str(data, "latin-1")


def encode_reason(text: str) -> bytes:
    data = text.encode("utf-8", "backslashreplace")
    return _number.pack(len(data)) + data


def security_size(
    buffer: Buffer, start: int, end: int, version: Version, limits: Limits = DEFAULT
) -> int:
    """Return the size of a server's security types, or its reason for none; 0 while unknown."""
    head = 4 if version < (3, 7) else 1
    if end - start < head:
        return 0
    if any(buffer[start : start + head]):
        return head if head == 4 else 1 + buffer[start]
    size = reason_size(buffer, start + head, end, limits)
    return head + size if size else 0


def decode_security(buffer: Buffer, version: Version) -> list[int] | str:
    """Decode a server's security types, or its reason for none."""
    if version < (3, 7):
        (number,) = _number.unpack_from(buffer)
        return [number] if number else decode_reason(buffer, 4)
    return list(buffer[1 : 1 + buffer[0]]) if buffer[0] else decode_reason(buffer, 1)


def encode_security(offer: list[int] | str, version: Version) -> bytes:
    """Encode a server's security types, or its reason for none; 3.3 has one type, in a word."""
    has_word = version < (3, 7)
    if isinstance(offer, str):
        return bytes(4 if has_word else 1) + encode_reason(offer)
    return _number.pack(*offer) if has_word else bytes((len(offer), *offer))


def decode_result(buffer: Buffer, offset: int = 0) -> int:
    """Decode a security result; 0 is success. In version 3.8 a reason follows any other."""
    (result,) = _number.unpack_from(buffer, offset)
    return int(result)


def encode_result(failure: str | None, version: Version) -> bytes:
    if failure is None:
        return _number.pack(0)
    return _number.pack(1) + (encode_reason(failure) if version >= (3, 8) else b"")


def check_password(password: str) -> bytes:
    """Return the bytes of a password that VNC uses: the first eight."""
    try:
        return password.encode("latin-1")[:_KEY]
    except UnicodeEncodeError:
        raise EncodeError("a VNC password must be Latin-1") from None


def respond(challenge: bytes, password: str) -> bytes:
    """Return the response to a challenge (DES, bits reversed: RFC 6143, 7.2.2, erratum 4951)."""
    key = check_password(password).ljust(_KEY, b"\0").translate(_REVERSED)
    with optional("cryptography", "gym"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # DES is deprecated
        from cryptography.hazmat.primitives.ciphers import Cipher, modes

        try:
            from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
        except ImportError:  # before version 43
            from cryptography.hazmat.primitives.ciphers.algorithms import TripleDES
        # Three times the same key is DES.
        cipher = Cipher(TripleDES(3 * key), modes.ECB()).encryptor()
    return cipher.update(bytes(challenge)) + cipher.finalize()


@dataclass(frozen=True, slots=True)
class ServerInit:
    """The server's desktop. `pixel_format` is None if it is not supported, such as colour maps."""

    width: int
    height: int
    pixel_format: PixelFormat | None
    name: str


def server_init_size(buffer: Buffer, start: int, end: int, limits: Limits = DEFAULT) -> int:
    """Return the size of the ServerInit at `start`; 0 while unknown."""
    if end - start < 24:
        return 0
    return 20 + reason_size(buffer, start + 20, end, limits)


def decode_server_init(buffer: Buffer) -> ServerInit:
    width, height = _init.unpack_from(buffer)
    try:
        pixel_format = PixelFormat.unpack(buffer, 4)
    except DecodeError:  # a colour map, or 24 bits per pixel, as libvncserver offers
        pixel_format = None
    return ServerInit(width, height, pixel_format, decode_reason(buffer, 20))


def encode_server_init(init: ServerInit) -> bytes:
    assert init.pixel_format is not None
    size = _init.pack(init.width, init.height)
    return size + init.pixel_format.pack() + encode_reason(init.name)
