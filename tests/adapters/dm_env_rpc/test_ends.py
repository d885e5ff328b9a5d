"""Calls that end amid something: Ctrl-C, connections that are gone, peers that do not read.

What is asked each time: is the socket free, and is nothing kept of the connection? A peer that
sees the end of the stream is the proof for the first, weak references are for the second.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rlwire.adapters.dm_env_rpc import Client, DmEnvRpcServer
from rlwire.adapters.grpc_answers import Answers
from rlwire.codecs import http2 as frames
from rlwire.codecs.dm_env_rpc import (
    ActionObservationSpecs,
    EnvironmentStateType,
    StepResult,
    make_spec,
)
from rlwire.errors import DeadlineExceeded
from rlwire.sessions import dm_env_rpc, grpc
from rlwire.sessions.grpc.server import Server
from rlwire.transports.sockets import Timeouts
from tests.waiting import eventually

PATIENCE = 30.0
SPECS = ActionObservationSpecs(
    {1: make_spec("act", (-1,), np.float32)}, {1: make_spec("seen", (-1,), np.float32)}
)
HOLDERS = (Answers, Server, grpc.Client, grpc.ClientCall, dm_env_rpc.Client, dm_env_rpc.Server)


class Interrupter:
    """Ctrl-C for the main thread, which hears of it once.

    A signal that comes just before a call of the system does not end that call, with Python's own
    sockets neither: so it is given again until it was heard.
    """

    def __init__(self) -> None:
        self.heard = threading.Event()

    def _hear(self, *_: Any) -> None:
        if not self.heard.is_set():
            self.heard.set()
            raise KeyboardInterrupt

    def __call__(self) -> None:
        until = time.monotonic() + PATIENCE
        while not self.heard.is_set():
            assert time.monotonic() < until, "the main thread was not interrupted"
            os.kill(os.getpid(), signal.SIGINT)
            self.heard.wait(0.05)


@pytest.fixture
def ctrl_c() -> Iterator[Interrupter]:
    """Called in another thread, it interrupts the main one."""
    if os.name != "posix":
        pytest.skip("signals of POSIX")
    interrupter = Interrupter()
    before = signal.signal(signal.SIGINT, interrupter._hear)
    yield interrupter
    signal.signal(signal.SIGINT, before)


class World:
    """One agent's world, which does `at` at one of its steps."""

    specs = SPECS

    def __init__(self, where: str = "", at: Callable[[], object] = lambda: None) -> None:
        self._where, self._at = where, at
        self._do("create")

    def _do(self, what: str) -> None:
        if what == self._where:
            self._at()

    def join(self, settings: Any) -> World:
        self._do("join")
        return self

    def reset(self, settings: Any) -> None:
        self._do("reset")

    def begin(self) -> StepResult:
        self._do("begin")
        return StepResult(EnvironmentStateType.RUNNING, {"seen": np.zeros(1, np.float32)})

    def step(self, actions: Any) -> StepResult:
        self._do("step")
        return StepResult(EnvironmentStateType.RUNNING, {"seen": actions["act"]})

    def close(self) -> None:
        pass


def play(client: Client) -> None:
    """Every request once."""
    client.connect()
    world = client.create_world()
    client.join_world(world)
    client.step()
    client.step({"act": np.zeros(300_000, np.float32)})
    client.reset()


@pytest.mark.parametrize("where", ["create", "join", "begin", "step", "reset"])
def test_ctrl_c_while_an_answer_is_waited_for(where: str, ctrl_c: Interrupter) -> None:
    over = threading.Event()

    def at() -> None:
        ctrl_c()
        assert over.wait(PATIENCE)  # no answer comes before

    with DmEnvRpcServer(lambda settings: World(where, at), "127.0.0.1:0") as server:
        client = Client(server.address)
        with pytest.raises(KeyboardInterrupt):
            play(client)
        connection = client._connection
        client.cancel()
        assert connection.fileno() == -1
        left = [weakref.ref(one) for one in (client, connection, connection.session)]
        over.set()
        del client, connection

        def nothing_is_left() -> bool:
            gc.collect()
            return not any(one() is not None for one in left)

        eventually(nothing_is_left)


@contextlib.contextmanager
def deaf_server(at: Callable[[], object] = lambda: None) -> Iterator[str]:
    """A server that says that it takes all, and does not read.

    Args:
        at: called when more has come than what a client begins with.
    """
    gone = threading.Event()

    def greet() -> None:
        sock, _ = listener.accept()
        with sock:
            most = 2**31 - 1
            sock.sendall(
                frames.settings({frames.INITIAL_WINDOW_SIZE: most})
                + frames.window_update(0, most - 65535)
            )
            sock.recv(2000, socket.MSG_PEEK | socket.MSG_WAITALL)
            at()
            assert gone.wait(PATIENCE)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        thread = threading.Thread(target=greet)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            gone.set()
            thread.join()


LARGE = {"blob": np.zeros(16 * 1024 * 1024, np.uint8)}


def test_a_server_that_does_not_read_is_given_up() -> None:
    with deaf_server() as address:
        client = Client(address, timeouts=Timeouts(write=0.2))
        client.connect()
        connection = client._connection
        with pytest.raises(DeadlineExceeded, match=r"write=0\.2"):
            client.create_world(LARGE)
        assert client.closed
        assert connection.fileno() == -1


def test_ctrl_c_while_a_server_says_nothing(ctrl_c: Interrupter) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def interrupt() -> None:
            select.select([listener], [], [], PATIENCE)
            ctrl_c()

        client = Client(f"127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            client.connect()
        thread.join()
        assert client.closed
        del client
        gc.collect()
        sock, _ = listener.accept()
        with sock:
            sock.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionResetError):
                while sock.recv(65536):
                    pass  # until the end of the stream: the client's socket is free


@pytest.mark.parametrize("workers", ["threads", "asyncio"])
def test_nothing_is_kept_of_connections_that_are_gone(workers: Any) -> None:
    def held() -> list[Any]:
        gc.collect()
        return [one for one in gc.get_objects() if issubclass(type(one), HOLDERS)]

    before = len(held())
    with DmEnvRpcServer(lambda settings: World(), "127.0.0.1:0", workers=workers) as server:
        for end in ("close", "cancel", "close"):
            clients = [Client(server.address) for _ in range(5)]
            for client in clients:
                play(client)
            assert len(held()) > before
            for client in clients:
                getattr(client, end)()
            clients.clear()
            del client
            eventually(lambda: len(held()) == before)
