"""What TigerVNC's Xvnc sent, decoded to the pixels that it sent in Raw (`record.py`)."""

import lzma
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from rlwire.codecs.rfb import Encoding, Framebuffer, RectangleDecoder
from rlwire.codecs.rfb._zlib import INFLATERS
from tests.reference import xvnc

FOLDER = Path(__file__).resolve().parent / "recordings"
FILES = sorted(path.name.removesuffix(".rfb.xz") for path in FOLDER.glob("*.rfb.xz"))
INSTALLED = [one for one, module in INFLATERS.items() if find_spec(module.partition(".")[0])]


def test_recordings_are_present_and_under_1_mb():
    assert len(FILES) == 6
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1_000_000


@pytest.mark.each("inflater", INSTALLED)
@pytest.mark.each("name", FILES)
def test_recorded_updates_paint_the_captured_pixels(name, inflater):
    encoding = name.removeprefix("rgbx-")
    recording = xvnc.read(lzma.decompress((FOLDER / f"{name}.rfb.xz").read_bytes()))
    pixels = lzma.decompress((FOLDER / "rgbx.pixels.xz").read_bytes())
    shape = (len(recording.updates), recording.height, recording.width, 3)
    framebuffer = Framebuffer(recording.width, recording.height)
    decoder = RectangleDecoder(framebuffer, inflater=inflater)
    seen = set()
    captures = np.frombuffer(pixels, np.uint8).reshape(shape)
    for number, (expected, update) in enumerate(zip(captures, recording.updates, strict=True)):
        seen |= {done.encoding for one in update for done in decoder.paint(one, 0, 1)}
        if encoding == "jpeg":
            away = np.abs(framebuffer.pixels.astype(int) - expected)
            # What was scrolled before the fourth update comes with the fifth.
            assert away.mean() < 3 or number == 3
        else:
            np.testing.assert_array_equal(framebuffer.pixels, expected)
    named = Encoding.TIGHT if encoding == "jpeg" else Encoding[encoding.upper()]
    assert named in seen
    assert Encoding.COPY_RECT in seen
