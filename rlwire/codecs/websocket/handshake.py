"""The two HTTP/1.1 messages before the first WebSocket frame.

As strict as RFC 9112 allows (CRLF only, no folded lines, no space before a colon, no body), so that
no proxy can mistake a request for another one. Values to be written are checked as well.

Source: RFC 6455, section 4; RFC 9110 and 9112; RFC 7617 for Basic credentials.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

from rlwire.errors import DecodeError, EncodeError, LimitExceeded, is_secret, without_secret

Buffer = bytes | bytearray | memoryview
Pairs = Iterable[tuple[str, str]]

LINES = 100
"""Limit on header lines; browsers send about 15."""

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_VERSION = "13"
_END = b"\r\n\r\n"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")  # RFC 9110, section 5.5
_RESOURCE = re.compile(r"/[\x21\x22\x24-\x7e]*")  # origin-form; a fragment is not sent
_STATUS_LINE = re.compile(r"HTTP/1\.[01] ([1-5][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_OURS = {
    *("connection", "content-length", "host", "origin", "transfer-encoding", "upgrade"),
    *("sec-websocket-accept", "sec-websocket-extensions", "sec-websocket-key"),
    *("sec-websocket-protocol", "sec-websocket-version"),
}


_LINE_OF_HEAD = re.compile(rb"(?m)^([^:\r\n]*)(:[ \t]*)([^\r\n]*)")


class WrongVersion(DecodeError):
    """A request for a WebSocket version other than 13. The response is 426."""


class HeaderLines(tuple[Any, ...]):
    """Pairs of name and value, in order; names are case-insensitive."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return bool(self.all(str(name)))

    def __repr__(self) -> str:
        # Values may be secrets.
        return f"HeaderLines({', '.join(name for name, _ in self)})"

    def all(self, name: str) -> list[str]:
        """Return the values of all lines with this name."""
        name = name.lower()
        return [value for known, value in self if known.lower() == name]

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the value of the only line with this name, or `default`."""
        found = self.all(name)
        if len(found) > 1:
            raise DecodeError(f"the header {name!r} occurs {len(found)} times")
        return found[0] if found else default

    def tokens(self, name: str) -> list[str]:
        """Return the items of a comma-separated list, over all lines with this name."""
        items = (item.strip(" \t") for value in self.all(name) for item in value.split(","))
        return [item for item in items if item]


@dataclass(frozen=True)
class UpgradeRequest:
    """A client's request.

    Attributes:
        resource: path and query, starting with a slash, as sent.
        headers: all header lines.
        key: Sec-WebSocket-Key.
    """

    resource: str
    headers: HeaderLines
    key: str

    @property
    def origin(self) -> str | None:
        """The origin of a browser's page; None for other programs."""
        return self.headers.get("Origin")

    @property
    def path(self) -> str:
        """The resource without its query, percent-decoded."""
        return unquote(self.resource.partition("?")[0])


@dataclass(frozen=True)
class Response:
    """A server's response. After status 101 the next bytes are frames."""

    status: int
    reason: str
    headers: HeaderLines


@dataclass(frozen=True)
class Target:
    """The parts of a ``ws`` or ``wss`` URL.

    Attributes:
        secure: whether to use TLS.
        host: name or address, IPv6 without brackets; ``"localhost"`` for a unix socket.
        resource: path and query.
        authorization: Basic credentials if the URL has a user name.
        unix: the path of a unix socket; None over TCP.
        shm: whether the connection continues in shared memory.
    """

    secure: bool
    host: str
    port: int
    resource: str
    authorization: str | None = None
    unix: str | None = None
    shm: bool = False

    @property
    def authority(self) -> str:
        """The value of the Host header, without the scheme's default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def parse_url(url: str) -> Target:
    """Parse a URL such as ``"wss://example.org:15900/a?b=c"``.

    For a unix socket: ``"ws+unix:///path/of/socket:/a?b=c"``, ``wss+unix`` or, with shared memory,
    ``ws+shm``; the part after the socket's path is optional.
    """
    # urlsplit silently drops tabs and line ends.
    shown = repr(without_secret(url))
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"{shown}: expected printable ASCII; percent-encode other characters")
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss", "ws+unix", "wss+unix", "ws+shm"):
        raise ValueError(f"{shown} does not start with ws:// or wss://")
    if "#" in url:
        raise ValueError(f"{shown}: a WebSocket URL has no fragment")
    path, unix = parts.path, None
    if parts.scheme.endswith(("+unix", "+shm")):
        unix, _, path = path.partition(":")
        if parts.netloc or not unix.startswith("/"):
            raise ValueError(f"{shown}: a unix socket's path is absolute: ws+unix:///tmp/socket")
    elif not parts.hostname:
        raise ValueError(f"{shown} has no host")
    resource = (path or "/") + (f"?{parts.query}" if parts.query else "")
    if not _RESOURCE.fullmatch(resource):
        raise ValueError(f"{shown}: not a path")
    secure = parts.scheme.startswith("wss")
    port = 443 if secure else 80
    if unix is not None:
        shm = parts.scheme.endswith("+shm")
        return Target(secure, "localhost", port, resource, unix=unquote(unix), shm=shm)
    authorization = None
    if parts.username is not None:
        authorization = basic_header(unquote(parts.username), unquote(parts.password or ""))
    where = port if parts.port is None else parts.port
    return Target(secure, parts.hostname or "", where, resource, authorization)


def new_key() -> str:
    """Return a Sec-WebSocket-Key: 16 random bytes in base64."""
    return base64.b64encode(os.urandom(16)).decode()


def accept_of(key: str) -> str:
    """Return the Sec-WebSocket-Accept for a key (section 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()


def head_size(
    buffer: Buffer, start: int, end: int, limit: int, begins: bytes, known: int = 0
) -> int:
    """Return the size of the HTTP head at `start`, with its empty line; 0 if bytes are missing.

    A head that does not start with `begins` is rejected at its first byte. `known` bytes have been
    searched before, so that a head that arrives byte by byte is searched only once.
    """
    have = end - start
    view = memoryview(buffer)[start : min(end, start + limit)]
    first = bytes(view[: len(begins)])
    if first != begins[: len(first)]:
        raise DecodeError(f"expected an HTTP message that starts with {begins!r}", offset=start)
    known = max(0, known - len(_END) + 1)
    found = bytes(view[known:]).find(_END)
    if found >= 0:
        return known + found + len(_END)
    if have >= limit:
        raise LimitExceeded("header", limit, have + 1, offset=start)
    return 0


def read_request(head: Buffer) -> UpgradeRequest:
    """Return the request in a whole head."""
    first, headers = read_head(head)
    method, _, rest = first.partition(" ")
    resource, _, version = rest.partition(" ")
    if method != "GET" or version != "HTTP/1.1":
        raise DecodeError("expected a GET request of HTTP/1.1")
    if not _RESOURCE.fullmatch(resource):
        raise DecodeError("the request's resource is not a path", offset=4)
    if not headers.get("Host"):
        raise DecodeError("the request has no Host")
    # A proxy would treat the frames after the head as a body.
    if "Transfer-Encoding" in headers or (headers.get("Content-Length") or "0") != "0":
        raise DecodeError("the request has a body")
    _check_upgrade(headers, "request")
    if headers.get("Sec-WebSocket-Version") != _VERSION:
        raise WrongVersion(f"the request is not for version {_VERSION} of WebSocket")
    key = headers.get("Sec-WebSocket-Key") or ""
    try:
        # Without validate, invalid characters are skipped.
        good = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        good = False
    if not good:
        raise DecodeError("the request's Sec-WebSocket-Key is not 16 bytes in base64")
    headers.get("Origin")  # must not be repeated
    return UpgradeRequest(resource, headers, key)


def read_get(head: Buffer) -> tuple[str, HeaderLines] | None:
    """Return the percent-decoded path and the headers of a GET request; None for other methods."""
    first = bytes(head).partition(b"\r\n")[0].decode("latin-1")
    method, _, rest = first.partition(" ")
    resource, _, version = rest.partition(" ")
    if method != "GET" or not version.startswith("HTTP/1.") or not _RESOURCE.fullmatch(resource):
        return None
    return unquote(resource.partition("?")[0]), read_head(head)[1]


def read_response(head: Buffer) -> Response:
    """Return the response in a whole head."""
    first, headers = read_head(head)
    match = _STATUS_LINE.fullmatch(first)
    if match is None:
        raise DecodeError("expected a status line of HTTP/1.1")
    response = Response(int(match[1]), match[2] or "", headers)
    if response.status == 101:
        if not first.startswith("HTTP/1.1"):
            raise DecodeError("the response upgrades from HTTP/1.0")
        _check_upgrade(headers, "response")
    return response


def write_request(
    target: Target, key: str, *, origin: str | None = None, headers: Pairs = ()
) -> bytes:
    """Return the request for a WebSocket; `headers` are further lines."""
    lines = [
        ("Host", target.authority),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", key),
        ("Sec-WebSocket-Version", _VERSION),
    ]
    if origin is not None:
        lines.append(("Origin", origin))
    further = list(headers)
    if target.authorization is not None and all(
        name.lower() != "authorization" for name, _ in further
    ):
        lines.append(("Authorization", target.authorization))
    if not _RESOURCE.fullmatch(target.resource):
        raise EncodeError(f"{target.resource!r} is not a path")
    return _write_head(f"GET {target.resource} HTTP/1.1", lines, further)


def write_response(
    status: int,
    *,
    key: str = "",
    headers: Pairs = (),
    text: str = "",
    page: bytes | None = None,
    kind: str = "text/plain; charset=utf-8",
) -> bytes:
    """Return a response: 101 with the accept value of `key`, or one with a body.

    The body is a `page` of this `kind`, or `text`. A short text is also the status line's reason,
    which clients show.
    """
    if status == 101:
        lines = [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", accept_of(key)),
        ]
        body = b""
    else:
        body = f"{text}\n".encode("utf-8", "backslashreplace") if text else b""
        body = body if page is None else page
        lines = [
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        if status == 426:  # section 4.4
            lines += [("Upgrade", "websocket"), ("Sec-WebSocket-Version", _VERSION)]
    fits = status >= 400 and len(text) <= 200 and text.isascii() and text.isprintable()
    phrase = text if text and fits else HTTPStatus(status).phrase
    return _write_head(f"HTTP/1.1 {status} {phrase}", lines, list(headers)) + body


def basic_header(user: str, password: str) -> str:
    """Return the value of an Authorization header with Basic credentials."""
    if ":" in user:
        raise EncodeError("a user name for Basic credentials must not contain a colon")
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def basic_credentials(value: str | None) -> tuple[str, str] | None:
    """Return the user name and password of a Basic Authorization header; None for any other."""
    scheme, _, encoded = (value or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except ValueError:  # also for invalid base64 or UTF-8
        return None
    user, colon, password = decoded.partition(":")
    return (user, password) if colon else None


def same_secret(given: str, expected: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def blank(data: bytes) -> bytes:
    """Return a head, and what follows, with stars in place of secrets, for a recording.

    A head that is not valid keeps 8 bytes: it may be another protocol's.
    """

    def blanked(line: re.Match[bytes]) -> bytes:
        secret = is_secret(line[1].decode("latin-1"))
        return line[1] + line[2] + b"*" * len(line[3]) if secret else line[0]

    head, end, rest = data.partition(_END)
    try:
        read_head(head + end)
    except (DecodeError, LimitExceeded):
        return head[:8] + b"*" * (len(data) - len(head[:8]))
    return _LINE_OF_HEAD.sub(blanked, head) + end + rest


def read_head(head: Buffer) -> tuple[str, HeaderLines]:
    data = bytes(head)
    if not data.endswith(_END) or data.find(_END) != len(data) - len(_END):
        raise DecodeError("not one whole HTTP head")
    lines = data[: -len(_END)].decode("latin-1").split("\r\n")
    if len(lines) - 1 > LINES:
        raise LimitExceeded("header lines", LINES, len(lines) - 1)
    found = []
    offset = len(lines[0]) + 2
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        # Folded lines start with a space and are rejected here too (RFC 9112, section 5.2).
        if not colon or not _TOKEN.fullmatch(name):
            raise DecodeError("a header line has no valid name", offset=offset)
        if not _VALUE.fullmatch(value):
            raise DecodeError(f"a control character in the header {name!r}", offset=offset)
        found.append((name, value.strip(" \t")))
        offset += len(line) + 2
    if not _VALUE.fullmatch(lines[0]):
        raise DecodeError("a control character in the first line")
    return lines[0], HeaderLines(found)


def _check_upgrade(headers: HeaderLines, what: str) -> None:
    if "websocket" not in map(str.lower, headers.tokens("Upgrade")):
        raise DecodeError(f"the {what} does not upgrade to websocket")
    if "upgrade" not in map(str.lower, headers.tokens("Connection")):
        raise DecodeError(f"the {what}'s Connection header has no upgrade")


def _write_head(first: str, lines: list[tuple[str, str]], further: list[tuple[str, str]]) -> bytes:
    for name, _ in further:
        if name.lower() in _OURS:
            raise EncodeError(f"the header {name!r} is reserved")
    out = [first]
    for name, value in (*lines, *further):
        if not _TOKEN.fullmatch(name):
            raise EncodeError(f"invalid header name {name!r}")
        if not _VALUE.fullmatch(value):
            raise EncodeError(f"invalid value of the header {name!r}")
        out.append(f"{name}: {value}")
    return ("\r\n".join(out)).encode("latin-1") + _END
