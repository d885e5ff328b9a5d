"""HTTP/2's session: settings, streams, pings, deadlines, GOAWAY, and limits on abuse.

Server push, priorities and upgrades from HTTP/1.1 are not supported. The core limits frames that
carry no message (`MAX_CONTROL_FRAMES`). The session limits streams that either side resets
(`RESETS_ALLOWED`), because each costs as much as a call.

Source: RFC 9113, which section numbers refer to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rlwire.codecs.http2 import frames
from rlwire.codecs.http2.frames import Http2Error
from rlwire.codecs.http2.headers import Headers, SecretBlanker
from rlwire.errors import DeadlineExceeded, LimitExceeded, RlwireError, for_peer, quoted
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.http2 import events
from rlwire.sessions.http2.core import Http2Core, Stream, wrong_length
from rlwire.sessions.http2.events import Fields
from rlwire.sessions.layer import Buffer, Layer, LayerPhase

RESETS_ALLOWED: Final = 1000
"""Streams that may be reset in addition to those that end normally; 50 more each second."""

PING_TIMEOUT: Final = 60.0
"""Seconds for the reply to a ping."""

WRITE_TIMEOUT: Final = 60.0
"""Seconds within which the peer must open a window that blocks a message."""

UNUSED_TIMEOUT: Final = 300.0
"""Seconds after which a server closes a connection without streams."""

_RESETS_PER_SECOND = 50
_REMEMBERED = 256  # streams reset by this side, on which frames may still arrive
_ALL = 2**31 - 1
_DRAINING = b"draining"
_KEEP_ALIVE = b"hello?!?"
_HTTP1 = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 63\r\n\r\n"
    b"This server expects HTTP/2 with prior knowledge, or by ALPN h2.\n"
)[:-1]


_OPENING, _OPEN, _CLOSED = LayerPhase.OPENING, LayerPhase.OPEN, LayerPhase.CLOSED


class Http2Stream(Stream):
    """A stream with its timeouts."""

    blocked: tuple[int, float] | None = None  # `sent` when a window last blocked it, and the time
    timeout: float | None = None  # seconds for the whole stream
    due: float | None = None  # the deadline of `timeout`; None before the first `tick`


class Http2Session(Layer):
    """One end of a connection; a subclass reacts to what happens to streams, in `on_` methods.

    `max_streams` limits the streams that the peer may have open at a time, `peer_max_streams` those
    of this side. `ping_interval` is the silence before a ping, in seconds.
    """

    active = True
    keeps_blocks = True

    def __init__(
        self,
        client: bool,
        make_stream: Callable[[int], Http2Stream] = Http2Stream,
        limits: Limits | None = None,
        max_sent: int | None = None,
        max_streams: int = 100,
        ping_interval: float | None = None,
    ) -> None:
        limits = limits or DEFAULT
        received = min(limits.received, limits.message)
        max_sent = received if max_sent is None else max_sent
        if not isinstance(max_sent, int) or not 0 < max_sent < 2**31:
            raise ValueError(f"max_sent must be positive and less than 2**31, not {max_sent!r}")
        self.core = Http2Core(client, limits)
        self.core.max_sent = max_sent
        self.client = client
        self.limits = limits
        self.max_received = received
        self._make_stream = make_stream
        self._max_streams = max_streams
        self.peer_max_streams = 2**31
        self._ping_interval = ping_interval
        self.phase = _OPENING
        self.drain_requested = False  # the next `send` or `tick` first calls `drain`
        self.draining = False
        self._goaway = False  # sent or received: no new streams
        self._last_theirs = 0  # the highest stream number of the peer
        self._last_accepted = 0  # GOAWAY's number, which never increases
        self._next_ours = 1 if client else 2
        self._reset_by_us: dict[int, None] = {}
        self._hpack = Headers(limits)
        self._blankers: tuple[SecretBlanker, SecretBlanker] | None = None
        self._resets_left = float(RESETS_ALLOWED)
        self._now: float | None = None
        self._received_at: float | None = None
        self._pinged_at: float | None = None
        self._unused_since: float | None = None
        # A server sends nothing before the preface: an HTTP/1 client gets an HTTP/1 response,
        # and others SETTINGS, which name the protocol (RFC 9113, 3.4).
        self._preface_sent = client
        if client:
            self.core.control_output.append(self.core.preface())

    def on_opened(self) -> None:
        """React to the peer's first settings."""

    def on_headers(self, stream: Any, fields: Fields, end: bool) -> list[Any]:
        """React to headers or trailers; like the following, return events for the user."""
        raise NotImplementedError

    def on_end(self, stream: Any) -> list[Any]:
        raise NotImplementedError

    def on_reset(self, stream: Any, code: int, text: str = "") -> list[Any]:
        raise NotImplementedError

    def on_fault(self, stream: Any, error: RlwireError) -> list[Any]:
        """React to a broken rule on a stream, which is still open."""
        raise NotImplementedError

    def on_late(self, stream: Any, code: str, text: str) -> None:
        raise NotImplementedError

    def on_layer_failed(self, stream: Any, error: RlwireError) -> list[Any]:
        raise NotImplementedError

    @property
    def message_number(self) -> int:
        return self.core.message_number

    # Receiving.

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        try:
            size = self.core.frame_size(buffer, start, end)
        except Http2Error as error:
            first = bytes(buffer[start : min(start + 3, end)])
            if not self._preface_sent and not self.closed:
                self.core.control_output = [_HTTP1 if first.isalpha() else self.core.preface()]
                self.phase = _CLOSED
            self._fail(error)
            raise
        if size and not self._preface_sent:
            self._preface_sent = True
            settings = {frames.MAX_CONCURRENT_STREAMS: self._max_streams}
            self.core.control_output.append(self.core.preface(settings))
        return size

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        return self.core.data_offset(buffer, start, end)

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        if self.phase is not _OPEN:
            return None
        found = self.core.receive_whole(buffer, size)
        return found if self.core.frame_event is None else self._guarded(None, [])  # it failed

    def receive(self, message: Buffer) -> list[Any]:
        return self._guarded(message, None)

    def receive_rest(self) -> list[Any]:
        return self._guarded(None, None)

    def _guarded(self, frame: Buffer | None, found: list[Any] | None) -> list[Any]:
        """Return the events of a frame or of the rest of one, and of what happened to streams."""
        self.unread = False
        if self.phase is _CLOSED:
            return []
        try:
            if frame is not None:
                found = self.core.receive(frame)
            elif found is None:
                found = self.core.receive_rest()
            self.unread = self.core.unread
            if self.core.frame_event is not None:
                found = found + self._react()
                self._end_if_unused()
            return found
        except (Http2Error, LimitExceeded) as error:
            self._fail(error)
            raise

    def _react(self) -> list[Any]:
        """React to the core's `frame_event`; return events for the user."""
        event, self.core.frame_event = self.core.frame_event, None
        if type(event) is events.StreamFailed:
            return self._stream_failed(*event)
        if type(event) is events.LayerFailed:
            return self.on_layer_failed(*event)
        kind, flags, number, payload = event
        stream = self.core.streams.get(number)
        if kind == frames.HEADERS:
            return self._headers(number, payload, bool(flags & frames.END_STREAM))
        if kind == frames.SETTINGS:
            if not flags & frames.ACK:
                self._settings(payload)
        elif kind == frames.PING:
            if not flags & frames.ACK:
                self.core.control_output.append(frames.ping(payload, True))
            elif payload == _DRAINING:
                self._stop_accepting()
            self._pinged_at = None
        elif kind == frames.GOAWAY:
            return self._peer_drains(payload)
        elif stream is None:
            self._without_stream(kind, number)
        elif kind == frames.DATA:
            return self.on_end(stream)
        elif kind == frames.RST_STREAM:
            self._count_reset()  # CVE-2023-44487
            self.core.drop(stream)
            return self.on_reset(stream, int.from_bytes(payload, "big"))
        return []

    def _settings(self, values: dict[int, int]) -> None:
        self.core.control_output.append(frames.frame(frames.SETTINGS, frames.ACK, 0))
        if frames.HEADER_TABLE_SIZE in values:
            self._hpack.resize(values[frames.HEADER_TABLE_SIZE])
        self.peer_max_streams = values.get(frames.MAX_CONCURRENT_STREAMS, self.peer_max_streams)
        if not self.opened:
            self.phase = _OPEN
            self.core.send_error = None
            self.on_opened()
            if self.draining:
                self._begin_to_drain()

    def _headers(self, number: int, block: bytes, end: bool) -> list[Any]:
        fields = self._hpack.decode(block)  # in any case: HPACK has state
        stream = self.core.streams.get(number)
        if stream is None:
            if self.client or number <= self._last_theirs:
                self._without_stream(frames.HEADERS, number)
                return []
            stream = self._accept(number)
            if stream is None:
                return []
        elif not stream.receiving:
            why = "HEADERS after the end of the stream (section 5.1)"
            return self._stream_failed(number, Http2Error(why, frames.STREAM_CLOSED, number))
        if end:
            stream.receiving = False
        try:
            self._check_length(stream, fields, end)
        except Http2Error as error:
            return self._stream_failed(number, error)
        return self.on_headers(stream, fields, end)

    def _accept(self, number: int) -> Http2Stream | None:
        """Return the client's new stream, or None if it is refused."""
        if not number & 1:
            raise Http2Error(
                f"the client opened stream {number}, expected an odd number (section 5.1.1)",
                frames.PROTOCOL_ERROR,
            )
        self._last_theirs = number
        if self._goaway or len(self.core.streams) >= self._max_streams:
            self._count_reset()
            self.reset(number, frames.REFUSED_STREAM)
            return None
        self._last_accepted = number
        stream = self._make_stream(number)
        self.core.add(stream)
        return stream

    @staticmethod
    def _check_length(stream: Http2Stream, fields: Fields, end: bool) -> None:
        """Store the content-length, or compare it with what was received (section 8.1.1)."""
        given = {value for name, value in fields if name == "content-length"}
        if given:
            text = given.pop()
            if given or not (text.isascii() and text.isdigit() and len(text) < 19):
                words = f"content-length: {quoted(text)}{' and another value' if given else ''}"
                raise Http2Error(f"{words} (section 8.1.1)", frames.PROTOCOL_ERROR, stream.number)
            stream.content_length = int(text)
        if end and stream.content_length not in (-1, stream.received):
            raise wrong_length(stream)

    def _without_stream(self, kind: int, number: int) -> None:
        name = frames.TYPES[kind]
        ours = number & 1 == self.client
        if number >= self._next_ours if ours else number > self._last_theirs:
            raise Http2Error(
                f"{name} on stream {number}, which is idle (section 5.1)", frames.PROTOCOL_ERROR
            )
        if number not in self._reset_by_us and kind in (frames.DATA, frames.HEADERS):
            raise Http2Error(
                f"{name} on stream {number}, which is closed (section 5.1)", frames.STREAM_CLOSED
            )
        self.core.count_control_frame()

    def _peer_drains(self, payload: bytes) -> list[Any]:
        # Section 6.8: the peer has ignored streams above `last`.
        last = int.from_bytes(payload[:4], "big") & _ALL
        text = payload[8:].decode("utf-8", "replace")
        self._goaway = True
        found: list[Any] = []
        for stream in list(self.core.streams.values()):
            if stream.number & 1 == self.client and stream.number > last:
                self.core.drop(stream)
                found += self.on_reset(stream, frames.REFUSED_STREAM, text)
        return found

    def _stream_failed(self, number: int, error: RlwireError) -> list[Any]:
        """Count a fault of one stream. Section 5.4.2: others continue."""
        self._count_reset()  # CVE-2025-8671
        if number in self.core.streams:
            return self.on_fault(self.core.streams[number], error)
        code = error.code if isinstance(error, Http2Error) else frames.PROTOCOL_ERROR
        self.reset(number, code)
        return []

    def malformed(self, stream: Stream, text: str) -> list[Any]:
        """React to header fields that break a rule of section 8."""
        error = Http2Error(f"{text} (section 8)", frames.PROTOCOL_ERROR, stream.number)
        return self._stream_failed(stream.number, error)

    # Sending.

    def next_number(self) -> int:
        """Return the number of this side's next stream."""
        self._next_ours += 2
        return self._next_ours - 2

    def _header_frames(self, stream: Stream, fields: Fields, end: bool = False) -> bytes:
        block = self._hpack.encode(fields)
        return frames.header_frames(stream.number, block, end, self.core.peer_frame)

    def send_headers(self, stream: Stream, fields: Fields) -> None:
        """Send headers now: nothing of the stream is queued."""
        self.core.control_output.append(self._header_frames(stream, fields))

    def end_stream(self, stream: Stream, trailers: Fields | None) -> None:
        """End this side of a stream after its queue, with trailers unless they are None."""

        def last_frames() -> list[Buffer]:
            if trailers is None:
                data = frames.frame(frames.DATA, frames.END_STREAM, stream.number)
            else:
                data = self._header_frames(stream, trailers, True)
            out: list[Buffer] = [data]
            if not self.client and stream.receiving:
                # Section 8.1: the reply is complete, the rest of the request is not needed.
                out.append(frames.reset(stream.number, frames.NO_ERROR))
                stream.receiving = False
                self._remember_reset(stream.number)
            stream.sending = False
            if not stream.receiving:
                self.finish(stream)
            return out

        self.core.control_output += self.core.after(stream, last_frames)

    def finish(self, stream: Stream) -> None:
        """Remove a stream that has ended normally."""
        self.core.drop(stream)
        self._resets_left = min(self._resets_left + 1, RESETS_ALLOWED)

    def reset(self, number: int, code: int) -> None:
        """Reset a stream, and ignore its late frames for a while."""
        self.core.control_output.append(frames.reset(number, code))
        self._remember_reset(number)
        stream = self.core.streams.get(number)
        if stream is not None:
            self.core.drop(stream)

    def _remember_reset(self, number: int) -> None:
        self._reset_by_us[number] = None
        if len(self._reset_by_us) > _REMEMBERED:
            del self._reset_by_us[next(iter(self._reset_by_us))]

    def _count_reset(self) -> None:
        self._resets_left -= 1
        if self._resets_left < 0:
            raise Http2Error(
                f"over {RESETS_ALLOWED} more streams were reset than ended normally",
                frames.ENHANCE_YOUR_CALM,
            )

    def send(self, event: Any) -> list[Buffer]:
        """Return the buffers of an event of the attached layer; none if they are queued."""
        return self.core.send(event)

    def output(self) -> list[Buffer]:
        self._end_if_unused()
        return self.core.output()

    def _end_if_unused(self) -> None:
        """End the session if no stream is open, and none can be opened."""
        if self._goaway and self.phase is _OPEN and not self.core.streams:
            self.phase = LayerPhase.CLOSING

    # Timeouts.

    def tick(self, now: float) -> None:
        if self._now is not None:
            more = (now - self._now) * _RESETS_PER_SECOND
            self._resets_left = min(self._resets_left + more, RESETS_ALLOWED)
        self._now = now
        if self.core.received_any or self._received_at is None:
            self.core.received_any = False
            self._received_at = now
        if self.drain_requested:
            self.drain()
        if self.phase is _CLOSED or self.phase is _OPENING:
            return
        for stream in list(self.core.streams.values()):
            if self._is_blocked(stream, now):
                self._count_reset()
                text = f"the peer did not open its flow-control window within {WRITE_TIMEOUT:g} s"
                self.on_late(stream, "UNAVAILABLE", text)
        self._keep_alive(now)
        for stream in list(self.core.streams.values()):
            if stream.timeout is not None and self.phase is not _CLOSED:
                stream.due = now + stream.timeout if stream.due is None else stream.due
                if now >= stream.due:
                    text = f"the call exceeded its timeout of {stream.timeout} s"
                    stream.timeout = None
                    self.on_late(stream, "DEADLINE_EXCEEDED", text)
        if self.core.streams or self.client:
            self._unused_since = None
        elif self._unused_since is None:
            self._unused_since = now
        elif now - self._unused_since >= UNUSED_TIMEOUT:
            self._stop_accepting()
            self._end_if_unused()

    @staticmethod
    def _is_blocked(stream: Http2Stream, now: float) -> bool:
        """Note whether the peer's windows block a stream; return whether they do for too long."""
        if not stream.waiting:
            stream.blocked = None
        elif stream.blocked is None or stream.blocked[0] != stream.sent:
            stream.blocked = stream.sent, now
        else:
            return now - stream.blocked[1] >= WRITE_TIMEOUT
        return False

    def _keep_alive(self, now: float) -> None:
        assert self._received_at is not None
        if self._pinged_at is not None:
            if self._received_at > self._pinged_at:
                self._pinged_at = None
            elif now - self._pinged_at >= PING_TIMEOUT:
                text = f"no reply to a ping within {PING_TIMEOUT:g} s"
                self.close_connection(frames.NO_ERROR, text)
                raise DeadlineExceeded(text)
        elif self._ping_interval is not None and now - self._received_at >= self._ping_interval:
            if self.core.streams:
                self.core.control_output.append(frames.ping(_KEEP_ALIVE))
                self._pinged_at = now
            else:
                self._received_at = now  # servers object to pings without a stream

    def next_deadline(self) -> float | None:
        if self.phase is _CLOSED:
            return None
        due: list[float | None] = []
        for stream in self.core.streams.values():
            if stream.timeout is not None:
                # Before the first `tick` of a stream: at once.
                due.append(0.0 if stream.due is None else stream.due)
            if stream.waiting and self._now is not None:
                since = self._now if stream.blocked is None else stream.blocked[1]
                due.append(since + WRITE_TIMEOUT)
        if self._pinged_at is not None:
            due.append(self._pinged_at + PING_TIMEOUT)
        elif self._received_at is not None:
            due.append(self._ping_interval and self._received_at + self._ping_interval)
        if self._unused_since is not None:
            due.append(self._unused_since + UNUSED_TIMEOUT)
        return min((at for at in due if at is not None), default=None)

    # Ends.

    def _fail(self, error: RlwireError, otherwise: int = frames.ENHANCE_YOUR_CALM) -> None:
        code = error.code if isinstance(error, Http2Error) else otherwise
        self.close_connection(code, for_peer(error, "the client" if self.client else "the server"))

    def close_connection(self, code: int = frames.NO_ERROR, text: str = "") -> None:
        if self.phase is not _CLOSED:
            self.core.control_output.append(frames.goaway(self._last_accepted, code, text))
            self.phase = _CLOSED
            self.core.send_error = "the connection is closed"

    def request_drain(self) -> bool:
        self.drain_requested = bool(self.core.streams)
        return self.drain_requested

    def drain(self) -> bool:
        """Accept no new streams; the session ends after the last one.

        The first GOAWAY accepts all streams in flight; the second, after the reply to a ping,
        names the last one (section 6.8).
        """
        self.drain_requested = False
        if not self.draining:
            self.draining = True
            if self.opened:
                self._begin_to_drain()
        return True

    def _begin_to_drain(self) -> None:
        if not self.closed and not self._goaway:
            self.core.control_output += [frames.goaway(_ALL), frames.ping(_DRAINING)]

    def _stop_accepting(self) -> None:
        if not self._goaway:
            self.core.control_output.append(frames.goaway(self._last_accepted))
            self._goaway = True

    def reject(self, error: RlwireError) -> Sequence[Buffer]:
        late = isinstance(error, DeadlineExceeded)
        self._fail(error, frames.NO_ERROR if late else frames.ENHANCE_YOUR_CALM)
        return self.output()

    def close_message(self, stopping: bool = False) -> Sequence[Buffer]:
        self.close_connection(frames.NO_ERROR, "shutting down" if stopping else "")
        return self.output()

    def stream_ended(self) -> str:
        was, self.phase = self.phase, _CLOSED
        count = len(self.core.streams)
        return "" if was is _CLOSED or not count else f"{count} stream{'s' * (count > 1)} open"

    def redact(self, data: Buffer, sent: bool) -> Any:
        if self._blankers is None:
            self._blankers = SecretBlanker(self.limits), SecretBlanker(self.limits)
        return self._blankers[sent].blank(data)
