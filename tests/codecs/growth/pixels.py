"""RFB's rectangles."""

import struct
import zlib

from cases import CASES, case, fed

from rlwire.codecs.rfb import Encoding, Framebuffer, RectangleDecoder, handshake
from rlwire.codecs.rfb.handshake import ServerInit
from rlwire.codecs.rfb.messages import RGBX, UNTIL_LAST, FramebufferUpdate, encode
from rlwire.limits import Limits
from rlwire.sessions.rfb.client import RfbClientSession

LIMITS = Limits(received=1 << 30, message=1 << 30, expanded=1 << 30)


def head(width, height, encoding):
    return struct.pack(">HHHHi", 0, 0, width, height, encoding)


def rectangles(n, encoding):
    """Small ones, of Tight on four streams in turn."""
    streams = [zlib.compressobj() for _ in range(5)]
    for i in range(n):
        if encoding == Encoding.RAW:
            yield head(1, 1, 0) + b"\1\2\3\0"
            continue
        stream = streams[i % 4 if encoding == Encoding.TIGHT else 4]
        data = bytes(48) if encoding == Encoding.TIGHT else b"\1abc"
        packed = stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)
        before = bytes([i % 4 << 4, len(packed)])
        if encoding == Encoding.ZRLE:
            before = struct.pack(">I", len(packed))
        yield head(4, 4, encoding) + before + packed


def _together():
    for encoding in (Encoding.RAW, Encoding.TIGHT, Encoding.ZRLE):

        def together(n, encoding=encoding):
            data = b"".join(rectangles(n, encoding))
            framebuffer = Framebuffer(8, 8)

            def work():
                decoder = RectangleDecoder(framebuffer, limits=LIMITS, inflater="zlib")
                assert decoder.size(data, 0, len(data), n) == len(data)
                decoder.paint(data, 0, n)

            return work

        CASES[f"rfb_{encoding.name.lower()}_together"] = (together, 250)


_together()


def viewer(width, height):
    """One that is open."""
    session = RfbClientSession(limits=LIMITS)
    greeting = [
        handshake.encode_version((3, 8)),
        handshake.encode_security([1], (3, 8)),
        handshake.encode_result(None, (3, 8)),
        handshake.encode_server_init(ServerInit(width, height, RGBX, "")),
    ]
    for part in greeting:
        session.receive(part)
    return session


def update(*parts):
    return encode(FramebufferUpdate(UNTIL_LAST)) + b"".join(parts) + head(0, 0, -224)


def raw(n):
    return update(*rectangles(n, Encoding.RAW))


CASES.update(
    rfb_small_updates=(lambda n: fed(viewer(8, 8), raw(3) * n, 4096), 250),
    rfb_many_rectangles=(lambda n: fed(viewer(8, 8), raw(n), 4096), 250),
    rfb_many_rectangles_byte_by_byte=(lambda n: fed(viewer(8, 8), raw(n), 1), 100),
)


@case(100)
def rfb_hextile_byte_by_byte(n):
    tiles = b"\x0a\1\2\3\0\1\0\0" * n
    return fed(viewer(16, 16 * n), update(head(16, 16 * n, Encoding.HEXTILE) + tiles), 1)
