"""Limits on a server's connections, in all and per address."""

from __future__ import annotations

import socket
import threading
from collections import Counter

from rlwire.errors import LimitExceeded

MAX_CONNECTIONS = 1000
"""The default limit: a thread for each connection is still affordable."""

MAX_CONNECTIONS_PER_ADDRESS = 256
"""The default limit: the environments of one large machine. A machine that opens connections and
sends nothing leaves three quarters of `MAX_CONNECTIONS` to others."""


class Admission:
    """Counts open connections, from any thread.

    IPv6 addresses are counted by /64 network, because one host usually has all of it. Over unix
    sockets each user counts as an address; the process's own user has no limit per address.

    Raises:
        ValueError: a limit is not a positive number.
    """

    def __init__(self, max_connections: int, max_connections_per_address: int) -> None:
        self._in_all = max_connections
        self._per_address = max_connections_per_address
        for name, value in (
            ("max_connections", max_connections),
            ("max_connections_per_address", max_connections_per_address),
        ):
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        self._lock = threading.Lock()
        self._open: Counter[str | bytes] = Counter()
        self._count = 0

    def enter(self, host: str) -> None:
        """Count a new connection, or raise LimitExceeded; call `leave` when it ends."""
        network = network_of(host)
        with self._lock:
            if self._count >= self._in_all:
                raise LimitExceeded("max_connections", self._in_all, self._count + 1)
            count = self._open[network]
            if network and count >= self._per_address:
                raise LimitExceeded(
                    "max_connections_per_address",
                    self._per_address,
                    count + 1,
                    path=host if host.startswith("user ") else f"address {host}",
                )
            self._count += 1
            self._open[network] += 1

    def leave(self, host: str) -> None:
        network = network_of(host)
        with self._lock:
            self._count -= 1
            self._open[network] -= 1
            if not self._open[network]:
                del self._open[network]


def network_of(host: str) -> str | bytes:
    """Return the key by which an address is counted: for IPv6 its /64 network."""
    if ":" not in host:
        return host
    try:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return host
    if packed.startswith(bytes(10) + b"\xff\xff"):  # an IPv4 client of a dual-stack socket
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return packed[:8]
