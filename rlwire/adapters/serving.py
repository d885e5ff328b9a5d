"""What servers of all protocols do to start, to run in the background and to stop.

Not here: what they serve; waiting for signals (`rlwire.adapters.stopping`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import ClassVar, Protocol, TypeVar

from rlwire.adapters.stopping import Stopping, stop_signals
from rlwire.transports.address import Address
from rlwire.transports.sockets import warn_if_exposed

__all__ = ["AsyncServing", "BackgroundServer", "LoopThread", "Running"]

logger = logging.getLogger(__name__)

_Self = TypeVar("_Self", bound="BackgroundServer")


class Running(Protocol):
    """A server at work, in whatever threads or processes."""

    @property
    def address(self) -> Address:
        """Where it listens, with the port that the system chose."""

    def stop(self, grace: float) -> None:
        """End it; what is at work may end within the grace time."""


class BackgroundServer(ABC):
    """Base of servers: ``with``, `start`, `stop`, `wait` and `serve_forever`.

    One that has neither TLS nor a secret, so has not set `_guarded`, warns if others than this
    machine can reach it.
    """

    protocol: ClassVar[str]
    guards: ClassVar[str] = "TLS"
    """What can be given to the server so that not everybody may speak to it, for a log."""

    def __init__(self, where: Address) -> None:
        self._where = where
        self._running: Running | None = None
        self._stopping: Stopping | None = None
        self._stopped = threading.Event()
        self._guarded = False

    def __enter__(self: _Self) -> _Self:
        return self if self._running is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def address(self) -> Address:
        """Where the server listens; while it runs, with the port that the system chose."""
        return self._where if self._running is None else self._running.address

    def check(self) -> None:
        """Make what each client would be given, so that what is wrong with it raises here and now.

        `rlwire serve` calls it before it listens. What was made is for the first client, or closed.

        Raises:
            Exception: whatever making it raises.
        """
        return

    def start(self: _Self) -> _Self:
        """Listen, and serve in the background.

        Raises:
            OSError: the address cannot be listened on, or a file cannot be read.
            RuntimeError: the server runs already.
        """
        if self._running is not None:
            raise RuntimeError("the server runs already")
        self._stopped.clear()
        self._running = self._run()
        logger.info("serving %s on %s, %s", self.protocol, self.address, self._details())
        if not self._guarded:
            warn_if_exposed(self.address, self.guards)
        return self

    def stop(self, grace: float = 5.0) -> None:
        """Stop listening, and end whatever is going on; `serve_forever` returns.

        What is at work may end within the grace time. The server can be started again.
        """
        running, self._running = self._running, None
        if running is not None:
            try:
                running.stop(grace)
            finally:
                self._after_stop()
                self._stopped.set()
            logger.info("stopped serving %s on %s", self.protocol, running.address)
        stopping = self._stopping
        if stopping is not None:
            stopping.ask()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has been stopped; return whether it has."""
        return self._stopped.wait(timeout)

    def serve_forever(self) -> None:
        """Start if need be, and serve until SIGINT, SIGTERM or `stop`.

        In another than the main thread, where Python handles no signals, until `stop`.

        Raises:
            OSError: the address cannot be listened on.
        """
        try:
            with stop_signals() as self._stopping:
                if self._running is None:
                    self.start()
                reason = self._stopping.wait()
                logger.info("stopping: %s", reason or "stop() was called")
        finally:
            # The signals' former handlers are back: a second Ctrl-C waits for nothing.
            self._stopping = None
            self.stop()

    @abstractmethod
    def _run(self) -> Running:
        """Listen, and return what serves."""

    @abstractmethod
    def _details(self) -> str:
        """Return what the log says about a server that starts."""

    @abstractmethod
    def _after_stop(self) -> None:
        """Tidy up when nothing is served any more."""


class AsyncServing(Protocol):
    """What a `LoopThread` runs."""

    @property
    def address(self) -> Address:
        """Where it listens."""

    async def start(self) -> object:
        """Begin, on the running loop."""

    async def stop(self, grace: float) -> None:
        """End."""


class LoopThread:
    """Runs an event loop, and a server on it, in a thread of its own.

    Args:
        make_server: called in that thread.
        loop_factory: makes the loop, such as ``uvloop.new_event_loop``.
        what: what did not end within the grace time, as the log says it: ``"a world"``.

    Raises:
        OSError, ValueError: whatever making or starting the server raises.
    """

    def __init__(
        self,
        make_server: Callable[[], AsyncServing],
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
        what: str,
    ) -> None:
        self._what = what
        self.loop = (loop_factory or asyncio.new_event_loop)()
        self._stopping: asyncio.Future[float] = self.loop.create_future()
        started: Future[Address] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(make_server, started), name="rlwire loop", daemon=True
        )
        self._thread.start()
        try:
            self.address = started.result()
        except BaseException:
            self._thread.join()
            raise

    def stop(self, grace: float) -> None:
        """Stop the server and end the thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: it failed before
            self.loop.call_soon_threadsafe(self._stopping.set_result, grace)
        if self._thread is not threading.current_thread():
            self._thread.join(grace + 1.0)
            if self._thread.is_alive():
                logger.warning(
                    "%s: %s did not end within %.1f s and is left behind",
                    self.address,
                    self._what,
                    grace,
                )

    def _run(self, make_server: Callable[[], AsyncServing], started: Future[Address]) -> None:
        try:
            self.loop.run_until_complete(self._serve(make_server, started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            self.loop.close()

    async def _serve(
        self, make_server: Callable[[], AsyncServing], started: Future[Address]
    ) -> None:
        server = make_server()
        await server.start()
        started.set_result(server.address)
        await server.stop(await self._stopping)
