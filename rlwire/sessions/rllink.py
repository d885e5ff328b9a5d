"""RLlink: a simulator (`RLlinkClientSession`) asks, a trainer (`RLlinkServerSession`) replies.

`REPLIES` is all that may be sent, one request at a time. A server replies in the form of the first
message that it receives. Bodies are compressed after the `Pong` that agrees to the client's offer.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any, Final, TypeAlias

from rlwire.codecs.rllink import (
    Codec,
    Episode,
    Episodes,
    EpisodesAndGetState,
    Form,
    GetConfig,
    GetState,
    Message,
    Ping,
    Pong,
    SetConfig,
    SetState,
    frame_size,
)
from rlwire.codecs.rllink.messages import HEAD, Compression, zstandard
from rlwire.codecs.websocket.handshake import same_secret
from rlwire.errors import DecodeError, LocalProtocolError, RemoteProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits

__all__ = ["REPLIES", "RLlinkClientSession", "RLlinkServerSession"]

Buffer: TypeAlias = bytes | bytearray | memoryview

REPLIES: Final[dict[type, type | None]] = {
    Ping: Pong,
    GetConfig: SetConfig,
    GetState: SetState,
    Episodes: None,
    EpisodesAndGetState: SetState,
}
"""Each request and its reply."""

_FIRST: Final = 4096 - HEAD
"""Bytes of a body before the token has come: enough for a `Ping`, and cheap to decode."""

_NO_TOKEN: Final = "a token is needed, and none was sent"


class _Session:
    """What both sides share.

    Attributes:
        closed: whether the conversation is over.
        form: of the bodies that are sent.
        compression: of the bodies that are sent, and allowed of those received.
    """

    def __init__(self, form: Form, limits: Limits | None) -> None:
        limits = DEFAULT if limits is None else limits
        self._bound = (min(limits.received, limits.message), "received")  # of a body, its name
        # copy=None: arrays are views of the block where they are aligned.
        self._views = Codec(limits=limits, copy=None)
        self._copies = Codec(limits=limits, copy=True)
        self._pending: type | None = None
        self.closed = False
        self.form: Form = form
        self.compression: Compression | None = None

    @property
    def pending(self) -> bool:
        return self._pending is not None

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        return frame_size(buffer, start, end, *self._bound)

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return 0: no single array of a message is to be aligned."""
        return 0

    def next_deadline(self) -> float | None:
        return None

    def receive(self, frame: Buffer) -> list[Any]:
        """Return the message in a frame.

        Raises:
            DecodeError, LimitExceeded, MissingExtra: it cannot be read.
            RemoteProtocolError: it is not allowed now.
        """
        # Views of bytes, which an expanded body is too, would be read-only.
        copied = self.compression is not None or isinstance(frame, bytes)
        codec = self._copies if copied else self._views
        kind, fields = codec.open(frame, self.compression)
        self._allow(kind)
        return [self._received(codec.read(kind, fields), codec.form_of(frame))]

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        if self.frame_size(buffer, 0, size) != size:
            return None
        return self.receive(bytes(buffer[:size]))

    def refuse(self, error: RlwireError) -> list[Any]:
        """Close the session; RLlink has no message for errors."""
        self.closed = True
        return []

    def _allow(self, kind: type) -> None:
        raise NotImplementedError

    def _received(self, message: Message, form: Form) -> Message:
        raise NotImplementedError


class RLlinkClientSession(_Session):
    """The simulator's side: sends requests, receives replies.

    Its first request is a `Ping`, to which token and compression are added. Episodes are
    `rlwire.codecs.rllink.Episode`, or maps in the form of its bodies.

    Args:
        form: of its bodies; ``"json"`` for servers of Ray before 2.44.
        token: for a server of rlwire's that asks for one.
        compression: ``"zstd"``, used if the server agrees.
        limits: maxima for both directions.

    Raises:
        MissingExtra: zstandard is not installed, and `compression` needs it.
    """

    def __init__(
        self,
        *,
        form: Form = "msgpack",
        token: str | None = None,
        compression: Compression | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(form, limits)
        if compression not in (None, "zstd"):
            raise ValueError(f"compression must be 'zstd' or None, not {compression!r}")
        if compression is not None:
            zstandard()
        self._ping = Ping(token, compression)

    def send(self, event: Message) -> list[Any]:
        """Return the buffers of a request.

        Raises:
            LocalProtocolError: not a request, or another one waits for its reply.
            EncodeError, LimitExceeded: it cannot be written.
        """
        kind = type(event)
        if self.closed:
            raise LocalProtocolError(f"{kind.__name__} cannot be sent: the conversation is over")
        if self._pending is not None or kind not in REPLIES:
            waiting = self._pending and f"{self._pending.__name__} waits for its reply"
            known = f"a client sends {', '.join(kind.__name__ for kind in REPLIES)}"
            raise LocalProtocolError(f"{kind.__name__} cannot be sent: {waiting or known}")
        if isinstance(event, Episodes):
            event = dataclasses.replace(event, episodes=list(map(self._written, event.episodes)))
        elif kind is Ping:
            event = self._ping
        buffers = self._views.encode_parts(event, self.form, self.compression)
        self._pending = None if REPLIES[kind] is None else kind
        return buffers

    def _written(self, episode: Any) -> Any:
        if not isinstance(episode, Episode):
            return episode
        return episode.to_document() if self.form == "json" else episode.to_state()

    def _allow(self, kind: type) -> None:
        asked = self._pending
        if asked is None or REPLIES[asked] is not kind:
            wanted = "nothing was asked" if asked is None else f"{asked.__name__} was asked"
            raise RemoteProtocolError(f"the server sent {kind.__name__}; {wanted}")

    def _received(self, message: Message, form: Form) -> Message:
        self._pending = None
        if isinstance(message, Pong):
            self.compression = message.compression and self._ping.compression
        return message


class RLlinkServerSession(_Session):
    """The trainer's side: receives requests, sends replies.

    Episodes come as `rlwire.codecs.rllink.Episode`. A `Pong` agrees to the client's compression if
    zstandard is installed. Any error ends the conversation, since RLlink has no message for it.

    Args:
        token: what clients must send in a first `Ping`; None accepts all clients.
        limits: maxima for both directions.
    """

    def __init__(self, *, token: str | None = None, limits: Limits | None = None) -> None:
        super().__init__("msgpack", limits)
        self._token = token
        self._known_bound = self._bound
        if token is not None:
            if len(self._copies.encode(Ping(token), "json")) > HEAD + _FIRST:
                raise ValueError(f"a token of {len(token)} characters does not fit a first message")
            self._bound = min(self._bound, (_FIRST, "a first message, with a token"))
        self._pong = Pong()
        self._greeted = False  # whether the first message has come, and is allowed

    def _allow(self, kind: type) -> None:
        if self.closed:
            raise RemoteProtocolError("the conversation is over")
        if kind not in REPLIES:
            raise RemoteProtocolError(f"the client sent {kind.__name__}, which a server sends")
        if kind is not Ping and not self._greeted and self._token is not None:
            raise RemoteProtocolError(_NO_TOKEN)
        if self._pending is not None:
            raise RemoteProtocolError(
                f"the client sent {kind.__name__} before the reply to {self._pending.__name__}"
            )

    def _received(self, message: Message, form: Form) -> Message:
        if not self._greeted:
            self._first(message, form)
        if isinstance(message, Episodes):
            message = self._read(message)
        if isinstance(message, Ping):
            known = importlib.util.find_spec("zstandard") is not None
            self._pong = Pong(message.compression if known else None)
        self._pending = type(message) if REPLIES[type(message)] is not None else None
        return message

    def _first(self, message: Message, form: Form) -> None:
        self.form = form
        sent = message.token if isinstance(message, Ping) else None
        # Always compared, so that the time does not tell whether there was one.
        if self._token is not None and not same_secret(sent or "", self._token):
            raise RemoteProtocolError("a wrong token" if sent else _NO_TOKEN)
        self._greeted, self._bound = True, self._known_bound

    def _read(self, message: Episodes) -> Episodes:
        """Return the message with all its episodes read, or raise."""
        read = Episode.from_document if self.form == "json" else Episode.from_state
        episodes = [
            read(episode, f"$.episodes[{index}]") for index, episode in enumerate(message.episodes)
        ]
        steps = sum(map(len, episodes))
        if message.timesteps is not None and message.timesteps != steps:
            raise DecodeError(
                f"timesteps is {message.timesteps}, and the episodes have {steps} steps",
                path="$.timesteps",
            )
        return dataclasses.replace(message, episodes=episodes)

    def send(self, event: Message) -> list[Any]:
        """Return the buffers of a reply.

        Raises:
            LocalProtocolError: no request waits for it.
            EncodeError, LimitExceeded: it cannot be written; the reply is still due.
        """
        kind = type(event)
        asked = self._pending
        if self.closed or asked is None or REPLIES[asked] is not kind:
            why = "nothing" if asked is None or self.closed else asked.__name__
            raise LocalProtocolError(f"{kind.__name__} cannot be sent: {why} waits for a reply")
        if kind is Pong:
            event = self._pong
        buffers = self._views.encode_parts(event, self.form, self.compression)
        self._pending = None
        if kind is Pong:
            self.compression = self._pong.compression
        return buffers
