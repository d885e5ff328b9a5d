"""`rlwire bench` as a user runs it, and the parts of `rlwire.bench`."""

import argparse
import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rlwire.bench import command, measuring, payloads, raw
from rlwire.bench.measuring import LEAD_IN
from rlwire.bench.payloads import BenchStep, Payload
from rlwire.bench.processes import BenchError, Cores, ServerProcess, Unfit, allowed_cores
from rlwire.bench.raw import Sizes, raw_exchange, raw_messages
from rlwire.bench.rivals import RIVALS, missing
from rlwire.bench.rows import BATCHES, PROVIDERS, TURN
from rlwire.cli import main
from rlwire.errors import LimitExceeded, MissingExtra
from rlwire.urls import parse_url
from tests import bench_targets
from tests.programs import has_ended, python, running
from tests.raising import raised, raised_with
from tests.waiting import eventually

RLWIRE = [sys.executable, "-m", "rlwire", "bench"]

pytestmark = pytest.mark.usefixtures("gymnasium")


@pytest.fixture(scope="module")
def gymnasium():
    pytest.importorskip("ale_py", reason="ale-py comes with the extra 'bench'")
    return pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'bench'")


def arguments(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(words)


def payload(*shape, dtype="float32", count=3):
    random = np.random.default_rng(7)
    steps = [
        BenchStep((random.random(shape) * 100).astype(dtype), float(number), number == 1)
        for number in range(count)
    ]
    return Payload("test", "Test", steps)


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize(
    ("shape", "dtype"), [((4,), "float32"), ((3, 2, 2), "uint8"), ((2,), "bool")]
)
def test_benchmarked_messages_round_trip(name, shape, dtype):
    row = PROVIDERS[name](name, payload(*shape, dtype=dtype), Cores())
    if (name, dtype) == ("perlert", "bool"):
        assert "booleans" in str(raised(Unfit, row.sizes))
        return
    sizes = row.sizes()
    # The side that carries the observation has more bytes.
    carrying, other = max(sizes), min(sizes)
    asks = name in ("rlx", "openpi", "rllink", "rllink-100")
    assert carrying == (sizes.request if asks else sizes.reply)
    assert carrying > np.prod(shape) * np.dtype(dtype).itemsize
    assert 0 < other < 300
    result = measuring.measure(row, 0.01)
    assert result.protocol == name
    whole = tuple(each * row.batch for each in (result.request_bytes, result.reply_bytes))
    assert whole == pytest.approx(sizes, abs=4 * row.batch)  # numbers and times as text
    assert result.overhead.count >= measuring.TURNS
    turn = row.turn
    assert result.round_trip.count == result.echo.count == result.overhead.count * turn
    assert result.checked * (turn + LEAD_IN) >= result.round_trip.count


@pytest.mark.parametrize("name", RIVALS)
def test_benchmark_measures_each_rival(name):
    if why := missing(name):
        pytest.skip(why)
    result = measuring.measure(RIVALS[name](name, payload(5), Cores()), 0.01)
    assert result.request_bytes > 0
    assert result.reply_bytes > 20 or name == "AsyncVec"  # which leaves out the observation
    assert result.overhead.p50 > 0


@pytest.mark.parametrize("name", ["dm_env_rpc", "perlert", "rewarder", "AsyncVec"])
@pytest.mark.parametrize("wrong", ["byte", "reward"])
def test_benchmark_detects_wrong_replies(name, wrong):
    kind = {**PROVIDERS, **RIVALS}[name]
    row = kind(name, payload(4), Cores(), make=functools.partial(bench_targets.lying, wrong))
    raised_with(BenchError, rf"{name}, test, step 1: {wrong}", measuring.measure, row, 0.01)


def test_rllink_carries_batches_of_consecutive_steps():
    recorded = payload(2, count=150)
    for name, size in (("rllink", 1), ("rllink-100", 100)):
        row = PROVIDERS[name](name, recorded, Cores())
        assert row.batch == size
        assert sum(len(each.state) - 1 for each in row.exchanged) >= 150
        second = row.exchanged[1]
        steps = [recorded.steps[(size + each) % 150] for each in range(size + 1)]
        assert np.array_equal(second.state, [each.state for each in steps])
        assert second[1:] == steps[size - 1][1:]


@pytest.mark.parametrize("name", ["rlx", "openpi", "rllink"])
def test_benchmark_detects_wrong_requests(name, monkeypatch):
    monkeypatch.setattr(PROVIDERS[name], "makes", bench_targets.Liar)
    with pytest.raises(BenchError, match=f"{name}, test, step 0: byte"):
        PROVIDERS[name](name, payload(4), Cores()).sizes()


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no unix sockets")
@pytest.mark.parametrize("over", ["unix", "shm"])
@pytest.mark.parametrize("name", ["dm_env_rpc", "rlx", "rllink"])
def test_benchmark_runs_over_each_carrier(name, over):
    result = measuring.measure(PROVIDERS[name](name, payload(4), Cores(), over), 0.01)
    assert result.protocol == f"{name}+{over}"


@pytest.mark.parametrize(
    ("shape", "over", "error", "reason"),
    [((84, 84), "tcp", LimitExceeded, "datagram"), ((4,), "unix", Unfit, "UDP")],
)
def test_payloads_that_a_protocol_cannot_encode_are_errors(shape, over, error, reason):
    row = PROVIDERS["perlert"]("perlert", payload(*shape), Cores(), over)
    raised_with(error, reason, row.sizes)


@pytest.mark.parametrize("datagrams", [False, True])
def test_raw_exchange_reports_a_dead_server(datagrams, monkeypatch):
    servers = []
    begin = ServerProcess.__enter__
    monkeypatch.setattr(ServerProcess, "__enter__", lambda one: servers.append(one) or begin(one))

    def exchange_with_a_dead_server():
        with raw_exchange(raw_messages(Sizes(5, 1)), datagrams=datagrams) as exchange:
            exchange()
            os.kill(servers[0].pid, signal.SIGTERM)
            wait_for_end(servers[0].pid)
            exchange()

    raised_with(BenchError, "ended with signal 15", exchange_with_a_dead_server)


def wait_for_end(pid):
    eventually(lambda: has_ended(pid), 10.0)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("broken", BenchError, "test server did not start: ValueError: no such agent"),
        ("unfit", Unfit, "EncodeError: no text has it"),
        ("quitting", BenchError, "test server process has ended with exit code 3"),
    ],
)
def test_failing_server_process_is_reported(name, kind, message):
    with pytest.raises(kind, match=message), ServerProcess("test", getattr(bench_targets, name)):
        pass


def test_exit_reason_of_a_server_process_is_reported():
    with ServerProcess("test", bench_targets.crashing) as server:
        wait_for_end(server.pid)
        assert server.exit_reason() == (
            "the test server process has ended with exit code 1: OSError: out of sockets"
        )
    with ServerProcess("test", bench_targets.good) as server:
        os.kill(server.pid, signal.SIGKILL)
        wait_for_end(server.pid)
        assert server.exit_reason() == "the test server process has ended with signal 9"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="parents are listed in /proc")
def test_exit_reason_waits_for_the_process_that_forked_the_server():
    with ServerProcess("test", bench_targets.good) as server:
        parent = int(Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGSTOP)
        going_on = threading.Timer(0.5, os.kill, (parent, signal.SIGCONT))
        try:
            os.kill(server.pid, signal.SIGKILL)
            wait_for_end(server.pid)
            going_on.start()
            assert "signal 9" in (server.exit_reason() or "")
            going_on.join()
        finally:
            os.kill(parent, signal.SIGCONT)


def test_ctrl_c_while_a_server_process_starts_is_not_lost(monkeypatch):
    server = ServerProcess("test", bench_targets.good)
    start = type(server._process).start

    def start_and_interrupt(process):
        start(process)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(type(server._process), "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt), server:
        pass
    assert server._process.exitcode is not None


@pytest.mark.skipif(not allowed_cores(), reason="no process can be pinned here")
def test_server_process_is_pinned_to_its_cores():
    cores = allowed_cores()
    with ServerProcess("test", bench_targets.cores, cores=cores[-1:]) as server:
        assert server.address == cores[-1:]
    assert allowed_cores() == cores


@pytest.mark.skipif(os.name != "posix", reason="signals are sent by number")
def test_server_process_ends_with_its_killed_parent():
    program = [sys.executable, bench_targets.__file__]
    with running(program, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.kill()
        parent.wait(10)
        wait_for_end(pid)


SHAPES = {
    "cartpole": ((4,), np.float32),
    "pong": ((210, 160, 3), np.uint8),
    "pong-stack": ((84, 84, 4), np.float32),
}


@pytest.mark.parametrize("name", SHAPES)
def test_recordings_are_arrays_and_seeded(name):
    shape, dtype = SHAPES[name]
    steps, again = payloads.record(name, 6).steps, payloads.record(name, 6).steps
    assert len(steps) == 6
    for step, same in zip(steps, again, strict=True):
        assert (step.state.shape, step.state.dtype) == (shape, dtype)
        assert step.state.flags.c_contiguous
        assert (type(step.reward), type(step.terminal)) == (float, bool)
        assert np.array_equal(step.state, same.state)
        assert step[1:] == same[1:]
    assert not np.array_equal(steps[0].state, steps[-1].state)  # the environment moved
    if name == "pong-stack":  # each observation is the last one, a frame further
        assert 0.0 <= steps[0].state.min() < steps[0].state.max() <= 1.0
        assert np.array_equal(steps[0].state[..., 1:], steps[1].state[..., :-1])


def test_payload_records_steps_of_the_users_environment():
    steps = payloads.played("gym:CartPole-v1", 40).steps
    assert len(steps) == 40
    assert any(step.terminal for step in steps)  # and goes on with the next episode


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("gym:CartPole-v99", "--env gym:CartPole-v99: "),
        ("no_such_module:make", "No module named 'no_such_module'"),
        ("NoSuch-v1", "expected"),
    ],
)
def test_environments_that_cannot_be_made_are_rejected(what, message):
    raised_with(BenchError, message, payloads.played, what)


def test_ratios_and_rates_are_computed_per_round():
    # The machine slows down threefold between the first turn and the last; one spike.
    references = [10, 10, 10, 20, 20, 20, 30, 30, 30]
    found = measuring.ratios([20, 900, 20, 40, 44, 48, 90, 90, 90], references, 3)
    assert (found.p50, found.p25, found.p75, found.count) == (2.2, 2.1, 2.6, 3)
    # Three turns of two: 1 ms, 2 ms and 4 ms each on average.
    rate = measuring.rates([500, 1500, 2000, 2000, 1000, 7000], 2)
    assert (rate.p50, rate.p25, rate.p75, rate.count) == (500.0, 375.0, 750.0, 3)


@pytest.fixture
def small(monkeypatch):
    record = payloads.record
    monkeypatch.setattr(command, "record", lambda name: record(name, 2))


def test_benchmark_command_prints_and_writes_results(tmp_path):
    payloads = ["--payload", "cartpole", "--payload", "pong"]  # each row starts two processes
    files = ["--seconds", "0.05", "--json", "run.json"]
    done = python(*RLWIRE[1:], *files, *payloads, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    read = json.loads((tmp_path / "run.json").read_text())
    left_out = [("perlert", "pong")]
    assert {(row["protocol"], row["payload"]) for row in read["rows"]} > {
        (protocol, payload)
        for protocol in (*PROVIDERS, "pipe", "AsyncVec")
        for payload in payloads[1::2]
        if (protocol, payload) not in left_out
    }
    assert [(each["protocol"], each["payload"]) for each in read["left_out"]] == left_out
    cores = allowed_cores()
    assert read["pin"] == ("one-core" if cores else "none")
    assert read["machine"]["cores"] == (len(cores) or os.cpu_count())
    pipes = {row["payload"]: row for row in read["rows"] if row["protocol"] == "pipe"}
    tables = re.findall(
        r"^(cartpole|pong) +([\w-]+) .* ([\d.,]+)x +(?:([\d.]+)x|-)$", done.stdout, re.M
    )
    times = {(row["payload"], row["protocol"]): row["round_trip"]["p50"] for row in read["rows"]}
    order = ["cartpole", "pong"]
    assert [each[:2] for each in tables] == sorted(
        times, key=lambda each: (order.index(each[0]), times[each])
    )
    for row in read["rows"]:
        overhead = row["overhead"]
        assert 0 < overhead["p25"] <= overhead["p50"] <= overhead["p75"]
        turn = BATCHES if row["protocol"] == "rllink-100" else TURN
        assert overhead["count"] * turn == row["round_trip"]["count"] == row["echo"]["count"]
        faster = pipes[row["payload"]]["round_trip"]["p50"] / row["round_trip"]["p50"]
        shown = f"{overhead['p50']:.2f}", f"{faster:.2f}" if row["batch"] == 1 else ""
        assert (row["payload"], row["protocol"], *shown) in tables
        assert 0 < row["client"]["user"] + row["client"]["system"] < row["round_trip"]["p99"] * 10
        assert (row["server"] is None) == (row["protocol"] in ("AsyncVec", "SubprocVec"))
    assert "\nperlert cannot carry pong: " in done.stdout
    ours = [each for each in times if each[1] in PROVIDERS and each[1] != "rllink-100"]
    last = " ".join(done.stdout.split("\ntimes as fast as pickle")[1].split())
    for protocol in {each[1] for each in ours} - {"perlert", "rllink-100"}:
        both = [f"{pipes[name]['round_trip']['p50'] / times[name, protocol]:.2f}" for name in order]
        assert f"{protocol} {', '.join(both)}" in last


@pytest.mark.usefixtures("small")
def test_json_is_the_only_standard_output(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = ("--protocol", "rlx", "--env", "gym:CartPole-v1", "--seconds", "0.01", "--json", "-")
    words += ("--split",)
    assert command.run(arguments(*words)) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)["rows"]
    assert (row["protocol"], row["payload"]) == ("rlx", "CartPole-v1")
    assert f"{row['overhead']['p50']:.2f}x" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small")
def test_benchmark_skips_missing_rivals_with_the_reason(monkeypatch, capsys):
    absent = ("stable_baselines3",)
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    words = ("--protocol", "rlx", "--rivals", "--payload", "cartpole", "--seconds", "0.01")
    assert command.run(arguments(*words)) == 0
    out, err = capsys.readouterr()
    assert err.count(": pip install ") == err.count("\n") == len(absent)
    for name in ("rlx", "pipe", "AsyncVec"):
        assert re.search(f"^cartpole +{name} ", out, re.MULTILINE)


@pytest.mark.usefixtures("small")
def test_measurements_before_a_failure_are_shown(monkeypatch, capsys):
    measured = measuring.measure

    def failing(row, seconds):
        if row.payload.name == "cartpole":
            return measured(row, seconds)
        raise BenchError("the server is gone")

    cores = allowed_cores()
    monkeypatch.setattr(command, "measure", failing)
    assert main(["bench", "--seconds", "0.01", "--protocol", "rlx"]) == 1
    out, err = capsys.readouterr()
    assert "the server is gone" in err
    assert "CartPole" in out
    assert allowed_cores() == cores


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are listed in /proc")
def test_ctrl_c_ends_the_servers_of_a_benchmark(tmp_path):
    command = [*RLWIRE, "--payload", "cartpole", "--seconds", "60"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Not in the checkout, whose modules may not be compiled.
    with running(command, cwd=tmp_path, **pipes) as run:
        # Two servers, and multiprocessing's resource tracker and forkserver.
        servers = eventually(lambda: len(found := children(run.pid)) >= 4 and found)
        time.sleep(0.5)
        os.killpg(run.pid, signal.SIGINT)
        _out, err = run.communicate(timeout=20)
        assert (run.returncode, err) == (130, "rlwire: interrupted\n")
        for pid in servers:
            wait_for_end(pid)


def children(pid):
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended
            for child in map(int, task.read_text().split()):
                found |= {child} | children(child)
    return found


@pytest.mark.usefixtures("small")
def test_benchmark_rejects_an_empty_selection(capsys):
    assert main(["bench", "--protocol", "perlert", "--payload", "pong"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "perlert cannot carry pong: " in err


@pytest.mark.usefixtures("small")
def test_benchmark_names_a_missing_package_or_folder(monkeypatch, tmp_path):
    with pytest.raises(BenchError, match=r"run\.json: .*no"):
        command.run(arguments("--json", str(tmp_path / "no" / "run.json")))
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(MissingExtra, match=r"ale-py is not installed.*\[bench\]"):
        command.run(arguments("--payload", "pong"))


@pytest.mark.parametrize(
    "words",
    [["--seconds", "0"], ["--seconds", "nan"], ["--pin", "three"], ["--protocol", "http"],
     ["--payload", "doom"]],
)  # fmt: skip
def test_benchmark_rejects_invalid_arguments(words, capsys):
    assert raised(SystemExit, arguments, *words).code == 2
    assert words[0] in capsys.readouterr().err


def test_closed_relay_frees_its_threads_and_sockets():
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = raw.Relay()
        url = relay.to(f"rlx://127.0.0.1:{server.getsockname()[1]}")
        with (
            socket.create_connection(("127.0.0.1", parse_url(url).port)) as client,
            server.accept()[0] as end,
        ):
            client.sendall(b"abc")
            assert end.recv(3, socket.MSG_WAITALL) == b"abc"
            end.sendall(b"12")
            assert client.recv(2, socket.MSG_WAITALL) == b"12"
        relay.close()
    eventually(lambda: threading.active_count() <= before)
    assert relay.counted() == (3, 2)
