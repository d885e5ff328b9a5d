"""How this suite is run: what is left out and named, on how many cores, many cases in one test."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import built_before
from tests.programs import has_ended, python, running
from tests.waiting import eventually

ROOT = Path(__file__).parent.parent
SETTINGS = (ROOT / "pyproject.toml").read_text("utf-8")
CASES = """
import pytest

SEEN = []

@pytest.mark.each("b", [0, 1], ids=["zero", "one"])
@pytest.mark.each(("x", "y"), [(1, 1), (2, 3), pytest.param(4, 4, id="four")])
@pytest.mark.parametrize("more", ["", "z"])
def test_sums(x, y, b, more):
    SEEN.append((x, y, b, more))
    assert x + b == y

def test_all_were_tried():
    assert sorted(SEEN) == [
        (x, y, b, more) for x, y in ((1, 1), (2, 3), (4, 4)) for b in (0, 1) for more in ("", "z")
    ]

@pytest.mark.each("value", [1, 2])
def test_fixtures(value, tmp_path):
    with pytest.raises(ValueError):
        assert tmp_path.is_dir()

class TestOfAClass:
    @pytest.mark.each("value", range(3))
    def test_method(self, value):
        assert value < 3

@pytest.mark.kernels
def test_kernels():
    assert False

@pytest.mark.long
def test_long():
    pass
"""


@pytest.fixture
def suite(tmp_path):
    """Run pytest with this project's settings over CASES; gives its status and what it says."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_cases.py").write_text(CASES)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")

    def run(*arguments):
        others = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
        words = ["-m", "pytest", "-p", "no:cacheprovider", *arguments]
        done = python(*words, cwd=tmp_path, env=others)
        return done.returncode, done.stdout

    return run


MARKS = re.findall(r"\w+", re.findall(r'"not \((.*)\)"', SETTINGS)[0].replace(" or ", " "))
LEFT_OUT = [f"left out: tests marked '{name}' \\(.+\\); run by -m {name}" for name in MARKS]


def test_partial_run_uses_one_process(suite):
    """And of the cases in one test each is tried, and those that fail are named."""
    status, output = suite("tests/test_cases.py")
    assert status == 1
    assert not re.search(r"^\d+ workers? \[", output, re.M)
    assert [line for line in LEFT_OUT if not re.search(f"^{line}$", output, re.M)] == []
    assert re.search(r"^=+ 3 failed, 2 passed, 2 deselected", output, re.M)
    assert output.count("\n3 of 6 failed\n") == 2
    assert output.count("\n2 of 2 failed\n") == 1
    assert set(re.findall(r"^--- (.*)$", output, re.M)) == {
        "2-3, zero", "1-1, one", "four, one", "1", "2"
    }  # fmt: skip
    assert "assert (2 + 0) == 3" in output
    assert "DID NOT RAISE ValueError" in output


def test_each_test_mark_has_a_ci_lane():
    run = set(re.findall(r"suite -m \"?(\w+)", (ROOT / ".ci" / "run").read_text("utf-8")))
    assert [name for name in MARKS if name not in run] == []
    assert {"kernels", "consumers", "long"} <= set(MARKS)


STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
read, write = os.pipe()
if os.fork():
    print(os.getpid(), os.read(read, 100).decode(), flush=True)
else:
    os.write(write, str(os.getpid()).encode())
while True:
    signal.pause()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize("fails", [False, True])
def test_program_and_its_children_end_with_the_block(fails):
    """Also if they ignore SIGTERM, and the test fails."""
    command = [sys.executable, "-c", STUBBORN]
    with (
        contextlib.suppress(subprocess.TimeoutExpired),
        running(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        pids = [int(word) for word in process.stdout.readline().split()]
        process.terminate()
        assert not any(map(has_ended, pids))
        if fails:
            process.wait(0.1)
    assert len(pids) == 2
    assert process.returncode == -signal.SIGKILL
    eventually(lambda: all(map(has_ended, pids)))


def test_programs_are_started_where_they_are_ended():
    """A Popen that a test waits for may never end, or be left when the test fails."""
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*.py")
        if re.search(r"\bPopen\(", path.read_text("utf-8"))
    ]
    # The others are programs of their own.
    assert set(found) <= {
        "tests/programs.py", "tests/sessions/websocket/autobahn.py", "tests/training/ray_nodes.py"
    }  # fmt: skip


def test_outdated_compiled_modules_are_named(tmp_path):
    for at, name in enumerate(("new.pyx", "new.cp311.so", "old.cp311.so", "old.pxd", "alone.so")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    assert built_before(tmp_path) == []  # as pip installs it
    (tmp_path / "buffers.pyx").touch()  # as only a checkout has it
    assert built_before(tmp_path) == ["old"]
