"""`Worker` runs a function in a thread, `LoopThread` an event loop with a server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from time import monotonic
from typing import Any

from rlwire.errors import on_error
from rlwire.transports.address import Address

logger = logging.getLogger(__name__)


class Worker:
    """A daemon thread that calls one function with the worker; its errors are logged."""

    def __init__(self, run: Callable[[Worker], object], name: str) -> None:
        self.name = name
        self._run = run
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> Worker:
        self._thread.start()
        return self

    def sleep(self, seconds: float) -> bool:
        """Wait `seconds`, or until `stop` is called; return whether to continue."""
        return not self._stopping.wait(seconds)

    def stop(self, timeout: float | None = None) -> bool:
        """Ask the function to return, and wait for it; return whether it has returned."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        try:
            self._run(self)
        except Exception:
            logger.exception("%s: the thread failed", self.name)


def run_in_thread(name: str, call: Callable[..., object], *arguments: Any) -> None:
    threading.Thread(target=call, args=arguments, name=name, daemon=True).start()


def run_on_loop(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
    """Return a coroutine's result on another thread's loop; RuntimeError if that is closed."""
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        while not wait([future], 0.1).done:  # a loop that ends forgets what it has not begun
            if loop.is_closed() and not future.done():
                raise RuntimeError("the server has stopped")
    except RuntimeError:
        coroutine.close()
        raise
    return future.result()


class LoopThread:
    """Runs an event loop with a server, such as a `LoopServer`, in its own thread."""

    def __init__(
        self,
        make_server: Callable[[], Any],
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
    ) -> None:
        self.loop = (loop_factory or asyncio.new_event_loop)()
        self._stopping: asyncio.Future[float] = self.loop.create_future()
        self._server: Any = None
        self._draining: asyncio.Task[None] | None = None
        started: Future[Address] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(make_server, started), name="rlwire loop", daemon=True
        )
        with on_error(lambda: self.stop(5.0)):  # a Ctrl-C may come while the server starts
            self._thread.start()
            self.address = started.result()

    def drain(self, seconds: float) -> None:
        done = threading.Event()

        def start_draining() -> None:
            self._draining = self.loop.create_task(self._server.drain(seconds))
            self._draining.add_done_callback(lambda _: done.set())

        until = monotonic() + seconds + 1.0
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(start_draining)
            # A loop that ends forgets what it has not begun.
            while not done.wait(0.1) and self._thread.is_alive() and monotonic() < until:
                pass

    def stop(self, grace: float) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._stopping.set_result, grace)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(grace + 1.0)
            if self._thread.is_alive():
                logger.warning(
                    "%s: abandoned, a handler did not finish within %.1f s",
                    getattr(self, "address", self._thread.name), grace,
                )  # fmt: skip

    def _run(self, make_server: Callable[[], Any], started: Future[Address]) -> None:
        try:
            self.loop.run_until_complete(self._serve(make_server, started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            self.loop.close()

    async def _serve(self, make_server: Callable[[], Any], started: Future[Address]) -> None:
        server = self._server = make_server()
        await server.start()
        started.set_result(server.address)
        await server.stop(await self._stopping)
        if self._draining is not None:
            self._draining.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._draining
