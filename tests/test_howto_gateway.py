"""docs/howto/gateway.md as it stands there, and gateways that are stopped while they wait."""

import logging
import os
import re
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from gymnasium.spaces import Discrete

import rlwire
from rlwire.dm_env_rpc import StatusError
from rlwire.transports.sockets import Backoff
from rlwire.universe.rewarder import EnvironmentRewarder
from tests import howtos, programs
from tests.programs import free_port, python
from tests.test_howto_watch_and_play import running, size_at
from tests.waiting import eventually

BROWSER, RLX, TOOL, *_ = re.split(r"^## ", howtos.PAGES["gateway"], flags=re.M)[1:]
URLS = re.compile(r"(dm-env-rpc|universe|rlx)://localhost:[\d+]+")


def pair(section, folder, stack):
    """Run a section's two commands, and return the gateway's URL."""
    behind, gateway = "".join(howtos.code(section, "sh")).splitlines()
    first = stack.enter_context(running(behind, folder))
    gateway = URLS.sub(str(first), gateway, count=1).replace("--page", "--page-port 0")
    return stack.enter_context(running(gateway, folder))


def test_browser_gateway_sends_pixels(tmp_path):
    with ExitStack() as stack:
        url = pair(BROWSER, tmp_path, stack)
        assert size_at(url, url.query["password"]) == (160, 210)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("by", ["hand", pytest.param("ppo", marks=pytest.mark.training)])
def test_rlx_gateway_connects_a_simulator_and_its_trainer(by, tmp_path):
    rlx = f"rlx://127.0.0.1:{free_port()}"
    program = howtos.code(RLX)[0].replace("rlx://localhost:7001", rlx).replace(":9911", ":0")
    (tmp_path / "gateway.py").write_text(program)
    gateway, play = howtos.code(RLX, "sh")[0].replace("rlx://localhost:7001", rlx).splitlines()
    words = [sys.executable, "-m", *play.split()]
    env = {**os.environ, "PYTHONPATH": str(Path(rlwire.__path__[0]).parent)}
    with running(gateway, tmp_path) as url, programs.running(words, env=env):
        if by == "ppo":
            pytest.importorskip("stable_baselines3")
            train = howtos.code(howtos.PAGES["train"])[0].partition("if __name__")[0]
            train += URLS.sub(str(url), howtos.code(RLX, "")[0])
            done = python("-c", train, env=env, timeout=800, check=True)
            assert "steps: True" in done.stdout
        with rlwire.make(str(url)) as far:
            far.reset()
            while not any(far.step(far.action_space.sample())[2:4]):
                pass


def test_gateway_serves_tools_of_dm_env_rpc(tmp_path):
    with ExitStack() as stack:
        url = pair(TOOL, tmp_path, stack)
        with rlwire.make(str(url)), pytest.raises(StatusError, match="1 world"):
            rlwire.make(str(url))
        program = howtos.code(TOOL)[0].replace(":9911", f":{url.port}")
        done = python("-c", program, check=True)
        assert "shape=(210, 160, 3)" in done.stdout


PAIRS = (
    test_browser_gateway_sends_pixels,
    partial(test_rlx_gateway_connects_a_simulator_and_its_trainer, "hand"),
    test_gateway_serves_tools_of_dm_env_rpc,
)


def test_gateway_stops_while_its_trainer_waits(caplog):
    """The trainer's reset waits for a simulator, and holds the world's lock."""
    caplog.set_level(logging.INFO, "rlwire")
    with ThreadPoolExecutor() as pool:
        with rlwire.listen("rlx://localhost:0", like="CartPole-v1") as env:
            server = rlwire.serve(env, "dm-env-rpc://localhost:0")
            trainer = rlwire.make(server.url, reconnect=Backoff(attempts=1))
            reset = pool.submit(trainer.reset)
            eventually(lambda: "waiting for 1 caller" in caplog.text)
            server.stop(grace=0.1)
        assert isinstance(reset.exception(60), OSError)
        eventually(lambda: not len(server.worlds))
        trainer.close()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_rewarder_stops_while_its_first_reset_waits(caplog):
    class Waiting:
        metadata: ClassVar = {}
        observation_space = action_space = Discrete(2)
        step = close = end = threading.Event()

        def reset(self, **_):
            os.kill(os.getpid(), signal.SIGTERM)
            self.end.wait()

    caplog.set_level(logging.INFO, "rlwire")
    EnvironmentRewarder(Waiting(), "127.0.0.1:0").serve_forever()
    assert "SIGTERM" in caplog.text
    Waiting.end.set()
