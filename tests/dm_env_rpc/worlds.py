"""A world as `Server` takes them, an environment and a server of grpcio, for all tests here."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import gymnasium
import numpy as np

from rlwire.codecs import dm_env_rpc as d

__all__ = ["Agent", "Canvas", "World", "grpcio_server"]


class Agent:
    """Counts what it is to add, from the setting `start` of its world on."""

    request = None

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.specs = world.specs
        self.closed = False

    def call(self, what, given=None):
        assert not self.closed
        self.world.call(f"{self.name}.{what}", given)

    def reset(self, settings):
        self.call("reset", settings)

    def begin(self):
        self.call("begin")
        self.count = int(self.world.settings.get("start", 0))
        return d.StepResult(d.EnvironmentStateType.RUNNING, self.seen({}))

    def step(self, actions):
        self.call("step", actions)
        if "raise" in actions:
            raise actions["raise"]
        self.count += actions.get("add", 1)
        return d.StepResult(actions.get("end", d.EnvironmentStateType.RUNNING), self.seen(actions))

    def seen(self, actions):
        return {"count": np.int64(self.count)}

    def close(self):
        self.closed = True
        self.world.call(f"{self.name}.close")


class World:
    """Has agents A, B, ... and logs calls; `on_call` gets "A.step" and the actions before."""

    agent = Agent
    specs = d.ActionObservationSpecs(
        {1: d.make_spec("add", (), np.int32, 0, 9)}, {1: d.make_spec("count", (), np.int64)}
    )

    def __init__(self, settings=None, on_call=None):
        self.settings = settings or {}
        self.on_call = on_call or self.on_call
        self.log = []
        self.joined = 0
        self.on_call("create", self.settings)

    def on_call(self, what, given):
        pass

    def call(self, what, given=None):
        self.log.append(what)
        self.on_call(what, given)

    def join(self, settings):
        self.on_call("join", settings)
        self.joined += 1
        return self.agent(self, chr(64 + self.joined))

    def reset(self, settings):
        self.call("reset", settings)

    def close(self):
        self.call("close")


class Canvas(gymnasium.Env):
    """Draws the number of the step, which is the reward too, into the same array each time."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, shape=(512, 1024), dtype=np.uint8):
        self.observation_space = gymnasium.spaces.Box(0, 100, shape, dtype)
        self.canvas = np.zeros(shape, dtype)

    def reset(self, *, seed=None, options=None):
        self.canvas[...] = 0
        return self.canvas, {}

    def step(self, action):
        self.canvas += 1
        return self.canvas, float(self.canvas[0, 0]), False, False, {}


@contextlib.contextmanager
def grpcio_server(add, options=()):
    """Start a server to which `add` adds its methods; yield its address."""
    server = grpc.server(ThreadPoolExecutor(20), options=options)
    add(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()
