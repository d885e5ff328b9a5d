"""RFB's handshake, both sides (RFC 6143, sections 7.1 to 7.3 and appendix A)."""

from __future__ import annotations

import hmac
import os
from collections import Counter
from collections.abc import Generator, Sequence
from enum import Enum
from typing import Any, Final

from rlwire.codecs.rfb import handshake
from rlwire.codecs.rfb.handshake import Security, ServerInit, Version
from rlwire.codecs.rfb.messages import Buffer
from rlwire.errors import DecodeError, PeerError, RemoteProtocolError, RlwireError, for_peer
from rlwire.limits import Limits
from rlwire.sessions.layer import Layer, LayerPhase
from rlwire.sessions.passwords import PasswordCheck

_VERSIONS: Final[tuple[Version, ...]] = ((3, 3), (3, 7), (3, 8))
_BEGINNING: Final = b"RFB "
_REASON: Final = 500  # characters of an error text that is sent to the viewer


class Stage(Enum):
    VERSION = "its version"
    SECURITY = "its security types"
    CHALLENGE = "a challenge, or the response to one"
    RESULT = "the security result"
    REASON = "the reason of the security result"
    INIT = "its init message"
    OVER = "nothing more of the handshake"


class RfbSession(Layer):
    """What both sides of a connection share."""

    active = True
    closes_first = True

    def __init__(self) -> None:
        self.phase = LayerPhase.OPENING
        self._outgoing: list[Any] = []
        self._stages = self._shake_hands()
        self._stage = next(self._stages)

    def _shake_hands(self) -> Generator[Stage, Buffer, Any]:
        """Yield what the next message is."""
        raise NotImplementedError

    def _continue(self, message: Buffer) -> Any:
        """Receive a message of the handshake; return the result of a finished one, else None."""
        try:
            self._stage = self._stages.send(message)
        except StopIteration as end:
            self._stage = Stage.OVER
            return end.value
        return None

    def redact(self, data: Buffer, sent: bool) -> Buffer:
        """Return a message without a challenge or its response, for a recording."""
        secret = self.phase is not LayerPhase.OPEN and len(data) == handshake.CHALLENGE_SIZE
        return b"*" * len(data) if secret else data


def _common_version(theirs: Version) -> Version:
    # Appendix A: unknown versions are treated as 3.3. Apple's 3.889 and RealVNC's 4.1 are 3.8.
    if theirs < _VERSIONS[0]:
        raise RemoteProtocolError(f"expected RFB 3.3 or later, got {theirs[0]}.{theirs[1]}")
    return max(version for version in _VERSIONS if version <= theirs)


class ClientHandshake(RfbSession):
    """A viewer's handshake."""

    def __init__(self, password: str | None, shared: bool, limits: Limits) -> None:
        if password is not None:
            handshake.check_password(password)
        self._password = password
        self._shared = shared
        self._limits = limits
        self.version: Version = (0, 0)
        super().__init__()

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        stage = self._stage
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

    def _shake_hands(self) -> Generator[Stage, Buffer, ServerInit]:
        self.version = _common_version(handshake.decode_version((yield Stage.VERSION)))
        self._outgoing.append(handshake.encode_version(self.version))
        security = self._choose(handshake.decode_security((yield Stage.SECURITY), self.version))
        if self.version >= (3, 7):
            self._outgoing.append(bytes((security,)))
        if security is Security.VNC:
            assert self._password is not None
            challenge = bytes((yield Stage.CHALLENGE))
            self._outgoing.append(handshake.respond(challenge, self._password))
        if security is Security.VNC or self.version >= (3, 8):
            result = handshake.decode_result((yield Stage.RESULT))
            if result and self.version >= (3, 8):
                raise PeerError(handshake.decode_reason((yield Stage.REASON)))
            if result in (1, 2):
                raise PeerError("wrong password" if result == 1 else "too many wrong passwords")
            if result:
                raise DecodeError(f"unknown security result {result}")
        self._outgoing.append(bytes((self._shared,)))
        return handshake.decode_server_init((yield Stage.INIT))

    def _choose(self, offer: list[int] | str) -> Security:
        if isinstance(offer, str):
            raise PeerError(offer)
        if Security.VNC in offer and self._password is not None:
            return Security.VNC
        if Security.NONE in offer:
            return Security.NONE
        if Security.VNC in offer:
            raise RemoteProtocolError(
                "the server requires a password (VNC authentication): pass auth='...'"
            )
        names, ours = (
            ", ".join(map(handshake.security_name, each))
            for each in (offer, (Security.NONE, Security.VNC))
        )
        raise RemoteProtocolError(
            f"the server offers only the security types {names}; rlwire supports {ours}"
        )


class ServerHandshake(RfbSession):
    """A server's handshake."""

    def __init__(
        self,
        counts: Counter[str],
        password: str | None,
        view_password: str | None,
        password_check: PasswordCheck | None,
    ) -> None:
        self._counts = counts
        self._password, self._view_password = password, view_password
        self.password_check = password_check
        self.view_only = False
        self._version = _VERSIONS[-1]
        super().__init__()
        self._outgoing.append(handshake.encode_version(self._version))

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the size of the next message; 0 also while a password is delayed."""
        if self._stage is Stage.VERSION:
            return handshake.VERSION_SIZE
        if self._stage is not Stage.CHALLENGE:
            return 1
        check = self.password_check
        if end - start < handshake.CHALLENGE_SIZE or (check is not None and check.must_wait()):
            return 0
        return handshake.CHALLENGE_SIZE

    def _shake_hands(self) -> Generator[Stage, Buffer, bool]:
        theirs = handshake.decode_version((yield Stage.VERSION))
        self._version = _VERSIONS[0]  # of a rejection
        self._version = version = _common_version(theirs)
        security = Security.NONE if self._password is None else Security.VNC
        self._outgoing.append(handshake.encode_security([security], version))
        if version >= (3, 7):  # else the server selects the type
            kind = (yield Stage.SECURITY)[0]
            if kind != security:
                raise RemoteProtocolError(f"security type {kind} was not offered")
        if security is Security.VNC:
            challenge = os.urandom(handshake.CHALLENGE_SIZE)
            self._outgoing.append(challenge)
            self._compare(challenge, bytes((yield Stage.CHALLENGE)))
        if security is Security.VNC or version >= (3, 8):
            self._outgoing.append(handshake.encode_result(None, version))
        yield Stage.INIT  # a request for exclusive access is ignored
        return True

    def reject(self, error: RlwireError) -> Sequence[Buffer]:
        """Return unsent bytes and the reason; 3.3 and 3.7 have no reason after a challenge."""
        before, self.phase = self.phase, LayerPhase.CLOSED
        if before is not LayerPhase.OPENING:
            return []
        reason = for_peer(error, "the server")[:_REASON]
        if self._stage is Stage.VERSION:
            self._outgoing.append(handshake.encode_security(reason, self._version))
        elif self._stage in (Stage.SECURITY, Stage.CHALLENGE):
            self._outgoing.append(handshake.encode_result(reason, self._version))
        return self.output()

    def _compare(self, challenge: bytes, response: bytes) -> None:
        right, view_only = (
            one is not None and hmac.compare_digest(handshake.respond(challenge, one), response)
            for one in (self._password, self._view_password)
        )
        if not (right or view_only):
            self._counts["refused"] += 1
            raise RemoteProtocolError("the password is wrong")
        self.view_only = not right
        if self.password_check is not None:
            self.password_check.succeeded()


def check_passwords(password: str | None, view_password: str | None) -> None:
    for one in (password, view_password):
        if one is not None:
            handshake.respond(bytes(handshake.CHALLENGE_SIZE), one)
    if view_password is not None:
        if password is None:
            raise ValueError("view_auth needs auth")
        if handshake.check_password(password) == handshake.check_password(view_password):
            raise ValueError("auth and view_auth must differ in their first eight characters")
