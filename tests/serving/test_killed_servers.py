"""A server whose process is killed is reported as soon as the system knows, not after a timeout.

All times that a client could wait for are far longer than a test may take.
"""

import contextlib
import re
import subprocess
import sys

import pytest

from rlwire.transports.sockets import Timeouts
from rlwire.urls import parse_url
from tests.raising import raised

LONG = 3000.0
FOREVER = Timeouts(connect=LONG, read=LONG, write=LONG, idle=LONG)

SERVED = """
import gymnasium, numpy as np

class Agent:
    def __init__(self, parameter_server):
        pass
    def init(self, exploit=False):
        return True
    def update(self, reward, state, terminal):
        return 0
    def reset(self):
        return True

class Policy:
    def infer(self, observation):
        return {}

class Room(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}
"""


class Served:
    """A server in a process of its own."""

    def __init__(self, folder, url, what, *arguments):
        (folder / "served.py").write_text(SERVED)
        command = [sys.executable, "-m", "rlwire", "serve", f"served:{what}", url, *arguments]
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        log = ""
        for line in self.process.stderr:
            log += line
            if found := re.search(r"serving (\S+), ", line):
                self.address = str(parse_url(found[1]).address)
                return
        raise AssertionError(log)

    def kill(self):
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def serve(tmp_path):
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            served = Served(tmp_path, *arguments)
            stack.callback(served.kill)
            return served

        yield start


def test_rlx(serve):
    from rlwire.rlx import AgentProxy, AgentProxyException

    server = serve("rlx://127.0.0.1:0", "Agent")
    with AgentProxy(server.address, timeout=FOREVER) as agent:
        agent.init()
        agent.update(state=1)
        server.kill()
        raised((ConnectionError, AgentProxyException), agent.update, state=2)


def test_rewarder(serve):
    from rlwire.universe.rewarder import RewarderClient

    server = serve("universe://127.0.0.1:+0?password=openai", "Room", "--lockstep")
    with RewarderClient(server.address) as client:
        client.reset()
        server.kill()
        with pytest.raises(ConnectionError):  # noqa: PT012
            while True:
                client.step(LONG)


def test_dm_env_rpc(serve):
    pytest.importorskip("hpack")
    from rlwire.dm_env_rpc import Client

    server = serve("dm-env-rpc://127.0.0.1:0", "Room")
    with Client(server.address, timeout=FOREVER) as client:
        client.join_world(client.create_world())
        client.step()
        server.kill()
        raised(ConnectionError, client.step, {"action": 0})
