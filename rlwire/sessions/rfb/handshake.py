"""RFB's handshake, both sides (RFC 6143, sections 7.1 to 7.3 and appendix A)."""

from __future__ import annotations

import hmac
import os
from collections import Counter
from enum import Enum
from typing import Final

from rlwire.codecs.rfb import handshake
from rlwire.codecs.rfb.handshake import Security, ServerInit, Version
from rlwire.codecs.rfb.messages import Buffer
from rlwire.errors import DecodeError, PeerError, RemoteProtocolError
from rlwire.limits import Limits
from rlwire.sessions.passwords import PasswordCheck

_VERSIONS: Final[tuple[Version, ...]] = ((3, 3), (3, 7), (3, 8))
_BEGINNING: Final = b"RFB "


class Stage(Enum):
    VERSION = "its version"
    SECURITY = "its security types"
    CHALLENGE = "a challenge, or the response to one"
    RESULT = "the security result"
    REASON = "the reason of the security result"
    INIT = "its init message"
    OVER = "nothing more of the handshake"


def _common_version(theirs: Version) -> Version:
    # Appendix A: unknown versions are treated as 3.3. Apple's 3.889 and RealVNC's 4.1 are 3.8.
    if theirs < _VERSIONS[0]:
        raise RemoteProtocolError(f"expected RFB 3.3 or later, got {theirs[0]}.{theirs[1]}")
    return max(version for version in _VERSIONS if version <= theirs)


class ClientHandshake:
    """A viewer's handshake; the caller sends and empties `outgoing`."""

    def __init__(self, password: str | None, shared: bool, limits: Limits) -> None:
        if password is not None:
            handshake.check_password(password)
        self._password = password
        self._shared = shared
        self._limits = limits
        self.stage = Stage.VERSION
        self.version: Version = (0, 0)
        self.security = Security.INVALID
        self.outgoing: list[bytes] = []

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        stage = self.stage
        if stage is Stage.VERSION:
            # Check from the first byte on: greetings of other protocols may be shorter.
            if not _BEGINNING.startswith(bytes(buffer[start : min(end, start + 4)])):
                handshake.decode_version(buffer[:end], start)
            return handshake.VERSION_SIZE
        if stage is Stage.SECURITY:
            return handshake.security_size(buffer, start, end, self.version, self._limits)
        if stage is Stage.CHALLENGE:
            return handshake.CHALLENGE_SIZE
        if stage is Stage.RESULT:
            return 4
        if stage is Stage.REASON:
            return handshake.reason_size(buffer, start, end, self._limits)
        return handshake.server_init_size(buffer, start, end, self._limits)

    def receive(self, message: Buffer) -> ServerInit | None:
        stage = self.stage
        if stage is Stage.VERSION:
            self._agree_on_version(handshake.decode_version(message))
        elif stage is Stage.SECURITY:
            self._choose(handshake.decode_security(message, self.version))
        elif stage is Stage.CHALLENGE:
            assert self._password is not None
            self.outgoing.append(handshake.respond(bytes(message), self._password))
            self.stage = Stage.RESULT
        elif stage is Stage.RESULT:
            self._receive_result(handshake.decode_result(message))
        elif stage is Stage.REASON:
            raise PeerError(handshake.decode_reason(message))
        else:
            self.stage = Stage.OVER
            return handshake.decode_server_init(message)
        return None

    def _agree_on_version(self, theirs: Version) -> None:
        self.version = _common_version(theirs)
        self.outgoing.append(handshake.encode_version(self.version))
        self.stage = Stage.SECURITY

    def _choose(self, offer: list[int] | str) -> None:
        if isinstance(offer, str):
            raise PeerError(offer)
        if Security.VNC in offer and self._password is not None:
            self.security = Security.VNC
        elif Security.NONE in offer:
            self.security = Security.NONE
        elif Security.VNC in offer:
            raise RemoteProtocolError(
                "the server requires a password (VNC authentication): pass auth='...'"
            )
        else:
            names, ours = (
                ", ".join(map(handshake.security_name, each))
                for each in (offer, (Security.NONE, Security.VNC))
            )
            raise RemoteProtocolError(
                f"the server offers only the security types {names}; rlwire supports {ours}"
            )
        if self.version >= (3, 7):
            self.outgoing.append(bytes((self.security,)))
        if self.security is Security.VNC:
            self.stage = Stage.CHALLENGE
        elif self.version >= (3, 8):
            self.stage = Stage.RESULT
        else:
            self._finish()  # without a password, older versions have no result

    def _receive_result(self, result: int) -> None:
        if result == 0:
            self._finish()
        elif self.version >= (3, 8):
            self.stage = Stage.REASON
        elif result in (1, 2):
            raise PeerError("wrong password" if result == 1 else "too many wrong passwords")
        else:
            raise DecodeError(f"unknown security result {result}")

    def _finish(self) -> None:
        self.outgoing.append(bytes((self._shared,)))
        self.stage = Stage.INIT


class ServerHandshake:
    """A server's handshake; the caller sends and empties `outgoing`."""

    def __init__(
        self,
        counts: Counter[str],
        password: str | None,
        view_password: str | None,
        password_check: PasswordCheck | None,
    ) -> None:
        self._counts = counts
        self._password, self._view_password = password, view_password
        self._password_check = password_check
        self.view_only = False
        self._stage = Stage.VERSION
        self._version = _VERSIONS[-1]
        self._security = Security.NONE if password is None else Security.VNC
        self._challenge = b""
        self.outgoing: list[Buffer] = [handshake.encode_version(self._version)]

    def frame_size(self, have: int) -> int:
        """Return the size of the next message; 0 also while a password is delayed."""
        if self._stage is Stage.VERSION:
            return handshake.VERSION_SIZE
        if self._stage is not Stage.CHALLENGE:
            return 1
        check = self._password_check
        if have < handshake.CHALLENGE_SIZE or (check is not None and check.must_wait()):
            return 0
        return handshake.CHALLENGE_SIZE

    def receive(self, message: Buffer) -> bool:
        if self._stage is Stage.VERSION:
            self._agree_on_version(handshake.decode_version(message))
        elif self._stage is Stage.SECURITY:
            if message[0] != self._security:
                raise RemoteProtocolError(f"security type {message[0]} was not offered")
            self._select()
        elif self._stage is Stage.CHALLENGE:
            self._compare(bytes(message))
        else:
            # ClientInit; a request for exclusive access is ignored.
            self._stage = Stage.OVER
        return self._stage is Stage.OVER

    def reject(self, reason: str) -> list[Buffer]:
        """Return unsent bytes and the reason; 3.3 and 3.7 have no reason after a challenge."""
        output, self.outgoing = self.outgoing, []
        if self._stage is Stage.VERSION:
            output.append(handshake.encode_security(reason, self._version))
        elif self._stage in (Stage.SECURITY, Stage.CHALLENGE):
            output.append(handshake.encode_result(reason, self._version))
        self._stage = Stage.OVER
        return output

    def _agree_on_version(self, theirs: Version) -> None:
        self._version = _VERSIONS[0]  # of a rejection
        self._version = _common_version(theirs)
        self.outgoing.append(handshake.encode_security([self._security], self._version))
        self._stage = Stage.SECURITY
        if self._version < (3, 7):  # the server selects the type
            self._select()

    def _select(self) -> None:
        if self._security is Security.VNC:
            self._challenge = os.urandom(handshake.CHALLENGE_SIZE)
            self.outgoing.append(self._challenge)
            self._stage = Stage.CHALLENGE
        else:
            self._admit(has_result=self._version >= (3, 8))

    def _compare(self, response: bytes) -> None:
        right = self._matches(response, self._password)
        if self._matches(response, self._view_password) and not right:
            self.view_only = right = True
        if not right:
            self._counts["refused"] += 1
            raise RemoteProtocolError("the password is wrong")
        if self._password_check is not None:
            self._password_check.succeeded()
        self._admit()

    def _admit(self, has_result: bool = True) -> None:
        if has_result:
            self.outgoing.append(handshake.encode_result(None, self._version))
        self._stage = Stage.INIT

    def _matches(self, response: bytes, password: str | None) -> bool:
        return password is not None and hmac.compare_digest(
            handshake.respond(self._challenge, password), response
        )


def check_passwords(password: str | None, view_password: str | None) -> None:
    for one in (password, view_password):
        if one is not None:
            handshake.respond(bytes(handshake.CHALLENGE_SIZE), one)
    if view_password is not None:
        if password is None:
            raise ValueError("view_auth needs auth")
        if handshake.check_password(password) == handshake.check_password(view_password):
            raise ValueError("auth and view_auth must differ in their first eight characters")
