"""RFB, the protocol of VNC: messages, pixels, keys, passwords.

`handshake` and `messages` are what both sides say, `clipboard` a part of them, `keysyms` the keys'
numbers, `auth` the answer to a challenge, `pixels` how pixels are written, `encodings` the numbers
of the ways to do so.
`framebuffer` is what a viewer sees, `decoder` paints rectangles into it, by what `inflating` has.

Source: RFC 6143 and what TigerVNC speaks beyond it. Not here: who may say what when
(`rlwire.sessions.rfb`).
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
