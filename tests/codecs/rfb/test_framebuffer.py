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
    batch = np.full((2, 4, 4, 4), 7, np.uint8)
    framebuffer.resize(4, 4, out=batch[1])
    np.testing.assert_array_equal(batch[1, :3, :2], old[:, :2])
    assert (batch[1, :, 2:] == [0, 0, 0, 255]).all()
    assert (batch[0] == 7).all()


def test_a_snapshot_is_a_copy() -> None:
    framebuffer = Framebuffer(4, 3)
    first = framebuffer.snapshot()
    framebuffer.pixels[:] = 5
    assert not first.any()
    out = np.zeros((3, 4, 3), np.uint8)
    assert framebuffer.snapshot(out) is out
    assert (out == 5).all()


@pytest.mark.each(
    "out",
    [
        np.zeros((4, 3, 3), np.uint8),
        np.zeros((3, 4, 3), np.int8),
        np.zeros((3, 8, 3), np.uint8)[:, ::2],
        [[0]],
    ],
)
def test_an_array_that_does_not_serve(out: object) -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 4, 3\)"):
        Framebuffer(4, 3, out=out)


def test_sizes() -> None:
    fixed = np.zeros((3, 4, 3), np.uint8)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        Framebuffer(4, 3, out=fixed)
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
