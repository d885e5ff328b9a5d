"""What the tests of RFB's faces share: a server whose every byte a test decides."""

import contextlib
import socketserver
import struct
import threading

import pytest

from rlwire.codecs.rfb import handshake
from rlwire.codecs.rfb.handshake import ServerInit
from rlwire.codecs.rfb.messages import (
    RGB888,
    FramebufferUpdate,
    PixelFormat,
    client_message_size,
    encode,
)


class Peer:
    """One connection of a scripted server."""

    def __init__(self, sock):
        self.sock = sock

    def greet(self, width=8, height=4):
        version = (3, 8)
        say = handshake.encode_version(version) + handshake.encode_security([1], version)
        self.sock.sendall(say + handshake.encode_result(None, version))
        self.take(handshake.VERSION_SIZE + 2)
        init = ServerInit(width, height, RGB888, "scripted")
        self.sock.sendall(handshake.encode_server_init(init))
        self.pixel_format = PixelFormat.unpack(self.take_until(0), 4)
        self.take_until(3)

    def take(self, size):
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise ConnectionError("the client has gone")
            data += more
        return data

    def take_message(self):
        data = b""
        while not (size := client_message_size(data, 0, len(data))):
            data += self.take(1)
        return data + self.take(size - len(data))

    def take_until(self, kind):
        while (message := self.take_message())[0] != kind:
            pass
        return message

    def rectangle(self, x, y, width, height, grey):
        head = struct.pack(">HHHHi", x, y, width, height, 0)
        return head + bytes((grey, grey, grey, grey)) * (width * height)

    def update(self, *rectangles):
        self.say(encode(FramebufferUpdate(len(rectangles))) + b"".join(rectangles))

    def say(self, data):
        self.sock.sendall(data)


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError):
            self.server.script(Peer(self.request))
            while self.request.recv(65536):  # the client goes first
                pass


@pytest.fixture
def scripted():
    with contextlib.ExitStack() as stack:

        def start(script):
            server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
            server.script = script
            stack.callback(server.server_close)
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"127.0.0.1:{server.server_address[1]}"

        yield start
