"""Writes a fuzz driver's messages, each after its size, uint32: corpus.py dm_env_rpc corpus.bin."""

import itertools
import json
import lzma
import math
import random
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS.parent), str(TESTS / "fuzz")]

import messages as m  # noqa: E402

from rlwire.codecs import dm_env_rpc, msgpack, perlert, rllink  # noqa: E402
from rlwire.codecs.http2 import frames as http2  # noqa: E402
from rlwire.codecs.websocket import frames as websocket_frames  # noqa: E402
from tests.codecs.dm_env_rpc.wires import field, varint  # noqa: E402
from tests.reference import xvnc  # noqa: E402

chance = random.Random(5)


def rlx():
    vectors = json.loads((TESTS / "vectors" / "rlx.json").read_text())
    return [bytes.fromhex(case["wire"]) for case in vectors["cases"]]


NUMBERS = [
    "0.54,0.95,-1,+2.5,1e5,-1.5E-7,.5,5.,00012.50", "nan,inf,-inf,Infinity,-NaN,-0,-0.0e5",
    "true,false,true", "0,-1,127,-128,255,32767,-32768,65535", "1e22,1e23,1e-22,0.1",
    "2147483647,-2147483648,4294967295,9223372036854775807,-9223372036854775808",
    "18446744073709551615,18446744073709551616,100000000000000000000",
    "9999999999999999999,10000000000000000000,0.0000000000000000000009",
    "1.7976931348623157e308,1.7976931348623159e308,-1e999999999,0e999999999,1e-999999999",
    "2.2250738585072014e-308,2.2250738585072011e-308,4.9e-324,4.9406564584124654e-324",
    "2.4703282292062327e-324,2.4703282292062328e-324,6.929001713869936e236,8.98846567431158e307",
    "9007199254740992,9007199254740993,9007199254740993.00000000000000000000000000001",
    "9007199254740992.5,16777217,16777219,16777217.0000000000000000000001",
    "-16777216.9999999999999999999999,1.40129846e-45,7.006492321624085354e-46",
    "7.006492321624085355e-46,1.1754943508222875e-38,3.4028235e38,65520,5.96e-08",
    "340282356779733661637539395458142568448,340282356779733661637539395458142568447",
    "3.4028235677973366e38,123456789012345678,0.000000000000000000000000000000000001",
    "1" + "0" * 400 + ",0." + "0" * 400 + "1," + "9" * 800,
]  # fmt: skip


def numbers():
    """Lists of all sorts of numbers, good as floats or integers or booleans."""
    yield from (text.encode() for text in NUMBERS)
    for _ in range(20):
        value = struct.unpack("<d", struct.pack("<Q", chance.getrandbits(64)))[0]
        places = chance.randrange(1, 30)
        text = f"{value!r},{value:.{places}e},{chance.uniform(-9, 9):.4f},{chance.randrange(1000)}"
        yield text.encode()


def perlert_datagrams():
    yield from map(perlert.encode, [*m.PERLERT_CLIENT, *m.PERLERT_SERVER])
    for text in (
        "ciudad ñ:007;register=agenté,日本", "city:9223372036854775807;action=",
        "city:7;agent0=close,citizen,patrick,ready;", "city:7:1:2;obs=;reward=;done=true;extra=",
        "city:7;agent0=open,citizen,cpu,ready;agent1=close,,,not_ready;z=open,zombie,,ready;",
        "city:7:1:2;obs=0.1,-2e-5,nan,inf;reward=-1.2345678901234567e-08;done=true;extra=ö",
    ):  # fmt: skip
        yield text.encode()


def websocket():
    """Streams of frames of every kind and size class; all frames of one are masked, or none."""
    websocket_frames.urandom = chance.randbytes  # the same masks each time
    words = "Grüße, 世界 𝄞 and plain ASCII that is longer than a word of eight bytes".encode()
    for masked in (False, True):
        make = websocket_frames.FrameEncoder(masked).frame
        for size in (0, 1, 7, 8, 9, 63, 125, 126, 127, 300, 1000):
            yield make(2, chance.randbytes(size))
            yield make(1, (words * 20)[:40] * (size // 40))
        yield make(1, b"plain")
        yield make(1, words[:3], False) + make(0, words[3:])
        yield make(9, b"") + make(10, b"echo") + make(8, struct.pack(">H", 1000) + b"bye")
        yield make(2, b"one", False) + make(9, b"two") + make(0, b"", False) + make(0, bytes(200))
        yield b"".join(make(1, b"{}") for _ in range(20))


def http2_frames():
    """Frames of every kind, with every flag that changes what they are."""
    frame = http2.frame
    yield frame(2, 0, 3, bytes(5)) + http2.ping() + http2.reset(3, 8) + http2.goaway(7, 0, "bye")
    yield b"".join(frame(http2.DATA, 0, stream, b"\0\0\0\0\1x") for stream in range(1, 40, 2))
    yield http2.settings({1: 4096, 2: 0, 3: 100, 4: 2**31 - 1, 5: 16_384, 6: 8192})
    yield http2.settings({5: 2**24 - 1, 4: 0, 9: 7}) + frame(http2.SETTINGS, 1, 0)
    for more in (1, 65_535, 2**31 - 1):
        yield http2.window_update(3, more)
        yield http2.window_update(0, more) * 2
    block = bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff")
    yield frame(http2.HEADERS, 4, 1, block)
    yield frame(http2.HEADERS, 1, 1, block[:3]) + frame(http2.CONTINUATION, 4, 1, block[3:])
    yield frame(http2.HEADERS, 4 | 8, 1, b"\x04" + block + bytes(4))
    yield frame(http2.HEADERS, 4 | 32 | 8, 1, b"\x02" + bytes(5) + block + b"\0\0")
    for size in (0, 1, 5, 100, 2000):
        body = struct.pack(">BI", 0, size) + chance.randbytes(size)
        yield frame(http2.DATA, 0, 1, body)
        yield frame(http2.DATA, 8 | 1, 1, b"\x07" + body + bytes(7))
        yield frame(http2.DATA, 0, 1, body[:3]) + frame(http2.DATA, 1, 1, body[3:])
        yield frame(http2.DATA, 0, 1, body * 2) + frame(200, 255, 9, b"what")


def nd(dtype, shape, data, kind=b""):
    """An array as msgpack-numpy writes it."""
    return {b"nd": True, b"type": dtype, b"kind": kind, b"shape": shape, b"data": data}


def ndarray(dtype, shape, data):
    """An array as openpi-client writes it."""
    return {b"__ndarray__": True, b"data": data, b"dtype": dtype, b"shape": shape}


LARGE = ([0, 2**62], [2**61, 0, 2], [2**31, 0, 2**31], [2**40, 2**20, 0])


def msgpack_values():
    """Values of every type and size class, and arrays in both dialects."""
    for bits, near, sign in itertools.product(
        (0, 5, 7, 8, 15, 16, 31, 32, 63, 64), (-1, 0, 1), (1, -1)
    ):
        if -(2**63) <= sign * 2**bits + near < 2**64:
            yield sign * 2**bits + near
    yield from (None, True, False, 0.0, -1.5, float("inf"), float("nan"))
    for size in (0, 1, 2, 4, 8, 16, 31, 32, 255, 256, 300):
        yield "Grüße, 世界"[:size] if size < 16 else "x" * size
        yield chance.randbytes(size)
        yield msgpack.ExtType(chance.randrange(128), chance.randbytes(size))
    yield from (msgpack.Timestamp(*when) for when in ((0, 0), (5, 999_999_999), (-1, 1)))
    yield [[[[[], {}]]], {"a": {"b": {b"c": [1, "two", 3.0]}}}]
    yield list(range(20))
    yield {str(i): i for i in range(20)}
    floats = struct.pack("<6f", *range(6))
    for make in (nd, ndarray):
        yield {"observation": {"image": make("|u1", [3, 4], bytes(12)), "n": 5}, "done": False}
        yield make("<f8", [0, 7], b"")
        yield [make("<U2", [1], b"a\0\0\0b\0\0\0"), make("<M8[ns]", [1], bytes(8))]
        yield make("bfloat16", [2], bytes(4))
        yield {str(key, "ascii"): item for key, item in make("<f4", [6], floats).items()}
        yield dict(reversed(list(make("<f4", [2, 3], floats).items())))
        for large in LARGE:
            yield make("|b1", large, b"")
            yield [{"x": make("|i1", large, b"")}]
        for dtype, size in (("<f2", 2), ("<i4", 4), (">u8", 8), ("<c16", 16), ("|i1", 1)):
            for shape in ([], [3], [2, 2], [1, 3, 1, 2]):
                yield make(dtype, shape, bytes(size * math.prod(shape)))
    yield nd([["a", "<i4"], ["b", "<f8", [2]]], [1], bytes(20), b"V")
    yield nd([["", "|O"]], [1], b"\x80\x02K\x01.", b"O")
    yield {b"nd": False, b"type": "<f4", b"data": floats[:4]}
    yield {b"__npgeneric__": True, b"data": 1.5, b"dtype": "<f4"}
    yield {b"complex": True, b"data": "(1+2j)"}


def rllink_frames():
    """What Ray's server and rlwire's answer, and what simulators send."""
    codec = rllink.Codec()
    module = {
        "weight": m.SIGHTS["pixels"].astype("<f4"), "bias": np.ones(2, "<f4"),
        "clip": np.array(0.5, ">f8"), "empty": np.zeros((0, 3), "<f4"), "count": np.ones(1, int),
        "words": ["none", {"deep": None}],
    }  # fmt: skip
    episode = rllink.Episode(np.ones((4, 2), "f4"), np.ones(3), np.ones(3), id="ab")
    states = [{"rl_module": module, "weights_seq_no": 7}, {"one": module, "two": {"x": module}}]
    states += [{"m": {"none": nd("|i1", shape, b"", b"N")}} for shape in LARGE]
    for message in (
        *(rllink.Ping(), rllink.Ping("secret"), rllink.Pong(rlwire=True), rllink.GetConfig()),
        *(rllink.GetState(), rllink.SetConfig(500, True, b"\x80\x04\x95" + bytes(300))),
        *(rllink.SetState(number, state) for number, state in enumerate(states)),
        rllink.EpisodesAndGetState([episode], 3, 7),
    ):
        yield codec.encode(message)
    for fields in (
        {"config": b"\x80\x04.", "type": "SET_CONFIG", "more": [1, {"two": 3.0}]},
        {"type": "SET_STATE", "weights_seq_no": 3, "onnx_file": "H4sIAAAA"},
    ):
        body = msgpack.encode(fields)
        yield b"%08d" % len(body) + body


def shape(*dims):
    return field(15, b"".join(map(varint, dims)))


def tensors():
    """One or more of everything that a Tensor may be."""
    yield from map(dm_env_rpc.encode_tensor, m.TENSORS)
    random = np.random.default_rng(5)
    for dtype, values in (
        *(("i4", random.integers(low, high, 300)) for low, high in ((0, 12288), (-100, 100))),
        *((dtype, random.integers(2**63, size=200) >> random.integers(0, 63, 200))
          for dtype in ("u4", "u8", "i8")),
        ("i4", [0, 1, 127, 128, 16383, 16384, 2**21, 2**28, 2**31 - 1, -1] * 2),
        ("i8", [0, -1, 2**63 - 1, -(2**63), 2**35, 2**42, 2**49, 2**56]),
        ("f4", [0.0, -0.0, 1.5, 3e38, np.inf, np.nan]), ("f8", [1.5, 1e300]), ("?", [True, False]),
        ("i1", [-1, 127]), ("U", ["", "a", "wörld", "日本語", "𝄞" * 3]),
    ):  # fmt: skip
        yield dm_env_rpc.encode_tensor(np.array(values).astype(dtype))
    # As older or other writers do it: unpacked, in pieces, merged, switched, with unknown fields.
    floats = struct.pack("<6f", *range(6))
    yield field(1, field(1, floats)) + shape(-1, 2)
    yield field(1, field(1, floats[:4])) + shape(4, -1, 0)
    yield field(2, b"") + shape(0, 3)
    yield field(4, b"".join(b"\x08" + varint(i * 100) for i in range(6))) + shape(2, 3)
    yield field(1, b"".join(b"\x0d" + floats[i : i + 4] for i in range(0, 24, 4))) + shape(6)
    yield field(2, b"\x09" + bytes(8) + field(1, bytes(16)) + b"\x09" + bytes(8)) + shape(4)
    yield field(5, field(1, b"\7") + b"\x08\x05") + shape(3) + field(5, field(1, b"\x01"))
    yield field(1, field(1, floats)) + field(3, field(1, b"\xff")) + shape()
    yield field(6, field(1, b"abc")) + field(6, field(1, b"de")) + shape(2)
    yield b"\x78\x02" + field(7, field(1, b"\x01\x02\x03\x04")) + b"\x78\x02"
    unknown = field(12, b"xyz") + b"\x68\x01" + b"\x75" + bytes(4) + b"\x83\x01\x08\x01\x84\x01"
    yield unknown + field(9, field(2, b"??") + field(1, b"\x01\x80\x01\x00")) + shape(3)


def compact(size):
    """A length of Tight."""
    return bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])


def inflated(rectangle, streams):
    """A rectangle whose compressed part stands inflated, as the driver reads it."""
    width, height, encoding = struct.unpack_from(">HHi", rectangle, 4)
    head, body = rectangle[:12], rectangle[12:]
    if encoding == 16:
        plain = streams[4].decompress(body[4:])
        return head + struct.pack(">I", len(plain)) + plain
    if encoding != 7:
        return rectangle
    for i in range(4):
        if body[0] >> i & 1:
            streams[i] = zlib.decompressobj()
    kind, start, need = body[0] >> 4, 1, width * height * 3
    if kind in (8, 9):
        return rectangle
    if kind & 4:
        start = 2
        if body[1] == 1:
            colours = body[2] + 1
            start = 3 + colours * 3
            need = width * height if colours > 2 else (width + 7) // 8 * height
    if need < 12:
        return rectangle
    skip = start + 1 + next(i for i in range(3) if i == 2 or body[start + i] < 128)
    return head + body[:start] + compact(need) + streams[kind & 3].decompress(body[skip:])


def rectangle(encoding, body, width=8, height=5):
    return m.rfb_head(chance.randrange(100), chance.randrange(60), width, height, encoding) + body


def rfb():
    """What Xvnc sent, and what it does not send."""
    for path in sorted((TESTS / "codecs" / "rfb" / "recordings").glob("*.rfb.xz")):
        streams = [zlib.decompressobj() for _ in range(5)]
        for update in xvnc.read(lzma.decompress(path.read_bytes())).updates:
            for wire in (inflated(one, streams) for one in update):
                if len(wire) < 8192 and not (wire[11] == 7 and wire[12] >> 4 == 9):
                    yield wire
    some = chance.randbytes
    tight = (
        b"\x60\2" + compact(120) + some(120), b"\x90" + compact(120) + some(120),
        b"\x40\1\0" + some(3) + bytes(5),
        b"\x70\1\2" + some(9) + compact(40) + b"\0\1\2\1" * 10,
    )  # fmt: skip
    zrle = (
        *(b"\1" + some(3), b"\0" + some(120), b"\2" + some(11), b"\4" + some(22)),
        *(b"\x10" + some(68), b"\x80" + some(3) + b"\x1f" + some(3) + b"\7"),
        b"\x82" + some(6) + b"\0\x80\x1e\1\x81\6",
    )
    yield from (rectangle(7, body) for body in tight)
    yield from (rectangle(16, struct.pack(">I", len(body)) + body) for body in zrle)
    yield rectangle(7, b"\x8f" + some(3)) + rectangle(1, b"\0\3\0\2") + rectangle(0, some(160))
    yield rectangle(5, b"\1" + some(160)) + rectangle(5, b"\x1a" + some(4) + b"\0")
    yield rectangle(2, b"\0\0\0\1" + some(8) + struct.pack(">HHHH", 1, 2, 3, 3))
    yield m.rfb_head(0, 0, 50, 40, -223)
    for colours in (100, 256):
        palette = b"\x40\1" + bytes([colours - 1]) + some(3 * colours) + compact(200)
        yield rectangle(7, palette + bytes(chance.choices(range(colours), k=200)), 40)


READ, WRITE, THEY_READ, THEY_WRITE, SHARED_WORD, LOOK, WAIT, RING, LEAVE = range(9)
PLAYS = [
    [(WRITE, 0, 100), (THEY_READ, 0, 100), (THEY_WRITE, 0, 40), (READ, 1, 40)],
    # More than a ring has, both ways, and around its end.
    [(WRITE, 0, 5000), (THEY_READ, 0, 3000), (WRITE, 0, 2900), (THEY_READ, 0, 5999)] * 3,
    [(THEY_WRITE, 0, 5000), (READ, 0, 3000), (THEY_WRITE, 0, 2900), (READ, 1, 5999)] * 3,
    # Waiting and polling, and who wakes whom up.
    [(WAIT, 1, 10), (THEY_WRITE, 0, 10), (WAIT, 3, 10), (WRITE, 0, 5999), (WAIT, 0, 100)],
    [(LOOK, 0, 0), (SHARED_WORD, 5, 2), (SHARED_WORD, 4, 1), (WRITE, 0, 10), (RING, 0, 3)],
    [(LOOK, 1, 0), (LOOK, 2, 0), (LOOK, 3, 0), (RING, 0, 30), (LOOK, 0, 0), (WAIT, 1, 1)],
    # What was said before an end is still to be had.
    [(THEY_WRITE, 0, 30), (LEAVE, 0, 0), (READ, 0, 10), (READ, 1, 30), (READ, 0, 10)],
    [(WRITE, 0, 30), (LEAVE, 3, 0), (THEY_READ, 0, 30), (THEY_WRITE, 0, 9), (READ, 0, 9)],
]


def shm():
    for client, (number, play) in itertools.product((0, 1), enumerate(PLAYS)):
        words = struct.pack("<4I4I", 0x4D53574C, 1, 4096, 4096 << number % 3, 0, 0, 0, 0)
        steps = b"".join(struct.pack("<BBI", *step) for step in play)
        yield bytes([client]) + words + steps


FORMATS = {
    "rlx": rlx, "dm_env_rpc": tensors, "perlert": perlert_datagrams, "numbers": numbers,
    "websocket": websocket, "http2": http2_frames,
    "msgpack": lambda: map(msgpack.encode, msgpack_values()), "rfb": rfb, "rllink": rllink_frames,
    "shm": shm,
}  # fmt: skip

if __name__ == "__main__":
    wires = list(FORMATS[sys.argv[1]]())
    Path(sys.argv[2]).write_bytes(b"".join(struct.pack("<I", len(wire)) + wire for wire in wires))
    print(len(wires), "messages")
