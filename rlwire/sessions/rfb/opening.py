"""How a viewer opens an RFB connection: version, security, passwords, and what the desktop is.

`Opening` is the part of `RfbClientSession` that is over when pixels begin.

Source: RFC 6143, section 7.1 to 7.3 and appendix A.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

from rlwire.codecs.rfb import handshake
from rlwire.codecs.rfb.auth import check_password, respond
from rlwire.codecs.rfb.handshake import Security, ServerInit, Version, security_name
from rlwire.errors import DecodeError, PeerError, RemoteProtocolError
from rlwire.limits import Limits

Buffer: TypeAlias = bytes | bytearray | memoryview

_VERSIONS: Final[tuple[Version, ...]] = ((3, 3), (3, 7), (3, 8))

_BEGINNING = b"RFB "


class Stage(Enum):
    """What the server says next."""

    VERSION = "its version"
    SECURITY = "which security types it has"
    CHALLENGE = "a challenge"
    RESULT = "whether it lets us in"
    REASON = "why it does not let us in"
    INIT = "what its desktop is"
    OVER = "nothing more of the handshake"


class Opening:
    """A viewer's handshake; whoever says what is `outgoing` empties it."""

    def __init__(self, password: str | None, shared: bool, limits: Limits) -> None:
        if password is not None:
            check_password(password)
        self._password = password
        self._shared = shared
        self._limits = limits
        self.stage = Stage.VERSION
        self.version: Version = (0, 0)
        self.security = Security.INVALID
        self.outgoing: list[bytes] = []

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the size of what comes next, 0 if more bytes must tell."""
        stage = self.stage
        if stage is Stage.VERSION:
            # Told from the first bytes on: others' greetings may be shorter than ours.
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
        """Take the next message; returns the last one."""
        stage = self.stage
        if stage is Stage.VERSION:
            self._agree_on_version(handshake.decode_version(message))
        elif stage is Stage.SECURITY:
            self._choose(handshake.decode_security(message, self.version))
        elif stage is Stage.CHALLENGE:
            assert self._password is not None
            self.outgoing.append(respond(bytes(message), self._password))
            self.stage = Stage.RESULT
        elif stage is Stage.RESULT:
            self._hear_result(handshake.decode_result(message))
        elif stage is Stage.REASON:
            raise PeerError(handshake.decode_reason(message))
        else:
            self.stage = Stage.OVER
            return handshake.decode_server_init(message)
        return None

    def _agree_on_version(self, theirs: Version) -> None:
        # Appendix A: 3.5 was said by mistake, and others are to be taken for 3.3; whoever is
        # beyond 3.8 (Apple says 3.889, RealVNC 4.1) knows it.
        if theirs < (3, 3):
            raise RemoteProtocolError(
                f"it speaks RFB {theirs[0]}.{theirs[1]}; rlwire begins at 3.3"
            )
        self.version = max(version for version in _VERSIONS if version <= theirs)
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
                "it asks for a password (VNC authentication) and none was given: auth='...'"
            )
        else:
            names = ", ".join(map(security_name, offer))
            raise RemoteProtocolError(
                f"it has the security types {names} only; rlwire has "
                f"{security_name(Security.NONE)} and {security_name(Security.VNC)}"
            )
        if self.version >= (3, 7):
            self.outgoing.append(bytes((self.security,)))
        if self.security is Security.VNC:
            self.stage = Stage.CHALLENGE
        elif self.version >= (3, 8):
            self.stage = Stage.RESULT
        else:
            self._go_in()  # older ones have no result of nothing

    def _hear_result(self, result: int) -> None:
        if result == 0:
            self._go_in()
        elif self.version >= (3, 8):
            self.stage = Stage.REASON
        elif result in (1, 2):
            raise PeerError(
                "wrong password" if result == 1 else "wrong password, and too many before"
            )
        else:
            raise DecodeError(f"{result} is no security result")

    def _go_in(self) -> None:
        self.outgoing.append(handshake.encode_client_init(self._shared))
        self.stage = Stage.INIT
