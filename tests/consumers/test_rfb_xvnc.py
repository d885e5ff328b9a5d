"""The decoder against TigerVNC's Xvnc as it is installed, with moving content."""

from __future__ import annotations

import numpy as np
import pytest

from rlwire.codecs.rfb import BGR233, RGB565, RGB888, RGBX, Encoding, PixelFormat
from rlwire.codecs.rfb.encodings import quality_level
from tests.reference import xvnc

pytestmark = [
    pytest.mark.consumers,
    pytest.mark.skipif(not xvnc.INSTALLED, reason="Xvnc (tigervnc-standalone-server) is missing"),
]

KINDS = [xvnc.game, xvnc.photo, xvnc.text]
BIG = PixelFormat(32, 24, True, 255, 255, 255, 8, 16, 24)


@pytest.mark.parametrize("form", [RGBX, RGB888, BIG, RGB565, BGR233], ids=str)
@pytest.mark.parametrize("encoding", ["RAW", "RRE", "HEXTILE", "ZRLE", "TIGHT"])
def test_the_pixels_of_raw(encoding: str, form: PixelFormat) -> None:
    with (
        xvnc.Desktop(320, 200) as desktop,
        xvnc.viewer(desktop, [Encoding[encoding], Encoding.COPY_RECT], form) as viewer,
        xvnc.viewer(desktop, [Encoding.RAW], form) as beside,
    ):
        for number in range(7):
            desktop.show(KINDS[number % 3](200, 150, number), 10 * number, 5 * number)
            if number % 3 == 2:
                desktop.scroll(0, 0, 30, 20, 200, 150)
            seen = viewer.update(incremental=number > 0)
            np.testing.assert_array_equal(seen, beside.update(incremental=False))
        assert viewer.encodings[Encoding[encoding]] >= 4
        assert viewer.encodings[Encoding.COPY_RECT] >= 1


def test_jpeg_is_close_to_raw() -> None:
    with (
        xvnc.Desktop(320, 200) as desktop,
        xvnc.viewer(desktop, [Encoding.TIGHT, quality_level(9)]) as viewer,
        xvnc.viewer(desktop, [Encoding.RAW]) as beside,
    ):
        for number in range(4):
            desktop.show(xvnc.photo(300, 190, number))
            seen = viewer.update(incremental=number > 0).astype(int)
            away = np.abs(seen - beside.update(incremental=False))
            assert away.mean() < 4
