"""Encrypted, authenticated datagrams with a shared key.

A datagram; integers are little-endian::

    byte    0        version, 1
    bytes   1 .. 16  sender id: 16 random bytes, new for each cipher object
    bytes  17 .. 24  counter, unsigned
    bytes  25 ..     the encrypted message, followed by its tag of 16 bytes

    key   = HKDF-SHA256(secret, salt = sender id, info = "rlwire datagram v1 client" or
            "rlwire datagram v1 server", the role of the SENDER, length = 32)
    nonce = 4 zero bytes, then the 8 bytes of the counter
    ChaCha20-Poly1305 (RFC 8439) with the 25 bytes before the message as associated data

The counter is the larger of "the last one plus 1" and the Unix time in units of 2**-20 seconds. So
no nonce is used twice with a key, and a receiver knows when a datagram was sent. The receiver drops

- datagrams shorter than 41 bytes (``short``) or of another version (``version``);
- the first datagram of an unknown sender id, unless its counter lies within `CLOCK_SKEW` seconds of
  the receiver's clock (``stale``);
- datagrams that were not sealed with this key by the other role (``key``);
- counters that it has already seen, that are older than the sender's `WINDOW` newest, or that were
  older than `CLOCK_SKEW` when the sender became known (``replay``);
- an unknown sender while all `SENDERS` known ones have sent within `CLOCK_SKEW` (``full``). Only
  owners of the key can fill the table.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
import threading
import time
from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

from rlwire.errors import optional
from rlwire.sessions.layer import Buffer
from rlwire.transports.forking import track

logger = logging.getLogger(__name__)

Role: TypeAlias = Literal["client", "server"]
_Crypt: TypeAlias = Callable[[bytes, Buffer, Buffer], bytes]  # nonce, data, associated data

_VERSION = 1
_HEADER = 25
_TAG = 16
_KEY = 32
_UNIT = 2**20  # counts a second


class DatagramCipher:
    """One end's cipher; the sockets and threads of that end may share it.

    A forked process gets its own sender id. If a virtual machine is cloned while it runs, create
    new ciphers in the clone.

    Args:
        key: the shared secret, 32 bytes; see `new_key` and `load_key`.
        role: this end. Each role has its own keys.
        clock: the Unix time in seconds.

    Attributes:
        dropped: how many datagrams were dropped, by reason.
    """

    # Clocks without synchronization rarely differ more, and a recorded datagram soon gets stale.
    CLOCK_SKEW: ClassVar[float] = 60.0
    # Covers seconds of traffic, with up to 10 KiB per sender.
    WINDOW: ClassVar[int] = 1024
    SENDERS: ClassVar[int] = 4096
    overhead: ClassVar[int] = _HEADER + _TAG

    def __init__(self, key: bytes, role: Role, *, clock: Callable[[], float] = time.time) -> None:
        if not isinstance(key, bytes) or len(key) != _KEY:
            got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            raise ValueError(f"the key must be {_KEY} bytes, not {got}; see new_key and load_key")
        self.role: Role = role
        self._other: Role = "client" if role == "server" else "server"
        self.dropped: Counter[str] = Counter()
        self._skew = round(self.CLOCK_SKEW * _UNIT)
        self._clock = clock
        with optional("cryptography", "gym"):
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        def cipher_of(sender: bytes, role: Role) -> Any:
            info = f"rlwire datagram v1 {role}".encode()
            return ChaCha20Poly1305(HKDF(SHA256(), _KEY, sender, info).derive(key))

        self._cipher, self._invalid = cipher_of, InvalidTag
        # Of each sender: its key, and its newest counters in ascending order, of which the first is
        # too old. Not a bitmap: counters are times, and have gaps.
        self._known: dict[bytes, tuple[_Crypt, array[int]]] = {}
        self._counter = 0
        self.begin()

    def seal(self, data: Buffer) -> bytes:
        with self._lock:
            count = int(self._clock() * _UNIT)
            if count <= self._counter:
                count = self._counter + 1
            self._counter = count
            encrypt, head = self._encrypt, self._head
        stamp = count.to_bytes(8, "little")
        head += stamp
        return head + encrypt(b"\0\0\0\0" + stamp, data, head)

    def open(self, data: Buffer) -> bytes | None:
        """Return a datagram's message; None, counted in `dropped`, if it is rejected."""
        with self._lock:
            message = self._open(data)
            if isinstance(message, bytes):
                return message
            self.dropped[message] += 1
            return None

    def _open(self, data: Buffer) -> bytes | str:
        if len(data) < self.overhead:
            return "short"
        if data[0] != _VERSION:
            return "version"
        name = bytes(data[1:17])
        stamp = bytes(data[17:_HEADER])
        count = int.from_bytes(stamp, "little")
        present = int(self._clock() * _UNIT)
        sender = self._known.get(name)
        if sender is None:
            if abs(count - present) > self._skew:
                return "stale"
            # Older counters may be replays from a sender that was removed from the table.
            oldest = max(0, present - self._skew - 1)
            sender = self._cipher(name, self._other).decrypt, array("Q", [oldest])
        decrypt, seen = sender
        if count <= seen[-1] and (count <= seen[0] or seen[bisect_left(seen, count)] == count):
            return "replay"
        try:
            message = decrypt(b"\0\0\0\0" + stamp, data[_HEADER:], data[:_HEADER])
        except self._invalid:
            return "key"
        if name not in self._known:
            if len(self._known) >= self.SENDERS:
                stalest = min(self._known, key=lambda one: self._known[one][1][-1])
                if self._known[stalest][1][-1] >= present - self._skew:
                    return "full"
                del self._known[stalest]
            self._known[name] = sender
        insort(seen, count)
        if len(seen) > self.WINDOW:
            del seen[0]
        return message

    def begin(self) -> None:
        """Make a new sender id, and a new lock: a fork may have left the old one locked."""
        name = secrets.token_bytes(16)
        self._lock = threading.Lock()
        self._head = bytes([_VERSION]) + name
        self._encrypt: _Crypt = self._cipher(name, self.role).encrypt
        track(self)

    # Parent and child have the same key and counters: the same nonces twice.
    close_inherited = begin


def new_key() -> bytes:
    """Return a new random key."""
    return secrets.token_bytes(_KEY)


def load_key(path: str | os.PathLike[str]) -> bytes:
    """Return the key in a file: 32 bytes in hexadecimal, with or without a final newline."""
    with open(path, "rb") as file:
        data = file.read(1024)
        mode = os.fstat(file.fileno()).st_mode
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("%s: other users can access this key file: chmod 600", os.fspath(path))
    try:
        key = bytes.fromhex(data.decode("utf-8-sig"))
    except ValueError:
        key = b""
    if len(key) != _KEY:
        raise ValueError(f"{os.fspath(path)!r}: expected a key of {_KEY} bytes in hexadecimal")
    return key
