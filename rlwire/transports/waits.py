"""Write a client once, as generators, and run it over blocking or asyncio connections.

::

    def fetch(connection: Any) -> Waits[Reply]:
        yield connection.send(Ask())
        return (yield connection.receive())

Over a blocking connection the call has already waited, and `drive` sends its value back. Over
asyncio the call returns an awaitable, which `drive_async` awaits. `driven` marks the public methods
of a class of generators; `Blocking` and `Asyncio` make two classes of it.
"""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from itertools import count
from math import inf
from time import monotonic
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from rlwire.errors import ConnectionClosed
from rlwire.streams import MessageCounts
from rlwire.transports.sockets import Backoff

if TYPE_CHECKING:
    from rlwire.transports.connection import Connection
    from rlwire.transports.connection_asyncio import AsyncConnection

logger = logging.getLogger(__name__)

SILENCE = 2.0
"""Seconds after which a wait for the other end is logged as a warning, once."""

_T = TypeVar("_T")
_Error = TypeVar("_Error", bound=Exception)
_P = ParamSpec("_P")
_Self = TypeVar("_Self")

Waits: TypeAlias = Generator[Any, Any, _T]
"""A generator that yields values or awaitables, is sent their results, and returns a value."""


_WAITING = (inspect.GEN_CREATED, inspect.GEN_SUSPENDED)


def drive(steps: Waits[_T]) -> _T:
    """Run a generator over blocking calls, and return its value."""
    value: Any = None
    errors: list[BaseException] = []  # at most one, and never while it is raised
    while True:
        try:
            if errors:
                value = steps.throw(errors.pop())
            while True:
                value = steps.send(value)
        except StopIteration as end:
            return cast(_T, end.value)
        except BaseException as error:
            if inspect.getgeneratorstate(steps) not in _WAITING:
                raise  # by the generator itself
            errors.append(error)


async def drive_async(steps: Waits[_T]) -> _T:
    """Run a generator, await each yielded awaitable (None: nothing), and return its value."""
    value: Any = None
    errors: list[BaseException] = []
    while True:
        try:
            waited = steps.throw(errors.pop()) if errors else steps.send(value)
            value = None if waited is None else await waited
        except StopIteration as end:
            return cast(_T, end.value)
        except BaseException as error:
            waited = None  # a future refers to its error, and the error to this frame
            if inspect.getgeneratorstate(steps) not in _WAITING:
                raise  # by the generator itself
            errors.append(error)


def retry(
    attempt: Callable[[float], Waits[_T]],
    backoff: Backoff,
    sleep: Callable[[float], Any],
    *,
    what: object,
    errors: type[_Error],
    passing: Callable[[_Error], bool],
    failed: Callable[[_Error, int, float], Exception] | None = None,
) -> Waits[_T]:
    """Call `attempt` with the retries of `backoff`, and return its result.

    An error that is not `passing` is raised at once. `failed` makes the final error from the last
    one, the number of attempts and the seconds that they took.
    """
    started = silent_since = monotonic()
    until = inf if backoff.deadline is None else started + backoff.deadline
    delays = backoff.delays()
    for number in count(1):
        try:
            return (yield from attempt(until))
        except errors as error:
            delay = next(delays, None) if passing(error) else None
            if delay is None or monotonic() + delay >= until:
                if failed is None:
                    raise
                raise failed(error, number, monotonic() - started) from error
            late = monotonic() - silent_since > SILENCE
            silent_since = inf if late else silent_since
            logger.log(
                logging.WARNING if late else logging.INFO,
                "waiting for %s: attempt %d of %d failed (%s), retrying in %.2f s",
                what, number, backoff.attempts, error, delay,
            )  # fmt: skip
        yield sleep(delay)
    raise AssertionError


def close_and_wait(connection: Connection | AsyncConnection) -> Waits[None]:
    """Close a blocking or asyncio connection, and wait until it is closed."""
    connection.close()
    yield connection.wait_closed()


class driven(Generic[_P, _T]):
    """Makes a generator a method of `Blocking` clients, and a coroutine method of `Asyncio` ones.

    Other generators call it like users do: ``yield self.method()``.
    """

    def __init__(self, steps: Callable[Concatenate[Any, _P], Waits[_T]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, client: Blocking, kind: type[Any]) -> Callable[_P, _T]: ...

    @overload
    def __get__(
        self, client: Asyncio, kind: type[Any]
    ) -> Callable[_P, Coroutine[Any, Any, _T]]: ...

    @overload
    def __get__(self, client: Any, kind: type[Any]) -> Any: ...

    def __get__(self, client: Any, kind: type[Any]) -> Any:
        """Return the method for ``super().method()``; other calls find the class's own method."""
        if client is None:
            return self
        if not isinstance(client, Blocking | Asyncio):
            raise TypeError(
                f"{kind.__name__}.{self.steps.__name__} needs a subclass of Blocking or Asyncio"
            )
        return MethodType(client.make_method(self.steps), client)


class ClientBase:
    """Base of the protocols' clients: connects, closes, and counts connections and messages."""

    _connection: Any = None
    _connections = 0
    _before = (0, 0)
    _current: MessageCounts | None = None

    @property
    def connection(self) -> Connection | AsyncConnection | None:
        """The open connection."""
        return self._connection

    @property
    def closed(self) -> bool:
        """Whether there is no open connection."""
        return self._connection is None or bool(self._connection.closed)

    def enter(self) -> Waits[None]:
        """Enter a ``with`` block: connect."""
        if self._connection is None:
            yield cast(Any, self).connect()

    def leave(self) -> Waits[None]:
        """Leave a ``with`` block: close."""
        yield self.close()

    @driven
    def close(self) -> Waits[None]:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            yield from close_and_wait(connection)

    def _connected(self) -> Any:
        if self._connection is None:
            state = "closed" if self._connections else "not connected"
            raise ConnectionClosed(f"{self} is {state}")
        return self._connection

    def _count(self, connection: _T) -> _T:
        """Count a new connection and its messages; return the connection."""
        self._before, self._current = self._counts(), cast(Any, connection).counts
        self._connections += 1
        return connection

    def _counts(self) -> tuple[int, int]:
        sent, received = self._before
        now = self._current
        return (sent, received) if now is None else (sent + now.sent, received + now.received)

    def statistics(self) -> dict[str, int]:
        """Return counts since the client was made; from any thread.

        ``connections``, and the messages ``sent`` and ``received`` over all of them.
        """
        sent, received = self._counts()
        return {"connections": self._connections, "sent": sent, "received": received}


class _Driver:
    """Makes methods of the generators that `driven` marks in the classes of a subclass."""

    __slots__ = ()

    make_method: Callable[[Callable[..., Waits[Any]]], Callable[..., Any]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in {name: None for base in cls.__mro__ for name in vars(base)}:
            method = inspect.getattr_static(cls, name)
            if isinstance(method, driven):
                setattr(cls, name, _made(method.steps, cls, name))


class Blocking(_Driver):
    """Makes a blocking client; list it before the class with the generators."""

    __slots__ = ()

    _sleep = staticmethod(time.sleep)

    @staticmethod
    def make_method(steps: Callable[..., Waits[_T]]) -> Callable[..., _T]:
        def method(self: Any, /, *arguments: Any, **options: Any) -> _T:
            return drive(steps(self, *arguments, **options))

        return method

    def __enter__(self: _Self) -> _Self:
        drive(cast(Any, self).enter())
        return self

    def __exit__(self, *error: object) -> None:
        drive(cast(Any, self).leave())


class TaskLock:
    """A lock for tasks, in order: ``if lock.locked: await lock.wait()``, then set `locked`.

    A free one needs no coroutine, of which asyncio's lock runs three.
    """

    def __init__(self) -> None:
        self.locked = False
        self._waiting: deque[Any] = deque()

    async def wait(self) -> None:
        """Wait until another task's `release` passes the lock on."""
        import asyncio

        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was passed on
                self.release()
            elif turn in self._waiting:  # else `release` has just skipped it
                self._waiting.remove(turn)
            raise

    def release(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.locked = False


class Asyncio(_Driver):
    """Makes an asyncio client; list it before the class with the generators."""

    __slots__ = ()

    @staticmethod
    def _sleep(seconds: float) -> Awaitable[None]:
        import asyncio

        return asyncio.sleep(seconds)

    @staticmethod
    def make_method(steps: Callable[..., Waits[_T]]) -> Callable[..., Coroutine[Any, Any, _T]]:
        async def method(self: Any, /, *arguments: Any, **options: Any) -> _T:
            return await drive_async(steps(self, *arguments, **options))

        return method

    async def __aenter__(self: _Self) -> _Self:
        await drive_async(cast(Any, self).enter())
        return self

    async def __aexit__(self, *error: object) -> None:
        await drive_async(cast(Any, self).leave())


def _made(steps: Callable[..., Waits[Any]], kind: type[_Driver], name: str) -> Any:
    """Return the method with the generator's name, documentation and signature."""
    method: Any = functools.update_wrapper(kind.make_method(steps), steps)
    method.__module__, method.__qualname__ = kind.__module__, f"{kind.__qualname__}.{name}"
    signature = inspect.signature(steps)
    returned = signature.return_annotation
    if isinstance(returned, str):
        returned = returned.removeprefix("Waits[").removesuffix("]")
        method.__annotations__ = {**steps.__annotations__, "return": returned}
    method.__signature__ = signature.replace(return_annotation=returned)
    return method
