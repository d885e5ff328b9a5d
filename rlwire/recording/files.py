"""Reads the files of `rlwire.recording.recorder`. Source: the MCAP specification, version 0."""

from __future__ import annotations

import json
import logging
import os
import re
import struct
import zlib
from bisect import bisect
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from itertools import chain
from typing import IO, Any, Final

from rlwire.errors import DecodeError, LimitExceeded, RlwireError, optional
from rlwire.limits import DEFAULT, Limits
from rlwire.recording.messages import Packet, RecordedConnection

logger = logging.getLogger(__name__)

_TOPIC: Final = re.compile(r"/([0-9]{1,9})/(client|server|events)", re.ASCII)
_OVERHEAD: Final = 2**20  # bytes of a record beside its packets
_RATIO: Final = 256  # a byte of LZ4 expands to 255 at most
_MESSAGE: Final = 22  # bytes of a message before its data
_HEAD: Final = struct.Struct("<BQ")  # a record's opcode and length
_FOOTER: Final = struct.Struct("<BQQQI8s")  # the last record, with the magic bytes after it


def packets(path: str, limits: Limits | None = None) -> Iterator[Packet]:
    """Read a recording, packet by packet, in the order of the file.

    A file that was cut, as by a killed process, gives what it has, and a warning in the log. So
    does a file with damaged chunks, whose packets are counted in the next packet's `gap`.

    Raises:
        DecodeError: it is not a recording of rlwire, or nothing in it can be read; has the offset.
        LimitExceeded: it expands to more than ``limits.expanded`` and 256 times its size; or
            there are only records longer than ``limits.received``.
        MissingExtra: the package mcap is missing.
    """
    with optional("mcap", "record"):
        import mcap.records  # noqa: F401
    with open(path, "rb") as file:
        yield from _Reader(file, path, limits or DEFAULT).packets()


class _Reader:
    def __init__(self, file: IO[bytes], path: str, limits: Limits) -> None:
        self._file, self._path = file, path
        self._most = limits.received + _OVERHEAD
        self._expanded = limits.expanded
        self._channels: dict[int, tuple[RecordedConnection, str]] = {}
        self._connections: dict[int, RecordedConnection] = {}
        self._gaps: dict[tuple[int, bool], int] = {}  # by connection, from_client
        self._paid = 0  # bytes of the file whose packets were read
        self._left = 0  # bytes that further chunks may expand to
        self._fault: RlwireError | None = None  # the first one
        self._skipped = self._lost = 0  # damaged parts, and packets in them

    def packets(self) -> Iterator[Packet]:
        found = 0
        try:
            for packet in chain.from_iterable(map(self._read, self._records())):
                found += 1
                yield packet
        finally:
            if self._fault is not None:
                logger.warning("%s: skipped %d damaged parts with %d packets; the first one: %s",
                               self._path, self._skipped, self._lost, self._fault)  # fmt: skip
        if self._fault is not None and not found:
            raise self._fault

    def _read(self, record: Any) -> Iterator[Packet]:
        kind = type(record).__name__
        if kind == "Channel" and record.id not in self._channels:
            self._channels[record.id] = self._channel(record)
        elif kind == "Message" and record.channel_id in self._channels:
            yield from self._message(record, *self._channels[record.channel_id])
        elif kind == "Message" and self._fault is None:
            raise self._wrong(f"a message of channel {record.channel_id}, which is unknown")
        elif kind == "Message":  # its channel was in a damaged chunk
            self._lost += 1
        elif kind == "MessageIndex":  # of a damaged chunk
            self._lost += len(record.records)
            connection, topic = self._channels.get(record.channel_id, (None, "events"))
            if connection is not None and topic != "events":
                key = connection.number, topic == "client"
                self._gaps[key] = self._gaps.get(key, 0) + len(record.records)

    def _records(self) -> Iterator[Any]:
        """Yield the file's channels and messages, with checked sizes, and damaged chunks' indexes.

        After damage it goes on at the next place that the summary names, else at the next record.
        """
        from mcap.opcode import Opcode
        from mcap.writer import MCAP0_MAGIC

        file, end = self._file, os.fstat(self._file.fileno()).st_size
        self._left = self._expanded + _RATIO * end
        if file.read(len(MCAP0_MAGIC)) != MCAP0_MAGIC:
            raise self._wrong("not an MCAP file")
        places: list[int] | None = None
        damaged = False  # the last chunk
        while (at := file.tell()) < end:
            after = end + 1
            try:
                opcode, length = _HEAD.unpack(file.read(_HEAD.size))
                after = file.tell() + length
                if opcode == Opcode.FOOTER and at + _FOOTER.size == end:
                    return
                if after > end or not 0 < opcode <= max(Opcode):
                    raise ValueError(f"no record begins at byte {at}")
                if length > self._most:
                    raise LimitExceeded("received", self._most, length, offset=at)
                if opcode == Opcode.CHUNK:
                    yield from self._chunk(_parsed(opcode, file.read(length)))
                    damaged = False
                elif damaged or opcode != Opcode.MESSAGE_INDEX:
                    yield _parsed(opcode, file.read(length))
            except Exception as error:  # of the packages, which have many kinds
                if self._left < 0:
                    raise
                places = self._places(end) if places is None else places
                index = bisect(places, at)
                if after > end and index == len(places):
                    break
                after = places[index] if index < len(places) else after
                if self._fault is None:
                    known = error if isinstance(error, RlwireError) else None
                    self._fault = known or DecodeError(
                        f"{self._path}: a damaged MCAP file: {error}", offset=at)  # fmt: skip
                self._skipped, damaged = self._skipped + 1, True
            file.seek(min(after, end))
        logger.warning("%s was cut, or is damaged: it ends in a record, byte %d", self._path, at)

    def _chunk(self, chunk: Any) -> Iterator[Any]:
        if chunk.uncompressed_size > self._most:
            raise LimitExceeded("received", self._most, chunk.uncompressed_size)
        self._left -= chunk.uncompressed_size
        if self._left < 0:
            raise LimitExceeded(
                "expanded", self._expanded, self._expanded - self._left, offset=self._file.tell(),
                advice=f"of a whole file, besides {_RATIO} times its size",
            )  # fmt: skip
        data = _expanded(chunk)
        if chunk.uncompressed_crc not in (0, zlib.crc32(data)):
            raise ValueError("a chunk has another CRC than it says")
        at, chunk.data = 0, b""
        while at < len(data):
            opcode, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            if at > len(data):
                raise ValueError("a record is longer than its chunk")
            yield _parsed(opcode, data[at - length : at])

    def _places(self, end: int) -> list[int]:
        """Read the channels in the summary; return where it says that chunks begin and end."""
        found: list[int] = []
        with suppress(Exception):
            self._file.seek(end - _FOOTER.size)
            *_, at, _, _, _ = _FOOTER.unpack(self._file.read(_FOOTER.size))
            while 0 < at < end - _FOOTER.size:
                self._file.seek(at)
                opcode, length = _HEAD.unpack(self._file.read(_HEAD.size))
                record = _parsed(opcode, self._file.read(min(length, _OVERHEAD)))
                if type(record).__name__ == "ChunkIndex":
                    start = record.chunk_start_offset
                    found += [start, start + record.chunk_length]
                elif type(record).__name__ == "Channel":
                    self._channels.setdefault(record.id, self._channel(record))
                at += _HEAD.size + length
        return sorted(found)

    def _channel(self, channel: Any) -> tuple[RecordedConnection, str]:
        topic = _TOPIC.fullmatch(channel.topic)
        protocol, side, peer = map(channel.metadata.get, ("protocol", "side", "peer"))
        if topic is None or not protocol or side not in ("client", "server"):
            raise self._wrong(f"channel {channel.topic!r} is not one of rlwire's recordings")
        number = int(topic[1])
        found = RecordedConnection(number, protocol, side, peer or "")
        if self._connections.setdefault(number, found) != found:
            raise self._wrong(f"two connections have the number {number}")
        return found, topic[2]

    def _message(
        self, message: Any, connection: RecordedConnection, topic: str
    ) -> Iterator[Packet]:
        number, data, ended = connection.number, message.data, ""
        from_client = (topic if topic != "events" else connection.side) == "client"
        if topic == "events":
            try:
                event = json.loads(data)
                dropped = int(event.get("dropped", 0))
            except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
                raise self._wrong(f"an event that is not valid: {error}") from error
            for key in ((number, True), (number, False)):
                self._gaps[key] = self._gaps.get(key, 0) + dropped
            if "ended" not in event:
                return
            data, ended = b"", str(event["ended"]) or "closed"
        times = message.log_time / 1e9, message.publish_time / 1e9
        gap = self._gaps.pop((number, from_client), 0)
        paid, self._paid = self._file.tell() - self._paid, self._file.tell()
        yield Packet(connection, from_client, *times, data, gap, ended, paid)

    def _wrong(self, text: str) -> DecodeError:
        return DecodeError(f"{self._path}: {text}", offset=self._file.tell())


def _parsed(opcode: int, content: bytes) -> Any:
    """Return a record of the kinds that are read, or None."""
    from mcap import records
    from mcap.data_stream import ReadDataStream
    from mcap.opcode import Opcode

    stream = ReadDataStream(BytesIO(content))
    if opcode == Opcode.MESSAGE:
        if len(content) < _MESSAGE:
            raise ValueError(f"a message of {len(content)} bytes")
        return records.Message.read(stream, len(content))
    kinds: dict[int, Any] = {
        Opcode.CHANNEL: records.Channel, Opcode.CHUNK: records.Chunk,
        Opcode.MESSAGE_INDEX: records.MessageIndex, Opcode.CHUNK_INDEX: records.ChunkIndex,
    }  # fmt: skip
    return kinds[opcode].read(stream) if opcode in kinds else None


def _expanded(chunk: Any) -> bytes:
    """Return a chunk's records; at most a byte more than it says is allocated."""
    import lz4.frame
    import zstandard

    size, data = chunk.uncompressed_size, chunk.data
    if chunk.compression == "lz4":
        data = lz4.frame.LZ4FrameDecompressor().decompress(data, size + 1)
    elif chunk.compression == "zstd":
        data = zstandard.ZstdDecompressor().stream_reader(data).read(size + 1)
    elif chunk.compression:
        raise ValueError(f"unknown compression {chunk.compression!r}")
    if len(data) != size:
        raise ValueError(f"a chunk does not expand to the {size} bytes that it says")
    return bytes(data)
