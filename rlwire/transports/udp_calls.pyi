import socket
from typing import Any

from typing_extensions import disjoint_base

__all__ = ["DatagramCalls"]

@disjoint_base
class DatagramCalls:
    def __init__(self, sock: socket.socket) -> None: ...
    def recvfrom(self, size: int) -> tuple[bytes, Any]: ...
    def sendto(self, data: bytes, peer: Any) -> int: ...
