"""`rlwire.bench.report`: the plain table, the terminal's table, the JSON."""

from __future__ import annotations

import io
import json

import pytest

from rlwire.bench.payloads import Payload
from rlwire.bench.provider import LeftOut
from rlwire.bench.report import SCHEMA, Run, as_json, plain_table, progress, show
from rlwire.bench.runner import Result
from rlwire.bench.stats import Spread


def result(payload: str = "cartpole", title: str = "CartPole-v1 4 float32") -> Result:
    return Result(
        protocol="rlx",
        payload=payload,
        title=title,
        request_bytes=1234,
        reply_bytes=40,
        encode=Spread(0.126, 0.2, 50),
        decode=Spread(0.25, 0.3, 50),
        round_trip=Spread(60.0, 90.06, 1000),
        echo=Spread(50.0, 80.0, 1000),
        checked=1096,
    )


@pytest.fixture
def run() -> Run:
    return Run(
        versions={"CPython": "3.11.7", "rlwire": "0.1.0"},
        machine={"system": "Linux 6", "processor": "a fast one", "cores": 2},
        pin="one-core",
        seconds=4.0,
        results=[result(), result("pong", "Pong-v5 210x160x3 uint8")],
        left_out=[LeftOut("perlert", Payload("doom", "Doom 9x9", []), "it is too dark")],
    )


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
    (row,) = [line for line in lines if "CartPole" in line]
    assert row.split("  ")[0] == "rlx"
    assert row.split()[4:] == ["1,234", "40", "0.13", "0.25", "60.0", "90.1", "50.0", "1.20x"]
    assert any(line.startswith("2,192 round trips") for line in lines)
    assert lines[-1] == "perlert cannot carry Doom 9x9: it is too dark"
    assert "\x1b" not in stream.getvalue()
    head, rule = lines[3], lines[4]
    assert len(row) == len(head) == len(rule)


def test_terminal_report_has_the_same_numbers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich", reason="rich comes with the extra 'bench'")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    show(run, stream)
    for text in (
        "Pong-v5 210x160x3 uint8",
        "1,234",
        "0.13",
        "60.0",
        "90.1",
        "1.20x",
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
    read = json.loads(json.dumps(as_json(run)))
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
        "encode": {"p50": 0.126, "p99": 0.2, "count": 50},
        "decode": {"p50": 0.25, "p99": 0.3, "count": 50},
        "round_trip": {"p50": 60.0, "p99": 90.06, "count": 1000},
        "echo": {"p50": 50.0, "p99": 80.0, "count": 1000},
        "overhead": 1.2,
        "checked": 1096,
    }
