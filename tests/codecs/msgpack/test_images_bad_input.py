"""Broken and hostile images: the named error at the right byte, and no memory or time for lies."""

from __future__ import annotations

import io
import os
import random
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rlwire.codecs.msgpack import images
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import Limits

lz4_block = pytest.importorskip("lz4.block")
zstandard = pytest.importorskip("zstandard")

RAW, PNG, JPEG, LZ4, ZSTD = range(5)
STREAM, DELTA, SHUFFLE = 1, 2, 4
U1, U2 = 1, 2

FRAME = (np.arange(24 * 20 * 3) % 251).astype(np.uint8).reshape(24, 20, 3)
BEFORE = FRAME[::-1].copy()
SMALL = Limits(expanded=1 << 20, pixels=1 << 18)


def head(kind: int, shape: tuple[int, ...] = (24, 20, 3), flags: int = 0, dtype: int = U1) -> bytes:
    return bytes((1, kind, flags, dtype, len(shape))) + struct.pack(f"<{len(shape)}I", *shape)


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def file_of(kind: str, frame: np.ndarray[Any, Any] = FRAME, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(frame).save(file, kind, **options)
    return file.getvalue()


GOOD_PNG = file_of("PNG")
GOOD_JPEG = file_of("JPEG")
ZEROS = bytes(FRAME.nbytes)
SIZE = FRAME.nbytes


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(
    *chunks: bytes, width: int = 20, height: int = 24, depth: int = 8, colour: int = 2
) -> bytes:
    first = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", first) + b"".join(chunks)


def sof(data: bytes) -> int:
    """Where the frame header of a baseline JPEG begins."""
    return data.index(b"\xff\xc0")


def changed(data: bytes, spot: int, new: bytes) -> bytes:
    return data[:spot] + new + data[spot + len(new) :]


SCAN = GOOD_JPEG.index(b"\xff\xda")
IDAT = GOOD_PNG[33:]
END = chunk(b"IEND", b"")

# name, data, words of the error, offset
BAD: list[tuple[str, bytes, str, int]] = [
    ("empty", b"", "5 bytes needed", 0),
    ("half a head", b"\1\0\0\1", "5 bytes needed", 0),
    ("version 0", b"\0" + head(RAW)[1:] + ZEROS, "version 0, this is version 1", 0),
    ("version 2", b"\2" + head(RAW)[1:] + ZEROS, "version 2", 0),
    ("kind 5", head(5) + ZEROS, "no kind 5", 1),
    ("kind 255", head(255) + ZEROS, "no kind 255", 1),
    ("flag 8", head(ZSTD, flags=8), "flags 0x08", 2),
    ("difference without a stream", head(ZSTD, flags=DELTA), "flags 0x02", 2),
    ("raw and shuffled", head(RAW, flags=SHUFFLE, dtype=U2), "RAW has no flags 0x04", 2),
    ("raw difference", head(RAW, flags=STREAM | DELTA), "RAW has no flags 0x03", 2),
    ("PNG in a stream", head(PNG, flags=STREAM), "PNG has no flags 0x01", 2),
    ("JPEG shuffled", head(JPEG, flags=SHUFFLE), "JPEG has no flags 0x04", 2),
    ("bytes shuffled", head(ZSTD, flags=SHUFFLE), "no bytes to sort", 2),
    ("dtype 12", head(RAW, dtype=12) + ZEROS, "no dtype 12", 3),
    ("shape cut", head(RAW)[:-1], "12 bytes needed", 5),
    ("stream cut", head(ZSTD, flags=STREAM), "1 bytes needed", 17),
    ("stream's name cut", head(ZSTD, flags=STREAM) + b"\5abcd", "5 bytes needed", 18),
    ("stream's name no UTF-8", head(ZSTD, flags=STREAM) + b"\2a\xff" + u64(0), "not UTF-8", 18),
    ("stream's name surrogate", head(ZSTD, flags=STREAM) + b"\3\xed\xa0\x80", "not UTF-8", 18),
    ("sequence cut", head(ZSTD, flags=STREAM) + b"\0" + bytes(7), "8 bytes needed", 18),
    ("reference cut", head(ZSTD, flags=STREAM | DELTA) + b"\0" + bytes(15), "8 bytes", 26),
    ("raw short", head(RAW) + ZEROS[:-1], f"{SIZE - 1} bytes of data for an array of {SIZE}", 17),
    ("raw long", head(RAW) + ZEROS + b"\0", f"{SIZE + 1} bytes of data", 17),
    ("boolean 2", head(RAW, (3,), dtype=0) + b"\0\1\2", "neither 0 nor 1", 9),
    # LZ4
    ("LZ4 nothing", head(LZ4), "0 bytes of LZ4 cannot stand for", 5),
    ("LZ4 rubbish", head(LZ4) + b"\xff" * 30, "no LZ4 block of 1440", 17),
    (
        "LZ4 of one byte less",
        head(LZ4) + lz4_block.compress(ZEROS[:-1], store_size=False),
        "1439 bytes of data for an array of 1440",
        17,
    ),
    (
        "LZ4 of one byte more",
        head(LZ4) + lz4_block.compress(ZEROS + b"\0", store_size=False),
        "no LZ4 block of 1440",
        17,
    ),
    # zstd
    ("zstd nothing", head(ZSTD), "no zstd frame", 17),
    ("zstd rubbish", head(ZSTD) + b"\xff" * 30, "no zstd frame of 1440", 17),
    (
        "zstd of one byte less",
        head(ZSTD) + zstandard.compress(ZEROS[:-1]),
        "a zstd frame of 1439 bytes",
        17,
    ),
    (
        "zstd of one byte more",
        head(ZSTD) + zstandard.compress(ZEROS + b"\0"),
        "a zstd frame of 1441 bytes",
        17,
    ),
    (
        "zstd that says no size",
        head(ZSTD) + zstandard.ZstdCompressor(write_content_size=False).compress(ZEROS),
        "a zstd frame of 18446744073709551615 bytes",
        17,
    ),
    ("zstd cut", head(ZSTD) + zstandard.compress(ZEROS)[:-1], "no zstd frame", 17),
    ("zstd and more", head(ZSTD) + zstandard.compress(ZEROS) + b"\0", "no zstd frame", 17),
    ("zstd twice", head(ZSTD) + zstandard.compress(ZEROS) * 2, "no zstd frame", 17),
    (
        "zstd, a frame to skip",
        head(ZSTD) + b"\x50\x2a\x4d\x18" + struct.pack("<I", SIZE) + ZEROS,
        "1440",  # zstandard's versions find it at different times
        17,
    ),
    # PNG
    ("PNG of nothing", head(PNG, (24, 0, 3)) + GOOD_PNG, "there is no PNG of", 17),
    ("PNG with two channels", head(PNG, (24, 20, 2)) + GOOD_PNG, "there is no PNG of", 17),
    ("PNG of floats", head(PNG, dtype=10) + GOOD_PNG, "there is no PNG of float32", 17),
    ("PNG of 16 bits and colour", head(PNG, dtype=U2) + GOOD_PNG, "there is no PNG of uint16", 17),
    ("PNG that is a JPEG", head(PNG) + GOOD_JPEG, "signature", 17),
    ("PNG without IHDR", head(PNG) + GOOD_PNG[:8] + IDAT, "IHDR", 25),
    ("PNG cut in IHDR", head(PNG, (1, 1)) + GOOD_PNG[:32], "IHDR", 21),
    ("PNG wider", head(PNG) + png(IDAT, width=21), "width is 21, the array's 20", 33),
    ("PNG higher", head(PNG) + png(IDAT, height=2**31 - 1), "height is 2147483647", 37),
    ("PNG deeper", head(PNG) + png(IDAT, depth=16), "bit depth is 16, the array's 8", 41),
    ("PNG with alpha", head(PNG) + png(IDAT, colour=6), "colour type is 6, the array's 2", 42),
    ("PNG with a palette", head(PNG) + png(chunk(b"PLTE", bytes(3)), IDAT), "chunk b'PLTE'", 54),
    (
        "PNG with a compressed text",
        head(PNG) + png(chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**6))), IDAT),
        "chunk b'zTXt'",
        54,
    ),
    ("PNG with a second IHDR", head(PNG) + png(png(width=9)[8:], IDAT), "chunk b'IHDR'", 54),
    ("PNG cut", head(PNG) + GOOD_PNG[:-1], "ends before its IEND", 17 + len(GOOD_PNG) - 12),
    ("PNG and more", head(PNG) + GOOD_PNG + b"\0", "not end with its IEND", 17 + len(GOOD_PNG)),
    (
        "PNG of too many chunks",
        head(PNG) + png(chunk(b"IDAT", b"") * 65_537, IDAT),
        "no more than 65536 chunks",
        17 + 33 + 65_537 * 12,
    ),
    (
        "PNG with half its rows",
        head(PNG) + png(chunk(b"IDAT", zlib.compress((b"\0" + b"\7" * 60) * 12)), END),
        "has 732 bytes of rows, it takes 1464",
        17,
    ),
    (
        "PNG without a byte of its last row",
        head(PNG) + png(chunk(b"IDAT", zlib.compress(bytes(1463))), END),
        "Pillow cannot read the PNG",
        17,
    ),
    (
        "PNG without rows",
        head(PNG) + png(END),
        "Pillow cannot read the PNG",
        17,
    ),
    ("PNG, interlaced", head(PNG) + changed(GOOD_PNG, 28, b"\1"), "not interlaced", 45),
    (
        "PNG with a broken sum",
        head(PNG) + changed(GOOD_PNG, 29, b"\0\0\0\0"),
        "Pillow cannot read the PNG",
        17,
    ),
    # JPEG
    ("JPEG of 16 bits", head(JPEG, (24, 20), dtype=U2) + GOOD_JPEG, "no JPEG of uint16", 13),
    ("JPEG that is a PNG", head(JPEG) + GOOD_PNG, "begin with SOI", 17),
    ("JPEG of SOI", head(JPEG) + b"\xff\xd8", "before its first scan", 19),
    (
        "JPEG wider",
        head(JPEG) + changed(GOOD_JPEG, sof(GOOD_JPEG) + 7, b"\xff\xff"),
        "width is 65535, the array's 20",
        17 + sof(GOOD_JPEG) + 7,
    ),
    (
        "JPEG higher",
        head(JPEG) + changed(GOOD_JPEG, sof(GOOD_JPEG) + 5, b"\xff\xff"),
        "height is 65535, the array's 24",
        17 + sof(GOOD_JPEG) + 5,
    ),
    (
        "JPEG that says its height later",
        head(JPEG) + changed(GOOD_JPEG, sof(GOOD_JPEG) + 5, b"\0\0"),
        "height is 0",
        17 + sof(GOOD_JPEG) + 5,
    ),
    (
        "JPEG of 12 bits",
        head(JPEG) + changed(GOOD_JPEG, sof(GOOD_JPEG) + 4, b"\x0c"),
        "bit depth is 12",
        17 + sof(GOOD_JPEG) + 4,
    ),
    (
        "JPEG in grey",
        head(JPEG) + file_of("JPEG", FRAME[..., 0]),
        "number of channels is 1, the array's 3",
        17 + sof(file_of("JPEG", FRAME[..., 0])) + 9,
    ),
    (
        "JPEG, progressive",
        head(JPEG) + file_of("JPEG", progressive=True),
        "sequential and Huffman-coded; marker 0xc2",
        17 + file_of("JPEG", progressive=True).index(b"\xff\xc2"),
    ),
    (
        "JPEG with arithmetic coding",
        head(JPEG) + changed(GOOD_JPEG, sof(GOOD_JPEG) + 1, b"\xc9"),
        "marker 0xc9",
        17 + sof(GOOD_JPEG),
    ),
    (
        "JPEG with two frame headers",
        head(JPEG) + GOOD_JPEG[:SCAN] + GOOD_JPEG[sof(GOOD_JPEG) : SCAN] + GOOD_JPEG[SCAN:],
        "frame header is broken, or not the only one",
        17 + SCAN,
    ),
    (
        "JPEG without a frame header",
        head(JPEG) + b"\xff\xd8" + GOOD_JPEG[SCAN:],
        "before its frame header",
        19,
    ),
    (
        "JPEG of many scans",
        head(JPEG) + GOOD_JPEG[:-2] + GOOD_JPEG[SCAN:-2] * 3 + GOOD_JPEG[-2:],
        "more scans than channels",
        17 + SCAN,
    ),
    (
        "JPEG of many segments",
        head(JPEG) + b"\xff\xd8" + b"\xff\xfe\0\2" * 1025 + GOOD_JPEG[2:],
        "over 1024 segments",
        19 + 4 * 1024,
    ),
    (
        "JPEG with bytes between segments",
        head(JPEG) + b"\xff\xd8\0\0\0\0" + GOOD_JPEG[2:],
        "byte 0x00 where a marker",
        19,
    ),
    ("JPEG with a segment of 1 byte", head(JPEG) + b"\xff\xd8\xff\xfe\0\1", "marker 0xfe", 19),
    (
        "JPEG cut in its scan",
        head(JPEG) + GOOD_JPEG[: SCAN + 20],
        "Pillow cannot read the JPEG",
        17,
    ),
]


@pytest.mark.each(("data", "words", "offset"), [pytest.param(*c[1:], id=c[0]) for c in BAD])
def test_bad_data(data: bytes, words: str, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        images.decode(data, reference=BEFORE)
    assert words in str(caught.value)
    assert caught.value.offset == offset


def test_the_table_breaks_good_images() -> None:
    for kind, data in [(PNG, GOOD_PNG), (JPEG, GOOD_JPEG), (RAW, ZEROS)]:
        assert images.decode(head(kind) + data).shape == FRAME.shape
    assert images.decode(head(PNG) + png(chunk(b"tEXt", b"a\0b"), IDAT)).shape == FRAME.shape
    fill = changed(GOOD_JPEG, 2, b"")[:2] + b"\xff\xff" + GOOD_JPEG[2:]
    assert images.decode(head(JPEG) + fill).shape == FRAME.shape


HUGE = 2**32 - 1
LIES: list[tuple[str, bytes, str]] = [
    ("raw of 2**96", head(RAW, (HUGE, HUGE, HUGE)), "expanded"),
    ("empty and huge", head(RAW, (0, HUGE, HUGE, HUGE)), "expanded"),
    ("LZ4 of 4 GiB", head(LZ4, (2**16, 2**16)) + b"\xff" * 50, "expanded"),
    ("zstd of 4 GiB", head(ZSTD, (2**16, 2**16)) + zstandard.compress(ZEROS), "expanded"),
    ("PNG of many pixels", head(PNG, (2**13 + 1, 2**13)) + GOOD_PNG, "pixels"),
    ("JPEG of many pixels", head(JPEG, (2**13 + 1, 2**13)) + GOOD_JPEG, "pixels"),
    ("33 dimensions", head(RAW, (1,) * 33) + b"\0", "dims"),
    ("255 dimensions", head(RAW, (HUGE,) * 255) + b"\0", "dims"),
]


@pytest.mark.parametrize(("data", "limit"), [pytest.param(*c[1:], id=c[0]) for c in LIES])
def test_a_lie_beyond_the_limits(data: bytes, limit: str) -> None:
    tracemalloc.start()
    with pytest.raises(LimitExceeded) as caught:
        images.decode(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.limit == limit
    assert caught.value.offset in (4, 5)
    assert peak < 100_000


@pytest.mark.parametrize("kind", [PNG, LZ4, ZSTD])
def test_a_lie_within_the_limits_gets_no_memory(kind: int) -> None:
    """The array would fit, but no 40 bytes stand for so much."""
    body = {PNG: GOOD_PNG[:40], LZ4: b"\xff" * 40, ZSTD: zstandard.compress(ZEROS)[:40]}[kind]
    tracemalloc.start()
    with pytest.raises(DecodeError, match="cannot stand for"):
        images.decode(head(kind, (2**13, 2**13)) + body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_what_compresses_best_is_no_lie() -> None:
    for kind in ("lz4", "zstd", "png", "jpeg"):
        black = np.zeros((2000, 3000, 3), np.uint8)
        assert not images.decode(images.encode(black, kind).data).any()


def test_pillows_own_limit_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither asked nor changed: it belongs to the process, `Limits.pixels` to the decoder."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    for kind, data in [(PNG, GOOD_PNG), (JPEG, GOOD_JPEG)]:
        assert images.decode(head(kind) + data).shape == FRAME.shape
    assert Image.MAX_IMAGE_PIXELS == 10


def good() -> list[bytes]:
    """Images of every kind, some with a reference."""
    grey = FRAME[..., 0].copy()
    deep = (grey.astype(np.uint16) * 257) ^ 77
    found = [images.encode(FRAME, kind).data for kind in ("raw", "png", "jpeg", "lz4", "zstd")]
    found += [images.encode(grey, kind).data for kind in ("png", "jpeg")]
    found += [images.encode(deep, kind).data for kind in ("raw", "png", "lz4", "zstd")]
    found += [images.encode(grey > 100, "zstd").data]
    for kind in (images.Kind.LZ4, images.Kind.ZSTD):
        place = images.Place("front", 7, 6)
        found.append(images.pack(kind, FRAME, place=place, reference=BEFORE).data)
        found.append(images.pack(kind, FRAME, place=images.Place("", 6)).data)
    return found


def outcome(data: bytes) -> Any:
    try:
        return images.decode(data, limits=SMALL, reference=BEFORE)
    except (DecodeError, LimitExceeded) as problem:
        return problem


def check(data: bytes) -> None:
    """An array within the limits or the named error, and nothing else."""
    found = outcome(data)
    if isinstance(found, DecodeError):
        assert 0 <= found.offset <= len(data)
    elif isinstance(found, np.ndarray):
        assert found.nbytes <= SMALL.expanded
        assert found.flags.owndata
        assert found.flags.writeable


@pytest.mark.parametrize("data", good(), ids=lambda data: str(images.read_header(data).kind.name))
def test_cut_at_every_byte(data: bytes) -> None:
    for size in {*range(min(60, len(data))), *range(0, len(data), 3), len(data) - 1}:
        with pytest.raises(DecodeError):
            images.decode(data[:size], reference=BEFORE)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Bytes changed, inserted, removed or repeated, mostly near the beginning."""
    new = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        spot = int(rng.random() ** rng.choice((1, 3)) * len(new))
        match rng.randrange(5):
            case 0:
                new[spot : spot + 1] = bytes((rng.randrange(256),))
            case 1:
                new[spot : spot + 1] = bytes((new[spot] ^ (1 << rng.randrange(8)),))
            case 2:
                new[spot:spot] = rng.randbytes(rng.choice((1, 2, 4, 40)))
            case 3:
                del new[spot : spot + rng.choice((1, 2, 4, 40))]
            case _:
                new[spot : spot + 4] = rng.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80"))
        if not new:
            return b""
    return bytes(new)


def test_rows_in_one_chunk_are_handed_to_zlib_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not come to it copies: over and over, if all is there from the beginning."""
    given_to_zlib = 0

    class Inflater:
        def __init__(self) -> None:
            self.inflater = zlib_decompressobj()
            self.eof = False

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal given_to_zlib
            given_to_zlib += len(data)
            made = self.inflater.decompress(data, most)
            self.eof, self.unconsumed_tail = self.inflater.eof, self.inflater.unconsumed_tail
            return made

    zlib_decompressobj = zlib.decompressobj
    rows = zlib.compress(bytes(1024 * 1025), 0)  # as long as what is in it
    size = (1024).to_bytes(4, "big")
    png = GOOD_PNG[:8] + chunk(b"IHDR", size + size + b"\x08" + bytes(4))
    png += chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    monkeypatch.setattr("zlib.decompressobj", Inflater)
    assert not images.decode(head(PNG, (1024, 1024)) + png).any()
    assert len(rows) <= given_to_zlib < 2 * len(rows)


@pytest.mark.parametrize("seed", range(4))
def test_mutations(seed: int) -> None:
    rng = random.Random(seed)
    wires = good()
    for _ in range(1500):
        check(mutated(rng, rng.choice(wires)))


@settings(max_examples=3 * settings().max_examples)
@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    check(data)
    check(b"\1" + data)


@settings(max_examples=3 * settings().max_examples)
@given(
    st.sampled_from(range(5)),
    st.sampled_from([(24, 20, 3), (24, 20), (1440,), (2, 3, 240), (0,), ()]),
    st.sampled_from([0, 0, 1, 3, 4, 5, 7]),
    st.integers(0, 11),
    st.sampled_from([GOOD_PNG, GOOD_JPEG, ZEROS, zstandard.compress(ZEROS), b"\0" * 17 + ZEROS]),
)
def test_any_header_before_any_data(
    kind: int, shape: tuple[int, ...], flags: int, dtype: int, data: bytes
) -> None:
    check(head(kind, shape, flags, dtype) + data)


MEMORY = """
import random, resource, sys
sys.path.insert(0, sys.argv[1])
import test_images_bad_input as tests
wires = tests.good()
rng = random.Random(5)
for data in wires:
    tests.check(data)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(3000):
    tests.check(tests.mutated(rng, rng.choice(wires)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="AddressSanitizer keeps what is freed")
def test_mutations_take_no_memory_beyond_the_limits() -> None:
    """Also what Pillow, lz4 and zstandard allocate, which tracemalloc does not see."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert int(done.stdout) < 32 * 1024  # KiB; an array is limited to 1 MiB
