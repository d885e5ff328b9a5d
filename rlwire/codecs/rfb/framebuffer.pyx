"""What a viewer sees: one array of pixels that rectangles are painted into (`rlwire.codecs.rfb.decoder`).

Nothing locks it. Who reads from another thread than the one that paints sees an update half done, so
`snapshot` is for the painting thread, or for whoever keeps it waiting.
"""

from libc.stdint cimport uint8_t

import numpy as np

from rlwire.errors import LimitExceeded
from rlwire.limits import checked


cdef class Framebuffer:
    """Pixels of a screen, painted in place.

    Args:
        width, height: in pixels.
        channels: 3 for red, green, blue; 4 for these and 255.
        limits: `pixels` is checked before anything is made.

    Attributes:
        pixels: the array, (height, width, channels) of uint8, which `resize` replaces.
    """

    def __init__(self, width, height, *, channels=3, limits=None):
        if channels != 3 and channels != 4:
            raise ValueError(f"a framebuffer has 3 or 4 channels, not {channels}")
        self.channels = channels
        self._limits = checked(limits)
        self._take(self._made(width, height))

    def _made(self, width, height):
        if width < 0 or height < 0:
            raise ValueError(f"a screen of {width}x{height}")
        if width * height > self._limits.pixels:
            raise LimitExceeded("pixels", self._limits.pixels, width * height)
        made = np.zeros((height, width, self.channels), np.uint8)
        made[..., 3:] = 255
        return made

    cdef int _take(self, object pixels) except -1:
        cdef uint8_t[:, :, ::1] view = pixels
        self.pixels = pixels
        self._view = view
        self.height, self.width = pixels.shape[:2]
        # An empty view has no first element to take the address of.
        self.screen.pixels = &view[0, 0, 0] if pixels.size else NULL
        self.screen.stride = <size_t> self.width * self.channels
        self.screen.width = self.width
        self.screen.height = self.height
        self.screen.channels = self.channels
        return 0

    def resize(self, width, height):
        """Take another size; what fits of the picture stays, the rest is black."""
        if self.painted_by:
            raise RuntimeError("the framebuffer is being painted into")
        if width == self.width and height == self.height:
            return
        fresh = self._made(width, height)
        high, wide = min(height, self.height), min(width, self.width)
        fresh[:high, :wide] = self.pixels[:high, :wide]
        self._take(fresh)

    def snapshot(self, out=None):
        """Return a copy of the pixels, in `out` if it is given: an array of their shape."""
        if out is None:
            return self.pixels.copy()
        np.copyto(out, self.pixels)
        return out

    def __repr__(self):
        return f"Framebuffer({self.width}, {self.height}, channels={self.channels})"
