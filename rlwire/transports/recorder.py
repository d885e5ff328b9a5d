"""Records connections in an MCAP file: raw bytes, with their direction and times.

A connection's thread copies the bytes into a bounded queue, and a thread of the recorder writes
them, so that a slow disk delays no peer. Sessions blank their secrets in their method ``blank``.

Source: the MCAP specification, version 0, with the package ``mcap``.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from time import monotonic_ns, sleep, time_ns
from typing import IO, Any, Final, NamedTuple

from rlwire.errors import RlwireError, optional
from rlwire.transports.interface import Buffer, Peer

logger = logging.getLogger(__name__)

QUEUED: Final = 64 * 2**20
"""Bytes that may wait to be written; further packets are dropped and counted."""

CHUNK: Final = 128 * 2**10
"""Bytes of a chunk of the file. A killed process loses the last chunk, and what is queued."""

_PEERS = 4096  # of one datagram socket; a datagram from another peer is not recorded
_SMALL = 16384  # bytes that a message with secrets may have; larger ones need no further copy
_PAUSE = 0.02  # seconds between two visits to the queue, each of which delays the connections
_LINGER = 1.0  # seconds without a connection before the file is finished
_EVENT = b'{"type":"object","properties":{"dropped":{"type":"integer"},"ended":{"type":"string"}}}'


class Recording(NamedTuple):
    """In an `Address`: where its connections are recorded, and what they speak."""

    file: str
    protocol: str
    version: str

    def tap(self, side: str, peer: str) -> Tap | None:
        """Begin to record a connection; if that is impossible, log an error and return None."""
        try:
            return Recorder.begin(self, side, peer)
        except OSError as error:
            logger.error("%s: not recorded in %s: %s", peer, self.file, error)
            return None

    def of_datagrams(self, side: str) -> DatagramTaps:
        """Return the recordings of a datagram socket's peers."""
        return DatagramTaps(self, side)


def check(file: str) -> None:
    """Raise MissingExtra without the package mcap, and OSError if `file` cannot be made."""
    with optional("mcap", "record"):
        import mcap.writer  # noqa: F401
    folder = os.path.dirname(os.path.abspath(file))
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"record={file}: cannot write to the folder {folder}")


class Recorder:
    """Writes one file, for all connections of this process with the same path.

    The file is finished a second after the last connection has ended, and when the process exits.
    """

    _all: Final[dict[tuple[int, str], Recorder]] = {}
    _lock: Final = threading.Lock()  # of `_all`, and of beginning and finishing

    @classmethod
    def begin(cls, what: Recording, side: str, peer: str) -> Tap:
        """Begin to record a connection."""
        key = os.getpid(), os.path.abspath(what.file)
        with cls._lock:
            recorder = cls._all.get(key)
            if recorder is None:
                recorder = cls._all[key] = cls(key)
            recorder._open += 1
        return Tap(recorder, next(recorder._numbers), what, side, peer)

    def __init__(self, key: tuple[int, str]) -> None:
        with optional("mcap", "record"):
            from mcap.writer import CompressionType, Writer
        self._key = key
        self._file = _create(key[1])
        self.path = self._file.name
        self.dropped = 0
        self._writer = Writer(self._file, chunk_size=CHUNK, compression=CompressionType.LZ4)
        self._writer.start("rlwire", "rlwire")
        self._schemas: dict[str, int] = {}
        self._numbers = count(1)
        self._wall = time_ns() - monotonic_ns()
        self._queue: deque[tuple[Tap, str, int, bytes]] = deque()
        self._queued = 0  # bytes
        self._guard = threading.Lock()  # of `_queued`
        self._open = 0
        self._asleep, self._over = False, False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"recorder {self.path}", daemon=True)
        self._thread.start()
        atexit.register(self.finish)
        logger.info("recording to %s", self.path)

    def put(self, tap: Tap, topic: str, parts: Sequence[Buffer]) -> bool:
        """Queue a copy of the bytes; return False if there is no room."""
        size = sum(map(len, parts))
        with self._guard:
            if self._over or self._queued + size > QUEUED:
                return False
            self._queued += size
        self._queue.append((tap, topic, monotonic_ns(), b"".join(parts)))
        if self._asleep:
            self._wake.set()
        return True

    def end(self) -> None:
        """Count the end of a connection."""
        with self._lock:
            self._open -= 1

    def finish(self) -> None:
        """Write what is queued, and finish the file."""
        self._over = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            idle = 0.0
            while not self._over:
                if self._write():
                    idle = 0.0
                elif self._open:
                    self._rest()
                    continue
                elif idle < _LINGER:
                    idle += _PAUSE
                else:
                    self._forget(if_unused=True)
                sleep(_PAUSE)
            self._write()
            self._writer.finish()  # type: ignore[no-untyped-call]
        except OSError as error:
            logger.error("%s: the recording has ended: %s", self.path, error)
        finally:
            self._over = True
            self._forget()
            self._file.close()
            self._queue.clear()
        if self.dropped:
            logger.warning(
                "%s: dropped %d packets, because %d bytes were waiting to be written",
                self.path, self.dropped, QUEUED,
            )  # fmt: skip

    def _forget(self, if_unused: bool = False) -> None:
        """Make later connections begin another file."""
        with self._lock:
            if not (if_unused and self._open):
                self._over = True
                self._all.pop(self._key, None)
                atexit.unregister(self.finish)

    def _rest(self) -> None:
        """Wait until a packet is queued."""
        self._wake.clear()
        self._asleep = True
        if not (self._queue or self._over):
            self._wake.wait(_LINGER)
        self._asleep = False

    def _write(self) -> bool:
        """Write what is queued; return whether there was anything."""
        wrote = 0
        while self._queue:
            tap, topic, at, data = self._queue.popleft()
            channel = tap.channels.get(topic) or self._channel(tap, topic)
            self._writer.add_message(channel, self._wall + at, data, at)
            wrote += 1
            with self._guard:
                self._queued -= len(data)
            sleep(0)  # a connection's thread may wait for the interpreter
        if wrote:
            self._file.flush()
        return wrote > 0

    def _channel(self, tap: Tap, topic: str) -> int:
        what = tap.what
        schema = f"{what.protocol} {what.version}", "", b""
        if topic == "events":
            schema = "rlwire.Event", "jsonschema", _EVENT
        if schema[0] not in self._schemas:
            self._schemas[schema[0]] = self._writer.register_schema(*schema)
        facts = {"protocol": what.protocol, "side": tap.side, "peer": tap.peer}
        tap.channels[topic] = self._writer.register_channel(
            f"/{tap.number}/{topic}",
            "json" if topic == "events" else what.protocol,
            self._schemas[schema[0]],
            facts,
        )
        return tap.channels[topic]


def _create(path: str) -> IO[bytes]:
    """Create the file, or ``NAME-2.mcap`` and so on if it exists."""
    stem, suffix = os.path.splitext(path)
    for number in count(1):
        try:
            return open(path if number == 1 else f"{stem}-{number}{suffix}", "xb")
        except FileExistsError:
            if number == 1:
                logger.warning("%s exists and is kept", path)
    raise AssertionError


class Tap:
    """Records one connection, for its thread."""

    def __init__(
        self, recorder: Recorder, number: int, what: Recording, side: str, peer: str
    ) -> None:
        self.number, self.what, self.side, self.peer = number, what, side, peer
        self.channels: dict[str, int] = {}  # by topic, for the recorder
        self._recorder = recorder
        self._topics = ("server", "client") if side == "client" else ("client", "server")
        self._gap = 0  # packets dropped since the last one
        self._ended = False

    def record(self, sent: bool, parts: Sequence[Buffer]) -> None:
        """Record a message or datagram."""
        put = self._recorder.put
        if self._gap and put(self, "events", [json.dumps({"dropped": self._gap}).encode()]):
            self._gap = 0
        if self._gap or not put(self, self._topics[sent], parts):
            self._gap += 1
            self._recorder.dropped += 1

    def recorded(self, session: Any) -> RecordedSession:
        """Return a session for the `StreamCore` that records the messages of `session`."""
        return RecordedSession(session, self)

    def end(self, reason: str) -> None:
        """Record the end of the connection."""
        if not self._ended:
            self._ended = True
            self._recorder.put(self, "events", [json.dumps({"ended": reason}).encode()])
            self._recorder.end()


class RecordedSession:
    """A stream session, for its `StreamCore`, whose messages are recorded."""

    def __init__(self, session: Any, tap: Tap) -> None:
        self._session, self._tap = session, tap
        self._blank: Callable[[Any, bool], Buffer] | None = getattr(session, "blank", None)
        for name in ("send", "refuse", "outgoing", "farewell"):
            if hasattr(session, name):
                setattr(self, name, self._sending(getattr(session, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def _sending(self, method: Callable[..., Sequence[Buffer]]) -> Callable[..., Sequence[Buffer]]:
        def send(*arguments: Any) -> Sequence[Buffer]:
            buffers = method(*arguments)
            said = buffers
            if self._blank is not None and buffers:
                if sum(map(len, buffers)) <= _SMALL:
                    said = [b"".join(buffers)]
                said = [self._blank(part, True) for part in said]
            if buffers:
                self._tap.record(True, said)
            return buffers

        return send

    def _came(self, data: Any) -> list[Buffer]:
        return [data if self._blank is None else self._blank(data, False)]

    def frame_size(self, buffer: Any, start: int, end: int) -> int:
        try:
            return int(self._session.frame_size(buffer, start, end))
        except RlwireError:
            self._tap.record(False, [bytes(buffer[start:end])])
            raise

    def receive(self, message: Any) -> Any:
        self._tap.record(False, self._came(message))
        return self._session.receive(message)

    def receive_whole(self, buffer: Any, size: int) -> Any:
        came = bytes(buffer[:size])  # which the session may change
        try:
            events = self._session.receive_whole(buffer, size)
        except RlwireError:
            self._tap.record(False, self._came(came))
            raise
        if events is not None:  # else `receive` follows
            self._tap.record(False, self._came(came))
        return events


class DatagramTaps:
    """Records a datagram socket, each peer as a connection."""

    def __init__(self, what: Recording, side: str) -> None:
        self._what, self._side = what, side
        self._taps: dict[Peer, Tap | None] = {}

    def record(self, sent: bool, datagram: bytes, peer: Peer) -> None:
        if peer not in self._taps:
            if len(self._taps) >= _PEERS:
                return
            self._taps[peer] = self._what.tap(self._side, "{}:{}".format(*peer))  # type: ignore[misc]
        if (tap := self._taps[peer]) is not None:
            tap.record(sent, [datagram])

    def close(self) -> None:
        for tap in self._taps.values():
            if tap is not None:
                tap.end("closed on this side")
