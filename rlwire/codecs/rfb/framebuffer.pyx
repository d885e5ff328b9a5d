"""What a viewer sees: one array of pixels that rectangles are painted into (`rlwire.codecs.rfb.decoder`).

Not here: a lock. Who reads from another thread than the one that paints sees an update half done, so
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
        out: an array to paint into, such as one place of a batch: uint8 of shape (height, width,
            channels), contiguous, writable. Its memory stays as it is, but for the fourth channel,
            which becomes 255. Without it zeros are made.
        limits: `pixels` is checked before anything is made.

    Attributes:
        pixels: the array, which `resize` replaces.
        width, height, channels: its shape.

    Raises:
        LimitExceeded: more pixels than the limit ``pixels``.
        ValueError: `out` is not such an array, or there are not 3 or 4 channels.
    """

    def __init__(self, width, height, *, channels=3, out=None, limits=None):
        if channels != 3 and channels != 4:
            raise ValueError(f"a framebuffer has 3 or 4 channels, not {channels}")
        self.channels = channels
        self._limits = checked(limits)
        self._take(self._made(width, height, out))

    def _made(self, width, height, out):
        if width < 0 or height < 0:
            raise ValueError(f"a screen of {width}x{height}")
        if width * height > self._limits.pixels:
            raise LimitExceeded("pixels", self._limits.pixels, width * height)
        shape = (height, width, self.channels)
        if out is None:
            out = np.zeros(shape, np.uint8)
        elif not isinstance(out, np.ndarray) or out.dtype != np.uint8 or out.shape != shape \
                or not out.flags.c_contiguous or not out.flags.writeable:
            raise ValueError(
                f"out must be a writable, contiguous array of uint8 and the shape {shape}")
        if self.channels == 4:
            out[..., 3] = 255
        return out

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

    def resize(self, width, height, out=None):
        """Take another size; what fits of the picture stays, the rest is black.

        The pixels are a new array, unless `out` is given: one that was the caller's is left.

        Raises:
            LimitExceeded, ValueError: as for the class; the old pixels then stay.
            RuntimeError: another thread paints into it just now.
        """
        if self.painted_by:
            raise RuntimeError("the framebuffer is being painted into")
        if out is None and width == self.width and height == self.height:
            return
        old = self.pixels
        fresh = self._made(width, height, out)
        high, wide = min(height, self.height), min(width, self.width)
        if fresh is not old:
            kept = old[:high, :wide].copy()  # `out` may lie over it
            fresh[..., :3] = 0
            fresh[:high, :wide] = kept
        self._take(fresh)

    def snapshot(self, out=None):
        """Return a copy of the pixels, in `out` if it is given: an array of their shape."""
        if out is None:
            return self.pixels.copy()
        np.copyto(out, self.pixels)
        return out

    def __repr__(self):
        return f"Framebuffer({self.width}, {self.height}, channels={self.channels})"
