"""Rectangles that a server writes, read by `reference.show`."""

import sys

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from rlwire.codecs.rfb import Framebuffer, RectangleDecoder
from rlwire.codecs.rfb import encoder as encoders
from rlwire.codecs.rfb.encoder import ENCODINGS, RectangleEncoder, changed
from rlwire.codecs.rfb.messages import RGB888, Encoding, PixelFormat
from tests.codecs.rfb.reference import show
from tests.raising import raised, raised_with

RGB565 = PixelFormat(16, 16, False, 31, 63, 31, 11, 5, 0)
BGR233 = PixelFormat(8, 8, False, 7, 7, 3, 0, 3, 6)
FORMATS = [
    RGB888, RGB565, BGR233, PixelFormat(32, 24, True, 255, 255, 255, 16, 8, 0),
    PixelFormat(32, 24, False, 255, 255, 255, 24, 16, 8),
    PixelFormat(32, 24, True, 255, 255, 255, 24, 16, 8),
    PixelFormat(32, 32, False, 255, 255, 255, 0, 8, 16),
    PixelFormat(32, 30, False, 1023, 1023, 1023, 20, 10, 0),
    PixelFormat(32, 24, False, 63, 255, 15, 18, 2, 24),
    PixelFormat(16, 16, True, 31, 63, 31, 11, 5, 0),
    PixelFormat(16, 15, False, 31, 31, 31, 10, 5, 0), PixelFormat(8, 6, False, 3, 3, 3, 4, 2, 0),
]  # fmt: skip
EXACT = sorted(ENCODINGS)


class Viewer:
    def __init__(self, width, height, form=RGB888):
        self.frame = np.zeros((height, width, 3), np.uint8)
        self.form = form

    def see(self, encoder, frame, areas=None):
        areas = areas or [(0, 0, frame.shape[1], frame.shape[0])]
        count, data = encoder.encode(frame, areas)
        show(self.form, data, count, self.frame)
        return int(count)


def shown(form, frame):
    """Return what a frame looks like after its colours were written so."""
    most = np.array([form.red_max, form.green_max, form.blue_max], np.int64)
    parts = (2 * frame.astype(np.int64) * most + 255) // 510
    return ((2 * parts * 255 + most) // (2 * most)).astype(np.uint8)


def frames(width, height, colours, large, seed):
    """Return a frame of so many colours, in squares of some size."""
    rng = np.random.default_rng(seed)
    palette = rng.integers(0, 256, (colours, 3), dtype=np.uint8)
    indices = rng.integers(0, colours, (-(-height // large), -(-width // large)))
    frame = palette[indices].repeat(large, axis=0).repeat(large, axis=1)
    return np.ascontiguousarray(frame[:height, :width])


@settings(max_examples=3 * settings().max_examples)
@given(
    st.sampled_from(EXACT),
    st.sampled_from(FORMATS),
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from([1, 2, 3, 4, 5, 16, 17, 100, 127, 128, 256, 257, 5000]),
    st.integers(1, 40),
    st.integers(0, 1000),
    st.data(),
)
def test_encoded_areas_paint_exactly_the_requested_pixels(
    encoding, pixel_format, width, height, colours, large, seed, data
):
    frame = frames(width, height, colours, large, seed)
    viewer = Viewer(width, height, pixel_format)
    encoder = RectangleEncoder(pixel_format, encoding=encoding)
    expected = viewer.frame.copy()
    for _ in range(data.draw(st.integers(1, 4))):
        x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
        w, h = data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y))
        viewer.see(encoder, frame, [(x, y, w, h)])
        expected[y : y + h, x : x + w] = shown(pixel_format, frame)[y : y + h, x : x + w]
        assert (viewer.frame == expected).all()


@pytest.mark.parametrize("package", ["isal", "zlib_ng", "zlib"])
@pytest.mark.parametrize("compression", [0, 1, 6, 9])
def test_output_of_each_deflater_inflates(package, compression, monkeypatch):
    if package != "isal":
        monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    if package == "zlib":
        monkeypatch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
    viewer = Viewer(100, 100)
    encoder = RectangleEncoder(RGB888, encoding=Encoding.TIGHT, compression=compression)
    for i in range(3):
        frame = frames(100, 100, 50 + 200 * i, 2, i)
        viewer.see(encoder, frame)
        assert (viewer.frame == frame).all()


def test_wide_frame_is_split_into_several_tight_rectangles():
    frame = frames(5000, 40, 7, 3, 0)
    viewer = Viewer(5000, 40)
    # Of at most 2,048 across, and 65,536 pixels.
    assert viewer.see(RectangleEncoder(RGB888, encoding=Encoding.TIGHT), frame) == 2 * 3
    assert (viewer.frame == frame).all()


def test_jpeg_is_used_only_for_photographic_areas():
    y, x = np.mgrid[:128, :192]
    picture = np.stack([x + y // 2, 255 - x, 2 * y], axis=2).astype(np.uint8)
    flat = frames(192, 128, 12, 4, 0)
    encoder = RectangleEncoder(RGB888, encoding=Encoding.TIGHT, quality=90)
    viewer = Viewer(192, 128)
    viewer.see(encoder, flat)
    assert (viewer.frame == flat).all()
    decoder = RectangleDecoder(Framebuffer(192, 128))
    # All of it, and an area that is not as wide as its frame.
    for frame, x, y, w, h in ((picture, 0, 0, 192, 128), (picture[:, ::-1], 50, 20, 100, 90)):
        count, data = encoder.encode(frame.copy(), [(x, y, w, h)])
        assert (count, data[12] >> 4) == (1, 9)
        decoder.paint(data, 0, count)
        part = np.s_[y : y + h, x : x + w]
        assert np.abs(decoder.framebuffer.pixels[part].astype(int) - frame[part]).mean() < 4
    other = RectangleEncoder(RGB565, encoding=Encoding.TIGHT, quality=90)
    viewer = Viewer(192, 128, RGB565)
    viewer.see(other, picture)  # JPEG has no pixels of 16 bits
    assert (viewer.frame == shown(RGB565, picture)).all()


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 20), st.integers(0, 99), st.data())
def test_changed_areas_do_not_overlap(width, height, tile, seed, data):
    before = frames(width, height, 200, 1, seed)
    after = before.copy()
    rng = np.random.default_rng(seed)
    spots = rng.random((height, width)) < data.draw(st.sampled_from([0.0, 0.002, 0.05, 0.9]))
    after[spots] ^= 128
    covered = np.zeros((height, width), int)
    for x, y, w, h in changed(before, after, tile):
        assert w > 0
        assert h > 0
        assert x + w <= width
        assert y + h <= height
        covered[y : y + h, x : x + w] += 1
    assert covered.max() <= 1
    assert (covered[spots] == 1).all()
    tiled = np.zeros_like(covered)  # only tiles in which something changed
    for y in range(0, height, tile):
        for x in range(0, width, tile):
            tiled[y : y + tile, x : x + tile] = spots[y : y + tile, x : x + tile].any()
    assert (covered == tiled).all()


def test_encoder_rejects_invalid_frames_and_areas():
    encoder = RectangleEncoder(RGB888, encoding=Encoding.RAW)
    good = np.zeros((4, 5, 3), np.uint8)
    shapes = (4, 5), (4, 5, 4), (0, 5, 3), (1, 65536, 3)
    for bad in (*(np.zeros(shape, np.uint8) for shape in shapes), good.astype(np.uint16)):
        raised_with(ValueError, r"a frame .*not ", encoder.encode, bad, [(0, 0, 1, 1)])
        raised_with(ValueError, r"a frame .*not ", changed, good, bad)
    raised((ValueError, BufferError), encoder.encode, good[:, ::2], [(0, 0, 1, 1)])
    for area in [(0, 0, 6, 4), (0, 0, 5, 5), (5, 0, 1, 1), (-1, 0, 1, 1), (0, 0, 0, 1)]:
        raised(ValueError, encoder.encode, good, [area])
    raised(ValueError, changed, good, np.zeros((5, 5, 3), np.uint8))
    assert "tile" in str(raised(ValueError, changed, good, good, 0))
    wrong = [{"encoding": 1}, {"encoding": 16}, {"encoding": 7, "quality": 0}, {"compression": 10}]
    for options in wrong:
        with pytest.raises(ValueError, match=r"encoding|quality|compression"):
            RectangleEncoder(RGB888, **{"encoding": 0, **options})


def test_deflater_error_propagates(monkeypatch):
    class Broken:
        def compress(self, data):
            raise OSError("no")

        def flush(self, mode):
            return b""

    monkeypatch.setattr(encoders, "compressor", lambda level: Broken())
    encoder = RectangleEncoder(RGB888, encoding=Encoding.TIGHT)
    frame = frames(100, 100, 30, 1, 0)
    before = sys.getrefcount(frame)
    assert "no" in str(raised(OSError, encoder.encode, frame, [(0, 0, 100, 100)]))
    assert sys.getrefcount(frame) == before
