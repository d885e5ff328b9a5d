"""`rlwire.connect`, `serve`, `make` and `make_vec` for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeAlias

import rlwire
from rlwire._options import resolve
from rlwire.errors import WouldWait, on_error
from rlwire.transports.timers_asyncio import TimeoutTimer
from rlwire.transports.waiter_asyncio import Waiter
from rlwire.urls import URL, naming_protocol

if TYPE_CHECKING:
    from rlwire.serving.serving import BackgroundServer

__all__ = ["Connecting", "Environment", "connect", "make", "make_vec", "serve"]

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT = 5.0  # seconds that `close` waits for a call whose task was cancelled
_PATIENCE = 0.1  # seconds, up to twice, that a step waits in the loop, and then in the thread

_Calls: TypeAlias = "SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]"


def _run(calls: _Calls) -> None:
    """Run the calls of an environment until None follows."""
    while (each := calls.get()) is not None:
        future, call = each
        if future.running() or future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:  # also SystemExit
                future.set_exception(error)
        del each, future, call


@contextlib.asynccontextmanager
async def serve(target: Any, url: str | URL, **options: Any) -> AsyncIterator[BackgroundServer]:
    """Serve an environment, an agent or a policy while an ``async with`` block runs.

    ::

        async with rlwire.aio.serve("gym:CartPole-v1", "dm-env-rpc://localhost:0") as server:
            print(server.url)

    Arguments, options and errors are those of `rlwire.serve`. Factories run in another thread, and
    so does the server's stop. If the task is cancelled while the server starts, it is stopped then.
    """
    started: Future[BackgroundServer] = Future()

    def start() -> None:
        server = rlwire.serve(target, url, **options)
        with on_error(server.stop):  # InvalidStateError: the task was cancelled meanwhile
            started.set_result(server)

    try:
        await asyncio.to_thread(start)
        yield started.result()
    finally:
        if not started.cancel():
            # Not a task, which the end of the program would cancel while it waits for a thread.
            stop = asyncio.get_running_loop().run_in_executor(None, started.result().stop)
            await asyncio.shield(stop)


class Connecting:
    """What `connect` returns: use it in ``async with``, or ``await`` it and close the client."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._begin = begin
        self._client: Any = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._begin().__await__()

    async def __aenter__(self) -> Any:
        self._client = await self
        return await self._client.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self._client.__aexit__(*error)


def connect(url: str | URL, **options: Any) -> Connecting:
    """Connect to a server; return an awaitable and context manager of the asyncio client.

    ::

        async with rlwire.aio.connect("dm-env-rpc://localhost:9911/world") as client:
            await client.step()
        client = await rlwire.aio.connect("rlx://localhost:7001")

    Arguments, options and errors are those of `rlwire.connect`. The clients are the Async variants.
    An invalid URL or option raises before the first ``await``.
    """
    make_client, where, keywords = resolve(url, "client", options, "async_")

    async def connected() -> Any:
        with naming_protocol(where):
            return await make_client(where, **keywords).__aenter__()

    return Connecting(connected)


class Environment:
    """An environment, or a vector of them, whose methods are awaited: what `make` returns.

    Its calls run one after another in a thread of its own, and so do a vector's `call`, `get_attr`
    and `set_attr`, which are awaited too. A quick step needs no thread if the loop can watch the
    connection: of PERLERT, of dm_env_rpc except in shared memory, and of rewards without pixels and
    TLS. If a task is cancelled inside a step, the step still ends, and the next call waits for it;
    `close` waits up to 5 s. Other attributes, such as `observation_space`, `spec` or `num_envs`,
    are the environment's.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._calls: _Calls = SimpleQueue()
        self._last: Future[Any]  # of the calls
        self._cancelled = False  # the last call
        self._closed = False
        self._watching = False  # whether the loop takes the steps
        self._stepping = False  # whether one is in progress there
        self._steps = self._checked = 0  # how many began there, now and at the last check

    def __del__(self) -> None:
        self._calls.put(None)

    async def open(self) -> Environment:
        """Make the environment."""
        # A daemon: a call that was cancelled does not keep the program from ending.
        Thread(target=_run, args=(self._calls,), name="rlwire environment", daemon=True).start()
        made = self._put(self._make)
        with on_error(lambda: self._put(lambda: made.result().close())):  # cancelled
            self.environment = await self._result(made)
        self._endpoint: Any = getattr(self.environment, "endpoint", None)
        return self

    async def __aenter__(self) -> Environment:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __getattr__(self, name: str) -> Any:
        if name == "environment":
            raise AttributeError("await the environment first")
        found = getattr(self.environment, name)
        if name in ("call", "get_attr", "set_attr"):
            return functools.partial(self._call, found)
        return found

    async def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._closed:
            from gymnasium.error import ClosedEnvironmentError

            raise ClosedEnvironmentError("the environment has been closed; make it again")
        self._unwatch()
        return await self._result(self._put(functools.partial(method, *args, **kwargs)))

    async def _result(self, future: Future[Any]) -> Any:
        self._cancelled = False
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._cancelled = True
            raise

    def _put(self, call: Callable[[], Any], running: bool = False) -> Future[Any]:
        self._last = future = Future[Any]()
        if running:  # it cannot be cancelled
            future.set_running_or_notify_cancel()
        self._calls.put((future, call))
        return future

    def _watch(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Take steps in the loop, if the thread is idle; return whether that is possible."""
        self._unwatch()
        if self._closed or self._endpoint is None or not self._last.done():
            return False
        if self._last.cancelled():  # in the queue, so an earlier call may be in progress
            return False
        self._file = self._endpoint.watch(True)
        if self._file != -1:
            self._watching = True
            self._loop, self._waiter, self._timer = loop, Waiter(loop), TimeoutTimer.of(loop)
            loop.add_reader(self._file, self._on_readable)
            self._timer.check(self, _PATIENCE)
        return self._watching

    def _unwatch(self) -> None:
        """Take steps in the thread, which also ends the one in progress."""
        if not self._watching:
            return
        self._watching = False
        if not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed, and the number is another transport's
                self._loop.remove_reader(self._file)
        self._endpoint.watch(False)
        if self._stepping:
            self._stepping = False
            rest = self._put(self._endpoint.finish, running=True)
            if self._waiter.waiting:
                self._waiter.resume(rest)

    def _on_readable(self) -> None:
        """Try to end the step; without one, leave the bytes to the next call."""
        if not self._stepping:
            self._unwatch()
            return
        try:
            found = self._endpoint.finish()
        except WouldWait:
            return
        except BaseException as error:
            self._stepping = False
            self._unwatch()
            self._waiter.set_exception(error)
            return
        self._stepping = False
        if found[2] or found[3]:  # the connection may be lost, and its file another one's
            self._unwatch()
        self._waiter.resume(found)

    def check_timeouts(self, now: float) -> None:
        """Take a slow step to the thread, where the endpoint's timeouts apply."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # a former one, in another thread
            TimeoutTimer.of(loop).discard(self)
            return
        if self._steps == self._checked:
            self._timer.discard(self)
            self._unwatch()
        self._checked = self._steps

    async def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; return the observation and the info."""
        return await self._call(self.environment.reset, seed=seed, options=options)

    async def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step; return observation, reward, terminated, truncated and info."""
        loop = asyncio.get_running_loop()
        if self._stepping or not ((self._watching and self._loop is loop) or self._watch(loop)):
            return await self._call(self.environment.step, action)
        self._steps += 1
        waiter = self._waiter.start()
        try:
            self._endpoint.begin_step(action)
            self._stepping = True
        except WouldWait:
            self._stepping = True
            self._unwatch()
        except BaseException:  # it may have been sent
            self._unwatch()
            raise
        try:
            await waiter
        except BaseException:
            self._cancelled = True
            self._unwatch()
            raise
        found = waiter.pop()
        return found if type(found) is tuple else await self._result(found)

    async def render(self) -> Any:
        """Return the picture, as the environment's `render`."""
        return await self._call(self.environment.render)

    async def close(self) -> None:
        """Close the environment, after the call that is in progress.

        If that call was cancelled and lasts for another 5 s, such as an attempt to reconnect, close
        returns, and the thread closes the environment when the call has ended.
        """
        if self._closed:
            return
        self._closed = True
        self._unwatch()
        reached = asyncio.wrap_future(self._put(bool))
        closed = asyncio.wrap_future(self._put(self.environment.close))
        self._calls.put(None)
        await asyncio.wait([reached], timeout=_CLOSE_TIMEOUT if self._cancelled else None)
        if reached.done():
            await asyncio.shield(closed)
        else:
            logger.warning("a cancelled call is still in progress; the environment closes after it")


def make(url: str | URL, **arguments: Any) -> Connecting:
    """Connect to an environment; return an awaitable and context manager of an `Environment`.

    ::

        async with rlwire.aio.make("dm-env-rpc://localhost:9911") as env:
            observation, info = await env.reset(seed=1)
            observation, reward, terminated, truncated, info = await env.step(1)

    Arguments and errors are those of `rlwire.make`.
    """
    return Connecting(Environment(functools.partial(rlwire.make, url, **arguments)).open)


def make_vec(environment: Any, num_envs: int | None = None, **arguments: Any) -> Connecting:
    """Make a vector environment; return an awaitable and context manager of an `Environment`.

    Arguments and errors are those of `rlwire.make_vec`. Environments that each have their own pace
    are better made one by one, by `make`.
    """
    vector = functools.partial(rlwire.make_vec, environment, num_envs, **arguments)
    return Connecting(Environment(vector).open)
