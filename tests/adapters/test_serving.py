"""What all servers share: starting, stopping, a loop in a thread."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from rlwire.adapters.serving import BackgroundServer, LoopThread
from rlwire.transports.address import Address


class Async:
    """A server on a loop that takes `nap` seconds to end."""

    def __init__(self, error=None, nap=0.0):
        self.address = Address("127.0.0.1", 0)
        self.error = error
        self.nap = nap

    async def start(self):
        if self.error is not None:
            raise self.error
        self.address = Address("127.0.0.1", 7)
        self.thread = threading.current_thread()

    async def stop(self, grace):
        self.grace = grace
        await asyncio.sleep(self.nap)


class Server(BackgroundServer):
    protocol = "telepathy"
    tidied = 0

    def __init__(self, error=None):
        super().__init__(Address("127.0.0.1", 0))
        self.error = error

    def _run(self):
        self.on_loop = Async(self.error)
        return LoopThread(lambda: self.on_loop, None, "a mind")

    def _details(self):
        return "far and wide"

    def _after_stop(self):
        self.tidied += 1


def test_starting_and_stopping(caplog):
    caplog.set_level("INFO")
    server = Server()
    server.stop()  # of no effect
    for count in (1, 2):
        with server:
            assert server.address.port == 7
            assert not server.wait(0)
            assert server.on_loop.thread is not threading.current_thread()
            with server, pytest.raises(RuntimeError, match="runs already"):
                server.start()
            assert server.wait(0)
        assert server.tidied == count
        assert server.address.port == 0
        assert server.on_loop.grace == 5.0
    assert "serving telepathy on 127.0.0.1:7, far and wide" in caplog.text
    assert "stopped serving telepathy on 127.0.0.1:7" in caplog.text


def test_what_fails_at_the_start():
    server = Server(OSError("no line"))
    for _ in range(2):
        with pytest.raises(OSError, match="no line"):
            server.start()
    assert server.tidied == 0


@pytest.mark.parametrize("how", ["signal", "stop"])
def test_serving_until_told_otherwise(how, caplog):
    caplog.set_level("INFO")
    server = Server()

    def end():
        while server._running is None:
            pass
        if how == "signal":
            signal.raise_signal(signal.SIGTERM)
        else:
            server.stop()

    thread = threading.Thread(target=end)
    thread.start()
    server.serve_forever()
    thread.join()
    assert server.tidied == 1
    assert (
        "stopping: SIGTERM" if how == "signal" else "stopping: stop() was called"
    ) in caplog.text


def test_what_does_not_end_in_time(caplog):
    thread = LoopThread(lambda: Async(nap=1.2), None, "a mind")
    thread.stop(0.05)
    assert "127.0.0.1:7: a mind did not end within 0.1 s and is left behind" in caplog.text
    thread.stop(1.0)  # the loop is on its way out, or gone


def test_a_loop_of_ones_own():
    made = []

    def factory():
        made.append(asyncio.new_event_loop())
        return made[0]

    thread = LoopThread(Async, factory, "a mind")
    assert thread.loop is made[0]
    thread.stop(1.0)
    assert made[0].is_closed()
