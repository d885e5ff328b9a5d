"""Frames of HTTP/2 and WebSocket, between ends in memory; against h2 and websockets."""

from __future__ import annotations

from typing import Any

import h2.config
import h2.connection
import h2.events
from harness import CARTPOLE, Calls, array, copied, group
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from rlwire.codecs.websocket.frames import FrameDecoder, FrameEncoder
from rlwire.sessions.http2.core import Http2Core, Stream

PAYLOADS = {"16 bytes": CARTPOLE.tobytes(), "113 KB": array("84x84x4").tobytes()}


class End(Http2Core):
    """One end of a connection, with one stream."""

    def __init__(self, client: bool) -> None:
        super().__init__(client)
        self.stream = Stream(1)
        self.add(self.stream)

    def feed(self, data: bytes) -> list[Any]:
        events, at = [], 0
        while at < len(data):
            size = self.frame_size(data, at, len(data))
            events += [each[1] for each in self.receive(data[at : at + size]) if each is not None]
            at += size
        return events

    def drained(self) -> bytes:
        return b"".join(iter(lambda: b"".join(self.output()), b""))


def ours() -> Any:
    client, server = End(True), End(False)
    server.feed(b"".join([client.preface()]))
    client.feed(b"".join([server.preface()]))

    def exchange(payload: bytes) -> Any:
        wire = b"".join(client.message(client.stream, [payload])) + client.drained()
        (message,) = server.feed(wire)
        client.feed(server.drained())  # window updates
        return message

    return exchange


def theirs() -> Any:
    client = h2.connection.H2Connection()
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    client.initiate_connection()
    server.initiate_connection()
    request = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "x")]
    client.send_headers(1, request)

    def exchange(payload: bytes) -> Any:
        message, left = b"", payload
        while left:
            room = min(client.local_flow_control_window(1), client.max_outbound_frame_size)
            client.send_data(1, left[:room])
            left = left[room:]
            for event in server.receive_data(client.data_to_send()):
                if isinstance(event, h2.events.DataReceived):
                    message += event.data
                    server.acknowledge_received_data(event.flow_controlled_length, 1)
            client.receive_data(server.data_to_send())
        return message

    client.receive_data(server.data_to_send())
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    return exchange


@group("memcpy", "h2", "rlwire", payloads=tuple(PAYLOADS))
def test_http2_message(payload: str) -> tuple[int, Calls]:
    data = PAYLOADS[payload]
    assert bytes(ours()(data)) == theirs()(data) == data
    return len(data), {"memcpy": copied(data), "h2": (theirs(), data), "rlwire": (ours(), data)}


def parsed(wire: bytes) -> bytes:
    """Read a masked frame with websockets."""
    reader = StreamReader()
    reader.feed_data(wire)
    reading = Frame.parse(reader.read_exact, mask=True)
    try:
        while True:
            next(reading)
    except StopIteration as end:
        return bytes(end.value.data)


@group("memcpy", "websockets", "rlwire", payloads=tuple(PAYLOADS))
def test_write_a_masked_websocket_message(payload: str) -> tuple[int, Calls]:
    data = PAYLOADS[payload]
    client = FrameEncoder(True, "binary")
    frame = Frame(Opcode.BINARY, data)
    assert parsed(frame.serialize(mask=True)) == parsed(b"".join(client.message(data))) == data
    return len(data), {
        "memcpy": copied(data),
        "websockets": (lambda frame: frame.serialize(mask=True), frame),
        "rlwire": (client.message, data),
    }


@group("memcpy", "websockets", "rlwire", payloads=tuple(PAYLOADS))
def test_read_a_masked_websocket_message(payload: str) -> tuple[int, Calls]:
    data = PAYLOADS[payload]
    wire = b"".join(FrameEncoder(True, "binary").message(data))
    server = FrameDecoder(True, "binary")
    assert server.message(wire, len(wire)) == parsed(wire) == data
    return len(data), {
        "memcpy": copied(data),
        "websockets": (parsed, wire),
        "rlwire": (server.message, wire, len(wire)),
    }
