"""RFB, the protocol of VNC (RFC 6143): messages, pixels, keys, passwords."""

from rlwire.codecs.rfb.decoder import Framebuffer, Rectangle, RectangleDecoder
from rlwire.codecs.rfb.messages import Encoding, PixelFormat

__all__ = ["Encoding", "Framebuffer", "PixelFormat", "Rectangle", "RectangleDecoder"]
