"""``rlwire bench`` as a user runs it."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlwire.bench import command
from rlwire.bench.processes import BenchError, allowed_cores
from rlwire.bench.runner import BLOCK, TURN
from rlwire.errors import MissingExtra

RFB = ("rfb-raw", "rfb-hextile", "rfb-zrle", "rfb-tight")
RLWIRE = [sys.executable, "-m", "rlwire", "bench"]


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(words)


def children(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found |= {int(child) for child in task.read_text().split()}
    return found


def test_a_real_run(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'bench'")
    pytest.importorskip("ale_py", reason="ale-py comes with the extra 'bench'")
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra 'bench'")
    done = subprocess.run(
        [*RLWIRE, "--seconds", "0.2", "--json", "run.json", "--plot", "run.png"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    read = json.loads((tmp_path / "run.json").read_text())
    assert [(row["protocol"], row["payload"]) for row in read["rows"]] == [
        (protocol, payload)
        for protocol in ("rlx", "dm_env_rpc")
        for payload in ("cartpole", "pong", "pong-stack")
    ] + [("perlert", "cartpole")] + [
        (protocol, payload)
        for protocol in ("rewarder", "openpi", "rllink")
        for payload in ("cartpole", "pong", "pong-stack")
    ] + [(protocol, "pong") for protocol in RFB]
    assert [(each["protocol"], each["payload"]) for each in read["left_out"]] == [
        ("perlert", "pong"),
        ("perlert", "pong-stack"),
        *((protocol, payload) for protocol in RFB for payload in ("cartpole", "pong-stack")),
    ]
    assert "perlert cannot carry Pong-v5 210x160x3 uint8: 100,800 numbers" in done.stdout
    cores = allowed_cores()
    assert read["pin"] == ("one-core" if cores else "none")
    assert read["machine"]["cores"] == (len(cores) or os.cpu_count())
    assert read["machine"]["tcp"]
    arrays = {"cartpole": 4 * 4, "pong": 210 * 160 * 3, "pong-stack": 84 * 84 * 4 * 4}
    for row in read["rows"]:
        # The state, and around it command, names, dtype, reward and framing; or the two scalars,
        # UIDs, shapes and lengths, gRPC's prefix and a frame's head for each 16 KiB.
        # As text, numbers take more than their bytes.
        around = max(row["request_bytes"], row["reply_bytes"]) - arrays[row["payload"]]
        if row["protocol"] in RFB:
            assert (around, row["encode"], row["decode"]) == (0, None, None)
        else:
            assert around > 60
            assert around < 150 or row["protocol"] in ("rewarder", "rllink")
            assert 0 < row["encode"]["p50"] <= row["encode"]["p99"]
            assert 0 < row["decode"]["p50"] <= row["decode"]["p99"]
        assert 0 < row["echo"]["p50"] <= row["echo"]["p99"]
        overhead = row["overhead"]
        assert 0 < overhead["p25"] <= overhead["p50"] <= overhead["p75"]
        assert overhead["count"] * TURN == row["round_trip"]["count"]
        assert row["checked"] * BLOCK >= row["round_trip"]["count"] > 0
        name = [row["protocol"], row["payload"]]
        codec, trip, rate = [line for line in done.stdout.splitlines() if line.split()[:2] == name]
        assert f"{row['request_bytes']:,}" in codec
        assert 0 < row["rate"]["p25"] <= row["rate"]["p50"] <= row["rate"]["p75"]
        assert f"{row['rate']['p50']:,.0f}" in rate
        assert row["stages"] == []
        assert f"{overhead['p25']:.2f} - {overhead['p75']:.2f}" in trip
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_protocol_that_cannot_run_here_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'bench'")
    monkeypatch.setitem(sys.modules, "hpack", None)
    monkeypatch.setattr(command, "record", _record_small)
    assert command.run(arguments("--payload", "cartpole", "--seconds", "0.01")) == 0
    out, err = capsys.readouterr()
    assert err.startswith("rlwire: dm_env_rpc is left out: hpack is not installed")
    assert err.count("\n") == 1
    assert "rlx " in out
    assert "dm_env_rpc" not in out
    with pytest.raises(MissingExtra, match="hpack"):
        command.run(arguments("--protocol", "dm_env_rpc", "--payload", "cartpole"))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are listed in /proc")
def test_ctrl_c_leaves_no_server_behind(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'bench'")
    run = subprocess.Popen(
        [*RLWIRE, "--payload", "cartpole", "--seconds", "60"],
        cwd=tmp_path,  # not the checkout, whose modules may not be compiled
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 30
        # The resource tracker of multiprocessing, and two servers.
        while len(servers := children(run.pid)) < 3:
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
        os.killpg(run.pid, signal.SIGINT)
        _out, err = run.communicate(timeout=20)
    finally:
        run.kill()
        run.communicate()
    assert run.returncode == 130
    assert err == "rlwire: interrupted\n"
    # The servers are gone before the run is; the tracker goes when it sees that the run is gone.
    deadline = time.monotonic() + 10
    while alive := [pid for pid in servers if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


def test_a_mismatch_makes_it_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'bench'")
    (tmp_path / "bench_test_liar.py").write_text(
        "from rlwire.bench.providers.rlx import RLXRow, KeepingAgent\n"
        "class Liar(KeepingAgent):\n"
        "    def update(self, reward, state, terminal):\n"
        "        return super().update(reward, None if state is None else -state, terminal)\n"
        "class Row(RLXRow):\n"
        "    def __init__(self, payload, cores):\n"
        "        super().__init__(payload, cores, 'bench_test_liar:Liar')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(command.PROVIDERS, "rlx", "bench_test_liar:Row")
    from rlwire.cli import main

    assert main(["bench", "--payload", "cartpole", "--seconds", "0.01"]) == 1
    out, err = capsys.readouterr()
    assert "rlx, cartpole, round trip 1: byte" in err
    assert out == ""


def test_what_was_measured_before_a_failure_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'bench'")
    pytest.importorskip("ale_py", reason="ale-py comes with the extra 'bench'")
    measured = command.measure

    def failing(row, seconds, cores, progress, *, stages):
        if row.payload.name == "cartpole":
            return measured(row, seconds, cores, progress)
        raise BenchError("the server is gone")

    cores = allowed_cores()
    monkeypatch.setattr(command, "measure", failing)
    monkeypatch.setattr(command, "record", _record_small)
    with pytest.raises(BenchError, match="the server is gone"):
        command.run(arguments("--seconds", "0.01"))
    out = capsys.readouterr().out
    assert "CartPole-v1" in out
    assert allowed_cores() == cores
    assert f"{len(cores) or os.cpu_count()} core" in out


def _record_small(name: str):
    from rlwire.bench.payloads import record

    return record(name, 2)


def test_json_to_standard_output_stands_there_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'bench'")
    monkeypatch.setattr(command, "record", _record_small)
    monkeypatch.chdir(tmp_path)
    words = ("--protocol", "rlx", "--payload", "cartpole", "--seconds", "0.01", "--json", "-")
    assert command.run(arguments(*words)) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)["rows"]
    assert (row["protocol"], row["payload"]) == ("rlx", "cartpole")
    assert f"{row['overhead']['p50']:.2f}x" in err
    assert list(tmp_path.iterdir()) == []


def test_ones_own_observations_and_stages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'bench'")
    (tmp_path / "bench_test_frames.py").write_text(
        "import numpy\ndef frames():\n    return [numpy.zeros(7, numpy.int8)] * 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = ["--protocol", "rlx", "--protocol", "perlert", "--seconds", "0.01", "--json", "-"]
    words += ["--payload", "bench_test_frames:frames", "--env", "gym:CartPole-v1", "--stages"]
    assert command.run(arguments(*words)) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)["rows"]
    assert [(row["protocol"], row["payload"]) for row in rows] == [
        (protocol, payload)
        for protocol in ("rlx", "perlert")
        for payload in ("bench_test_frames:frames", "CartPole-v1")
    ]
    assert "bench_test_frames:frames 7 int8" in err
    for row in rows:
        *measured, left = row["stages"]
        assert [(stage["end"], stage["name"]) for stage in measured] == [
            ("client", "encode"),
            ("client", "send"),
            ("client", "wait"),
            ("server", "decode"),
            ("server", "encode"),
            ("client", "receive"),
            ("client", "decode"),
            ("client", "session"),
            ("server", "session"),
        ]
        for stage in measured:
            assert 0 <= stage["p25"] <= stage["p50"] <= stage["p75"]
            assert stage["p25"] > 0 or stage["name"] == "session"
        assert (left["end"], left["name"], left["p25"]) == ("both", "rest", None)
        whole = sum(stage["p50"] for stage in row["stages"])
        assert whole == pytest.approx(row["round_trip"]["p50"])
        # Where the observation is: in RLX's request, in PERLERT's reply.
        carrying = measured[0] if row["protocol"] == "rlx" else measured[4]
        assert carrying["p50"] == row["encode"]["p50"]


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no unix sockets")
def test_stages_of_the_raw_exchange_are_not_those_of_another_carrier(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "record", _record_small)
    words = ["--protocol", "rlx", "--payload", "cartpole", "--seconds", "0.01", "--json", "-"]
    assert command.run(arguments(*words, "--over", "unix", "--stages")) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)["rows"]
    names = {stage["name"] for stage in row["stages"]}
    assert names == {"encode", "decode", "session", "rest"}
    assert "rlx+unix: what carries the bytes is in the rest" in err


def test_a_rival_that_is_not_installed_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'bench'")
    for name in ("zmq", "stable_baselines3", "rlmesh", "dm_env_rpc.v1"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(command, "record", _record_small)
    words = ("--protocol", "rlx", "--rivals", "--payload", "cartpole", "--seconds", "0.01")
    assert command.run(arguments(*words)) == 0
    out, err = capsys.readouterr()
    assert [line.partition(" is left out: ")[0] for line in err.splitlines()] == [
        "rlwire: zeromq",
        "rlwire: SubprocVec",
        "rlwire: rlmesh",
        "rlwire: dm_env_rpc.v1",
    ]
    assert all(": pip install " in line for line in err.splitlines())
    for name in ("rlx", "pipe", "AsyncVec"):
        assert re.search(f"^{name} +cartpole ", out, re.M)


def test_a_selection_of_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ale_py", reason="ale-py comes with the extra 'bench'")
    monkeypatch.setattr(command, "record", _record_small)
    from rlwire.cli import main

    assert main(["bench", "--protocol", "perlert", "--payload", "pong"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rlwire: there is nothing to measure: perlert cannot carry pong: ")
    assert err.endswith(
        "--protocol may be dm_env_rpc, openpi, perlert, rewarder, "
        "rfb-hextile, rfb-raw, rfb-tight, rfb-zrle, rllink, rlx, "
        "--payload cartpole, pong, pong-stack\n"
    )


def test_an_output_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="there is no directory"):
        command.run(arguments("--json", str(tmp_path / "no" / "run.json")))


@pytest.mark.parametrize(
    "words",
    [["--seconds", "0"], ["--seconds", "nan"], ["--pin", "three"], ["--protocol", "http"],
     ["--payload", "doom"]],
)  # fmt: skip
def test_wrong_arguments(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments(*words)
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("offered", "pin"), [([], "none"), ([3], "one-core"), ([0, 1], "one-core")]
)
def test_one_core_by_default_where_cores_can_be_chosen(
    offered: list[int], pin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "allowed_cores", lambda: offered)
    assert arguments().pin == pin
    cores = command._cores(pin)
    assert cores.client == cores.server == (offered[:1] or None)


def test_pinning_more_cores_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "allowed_cores", lambda: [0])
    with pytest.raises(BenchError, match="needs 2 core"):
        command.run(arguments("--pin", "two-cores"))
