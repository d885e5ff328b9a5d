"""RLlink: a simulator (`Client`) asks, a trainer (`Server`) answers, one request at a time.

`REPLIES` is all that may be said. Episodes alone are not answered; all else is, and nothing may be
asked before the answer has come: after `EpisodesAndGetState` that is the wait for new weights.

Both forms of the body are read; a server answers in the form of the first one that it read, a
client speaks the one it was told. What goes beyond RLlink (a token, compression) is agreed on in
the first `Ping` and `Pong`, so that peers that do not know it see nothing.

Not here: bytes (`rlwire.codecs.rllink`), what is done with episodes (`rlwire.rllink`).
"""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any, Final, NoReturn, TypeAlias

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
from rlwire.codecs.rllink.compression import COMPRESSIONS, Compression
from rlwire.codecs.rllink.messages import HEAD
from rlwire.codecs.websocket.handshake import same_secret
from rlwire.errors import (
    DecodeError,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
)
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
"""Each request, and what answers it."""

_FIRST: Final = 4096 - HEAD
"""Bytes of a body before the token has come: enough for a `Ping`, and little to decode."""

_NO_TOKEN: Final = "a token is needed, and none was sent"


class _Session:
    """What both sides share.

    Attributes:
        closed: whether the conversation is over.
        form: of the bodies that are sent.
        compression: of the bodies that are sent; None for none.
    """

    def __init__(self, form: Form, limits: Limits | None) -> None:
        limits = DEFAULT if limits is None else limits
        self._bound = (min(limits.received, limits.message), "received")  # of a body, its name
        # None: views of the block where numbers are aligned there; of bytes, which are small
        # messages, nobody could write to these.
        self._views = Codec(limits=limits, copy=None)
        self._copies = Codec(limits=limits, copy=True)
        self.closed = False
        self.form: Form = form
        self.compression: str | None = None

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the size of the frame that begins at `start`, 0 if more bytes must tell."""
        return frame_size(buffer, start, end, *self._bound)

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return 0: a message has many arrays, and none of them is large more than others."""
        return 0

    def next_deadline(self) -> float | None:
        """Return None: no rule is timed."""
        return None

    def receive(self, frame: Buffer) -> list[Any]:
        """Return the message in a frame.

        Raises:
            DecodeError, LimitExceeded, MissingExtra: it cannot be read.
            RemoteProtocolError: it is not allowed now.
        """
        codec = self._copies if isinstance(frame, bytes) else self._views
        kind, fields = codec.open(frame, self.compression)
        self._allow(kind)
        return self._take(codec.read(kind, fields), codec.form_of(frame))

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Return the message in the one frame that fills ``buffer[:size]``, None if none does."""
        if self.frame_size(buffer, 0, size) != size:
            return None
        return self.receive(bytes(buffer[:size]))

    def refuse(self, error: RlwireError) -> list[Any]:
        """Close the session; RLlink has no words for what was wrong."""
        self.closed = True
        return []

    def _allow(self, kind: type) -> None:
        raise NotImplementedError

    def _take(self, message: Message, form: Form) -> list[Any]:
        raise NotImplementedError

    def _encode(self, message: Message) -> list[Any]:
        return self._views.encode_parts(message, self.form, self.compression)


class RLlinkClientSession(_Session):
    """The simulator's side: sends requests, receives what answers them.

    Its first request is a `Ping`, without arguments: what this client brings and can read is added.
    Episodes are `rlwire.codecs.rllink.Episode`, or maps in the form of its bodies.

    Args:
        form: of its bodies; ``"json"`` for servers of Ray before 2.44.
        token: what lets it in at a server of rlwire's that asks for one.
        compression: asked for; used if the server agrees.
        limits: maxima for both directions.
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
        if compression is not None and compression not in COMPRESSIONS:
            raise ValueError(f"compression must be one of {COMPRESSIONS}, not {compression!r}")
        offered = () if compression is None else (compression,)
        self._ping = Ping(True, offered, token)
        self._asked: type | None = None
        self._own = False  # whether the server is rlwire's, and wants no empty infos

    @property
    def pending(self) -> bool:
        """Whether a request waits for its answer."""
        return self._asked is not None

    def send(self, event: Message) -> list[Any]:
        """Return the buffers of a request.

        Raises:
            LocalProtocolError: it is none, or another one waits for its answer.
            EncodeError, LimitExceeded: it cannot be written.
        """
        kind = type(event)
        if self.closed or self._asked is not None or kind not in REPLIES:
            self._cannot(kind)
        buffers = self._encode(self._ping if kind is Ping else self._written(event))
        reply = REPLIES[kind]
        self._asked = kind if reply is not None else None
        return buffers

    def _written(self, event: Message) -> Message:
        """Return the message with its episodes as maps."""
        if not isinstance(event, Episodes):
            return event
        json = self.form == "json"
        episodes: list[Any] = []
        for episode in event.episodes:
            if isinstance(episode, Episode):
                episodes.append(
                    episode.to_document() if json else episode.to_state(empty_infos=not self._own)
                )
            else:
                episodes.append(episode)
        return dataclasses.replace(event, episodes=episodes)

    def _cannot(self, kind: type) -> NoReturn:
        if self.closed:
            why = "the conversation is over"
        elif self._asked is not None:
            why = f"{self._asked.__name__} waits for its answer"
        else:
            why = f"a client sends {', '.join(kind.__name__ for kind in REPLIES)}"
        raise LocalProtocolError(f"{kind.__name__} cannot be sent: {why}")

    def _allow(self, kind: type) -> None:
        asked = self._asked
        if asked is None or REPLIES[asked] is not kind:
            wanted = "nothing was asked" if asked is None else f"{asked.__name__} was asked"
            raise RemoteProtocolError(f"the server sent {kind.__name__}; {wanted}")

    def _take(self, message: Message, form: Form) -> list[Any]:
        self._asked = None
        if type(message) is Pong:
            self.compression, self._own = message.compression, message.own
        return [message]


class RLlinkServerSession(_Session):
    """The trainer's side: receives requests, sends what answers them.

    A `Ping` is to be answered by `pong`. Episodes come as `rlwire.codecs.rllink.Episode`. What is
    wrong ends the conversation, since RLlink has no words for it.

    Args:
        token: what clients must bring in a first `Ping`; None lets all in.
        limits: maxima for both directions.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__("msgpack", limits)
        self._token = token
        self._known_bound = self._bound
        if token is not None:
            if len(self._copies.encode(Ping(True, COMPRESSIONS, token), "json")) > HEAD + _FIRST:
                raise ValueError(f"a token of {len(token)} characters does not fit a first message")
            self._bound = min(self._bound, (_FIRST, "a first message, with a token"))
        installed = importlib.util.find_spec("zstandard") is not None
        self._allowed = COMPRESSIONS if installed else ()
        self._told = False  # whether the first message has come, and is allowed
        self._pending: type | None = None

    @property
    def pending(self) -> bool:
        """Whether a request waits for its answer."""
        return self._pending is not None

    def _allow(self, kind: type) -> None:
        if self.closed:
            raise RemoteProtocolError("the conversation is over")
        if kind not in REPLIES:
            raise RemoteProtocolError(f"the client sent {kind.__name__}, which a server sends")
        if kind is not Ping and not self._told and self._token is not None:
            raise RemoteProtocolError(_NO_TOKEN)
        if self._pending is not None:
            raise RemoteProtocolError(
                f"the client sent {kind.__name__} before {self._pending.__name__} was answered"
            )

    def _take(self, message: Message, form: Form) -> list[Any]:
        if not self._told:
            self._first(message, form)
        if isinstance(message, Episodes):
            message = self._read(message)
        kind = type(message)
        if REPLIES[kind] is not None:
            self._pending = kind
        return [message]

    def _read(self, message: Episodes) -> Episodes:
        """Return the message with its episodes read; all of them, or none is handed on."""
        read = Episode.from_document if self.form == "json" else Episode.from_state
        episodes = [
            read(episode, f"$.episodes[{index}]") for index, episode in enumerate(message.episodes)
        ]
        steps = sum(map(len, episodes))
        if message.timesteps is not None and message.timesteps != steps:
            raise DecodeError(
                f"{message.timesteps} timesteps are announced, and {steps} are there",
                path="$.timesteps",
            )
        return dataclasses.replace(message, episodes=episodes)

    def _first(self, message: Message, form: Form) -> None:
        self.form = form
        ping = message if type(message) is Ping else Ping()
        # Always compared, so that the time does not tell whether there was one.
        if self._token is not None and not same_secret(ping.token or "", self._token):
            raise RemoteProtocolError("a wrong token" if ping.token else _NO_TOKEN)
        self._told, self._bound = True, self._known_bound

    def pong(self, ping: Ping) -> Pong:
        """Return the answer to a `Ping`: the first compression that both know is used."""
        common = (kind for kind in ping.compressions if kind in self._allowed)
        return Pong(ping.own, next(common, None))

    def send(self, event: Message) -> list[Any]:
        """Return the buffers of an answer.

        Raises:
            LocalProtocolError: it answers nothing that was asked.
            EncodeError, LimitExceeded: it cannot be written; an answer is still owed.
        """
        kind = type(event)
        asked = self._pending
        if self.closed or asked is None or REPLIES[asked] is not kind:
            why = "nothing" if asked is None or self.closed else asked.__name__
            raise LocalProtocolError(f"{kind.__name__} cannot be sent: {why} waits for an answer")
        buffers = self._encode(event)
        self._pending = None
        if type(event) is Pong:
            self.compression = event.compression
        return buffers
