"""`rlwire.connect`, `serve`, `make` and `make_vec` for asyncio."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import rlwire
from rlwire.urls import URL, naming_protocol

if TYPE_CHECKING:
    from rlwire.serving.serving import BackgroundServer

__all__ = ["Connecting", "Environment", "connect", "make", "make_vec", "serve"]


@contextlib.asynccontextmanager
async def serve(target: Any, url: str | URL, **options: Any) -> AsyncIterator[BackgroundServer]:
    """Serve an environment, an agent or a policy while an ``async with`` block runs.

    ::

        async with rlwire.aio.serve("gym:CartPole-v1", "dm-env-rpc://localhost:0") as server:
            print(server.url)

    Arguments, options and errors are those of `rlwire.serve`. Factories run in another thread, and
    so does the server's stop.
    """
    import asyncio

    server = await asyncio.to_thread(rlwire.serve, target, url, **options)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


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
    from rlwire._options import resolve  # imports asyncio and ssl

    begin, where, keywords = resolve(url, "client", options, "async_")

    async def connected() -> Any:
        with naming_protocol(where):
            return await begin(where, **keywords)

    return Connecting(connected)


class Environment:
    """An environment, or a vector of them, whose methods are awaited: what `make` returns.

    Its calls run one after another in a thread of its own. If a task is cancelled inside a step,
    the step still ends there, and the next call waits for it. Other attributes, such as
    `observation_space`, `spec` or `num_envs`, are the environment's.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._thread = ThreadPoolExecutor(1, "rlwire environment")
        self._make = make

    async def open(self) -> Environment:
        """Make the environment."""
        try:
            self.environment = await self._call(self._make)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aenter__(self) -> Environment:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __getattr__(self, name: str) -> Any:
        if name == "environment":
            raise AttributeError("await the environment first")
        return getattr(self.environment, name)

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaitable[Any]:
        import asyncio

        call = functools.partial(method, *args, **kwargs)
        return asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; return the observation and the info."""
        found: tuple[Any, dict[str, Any]]
        found = await self._call(self.environment.reset, seed=seed, options=options)
        return found

    async def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step; return observation, reward, terminated, truncated and info."""
        found: tuple[Any, Any, Any, Any, dict[str, Any]]
        found = await self._call(self.environment.step, action)
        return found

    async def render(self) -> Any:
        """Return the picture, as the environment's `render`."""
        return await self._call(self.environment.render)

    async def close(self) -> None:
        """Close the environment, after the call that is in progress."""
        try:
            await self._call(self.environment.close)
        finally:
            self._thread.shutdown(wait=False)


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
