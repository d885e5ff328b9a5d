"""Reads the files of `rlwire.transports.recorder`. Source: the MCAP specification, version 0."""

from __future__ import annotations

import json
import logging
import re
import struct
from collections.abc import Iterator
from typing import IO, Any, Final

from rlwire.errors import DecodeError, LimitExceeded, RlwireError, optional
from rlwire.limits import DEFAULT, Limits
from rlwire.recording.messages import Packet, RecordedConnection

logger = logging.getLogger(__name__)

_TOPIC: Final = re.compile(r"/([0-9]{1,9})/(client|server|events)", re.ASCII)
_OVERHEAD: Final = 2**20  # bytes of a record beside its packets


def packets(path: str, limits: Limits | None = None) -> Iterator[Packet]:
    """Read a recording, packet by packet, in the order of the file.

    A file that was cut, as by a killed process, gives what it has, and a warning in the log.

    Raises:
        DecodeError: it is not a recording of rlwire; has the offset in the file.
        LimitExceeded: a record is longer than ``limits.expanded``, compressed or not.
        MissingExtra: the package mcap is missing.
    """
    with optional("mcap", "record"):
        import mcap.stream_reader  # noqa: F401
    with open(path, "rb") as file:
        yield from _Reader(file, path, limits or DEFAULT).packets()


class _Reader:
    def __init__(self, file: IO[bytes], path: str, limits: Limits) -> None:
        self._file, self._path = file, path
        self._most = limits.expanded + _OVERHEAD
        self._channels: dict[int, tuple[RecordedConnection, str]] = {}
        self._connections: dict[int, RecordedConnection] = {}
        self._gaps: dict[tuple[int, bool], int] = {}  # by connection, from_client

    def packets(self) -> Iterator[Packet]:
        for record in self._records():
            kind = type(record).__name__
            if kind == "Channel" and record.id not in self._channels:
                self._channels[record.id] = self._channel(record)
            elif kind == "Message":
                if record.channel_id not in self._channels:
                    raise self._wrong(f"a message of channel {record.channel_id}, which is unknown")
                yield from self._message(record, *self._channels[record.channel_id])

    def _records(self) -> Iterator[Any]:
        """Return the records of the file and of its chunks, with checked sizes."""
        from mcap.exceptions import EndOfFile
        from mcap.stream_reader import StreamReader, breakup_chunk
        from mcap.writer import MCAP0_MAGIC

        if self._file.read(len(MCAP0_MAGIC)) != MCAP0_MAGIC:
            raise self._wrong("not an MCAP file")
        self._file.seek(0)
        try:
            reader = StreamReader(self._file, emit_chunks=True, record_size_limit=self._most)
            record: Any
            for record in reader.records:
                if type(record).__name__ != "Chunk":
                    yield record
                    continue
                if record.uncompressed_size > self._most:
                    raise LimitExceeded("expanded", self._most, record.uncompressed_size)
                record.data, record.compression = _expanded(record), ""
                yield from breakup_chunk(record, validate_crc=True)
        except RlwireError:
            raise
        except Exception as error:  # of the packages, which have many kinds
            if not isinstance(error, (EndOfFile, struct.error)) or self._file.read(1):
                raise self._wrong(f"a damaged MCAP file: {error}") from error
            at = self._file.tell()
            logger.warning(
                "%s was cut, or is damaged: it ends in a record, byte %d", self._path, at
            )

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
        yield Packet(connection, from_client, *times, data, gap, ended)

    def _wrong(self, text: str) -> DecodeError:
        return DecodeError(f"{self._path}: {text}", offset=self._file.tell())


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
