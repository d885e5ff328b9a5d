"""Which viewers a server of RFB lets in: version 3.8, security types and passwords.

Source: RFC 6143, section 7.1 to 7.3.
"""

from __future__ import annotations

import hmac
import os
from collections import Counter
from enum import IntEnum
from typing import Final, TypeAlias

from rlwire.codecs.rfb.auth import check_password, respond
from rlwire.codecs.rfb.handshake import (
    CHALLENGE_SIZE,
    VERSION_SIZE,
    Security,
    Version,
    decode_version,
    encode_result,
    encode_security,
    encode_version,
)
from rlwire.errors import RemoteProtocolError
from rlwire.sessions.guesses import Guess

Buffer: TypeAlias = bytes | bytearray | memoryview

_VERSION: Final[Version] = (3, 8)


class _Stage(IntEnum):
    """What the viewer says next."""

    VERSION = 0
    SECURITY = 1
    RESPONSE = 2
    INIT = 3
    OVER = 4


class Admitting:
    """A server's handshake with one viewer; whoever says what is `outgoing` empties it."""

    def __init__(
        self,
        counts: Counter[str],
        password: str | None,
        view_password: str | None,
        guess: Guess | None,
    ) -> None:
        self._counts = counts
        self._password, self._view_password = password, view_password
        self._guess = guess
        self.view_only = False
        self._stage = _Stage.VERSION
        self._kind = Security.NONE if password is None else Security.VNC
        self._challenge = b""
        self.outgoing: list[Buffer] = [encode_version(_VERSION)]

    def frame_size(self, have: int) -> int:
        """Return the size of what comes next; 0 while the password that has come is to wait."""
        if self._stage == _Stage.VERSION:
            return VERSION_SIZE
        if self._stage != _Stage.RESPONSE:
            return 1
        if have < CHALLENGE_SIZE or (self._guess is not None and self._guess.waits()):
            return 0
        return CHALLENGE_SIZE

    def take(self, message: Buffer) -> bool:
        """Take one message; return whether it was the last, and the viewer is in."""
        if self._stage == _Stage.VERSION:
            self._on_version(decode_version(message))
        elif self._stage == _Stage.SECURITY:
            self._on_security(message[0])
        elif self._stage == _Stage.RESPONSE:
            self._on_response(bytes(message))
        else:
            # Whether it wants to be alone is not asked here: a screen has several viewers.
            self._stage = _Stage.OVER
        return self._stage == _Stage.OVER

    def refuse(self, reason: str) -> list[Buffer]:
        """Return what tells the viewer why it does not get in."""
        if self._stage == _Stage.VERSION:
            said, self.outgoing = self.outgoing, []
            return [*said, encode_security(reason)]
        if self._stage in (_Stage.SECURITY, _Stage.RESPONSE):
            return [encode_result(reason)]
        return []

    def _on_version(self, version: Version) -> None:
        if version < _VERSION:
            raise RemoteProtocolError(f"RFB {version[0]}.{version[1]} is older than 3.8")
        self.outgoing.append(encode_security([self._kind]))
        self._stage = _Stage.SECURITY

    def _on_security(self, chosen: int) -> None:
        if chosen != self._kind:
            self._fail(f"security type {chosen} was not offered")
        if chosen == Security.VNC:
            self._challenge = os.urandom(CHALLENGE_SIZE)
            self.outgoing.append(self._challenge)
            self._stage = _Stage.RESPONSE
        else:
            self._let_in()

    def _on_response(self, response: bytes) -> None:
        right = self._knows(response, self._password)
        if self._knows(response, self._view_password) and not right:
            self.view_only = right = True
        if not right:
            self._counts["refused"] += 1
            self._fail("the password is wrong")
        if self._guess is not None:
            self._guess.right()
        self._let_in()

    def _let_in(self) -> None:
        self.outgoing.append(encode_result())
        self._stage = _Stage.INIT

    def _knows(self, response: bytes, password: str | None) -> bool:
        return password is not None and hmac.compare_digest(
            respond(self._challenge, password), response
        )

    def _fail(self, reason: str) -> None:
        self.outgoing.append(encode_result(reason))
        raise RemoteProtocolError(reason)


def check_passwords(password: str | None, view_password: str | None) -> None:
    """Check that passwords can be asked for."""
    for one in (password, view_password):
        if one is not None:
            respond(bytes(CHALLENGE_SIZE), one)
    if view_password is not None:
        if password is None:
            raise ValueError("a password for looking on is of no use where others need none")
        if check_password(password) == check_password(view_password):
            raise ValueError("both passwords are the same in their first eight characters")
