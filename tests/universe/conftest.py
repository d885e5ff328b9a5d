"""What the tests of Universe share: rewarders, screens that show what a test says, and vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import pytest

from rlwire.universe import Remote, UniverseEnv, _links
from rlwire.universe._loop import ClientLoop
from rlwire.universe.environment import added
from rlwire.universe.rewarder import RewarderServer
from tests.waiting import eventually


class Painted(NamedTuple):
    x: int
    y: int
    width: int
    height: int


class Screen:
    def __init__(self, arrivals: Any, address: Any) -> None:
        self._arrivals = arrivals
        self.address = str(address)
        self.error: BaseException | None = None
        self.width, self.height = 8, 6
        self.updates = 0
        self.client = self
        self.sent: list[Any] = []
        self.closed = False
        self._pixels = np.zeros((6, 8, 3), np.uint8)
        self._dirty: list[Painted] = []

    async def open(self) -> None:
        if self.error is not None:
            raise self.error

    async def shut(self) -> None:
        self.closed = True

    def show(self, pixels: Any) -> None:
        self._pixels[...] = pixels
        self._dirty.append(Painted(0, 0, 8, 6))
        self.updates += 1
        self._arrivals.notify()

    def read(self) -> Any:
        changes, self._dirty = self._dirty, []
        return self._pixels.copy(), changes

    def read_changes(self, out: Any) -> list[Painted]:
        out[...], changes = self.read()
        return changes

    def post(self, messages: list[Any]) -> None:
        self.sent += messages


class Screens:
    def __init__(self) -> None:
        self.all: list[Screen] = []
        self.errors: dict[str, list[BaseException]] = {}

    def add(self, _: Any, arrivals: Any, address: Any, **__: Any) -> Screen:
        screen = Screen(arrivals, address)
        self.all.append(screen)
        errors = self.errors.get(screen.address)
        if errors:
            screen.error = errors.pop(0)
        return screen

    def at(self, address: str) -> Screen:
        return next(each for each in reversed(self.all) if each.address == address)


@pytest.fixture
def wait_for() -> Callable[..., None]:
    return eventually


class Driver:
    """A vector, and steps until something comes."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.last: Any = None

    def step(self, *actions: Any) -> Any:
        given = list(actions) or [[] for _ in range(self.env.n)]
        self.last = self.env.step(given)
        return self.last

    def until(self, condition: Callable[..., Any], *actions: Any) -> Any:
        """Step until ``condition(observations, rewards, dones, infos)``; return that step."""
        found: list[Any] = []

        def look() -> bool:
            observations, rewards, dones, info = self.step(*actions)
            found[:] = [observations, rewards, dones, info["n"]]
            return bool(condition(*found))

        eventually(look)
        return found

    def gather(self, condition: Callable[..., Any]) -> Any:
        """Step until the condition holds for all that came together; return that."""
        total = self.step()

        def look() -> bool:
            nonlocal total
            if condition(*total[:3], total[3]["n"]):
                return True
            total = added(total, self.step())
            return False

        eventually(look)
        return [*total[:3], total[3]["n"]]

    def until_seen(self) -> Any:
        return self.until(lambda seen, *_: all(each is not None for each in seen))


@pytest.fixture
def screens(monkeypatch: pytest.MonkeyPatch) -> Screens:
    screens = Screens()
    monkeypatch.setattr(_links, "RemoteScreen", screens.add)
    return screens


@pytest.fixture
def rewarder() -> Iterator[Callable[..., RewarderServer]]:
    with ExitStack() as stack:

        def serve(env_id: str = "test.Game-v0", **options: Any) -> RewarderServer:
            box: list[RewarderServer] = []
            options.setdefault("on_reset", lambda request: box[0].begin_episode(request))
            options.setdefault("auth", "openai")
            server = RewarderServer(env_id, options.pop("address", "127.0.0.1:0"), **options)
            box.append(server)
            return stack.enter_context(server)

        yield serve


@pytest.fixture
def vector(screens: Screens) -> Iterator[Callable[..., Driver]]:
    with ExitStack() as stack:

        def make(*servers: Any, pixels: Any = True, **options: Any) -> Driver:
            remotes = [
                each
                if isinstance(each, (str, Remote))
                else Remote(f"pixels:{each.address.port}" if pixels else None, each.address)
                for each in servers
            ]
            if len(remotes) == 1 and isinstance(remotes[0], str):
                remotes = remotes[0]
            loop = ClientLoop()
            stack.callback(loop.close)
            return Driver(stack.enter_context(UniverseEnv(remotes, loop=loop, **options)))

        yield make


@pytest.fixture
def screen_of(screens: Screens) -> Callable[[RewarderServer], Screen]:
    return lambda server: screens.at(f"pixels:{server.address.port}")
