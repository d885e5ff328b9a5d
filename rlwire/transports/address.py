"""Addresses of stream and datagram sockets, as users write them."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from dataclasses import dataclass
from typing import Any, TypeAlias

from rlwire.errors import without_secret

__all__ = ["Address", "AddressLike", "parse"]

# sockaddr_un.sun_path holds 108 bytes on Linux, 104 on macOS and the BSDs, and ends in a NUL.
_UNIX_PATH_MAX = 107 if sys.platform.startswith("linux") else 103

# A wildcard is for listening: UDP clients drop replies from other addresses than the server's, and
# Windows connects to none.
_DIALLED = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True)
class Address:
    """A TCP or UDP address (``host`` and ``port``), or a unix socket (``path``).

    Attributes:
        host: name or number, IPv6 without brackets; empty for a unix socket.
        port: 0 to 65535; 0 lets the system choose one to listen on.
        path: file name of a unix socket; empty otherwise.
        shm: whether the unix socket only sets up a connection over shared memory.
    """

    host: str = ""
    port: int = 0
    path: str = ""
    shm: bool = False

    def __post_init__(self) -> None:
        if bool(self.host) == bool(self.path):
            raise ValueError(
                "an address has either a host or a path; to listen on all interfaces, "
                "use the host 0.0.0.0 or ::"
            )
        if self.shm and not self.path:
            raise ValueError("shared memory needs the path of a unix socket, not a host")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port {self.port} is not between 0 and 65535")
        if len(os.fsencode(self.path)) > _UNIX_PATH_MAX:
            raise ValueError(
                f"a unix socket's path has at most {_UNIX_PATH_MAX} bytes on this system, "
                f"not {len(os.fsencode(self.path))}: {self.path!r}"
            )

    def __str__(self) -> str:
        if self.path:
            return f"{'shm' if self.shm else 'unix'}:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether it is local to this machine; False for names other than localhost."""
        if self.path or self.host == "localhost":
            return True
        try:
            number = ipaddress.ip_address(self.host.partition("%")[0])
        except ValueError:
            return False
        return bool((getattr(number, "ipv4_mapped", None) or number).is_loopback)

    @property
    def dialled(self) -> str:
        """The host that clients connect to: loopback for a wildcard, such as a local server's."""
        return _DIALLED.get(self.host, self.host)

    def resolve(self, *, listen: bool = False, datagram: bool = False) -> list[tuple[int, Any]]:
        """Return (family, socket address) pairs in the order to try them.

        Args:
            listen: for binding: IPv4 first, because RELAAX's clients use IPv4 only.
            datagram: for UDP: IPv4 first at both ends, because a client cannot detect that no
                server listens.

        Raises:
            ValueError: the address is a unix socket, and `datagram` is true.
            socket.gaierror: the name is unknown.
        """
        if self.path and datagram:
            raise ValueError(f"{self}: datagrams need UDP; use host:port")
        if self.path:
            return [(socket.AF_UNIX, self.path)]
        found = socket.getaddrinfo(
            self.host if listen else self.dialled,
            self.port,
            type=socket.SOCK_DGRAM if datagram else socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE if listen else 0,
        )
        pairs = [(int(family), sockaddr) for family, _, _, _, sockaddr in found]
        if listen or datagram:
            pairs.sort(key=lambda pair: pair[0] != socket.AF_INET)
        return pairs


AddressLike: TypeAlias = Address | str | tuple[str, int]


def parse(address: AddressLike) -> Address:
    """Parse ``"host:port"``, ``"[::1]:port"``, ``"unix:/path"`` or ``"shm:/path"``."""
    if isinstance(address, Address):
        return address
    if isinstance(address, str):
        if address.startswith("unix:"):
            return Address(path=address[len("unix:") :])
        if address.startswith("shm:"):
            return Address(path=address[len("shm:") :], shm=True)
        host, _, port = address.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            host = ""
        # isdecimal() accepts digits of other scripts.
        if host and port.isascii() and port.isdecimal():
            return Address(host, int(port))
    # An IPv6 address from the socket module has four items; flow and scope are ignored.
    elif (
        isinstance(address, (tuple, list))
        and len(address) in (2, 4)
        and isinstance(address[0], str)
        and type(address[1]) is int
    ):
        return Address(address[0], address[1])
    shown = without_secret(address) if isinstance(address, str) else address
    raise ValueError(
        f"{shown!r} is not an address; expected 'host:port', '[ipv6]:port', 'unix:/path', "
        f"'shm:/path' or (host, port); an IPv6 address needs brackets: [::1]:7001"
    )
