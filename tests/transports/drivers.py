"""All that drives a connection, under the names of a blocking one; and all that serves."""

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import socket
import struct
import threading

import pytest

from rlwire.serving.threads import LoopThread
from rlwire.transports import tcp, tcp_asyncio
from rlwire.transports.connection import Connection
from rlwire.transports.server import ServerSettings, ThreadServer
from rlwire.transports.server_asyncio import LoopServer
from rlwire.transports.sockets import Timeouts
from rlwire.transports.stream_asyncio import open_stream
from rlwire.transports.timers_asyncio import TimeoutTimer

LOOPS = ("asyncio", "uvloop")


@contextlib.contextmanager
def meanwhile(work, *arguments):
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(20)
        assert not thread.is_alive()


def reset(sock):
    """Close without a farewell of TCP's."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def new_loop(kind):
    if kind == "uvloop":
        return pytest.importorskip("uvloop").new_event_loop()
    return asyncio.new_event_loop()


class OnALoop:
    """An asyncio connection; each call runs the loop until it is done."""

    def __init__(self, loop, connection):
        self.loop, self.connection = loop, connection

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return repr(self.connection)

    def __getattr__(self, name):
        found = getattr(self.connection, name)
        return functools.partial(self._call, found) if callable(found) else found

    def _call(self, method, *arguments):
        async def call():
            result = method(*arguments)
            return await result if inspect.isawaitable(result) else result

        return self.loop.run_until_complete(asyncio.wait_for(call(), 20))

    def close(self):
        self.connection.close()
        self._call(self.connection.wait_closed)


class Drivers:
    def __init__(self, kind, stack):
        self.kind, self._stack = kind, stack
        self.loop = None
        self.failures = []
        if kind != "blocking":
            self.loop = new_loop(kind)
            self.loop.set_exception_handler(lambda _, context: self.failures.append(context))
            stack.callback(self._end_loop)

    def _end_loop(self):
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        assert not self.failures

    def connect(self, *arguments, **options):
        if self.loop is None:
            made = tcp.connect(*arguments, **options)
        else:
            connecting = tcp_asyncio.connect(*arguments, **options)
            made = OnALoop(self.loop, self.loop.run_until_complete(connecting))
        self._stack.callback(made.close)
        return made

    def adopt(self, sock, session, timeout, tls=None, name=None):
        timeout = timeout or Timeouts()
        if self.loop is None:
            if tls is not None:
                sock = tls.wrap_socket(sock, server_hostname=name)
            made = Connection(sock, session, "the peer", timeout)
        else:

            async def make():
                sock.setblocking(False)
                timer = TimeoutTimer.of(self.loop)
                connection = tcp_asyncio.AsyncConnection(
                    session, "the peer", timeout, on_end=timer.discard
                )
                await open_stream(connection, sock, tls=tls, server_hostname=name)
                timer.add(connection, timeout)
                return connection

            made = OnALoop(self.loop, self.loop.run_until_complete(make()))
        self._stack.callback(made.close)
        return made


@contextlib.contextmanager
def drivers(kind):
    with contextlib.ExitStack() as stack:
        yield Drivers(kind, stack)


SERVERS = ("threads", *LOOPS)


def echo(connection):
    """Send back what comes, but for what makes it fail."""
    while True:
        body = bytes(connection.receive())
        connection.send(body if body != b"fail" else 1 // 0)


async def async_echo(connection):
    while True:
        body = bytes(await connection.receive())
        await connection.send(body if body != b"fail" else 1 // 0)


class Echo:
    """A responder that sends back what comes, in threads and on loops; some things it cannot."""

    def __init__(self, connection):
        self.closed = 0
        self.connection = connection

    def answer(self, event):
        body = event if isinstance(event, str) else bytes(event)
        if body == b"fail":
            raise ZeroDivisionError("one of those days")
        return 5 if body == b"number" else body

    def failure(self, event, error):
        return f"{bytes(event).decode()}: {type(error).__name__}".encode()

    def close(self):
        self.closed += 1


def echoing(server, how="handler"):
    """How a server of a kind sends back what comes: its argument."""
    if how == "responder":
        return {"make_handler": Echo}
    return {"converse": echo if server == "threads" else async_echo}


def ended(server):
    counts = server.statistics()
    return {why: n for why, n in counts.items() if n and why not in ("open", "rejected")}


def with_settings(options):
    names = {field.name for field in dataclasses.fields(ServerSettings)} & options.keys()
    rest = {name: value for name, value in options.items() if name not in names}
    return {"settings": ServerSettings(**{name: options[name] for name in names}), **rest}


@contextlib.contextmanager
def serving(kind, address, make_session, **options):
    if kind == "threads":
        with ThreadServer(address, make_session, **with_settings(options)) as threads:
            yield threads
        return
    server = LoopServer(address, make_session, **with_settings(options))
    thread = LoopThread(lambda: server, lambda: new_loop(kind))
    try:
        yield server
    finally:
        thread.stop(2.0)
