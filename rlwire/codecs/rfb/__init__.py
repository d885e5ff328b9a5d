"""RFB, the protocol of VNC: messages, pixels, keys, passwords.

Source: RFC 6143 and what TigerVNC speaks beyond it.
"""

from rlwire.codecs.rfb.decoder import Rectangle, RectangleDecoder
from rlwire.codecs.rfb.encodings import Encoding
from rlwire.codecs.rfb.framebuffer import Framebuffer
from rlwire.codecs.rfb.pixels import BGR233, RGB565, RGB888, RGBX, PixelFormat

__all__ = [
    "BGR233",
    "RGB565",
    "RGB888",
    "RGBX",
    "Encoding",
    "Framebuffer",
    "PixelFormat",
    "Rectangle",
    "RectangleDecoder",
]
