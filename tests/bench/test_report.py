"""`rlwire.bench.report`: the plain table, the terminal's table, the JSON."""

from __future__ import annotations

import dataclasses
import io
import json
import re

import pytest

from rlwire.bench import report
from rlwire.bench.payloads import PAYLOADS, Payload
from rlwire.bench.provider import LeftOut
from rlwire.bench.providers import PROVIDERS
from rlwire.bench.report import SCHEMA, Run, as_json, plain_table, progress, show
from rlwire.bench.runner import Result, Stage
from rlwire.bench.stats import Ratio, Spread


def result(payload: str = "cartpole", title: str = "CartPole-v1 4 float32") -> Result:
    return Result(
        protocol="rlx",
        payload=payload,
        title=title,
        request_bytes=1234,
        reply_bytes=40,
        encode=Spread(0.126, 0.2, 50, 0.12, 0.14),
        decode=Spread(0.25, 0.3, 50, 0.24, 0.26),
        round_trip=Spread(60.0, 90.06, 1000, 58.0, 64.0),
        echo=Spread(50.0, 80.0, 1000, 48.0, 53.0),
        overhead=Ratio(1.2, 1.14, 1.312, 40),
        rate=Ratio(15_873.0, 15_151.5, 16_666.7, 40),
        checked=1096,
    )


def slow(protocol: str, payload: str, title: str) -> Result:
    """The longest numbers that a run has had, and longer."""
    return Result(
        protocol=protocol,
        payload=payload,
        title=title,
        request_bytes=11_429_244,
        reply_bytes=11_429_244,
        encode=Spread(123_456.7, 223_456.7, 5, 23_456.7, 323_456.7),
        decode=Spread(123_456.7, 223_456.7, 5, 23_456.7, 323_456.7),
        round_trip=Spread(1_234_567.8, 2_234_567.8, 30, 1_034_567.8, 1_534_567.8),
        echo=Spread(123_456.7, 2_234_567.8, 30, 103_456.7, 163_456.7),
        overhead=Ratio(123.45, 99.87, 234.56, 1),
        rate=Ratio(123_456.7, 113_456.7, 133_456.7, 1),
        checked=128,
    )


@pytest.fixture
def run() -> Run:
    return Run(
        versions={"CPython": "3.11.7", "rlwire": "0.1.0"},
        machine={"system": "Linux 6", "processor": "a fast one", "cores": 2},
        pin="one-core",
        seconds=4.0,
        results=[result(), result("pong-stack", "Pong-v5 stack 84x84x4 float32")],
        left_out=[LeftOut("perlert", Payload("doom", "Doom 9x9", []), "it is too dark")],
    )


def test_stages_are_a_table_with_their_shares(run: Run) -> None:
    stages = [Stage("client", "encode", 6.0, 5.5, 7.25), Stage("both", "rest", 54.0)]
    stream = io.StringIO()
    session = [Stage("server", "session", 6.0, 5.5, 7.25)]
    results = [
        dataclasses.replace(result(), stages=stages),
        dataclasses.replace(result("b"), protocol="screen", stages=session),
        dataclasses.replace(result("b"), protocol="closed"),
    ]
    show(dataclasses.replace(run, results=results), stream)
    rows = [line.split()[2:] for line in stream.getvalue().splitlines() if line.startswith("rlx ")]
    assert rows[3:] == [
        ["client", "encode", "6.00", "5.50", "-", "7.25", "10%"],
        ["both", "rest", "54.0", "90%"],
    ]
    said = " ".join(stream.getvalue().split())
    assert "Stages are measured one by one" in said
    assert "rlx: no session can be timed by itself" in said
    assert "screen: the codec's work is in the sessions' part" in said
    assert "closed: neither the codec nor a session can be timed by itself." in said


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_table_aligns() -> None:
    assert plain_table(("name", "n"), [("a", "1"), ("bcdef", "1,000")]) == (
        "name       n\n-----  -----\na          1\nbcdef  1,000"
    )


def test_plain_table_without_rows() -> None:
    assert plain_table(("name", "n"), []) == "name  n\n----  -"


def test_piped_report_is_plain_and_complete(run: Run) -> None:
    stream = io.StringIO()
    show(run, stream)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "CPython 3.11.7, rlwire 0.1.0"
    assert lines[1] == "Linux 6, a fast one, 2 cores, both processes on one core"
    codec, trip, rate = [
        line.split() for line in lines if line.startswith("rlx") and "cartpole" in line
    ]
    assert codec == ["rlx", "cartpole", "1,234", "40", "0.13", "0.25"]
    assert trip == ["rlx", "cartpole", "60.0", "90.1", "50.0", "1.20x", "1.14", "-", "1.31"]
    assert rate == ["rlx", "cartpole", "15,873", "15,152", "-", "16,667", "16%", "8%", "10%", "10%"]
    assert "cartpole: CartPole-v1 4 float32" in lines
    assert any(line.startswith("2,192 round trips") for line in lines)
    assert "took turns, 40 of 30 exchanges each" in " ".join(lines)
    assert lines[-1] == "perlert cannot carry Doom 9x9: it is too dark"
    assert "\x1b" not in stream.getvalue()
    for at, line in enumerate(lines):
        if line.startswith("-----"):
            assert len(lines[at - 1]) == len(line) == len(lines[at + 1])


@pytest.mark.parametrize(
    ("pin", "offered", "said"),
    [
        ("two-cores", [0, 1], "each process on its own core"),
        ("none", [0, 1], "processes not pinned"),
        ("none", [], "processes not pinned, which this system does not offer"),
    ],
)
def test_the_head_says_where_processes_ran(
    run: Run, monkeypatch: pytest.MonkeyPatch, pin: str, offered: list[int], said: str
) -> None:
    monkeypatch.setattr(report, "allowed_cores", lambda: offered)
    stream = io.StringIO()
    show(dataclasses.replace(run, pin=pin), stream)
    head = " ".join(stream.getvalue().partition("\n\n")[0].splitlines())
    assert head.endswith(f"2 cores, {said}")


WIDEST = [
    "11,429,244", "123,457", "1,234,568", "2,234,568", "123.45x", "99.87 - 234.56",
    "113,457 - 133,457", "243%", "41%", "49%",
]  # fmt: skip


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_80_columns_hold_all_numbers(
    run: Run, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal:
        pytest.importorskip("rich", reason="rich comes with the extra 'bench'")
    names = [(protocol, payload) for protocol in PROVIDERS for payload in PAYLOADS]
    results = [slow(*name, "Pong-v5 stack 84x84x4 float32") for name in names]
    for columns in ("80", "40"):
        monkeypatch.setenv("COLUMNS", columns)
        stream = Terminal() if terminal else io.StringIO()
        show(dataclasses.replace(run, results=results), stream)
        lines = re.sub("\x1b\\[[0-9;]*m", "", stream.getvalue()).splitlines()
        assert max(map(len, lines)) <= 80
        assert not any("…" in line for line in lines)
        for name in names:
            rows = [line for line in lines if line.split()[:2] == list(name)]
            assert len(rows) == 3
            for number in WIDEST:
                assert number in " ".join(rows)


def test_terminal_report_has_the_same_numbers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich", reason="rich comes with the extra 'bench'")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    show(run, stream)
    for text in (
        "Pong-v5 stack 84x84x4 float32",
        "1,234",
        "0.13",
        "60.0",
        "90.1",
        "1.20x",
        "1.14 - 1.31",
        "2,192",
        "dark",
    ):
        assert text in stream.getvalue()


def test_progress_is_silent_when_piped() -> None:
    stream = io.StringIO()
    with progress(stream) as tick:
        tick("recording pong", 0.5)
    assert stream.getvalue() == ""


def test_progress_on_a_terminal_says_what_is_measured() -> None:
    pytest.importorskip("rich", reason="rich comes with the extra 'bench'")
    stream = Terminal()
    with progress(stream) as tick:
        tick("rlx, pong", 0.5)
    assert "rlx, pong" in stream.getvalue()
    assert "50%" in stream.getvalue()


def test_json(run: Run) -> None:
    staged = dataclasses.replace(result(), stages=[Stage("both", "rest", 9.0)])
    read = json.loads(json.dumps(as_json(dataclasses.replace(run, results=[staged]))))
    assert read.keys() == {
        *("schema", "versions", "machine", "pin", "seconds", "rows", "left_out"),
    }
    assert read["left_out"] == [
        {"protocol": "perlert", "payload": "doom", "reason": "it is too dark"}
    ]
    assert read["schema"] == SCHEMA
    assert read["machine"] == {"system": "Linux 6", "processor": "a fast one", "cores": 2}
    assert read["rows"][0] == {
        "protocol": "rlx",
        "payload": "cartpole",
        "title": "CartPole-v1 4 float32",
        "request_bytes": 1234,
        "reply_bytes": 40,
        "encode": {"p50": 0.126, "p99": 0.2, "count": 50, "p25": 0.12, "p75": 0.14},
        "decode": {"p50": 0.25, "p99": 0.3, "count": 50, "p25": 0.24, "p75": 0.26},
        "round_trip": {"p50": 60.0, "p99": 90.06, "count": 1000, "p25": 58.0, "p75": 64.0},
        "echo": {"p50": 50.0, "p99": 80.0, "count": 1000, "p25": 48.0, "p75": 53.0},
        "overhead": {"p50": 1.2, "p25": 1.14, "p75": 1.312, "count": 40},
        "rate": {"p50": 15873.0, "p25": 15151.5, "p75": 16666.7, "count": 40},
        "checked": 1096,
        "stages": [{"end": "both", "name": "rest", "p50": 9.0, "p25": None, "p75": None}],
    }
