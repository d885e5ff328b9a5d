"""The cases of the Autobahn test suite (25.10.1), restated: what must come back for which frames.

Groups 1 to 7, 9 and 10; 12 and 13 are compression, which is declined. Each case goes to a server's
session that echoes, and to a client's, the bytes whole, one by one, and octet-wise per frame, with
the frames that must come back written down by hand. docs/protocols/websocket.md has the results of
the suite itself.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from rlwire.errors import RlwireError
from rlwire.limits import Limits
from rlwire.sessions.websocket import (
    Closed,
    RawMessages,
    WebSocketClientSession,
    WebSocketServerSession,
)
from rlwire.streams import FrameReader

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = b"\x37\xfa\x21\x3d"


class Frame:
    """One frame, as the peer sends it or expects it."""

    def __init__(
        self, opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0
    ) -> None:
        self.opcode, self.payload, self.fin, self.rsv = opcode, payload, fin, rsv

    def wire(self, masked: bool) -> bytes:
        size = len(self.payload)
        bit = 0x80 if masked else 0
        head = bytes([(0x80 if self.fin else 0) | self.rsv << 4 | self.opcode])
        if size < 126:
            head += bytes([bit | size])
        elif size < 65536:
            head += struct.pack(">BH", bit | 126, size)
        else:
            head += struct.pack(">BQ", bit | 127, size)
        if not masked:
            return head + self.payload
        key = (KEY * (size // 4 + 1))[:size]
        masked_payload = (
            int.from_bytes(self.payload, "big") ^ int.from_bytes(key, "big")
        ).to_bytes(size, "big")
        return head + KEY + masked_payload

    def __repr__(self) -> str:
        return f"Frame({self.opcode}, {self.payload[:20]!r}, fin={self.fin})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and vars(self) == vars(other)


def parse(data: bytes, masked: bool) -> Iterator[Frame]:
    """The frames in what a session sent."""
    at = 0
    while at < len(data):
        first, second = data[at], data[at + 1]
        assert second >> 7 == masked
        size, at = second & 127, at + 2
        if size == 126:
            size, at = int.from_bytes(data[at : at + 2], "big"), at + 2
        elif size == 127:
            size, at = int.from_bytes(data[at : at + 8], "big"), at + 8
        key, at = (data[at : at + 4], at + 4) if masked else (bytes(4), at)
        long = (key * (size // 4 + 1))[:size]
        payload = int.from_bytes(data[at : at + size], "big") ^ int.from_bytes(long, "big")
        at += size
        yield Frame(first & 15, payload.to_bytes(size, "big"), fin=first >= 128, rsv=first >> 4 & 7)
    assert at == len(data)


class Echo:
    """A session under test with its transport: what it receives it sends back."""

    def __init__(self, side: str, kind: str = "any", limits: Limits | None = None) -> None:
        client = WebSocketClientSession(
            RawMessages(), "ws://test/", kind="any" if side == "server" else kind
        )
        server = WebSocketServerSession(
            RawMessages(), kind="any" if side == "client" else kind, limits=limits
        )
        (request,) = client.outgoing()
        server.receive(request)
        (response,) = server.outgoing()
        client.receive(response)
        self.session: Any = server if side == "server" else client
        self.masked = side == "client"
        self.reader = FrameReader(self.session)
        self.sent = b""
        self.error: RlwireError | None = None

    def feed(self, data: bytes, step: int) -> None:
        at = 0
        while at < len(data) and self.error is None:
            room = self.reader.room()
            count = min(len(room), step, len(data) - at)
            room[:count] = data[at : at + count]
            self.reader.advance(count)
            at += count
            self._take()

    def _take(self) -> None:
        try:
            while (frame := self.reader.frame()) is not None:
                for event in self.session.receive(frame):
                    self.sent += b"".join(self.session.send(event))
                self.sent += b"".join(self.session.outgoing())
        except RlwireError as error:
            self.error = error
            self.sent += b"".join(self.session.outgoing())

    def frames(self) -> list[Frame]:
        return list(parse(self.sent, self.masked))

    def close_code(self) -> int:
        """The code of the close frame that was sent last."""
        last = self.frames()[-1]
        assert last.opcode == CLOSE
        return int.from_bytes(last.payload[:2], "big") if last.payload else 1005


@pytest.fixture(params=["server", "client"])
def side(request: Any) -> str:
    return str(request.param)


def run(side: str, frames: list[Frame], step: int = 2**30) -> Echo:
    echo = Echo(side)
    echo.feed(b"".join(frame.wire(masked=side == "server") for frame in frames), step)
    return echo


STEPS = {"whole": 2**30, "octet-wise": 1}


@pytest.fixture(params=STEPS)
def step(request: Any) -> int:
    return STEPS[request.param]


def expect_echo(side: str, frames: list[Frame], expected: list[Frame], step: int = 2**30) -> None:
    echo = run(side, [*frames, Frame(CLOSE, b"\x03\xe8")], step)
    assert isinstance(echo.error, Closed)
    assert echo.error.code == 1000
    assert echo.frames() == [*expected, Frame(CLOSE, b"\x03\xe8")]


def expect_failure(
    side: str, frames: list[Frame], code: int, before: list[Frame] | None = None, step: int = 2**30
) -> None:
    echo = run(side, frames, step)
    assert echo.error is not None
    assert not isinstance(echo.error, Closed)
    assert echo.session.closed
    assert echo.frames()[:-1] == (before or [])
    assert echo.close_code() == code


# 1: framing.


@pytest.mark.parametrize("size", [0, 125, 126, 127, 128, 65535, 65536])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_1_payloads(side: str, opcode: int, size: int) -> None:
    payload = b"*" * size if opcode == TEXT else b"\xfe" * size
    for chop in (2**30, 997):  # 1.1.8, 1.2.8: in chops
        expect_echo(side, [Frame(opcode, payload)], [Frame(opcode, payload)], chop)


# 2: pings and pongs.


@pytest.mark.parametrize(
    "payload", [b"", b"Hello, world!", b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff", b"\xfe" * 125]
)
def test_2_1_to_2_4_and_2_6_ping(side: str, payload: bytes, step: int) -> None:
    expect_echo(side, [Frame(PING, payload)], [Frame(PONG, payload)], step)


def test_2_5_a_long_ping(side: str, step: int) -> None:
    expect_failure(side, [Frame(PING, b"\xfe" * 126)], 1002, step=step)


def test_2_9_pong_then_ping(side: str, step: int) -> None:
    frames = [Frame(PONG, b"unsolicited"), Frame(PING, b"ping payload")]
    expect_echo(side, frames, [Frame(PONG, b"ping payload")], step)


def test_2_10_and_2_11_ten_pings(side: str, step: int) -> None:
    pings = [Frame(PING, f"payload-{i}".encode()) for i in range(10)]
    expect_echo(side, pings, [Frame(PONG, ping.payload) for ping in pings], step)


# 3: reserved bits.


@pytest.mark.parametrize("rsv", range(1, 8))
def test_3_reserved_bits(side: str, rsv: int, step: int) -> None:
    hello = Frame(TEXT, b"Hello, world!")
    for opcode in (TEXT, BINARY, CLOSE, PING, PONG):
        expect_failure(side, [Frame(opcode, b"x", rsv=rsv)], 1002, step=step)
    frames = [hello, Frame(TEXT, b"Hello, world!", rsv=rsv), Frame(PING)]
    expect_failure(side, frames, 1002, [hello], step)


# 4: opcodes.


@pytest.mark.each("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
@pytest.mark.each("payload", [b"", b"reserved opcode payload"])
def test_4_opcodes(side: str, opcode: int, payload: bytes, step: int) -> None:
    expect_failure(side, [Frame(opcode, payload)], 1002, step=step)
    hello = Frame(TEXT, b"Hello, world!")
    expect_failure(side, [hello, Frame(opcode, payload), Frame(PING)], 1002, [hello], step)


# 5: fragments.


def test_5_1_and_5_2_control_frames_in_fragments(side: str, step: int) -> None:
    for opcode in (PING, PONG):
        frames = [Frame(opcode, b"fragment1", fin=False), Frame(CONT, b"fragment2")]
        expect_failure(side, frames, 1002, step=step)


ONE, TWO = Frame(TEXT, b"fragment1", fin=False), Frame(CONT, b"fragment2")
BOTH = Frame(TEXT, b"fragment1fragment2")


def test_5_3_to_5_5_two_fragments(side: str, step: int) -> None:
    expect_echo(side, [ONE, TWO], [BOTH], step)


def test_5_6_to_5_8_a_ping_between(side: str, step: int) -> None:
    expect_echo(side, [ONE, Frame(PING, b"ping"), TWO], [Frame(PONG, b"ping"), BOTH], step)


def test_5_9_to_5_14_a_continuation_of_nothing(side: str, step: int) -> None:
    for fin in (True, False):
        frames = [
            Frame(CONT, b"non-continuation payload", fin=fin),
            Frame(TEXT, b"Hello, world!"),
        ]
        expect_failure(side, frames, 1002, step=step)


def test_5_15_a_message_then_a_continuation_of_nothing(side: str, step: int) -> None:
    frames = [ONE, TWO, Frame(CONT, b"fragment3", fin=False), Frame(TEXT, b"fragment4")]
    expect_failure(side, frames, 1002, [BOTH], step)


def test_5_18_a_message_inside_another(side: str, step: int) -> None:
    expect_failure(side, [ONE, Frame(TEXT, b"fragment2")], 1002, step=step)


def test_5_19_and_5_20_five_fragments_and_two_pings(side: str, step: int) -> None:
    frames = [
        Frame(TEXT, b"fragment1", fin=False),
        Frame(CONT, b"fragment2", fin=False),
        Frame(PING, b"pongme 1!"),
        Frame(CONT, b"fragment3", fin=False),
        Frame(CONT, b"fragment4", fin=False),
        Frame(PING, b"pongme 2!"),
        Frame(CONT, b"fragment5"),
    ]
    expected = [
        Frame(PONG, b"pongme 1!"),
        Frame(PONG, b"pongme 2!"),
        Frame(TEXT, b"fragment1fragment2fragment3fragment4fragment5"),
    ]
    expect_echo(side, frames, expected, step)


# 6: texts.

GREEK = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"


def pieces(payload: bytes, size: int) -> list[Frame]:
    """A text in fragments of `size` bytes."""
    cut = [payload[i : i + size] for i in range(0, len(payload), size)] or [b""]
    return [Frame(CONT if i else TEXT, piece, fin=i == len(cut) - 1) for i, piece in enumerate(cut)]


def test_6_1_empty_texts(side: str, step: int) -> None:
    empty = [Frame(TEXT, fin=False), Frame(CONT, fin=False), Frame(CONT)]
    expect_echo(side, empty, [Frame(TEXT)], step)
    middle = [Frame(TEXT, fin=False), Frame(CONT, b"middle", fin=False), Frame(CONT)]
    expect_echo(side, middle, [Frame(TEXT, b"middle")], step)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_6_2_a_text_in_fragments(side: str, size: int, step: int) -> None:
    payload = "Hello-µ@ßöäüàá-UTF-8!!".encode()
    expect_echo(side, pieces(payload, size), [Frame(TEXT, payload)], step)
    expect_echo(side, pieces(GREEK, size), [Frame(TEXT, GREEK)], step)


BAD = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited"


@pytest.mark.parametrize("size", [1, 100])
def test_6_3_a_text_that_is_not_utf_8(side: str, size: int, step: int) -> None:
    expect_failure(side, pieces(BAD, size), 1007, step=step)


def test_6_4_a_bad_text_fails_with_its_first_bad_fragment(side: str) -> None:
    for bad in (b"\xf4\x90\x80\x80", b"\xf4\x90"):
        frames = [Frame(TEXT, GREEK, fin=False), Frame(CONT, bad, fin=False)]
        expect_failure(side, frames, 1007)  # the message's last fragment is not awaited


# 6.5 to 6.22, what the suite takes from Markus Kuhn's stress test: True where it is well-formed.
UTF8: list[tuple[bytes, bool]] = [
    (GREEK, True),
    *((GREEK[:cut], cut in (2, 5, 7, 9, 11)) for cut in range(1, 11)),  # 6.6: cut anywhere
    (b"\x00", True),
    (b"\xc2\x80", True),
    (b"\xe0\xa0\x80", True),
    (b"\xf0\x90\x80\x80", True),
    (b"\xf8\x88\x80\x80\x80", False),
    (b"\xfc\x84\x80\x80\x80\x80", False),
    (b"\x7f", True),
    (b"\xdf\xbf", True),
    (b"\xef\xbf\xbf", True),
    (b"\xf4\x8f\xbf\xbf", True),
    (b"\xf7\xbf\xbf\xbf", False),
    (b"\xfb\xbf\xbf\xbf\xbf", False),
    (b"\xfd\xbf\xbf\xbf\xbf\xbf", False),
    (b"\xed\x9f\xbf", True),
    (b"\xee\x80\x80", True),
    (b"\xef\xbf\xbd", True),
    (b"\xf4\x90\x80\x80", False),
    (b"\x80", False),
    (b"\xbf", False),
    *((b"\x80\xbf" * half, False) for half in range(1, 4)),
    (bytes(range(0x80, 0xC0)), False),
    (b"".join(bytes([lead, 0x20]) for lead in range(0xC0, 0xE0)), False),
    (b"".join(bytes([lead, 0x20]) for lead in range(0xE0, 0xF0)), False),
    (b"".join(bytes([lead, 0x20]) for lead in range(0xF0, 0xF8)), False),
    (b"\xf8 \xf9 \xfa \xfb ", False),
    (b"\xfc \xfd ", False),
    (b"\xc0", False),
    (b"\xe0\x80", False),
    (b"\xf0\x80\x80", False),
    (b"\xf8\x80\x80\x80", False),
    (b"\xfc\x80\x80\x80\x80", False),
    (b"\xdf", False),
    (b"\xef\xbf", False),
    (b"\xf7\xbf\xbf", False),
    (b"\xfb\xbf\xbf\xbf", False),
    (b"\xfd\xbf\xbf\xbf\xbf", False),
    (b"\xc0\xe0\x80\xf0\x80\x80\xf8\x80\x80\x80\xfc\x80\x80\x80\x80", False),
    (b"\xfe", False),
    (b"\xff", False),
    (b"\xfe\xfe\xff\xff", False),
    (b"\xc0\xaf", False),
    (b"\xe0\x80\xaf", False),
    (b"\xf0\x80\x80\xaf", False),
    (b"\xf8\x80\x80\x80\xaf", False),
    (b"\xfc\x80\x80\x80\x80\xaf", False),
    (b"\xc1\xbf", False),
    (b"\xe0\x9f\xbf", False),
    (b"\xf0\x8f\xbf\xbf", False),
    (b"\xf8\x87\xbf\xbf\xbf", False),
    (b"\xfc\x83\xbf\xbf\xbf\xbf", False),
    (b"\xc0\x80", False),
    (b"\xe0\x80\x80", False),
    (b"\xf0\x80\x80\x80", False),
    (b"\xf8\x80\x80\x80\x80", False),
    (b"\xfc\x80\x80\x80\x80\x80", False),
    *(
        (bytes([0xED, second, third]), False)
        for second, third in ((0xA0, 0x80), (0xAD, 0xBF), (0xAE, 0x80), (0xAF, 0xBF), (0xB0, 0x80))
    ),
    (b"\xed\xa0\x80\xed\xb0\x80", False),
    (b"\xed\xaf\xbf\xed\xbf\xbf", False),
    *(
        (chr(plane << 16 | low).encode(), True)
        for plane, low in itertools.product(range(17), (0xFFFE, 0xFFFF))
    ),
]


@pytest.mark.each(("payload", "good"), UTF8, ids=lambda value: str(value)[:40])
def test_6_5_to_6_22_sequences(side: str, payload: bytes, good: bool) -> None:
    assert good == (payload.decode("utf-8", "replace").encode() == payload)
    for size in (1, 2, 3, 100):
        if good:
            expect_echo(side, pieces(payload, size), [Frame(TEXT, payload)])
        else:
            expect_failure(side, pieces(payload, size), 1007)


# 7: closing.


def test_7_1_2_to_7_1_5_nothing_follows_a_close(side: str, step: int) -> None:
    close = Frame(CLOSE, b"\x03\xe8")
    for after in ([close], [Frame(PING)], [Frame(TEXT, b"no")], [TWO]):
        echo = run(side, [close, *after], step)
        assert isinstance(echo.error, Closed)
        assert echo.frames() == [close]
    echo = run(side, [ONE, close, TWO], step)
    assert echo.frames() == [close]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", 1005),  # 7.3.1
        (b"\x03\xe8", 1000),  # 7.3.3
        (b"\x03\xe8Hello World!", 1000),  # 7.3.4
        (b"\x03\xe8" + b"*" * 123, 1000),  # 7.3.5
    ],
)
def test_7_3_payloads_of_a_close(side: str, payload: bytes, code: int, step: int) -> None:
    echo = run(side, [Frame(CLOSE, payload)], step)
    assert isinstance(echo.error, Closed)
    assert echo.error.code == code
    assert echo.error.reason == payload[2:].decode()
    assert echo.frames() == [Frame(CLOSE, payload[:2])]


def test_7_3_2_and_7_3_6_payloads_that_are_wrong(side: str, step: int) -> None:
    expect_failure(side, [Frame(CLOSE, b"a")], 1002, step=step)
    expect_failure(side, [Frame(CLOSE, b"\x03\xe8" + b"*" * 124)], 1002, step=step)


def test_7_5_1_a_reason_that_is_not_utf_8(side: str, step: int) -> None:
    expect_failure(side, [Frame(CLOSE, b"\x03\xe8" + BAD)], 1007, step=step)


@pytest.mark.parametrize(
    "code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
)
def test_7_7_codes_that_are_right(side: str, code: int) -> None:
    payload = code.to_bytes(2, "big")
    echo = run(side, [Frame(CLOSE, payload)])
    assert isinstance(echo.error, Closed)
    assert echo.error.code == code
    assert echo.frames() == [Frame(CLOSE, payload)]


@pytest.mark.parametrize(
    "code", [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535]
)
def test_7_9_and_7_13_codes_that_are_wrong(side: str, code: int) -> None:
    expect_failure(side, [Frame(CLOSE, code.to_bytes(2, "big"))], 1002)


# 9: large messages, and small ones in great number.


@pytest.mark.parametrize("size", [64, 1024, 16_384, 262_144])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_9_3_and_9_4_one_mebibyte_in_fragments(side: str, opcode: int, size: int) -> None:
    payload = b"BAsd7&jh" * (2**20 // 8)
    frames = pieces(payload, size)
    frames[0].opcode = opcode
    expect_echo(side, frames, [Frame(opcode, payload)])
