"""`RewarderClient`: `AsyncRewarderClient` for programs without an event loop.

A thread takes in what the server pushes, at the moment it comes, whatever the agent does meanwhile:
a rewarder keeps its own time, and an agent that thinks for a second must neither hold up the
server nor spoil the measured times.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from rlwire.adapters.rewarder.client_asyncio import AsyncRewarderClient, something
from rlwire.adapters.serving import LoopThread
from rlwire.codecs.rewarder import AgentAction, UnknownMessage
from rlwire.errors import ConnectionClosed, LocalProtocolError
from rlwire.sessions.rewarder_client import ClientSession, Event, Step
from rlwire.sessions.rewarder_latency import ClockEstimate, LatencySummary
from rlwire.transports.address import Address
from rlwire.transports.interface import Buffer

__all__ = ["RewarderClient"]

_T = TypeVar("_T")


class _SharedSession(ClientSession):
    """A session that a second thread takes steps of."""

    __slots__ = ("changed",)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.changed = threading.Condition(threading.RLock())

    def receive(self, message: Buffer) -> list[Event]:
        with self.changed:
            events = super().receive(message)
            self.changed.notify_all()
            return events

    def send(self, event: Any) -> list[Buffer]:
        with self.changed:
            return super().send(event)

    def outgoing(self) -> list[list[Buffer]]:
        with self.changed:
            return super().outgoing()

    def tick(self, now: float) -> None:
        with self.changed:
            super().tick(now)

    def take(self) -> Step:
        with self.changed:
            return super().take()


class _Client(AsyncRewarderClient):
    """The asyncio client, as a `LoopThread` runs it."""

    address = Address("rewarder", 0)
    _session: _SharedSession

    def _make_session(self) -> ClientSession:
        return _SharedSession(
            clock=time.monotonic,
            wall=time.time,
            observer=self.observer,
            attach=self._attach,
            settings=self._settings,
            limits=self._limits,
        )

    async def start(self) -> object:
        return await self.connect()

    async def stop(self, grace: float) -> None:
        await self.close()

    def _wake(self) -> None:
        super()._wake()
        with self._session.changed:
            self._session.changed.notify_all()

    def poll(self, timeout: float | None) -> Step:
        """`step` for another thread than the loop's."""
        session = self._session
        until = None if timeout is None else time.monotonic() + timeout
        with session.changed:
            while True:
                step = ClientSession.take(session)
                if something(step):
                    return step
                self._check()
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return step
                session.changed.wait(left)


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
        self._thread: LoopThread | None = None

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
        self._thread = LoopThread(lambda: self._client, None, "the client")
        return self

    def close(self) -> None:
        """Close the connection; a thread that waits gets `ConnectionClosed`."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop(5.0)

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
        return self._client.poll(timeout)

    def act(self, events: Iterable[Sequence[Any]]) -> None:
        """Send an action, as `AsyncRewarderClient.act`; returns before it is on its way."""
        self.send(AgentAction(events))

    def send(self, message: AgentAction | UnknownMessage) -> None:
        """Send a message without an answer, as `AsyncRewarderClient.send`."""
        client = self._client
        client._check()
        if client.observer and isinstance(message, AgentAction):
            raise LocalProtocolError(f"an observer cannot send {message.method}")
        self._loop().call_soon_threadsafe(self._send, message)

    def _send(self, message: AgentAction | UnknownMessage) -> None:
        try:
            self._client.send(message)
        except Exception as error:
            self._client.fail(error)

    def ping(self, timeout: float | None = None) -> float:
        """Return the seconds until the server answers a ping, as `AsyncRewarderClient.ping`."""
        return self._ask(self._client.ping(timeout))

    def unknown(self) -> list[UnknownMessage]:
        """Return messages of methods that are not known, as `AsyncRewarderClient.unknown`."""
        return self._client.unknown()

    @property
    def env_id(self) -> str | None:
        """Which environment there is, as the server last said."""
        return self._client.env_id

    @property
    def env_state(self) -> str | None:
        """What it does, such as "running"."""
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
        with self._client._session.changed:
            return self._client.clock_offset()

    def round_trips(self) -> LatencySummary | None:
        """Return how long pings took; None if there were none."""
        with self._client._session.changed:
            return self._client.round_trips()

    def reset_times(self) -> LatencySummary | None:
        """Return how long resets took; None if there were none."""
        with self._client._session.changed:
            return self._client.reset_times()

    def delays(self) -> LatencySummary | None:
        """Return how long pushes were under way; None if that is unknown."""
        with self._client._session.changed:
            return self._client.delays()

    def statistics(self) -> dict[str, int]:
        """Return counts, as `AsyncRewarderClient.statistics`."""
        return self._client.statistics()

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._thread is None:
            raise ConnectionClosed(f"{self} is not connected: use `with`, or connect()")
        return self._thread.loop

    def _ask(self, question: Coroutine[Any, Any, _T]) -> _T:
        try:
            loop = self._loop()
        except BaseException:
            question.close()
            raise
        return asyncio.run_coroutine_threadsafe(question, loop).result()
