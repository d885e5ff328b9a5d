"""`RewarderClient`: `AsyncRewarderClient` for programs without an event loop.

A thread takes in what the server pushes, at the moment it comes, whatever the agent does meanwhile:
a rewarder keeps its own time, and an agent that thinks for a second must neither hold up the
server nor spoil the measured times. The agent's thread sends by itself, and takes what has come,
while that thread waits (`rlwire.adapters.rewarder.shared_loop`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from rlwire.adapters.rewarder.client_asyncio import AsyncRewarderClient
from rlwire.adapters.rewarder.shared_loop import SharedLock, SharedLoop
from rlwire.adapters.serving import LoopThread
from rlwire.codecs.rewarder import AgentAction, UnknownMessage
from rlwire.errors import ConnectionClosed, LocalProtocolError
from rlwire.sessions.rewarder_client import Step
from rlwire.sessions.rewarder_steps import ClockEstimate, LatencySummary
from rlwire.transports.address import Address
from rlwire.transports.forking import not_ours, of_this_process

__all__ = ["RewarderClient"]

_T = TypeVar("_T")


class _Client(AsyncRewarderClient):
    """The asyncio client, as a `LoopThread` runs it, with steps for another thread.

    The methods for another thread are called with the loop's lock.
    """

    address = Address("rewarder", 0)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waiting = False
        self._bell = threading.Lock()  # released for the thread that waits
        self._bell.acquire()

    async def start(self) -> object:
        return await self.connect()

    async def stop(self, grace: float) -> None:
        await self.close()

    def _wake(self) -> None:
        if self._waiting:
            self._waiting = False
            self._bell.release()

    def __repr__(self) -> str:
        return f"<RewarderClient of {self.url}>"

    def wait_for_step(self, timeout: float | None, lock: SharedLock) -> Step:
        """As `step`."""
        session = self._session
        if not session.news:
            until = None if timeout is None else time.monotonic() + timeout
            self._check()
            while until is None or time.monotonic() < until:
                self._wait_for_bell(until, lock)
                if session.news:
                    break
                self._check()
        return session.take()

    def _wait_for_bell(self, until: float | None, lock: SharedLock) -> None:
        if self._waiting:
            raise LocalProtocolError("another thread is waiting for a step; one may at a time")
        seconds = -1.0
        if until is not None:
            seconds = min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
        rung = False
        self._waiting = True
        lock.release()
        try:
            rung = self._bell.acquire(timeout=seconds)
        finally:
            lock.acquire()
            if not rung and not self._waiting:
                self._bell.acquire()  # it rang after all
            self._waiting = False


class _ParentsLock(SharedLock):
    """In a child process: nobody gets it."""

    def __init__(self, peer: str) -> None:
        super().__init__()
        self._peer = peer

    def __enter__(self) -> None:
        raise not_ours(self._peer)


class RewarderClient:
    """An agent's, or an observer's, connection to a rewarder.

    ::

        with RewarderClient("127.0.0.1:15900", "secret") as client:
            client.reset()
            while not (step := client.step()).done:
                client.act([("Action", choose(step.observation))])

    The arguments and errors are those of `AsyncRewarderClient`, and so are the methods.
    """

    def __init__(self, where: str, password: str = "openai", **options: Any) -> None:
        self._client = _Client(where, password, **options)
        self._lock = SharedLock()  # of the client, and of its loop
        self._loop: SharedLoop | None = None
        self._thread: LoopThread | None = None
        of_this_process(self)

    def __enter__(self) -> RewarderClient:
        return self if self._thread is not None else self.connect()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RewarderClient of {self._client.url}>"

    def connect(self) -> RewarderClient:
        """Connect, as `AsyncRewarderClient.connect`."""
        if self._thread is not None:
            raise RuntimeError(f"{self} is connected already")
        self._loop = loop = SharedLoop(self._lock)
        self._thread = LoopThread(lambda: self._client, lambda: loop, "the client")
        return self

    def close(self) -> None:
        """Close the connection; a thread that waits gets `ConnectionClosed`."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop(5.0)

    def disown(self) -> None:
        """See `rlwire.transports.forking.Forked`: the loop's thread is the parent's only."""
        if self._thread is not None:
            self._thread = self._loop = None
            self._lock = _ParentsLock(self._client.url)

    def reset(
        self,
        env_id: str | None = None,
        seed: int | None = None,
        *,
        fps: float | None = None,
        timeout: float | None = None,
    ) -> str:
        """Ask for a new episode, and wait for it, as `AsyncRewarderClient.reset`."""
        return self._ask(self._client.reset(env_id, seed, fps=fps, timeout=timeout))

    def step(self, timeout: float | None = None) -> Step:
        """Return what has come since the last step, as `AsyncRewarderClient.step`."""
        lock = self._lock
        with lock:
            return self._client.wait_for_step(timeout, lock)

    def peek(self) -> Step:
        """Return what `step` would give now, as `AsyncRewarderClient.peek`."""
        with self._lock:
            return self._client.peek()

    def act(self, events: Iterable[Sequence[Any]]) -> None:
        """Send an action, as `AsyncRewarderClient.act`."""
        self.send(AgentAction(events))

    def send(self, message: AgentAction | UnknownMessage) -> None:
        """Send a message without an answer, as `AsyncRewarderClient.send`."""
        loop = self._loop
        with self._lock:
            self._client.send(message)
            if loop is not None:
                loop.changed()

    def ping(self, timeout: float | None = None) -> float:
        """Return the seconds until the server answers a ping, as `AsyncRewarderClient.ping`."""
        return self._ask(self._client.ping(timeout))

    def unknown(self) -> list[UnknownMessage]:
        """Return messages of methods that are not known, as `AsyncRewarderClient.unknown`."""
        with self._lock:
            return self._client.unknown()

    @property
    def env_id(self) -> str | None:
        """Which environment there is, as the server last said."""
        return self._client.env_id

    @property
    def env_state(self) -> str | None:
        """What it does, such as "running", as the server last said."""
        return self._client.env_state

    @property
    def fps(self) -> float | None:
        """Its frames a second."""
        return self._client.fps

    @property
    def episode_id(self) -> str | None:
        """The episode that the next step is of; None while none is open."""
        return self._client.episode_id

    def clock_offset(self) -> ClockEstimate | None:
        """Return how the server's clock differs from ours; None before the first pong."""
        with self._lock:
            return self._client.clock_offset()

    def round_trips(self) -> LatencySummary | None:
        """Return how long pings took; None if there were none."""
        with self._lock:
            return self._client.round_trips()

    def reset_times(self) -> LatencySummary | None:
        """Return how long resets took; None if there were none."""
        with self._lock:
            return self._client.reset_times()

    def delays(self) -> LatencySummary | None:
        """Return how long pushes were under way; None if that is unknown."""
        with self._lock:
            return self._client.delays()

    def statistics(self) -> dict[str, int]:
        """Return counts, as `AsyncRewarderClient.statistics`."""
        with self._lock:
            return self._client.statistics()

    def _ask(self, question: Coroutine[Any, Any, _T]) -> _T:
        thread = self._thread
        if thread is None:
            question.close()
            with self._lock:
                pass
            raise ConnectionClosed(f"{self} is not connected: call connect(), or use `with`")
        return asyncio.run_coroutine_threadsafe(question, thread.loop).result()
