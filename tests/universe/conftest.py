"""What the tests of Universe share: rewarders, screens that show what a test says, and vectors."""

from contextlib import ExitStack
from typing import NamedTuple

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
    def __init__(self, arrivals, address):
        self._arrivals = arrivals
        self.address = str(address)
        self.error = None
        self.width, self.height = 8, 6
        self.updates = 0
        self.client = self
        self.sent = []
        self.closed = False
        self._pixels = np.zeros((6, 8, 3), np.uint8)
        self._dirty = []

    async def open(self):
        if self.error is not None:
            raise self.error

    async def shut(self):
        self.closed = True

    def show(self, pixels):
        self._pixels[...] = pixels
        self._dirty.append(Painted(0, 0, 8, 6))
        self.updates += 1
        self._arrivals.notify()

    def read(self, out=None):
        changes, self._dirty = self._dirty, []
        if out is None:
            return self._pixels.copy(), changes
        out[...] = self._pixels
        return out, changes

    def post(self, messages):
        self.sent += messages


class Screens:
    def __init__(self):
        self.all = []
        self.errors = {}

    def add(self, _, arrivals, address, **__):
        screen = Screen(arrivals, address)
        self.all.append(screen)
        errors = self.errors.get(screen.address)
        if errors:
            screen.error = errors.pop(0)
        return screen

    def at(self, address):
        return next(each for each in reversed(self.all) if each.address == address)


@pytest.fixture
def wait_for():
    return eventually


class Driver:
    """A vector, and steps until something comes."""

    def __init__(self, env):
        self.env = env
        self.last = None

    def step(self, *actions):
        given = list(actions) or [[] for _ in range(self.env.n)]
        self.last = self.env.step(given)
        return self.last

    def until(self, condition, *actions):
        """Step until ``condition(observations, rewards, dones, infos)``; return that step."""
        found = []

        def look():
            observations, rewards, dones, info = self.step(*actions)
            found[:] = [observations, rewards, dones, info["n"]]
            return bool(condition(*found))

        eventually(look)
        return found

    def gather(self, condition):
        """Step until the condition holds for all that came together; return that."""
        total = self.step()

        def look():
            nonlocal total
            if condition(*total[:3], total[3]["n"]):
                return True
            total = added(total, self.step())
            return False

        eventually(look)
        return [*total[:3], total[3]["n"]]

    def until_seen(self):
        return self.until(lambda seen, *_: all(each is not None for each in seen))


@pytest.fixture
def screens(monkeypatch):
    screens = Screens()
    monkeypatch.setattr(_links, "RemoteScreen", screens.add)
    return screens


@pytest.fixture
def rewarder():
    with ExitStack() as stack:

        def serve(env_id="test.Game-v0", **options):
            box = []
            options.setdefault("on_reset", lambda request: box[0].begin_episode(request))
            options.setdefault("auth", "openai")
            server = RewarderServer(env_id, options.pop("address", "127.0.0.1:0"), **options)
            box.append(server)
            return stack.enter_context(server)

        yield serve


@pytest.fixture
def vector(screens):
    with ExitStack() as stack:

        def make(*servers, pixels=True, **options):
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
def screen_of(screens):
    return lambda server: screens.at(f"pixels:{server.address.port}")
