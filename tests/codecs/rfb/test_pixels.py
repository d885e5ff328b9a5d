from __future__ import annotations

import pytest

from rlwire.codecs.rfb.messages import BGR233, RGB565, RGB888, RGBX, PixelFormat
from rlwire.errors import DecodeError, EncodeError


@pytest.mark.each(
    ("pixel_format", "text"),
    [
        (RGB888, "2018000100ff00ff00ff100800000000"),
        (RGB565, "10100001001f003f001f0b0500000000"),
        (RGBX, "2018000100ff00ff00ff000810000000"),
        (BGR233, "08080001000700070003000306000000"),
    ],
)
def test_a_format_and_its_bytes(pixel_format: PixelFormat, text: str) -> None:
    assert pixel_format.pack() == bytes.fromhex(text)
    assert PixelFormat.unpack(b"x" + bytes.fromhex(text), 1) == pixel_format


@pytest.mark.each(
    "numbers",
    [
        (24, 24, False, 255, 255, 255, 16, 8, 0),
        (16, 17, False, 31, 63, 31, 11, 5, 0),
        (16, 0, False, 31, 63, 31, 11, 5, 0),
        (16, 16, False, 31, 63, 31, 12, 5, 0),
        (16, 16, False, 30, 63, 31, 11, 5, 0),
        (16, 16, False, 31, 0, 31, 11, 5, 0),
        (16, 16, False, 31, 63, 31, 11, 5, 1),
    ],
)
def test_what_makes_no_sense(numbers: tuple[int, ...]) -> None:
    with pytest.raises(EncodeError):
        PixelFormat(*numbers)


@pytest.mark.each(
    "text",
    [
        "2018000000ff00ff00ff100800000000",
        "2118000100ff00ff00ff100800000000",
        "2018000100ff00ff00ff1008000000",
    ],
)
def test_bytes_that_make_no_sense(text: str) -> None:
    with pytest.raises(DecodeError, match="at byte"):
        PixelFormat.unpack(bytes.fromhex(text))
