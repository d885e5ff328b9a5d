"""The cases of the Autobahn test suite (25.10.1) but compression (12, 13), restated by hand: each
goes to a server's session and a client's, the bytes whole, one by one, and octet-wise per frame."""

import itertools
import struct
from dataclasses import dataclass

import pytest

from rlwire.codecs.websocket.frames import FrameDecoder
from rlwire.errors import RlwireError
from rlwire.sessions.websocket import Closed, WebSocketClientSession, WebSocketServerSession
from rlwire.streams import FrameReader
from tests.ends import frames_in

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = b"\x37\xfa\x21\x3d"


@dataclass
class Frame:
    opcode: int
    payload: bytes = b""
    fin: bool = True
    rsv: int = 0

    def wire(self, masked):
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


def parse(data, masked):
    decoder, at = FrameDecoder(masked), 0
    while at < len(data):
        size = decoder.frame_size(data, at, len(data))
        opcode, fin, payload = decoder.frame(data[at : at + size])
        yield Frame(opcode, bytes(payload), fin)
        at += size


class Echo:
    def __init__(self, side, kind="any", limits=None):
        client = WebSocketClientSession("ws://test/", kind="any" if side == "server" else kind)
        server = WebSocketServerSession(kind="any" if side == "client" else kind, limits=limits)
        (request,) = client.output()
        server.receive(request)
        (response,) = server.output()
        client.receive(response)
        self.session = server if side == "server" else client
        self.masked = side == "client"
        self.reader = FrameReader(self.session)
        self.sent = b""
        self.error = None

    def feed(self, data, step):
        try:
            for frame in frames_in(self.reader, data, step):
                for event in self.session.receive(frame):
                    self.sent += b"".join(self.session.send(event))
                self.sent += b"".join(self.session.output())
        except RlwireError as error:
            self.error = error
            self.sent += b"".join(self.session.output())

    def frames(self):
        return list(parse(self.sent, self.masked))


@pytest.fixture(params=["server", "client"])
def side(request):
    return str(request.param)


def run(side, frames, step=2**30):
    echo = Echo(side)
    echo.feed(b"".join(frame.wire(masked=side == "server") for frame in frames), step)
    return echo


STEPS = {"whole": 2**30, "octet-wise": 1}


@pytest.fixture(params=STEPS)
def step(request):
    return STEPS[request.param]


def expect_echo(side, frames, expected, step=2**30):
    echo = run(side, [*frames, Frame(CLOSE, b"\x03\xe8")], step)
    assert isinstance(echo.error, Closed)
    assert echo.error.code == 1000
    assert echo.frames() == [*expected, Frame(CLOSE, b"\x03\xe8")]


def expect_failure(side, frames, code, before=None, step=2**30):
    echo = run(side, frames, step)
    assert echo.error is not None
    assert not isinstance(echo.error, Closed)
    assert echo.session.closed
    *others, close = echo.frames()
    assert others == (before or [])
    assert close.opcode == CLOSE
    assert close.payload[:2] == code.to_bytes(2, "big")


@pytest.mark.parametrize("size", [0, 125, 126, 127, 128, 65535, 65536])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_1_payloads(side, opcode, size):
    payload = b"*" * size if opcode == TEXT else b"\xfe" * size
    for chop in (2**30, 997):  # 1.1.8, 1.2.8: in chops
        expect_echo(side, [Frame(opcode, payload)], [Frame(opcode, payload)], chop)


HELLO = Frame(TEXT, b"Hello, world!")
ONE, TWO = Frame(TEXT, b"fragment1", fin=False), Frame(CONT, b"fragment2")
BOTH = Frame(TEXT, b"fragment1fragment2")
PINGS = [b"", b"Hello, world!", b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff", b"\xfe" * 125]
TEN = [f"payload-{number}".encode() for number in range(10)]

ECHOES = {
    **{f"2.1-2.4, 2.6: {body!r:.20}": ([Frame(PING, body)], [Frame(PONG, body)]) for body in PINGS},
    "2.9": ([Frame(PONG, b"unsolicited"), Frame(PING, b"ping")], [Frame(PONG, b"ping")]),
    "2.10, 2.11": ([Frame(PING, body) for body in TEN], [Frame(PONG, body) for body in TEN]),
    "5.3-5.5": ([ONE, TWO], [BOTH]),
    "5.6-5.8": ([ONE, Frame(PING, b"ping"), TWO], [Frame(PONG, b"ping"), BOTH]),
    "5.19, 5.20": (
        [
            *(ONE, Frame(CONT, b"fragment2", fin=False), Frame(PING, b"pongme 1!")),
            *(Frame(CONT, b"fragment3", fin=False), Frame(CONT, b"fragment4", fin=False)),
            *(Frame(PING, b"pongme 2!"), Frame(CONT, b"fragment5")),
        ],
        [
            *(Frame(PONG, b"pongme 1!"), Frame(PONG, b"pongme 2!")),
            Frame(TEXT, b"fragment1fragment2fragment3fragment4fragment5"),
        ],
    ),
    "6.1.2": ([Frame(TEXT, fin=False), Frame(CONT, fin=False), Frame(CONT)], [Frame(TEXT)]),
    "6.1.3": (
        [Frame(TEXT, fin=False), Frame(CONT, b"middle", fin=False), Frame(CONT)],
        [Frame(TEXT, b"middle")],
    ),
}


@pytest.mark.parametrize("name", ECHOES)
def test_2_5_and_6_1_messages_are_echoed(side, name, step):
    expect_echo(side, *ECHOES[name], step)


BAD = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited"
FAILURES = {
    "2.5": ([Frame(PING, b"\xfe" * 126)], 1002, []),
    "5.1": ([Frame(PING, b"fragment1", fin=False), TWO], 1002, []),
    "5.2": ([Frame(PONG, b"fragment1", fin=False), TWO], 1002, []),
    "5.9-5.11": ([Frame(CONT, b"non-continuation payload"), HELLO], 1002, []),
    "5.12-5.14": ([Frame(CONT, b"non-continuation payload", fin=False), HELLO], 1002, []),
    "5.15": ([ONE, TWO, Frame(CONT, b"3", fin=False), Frame(TEXT, b"4")], 1002, [BOTH]),
    "5.18": ([ONE, Frame(TEXT, b"fragment2")], 1002, []),
    "7.3.2": ([Frame(CLOSE, b"a")], 1002, []),
    "7.3.6": ([Frame(CLOSE, b"\x03\xe8" + b"*" * 124)], 1002, []),
    "7.5.1": ([Frame(CLOSE, b"\x03\xe8" + BAD)], 1007, []),
}


@pytest.mark.parametrize("name", FAILURES)
def test_2_5_and_7_invalid_frames_fail_the_connection(side, name, step):
    expect_failure(side, *FAILURES[name], step)


@pytest.mark.parametrize("rsv", range(1, 8))
def test_3_reserved_bits(side, rsv, step):
    for opcode in (TEXT, BINARY, CLOSE, PING, PONG):
        expect_failure(side, [Frame(opcode, b"x", rsv=rsv)], 1002, step=step)
    frames = [HELLO, Frame(TEXT, b"Hello, world!", rsv=rsv), Frame(PING)]
    expect_failure(side, frames, 1002, [HELLO], step)


@pytest.mark.each("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
@pytest.mark.each("payload", [b"", b"reserved opcode payload"])
def test_4_opcodes(side, opcode, payload, step):
    expect_failure(side, [Frame(opcode, payload)], 1002, step=step)
    expect_failure(side, [HELLO, Frame(opcode, payload), Frame(PING)], 1002, [HELLO], step)


GREEK = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"


def pieces(payload, size):
    cut = [payload[i : i + size] for i in range(0, len(payload), size)] or [b""]
    return [Frame(CONT if i else TEXT, piece, fin=i == len(cut) - 1) for i, piece in enumerate(cut)]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_6_2_a_text_in_fragments(side, size, step):
    payload = "Hello-µ@ßöäüàá-UTF-8!!".encode()
    expect_echo(side, pieces(payload, size), [Frame(TEXT, payload)], step)
    expect_echo(side, pieces(GREEK, size), [Frame(TEXT, GREEK)], step)


@pytest.mark.parametrize("size", [1, 100])
def test_6_3_a_text_that_is_not_utf_8(side, size, step):
    expect_failure(side, pieces(BAD, size), 1007, step=step)


def test_6_4_a_bad_text_fails_with_its_first_bad_fragment(side):
    for bad in (b"\xf4\x90\x80\x80", b"\xf4\x90"):
        frames = [Frame(TEXT, GREEK, fin=False), Frame(CONT, bad, fin=False)]
        expect_failure(side, frames, 1007)  # the message's last fragment is not awaited


# 6.5 to 6.22, what the suite takes from Markus Kuhn's stress test: True where it is well-formed.
GOOD = [GREEK, *(GREEK[:cut] for cut in (2, 5, 7, 9, 11))]
GOOD += [b"\x00", b"\xc2\x80", b"\xe0\xa0\x80", b"\xf0\x90\x80\x80", b"\x7f", b"\xdf\xbf"]
GOOD += [b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf", b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xef\xbf\xbd"]
GOOD += [
    chr(plane << 16 | low).encode() for plane, low in itertools.product(range(17), (0xFFFE, 0xFFFF))
]
WRONG = [GREEK[:cut] for cut in (1, 3, 4, 6, 8, 10)]  # 6.6: cut inside a character
WRONG += [bytes(range(0x80, 0xC0))]
WRONG += [
    b"".join(bytes([lead, 0x20]) for lead in range(first, last))
    for first, last in ((0xC0, 0xE0), (0xE0, 0xF0), (0xF0, 0xF8))
]
OTHERS = """
f888808080 fc8480808080 f7bfbfbf fbbfbfbfbf fdbfbfbfbfbf f4908080 80 bf 80bf 80bf80bf
80bf80bf80bf f820f920fa20fb20 fc20fd20 c0 e080 f08080 f8808080 fc80808080 df efbf f7bfbf
fbbfbfbf fdbfbfbfbf fe ff fefeffff c0e080f08080f8808080fc80808080 c0af e080af f08080af
f8808080af fc80808080af c1bf e09fbf f08fbfbf f887bfbfbf fc83bfbfbfbf c080 e08080 f0808080
f880808080 fc8080808080 eda080 edadbf edae80 edafbf edb080 eda080edb080 edafbfedbfbf
"""
WRONG += map(bytes.fromhex, OTHERS.split())
UTF8 = [(payload, True) for payload in GOOD] + [(payload, False) for payload in WRONG]


@pytest.mark.each(("payload", "good"), UTF8, ids=lambda value: str(value)[:40])
def test_6_5_to_6_22_sequences(side, payload, good):
    assert good == (payload.decode("utf-8", "replace").encode() == payload)
    for size in (1, 2, 3, 100):
        if good:
            expect_echo(side, pieces(payload, size), [Frame(TEXT, payload)])
        else:
            expect_failure(side, pieces(payload, size), 1007)


def test_7_1_2_to_7_1_5_nothing_follows_a_close(side, step):
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
def test_7_3_payloads_of_a_close(side, payload, code, step):
    echo = run(side, [Frame(CLOSE, payload)], step)
    assert isinstance(echo.error, Closed)
    assert echo.error.code == code
    assert echo.error.reason == payload[2:].decode()
    assert echo.frames() == [Frame(CLOSE, payload[:2])]


@pytest.mark.parametrize(
    "code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
)
def test_7_7_codes_that_are_right(side, code):
    payload = code.to_bytes(2, "big")
    echo = run(side, [Frame(CLOSE, payload)])
    assert isinstance(echo.error, Closed)
    assert echo.error.code == code
    assert echo.frames() == [Frame(CLOSE, payload)]


@pytest.mark.parametrize(
    "code", [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535]
)
def test_7_9_and_7_13_codes_that_are_wrong(side, code):
    expect_failure(side, [Frame(CLOSE, code.to_bytes(2, "big"))], 1002)


@pytest.mark.parametrize("size", [64, 1024, 16_384, 262_144])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_9_3_and_9_4_one_mebibyte_in_fragments(side, opcode, size):
    payload = b"BAsd7&jh" * (2**20 // 8)
    frames = pieces(payload, size)
    frames[0].opcode = opcode
    expect_echo(side, frames, [Frame(opcode, payload)])
