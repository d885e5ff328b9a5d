"""Programs of somebody else's that use what rlwire installs for C, C++ and Cython.

Each is built in an empty folder, from a copy, with nothing but what `rlwire.get_include()` and the
packages on sys.path give.
"""

import functools
import itertools
import json
import os
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from rlwire.codecs import perlert, rlx
from rlwire.codecs.dm_env_rpc import decode_tensor, encode_tensor
from rlwire.rlx import Server
from tests import programs
from tests.agents import Agent
from tests.kernels.test_kernels import INCLUDE, WARNINGS, find_compiler, run

HERE = Path(__file__).resolve().parent
STEPS = 1000

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(300)]


CC = functools.partial(find_compiler, "CC", ["cc", "gcc", "clang"])
CXX = functools.partial(find_compiler, "CXX", ["c++", "g++", "clang++"])


def compiled(folder, source, *more):
    """Compile and link a program of this folder, from a copy; return its path."""
    program = folder / source.partition(".")[0]
    shutil.copy(HERE / source, folder)
    compiler = [*CXX(), "-std=c++17"] if source.endswith(".cpp") else [*CC(), "-std=c11"]
    run([*compiler, "-O2", *WARNINGS, f"-I{INCLUDE}", source, *more, "-o", program], cwd=folder)
    return program


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("cartpole"), "cartpole.c", "-lm")


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("codec"), "codec.cpp")


@pytest.fixture(scope="module")
def tensor(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("tensor"), "tensor.c")


@pytest.fixture(scope="module")
def perlert_step(tmp_path_factory):
    folder = tmp_path_factory.mktemp("perlert")
    numbers = INCLUDE / "rlwire" / "numbers.cpp"
    run([*CXX(), "-std=c++17", "-O2", *WARNINGS, f"-I{INCLUDE}", "-c", numbers], cwd=folder)
    return compiled(folder, "perlert.c", "numbers.o", "-lstdc++")


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """The folder of the built module `outside`."""
    CC()
    folder = tmp_path_factory.mktemp("outside")
    for name in ("outside.pyx", "build_outside.py"):
        shutil.copy(HERE / name, folder)
    run(
        [sys.executable, "build_outside.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, "CFLAGS": "-O0 -g0"},
    )
    return folder


@pytest.mark.parametrize(
    "value",
    [np.arange(-6, 6, dtype=np.int32).reshape(3, 4), np.int32(7), np.zeros((0, 2), np.int32)],
)
def test_c_program_doubles_a_tensor(tensor, value):
    done = programs.run([tensor], input=encode_tensor(value), text=False)
    assert done.returncode == 0, done.stderr
    assert [int(word) for word in done.stderr.split()] == list(np.shape(value))
    np.testing.assert_array_equal(decode_tensor(done.stdout), value * np.int32(2))


def test_c_program_reports_the_offset_of_a_bad_tensor(tensor):
    message = encode_tensor(np.arange(5, dtype=np.int32))[:-1] + b"\x04"  # a shape of 4
    done = programs.run([tensor], input=message, text=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"byte ")


def test_c_program_replies_to_a_step(perlert_step):
    step = perlert.RolloutStep("city", 7, 1590853116323, 4, "0.54,-1e-09,3", 1.256, False, "a:b")
    done = programs.run([perlert_step], input=perlert.encode(step), text=False, check=True)
    assert perlert.decode_server_message(done.stdout) == perlert.RolloutStep(
        "city", 7, 1590853116323, 5, "1.08,-2e-09,6", 1.26, False, "a:b"
    )


@pytest.mark.parametrize(
    ("datagram", "words"),
    [
        (b"city:7;a=open,citizen,cpu,ready;b=close,,ann,not_ready", None),
        (b"city:7:1:2;obs=1;reward=1;done=si", "byte 31, BOOL_VALUE: "),
        (b"city:7:1:2;obs=1,x;reward=1;done=true", "byte 17, OBSERVATION: not a number"),
        (b"city:7;a=open,citizen,cpu", "byte 22, AGENT_TAG: the message ends"),
    ],
)
def test_c_program_classifies_datagrams(perlert_step, datagram, words):
    done = programs.run([perlert_step], input=datagram, text=False)
    assert done.stdout == b""
    if words is None:
        assert done.returncode == 0
        assert done.stderr.splitlines() == [b"a: free, cpu, ready", b"b: taken, ann, not ready"]
    else:
        assert done.returncode == 1
        assert done.stderr.decode().startswith(words)


class Balancer(Agent):
    """Pushes the cart under the pole, and keeps all that it is told."""

    def __init__(self):
        self.resets = 0
        self.updates = []
        self.closed = threading.Event()

    def update(self, reward, state, terminal):
        self.updates.append((reward, state, terminal))
        # Clumsy now and then, so that poles fall: the simulator has to begin anew.
        return int(len(self.updates) % 90 > 60 or state[2] + state[3] > 0)

    def reset(self):
        self.resets += 1
        return True

    def close(self):
        self.closed.set()


def simulate(cartpole, agent, steps):
    with Server(lambda parameter_server: agent, "127.0.0.1:0") as server:
        command = [cartpole, "127.0.0.1", str(server.address.port), str(steps)]
        return programs.run(command)


def test_c_simulator_plays_a_python_agent(cartpole):
    agent = Balancer()
    done = simulate(cartpole, agent, STEPS)
    assert done.returncode == 0, done.stderr
    assert agent.closed.wait(10)

    begun = [update for update in agent.updates if update[0] is None]
    stepped = [update for update in agent.updates if update[0] is not None]
    ended = [update for update in agent.updates if update[2]]
    assert len(stepped) == STEPS
    assert {reward for reward, _, _ in stepped} == {1.0}
    assert all(type(terminal) is bool for _, _, terminal in agent.updates)
    for _, state, _ in agent.updates:
        assert (state.dtype, state.shape) == (np.float32, (4,))
    assert agent.exploit is False
    assert agent.resets == len(ended) > 5
    # The last episode may have been cut off by the end of the run.
    assert len(begun) - len(ended) in (0, 1)
    assert done.stdout == f"{STEPS} steps, {len(ended)} episodes\n"

    # The physics arrived: an episode begins upright and ends fallen or off the track, each
    # position is the last one plus 20 ms of its speed, and nothing happens after the end.
    for _, state, terminal in begun:
        assert not terminal
        assert np.all(np.abs(state) <= 0.05)
    for _, state, _ in ended:
        assert abs(state[0]) > 2.4 or abs(state[2]) > np.radians(12) - 1e-6
    for (_, before, terminal), (reward, after, _) in itertools.pairwise(agent.updates):
        assert terminal == (reward is None)
        if not terminal:
            np.testing.assert_allclose(after[0], before[0] + 0.02 * before[1], atol=1e-6)
            np.testing.assert_allclose(after[2], before[2] + 0.02 * before[3], atol=1e-6)


class Refuser(Balancer):
    def update(self, reward, state, terminal):
        super().update(reward, state, terminal)
        return 2


class Failing(Balancer):
    def update(self, reward, state, terminal):
        raise ValueError("no idea")


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (Refuser, "the action is 2, not 0 or 1"),
        (Failing, "expected the response action, got error can't update state: ValueError"),
    ],
    ids=["wrong action", "error reply"],
)
def test_c_simulator_checks_each_reply(cartpole, make, complaint):
    result = simulate(cartpole, make(), 10)
    assert result.returncode == 1
    assert complaint in result.stderr


def test_cxx_program_encodes_and_decodes_rlx_messages(codec):
    assert run([codec]).splitlines() == [
        "command: update",
        "reward: 1.500000",
        "state: 0.250000 -2.000000 3.000000",
        "terminal: false",
    ]
    frame = programs.run([codec, "frame"], text=False, check=True).stdout
    state = np.array([0.25, -2, 3], np.float32)
    message = {"command": "update", "reward": 1.5, "state": state, "terminal": False}
    assert frame == rlx.encode(message, framed=True)


OUTSIDE = """
import json
import sys

sys.path.insert(0, ".")
import numpy as np
import outside
from rlwire.codecs import perlert, rlx
from rlwire.codecs.dm_env_rpc import decode_tensor, encode_tensor

state = np.arange(84 * 84, dtype=np.float32).reshape(84, 84)
message = {"command": "update", "reward": -1.0, "state": state, "terminal": False}
pipe = outside.Pipe()
seen = []
for send in (pipe.send, pipe.send_in_place, pipe.send_by_parts, outside.round_trip):
    got = send(message)
    seen.append(
        {
            "keys": list(got),
            "equal": bool(np.array_equal(got["state"], state)),
            "view": got["state"].base is not None,
            "writable": bool(got["state"].flags.writeable),
        }
    )
small = state[0, :4].copy()
wire = outside.kernel_update(0.5, small)
print(json.dumps({
    "seen": seen,
    "same": wire == rlx.encode({"command": "update", "reward": 0.5, "state": small}),
    "empty": outside.kernel_update(0.0, small[:0])
    == rlx.encode({"command": "update", "reward": 0.0, "state": small[:0]}),
    "types": outside.kernel_types(wire),
    "cut": outside.kernel_types(wire[:-1]),
    "file": outside.__file__,
}))
"""


def test_cython_module_decodes_rlx_messages(outside):
    report = json.loads(run([sys.executable, "-c", OUTSIDE], cwd=outside))
    assert Path(report["file"]).parent == outside
    assert report["same"] is True
    assert report["empty"] is True
    assert report["types"] == {"command": 3, "reward": 4, "state": 7}
    assert report["cut"] == "the message ends inside a field"
    assert len(report["seen"]) == 4
    for index, seen in enumerate(report["seen"]):
        assert seen["keys"] == ["command", "reward", "state", "terminal"]
        assert seen["equal"] is True
        assert seen["view"] is True  # of a Block, or of the bytes
        assert seen["writable"] is (index != 2)  # bytes are not


def test_get_include_is_inside_the_package():
    assert (INCLUDE / "rlwire" / "rlwire.h").is_file()
    assert INCLUDE.parent.name == "rlwire"
    for declarations in ("kernels.pxd", "buffers.pxd", "codecs/rlx/encoder.pxd", "__init__.pxd"):
        assert (INCLUDE.parent / declarations).is_file()
