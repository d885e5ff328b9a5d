"""`recvfrom` and `sendto` of a UDP socket, which convert each peer's address to text only once.

Python's socket module converts it for each datagram, which costs more than the system calls.
"""

from libc.errno cimport EAGAIN, errno
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
    """Non-blocking calls of an IPv4 or IPv6 socket, with a cache of 4,096 peer addresses."""

    cdef int _file
    cdef object _sendto
    cdef dict _peers  # by the system's address
    cdef dict _addresses  # and back

    def __init__(self, sock):
        self._file = sock.fileno()
        self._sendto = sock.sendto
        self._peers = {}
        self._addresses = {}

    def close(self):
        """Fail with EBADF from now on: the system may reuse the number for another socket."""
        self._file = -1

    def receive(self, Py_ssize_t limit, int most):
        """Return up to `most` (datagram, peer), the peers of those over `limit`, and errno or 0."""
        cdef char data[LONGEST]
        cdef sockaddr_storage where
        cdef socklen_t length
        cdef Py_ssize_t got
        cdef bytes address
        cdef list found = [], longer = []
        for _ in range(most):
            length = sizeof(where)
            got = c_recvfrom(
                self._file, data, min(<size_t> limit + 1, <size_t> LONGEST), MSG_DONTWAIT, <sockaddr *> &where,
                &length)
            if got < 0:
                return found, longer, 0 if errno == EAGAIN else errno
            address = (<char *> &where)[:length]
            peer = self._peers.get(address)
            if peer is None:
                peer = self._add_peer(address)
            if got > limit:
                longer.append(peer)
            else:
                found.append((data[:got], peer))
        return found, longer, 0

    def sendto(self, bytes data not None, peer):
        """Send a datagram, as `socket.sendto`."""
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

    cdef _add_peer(self, bytes address):
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
