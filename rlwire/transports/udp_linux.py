"""What only Linux's UDP sockets can tell: which of our addresses was asked, and who refused.

Python's socket module lacks some of the constants, so they are here, from the kernel's headers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from typing import Any, TypeAlias

from rlwire.transports.interface import Buffer

_IP_PKTINFO = 8
_IP_RECVERR = 11
_IPV6_RECVERR = 25
_IPV6_PKTINFO = 50
_SO_MEMINFO = 55
_MSG_ERRQUEUE = 0x2000

_IPv4Info = struct.Struct("=I4s4s")  # struct in_pktinfo: interface, local address, destination
_IPv6Info = struct.Struct("=16sI")  # struct in6_pktinfo: destination, interface
_ExtendedError = struct.Struct("=IBBBBII")  # struct sock_extended_err, of which the first is errno

_Ancillary: TypeAlias = "list[tuple[int, int, bytes]]"

_MOST_PEERS = 16_384
_MOST_ADDRESSES = 1024

_NOT_OURS = {errno.EINVAL, errno.EADDRNOTAVAIL, errno.ENETUNREACH}


class AskedAddress:
    """Receives on a wildcard socket, and answers each peer from the address that it asked.

    Otherwise the routing table picks the source address, and on a host with several the client
    drops answers from one that it does not know. It remembers the address for the newest 16,384
    peers; others are answered as without it.
    """

    __slots__ = ("_kind", "_prepared", "_recvmsg", "_sendmsg", "_sendto", "_sources", "_space")

    def __init__(self, sock: socket.socket) -> None:
        if sock.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
            self._kind = (int(socket.IPPROTO_IP), _IP_PKTINFO)
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            self._kind = (int(socket.IPPROTO_IPV6), _IPV6_PKTINFO)
        self._space = socket.CMSG_SPACE(_IPv6Info.size)
        self._recvmsg = sock.recvmsg
        self._sendmsg = sock.sendmsg
        self._sendto = sock.sendto
        self._sources: dict[Any, _Ancillary] = {}
        self._prepared: dict[bytes, _Ancillary] = {}

    def recvfrom(self, size: int) -> tuple[bytes, Any]:
        """As a socket's."""
        data, ancillary, _, peer = self._recvmsg(size, self._space)
        if ancillary:
            info = ancillary[0][2]
            source = self._prepared.get(info)
            if source is None:
                source = self._prepare(info)
            if self._sources.get(peer) is not source:
                self._remember(peer, source)
        return data, peer

    def sendto(self, data: Buffer, peer: Any) -> int:
        """As a socket's."""
        source = self._sources.get(peer)
        if source is None:
            return self._sendto(data, peer)
        try:
            return self._sendmsg([data], source, 0, peer)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            del self._sources[peer]  # the host has lost this address
            return self._sendto(data, peer)

    def _prepare(self, info: bytes) -> _Ancillary:
        # Interface 0: replies are routed as any other datagram, only their source is given.
        if self._kind[1] == _IP_PKTINFO:
            _, local, _ = _IPv4Info.unpack(info)
            reply = _IPv4Info.pack(0, local, bytes(4))
        else:
            local, _ = _IPv6Info.unpack(info)
            # A multicast address cannot be a source; the unspecified one lets the system choose.
            reply = _IPv6Info.pack(bytes(16) if local[0] == 0xFF else local, 0)
        if len(self._prepared) >= _MOST_ADDRESSES:
            self._prepared.clear()
        source = self._prepared[info] = [(*self._kind, reply)]
        return source

    def _remember(self, peer: Any, source: _Ancillary) -> None:
        self._sources.pop(peer, None)
        if len(self._sources) >= _MOST_PEERS:
            del self._sources[next(iter(self._sources))]
        self._sources[peer] = source


def report_refusals(sock: socket.socket) -> None:
    """Let the system keep the ICMP errors that an unconnected socket would not hear of.

    From then on `take_refusals` must be called whenever a call on the socket fails: the system
    calls it ready as long as there is one.
    """
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)


def take_refusals(sock: socket.socket) -> list[tuple[Any, OSError]]:
    """Return whom our datagrams did not reach, and why."""
    found: list[tuple[Any, OSError]] = []
    with contextlib.suppress(OSError):  # in the end EAGAIN
        while len(found) < 64:
            _, ancillary, _, peer = sock.recvmsg(0, 512, _MSG_ERRQUEUE)
            for level, kind, data in ancillary:
                recverr = (level, kind) in (
                    (socket.IPPROTO_IP, _IP_RECVERR),
                    (socket.IPPROTO_IPV6, _IPV6_RECVERR),
                )
                if recverr and len(data) >= _ExtendedError.size:
                    number = _ExtendedError.unpack_from(data)[0]
                    found.append((peer, OSError(number, os.strerror(number))))
    return found


def dropped_by_kernel(sock: socket.socket) -> int:
    """Return how many datagrams came while the socket's receive queue was full."""
    return int(struct.unpack_from("=9I", sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36))[8])
