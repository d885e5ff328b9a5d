from __future__ import annotations

import pytest

from rlwire.codecs.rfb.pixels import BGR233, RGB888, PixelFormat
from rlwire.sessions.rfb.events import CursorShape


@pytest.mark.each(
    ("form", "data"),
    [
        (RGB888, bytes([3, 2, 1, 0, 6, 5, 4, 0] * 5)),
        (BGR233, bytes([0b11000000, 0b00000111] * 5)),
    ],
)
def test_a_cursor_is_an_array(form: PixelFormat, data: bytes) -> None:
    """Ten pixels in a row: the bits of the last two are in a second byte."""
    shape = CursorShape.read(4, 0, 10, 1, data + b"\xa0\x7f", form)
    colours = [[1, 2, 3], [4, 5, 6]] if form is RGB888 else [[0, 0, 255], [255, 0, 0]]
    seen = [255, 0, 255, 0, 0, 0, 0, 0, 0, 255]
    assert (shape.x, shape.y) == (4, 0)
    assert shape.pixels.tolist() == [[[*colours[i % 2], seen[i]] for i in range(10)]]


def test_a_cursor_of_nothing() -> None:
    for width, height in ((0, 0), (0, 3), (3, 0)):
        assert CursorShape.read(0, 0, width, height, b"", RGB888).pixels.shape == (height, width, 4)
