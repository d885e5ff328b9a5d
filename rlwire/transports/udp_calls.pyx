"""`recvfrom` and `sendto` of a UDP socket that remember what a peer is called.

Python's socket module writes an address as text for each datagram that comes, and reads that text
for each that goes, which costs more than the system's calls.
"""

from cpython.exc cimport PyErr_SetFromErrno

from socket import AF_INET, AF_INET6, inet_ntop
from struct import unpack

cdef extern from "<sys/socket.h>":
    ctypedef unsigned int socklen_t
    struct sockaddr:
        pass
    struct sockaddr_storage:
        pass
    enum:
        MSG_DONTWAIT
    Py_ssize_t c_recvfrom "recvfrom"(
        int file, void *data, size_t size, int flags, sockaddr *peer, socklen_t *length)
    Py_ssize_t c_sendto "sendto"(
        int file, const void *data, size_t size, int flags, const sockaddr *peer, socklen_t length)

cdef enum:
    MOST_PEERS = 4096
    LONGEST = 65536


cdef class DatagramCalls:
    """Receives and sends, never waiting, and remembers the addresses of up to 4,096 peers.

    Args:
        sock: a socket of IPv4 or IPv6, which must stay open as long as this is used.
    """

    cdef int _file
    cdef object _sendto
    cdef dict _peers  # by the system's address
    cdef dict _addresses  # and back

    def __init__(self, sock):
        self._file = sock.fileno()
        self._sendto = sock.sendto
        self._peers = {}
        self._addresses = {}

    def recvfrom(self, size_t size):
        """As a socket's that does not block."""
        cdef char data[LONGEST]
        cdef sockaddr_storage where
        cdef socklen_t length = sizeof(where)
        cdef Py_ssize_t got = c_recvfrom(
            self._file, data, min(size, <size_t> LONGEST), MSG_DONTWAIT, <sockaddr *> &where,
            &length)
        if got < 0:
            PyErr_SetFromErrno(OSError)
        cdef bytes address = (<char *> &where)[:length]
        peer = self._peers.get(address)
        return data[:got], self._learn(address) if peer is None else peer

    def sendto(self, bytes data not None, peer):
        """As a socket's that does not block."""
        found = self._addresses.get(peer)
        if found is None:
            return self._sendto(data, peer)
        cdef bytes address = found
        cdef Py_ssize_t sent = c_sendto(
            self._file, <const char *> data, len(data), MSG_DONTWAIT,
            <const sockaddr *> <const char *> address, <socklen_t> len(address))
        if sent < 0:
            PyErr_SetFromErrno(OSError)
        return sent

    cdef _learn(self, bytes address):
        # In sockaddr_in and sockaddr_in6 the port is at 2; all but the scope are big-endian.
        cdef tuple peer
        port, flow = unpack("!2xHI", address[:8])
        if len(address) < 28:
            peer = inet_ntop(AF_INET, address[4:8]), port
        else:
            peer = inet_ntop(AF_INET6, address[8:24]), port, flow, *unpack("=I", address[24:28])
        if len(self._peers) >= MOST_PEERS:
            self._peers.clear()
            self._addresses.clear()
        self._peers[address] = peer
        self._addresses[peer] = address
        return peer
