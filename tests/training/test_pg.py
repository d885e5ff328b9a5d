"""The shipped algorithm learns CartPole from four environments that are processes, in minutes."""

import contextlib
import sys
import time

import pytest

import rlwire
from tests.programs import running

pytestmark = [pytest.mark.training, pytest.mark.timeout(900)]

CONFIG = {"input": {"shape": [4]}, "output": {"action_size": 2}, "seed": 1}
STEPS = 200_000
"""At most; some 15,000 are enough, with most seeds."""


@contextlib.contextmanager
def environments(url, count):
    play = [sys.executable, "-m", "rlwire", "play", "gym:CartPole-v1", url, "--episodes", "100000"]
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(running([*play, "--seed", str(seed)])) for seed in range(count)]


def test_pg_solves_cartpole_and_resumes_from_its_checkpoint(tmp_path):
    pytest.importorskip("torch")
    options = {"config": CONFIG, "checkpoints": tmp_path}
    with rlwire.serve("algorithm:pg", "rlx://localhost:0", **options) as server:
        learned = server.parameter_server
        with environments(server.url, 4) as running:
            returns = [0.0]
            while sum(returns) / len(returns) < 195:
                assert learned.n_step() < STEPS
                assert [process.poll() for process in running] == [None] * 4
                time.sleep(1.0)
                returns = rlwire.play("gym:CartPole-v1", server.url, episodes=10, exploit=True)
    # Another server begins with what was learned, and shows it without learning more.
    with rlwire.serve("algorithm:pg", "rlx://localhost:0", **options) as server:
        before = server.parameter_server.n_step()
        assert before > 0
        returns = rlwire.play("gym:CartPole-v1", server.url, episodes=20, seed=100, exploit=True)
        assert sum(returns) / len(returns) >= 195
        assert server.parameter_server.n_step() == before
