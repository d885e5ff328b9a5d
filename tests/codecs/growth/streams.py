"""Bytes that come in pieces: netstrings, WebSocket, HTTP/2, MessagePack."""

from cases import CASES, case, fed, refused

from rlwire.codecs import rlx
from rlwire.codecs.http2 import frames as http2
from rlwire.codecs.http2.headers import Headers
from rlwire.codecs.websocket.frames import FrameEncoder
from rlwire.limits import Limits
from rlwire.sessions import websocket
from rlwire.sessions.http2.core import Http2Core, Stream
from rlwire.streams import FrameReader


def netstring(body):
    return b"%d:%b," % (len(body), body)


class Netstrings:
    """A stream session that does nothing with its frames."""

    def receive(self, frame):
        return []

    def data_offset(self, buffer, start, end):
        return 0

    def frame_size(self, buffer, start, end):
        return rlx.frame_size(buffer, start, end, 1 << 30)


CASES.update(
    netstrings_small=(lambda n: fed(Netstrings(), netstring(b"x") * n, 4096), 1000),
    netstrings_byte_by_byte=(lambda n: fed(Netstrings(), netstring(b"xxx") * n, 1), 250),
    netstring_long_byte_by_byte=(lambda n: fed(Netstrings(), netstring(b"x" * n), 1), 1000),
)


@case(500)
def netstrings_before_they_are_taken(n):
    """As TLS may deliver: bytes come while whole frames wait."""
    reader = FrameReader(Netstrings())
    data = netstring(b"x" * 10)

    def feed():
        waiting = b""
        for _ in range(n):
            waiting += data
            room = reader.room()
            count = min(len(room), len(waiting))
            room[:count] = waiting[:count]
            reader.advance(count)
            waiting = waiting[count:]
        while reader.frame() is not None:
            pass

    return feed


def shaken(limits=None, kind="any"):
    client = websocket.WebSocketClientSession("ws://a/")
    server = websocket.WebSocketServerSession(limits=limits, kind=kind)
    for written in client.output():
        server.receive(written)
    return server


FRAMER = FrameEncoder(True)


@case(250)
def websocket_fragments(n):
    data = FRAMER.frame(2, b"x", fin=False) + FRAMER.frame(0, b"x", fin=False) * n
    return fed(shaken(Limits(items=1 << 24)), data + FRAMER.frame(0, b"x"), 4096)


@case(250)
def websocket_text_fragments(n):
    data = FRAMER.frame(1, b"x", fin=False) + FRAMER.frame(0, "é".encode()[:1], fin=False)
    piece = FRAMER.frame(0, "é".encode()[1:] + "é".encode()[:1], fin=False)
    return fed(shaken(), data + piece * n + FRAMER.frame(0, "é".encode()[1:]), 4096)


@case(250)
def websocket_pings_between_fragments(n):
    data = FRAMER.frame(2, b"x", fin=False) + (FRAMER.frame(9, b"x")) * n
    return fed(shaken(), data + FRAMER.frame(0, b"x"), 4096)


CASES.update(
    websocket_small=(lambda n: fed(shaken(), FRAMER.frame(2, b"x") * n, 4096), 500),
    websocket_byte_by_byte=(lambda n: fed(shaken(), FRAMER.frame(2, b"x" * n), 1), 500),
)


def handshake(lines, connection=b"Upgrade"):
    head = (
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: " + connection + b"\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    return websocket.WebSocketServerSession(limits=Limits(header=1 << 20)), head + lines + b"\r\n"


CASES.update(
    websocket_handshake_byte_by_byte=(
        lambda n: fed(*handshake(b"X-Y: " + b"z" * n + b"\r\n"), 1),
        250,
    ),
    websocket_handshake_lines=(lambda n: refused(fed(*handshake(b"a:b\r\n" * n), 4096)), 100),
    websocket_handshake_list=(lambda n: fed(*handshake(b"", b"a," * n + b"Upgrade"), 4096), 100),
)


def endpoint(streams=1, window=2**30):
    """One whose peer has said its first words, with streams."""
    peer = Http2Core(False, Limits(received=2**26, header=2**26))
    peer.receive(http2.PREFACE)
    peer.receive(http2.settings({http2.INITIAL_WINDOW_SIZE: window}))
    peer.receive(http2.window_update(0, 2**30))
    for number in range(1, 2 * streams, 2):
        peer.add(Stream(number))
    return peer


def taking(frames, peer):
    def take():
        for frame in frames:
            peer.receive(frame)
            peer.control_frames = 0
            peer.output()

    return take


CASES.update(
    http2_messages_in_one_frame=(
        lambda n: taking([http2.frame(http2.DATA, 0, 1, b"\0\0\0\0\1x" * n)], endpoint()),
        500,
    )
)


@case(500)
def http2_a_message_in_many_frames(n):
    frames = [http2.frame(http2.DATA, 0, 1, b"\0" + (4 * n).to_bytes(4, "big"))]
    return taking(frames + [http2.frame(http2.DATA, 0, 1, b"four")] * n, endpoint())


@case(500)
def http2_a_block_in_many_frames(n):
    frames = [http2.frame(http2.HEADERS, 0, 1, b"x")]
    return taking(frames + [http2.frame(http2.CONTINUATION, 0, 1, b"four")] * n, endpoint())


@case(500)
def http2_small_messages_that_wait_and_go_byte_by_byte(n):
    peer = endpoint(1, 0)

    def send():
        for _ in range(n):
            peer.message(peer.streams[1], [b"x"])
        update = http2.window_update(1, 1)
        for _ in range(6 * n):
            peer.receive(update)
            peer.control_frames = 0
            peer.output()

    return send


@case(500)
def http2_streams_that_wait_in_turn(n):
    peer = endpoint(n, 0)

    def send():
        for stream in peer.streams.values():
            peer.message(stream, [b"some"])
        peer.receive(http2.settings({http2.INITIAL_WINDOW_SIZE: 3}))
        peer.receive(http2.settings({http2.INITIAL_WINDOW_SIZE: 100}))
        while peer.unsent:
            peer.output()

    return send


@case(250)
def hpack_fields_of_the_table(n):
    headers = Headers(Limits(header=2**26))
    headers.decode(b"\x40\x01a\x01b")
    return lambda: headers.decode(b"\xbe" * n)


@case(250)
def hpack_updates_of_the_tables_size(n):
    headers = Headers(Limits(header=2**26))
    return lambda: headers.decode(b"\x20\x3f\xe1\x1f" * n + b"\x82")


@case(250)
def hpack_a_long_text(n):
    """In the code of Huffman's, whose letter a has five bits."""
    sender, headers = Headers(), Headers(Limits(header=2**26))
    block = sender.encode([("cookie", "a" * 8 * n)])
    return lambda: headers.decode(block)
