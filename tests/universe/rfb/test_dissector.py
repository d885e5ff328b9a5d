"""The dissector on captures between rlwire's own viewer and server, and on damaged bytes."""

from __future__ import annotations

import random
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from rlwire.codecs.rfb import messages as rfb
from rlwire.codecs.rfb.handshake import ServerInit, encode_server_init
from rlwire.codecs.rfb.messages import Encoding, PixelFormat
from rlwire.limits import Limits
from rlwire.recording.messages import Dissected
from rlwire.universe.rfb import Display, RfbClient, RfbServer
from rlwire.universe.rfb.dissector import RfbDissector
from tests.waiting import eventually

Packets = list[tuple[bytes, bool]]

SOON = 20.0


@contextmanager
def relayed(port: int) -> Iterator[tuple[int, Packets]]:
    """Relay one connection to `port`; yield the port to connect to, and the packets."""
    packets: Packets = []

    def pump(source: socket.socket, sink: socket.socket, by_client: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                packets.append((data, by_client))
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def relay() -> None:
        with listener.accept()[0] as client, socket.create_connection(target) as server:
            back = threading.Thread(target=pump, args=(server, client, False), daemon=True)
            back.start()
            pump(client, server, True)
            back.join(SOON)

    target = "127.0.0.1", port
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relaying = threading.Thread(target=relay, daemon=True)
        relaying.start()
        yield listener.getsockname()[1], packets
        relaying.join(SOON)


def picture(seed: int, height: int = 48, width: int = 64) -> Any:
    frame = np.full((height, width, 3), 40 * seed, np.uint8)
    colours = np.random.default_rng(seed).integers(0, 256, (height // 2, width // 3, 3))
    frame[: height // 2, : width // 3] = colours
    return frame


PICTURES = [picture(0), picture(1), picture(2), picture(3, 24, 32)]


def captured(encoding: Encoding, password: str | None = None) -> Packets:
    """The packets of a viewer that sees all `PICTURES`, presses a key and moves the pointer."""
    heard: list[Any] = []
    display = Display(64, 48, on_input=lambda viewer, message: heard.append(message))
    with (
        RfbServer(display, "127.0.0.1:0", auth=password) as server,
        relayed(server.address.port) as (port, packets),
        RfbClient(f"127.0.0.1:{port}", auth=password, encodings=[encoding]).connect() as client,
    ):
        for frame in PICTURES:
            display.show(frame)
            while not np.array_equal(client.snapshot(), frame):
                client.update(SOON)
        client.key("Left", True)
        client.pointer(3, 4)
        eventually(lambda: len(heard) == 2)
        client.close()
    return packets


def dissected(packets: Packets, **limits: int) -> Iterator[Dissected]:
    dissector = RfbDissector(Limits(**limits))
    for data, by_client in packets:
        yield from dissector.dissect(data, by_client)


@pytest.mark.parametrize("encoding", [Encoding.TIGHT, Encoding.RAW])
@pytest.mark.parametrize("cut", [1 << 20, 7])
def test_a_conversation(encoding: Encoding, cut: int) -> None:
    whole = captured(encoding, "secret")
    packets = [
        (data[at : at + cut], by_client)
        for data, by_client in whole
        for at in range(0, len(data), cut)
    ]
    seen: list[Any] = []
    kinds: list[str] = []
    names: set[str] = set()
    for message in dissected(packets):
        kinds.append(message.kind)
        if message.kind == "FramebufferUpdate":
            screen = message.value["screen"]
            assert not screen.flags.writeable
            seen.append(screen.copy())
            names |= {each["encoding"] for each in message.value["rectangles"]}
        elif message.kind == "KeyEvent":
            assert message.value == {"key": "Left", "keysym": 0xFF51, "down": True}
        elif message.kind == "PointerEvent":
            assert message.value == {"x": 3, "y": 4, "buttons": 0}
        elif message.kind == "ServerInit":
            assert (message.value["width"], message.value["height"]) == (64, 48)
        elif message.kind == "SecurityResult":
            assert message.value == 0
    assert kinds[:9] == [
        "ProtocolVersion", "ProtocolVersion", "SecurityTypes", "SecurityType", "Challenge",
        "ChallengeResponse", "SecurityResult", "ClientInit", "ServerInit",
    ]  # fmt: skip
    assert {"SetPixelFormat", "SetEncodings", "FramebufferUpdateRequest"} <= {*kinds}
    assert {"KeyEvent", "PointerEvent"} <= {*kinds}
    assert "damaged" not in kinds
    assert {encoding.name, "DESKTOP_SIZE"} <= names
    for frame in PICTURES:
        assert any(np.array_equal(frame, one) for one in seen)
    for direction in (True, False):
        offset = 0
        bytes_ = b"".join(data for data, by_client in whole if by_client is direction)
        dissector = RfbDissector()
        for data, by_client in packets:
            for message in dissector.dissect(data, by_client):
                if by_client is direction:
                    assert message.offset == offset
                    offset += message.size
        assert offset == len(bytes_)


def opened(form: PixelFormat, *messages: bytes) -> list[Dissected]:
    """What the server's messages are after a handshake, to a viewer with this format."""
    init = encode_server_init(ServerInit(4, 2, rfb.RGB888, "small"))
    packets = [
        (b"RFB 003.008\n", False), (b"RFB 003.008\n", True), (b"\1\1", False), (b"\1", True),
        (b"\0\0\0\0", False), (b"\1", True), (init, False),
        (rfb.encode(rfb.SetPixelFormat(form)), True), *[(each, False) for each in messages],
    ]  # fmt: skip
    return [*dissected(packets)][8:]


def update(*rectangles: bytes) -> bytes:
    return rfb.encode(rfb.FramebufferUpdate(len(rectangles))) + b"".join(rectangles)


def rectangle(encoding: int, width: int, height: int, data: bytes, x: int = 0, y: int = 0) -> bytes:
    return struct.pack(">HHHHi", x, y, width, height, encoding) + data


BIG = PixelFormat(32, 24, True, 255, 255, 255, 24, 16, 8)


@pytest.mark.parametrize(
    ("form", "pixel"), [(rfb.RGB888, b"\3\2\1\0"), (rfb.RGBX, b"\1\2\3\0"), (BIG, b"\1\2\3\0")]
)
def test_colours_have_the_same_order_in_every_format(form: PixelFormat, pixel: bytes) -> None:
    (message,) = opened(form, update(rectangle(Encoding.RAW, 4, 2, 8 * pixel)))
    assert (message.value["screen"] == [1, 2, 3]).all()


def test_messages_of_other_servers() -> None:
    cursor = rectangle(Encoding.CURSOR, 9, 3, bytes(9 * 3 * 4 + 2 * 3))
    resized = rectangle(Encoding.EXTENDED_DESKTOP_SIZE, 3, 2, b"\1\0\0\0" + bytes(16))
    first, bell, text, colours, last = opened(
        rfb.RGBX,
        update(cursor, resized),
        rfb.encode(rfb.Bell()),
        b"\3\0\0\0\0\0\0\2ab",
        b"\1\0\0\1\0\1" + bytes(6),
        b"\0\0\xff\xff" + rectangle(Encoding.RAW, 1, 1, b"\1\2\3\0", 2, 1),
    ) + opened(rfb.RGBX, b"\0\0\xff\xff" + rectangle(Encoding.LAST_RECT, 0, 0, b""))
    assert [each["encoding"] for each in first.value["rectangles"]] == [
        "CURSOR", "EXTENDED_DESKTOP_SIZE",
    ]  # fmt: skip
    assert first.value["screen"].shape == (2, 3, 3)
    assert bell.kind == "Bell"
    assert (text.kind, text.value["text"]) == ("ServerCutText", "ab")
    assert (colours.kind, colours.value["first"]) == ("SetColourMapEntries", 1)
    assert last.kind == "FramebufferUpdate"


def test_a_rectangle_whose_pixels_are_damaged() -> None:
    packed = zlib.compressobj()
    good = packed.compress(b"\1\1\2\3") + packed.flush(zlib.Z_SYNC_FLUSH)
    bad = b"no zlib"
    messages = opened(
        rfb.RGBX,
        *[
            update(rectangle(Encoding.ZRLE, 4, 2, struct.pack(">I", len(data)) + data))
            for data in (good, bad)
        ],
    )
    assert (messages[0].value["screen"] == [1, 2, 3]).all()
    (found,) = messages[1].value["rectangles"]
    assert (found["encoding"], found["width"], "zlib" in found["error"]) == ("ZRLE", 4, True)
    assert "screen" not in messages[1].value


def test_a_format_that_cannot_be_read_and_a_screen_that_is_too_large() -> None:
    small = PixelFormat(16, 16, False, 31, 63, 31, 11, 5, 0)
    message, bell = opened(small, update(rectangle(Encoding.RAW, 1, 1, b"\1\2")), b"\2")
    assert message.kind == "damaged"
    assert "16" in message.error
    assert bell.kind == "Bell"  # it goes on with the next packet
    kinds = [message.kind for message in dissected(captured(Encoding.RAW), pixels=100)]
    assert kinds.count("damaged") > 0
    assert "KeyEvent" in kinds


def test_after_a_gap_there_is_no_screen_until_it_is_whole() -> None:
    dissector = RfbDissector()
    whole = rectangle(Encoding.RAW, 4, 2, bytes(range(32)))
    part = rectangle(Encoding.RAW, 1, 1, b"\1\2\3\0")
    init = encode_server_init(ServerInit(4, 2, rfb.RGBX, "small"))
    hello = [
        (b"RFB 003.003\n", False), (b"RFB 003.003\n", True), (b"\0\0\0\1", False), (b"\1", True),
    ]  # fmt: skip
    for data, by_client in [*hello, (init + update(part)[:-1], False)]:
        assert "damaged" not in [each.kind for each in dissector.dissect(data, by_client)]
    seen = [[*dissector.dissect(update(each), False, gap)] for each, gap in ((part, 3), (whole, 0))]
    assert ["screen" in message.value for (message,) in seen] == [False, True]


@pytest.mark.parametrize("encoding", [Encoding.TIGHT, Encoding.RAW])
def test_damaged_bytes(encoding: Encoding) -> None:
    whole = captured(encoding)
    chance = random.Random(5)
    damaged = 0
    for _ in range(150):
        dissector = RfbDissector(Limits(pixels=10_000))
        for data, by_client in whole:
            mutated = bytearray(data)
            for _ in range(chance.choice((0, 0, 1, 3))):
                mutated[chance.randrange(len(mutated))] = chance.choice(b"\0\1\2\7\x10\xff")
            if chance.random() < 0.05:
                del mutated[chance.randrange(len(mutated)) :]
            for message in dissector.dissect(mutated, by_client, chance.random() < 0.02):
                assert (message.kind == "damaged") == bool(message.error)
                damaged += bool(message.error)
    assert damaged
