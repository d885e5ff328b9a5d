"""An RLX client that does not check the protocol."""

from rlwire.codecs import rlx
from rlwire.transports.address import parse
from rlwire.transports.sockets import connected_socket

__all__ = ["RawClient"]


class RawClient:
    """`timeout` is in seconds, for each reply."""

    def __init__(self, address, timeout=5.0):
        self._socket = connected_socket(parse(address), timeout)
        self._received = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self._socket.close()

    def send(self, message):
        self.send_bytes(rlx.encode(message, framed=True))

    def send_bytes(self, data):
        self._socket.sendall(data)

    def receive(self):
        """Return the next message; ConnectionError at the end, TimeoutError after `timeout`."""
        while True:
            buffer = bytes(self._received)
            size = rlx.frame_size(buffer, 0, len(buffer), 2**30)
            if size and len(buffer) >= size:
                del self._received[:size]
                return rlx.decode(buffer[:size], framed=True)
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError(f"the server closed after {len(buffer)} bytes of a reply")
            self._received += data

    def ask(self, message):
        self.send(message)
        return self.receive()
