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


@pytest.fixture
def serve(pytestconfig):
    """Serve in a process of its own; return the address, and what kills it."""
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            process = subprocess.Popen(
                [sys.executable, "-m", "rlwire", "serve", *arguments],
                cwd=pytestconfig.rootpath, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip

            def kill():
                if process.returncode is None:
                    process.kill()
                    process.communicate()

            stack.callback(kill)
            log = ""
            for line in process.stderr:
                log += line
                if found := re.search(r"serving (\S+), ", line):
                    return str(parse_url(found[1]).address), kill
            return pytest.fail(log)

        yield start


def test_rlx(serve):
    from rlwire.rlx import AgentProxy, AgentProxyException

    address, kill = serve("tests.agents:Agent", "rlx://127.0.0.1:0")
    with AgentProxy(address, timeout=FOREVER) as agent:
        agent.init()
        agent.update(state=1)
        kill()
        raised((ConnectionError, AgentProxyException), agent.update, state=2)


def test_rewarder(serve):
    from rlwire.universe.rewarder import RewarderClient

    address, kill = serve("CartPole-v1", "universe://127.0.0.1:+0?password=openai", "--lockstep")
    with RewarderClient(address) as client:
        client.reset()
        kill()
        with pytest.raises(ConnectionError):  # noqa: PT012
            while True:
                client.step(LONG)


def test_dm_env_rpc(serve):
    pytest.importorskip("hpack")
    from rlwire.dm_env_rpc import Client

    address, kill = serve("CartPole-v1", "dm-env-rpc://127.0.0.1:0")
    with Client(address, timeout=FOREVER) as client:
        client.join_world(client.create_world())
        client.step({"action": 0})
        kill()
        raised(ConnectionError, client.step, {"action": 0})
