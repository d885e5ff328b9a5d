"""The server of all stream protocols, with a thread a connection: fastest while clients are few."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from time import monotonic

from rlwire.errors import RemoteProtocolError
from rlwire.transports.aside import Watch
from rlwire.transports.connection import Connection
from rlwire.transports.interface import Responder
from rlwire.transports.reception import DRAINING, Reception
from rlwire.transports.shm import ShmSocket
from rlwire.transports.sockets import prepare

__all__ = ["ThreadServer"]

logger = logging.getLogger(__name__)


class ThreadServer(Reception[Connection]):
    """Listens, and runs a handler or responder in a thread of its own for each connection.

    Arguments and errors as of `Reception`.
    """

    def _prepare(self) -> None:
        self._full = threading.Event()  # nobody is let in any more
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._acceptor: threading.Thread | None = None
        self._wake, self._waker = socket.socketpair()
        self._watch = Watch(f"rlwire watch {self._address}")

    def __enter__(self) -> ThreadServer:
        return self if self._started else self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> ThreadServer:
        """Begin to accept, in a thread of its own."""
        self._start_once()
        # Not before: a thread that a forked child inherits cannot be started there.
        self._acceptor = threading.Thread(
            target=self._accept, name=f"rlwire accept {self._address}", daemon=True
        )
        self._acceptor.start()
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; returns whether it has."""
        return self._stopped.wait(timeout)

    def drain(self, seconds: float) -> None:
        """Stop accepting, and wait until nothing is under way; call `stop` afterwards.

        Peers are told where the protocol has words for that: those that say nothing meanwhile hear
        of it by `stop`. Other connections end when they are between two messages.
        """
        until = monotonic() + seconds
        self.stop_accepting(seconds)
        while self._open and (left := until - monotonic()) > 0:
            for connection in self.open_connections:
                connection.drain()
            if self._stopping.wait(min(left, DRAINING)):
                return

    def stop(self, grace: float = 5.0) -> None:
        """Stop accepting, end all connections and wait for their threads.

        A handler at work may still send its answer; half of the grace time later it cannot. A
        thread that the grace time does not end is logged and left behind.
        """
        with self._lock:
            first = not self._stopping.is_set()
            self._stopping.set()
        if not first:
            self._stopped.wait(grace)
            return
        until = monotonic() + grace
        self.stop_accepting(grace)
        self._watch.close()
        for connection in self.open_connections:
            connection.stop_receiving()
        self._join(monotonic() + grace / 2)
        for connection in self.open_connections:
            connection.close()
        self._join(until)
        self._leave_behind(threading.current_thread(), grace)
        self._wake.close()
        self._waker.close()
        self._stopped.set()

    def stop_accepting(self, seconds: float) -> None:
        """Let nobody new in; give the thread that accepts so long to end."""
        self._full.set()
        with contextlib.suppress(OSError):  # it is stopped already
            self._waker.send(b"\0")
        if self._acceptor is not None:
            self._acceptor.join(seconds)
        self._stop_listening()

    def _let_go(self) -> None:
        self._full.set()
        self._stopping.set()
        self._stopped.set()
        self._wake.close()
        self._waker.close()

    def _join(self, until: float) -> None:
        with self._lock:
            threads: list[threading.Thread] = list(self._open)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - monotonic()))

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            delay: float | None = 0.0
            while delay is not None and not self._full.wait(delay):
                selector.select()
                if not self._full.is_set():
                    delay = self._accept_one()

    def _accept_one(self) -> float | None:
        """Return how long to wait before the next one, None for ever."""
        try:
            sock, sockaddr = self._listener.accept()
        except BlockingIOError:
            return 0.0  # another process that shares the listener took it
        except OSError as error:
            return self._not_accepted(error)
        try:
            # Before 3.13 a socket may inherit that its listener does not block.
            sock.setblocking(True)
            names = self._admit(sock, sockaddr)
            if names is not None:
                self._attend(sock, *names)
        except Exception:
            self._log.exception("%s: a session failed", self._address)
            sock.close()
        return self._breath()

    def _attend(self, sock: socket.socket, peer: str, host: str) -> None:
        """Give an accepted connection its thread."""
        try:
            prepare(sock)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            elif self._shm:
                sock = ShmSocket(sock, server_side=True)
            session = self._session_for(host)
            connection = Connection(sock, session, peer, self._timeouts, accepted=True)
            self._begin(connection, host, None)
        except BaseException as error:
            self._admission.leave(host)
            if isinstance(error, OSError):
                # Some systems refuse socket options once the peer has hung up.
                self._log.debug("%s: gone before it was served: %s", peer, error)
            elif not isinstance(error, _NoThread):
                raise
            sock.close()  # last: whoever sees the end may look for why

    def _begin(self, connection: Connection, host: str, responder: Responder | None) -> None:
        thread = threading.Thread(
            target=self._serve,
            args=(connection, host, responder),
            name=f"rlwire {connection.peer}",
            daemon=True,
        )
        with self._lock:
            self._open[thread] = connection
        try:
            thread.start()
        except RuntimeError as error:
            with self._lock:
                del self._open[thread]
            self._log.error("%s: closed, no thread for it: %s", connection.peer, error)
            raise _NoThread from error

    def _stand_in(
        self, thread: threading.Thread, connection: Connection, host: str, responder: Responder
    ) -> None:
        """Give a connection another thread, as its own is at work for long."""
        with self._lock:
            del self._open[thread]
        try:
            self._begin(connection, host, responder)
        except _NoThread:
            responder.close()
            connection.close()
            self._admission.leave(host)

    def _serve(self, connection: Connection, host: str, responder: Responder | None) -> None:
        me = threading.current_thread()
        try:
            if responder is None:
                connection.handshake(self._timeouts.handshake)
                logger.debug("%s: connected", connection.peer)
            if self._handler is not None:
                self._handler(connection)
            else:
                self._respond(connection, host, responder)
            if me in self._open:
                self._over(connection, None)
        except Exception as error:
            if me in self._open:
                self._over(connection, error)
            else:  # the connection is another thread's now
                self._log.exception("%s: an answer failed", connection.peer)
        finally:
            if me in self._open:
                connection.close()
                with self._lock:
                    del self._open[me]
                self._admission.leave(host)

    def _respond(self, connection: Connection, host: str, responder: Responder | None) -> None:
        me = threading.current_thread()

        def stand_in() -> None:
            assert responder is not None
            self._stand_in(me, connection, host, responder)

        connection.may_stand_in(self._watch, stand_in)
        if responder is None:
            assert self._make_responder is not None
            responder = self._make_responder(connection)
        try:
            while me in self._open and not connection.closed:
                try:
                    connection.serve(responder.answer, responder.failure)
                except RemoteProtocolError as error:
                    self._log.warning("%s: it sent what is not allowed: %s", connection.peer, error)
                    connection.refuse(error)
        finally:
            if me in self._open:
                responder.close()


class _NoThread(Exception):
    """There is none for a connection, as was logged."""
