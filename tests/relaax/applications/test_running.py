"""`rlwire run`: processes that begin, learn, and end together."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import pytest

from rlwire import cli
from rlwire.relaax.applications import ApplicationError, new, read_application
from rlwire.relaax.applications.running import commands
from tests.programs import end, start
from tests.raising import raised, raised_with
from tests.reference.events import read_events
from tests.relaax.kept import steps

pytest.importorskip("ruamel.yaml")
pytest.importorskip("honcho")


@contextlib.contextmanager
def running(folder, *arguments, program=(sys.executable, "-m", "rlwire")):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = start([*program, "run", *arguments], cwd=folder, **pipes)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # which ends the others, too
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=90)
        end(process)


@pytest.fixture
def app(tmp_path):
    path = new(tmp_path / "demo") / "app.yaml"
    path.write_text(path.read_text().replace("localhost:7001", f"unix:{tmp_path}/rlx"))
    return path


@pytest.fixture
def endless(app):
    app.write_text(app.read_text().replace("max_episodes: 30", "infinite_run: true"))
    return app.parent


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C goes to a process group")
def test_new_bandit_learns_the_best_arm_and_ctrl_c_saves_it(endless):
    pytest.importorskip("tensorboardX")
    output, good = [], 0
    with running(endless, "all", "-n", "2") as process:
        for line in process.stdout:
            output.append(line)
            found = re.search(r"environment-\d \| episode \d+: ([-.\d]+) a pull, .* arm 3", line)
            good += found is not None and float(found[1]) > 0.5  # 0.6 is what arm 3 pays
            if good == 10:
                os.killpg(process.pid, signal.SIGINT)
                good += 1
        assert process.wait(60) == 0, "".join(output)
    assert "Warning" not in "".join(output)
    started = [int(pid) for pid in re.findall(r"started \(pid=(\d+)\)", "".join(output))]
    assert len(started) == 3
    for pid in started:
        raised(ProcessLookupError, os.kill, pid, 0)
    assert steps(endless / "logs" / "checkpoints")[0] >= 200 * 10
    events = read_events(endless / "logs" / "metrics")
    assert max(value for _, value in events["episode_reward"]) > 0.5
    assert events["paying_arm"][-1][1] == 3


def test_application_ends_when_its_output_is_closed(endless):
    with running(endless, "all") as process:
        assert "started" in process.stdout.readline()  # the other one has not yet
        process.stdout.close()
        assert process.wait(60) == 0
        process.stdout = None
    assert not (endless.parent / "rlx").exists()


SIGNALLED = """
import io, signal, sys
from rlwire.relaax.applications import read_application, running

class Raw(io.FileIO):
    def write(self, data):
        if b"line 9" in bytes(data):
            signal.raise_signal(signal.SIGINT)
        return super().write(data)

class Waiting(running.deque):
    def __bool__(self):
        found = len(self) > 0
        if found and not interrupted and "line 9" in str(self[0].data):
            interrupted.append(True)
            signal.raise_signal(signal.SIGINT)
        return found

interrupted = []
if __name__ == "__main__":  # honcho's processes import this file from Python 3.14 on
    if sys.argv[1] == "before":
        running.deque = Waiting
    else:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(Raw(1, "w", closefd=False)))
    sys.exit(running.run(read_application("app.yaml"), ["environment"]))
"""


@pytest.mark.parametrize("when", ["before", "while"])
def test_signal_that_arrives_while_a_line_is_written_ends_the_application(tmp_path, when):
    program = "import itertools\nfor i in itertools.count(): print('line', i, flush=True)"
    (tmp_path / "play.py").write_text(program)
    (tmp_path / "app.yaml").write_text("environment: {run: python play.py}")
    (tmp_path / "signalled.py").write_text(SIGNALLED)
    with running(tmp_path, program=(sys.executable, "signalled.py", when)) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output[-2000:]
    assert "SIGINT received" in output
    assert "environment-0 stopped" in output


COPY = """
import sys, time
from pathlib import Path

first = sys.argv[sys.argv.index("--exploit") + 1] == "True"
here = Path(__file__).parent
if first:
    (here / "failed").touch()
    sys.exit(3)
for _ in range(600):  # until the first has ended
    if (here / "failed").exists():
        break
    time.sleep(0.1)
print("done, with", sys.argv[1:], flush=True)
"""


def test_exit_status_is_that_of_the_failed_environment(tmp_path):
    (tmp_path / "play.py").write_text(COPY)
    (tmp_path / "app.yaml").write_text("environment: {run: python play.py}")
    with running(tmp_path, "environment", "-n", "2", "--exploit") as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 3, output
    expected = ["--config", str(tmp_path / "app.yaml"), "--exploit", "False", "--show-ui", "False"]
    assert f"environment-1 | done, with {expected}" in output
    assert "stopped (rc=3)" in output


def test_unknown_algorithm_is_named_in_one_line(app):
    app.write_text(app.read_text().replace("name: bandit", "name: bandits"))
    with running(app.parent, "servers") as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    assert "rlwire: no algorithm bandits: " in output
    assert "Traceback" not in output


def names(app, *components, **options):
    return list(commands(read_application(app), components, **options))


def test_run_starts_the_selected_components(app):
    assert names(app, "all") == ["rlx-server", "environment-0"]
    assert names(app, "servers") == ["rlx-server"]
    assert names(app, "environment", "rlx-server", copies=2) == [
        *["rlx-server", "environment-0", "environment-1"]
    ]
    found = commands(read_application(app), ["environment"], copies=2, exploit=True, show_ui=True)
    assert found["environment-0"][-1].endswith("--exploit True --show-ui True")
    assert found["environment-1"][-1].endswith("--exploit False --show-ui False")
    assert "--wait" not in found["environment-0"]
    assert "--wait" in commands(read_application(app), ["all"])["environment-0"]


@pytest.mark.parametrize(
    ("section", "components", "expected"),
    [
        ("relaax-rlx-server", ["all"], "app.yaml has no section relaax-rlx-server"),
        ("algorithm", ["servers"], "app.yaml has no section algorithm"),
        ("environment", ["all"], "environment/run "),
    ],
)
def test_missing_sections_are_named(app, section, components, expected):
    app.write_text(re.sub(rf"^{section}:.*\n((  .*)?\n)*", "", app.read_text(), flags=re.M))
    raised_with(ApplicationError, expected, names, app, *components)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "metrics-server"], " metrics-server: expected all,"),
        (["run", "-n", "0"], ", not 0"),
        (["run", "-c", "nowhere.yaml"], "there is no nowhere.yaml"),
    ],
)
def test_invalid_run_commands_are_rejected(tmp_path, monkeypatch, capsys, arguments, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.yaml").write_text("environment: {}")
    assert cli.main(arguments) == 1
    assert expected in capsys.readouterr().err
