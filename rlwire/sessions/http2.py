"""HTTP/2 connections: settings, streams, pings, deadlines, GOAWAY, and limits on abuse.

A subclass defines what streams carry, in the hooks ``_on_...``. Server push, priorities and
upgrades from HTTP/1.1 are not supported. The codec limits frames that carry no message (`CHAFF`).
The session limits streams that either side resets (`RESETS_ALLOWED`), because each costs as much as
a call.

Source: RFC 9113, which section numbers refer to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from rlwire.codecs.http2 import frames
from rlwire.codecs.http2.frames import Http2Error
from rlwire.codecs.http2.headers import Headers, SecretBlanker
from rlwire.errors import DeadlineExceeded, LimitExceeded, RlwireError, for_peer, quoted
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, LayerPhase

Fields: TypeAlias = list[tuple[str, str]]

RESETS_ALLOWED: Final = 1000
"""Streams that may be reset in addition to those that end normally; 50 more each second."""

STREAM_WINDOW: Final = 4 * 1024 * 1024
"""Receive window of one stream, in bytes."""

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
_ASKING = b"hello?!?"
_HTTP1 = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 63\r\n\r\n"
    b"This server expects HTTP/2 with prior knowledge, or by ALPN h2.\n"
)[:-1]


class Http2Stream(frames.Stream):
    """A stream with its timeouts.

    Attributes:
        waited: the value of `gone_out` when the peer's window last blocked it, and the time.
        timeout: seconds for the whole stream; None for no limit.
        due: the deadline of `timeout`; None before the first `tick`.
    """

    waited: tuple[int, float] | None = None
    timeout: float | None = None
    due: float | None = None


class Http2Session(frames.Http2Endpoint):
    """One end of a connection.

    A subclass has the hooks `_on_headers(stream, fields, end)`, for headers and trailers,
    `_on_reset(stream, code, text)` and `_on_fault(stream, error)`, which return events, and
    `_on_deadline(stream)` and `_on_write_timeout(stream, text)`.

    Args:
        client: whether this side is the client.
        limits: ``received`` for messages, ``header`` for header lists, ``unsent`` for the send
            queue.
        max_sent: limit on a sent message in bytes; by default that on received ones.
        max_streams: streams that the peer may have open at a time.
        ping_interval: seconds of silence before a ping; None for never.

    Attributes:
        parting: whether the next `send` or `tick` first calls `drain`.
    """

    # Attributes of the compiled base.
    heard: bool
    mute: str | None
    said: list[Buffer]
    output: Callable[[], list[Buffer]]
    message: Callable[[Any, Any], list[Buffer]]

    active = True
    closes_first: bool = True
    _make_stream: Callable[[int], Http2Stream] = Http2Stream

    def __init__(
        self,
        client: bool,
        limits: Limits | None = None,
        max_sent: int | None = None,
        max_streams: int = 100,
        ping_interval: float | None = None,
    ) -> None:
        limits = limits or DEFAULT
        received = min(limits.received, limits.message)
        max_sent = received if max_sent is None else max_sent
        for name, most in (("max_sent", max_sent), ("max_streams", max_streams)):
            if not isinstance(most, int) or not 0 < most < 2**31:
                raise ValueError(f"{name} must be positive and less than 2**31, not {most!r}")
        if ping_interval is not None and not ping_interval > 0:
            raise ValueError(f"ping_interval must be positive or None, not {ping_interval!r}")
        whole = min(max(received, STREAM_WINDOW) + 65535, _ALL)
        super().__init__(client, limits, STREAM_WINDOW, whole)
        self.max_sent = max_sent
        self._most_unsent = limits.unsent
        self.max_received = received
        self.max_streams = max_streams
        self._ping_interval = ping_interval
        self.phase = LayerPhase.OPENING
        self.parting = self._draining = False
        self._goaway = False  # sent or received: no new streams
        self._their_last = 0  # the highest stream number of the peer
        self._taken = 0  # the highest one accepted: GOAWAY's number never increases
        self._next = 1 if client else 2  # the next stream number of this side
        self._reset_by_us: dict[int, None] = {}
        self._limits = limits
        self._fields_codec = Headers(limits)
        self._blankers: tuple[SecretBlanker, SecretBlanker] | None = None
        self._resets_left = float(RESETS_ALLOWED)
        self._now: float | None = None
        self._heard_at: float | None = None
        self._pinged_at: float | None = None
        self._unused_since: float | None = None
        # A server sends nothing before the preface: an HTTP/1 client gets an HTTP/1 response.
        self._silent = not client
        if client:
            self.said.append(self.first_words())

    def drop(self, stream: Any) -> None:
        super().drop(stream)
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        """End the session if no stream is open, and none can be opened."""
        if self._goaway and self.phase is LayerPhase.OPEN and not self.streams:
            self.phase = LayerPhase.CLOSING

    def frame_size(self, buffer: Any, start: int, end: int) -> int:
        try:
            size: int = super().frame_size(buffer, start, end)
        except Http2Error as error:
            word = bytes(buffer[start : min(start + 3, end)])
            if self._silent and not self.closed:
                self.said = [_HTTP1] if word.isalpha() else []
                self.phase = LayerPhase.CLOSED
            self._fail(error)
            raise
        if self._silent and size:
            self._silent = False
            self.said.append(self.first_words({frames.MAX_CONCURRENT_STREAMS: self.max_streams}))
        return size

    def receive(self, frame: Any) -> list[Any]:
        return self._guarded(super().receive, frame)

    def receive_rest(self) -> list[Any]:
        return self._guarded(super().receive_rest)

    def _guarded(self, receive: Callable[..., list[Any]], *frame: Any) -> list[Any]:
        if self.closed:
            return []
        try:
            return receive(*frame)
        except (Http2Error, LimitExceeded) as error:
            self._fail(error)
            raise

    def _settled(self, changes: dict[int, int]) -> list[Any]:
        self.said.append(frames.frame(frames.SETTINGS, frames.ACK, 0))
        if frames.HEADER_TABLE_SIZE in changes:
            self._fields_codec.resize(changes[frames.HEADER_TABLE_SIZE])
        if not self.opened:
            self.phase, self.listening = LayerPhase.OPEN, True
            self.mute = None
            self._on_opened()
            if self._draining:
                self._begin_to_drain()
            self._end_if_unused()
        return []

    def _headers(self, number: int, block: bytes, end: bool) -> list[Any]:
        fields = self._fields_codec.decode(block)  # in any case: HPACK has state
        stream = self.streams.get(number)
        if stream is None:
            if self.client or number <= self._their_last:
                return self._stray(frames.HEADERS, number, end)
            stream = self._begun(number)
            if stream is None:
                return []
        elif not stream.receiving:
            why = "HEADERS after the end of the stream (section 5.1)"
            return self._stream_failed(number, Http2Error(why, frames.STREAM_CLOSED, number))
        if end:
            stream.receiving = False
        try:
            self._check_length(stream, fields, end)
            return self._on_headers(stream, fields, end)
        except Http2Error as error:
            return self._stream_failed(number, error)

    def _begun(self, number: int) -> Http2Stream | None:
        """Return the client's new stream, or None if it is refused."""
        if not number & 1:
            raise Http2Error(
                f"the client opened stream {number}, expected an odd number (section 5.1.1)",
                frames.PROTOCOL_ERROR,
            )
        self._their_last = number
        if self._goaway or len(self.streams) >= self.max_streams:
            self._count_reset()
            self._send_reset(number, frames.REFUSED_STREAM)
            return None
        self._taken = number
        stream = self._make_stream(number)
        self.add(stream)
        return stream

    @staticmethod
    def _check_length(stream: Http2Stream, fields: Fields, end: bool) -> None:
        """Store the content-length, or compare it with what was received (section 8.1.1)."""
        said = {value for name, value in fields if name == "content-length"}
        if said:
            text = said.pop()
            if said or not (text.isascii() and text.isdigit() and len(text) < 19):
                words = f"content-length: {quoted(text)}{' and another value' if said else ''}"
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
        events: list[Any] = []
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
            # Section 6.8: the peer has ignored streams above `last`.
            last = int.from_bytes(payload[:4], "big") & _ALL
            self._goaway = True
            for stream in list(self.streams.values()):
                if stream.number & 1 == self.client and stream.number > last:
                    self.drop(stream)
                    text = payload[8:].decode("utf-8", "replace")
                    events += self._on_reset(stream, frames.REFUSED_STREAM, text)
            self._end_if_unused()
        return events

    def _stream_failed(self, number: int, error: Exception) -> list[Any]:
        """Section 5.4.2: other streams continue."""
        if self.closed:  # by the inner session's error, which ends the only call
            raise error
        self._count_reset()  # CVE-2025-8671
        stream = self.streams.get(number)
        if stream is None:
            self._send_reset(number, getattr(error, "code", frames.PROTOCOL_ERROR))
            return []
        return self._on_fault(stream, error)

    def _on_opened(self) -> None:
        """React to the peer's first settings."""

    def _malformed(self, stream: Any, text: str) -> Http2Error:
        return Http2Error(f"{text} (section 8)", frames.PROTOCOL_ERROR, stream.number)

    # Sending.

    def _send_headers(self, stream: Any, fields: Fields) -> None:
        """Send headers now: nothing of the stream is queued."""
        self.said.append(self.headers(stream.number, self._fields_codec.encode(fields)))

    def _send_trailers(self, stream: Any, fields: Fields | None) -> None:
        """End this side of a stream after its queue, with trailers unless `fields` is None."""

        def words() -> list[Any]:
            if fields is None:
                data = frames.frame(frames.DATA, frames.END_STREAM, stream.number)
            else:
                data = self.headers(stream.number, self._fields_codec.encode(fields), True)
            out = [data]
            if not self.client and stream.receiving:
                # Section 8.1: the reply is complete, the rest of the request is not needed.
                out.append(frames.reset(stream.number, frames.NO_ERROR))
                stream.receiving = False
                self._remember_reset(stream.number)
            stream.sending = False
            if not stream.receiving:
                self._finish(stream)
            return out

        self.said += self.after(stream, words)

    def _finish(self, stream: Any) -> None:
        """Remove a stream that has ended normally."""
        self.drop(stream)
        self._resets_left = min(self._resets_left + 1, RESETS_ALLOWED)

    def _send_reset(self, number: int, code: int) -> None:
        """Reset a stream, and ignore its late frames for a while."""
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
        self._resets_left -= 1
        if self._resets_left < 0:
            raise Http2Error(
                f"over {RESETS_ALLOWED} more streams were reset than ended normally",
                frames.ENHANCE_YOUR_CALM,
            )

    # Timeouts.

    def tick(self, now: float) -> None:
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
        elif now - self._unused_since >= UNUSED_TIMEOUT:
            self._stop_accepting()

    def _check_window(self, stream: Any, now: float) -> None:
        if not stream.waiting:
            stream.waited = None
        elif stream.waited is None or stream.waited[0] != stream.gone_out:
            stream.waited = stream.gone_out, now
        elif now - stream.waited[1] >= WRITE_TIMEOUT:
            self._count_reset()
            text = f"the peer did not open its flow-control window within {WRITE_TIMEOUT:g} s"
            self._on_write_timeout(stream, text)

    def _keep_alive(self, now: float) -> None:
        assert self._heard_at is not None
        if self._pinged_at is not None:
            if self._heard_at > self._pinged_at:
                self._pinged_at = None
            elif now - self._pinged_at >= PING_TIMEOUT:
                text = f"no reply to a ping within {PING_TIMEOUT:g} s"
                self._close(frames.NO_ERROR, text)
                raise DeadlineExceeded(text)
        elif self._ping_interval is not None and now - self._heard_at >= self._ping_interval:
            if self.streams:
                self.said.append(frames.ping(_ASKING))
                self._pinged_at = now
            else:
                self._heard_at = now  # servers object to pings without a stream

    def next_deadline(self) -> float | None:
        if self.closed:
            return None
        due: list[float | None] = []
        for stream in self.streams.values():
            if stream.timeout is not None:
                # Before the first `tick` of a stream: at once.
                due.append(0.0 if stream.due is None else stream.due)
            if stream.waiting and self._now is not None:
                since = self._now if stream.waited is None else stream.waited[1]
                due.append(since + WRITE_TIMEOUT)
        if self._pinged_at is not None:
            due.append(self._pinged_at + PING_TIMEOUT)
        elif self._heard_at is not None:
            due.append(self._ping_interval and self._heard_at + self._ping_interval)
        if self._unused_since is not None:
            due.append(self._unused_since + UNUSED_TIMEOUT)
        return min((at for at in due if at is not None), default=None)

    # Ends.

    def _fail(self, error: RlwireError) -> None:
        self._close(getattr(error, "code", frames.ENHANCE_YOUR_CALM), self._reason(error))

    def _reason(self, error: RlwireError) -> str:
        return for_peer(error, "the client" if self.client else "the server")

    def _close(self, code: int, text: str) -> None:
        if self.closed:
            return
        self.said.append(frames.goaway(self._taken, code, text))
        self._goaway, self.phase = True, LayerPhase.CLOSED
        self.listening = False
        self.mute = "the connection is closed"

    def request_drain(self) -> bool:
        if not self.streams:
            return False
        self.parting = True
        return True

    def drain(self) -> bool:
        """Accept no new streams; the session ends after the last one.

        The first GOAWAY accepts all streams in flight; the second, after the reply to a ping,
        names the last one (section 6.8).
        """
        self.parting = False
        if not self._draining:
            self._draining = True
            if self.opened:
                self._begin_to_drain()
        return True

    def _begin_to_drain(self) -> None:
        if not self.closed and not self._goaway:
            self.said += [frames.goaway(_ALL), frames.ping(_DRAINING)]

    def _stop_accepting(self) -> None:
        if not self._goaway:
            self.said.append(frames.goaway(self._taken))
            self._goaway = True
            self._end_if_unused()

    def redact(self, data: Buffer, sent: bool) -> Any:
        """Return frames without their secrets, for a recording."""
        if self._blankers is None:
            self._blankers = SecretBlanker(self._limits), SecretBlanker(self._limits)
        return self._blankers[sent].blank(data)

    def reject(self, error: RlwireError) -> Sequence[Buffer]:
        late = isinstance(error, DeadlineExceeded)
        self._close(frames.NO_ERROR if late else frames.ENHANCE_YOUR_CALM, self._reason(error))
        return self.output()

    def close_message(self, stopping: bool = False) -> Sequence[Buffer]:
        self._close(frames.NO_ERROR, "shutting down" if stopping else "")
        return self.output()

    def stream_ended(self) -> str:
        was, self.phase = self.closed, LayerPhase.CLOSED
        self.listening = False
        count = len(self.streams)
        return "" if was or not count else f"{count} stream{'s' * (count > 1)} open"
