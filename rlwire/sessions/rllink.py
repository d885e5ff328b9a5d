"""RLlink: a simulator's client sends requests, a trainer's server replies.

`REPLIES` has all requests; one may be pending at a time. A server replies in the form of the first
message that it receives.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from rlwire.codecs import rllink
from rlwire.codecs.rllink.frames import HEAD, plain_episode
from rlwire.codecs.rllink.frames import frame_size as whole_size
from rlwire.codecs.rllink.messages import Codec
from rlwire.codecs.websocket.handshake import same_secret
from rlwire.errors import (
    DecodeError,
    LocalProtocolError,
    PeerError,
    RemoteProtocolError,
    RlwireError,
    for_peer,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, Layer, LayerPhase

__all__ = ["REPLIES", "RLlinkClientSession", "RLlinkServerSession"]

REPLIES: Final[dict[type, type | None]] = {
    rllink.Ping: rllink.Pong,
    rllink.GetConfig: rllink.SetConfig,
    rllink.GetState: rllink.SetState,
    rllink.Episodes: None,
    rllink.EpisodesAndGetState: rllink.SetState,
}
"""Each request and its reply."""

_FIRST: Final = 4096 - HEAD
"""Bytes of a body before the token was checked: enough for a `Ping`, and cheap to decode."""

_PING: Final = re.compile(rb"PING|\\u")  # also in JSON with escapes

_NO_TOKEN: Final = "the server requires a token, but the client sent none"


class _Session(Layer):
    """Base of both sides; `form` is that of sent bodies."""

    def __init__(self, form: rllink.Form, limits: Limits | None) -> None:
        limits = DEFAULT if limits is None else limits
        self._maximum, self._limit = min(limits.received, limits.message), "received"  # of a body
        # copy=None: arrays are views of the block if they are aligned.
        self._views = Codec(limits=limits, copy=None)
        self._copies = Codec(limits=limits, copy=True)
        self._pending: type | None = None
        self.form: rllink.Form = form

    @property
    def pending(self) -> int:
        return int(self._pending is not None)

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        return whole_size(buffer, start, end, self._maximum, self._limit)

    def receive(self, frame: Buffer) -> list[Any]:
        # Views of bytes would be read-only.
        codec = self._copies if isinstance(frame, bytes) else self._views
        return [self._message(codec, frame[HEAD:])]

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        if whole_size(buffer, 0, size, self._maximum, self._limit) != size:
            return None
        return [self._message(self._copies, buffer[HEAD:size])]

    def redact(self, data: Buffer, sent: bool) -> Buffer:
        part = sent and not bytes(data[:HEAD]).isdigit()  # of a longer frame
        if part or (len(data) > HEAD + _FIRST and not _PING.search(data)):
            return data
        try:
            kind, fields = self._copies.open(data[HEAD:])
            if kind is not rllink.Ping or not fields:
                return data
            ping: Any = self._copies.read(kind, fields)
        except RlwireError:
            return bytes(data[:HEAD]) + b"*" * len(data[HEAD:])
        # Fields that are not known, as of another program, are left out.
        ping = dataclasses.replace(ping, token=ping.token and "*" * len(ping.token))
        return self._copies.encode(ping, "json" if data[HEAD] == 0x7B else "msgpack")

    def _message(self, codec: Codec, body: Buffer) -> rllink.Message:
        """Decode a body, if it is allowed now."""
        raise NotImplementedError


class RLlinkClientSession(_Session):
    """The simulator's side: sends requests, receives replies.

    The first request must be a `Ping`; the session adds the token. Episodes are
    `rlwire.codecs.rllink.Episode`, or maps in the form of the bodies.

    Args:
        form: the form of bodies; ``"json"`` for servers of Ray before 2.44.
        token: for an rlwire server that requires one.
    """

    def __init__(
        self,
        *,
        form: rllink.Form = "msgpack",
        token: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(form, limits)
        self._ping = rllink.Ping(token, True)
        self._brief = False

    def send(self, event: rllink.Message) -> list[Any]:
        kind = type(event)
        if self.closed:
            raise LocalProtocolError(f"{kind.__name__} cannot be sent: the session has ended")
        if self._pending is not None or kind not in REPLIES:
            waiting = self._pending and f"{self._pending.__name__} waits for its reply"
            known = f"a client sends {', '.join(kind.__name__ for kind in REPLIES)}"
            raise LocalProtocolError(f"{kind.__name__} cannot be sent: {waiting or known}")
        if kind is rllink.Ping:
            event = self._ping
        buffers = self._views.encode_parts(event, self.form, self._brief)
        self._pending = None if REPLIES[kind] is None else kind
        return buffers

    def _message(self, codec: Codec, body: Buffer) -> rllink.Message:
        kind, fields = codec.open(body)
        asked = self._pending
        if kind is not rllink.Refused and (asked is None or REPLIES[asked] is not kind):
            to = "without a request" if asked is None else f"in reply to {asked.__name__}"
            raise RemoteProtocolError(f"the server sent {kind.__name__} {to}")
        message = codec.read(kind, fields)
        self._pending = None
        if isinstance(message, rllink.Refused):
            self.phase = LayerPhase.CLOSED
            raise PeerError(f"the server rejected a message: {message.message}")
        if isinstance(message, rllink.Pong):
            self._brief = message.rlwire
        return message


class RLlinkServerSession(_Session):
    """The trainer's side: receives requests, sends replies.

    Episodes are decoded to `rlwire.codecs.rllink.Episode`. An error ends the session. RLlink has no
    error message: `Refused` is rlwire's own, and goes to clients whose first message was allowed.

    Args:
        token: the token that clients must send in a first `Ping`; None accepts all clients.
    """

    def __init__(self, *, token: str | None = None, limits: Limits | None = None) -> None:
        super().__init__("msgpack", limits)
        self._token = token
        if token is not None:
            if len(self._copies.encode(rllink.Ping(token), "json")) > HEAD + _FIRST:
                raise ValueError(f"the token has {len(token)} characters, too many for a Ping")
            self._known_maximum = self._maximum
            if self._maximum > _FIRST:
                self._maximum, self._limit = _FIRST, "a first message, with a token"
        self._pong = rllink.Pong()
        self._greeted = False  # whether an allowed first message was received

    def _message(self, codec: Codec, body: Buffer) -> rllink.Message:
        kind, fields = codec.open(body)
        if self.closed:
            raise RemoteProtocolError("the session has ended")
        if kind not in REPLIES:
            raise RemoteProtocolError(f"the client sent {kind.__name__}, a server's message")
        if kind is not rllink.Ping and not self._greeted and self._token is not None:
            raise RemoteProtocolError(_NO_TOKEN)
        if self._pending is not None:
            raise RemoteProtocolError(
                f"the client sent {kind.__name__} before the reply to {self._pending.__name__}"
            )
        message = codec.read(kind, fields)
        if not self._greeted:
            self._first(message, "json" if body[0] == 0x7B else "msgpack")
        if isinstance(message, rllink.Episodes):
            self._read(message)
        elif isinstance(message, rllink.Ping):
            self._pong = rllink.Pong(message.rlwire)
        self._pending = kind if REPLIES[kind] is not None else None
        return message

    def _first(self, message: rllink.Message, form: rllink.Form) -> None:
        self.form = form
        sent = message.token if isinstance(message, rllink.Ping) else None
        # Always compared, so that the time does not reveal whether a token was sent.
        if self._token is not None and not same_secret(sent or "", self._token):
            raise RemoteProtocolError("the client sent a wrong token" if sent else _NO_TOKEN)
        if self._token is not None:
            self._maximum, self._limit = self._known_maximum, "received"
        self._greeted = True

    def reject(self, error: RlwireError) -> Any:
        if self.closed or not self._greeted:
            return super().reject(error)
        self.phase = LayerPhase.CLOSED
        return self._views.encode_parts(rllink.Refused(for_peer(error, "the server")), self.form)

    def _read(self, message: rllink.Episodes) -> None:
        json = self.form == "json"
        read = rllink.Episode.from_document if json else rllink.Episode.from_state
        episodes, steps, number = message.episodes, 0, message.weights_seq_no
        for index, given in enumerate(episodes):
            episode = None if json else plain_episode(given, rllink.Episode, number)
            if episode is None:
                episode = read(given, f"$.episodes[{index}]")
                episode.weights_seq_no = number
            episodes[index] = episode
            steps += len(episode.rewards) - episode.lookback
        if message.timesteps is not None and message.timesteps != steps:
            name = "env_steps" if self.form == "json" else "timesteps"
            raise DecodeError(
                f"{name} is {message.timesteps}, but the episodes have {steps} steps",
                path=f"$.{name}",
            )
        message.timesteps = steps

    def send(self, event: rllink.Message) -> list[Any]:
        """Return the buffers of a reply; after an error the request is still pending."""
        kind = type(event)
        asked = self._pending
        if self.closed or asked is None or REPLIES[asked] is not kind:
            why = "no request" if asked is None or self.closed else asked.__name__
            raise LocalProtocolError(f"{kind.__name__} cannot be sent: {why} waits for a reply")
        if kind is rllink.Pong:
            event = self._pong
        buffers = self._views.encode_parts(event, self.form)
        self._pending = None
        return buffers
