from __future__ import annotations

import numpy as np
import pytest

from rlwire.codecs.rfb import Framebuffer
from rlwire.errors import LimitExceeded
from rlwire.limits import Limits


def test_zeros_and_a_fourth_channel() -> None:
    assert Framebuffer(4, 3).pixels.shape == (3, 4, 3)
    pixels = Framebuffer(4, 3, channels=4).pixels
    assert not pixels[..., :3].any()
    assert (pixels[..., 3] == 255).all()
    assert Framebuffer(0, 0).pixels.shape == (0, 0, 3)


def test_what_fits_stays() -> None:
    framebuffer = Framebuffer(4, 3, channels=4)
    framebuffer.pixels[..., :3] = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
    old = framebuffer.pixels
    framebuffer.resize(4, 3)
    assert framebuffer.pixels is old
    framebuffer.resize(2, 5)
    assert (framebuffer.width, framebuffer.height) == (2, 5)
    np.testing.assert_array_equal(framebuffer.pixels[:3], old[:, :2])
    assert (framebuffer.pixels[3:] == [0, 0, 0, 255]).all()


def test_a_snapshot_is_a_copy() -> None:
    framebuffer = Framebuffer(4, 3)
    first = framebuffer.snapshot()
    framebuffer.pixels[:] = 5
    assert not first.any()
    out = np.zeros((3, 4, 3), np.uint8)
    assert framebuffer.snapshot(out) is out
    assert (out == 5).all()


def test_sizes() -> None:
    with pytest.raises(ValueError, match="3 or 4 channels, not 1"):
        Framebuffer(4, 3, channels=1)
    with pytest.raises(ValueError, match="a screen of -1x3"):
        Framebuffer(-1, 3)
    with pytest.raises(LimitExceeded) as caught:
        Framebuffer(65535, 65535)
    assert caught.value.size == 65535**2
    framebuffer = Framebuffer(4, 3, limits=Limits(pixels=12))
    with pytest.raises(LimitExceeded):
        framebuffer.resize(13, 1)
    assert framebuffer.pixels.shape == (3, 4, 3)
