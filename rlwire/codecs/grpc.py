"""gRPC's header fields: statuses, messages, timeouts, metadata.

Source: PROTOCOL-HTTP2.md, statuscodes.md and http-grpc-status-mapping.md of gRPC.
"""

from __future__ import annotations

import base64
import binascii
import enum
import re
from collections.abc import Iterable
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

from rlwire.errors import DecodeError, EncodeError, quoted

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]
"""Names and values. A name that ends in ``-bin`` has bytes as its value."""


class Code(enum.IntEnum):
    """Status codes, the same as those of ``google.rpc.Code``."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# http-grpc-status-mapping.md
_BY_HTTP = {400: "INTERNAL", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "UNIMPLEMENTED"}
_BY_HTTP |= dict.fromkeys((429, 502, 503, 504), "UNAVAILABLE")
# "Errors" in PROTOCOL-HTTP2.md; STREAM_CLOSED (5) has no mapping.
_BY_RESET = {5: "UNKNOWN", 7: "UNAVAILABLE", 8: "CANCELLED", 11: "RESOURCE_EXHAUSTED"}
_BY_RESET[12] = "PERMISSION_DENIED"

_UNITS = {"n": 1e9, "u": 1e6, "m": 1e3, "S": 1.0, "M": 1 / 60, "H": 1 / 3600}  # per second
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_NAME = re.compile(r"[0-9a-z_.\-]+")
_PRINTABLE = re.compile(r"[ -~]*")


def status_code(name: str) -> int:
    """Return the number of the status with this name."""
    try:
        return Code[name].value
    except KeyError:
        raise EncodeError(f"unknown gRPC status {quoted(name)}") from None


def decode_status(text: str) -> str:
    """Return the status name for a ``grpc-status``; UNKNOWN for an unknown number."""
    if not re.fullmatch("[0-9]{1,9}", text):
        raise DecodeError(f"grpc-status is not a number: {quoted(text)}")
    code = int(text)
    return Code(code).name if code < len(Code) else "UNKNOWN"


def status_of_http(status: int) -> str:
    """Return the status name for an HTTP response without ``grpc-status``."""
    return _BY_HTTP.get(status, "UNKNOWN")


def status_of_reset(code: int) -> str:
    """Return the status name for the HTTP/2 error code of an RST_STREAM frame."""
    return _BY_RESET.get(code, "INTERNAL" if code <= 10 else "UNKNOWN")


def encode_message(text: str) -> str:
    """Percent-encode the UTF-8 form of `text` for ``grpc-message``, except printable ASCII."""
    data = text.encode("utf-8", "backslashreplace")
    return "".join([chr(b) if 32 <= b <= 126 and b != 37 else f"%{b:02X}" for b in data])


def decode_message(text: str) -> str:
    """Return the text of a ``grpc-message``; keeps invalid escapes as they are."""
    return unquote_to_bytes(text.encode("latin-1", "replace")).decode("utf-8", "replace")


def decode_timeout(text: str) -> float:
    """Return the seconds of a ``grpc-timeout``."""
    found = _TIMEOUT.fullmatch(text)
    if found is None:
        raise DecodeError(f"grpc-timeout: expected up to 8 digits and a unit, got {quoted(text)}")
    return int(found[1]) / _UNITS[found[2]]


def encode_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> list[tuple[str, str]]:
    """Return metadata as header fields."""
    fields = []
    for name, value in metadata:
        if _NAME.fullmatch(name) is None or name.startswith("grpc-"):
            raise EncodeError(f"metadata name {quoted(name)}: expected [0-9a-z_.-]+, not grpc-*")
        if name.endswith("-bin"):
            if isinstance(value, str):
                raise EncodeError(f"metadata {name} must be bytes: its name ends in -bin")
            # Unpadded (PROTOCOL-HTTP2.md).
            fields.append((name, base64.b64encode(value).rstrip(b"=").decode("ascii")))
            continue
        text = value if isinstance(value, str) else str(value, "latin-1")
        if _PRINTABLE.fullmatch(text) is None or text != text.strip(" "):
            raise EncodeError(
                f"metadata {name} must be printable ASCII without spaces around it, not "
                f"{quoted(value)}: use a name that ends in -bin for other bytes"
            )
        fields.append((name, text))
    return fields


def decode_metadata(fields: Iterable[tuple[str, str]]) -> Metadata:
    """Return header fields as metadata, without pseudo-header fields.

    A ``-bin`` field may be padded, and may hold several values separated by commas.
    """
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name[:1] == ":":
            continue
        if not name.endswith("-bin"):
            metadata.append((name, value))
            continue
        for one in value.split(","):
            text = one.strip(" ").rstrip("=")
            try:
                data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
            except (binascii.Error, ValueError):
                raise DecodeError(f"metadata {name} is not base64: {quoted(one)}") from None
            metadata.append((name, data))
    return tuple(metadata)
