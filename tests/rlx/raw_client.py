"""RLX over plain sockets: a client and a server that check no rule of the protocol."""

import socket
import threading

from rlwire.codecs import rlx
from rlwire.transports.address import parse
from rlwire.transports.sockets import connected_socket

__all__ = ["ScriptedServer", "ask", "connected", "read_frame", "receive"]


def read_frame(sock):
    """Receive one frame and return its bytes.

    ConnectionError if the peer closes, TimeoutError after the socket's timeout.
    """
    frame = b""
    while not (size := rlx.frame_size(frame, 0, len(frame), 2**30)) or len(frame) < size:
        data = sock.recv(size - len(frame) if size else 1)
        if not data:
            raise ConnectionError(f"the peer closed after {len(frame)} bytes of a message")
        frame += data
    return frame


def connected(address):
    """Connect a socket to the address of a server."""
    return connected_socket(parse(address), 20.0)


def receive(sock):
    return rlx.decode(read_frame(sock), framed=True)


def ask(sock, message):
    sock.sendall(rlx.encode(message, framed=True))
    return receive(sock)


class ScriptedServer:
    """Reads one frame before each of its answers: a message, bytes, or None for silence.

    After the last one it closes. `frames` are what it has read.
    """

    def __init__(self, *answers):
        self.answers = answers
        self.frames = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(10)
        self.address = self.listener.getsockname()
        self.released = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.released.set()
        self.thread.join()
        self.listener.close()

    def run(self):
        connection, _ = self.listener.accept()
        with connection:
            connection.settimeout(10)
            for answer in self.answers:
                self.frames.append(read_frame(connection))
                if answer is None:
                    self.released.wait(10)
                else:
                    connection.sendall(
                        answer if isinstance(answer, bytes) else rlx.encode(answer, framed=True)
                    )
