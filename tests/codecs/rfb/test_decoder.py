import random
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwire.codecs.rfb import Encoding, Framebuffer, RectangleDecoder
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import Limits
from tests.codecs.rfb.reference import Writer, head
from tests.codecs.rfb.test_recordings import INSTALLED
from tests.raising import raised, raised_with


def both(seed, width=150, height=90):
    framebuffer = Framebuffer(width, height)
    return Writer(framebuffer.snapshot(), random.Random(seed)), RectangleDecoder(framebuffer)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    encodings=st.lists(st.sampled_from(Writer.ALL), min_size=1, max_size=20),
    most=st.integers(1, 25),
    cut=st.floats(0, 1),
    name=st.sampled_from(INSTALLED),
)
def test_random_rectangles_paint_the_same_pixels_as_the_reference(seed, encodings, most, cut, name):
    writer, _ = both(seed, 40, 30)
    decoder = RectangleDecoder(Framebuffer(40, 30), inflater=name)
    parts = [writer.write(one) for one in encodings]
    stream = b"".join(parts)
    at, seen, end = 0, 0, int(cut * len(stream))
    while at < len(stream):
        size = decoder.size(stream, at, end, most)
        if not decoder.counted:
            end = len(stream)
            continue
        assert size == sum(map(len, parts[seen : seen + decoder.counted]))
        assert decoder.counted <= most
        done = decoder.paint(stream, at, decoder.counted)
        places = [struct.unpack(">HHHHi", part[:12]) for part in parts[seen : seen + len(done)]]
        assert list(map(tuple, done)) == places
        assert len(done) == decoder.counted
        at, seen = at + size, seen + len(done)
    assert seen == len(parts)
    np.testing.assert_array_equal(decoder.framebuffer.pixels, writer.screen)


def test_decoding_stops_at_incomplete_and_pseudo_rectangles():
    decoder = RectangleDecoder(Framebuffer(20, 10))
    one = head(0, 0, 1, 1, 0) + b"\3\2\1\0"
    last, size = head(0, 0, 0, 0, Encoding.LAST_RECT), head(0, 0, 900, 9, Encoding.DESKTOP_SIZE)
    for stream, counted, ended, whole in [
        *((one + one + one[:-1], 2, False, 32), (one + one + one[:11], 2, False, 32)),
        *((one + last + one, 2, True, 28), (one + size + one, 1, False, 16)),
        *((size + one, 1, False, 12), (last + one, 1, True, 12), (one[:-1], 0, False, 16)),
        *((one[:11], 0, False, 0), (size[:-1], 0, False, 0), (last[:-1], 0, False, 0)),
        (one + head(0, 0, 1, 1, 99) + one, 1, False, 16),
        (one + head(20, 0, 1, 1, 0) + one, 1, False, 16),
    ]:
        assert decoder.size(stream, 0, len(stream), 9) == whole
        assert (decoder.counted, decoder.ended) == (counted, ended)
    assert decoder.size(one * 3, 0, 48, 2) == 32
    assert [tuple(each) for each in decoder.paint(one + last + one, 0, 3)] == [(0, 0, 1, 1, 0)]
    assert raised(DecodeError, decoder.paint, one + size, 0, 2).offset == 24
    raised(DecodeError, decoder.paint, one + one[:-1], 0, 2)
    assert "33 is not within 32 bytes" in str(raised(ValueError, decoder.paint, one + one, 33, 1))


SIDE = 512


def rectangles(name, count):
    """Return rectangles of a whole screen, most of them of few bytes."""
    if name == "zrle":
        packer = zlib.compressobj()
        tiles = b"\1\1\1\1" * (SIDE // 64) ** 2
        parts = [packer.compress(tiles) + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(count)]
        rest = [struct.pack(">I", len(part)) + part for part in parts]
        encoding = Encoding.ZRLE
    else:
        encoding, data = {
            "raw": (Encoding.RAW, bytes(4 * SIDE * SIDE)),
            "copy": (Encoding.COPY_RECT, bytes(4)),
            "rre": (Encoding.RRE, bytes(8)),
            "hextile": (Encoding.HEXTILE, b"\2\1\1\1\1" + bytes((SIDE // 16) ** 2 - 1)),
            "fill": (Encoding.TIGHT, b"\x80\1\1\1"),
        }[name]
        rest = count * [data]
    return [head(0, 0, SIDE, SIDE, encoding) + data for data in rest]


@pytest.mark.parametrize("name", ["raw", "copy", "rre", "hextile", "fill", "zrle"])
@pytest.mark.parametrize("before", [0, 13])
def test_update_over_the_painted_pixels_limit_is_rejected(name, before):
    count = 16 - before
    good, bad = (RectangleDecoder(Framebuffer(SIDE, SIDE)) for _ in range(2))
    parts = rectangles(name, count + 1)
    assert len(good.paint(b"".join(parts), 0, count, before * SIDE**2)) == count
    assert good.painted == good.most == 16 * SIDE**2
    caught = raised(LimitExceeded, bad.paint, b"".join(parts), 0, count + 1, before * SIDE**2)
    assert (caught.limit, caught.maximum) == ("painted", bad.most)
    assert caught.size == 17 * SIDE**2
    assert caught.offset == sum(map(len, parts[:-1]))


def test_rre_subrectangles_count_toward_the_painted_limit():
    decoder = RectangleDecoder(Framebuffer(SIDE, SIDE))
    part = bytes(4) + struct.pack(">HHHH", 0, 0, SIDE, SIDE)

    def parts(count):
        return head(0, 0, SIDE, SIDE, Encoding.RRE) + struct.pack(">II", count, 0) + count * part

    decoder.paint(parts(15), 0, 1)
    assert decoder.painted == decoder.most
    caught = raised(LimitExceeded, decoder.paint, parts(16), 0, 1)
    assert (caught.limit, caught.offset) == ("painted", 0)


@pytest.mark.each("encoding", Writer.ALL)
def test_truncated_rectangles_are_rejected(encoding):
    writer, decoder = both(8, 40, 36)
    other = RectangleDecoder(Framebuffer(40, 36))
    data = writer.write(encoding)
    known = 0
    for end in range(len(data) + 1):
        size = decoder.size(data, 0, end)
        assert size in (0, len(data))
        assert size >= known  # what is known stays known
        known = size
        if end < len(data):
            with pytest.raises(DecodeError) as caught:
                RectangleDecoder(Framebuffer(40, 36)).paint(data[:end], 0, 1)
            assert 0 <= caught.value.offset <= end
    assert known == len(data)
    other.paint(b"before" + data + b"behind", 6, 1)
    np.testing.assert_array_equal(other.framebuffer.pixels, writer.screen)


def test_decoder_resumes_at_another_buffer_offset():
    """The stream core moves bytes to the front of its buffer between two calls."""
    writer, decoder = both(3, 64, 64)
    data = head(0, 0, 64, 64, Encoding.HEXTILE) + (b"\x01" + bytes(16 * 16 * 4)) * 16
    writer.screen[:] = 0
    assert decoder.size(b"x" * 100 + data, 100, 100 + 5000) == 0
    assert decoder.size(data, 0, len(data) - 1) == 0
    assert decoder.size(data, 0, len(data)) == len(data)
    again = head(0, 0, 64, 64, Encoding.HEXTILE) + bytes(16)
    assert decoder.size(again, 0, len(again)) == len(again)  # the same head, another rectangle
    another = head(0, 0, 16, 16, Encoding.HEXTILE) + b"\x00"
    assert decoder.size(another, 0, len(another)) == len(another)
    for _ in range(2):  # what is known of the second, which has the same head, is not of the first
        assert decoder.size(again + data[:3000], 0, len(again) + 3000, 2) == len(again)


def squeezed(data):
    stream = zlib.compressobj()
    return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)


def zrle(tiles, width=8, height=4):
    data = squeezed(tiles)
    return head(1, 2, width, height, 16) + struct.pack(">I", len(data)) + data


def tight(control, data, width=8, height=4):
    packed = squeezed(data)
    return head(1, 2, width, height, 7) + control + bytes([len(packed)]) + packed


PX = b"\x11\x22\x33\0"
RRE = b"\0\0\0\1" + PX + PX
BAD = {
    "right-of-the-screen": (head(13, 0, 8, 1, 0) + PX * 8, 0),
    "below-the-screen": (head(0, 4, 8, 7, 7) + b"\x80abc", 2),
    "far-away": (head(65535, 65535, 65535, 65535, 16) + bytes(4), 0),
    "unknown-encoding": (head(0, 0, 1, 1, 99), 8),
    "unknown-pseudo": (head(0, 0, 1, 1, -1), 8),
    "copy-from-outside": (head(0, 0, 8, 4, 1) + b"\0\x0d\0\0", 12),
    "copy-from-below": (head(0, 0, 8, 4, 1) + b"\0\0\0\x07", 14),
    "rre-past-its-end": (head(0, 0, 8, 4, 2) + RRE + struct.pack(">HHHH", 4, 0, 5, 1), 24),
    "rre-below-its-end": (head(0, 0, 8, 4, 2) + RRE + struct.pack(">HHHH", 0, 4, 1, 1), 26),
    "rre-lies": (head(0, 0, 8, 4, 2) + b"\xff\xff\xff\xff" + PX, 20),
    "hextile-past-its-tile": (head(0, 0, 8, 4, 5) + b"\x0a" + PX + b"\1\x70\x10", 18),
    "hextile-below-its-tile": (head(0, 0, 8, 4, 5) + b"\x0a" + PX + b"\1\x03\x01", 18),
    "hextile-zlib": (head(0, 0, 8, 4, 5) + b"\x20", 12),
    "tight-kind": (head(0, 0, 8, 4, 7) + b"\xa0", 12),
    "tight-filter": (head(0, 0, 8, 4, 7) + b"\x40\x03", 13),
    "tight-short": (tight(b"\0", bytes(95)), 14),
    "tight-long": (tight(b"\0", bytes(97)), 14),
    "tight-bomb": (tight(b"\0", bytes(50_000)), 14),
    "tight-no-zlib": (head(0, 0, 8, 4, 7) + b"\0\5hello", 14),
    "tight-index-of-one": (head(1, 2, 8, 4, 7) + b"\x40\1\0abc" + bytes(3) + b"\x80", 21),
    "tight-index": (tight(b"\x40\1\2abcdefghi", b"\0\1\2\3" * 8), 25),
    "zrle-lies": (head(0, 0, 8, 4, 16) + b"\0\0\0\x40abc", 16),
    "zrle-17": (zrle(b"\x11"), 16),
    "zrle-127": (zrle(b"\x7f"), 16),
    "zrle-129": (zrle(b"\x81"), 16),
    "zrle-run": (zrle(b"\x80abc\x20"), 16),
    "zrle-endless-run": (zrle(b"\x80abc" + b"\xff" * 200), 16),
    "zrle-index": (zrle(b"\x82abcdef\x02"), 16),
    "zrle-run-index": (zrle(b"\x82abcdef\x85\x00"), 16),
    "zrle-packed-index": (zrle(b"\x03" + bytes(9) + b"\xff" * 8), 16),
    "zrle-short": (zrle(b"\0" + bytes(95)), 16),
    "zrle-empty": (zrle(b""), 16),
    "zrle-more": (zrle(b"\1abc!"), 16),
    "zrle-bomb": (zrle(b"\1abc" + bytes(10_000_000)), 16),
    "zrle-no-zlib": (head(0, 0, 8, 4, 16) + b"\0\0\0\5hello", 16),
}


@pytest.mark.each("name", BAD)
def test_invalid_rectangles_fail_at_their_offset(name):
    data, offset = BAD[name]
    framebuffer = Framebuffer(20, 10)
    for before in (b"", b"12345"):
        decoder = RectangleDecoder(framebuffer)
        caught = raised(DecodeError, decoder.paint, before + data, len(before), 1)
        assert caught.offset == len(before) + offset


def test_rectangle_with_invalid_header_is_rejected():
    decoder = RectangleDecoder(Framebuffer(20, 10))
    for name in ("right-of-the-screen", "below-the-screen", "unknown-encoding", "unknown-pseudo"):
        data, offset = BAD[name]
        assert raised(DecodeError, decoder.size, b"123" + data[:12], 3, 15).offset == 3 + offset
    data = head(0, 0, 20, 10, Encoding.HEXTILE) + b"\x40"
    assert raised(DecodeError, decoder.size, data, 0, len(data)).offset == 12


def test_tight_rectangle_wider_than_2048_pixels_is_rejected():
    decoder = RectangleDecoder(Framebuffer(3000, 4))
    for control in (b"\0", b"\x40\2", b"\x90"):
        data = head(0, 0, 2049, 1, 7) + control + bytes(9)
        raised_with(DecodeError, r"end at 2049, .* at 2048", decoder.size, data, 0, len(data))
    data = head(0, 0, 3000, 4, 7) + b"\x80" + b"\x10\x20\x30"  # one colour has no rows
    decoder.paint(data, 0, 1)
    assert (decoder.framebuffer.pixels == [0x10, 0x20, 0x30]).all()


def test_limits_are_checked_before_memory_is_allocated():
    decoder = RectangleDecoder(Framebuffer(21, 22), limits=Limits(received=1000, expanded=500))
    for data, size in [
        (head(0, 0, 20, 20, 0), 1612),
        (head(0, 0, 20, 20, 16) + b"\xff\xff\xff\xff", 16 + 2**32 - 1),
        (head(0, 0, 20, 20, 2) + b"\xff\xff\xff\xff", 20 + 12 * (2**32 - 1)),
        (head(0, 0, 20, 20, 7) + b"\0\xff\xff\xff", 16 + 2**22 - 1),
    ]:
        caught = raised(LimitExceeded, decoder.size, data, 0, len(data))
        assert (caught.maximum, caught.size) == (1000, size)
    raised_with(LimitExceeded, "expanded", decoder.paint, tight(b"\0", bytes(1200), 20, 20), 0, 1)


# The framebuffer.


def test_resize_keeps_the_overlapping_pixels():
    framebuffer = Framebuffer(4, 3)
    assert not framebuffer.pixels.any()
    framebuffer.pixels[:] = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
    old = framebuffer.pixels
    framebuffer.resize(4, 3)
    assert framebuffer.pixels is old
    framebuffer.resize(2, 5)
    assert (framebuffer.width, framebuffer.height) == (2, 5)
    np.testing.assert_array_equal(framebuffer.pixels[:3], old[:, :2])
    assert not framebuffer.pixels[3:].any()


def test_framebuffer_snapshot_is_a_copy():
    framebuffer = Framebuffer(4, 3)
    first = framebuffer.snapshot()
    framebuffer.pixels[:] = 5
    assert not first.any()
    out = np.zeros((3, 4, 3), np.uint8)
    assert framebuffer.snapshot(out) is out
    assert (out == 5).all()


def test_size_of_a_framebuffer_is_limited():
    assert Framebuffer(0, 0).pixels.shape == (0, 0, 3)
    raised(ValueError, Framebuffer, -1, 3)
    assert raised(LimitExceeded, Framebuffer, 65535, 65535).size == 65535**2
    framebuffer = Framebuffer(4, 3, limits=Limits(pixels=12))
    raised(LimitExceeded, framebuffer.resize, 13, 1)
    assert framebuffer.pixels.shape == (3, 4, 3)


def test_short_zrle_rectangles_are_inflated_together():
    def paint(*tiles, expanded=1000):
        stream = zlib.compressobj()
        data = b""
        for tile in tiles:
            packed = stream.compress(tile) + stream.flush(zlib.Z_SYNC_FLUSH)
            data += head(1, 2, 8, 4, Encoding.ZRLE) + len(packed).to_bytes(4, "big") + packed
        decoder = RectangleDecoder(Framebuffer(20, 10), limits=Limits(expanded=expanded))
        assert len(decoder.paint(data, 0, len(tiles))) == len(tiles)
        return decoder.framebuffer

    solid = b"\1\x10\x20\x30"
    assert paint(b"\1abc", solid).pixels[2, 1].tolist() == [16, 32, 48]
    paint(solid, solid, expanded=150)  # each is within it
    for tiles in ((solid, solid + b"?"), (solid, solid[:-1])):
        raised(DecodeError, paint, *tiles)
