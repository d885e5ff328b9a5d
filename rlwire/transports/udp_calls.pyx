"""The system calls of plain POSIX sockets for datagrams, from and to the addresses of Python.

Python's socket module writes an address as text for each datagram that comes, and reads that text
for each one that goes. Here it is done once for each peer. Not here: limits, ciphers and errors;
`rlwire.transports.udp_sockets` calls Python's sockets instead on systems without these calls.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc

__all__ = ["AVAILABLE", "DatagramCalls"]

cdef extern from *:
    """
    #include <errno.h>
    #include <string.h>
    #ifndef _WIN32
    #include <arpa/inet.h>
    #include <netinet/in.h>
    #include <sys/socket.h>
    #include <sys/types.h>
    #define RLW_HAS_DATAGRAM_CALLS 1
    #define RLW_HOST INET6_ADDRSTRLEN
    typedef union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } rlw_peer;

    /* Bytes, or -errno. Never waits. */
    static Py_ssize_t rlw_recvfrom(int file, char *data, Py_ssize_t size, rlw_peer *peer,
                                   Py_ssize_t *peer_size) {
        socklen_t length = sizeof *peer;
        Py_ssize_t got = recvfrom(file, data, (size_t)size, MSG_DONTWAIT, &peer->any, &length);
        *peer_size = (Py_ssize_t)length;
        return got >= 0 ? got : errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }

    static Py_ssize_t rlw_sendto(int file, const char *data, Py_ssize_t size, const char *peer,
                                 Py_ssize_t peer_size) {
        rlw_peer room; /* aligned */
        Py_ssize_t sent;
        memcpy(&room, peer, (size_t)peer_size);
        sent = sendto(file, data, (size_t)size, MSG_DONTWAIT, &room.any, (socklen_t)peer_size);
        return sent >= 0 ? sent : errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }

    /* 4, 6, or 0 for what is neither. */
    static int rlw_read_peer(const rlw_peer *peer, Py_ssize_t size, char *host, unsigned *port,
                             unsigned *flow, unsigned *scope) {
        if (peer->any.sa_family == AF_INET && size == (Py_ssize_t)sizeof peer->four) {
            *port = ntohs(peer->four.sin_port);
            return inet_ntop(AF_INET, &peer->four.sin_addr, host, RLW_HOST) ? 4 : 0;
        }
        if (peer->any.sa_family == AF_INET6 && size == (Py_ssize_t)sizeof peer->six) {
            *port = ntohs(peer->six.sin6_port);
            *flow = ntohl(peer->six.sin6_flowinfo);
            *scope = peer->six.sin6_scope_id;
            return inet_ntop(AF_INET6, &peer->six.sin6_addr, host, RLW_HOST) ? 6 : 0;
        }
        return 0;
    }
    #else
    #define RLW_HAS_DATAGRAM_CALLS 0
    #define RLW_HOST 1
    typedef int rlw_peer;
    static Py_ssize_t rlw_recvfrom(int file, char *data, Py_ssize_t size, rlw_peer *peer,
                                   Py_ssize_t *peer_size) {
        (void)file, (void)data, (void)size, (void)peer, (void)peer_size;
        return -ENOSYS;
    }
    static Py_ssize_t rlw_sendto(int file, const char *data, Py_ssize_t size, const char *peer,
                                 Py_ssize_t peer_size) {
        (void)file, (void)data, (void)size, (void)peer, (void)peer_size;
        return -ENOSYS;
    }
    static int rlw_read_peer(const rlw_peer *peer, Py_ssize_t size, char *host, unsigned *port,
                             unsigned *flow, unsigned *scope) {
        (void)peer, (void)size, (void)host, (void)port, (void)flow, (void)scope;
        return 0;
    }
    #endif

    static int rlw_raise_datagram(Py_ssize_t error) {
        errno = (int)error;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    """
    int RLW_HAS_DATAGRAM_CALLS
    enum:
        RLW_HOST
    ctypedef struct rlw_peer:
        pass
    Py_ssize_t rlw_recvfrom(int file, char *data, Py_ssize_t size, rlw_peer *peer,
                            Py_ssize_t *peer_size) noexcept
    Py_ssize_t rlw_sendto(int file, const char *data, Py_ssize_t size, const char *peer,
                          Py_ssize_t peer_size) noexcept
    int rlw_read_peer(const rlw_peer *peer, Py_ssize_t size, char *host, unsigned *port,
                      unsigned *flow, unsigned *scope) noexcept
    int rlw_raise_datagram(Py_ssize_t error) except -1

AVAILABLE = bool(RLW_HAS_DATAGRAM_CALLS)
"""Whether this system has these calls."""

cdef enum:
    MOST_PEERS = 4096


cdef class DatagramCalls:
    """Receives and sends on a socket, never waiting, as the socket's own methods do.

    It knows the addresses of the peers that it has heard, of at most 4,096.

    Args:
        sock: a socket; it must stay open until nothing here is called any more.
    """

    cdef int _file
    cdef object _sendto
    cdef char *_room
    cdef Py_ssize_t _size
    cdef dict _peers  # what Python calls them, by the system's address
    cdef dict _addresses  # and back
    cdef bytes _last  # the newest one's address
    cdef tuple _last_peer

    def __init__(self, sock):
        self._file = sock.fileno()
        self._sendto = sock.sendto
        self._peers = {}
        self._addresses = {}

    def __dealloc__(self):
        PyMem_Free(self._room)

    def recvfrom(self, Py_ssize_t size):
        """Return the next datagram's first `size` bytes, and its peer.

        Raises:
            OSError: the system's; BlockingIOError if there is none.
        """
        cdef rlw_peer peer
        cdef Py_ssize_t length = 0
        cdef Py_ssize_t got
        if self._size < size:
            PyMem_Free(self._room)
            self._size = 0
            self._room = <char *> PyMem_Malloc(size)
            if self._room == NULL:
                raise MemoryError
            self._size = size
        got = rlw_recvfrom(self._file, self._room, size, &peer, &length)
        if got < 0:
            rlw_raise_datagram(-got)
        return PyBytes_FromStringAndSize(self._room, got), self._peer(&peer, length)

    def sendto(self, bytes data not None, peer) -> int:
        """Send a datagram.

        Raises:
            OSError: the system's; BlockingIOError if it has no room for it.
        """
        cdef bytes address
        cdef Py_ssize_t sent
        if peer is self._last_peer:
            address = self._last
        else:
            found = self._addresses.get(peer)
            if found is None:
                return self._sendto(data, peer)
            address = found
        sent = rlw_sendto(self._file, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data),
                          PyBytes_AS_STRING(address), PyBytes_GET_SIZE(address))
        if sent < 0:
            rlw_raise_datagram(-sent)
        return sent

    cdef tuple _peer(self, rlw_peer *peer, Py_ssize_t length):
        cdef unsigned port = 0
        cdef unsigned flow = 0
        cdef unsigned scope = 0
        cdef char host[RLW_HOST]
        cdef bytes address
        cdef int kind
        if length < 0 or length > <Py_ssize_t> sizeof(rlw_peer):
            length = sizeof(rlw_peer)
        address = PyBytes_FromStringAndSize(<char *> peer, length)
        if address == self._last:
            return self._last_peer
        found = self._peers.get(address)
        if found is None:
            kind = rlw_read_peer(peer, length, host, &port, &flow, &scope)
            text = host.decode("ascii") if kind else ""
            found = (text, port, flow, scope) if kind == 6 else (text, port)
            if len(self._peers) >= MOST_PEERS:
                self._peers.clear()
                self._addresses.clear()
            self._peers[address] = found
            self._addresses[found] = address
        self._last, self._last_peer = address, found
        return found
