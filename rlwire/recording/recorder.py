"""Records connections in an MCAP file: raw bytes, with their direction and times.

A connection's thread copies the bytes into a bounded queue, and a thread of the recorder writes
them, so that a slow disk delays no peer. Layers remove their secrets in `Layer.redact`.

Source: the MCAP specification, version 0, with the package ``mcap``.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from itertools import chain, count
from multiprocessing.util import Finalize
from time import monotonic_ns, sleep, time_ns
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from rlwire.errors import RlwireError, optional
from rlwire.sessions.layer import Buffer, Layer, Peer

logger = logging.getLogger(__name__)

QUEUED: Final = 128 * 2**20
"""Bytes that may wait to be written, of each connection at most as many as are then left for the
others. Further packets are dropped and counted."""

FILE: Final = 2**30
"""Bytes of a file, after which the next one begins, ``NAME-2.mcap`` and so on."""

TOTAL: Final = 16 * FILE
"""Bytes of all files of this process with one path; above it, the oldest ones are removed."""

CHANNELS: Final = 65_000
"""Channels of a file, of which MCAP has 65,535; a connection has up to three."""

CHUNK: Final = 128 * 2**10
"""Bytes of a chunk of the file. A killed process loses the last chunk, and what is queued."""

_PEERS = 4096  # of one datagram socket; a datagram from another peer is not recorded
_EACH = 160  # bytes of a queued packet beside its data
_WRITTEN = 8192  # bytes from which on the file is written; each time, other threads run first
_SMALL = 16384  # bytes that a message with secrets may have; larger ones need no further copy
_CLEAR = 8  # bytes of what cannot be read; enough to tell the protocol
_PAUSE = 0.02  # seconds between two visits to the queue, each of which delays the connections
_LINGER = 1.0  # seconds without a connection before the file is finished


class FileRecording(NamedTuple):
    """In an `Address`: where its connections are recorded, and what they speak."""

    file: str
    protocol: str
    version: str

    def tap(self, side: str, peer: str) -> Tap | None:
        """Begin to record a connection; if that is impossible, log an error and return None."""
        path = os.path.abspath(self.file)
        try:
            with Recorder._lock:
                if path not in Recorder._all:
                    Recorder._all[path] = Recorder(path)
                recorder = Recorder._all[path]
                recorder.open += 1
                return Tap(recorder, next(recorder.numbers), self, side, peer)
        except (OSError, RuntimeError) as error:  # a RuntimeError: no thread can start
            logger.error("%s: not recorded in %s: %s", peer, self.file, error)
            return None

    def of_datagrams(self, remote: Peer) -> DatagramTaps:
        """Return the recordings of a datagram socket; `remote` is a client's server, or None."""
        return DatagramTaps(self, remote)


def check(file: str) -> None:
    """Raise MissingExtra without the package mcap, and OSError if `file` cannot be made."""
    with optional("mcap", "record"):
        import mcap.writer  # noqa: F401
    if os.path.isdir(file):
        raise IsADirectoryError(f"record={file}: expected a file, but it is a folder")
    folder = os.path.dirname(os.path.abspath(file))
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"record={file}: cannot write to the folder {folder}")


class Recorder:
    """Writes one file, for all connections of this process with the same path.

    A file that is full is finished, and the next one begins: of a connection that goes on, it first
    has an event with the number of its packets in earlier files. A file is also finished a second
    after the last connection has ended, and when the process exits. Once writing has failed,
    nothing more is recorded with this path.
    """

    _all: Final[dict[str, Recorder]] = {}
    _made: Final = defaultdict[str, dict[str, int]](dict)  # sizes of its files, by path
    _further: Final = defaultdict[str, "count[int]"](lambda: count(2))  # numbers of their names
    _lock: Final = threading.RLock()  # of all recorders; a fork holds it

    def __init__(self, path: str) -> None:
        self._key = path
        self.open = 0  # connections
        self.dropped = 0
        self._begin_file()
        self.numbers = count(1)  # of connections
        self._wall = time_ns() - monotonic_ns()
        self._queue: queue.SimpleQueue[tuple[Tap, str, int, bytes] | None] = queue.SimpleQueue()
        self._queued = 0  # bytes
        self._over = False
        self._thread = threading.Thread(target=self._run, name=f"recorder {self.path}", daemon=True)
        self._thread.start()
        # Unlike those of atexit, it is also called in processes of multiprocessing.
        self._at_exit = Finalize(None, self.finish, exitpriority=0)
        logger.info("recording to %s", self.path)

    def _begin_file(self) -> None:
        from mcap.writer import CompressionType, Writer

        with self._lock:
            made = self._made[self._key]
            self._file = _File(self._key, self._further[self._key], bool(made))
            self.path = self._file.path
            made[self.path] = FILE  # until its size is known
            while sum(made.values()) > TOTAL:
                oldest = next(iter(made))
                del made[oldest]
                logger.warning("%s: removed, because %d bytes are kept at most", oldest, TOTAL)
                with suppress(OSError):
                    os.unlink(oldest)
        self._writer = Writer(self._file, chunk_size=CHUNK, compression=CompressionType.LZ4)  # type: ignore[arg-type]
        self._writer.start("rlwire", "rlwire")
        self._channels = 0

    def _end_file(self) -> None:
        self._writer.finish()  # type: ignore[no-untyped-call]
        self._file.flush()
        self._file.raw.close()
        with self._lock:
            self._made[self._key][self.path] = self._file.size

    def has_room(self, tap: Tap, size: int) -> bool:
        """Return whether that many bytes can be queued; hold the lock until `put`."""
        return not self._over and tap.queued + self._queued + size + _EACH <= QUEUED

    def put(self, tap: Tap, topic: str, data: bytes) -> None:
        """Queue a packet."""
        if not self._over:
            self._queue.put((tap, topic, monotonic_ns(), data))
            self._queued += len(data) + _EACH
            tap.queued += len(data) + _EACH

    def finish(self, if_unused: bool = False) -> None:
        """Write what is queued, and finish the file; later connections begin another one."""
        with self._lock:
            if if_unused and self.open:
                return
            if self._all.get(self._key) is self:
                del self._all[self._key]
            self._over = True
            self._queue.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            for packet in self._packets():
                self._write(*packet)
            self._end_file()
        except Exception as error:  # of the disk, or of the package
            logger.error("%s: the recording has ended: %s", self.path, error)
            self._file.raw.close()
            with self._lock:
                self._over, self._queue = True, queue.SimpleQueue()
        self._at_exit.cancel()
        if self.dropped:
            logger.warning(
                "%s: dropped %d packets, because %d bytes were waiting to be written",
                self.path, self.dropped, QUEUED,
            )  # fmt: skip

    def _packets(self) -> Iterator[tuple[Tap, str, int, bytes]]:
        """Yield what is queued, until the file is to be finished."""
        while True:
            if self._queue.empty():
                self._file.flush()
                sleep(_PAUSE)
            try:
                packet = self._queue.get(timeout=_LINGER)
            except queue.Empty:
                self.finish(if_unused=True)
                continue
            if packet is None:
                return
            yield packet
            sleep(0)  # a connection's thread may wait for the interpreter

    def _write(self, tap: Tap, topic: str, at: int, data: bytes) -> None:
        if self._file.size > FILE or self._channels > CHANNELS:
            self._end_file()
            self._begin_file()
        if tap.file != self.path:
            tap.file = self.path
            tap.channels.clear()
            if tap.written:
                before = json.dumps({"dropped": tap.written}).encode()
                channel = self._channel(tap, "events")
                self._writer.add_message(channel, self._wall + at, before, at)
        tap.written += topic != "events"
        channel = tap.channels.get(topic) or self._channel(tap, topic)
        self._writer.add_message(channel, self._wall + at, data, at)
        with self._lock:
            self._queued -= len(data) + _EACH
            tap.queued -= len(data) + _EACH

    def _channel(self, tap: Tap, topic: str) -> int:
        _, protocol, version = tap.what
        facts = {"protocol": protocol, "version": version, "side": tap.side, "peer": tap.peer}
        name, encoding = f"/{tap.number}/{topic}", "json" if topic == "events" else protocol
        self._channels += 1
        tap.channels[topic] = self._writer.register_channel(name, encoding, 0, facts)  # no schema
        return tap.channels[topic]


class _File:
    """A new file, ``NAME-2.mcap`` and so on if it exists.

    Its buffer is Python's, which a forked process does not write once more when it exits.
    """

    def __init__(self, path: str, further: Iterator[int], again: bool) -> None:
        stem, suffix = os.path.splitext(path)
        first = [] if again else [path]
        for name in chain(first, (f"{stem}-{number}{suffix}" for number in further)):
            with suppress(FileExistsError):
                self.raw = FileIO(name, "x")
                break
        if name != path and not again:
            logger.warning("%s exists and is kept", path)
        self.path, self.size = name, 0
        self._buffer = bytearray()

    def tell(self) -> int:
        return self.size

    def write(self, data: Buffer) -> None:
        self._buffer += data
        self.size += len(data)
        if len(self._buffer) > _WRITTEN:
            self.flush()

    def flush(self) -> None:
        while self._buffer:
            del self._buffer[: self.raw.write(self._buffer)]


@dataclass(eq=False)
class Tap:
    """Records one connection, for its thread."""

    recorder: Recorder
    number: int
    what: FileRecording
    side: str
    peer: str
    users: int = 1  # the connection, or the sockets with its datagrams; 0 after its end
    channels: dict[str, int] = field(default_factory=dict)  # of `file`, by topic
    gap: int = 0  # packets dropped since the last one
    queued: int = 0  # bytes
    file: str = ""  # the one with its last packet
    written: int = 0  # packets

    def record(self, sent: bool, parts: Sequence[Buffer]) -> None:
        """Record a message or datagram."""
        with Recorder._lock:
            if not self.users:
                return
            if not self.recorder.has_room(self, sum(map(len, parts))):
                self.gap += 1
                self.recorder.dropped += 1
                return
            if self.gap:
                self._put_event(dropped=self.gap)
                self.gap = 0
            topic = "client" if sent == (self.side == "client") else "server"
            self.recorder.put(self, topic, b"".join(parts))

    def end(self, reason: str) -> None:
        """Record that a user has ended the connection; the last one ends the recording."""
        with Recorder._lock:
            self.users -= 1
            if not self.users:
                self._put_event(dropped=self.gap, ended=reason)
                self.recorder.open -= 1

    def _put_event(self, **facts: Any) -> None:
        self.recorder.put(self, "events", json.dumps(facts).encode())

    def recorded(self, layer: Layer) -> RecordedLayer:
        """Return a layer for the `StreamCore` that records the messages of `layer`."""
        return RecordedLayer(layer, self)


def unreadable(data: Buffer) -> bytes:
    """Return bytes with stars after the first 8: those that no session can read may have secrets.

    They may be another protocol's, in which a secret can have any form.
    """
    return bytes(data[:_CLEAR]) + b"*" * max(0, len(data) - _CLEAR)


class RecordedLayer(Layer):
    """Records the messages of a layer; for its state, ask that layer."""

    def __init__(self, layer: Layer, tap: Tap) -> None:
        self._layer, self._tap = layer, tap
        self.data_offset = layer.data_offset  # type: ignore[method-assign]
        self.receive_rest = layer.receive_rest  # type: ignore[method-assign]

    def _record(self, sent: bool, parts: Sequence[Buffer]) -> None:
        self._tap.record(sent, [self._layer.redact(part, sent) for part in parts])

    def _sent(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        if buffers:
            small = sum(map(len, buffers)) <= _SMALL
            self._record(True, [b"".join(buffers)] if small else buffers)
        return buffers

    def send(self, event: Any) -> Sequence[Buffer]:
        return self._sent(self._layer.send(event))

    def output(self) -> Sequence[Buffer]:
        return self._sent(self._layer.output())

    def reject(self, error: RlwireError) -> Sequence[Buffer]:
        return self._sent(self._layer.reject(error))

    def close_message(self, stopping: bool = False) -> Sequence[Buffer]:
        return self._sent(self._layer.close_message(stopping))

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        try:
            return self._layer.frame_size(buffer, start, end)
        except RlwireError:
            self._tap.record(False, [unreadable(buffer[start:end])])
            raise

    def receive(self, message: Buffer) -> list[Any]:
        self._record(False, [message])
        return self._layer.receive(message)

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        came = bytes(buffer[:size])  # which the layer may change
        try:
            events = self._layer.receive_whole(buffer, size)
        except RlwireError:
            with suppress(RlwireError):  # of `frame_size`, which has recorded it
                self.frame_size(came, 0, size)
                self._record(False, [came])
            raise
        if events is not None:  # else `receive` follows
            self._record(False, [came])
        return events


class DatagramTaps:
    """Records a datagram socket: a client's as one connection, a server's as one for each peer.

    Servers with several ports, such as PERLERT's lobby and rollouts, share those of their peers.
    """

    _shared: Final[WeakValueDictionary[Any, Tap]] = WeakValueDictionary()

    def __init__(self, what: FileRecording, remote: Peer) -> None:
        self._what, self._remote = what, remote
        self._taps: dict[Peer, Tap | None] = {}

    def record(self, sent: bool, datagram: bytes, peer: Peer) -> None:
        key = self._remote or peer
        if key not in self._taps:
            if len(self._taps) >= _PEERS:
                return
            self._taps[key] = self._tap(key)
            if len(self._taps) == _PEERS:
                logger.warning(
                    "%s: peers after the first %d are not recorded", self._what.file, _PEERS
                )
        if (tap := self._taps[key]) is not None:
            tap.record(sent, [datagram])

    def _tap(self, peer: Any) -> Tap | None:
        name = f"{peer[0]}:{peer[1]}"
        if self._remote is not None:
            return self._what.tap("client", name)
        with Recorder._lock:
            tap = self._shared.get((self._what, peer))
            if tap is not None and tap.users:
                tap.users += 1
            elif tap := self._what.tap("server", name):
                self._shared[self._what, peer] = tap
            return tap

    def close(self) -> None:
        taps, self._taps = self._taps, {}
        for tap in filter(None, taps.values()):
            tap.end("closed on this side")


def _forget_parents() -> None:
    """In a forked process: its parent alone writes what it has begun."""
    Recorder._all.clear()
    Recorder._made.clear()
    Recorder._further.clear()
    DatagramTaps._shared.clear()
    Recorder._lock.release()


os.register_at_fork(
    before=Recorder._lock.acquire,
    after_in_parent=Recorder._lock.release,
    after_in_child=_forget_parents,
)
