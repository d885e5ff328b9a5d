"""docs/howto/game_engine.md: its program is compiled and run, its trainer trains."""

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from rlwire.rllink import Server, SetConfig, SetState
from tests.howtos import PAGES, ROOT, code, compiled
from tests.programs import free_port, listens, run, running
from tests.waiting import eventually

_, COMPILE = code(PAGES["game_engine"], "sh")
(TRAINER,) = code(PAGES["game_engine"])

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the program uses POSIX's sockets")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sampler")
    shutil.copy(ROOT / "tests" / "consumers" / "sampler.c", folder)
    assert "cc -std=c11 -O2 -I" in COMPILE
    assert "tests/consumers/sampler.c -lm -o sampler" in COMPILE
    return compiled("sampler.c", folder, "-lm")


def command(program, server, batches):
    host, _, port = str(server.address).rpartition(":")
    return [program, host, port, str(batches), "50"]


def weights(seed):
    """A module's, as RLlib names them: 4 to 8 to 2."""
    chance = np.random.default_rng(seed)
    shapes = {"encoder.net.mlp.0.weight": (8, 4), "encoder.net.mlp.0.bias": (8,)}
    shapes |= {"pi.log_std_clip_param_const": (1,)}
    shapes |= {"pi.net.mlp.0.weight": (2, 8), "pi.net.mlp.0.bias": (2,)}
    return {name: chance.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def logits(module, observations):
    hidden = module["encoder.net.mlp.0.weight"] @ observations.T
    hidden = np.tanh(hidden + module["encoder.net.mlp.0.bias"][:, None])
    return (module["pi.net.mlp.0.weight"] @ hidden).T + module["pi.net.mlp.0.bias"]


@pytest.mark.parametrize("on_policy", [True, False])
def test_game_engine_program_sends_batches_of_each_weights_version(program, on_policy):
    with Server("127.0.0.1:0", config=SetConfig(300, on_policy)) as server:
        modules = {number: weights(number) for number in range(1, 6)}
        server.set_state(SetState(1, {"rl_module": modules[1]}))
        pieces = []
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with running(command(program, server, 4), **pipes) as player:
            for number in range(1, 5):
                # Who does not wait may have sent the next ones as well.
                while sum(len(piece) for _, piece in pieces) < number * 300:
                    found = server.sample(30)
                    assert found, player.poll()
                    pieces += [(number, piece) for piece in found]
                server.set_state(SetState(number + 1, {"rl_module": modules[number + 1]}))
            output, wrong = player.communicate(timeout=30)
        assert (player.returncode, wrong) == (0, "")
    assert sum(len(piece) for _, piece in pieces) == 4 * 300
    finished = sum(piece.done for _, piece in pieces)
    assert re.fullmatch(rf"{finished} episodes, weights [1-5]\n", output)
    assert finished > 5
    for number, piece in pieces:
        seen, count = piece.observations, len(piece)
        assert (seen.dtype, seen.shape) == (np.float32, (count + 1, 4))
        assert piece.actions.dtype == np.int64
        np.testing.assert_array_equal(piece.rewards, np.ones(count))
        np.testing.assert_allclose(seen[1:, 0], seen[:-1, 0] + 0.02 * seen[:-1, 1], atol=1e-5)
        np.testing.assert_allclose(seen[1:, 2], seen[:-1, 2] + 0.02 * seen[:-1, 3], atol=1e-5)
        given = piece.outputs["action_dist_inputs"]
        assert given.shape == (count, 2)
        if on_policy:  # each batch was sampled with the weights that the last one's answer brought
            np.testing.assert_allclose(given, logits(modules[number], seen[:-1]), atol=1e-4)
        probabilities = np.exp(piece.outputs["action_logp"])
        expected = np.exp(given) / np.exp(given).sum(1, keepdims=True)
        expected = expected[np.arange(count), piece.actions]
        np.testing.assert_allclose(probabilities, expected, rtol=1e-4)
        assert piece.terminated == bool(abs(seen[-1, 0]) > 2.4 or abs(seen[-1, 2]) > 0.2094)
    for (_, one), (_, other) in itertools.pairwise(pieces):
        assert (one.id == other.id) == (not one.done)
        if one.id == other.id:
            assert other.started == one.started + len(one)
            np.testing.assert_array_equal(one.observations[-1], other.observations[0])
        else:
            assert other.started == 0


def test_game_engine_program_reports_the_trainers_error(program):
    with Server("127.0.0.1:0", auth="secret", config=SetConfig(10, True)) as server:
        player = run(command(program, server, 1), timeout=30)
        assert "closed by the trainer" in player.stderr
        server.set_state(SetState(1, {"rl_module": {"w.weight": np.zeros((2, 3), np.float32)}}))
        env = {**os.environ, "RLLINK_TOKEN": "secret"}
        player = run(command(program, server, 1), env=env, timeout=30)
        assert "plain layers" in player.stderr
        assert player.returncode == 1


def check_that_rllib_trains(program):
    """Run the page's trainer, which starts Ray, and two games."""
    port = str(free_port())
    assert '"port": 5555' in TRAINER
    text = TRAINER.replace('"port": 5555', f'"port": {port}')
    player = [program, "127.0.0.1", port, "1000000", "500"]
    with contextlib.ExitStack() as stack:
        pipes = {"stdout": subprocess.PIPE, "text": True}
        trainer = stack.enter_context(running([sys.executable, "-c", text], **pipes))
        eventually(lambda: listens(int(port)) or trainer.poll() is not None, 120)
        for _ in range(2):
            stack.enter_context(running(player, stderr=subprocess.DEVNULL))
        assert "balances: True" in trainer.communicate(timeout=500)[0]
