"""RFB, the protocol of VNC: messages, pixels, keys, passwords.

Source: RFC 6143 and what TigerVNC speaks beyond it.
"""

from rlwire.codecs.rfb.decoder import Framebuffer, Rectangle, RectangleDecoder
from rlwire.codecs.rfb.messages import BGR233, RGB565, RGB888, RGBX, Encoding, PixelFormat

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
