"""How many connections a server holds, in all and from one address: the maxima, and who counts."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from typing import Any

from rlwire.errors import LimitExceeded

MAX_CONNECTIONS = 1000
"""Every server's default. A thread each, which some servers take, is still bearable."""

MAX_CONNECTIONS_PER_ADDRESS = 256
"""Every server's default: as many environments as one large machine runs, and a quarter of all, so
that one machine that opens connections and says nothing leaves room for the others."""


def capacity(max_connections: int, max_connections_per_address: int) -> dict[str, Any]:
    """Return both by name, for the arguments of a transport's server."""
    given = {
        "max_connections": max_connections,
        "max_connections_per_address": max_connections_per_address,
    }
    for name, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be at least 1, not {value!r}")
    return given


class Admission:
    """Lets connections in, and counts them until they leave; from any thread.

    An IPv6 address counts as its network of 64 bits, since that is what one host is given. Over
    unix sockets each user counts as an address, but for the process's own, who has all of them.
    """

    def __init__(self, max_connections: int, max_connections_per_address: int) -> None:
        capacity(max_connections, max_connections_per_address)
        self._in_all = max_connections
        self._per_address = max_connections_per_address
        self._lock = threading.Lock()
        self._open: Counter[str | bytes] = Counter()
        self._count = 0

    @property
    def count(self) -> int:
        """How many are in."""
        return self._count

    def enter(self, host: str) -> None:
        """Let one in; `leave` is then owed."""
        network = network_of(host)
        with self._lock:
            if self._count >= self._in_all:
                raise LimitExceeded("max_connections", self._in_all, self._count + 1)
            there = self._open[network]
            if network and there >= self._per_address:
                raise LimitExceeded(
                    "max_connections_per_address",
                    self._per_address,
                    there + 1,
                    path=host if host.startswith("user ") else f"address {host}",
                )
            self._count += 1
            self._open[network] += 1

    def leave(self, host: str) -> None:
        """Take note that one of this host's has ended."""
        network = network_of(host)
        with self._lock:
            self._count -= 1
            self._open[network] -= 1
            if not self._open[network]:
                del self._open[network]


def network_of(host: str) -> str | bytes:
    """Return what counts as one address: of an IPv6 address its network of 64 bits."""
    if ":" not in host:
        return host
    try:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return host
    if packed.startswith(bytes(10) + b"\xff\xff"):  # an IPv4 client of a socket for both
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return packed[:8]
