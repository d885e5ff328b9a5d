"""HTTP/2's connection: settings, streams, pings, deadlines, GOAWAY, and limits on abuse.

A subclass says what streams carry, in the hooks that begin with ``_on_``. Not supported: server
push, priorities, upgrades from HTTP/1.1.

Frames that bring nothing are counted by the codec (`CHAFF`). Streams that are ended at once are
counted here (`RESETS_ALLOWED`), whoever made us do it: each costs as much as a call.

Source: RFC 9113; the section numbers below are its.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypedDict

from rlwire.codecs import http2 as frames
from rlwire.codecs.http2 import Http2Error
from rlwire.codecs.http2.headers import Headers
from rlwire.errors import DeadlineExceeded, LimitExceeded, RlwireError, for_peer, quoted
from rlwire.limits import DEFAULT, Limits

Buffer: TypeAlias = bytes | bytearray | memoryview
Fields: TypeAlias = list[tuple[str, str]]
"""Names and values of a header list, in order."""

RESETS_ALLOWED = 1000
"""Streams that may be ended at once, above those that end in order; 50 more each second."""

STREAM_WINDOW = 4 * 1024 * 1024
"""Bytes that a peer may send in one stream before it is told to go on."""

_RESETS_PER_SECOND = 50
_REMEMBERED = 256  # streams that we have reset, on which something may still be under way
_ALL = 2**31 - 1
_DRAINING = b"draining"
_ASKING = b"hello?!?"
_HTTP1 = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 63\r\n\r\n"
    b"gRPC is spoken here: HTTP/2 with prior knowledge, or by ALPN h2\n"
)[:-1]


class Http2Options(TypedDict, total=False):
    """What both sides may be told.

    Attributes:
        limits: ``received`` is for a peer's messages, ``header`` for its lists of headers,
            ``unsent`` for what waits for its windows. None for the default ones.
        max_sent: bytes of a message that may be sent; by default as many as may be received.
        max_streams: streams that the peer may have open at a time.
        ping_interval: seconds of silence until the peer is asked for a sign of life; None: never.
        ping_timeout: seconds until it must have answered; None: any time.
        write_timeout: seconds for a peer to let something go of what waits for its window.
        unused_timeout: seconds that a connection may be without a stream, for a server.
    """

    limits: Limits | None
    max_sent: int | None
    max_streams: int
    ping_interval: float | None
    ping_timeout: float | None
    write_timeout: float | None
    unused_timeout: float | None


class Http2Stream(frames.Stream):
    """One stream; what is compiled of it knows its windows and messages.

    Attributes:
        waited: what had gone out when something last waited for the peer's window, and when.
        timeout: seconds for all of it, None for any time; from when the session hears the time.
        due: when these are over.
    """

    def __init__(self, number: int, read: Any = None, find_data: Any = None) -> None:
        super().__init__(number, read, find_data)
        self.waited: tuple[int, float] | None = None
        self.timeout: float | None = None
        self.due: float | None = None


class Http2Session(frames.Http2Endpoint):
    """One end of a connection.

    Attributes:
        closed: whether nothing more is sent or received.
        opened: whether the peer's settings have come.
        parting: set from any thread, has `drain` called as soon as something is said.
    """

    @property
    def hangs_up(self) -> bool:
        """Whether this side closes the stream first; see `TalkingSession`."""
        return True

    def __init__(self, client: bool, options: Http2Options) -> None:
        limits = options.get("limits") or DEFAULT
        received = min(limits.received, limits.message)
        max_sent = options.get("max_sent")
        max_sent = received if max_sent is None else max_sent
        self.max_received = received
        self.max_streams = options.get("max_streams", 100)
        for name, most in (("max_sent", max_sent), ("max_streams", self.max_streams)):
            if not isinstance(most, int) or not 0 < most < 2**31:
                raise ValueError(f"{name} must be positive and less than 2**31, not {most!r}")
        # Of the largest message and its prefix as much as the window of a connection can be.
        whole = min(max(received, STREAM_WINDOW) + 65535, _ALL)
        super().__init__(client, limits, STREAM_WINDOW, whole)
        self.max_sent = max_sent
        self._most_unsent = limits.unsent
        self._ping_interval = _seconds("ping_interval", options.get("ping_interval"))
        self._ping_timeout = _seconds("ping_timeout", options.get("ping_timeout", 60.0))
        self._write_timeout = _seconds("write_timeout", options.get("write_timeout", 60.0))
        self._unused_timeout = _seconds("unused_timeout", options.get("unused_timeout", 300.0))
        self.closed = self.opened = False
        self.parting = self._draining = False
        self._goaway = False  # whether no stream begins any more, as one side has said
        self._their_last = 0  # the highest number of a stream that the peer has begun
        self._taken = 0  # and of one that was not refused: what GOAWAY tells never goes up
        self._next = 1 if client else 2  # that of ours
        self._reset_by_us: dict[int, None] = {}
        self._fields_codec = Headers(limits)
        self._resets_left = float(RESETS_ALLOWED)
        self._now: float | None = None
        self._heard_at: float | None = None
        self._pinged_at: float | None = None
        self._unused_since: float | None = None
        # A server says nothing before it knows that HTTP/2 is spoken: others are told in words.
        self._silent = not client
        if client:
            self.said.append(self.first_words())

    @property
    def busy(self) -> bool:
        """Whether a stream is open."""
        return bool(self.streams)

    @property
    def leaving(self) -> bool:
        """Whether no stream is open, and none begins any more."""
        return self._goaway and self.opened and not self.streams and not self.closed

    # What comes.

    def frame_size(self, buffer: Any, start: int, end: int) -> int:
        """Return the size of the frame, or of the preface, that begins at `start`; 0 if unknown."""
        try:
            size: int = super().frame_size(buffer, start, end)
        except Http2Error as error:
            word = bytes(buffer[start : min(start + 3, end)])
            if self._silent and not self.closed:
                self.said = [_HTTP1] if word.isalpha() else []
                self.closed = True
            self._fail(error)
            raise
        if self._silent and size:
            self._silent = False
            self.said.append(self.first_words({frames.MAX_CONCURRENT_STREAMS: self.max_streams}))
        return size

    def receive(self, frame: Any) -> list[Any]:
        """Take one frame, or the preface, and return the events of the messages that it ends."""
        if self.closed:
            return []
        try:
            events: list[Any] = super().receive(frame)
        except (Http2Error, LimitExceeded) as error:
            self._fail(error)
            raise
        return events

    def receive_rest(self) -> list[Any]:
        """Return further events of the last frame, as `receive`, while it is `unread`."""
        if self.closed:
            return []
        try:
            return super().receive_rest()
        except (Http2Error, LimitExceeded) as error:
            self._fail(error)
            raise

    def _settled(self, changes: dict[int, int]) -> list[Any]:
        self.said.append(frames.frame(frames.SETTINGS, frames.ACK, 0))
        if frames.HEADER_TABLE_SIZE in changes:
            self._fields_codec.resize(changes[frames.HEADER_TABLE_SIZE])
        if not self.opened:
            self.opened = self.listening = True
            self.mute = None
            self._on_opened()
            if self._draining:
                self._begin_to_drain()
        return []

    def _headers(self, number: int, block: bytes, end: bool) -> list[Any]:
        fields = self._fields_codec.decode(block)  # in any case: it has a memory
        stream = self.streams.get(number)
        if stream is None:
            if self.client or number <= self._their_last:
                return self._stray(frames.HEADERS, number, end)
            return self._begun(number, fields, end)
        if not stream.receiving:
            why = "HEADERS after the end of the stream (section 5.1)"
            return self._stream_failed(number, Http2Error(why, frames.STREAM_CLOSED, number))
        if end:
            stream.receiving = False
        try:
            self._check_length(stream, fields, end)
            return self._on_headers(stream, fields, end)
        except Http2Error as error:
            return self._stream_failed(number, error)

    def _begun(self, number: int, fields: Fields, end: bool) -> list[Any]:
        if not number & 1:
            raise Http2Error(
                f"a client's stream has the number {number} (section 5.1.1)", frames.PROTOCOL_ERROR
            )
        self._their_last = number
        if self._goaway or len(self.streams) >= self.max_streams:
            self._count_reset()
            self._send_reset(number, frames.REFUSED_STREAM)
            return []
        self._taken = number
        stream = self._make_stream(number)
        self.add(stream)
        stream.receiving = not end
        try:
            self._check_length(stream, fields, end)
            return self._on_headers(stream, fields, end)
        except Http2Error as error:
            return self._stream_failed(number, error)

    @staticmethod
    def _check_length(stream: Http2Stream, fields: Fields, end: bool) -> None:
        """Take note of a content-length, and compare it with what came (section 8.1.1)."""
        said = {value for name, value in fields if name == "content-length"}
        if said:
            text = said.pop()
            if said or not (text.isascii() and text.isdigit() and len(text) < 19):
                words = f"content-length: {quoted(text)}{', and another' if said else ''}"
                raise Http2Error(f"{words} (section 8.1.1)", frames.PROTOCOL_ERROR, stream.number)
            stream.promised = int(text)
        if end and stream.promised not in (-1, stream.came):
            raise frames.wrong_length(stream)

    def _stray(self, kind: int, number: int, end: bool) -> list[Any]:
        name = frames.TYPES[kind]
        ours = number & 1 == self.client
        if number >= self._next if ours else number > self._their_last:
            raise Http2Error(
                f"{name} on stream {number}, which is idle (section 5.1)", frames.PROTOCOL_ERROR
            )
        if number not in self._reset_by_us and kind in (frames.DATA, frames.HEADERS):
            raise Http2Error(
                f"{name} on stream {number}, which is closed (section 5.1)", frames.STREAM_CLOSED
            )
        self._count()
        return []

    def _control(self, kind: int, flags: int, number: int, payload: bytes) -> list[Any]:
        if kind == frames.RST_STREAM:
            stream = self.streams.get(number)
            if stream is None:
                return self._stray(kind, number, True)
            self._count_reset()  # CVE-2023-44487
            self.drop(stream)
            return self._on_reset(stream, int.from_bytes(payload, "big"), "")
        if kind == frames.PING:
            if not flags & frames.ACK:
                self.said.append(frames.ping(payload, True))
            elif payload == _DRAINING:
                self._stop_accepting()
            self._pinged_at = None
        elif kind == frames.GOAWAY:
            last = int.from_bytes(payload[:4], "big") & _ALL
            return self._on_goaway(last, payload[8:].decode("utf-8", "replace"))
        return []

    def _on_goaway(self, last: int, text: str) -> list[Any]:
        """Section 6.8: what the peer has not looked at it will not answer."""
        self._goaway = True
        events: list[Any] = []
        for stream in list(self.streams.values()):
            if stream.number & 1 == self.client and stream.number > last:
                self.drop(stream)
                events += self._on_reset(stream, frames.REFUSED_STREAM, text)
        return events

    def _stream_failed(self, number: int, error: Exception) -> list[Any]:
        """Section 5.4.2: the others go on.

        A peer that has us reset its streams pays as if it had reset them (CVE-2025-8671).
        """
        self._count_reset()
        stream = self.streams.get(number)
        if stream is None:
            self._send_reset(number, getattr(error, "code", frames.PROTOCOL_ERROR))
            return []
        return self._on_fault(stream, error)

    # What a subclass is told; each but the first two returns events.

    def _make_stream(self, number: int) -> Http2Stream:
        return Http2Stream(number)

    def _on_opened(self) -> None:
        """Begin: the peer's settings have come."""

    def _on_headers(self, stream: Any, fields: Fields, end: bool) -> list[Any]:
        """Take a list of headers, or of trailers."""
        raise NotImplementedError

    def _on_reset(self, stream: Any, code: int, text: str) -> list[Any]:
        """Take note that the peer has ended a stream at once; `text` is what else is known."""
        raise NotImplementedError

    def _on_fault(self, stream: Any, error: Exception) -> list[Any]:
        """End a stream of which the peer has broken a rule, or passed a limit."""
        raise NotImplementedError

    def _malformed(self, stream: Any, text: str) -> Http2Error:
        """Section 8.1.1: a message that is malformed is an error of its stream."""
        return Http2Error(f"{text} (section 8)", frames.PROTOCOL_ERROR, stream.number)

    # What goes.

    def _send_headers(self, stream: Any, fields: Fields, end: bool = False) -> None:
        """Say headers now: nothing of the stream's may wait."""
        self.said.append(self.headers(stream.number, self._fields_codec.encode(fields), end))
        if end:
            self._sent_end(stream)

    def _send_trailers(self, stream: Any, fields: Fields | None) -> None:
        """End our side of a stream with these trailers, or none, after what waits of it."""

        def words() -> list[Any]:
            if fields is None:
                data = frames.frame(frames.DATA, frames.END_STREAM, stream.number)
            else:
                data = self.headers(stream.number, self._fields_codec.encode(fields), True)
            out = [data]
            if not self.client and stream.receiving:
                # Section 8.1: the answer is complete, the rest of the question is not needed.
                out.append(frames.reset(stream.number, frames.NO_ERROR))
                stream.receiving = False
                self._remember_reset(stream.number)
            self._sent_end(stream)
            return out

        self.said += self.after(stream, words)

    def _sent_end(self, stream: Any) -> None:
        stream.sending = False
        if not stream.receiving:
            self._finish(stream)

    def _finish(self, stream: Any) -> None:
        """Forget a stream that has ended in order."""
        self.drop(stream)
        self._resets_left = min(self._resets_left + 1, RESETS_ALLOWED)

    def _send_reset(self, number: int, code: int) -> None:
        """End a stream at once, and remember for a while that we want no more of it."""
        self.said.append(frames.reset(number, code))
        self._remember_reset(number)
        stream = self.streams.get(number)
        if stream is not None:
            self.drop(stream)

    def _remember_reset(self, number: int) -> None:
        self._reset_by_us[number] = None
        if len(self._reset_by_us) > _REMEMBERED:
            del self._reset_by_us[next(iter(self._reset_by_us))]

    def _count_reset(self) -> None:
        """Pay for a stream that was ended at once."""
        self._resets_left -= 1
        if self._resets_left < 0:
            raise Http2Error(
                f"over {RESETS_ALLOWED} more streams were ended at once than in order",
                frames.ENHANCE_YOUR_CALM,
            )

    # Times.

    def tick(self, now: float) -> None:
        """Let time pass: a ping may fall due, or a peer be too late."""
        if self._now is not None:
            more = (now - self._now) * _RESETS_PER_SECOND
            self._resets_left = min(self._resets_left + more, RESETS_ALLOWED)
        self._now = now
        if self.heard or self._heard_at is None:
            self.heard = False
            self._heard_at = now
        if self.parting:
            self.drain()
        if self.closed or not self.opened:
            return
        for stream in list(self.streams.values()):
            self._check_window(stream, now)
        self._keep_alive(now)
        for stream in list(self.streams.values()):
            if stream.timeout is not None and not self.closed:
                stream.due = now + stream.timeout if stream.due is None else stream.due
                if now >= stream.due:
                    stream.timeout = None
                    self._on_deadline(stream)
        if self.streams or self.client:
            self._unused_since = None
        elif self._unused_since is None:
            self._unused_since = now
        elif self._unused_timeout is not None and now - self._unused_since >= self._unused_timeout:
            self._stop_accepting()

    def _check_window(self, stream: Any, now: float) -> None:
        """See whether the peer's window lets nothing go."""
        if not stream.waiting:
            stream.waited = None
        elif stream.waited is None or stream.waited[0] != stream.gone_out:
            stream.waited = stream.gone_out, now
        elif self._write_timeout is not None and now - stream.waited[1] >= self._write_timeout:
            self._count_reset()
            self._on_write_timeout(
                stream, f"it opened no window within write_timeout={self._write_timeout} s"
            )

    def _on_write_timeout(self, stream: Any, text: str) -> None:
        """End a stream whose peer is too slow."""
        raise NotImplementedError

    def _on_deadline(self, stream: Any) -> None:
        """End a stream whose time is over."""
        raise NotImplementedError

    def _keep_alive(self, now: float) -> None:
        assert self._heard_at is not None
        if self._pinged_at is not None:
            if self._heard_at > self._pinged_at:
                self._pinged_at = None
            elif self._ping_timeout is not None and now - self._pinged_at >= self._ping_timeout:
                text = f"no answer to a ping within ping_timeout={self._ping_timeout} s"
                self._close(frames.NO_ERROR, text)
                raise DeadlineExceeded(text)
        elif self._ping_interval is not None and now - self._heard_at >= self._ping_interval:
            if self.streams:
                self.said.append(frames.ping(_ASKING))
                self._pinged_at = now
            else:
                self._heard_at = now  # whoever has no stream is not asked: servers would mind

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do, in the seconds of its clock; None if never."""
        if self.closed:
            return None
        due: list[float | None] = []
        for stream in self.streams.values():
            if stream.timeout is not None:
                # Of a stream that the clock has not met yet: at once.
                due.append(0.0 if stream.due is None else stream.due)
            if stream.waiting and self._write_timeout is not None and self._now is not None:
                since = self._now if stream.waited is None else stream.waited[1]
                due.append(since + self._write_timeout)
        if self._pinged_at is not None:
            due.append(self._ping_timeout and self._pinged_at + self._ping_timeout)
        elif self._heard_at is not None:
            due.append(self._ping_interval and self._heard_at + self._ping_interval)
        if self._unused_since is not None:
            due.append(self._unused_timeout and self._unused_since + self._unused_timeout)
        return min((at for at in due if at is not None), default=None)

    # Ends.

    def _fail(self, error: RlwireError) -> None:
        """After the peer broke a rule that ends the connection: say so, and be closed."""
        code = getattr(error, "code", frames.ENHANCE_YOUR_CALM)
        self._close(code, for_peer(error, "the client" if self.client else "the server"))

    def _close(self, code: int, text: str) -> None:
        if self.closed:
            return
        self.said.append(frames.goaway(self._taken, code, text))
        self._goaway = self.closed = True
        self.listening = False
        self.mute = "no message can be sent now, the connection is over"

    def drain(self) -> None:
        """Have the peer begin no more streams; when the last has ended, the session is over.

        The first GOAWAY takes all streams that are under way; the second, after the answer to a
        ping, says which was the last (section 6.8).
        """
        self.parting = False
        if not self._draining:
            self._draining = True
            if self.opened:
                self._begin_to_drain()

    def _begin_to_drain(self) -> None:
        if not self.closed and not self._goaway:
            self.said += [frames.goaway(_ALL), frames.ping(_DRAINING)]

    def _stop_accepting(self) -> None:
        if not self._goaway:
            self.said.append(frames.goaway(self._taken))
            self._goaway = True

    def refuse(self, error: RlwireError) -> Sequence[Buffer]:
        """Return what tells the peer why the transport ends the connection."""
        late = isinstance(error, DeadlineExceeded)
        code = frames.NO_ERROR if late else frames.ENHANCE_YOUR_CALM
        self._close(code, for_peer(error, "the client" if self.client else "the server"))
        said: list[Buffer] = self.outgoing()
        return said

    def farewell(self, ending: bool = False) -> Sequence[Buffer]:
        """Return the last words: GOAWAY, once."""
        self._close(frames.NO_ERROR, "this side ends" if ending else "")
        said: list[Buffer] = self.outgoing()
        return said

    def lost(self) -> str:
        """Say that the stream has ended; returns what is wrong with that, empty if nothing is."""
        was, self.closed = self.closed, True
        self.listening = False
        if was or not self.streams:
            return ""
        return f"with {len(self.streams)} streams open"


def _seconds(name: str, seconds: float | None) -> float | None:
    if seconds is not None and not seconds > 0:
        raise ValueError(f"{name} must be positive or None, not {seconds!r}")
    return seconds
