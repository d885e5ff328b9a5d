"""`rlwire inspect`, of real conversations."""

from __future__ import annotations

import base64
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image

import rlwire
from rlwire.cli import main
from rlwire.recording import files
from rlwire.recording.formatting import LISTED, as_json, brief
from rlwire.recording.inspecting import condition
from rlwire.recording.messages import Packet, RecordedConnection
from rlwire.recording.reading import messages
from rlwire.transports.recorder import Recorder
from tests.conftest import _same
from tests.recording.test_dissecting import LABELS, captured

Inspect = Callable[..., list[str]]


def packets(label: str, number: int = 1, end: bool = True) -> list[Packet]:
    """A conversation, one packet a millisecond."""
    connection = RecordedConnection(number, label, "server", "127.0.0.1:1")
    found = [
        Packet(connection, up, 1e9 + place / 1e3, 5 + place / 1e3, data)
        for place, (up, data) in enumerate(captured(label)[0])
    ]
    last = found[-1]
    over = Packet(connection, True, last.time, last.monotonic, b"", 0, "so it was")
    return [*found, *[over] * end]


@pytest.fixture
def inspect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inspect:
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str, of: Any = None) -> list[str]:
        source = packets("dm-env-rpc") if of is None else of
        monkeypatch.setattr(files, "packets", lambda path: iter(source))
        assert main(["inspect", "file", *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def arrays(value: Any) -> Any:
    """The value of JSON with its arrays."""
    if isinstance(value, list):
        return [arrays(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "dtype" in value and "shape" in value:
        if "values" in value:
            return np.array(value["values"], value["dtype"]).reshape(value["shape"])
        data = np.frombuffer(base64.b64decode(value["base64"]), value["dtype"])
        return data.reshape(value["shape"])
    return {key: arrays(each) for key, each in value.items()}


@pytest.mark.parametrize("label", LABELS)
def test_a_line_is_a_message(label: str, inspect: Inspect) -> None:
    found = list(messages(packets(label)))
    lines = inspect(of=packets(label))
    told = [json.loads(line) for line in inspect("--json", of=packets(label))]
    assert len(lines) == len(told) == len(found)
    for line, object_, message in zip(lines, told, found, strict=True):
        assert len(line) <= 160
        assert line.isprintable()
        up, kind = message.packet.from_client, message.decoded.kind
        assert line.split()[:5] == [f"{message.seconds:.6f}", "1", *way(up), kind]
        assert line.split()[5] == str(message.decoded.size)
        assert (object_["kind"], object_["bytes"]) == (kind, message.decoded.size)
        assert object_["from"] == ("client" if up else "server")
    assert [each["value"] for each in told if each["kind"] == "closed"] == ["so it was"]


def way(up: bool) -> list[str]:
    return ["->", "server"] if up else ["<-", "server"]


def test_a_step_is_what_was_played(inspect: Inspect) -> None:
    episodes = captured("dm-env-rpc")[1]
    played = [step for episode in episodes for step in episode[1:]]
    number = len(episodes[0]) + 1  # the second step of the second episode
    for words in (["--step", str(number)], ["--step", "2", "--episode", "2"]):
        asked, answer = [arrays(json.loads(line)) for line in inspect("--json", *words)]
        action, observation, reward, *_ = played[number - 1]
        assert _same(asked["value"]["step"]["actions"]["action"], action.astype(np.int64))
        seen = answer["value"]["step"]["observations"]
        assert _same(seen["observation"], observation)
        assert seen["reward"] == reward
        assert answer["steps"] == [{"step": number, "episode": 2, "step_in_episode": 2}]
        assert [f" #{number} " in line for line in inspect(*words)] == [True, True]


def test_filters(inspect: Inspect) -> None:
    both = sorted([*packets("dm-env-rpc"), *packets("rlx", 2)], key=lambda each: each.monotonic)
    everything = [json.loads(line) for line in inspect("--json", of=both)]

    def holds(words: list[str], keep: Callable[[Any], bool]) -> None:
        expected = [each for each in everything if keep(each)]
        found = [json.loads(line) for line in inspect("--json", *words, of=both)]
        assert 0 < len(found) < len(everything)
        assert found == expected

    kinds = {"StepRequest", "update"}
    holds(["--kind", "StepRequest", "--kind", "update"], lambda each: each["kind"] in kinds)
    holds(["--connection", "2"], lambda each: each["connection"] == 2)
    late, soon = ["--from", "0.005"], ["--to", "0.012"]
    holds([*late, *soon], lambda each: 0.005 <= each["time"] <= 0.012)
    holds(["--where", "reward >= 0.25"], lambda each: reward(each) >= 0.25)


def reward(told: Any) -> float:
    found = told["value"].get("reward") if isinstance(told["value"], dict) else None
    return -1 if found is None else found


VALUE = {
    "a": {"b": np.array([1.0, -2.0]), "text": "go", "5": "5"},
    "n": [3, {"x": True}],
    "none": None,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        *[("a.b", True), ("a.c", False), ("none", True), ("n[1].x", True), ("n[2]", False)],
        *[("a.b > 0.5", True), ("a.b[1]>0", False), ("a.b <= -2", True), ("a.b < -2", False)],
        *[("a.text = go", True), ("a.text = 'go'", True), ("a.text != go", False)],
        *[("n[0]=3", True), ("n[0] >= 3", True), ("n.0 != 3", False), ("n[1].x = true", True)],
        *[("n[1].x = false", False), ("a > 1", False), ("none > 1", False), ("n[0] = x", False)],
        *[("a.5 = 5", True), ("a.5 = 5.0", False), ("n[0] != x", True), ("a.b = go", False)],
        *[("a.b.__class__", False), ("a.text.upper", False), ("a.b[7]", False)],
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    assert condition(text)(VALUE) is holds


@pytest.mark.parametrize("text", ["", "= 3", "a b", "a = ", "a == 3 4", "a ! 3"])
def test_conditions_that_are_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    if text in ("a = ", "a == 3 4"):  # an empty text, and a text that begins with =
        assert not condition(text)({"a": 3})
        return
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "file", "--where", text])
    assert ended.value.code == 2
    assert "--where" in capsys.readouterr().err


def test_statistics(inspect: Inspect) -> None:
    rows = [json.loads(line) for line in inspect("--statistics", "--json")]
    found = list(messages(packets("dm-env-rpc")))
    assert sum(row["messages"] for row in rows if "kind" in row) == len(found)
    assert sum(row["bytes"] for row in rows if "kind" in row) == sum(x.decoded.size for x in found)
    (asked,) = [row for row in rows if row.get("kind") == "StepRequest"]
    trips = [asked[name] for name in ("median_ms", "90%_ms", "99%_ms")]
    assert 0.99 < trips[0] <= trips[1] <= trips[2]  # a packet a millisecond
    assert asked["per_second"] == asked["messages"] / found[-1].seconds
    episodes = captured("dm-env-rpc")[1]
    ends = ["truncated" if episode[-1][4] else "terminated" for episode in episodes]
    told = [(row["return"], row["steps"], row["end"]) for row in rows if "return" in row]
    totals = [sum(step[2] for step in episode[1:]) for episode in episodes]
    assert told == list(zip(totals, [len(x) - 1 for x in episodes], ends, strict=True))
    lines = inspect("--statistics")
    assert len(lines) == len(rows) + 2
    last = next(each for each in reversed(found) if each.episodes).packet
    some = packets("dm-env-rpc", end=False)
    cut = inspect("--statistics", "--json", of=[x for x in some if x.monotonic < last.monotonic])
    assert json.loads(cut[-1])["end"] == "unfinished"


@pytest.mark.parametrize("label", LABELS)
def test_damage_is_shown_and_the_rest_goes_on(label: str, inspect: Inspect) -> None:
    random, whole = Random(3), packets(label)
    damaged = 0
    for _ in range(40):
        place = random.randrange(len(whole) - 1)
        data = bytearray(whole[place].data)
        for _ in range(random.choice([1, 1, 3])):
            data[random.randrange(len(data))] = random.randrange(256)
        torn = Packet(*[getattr(whole[place], name) for name in Packet.__slots__])
        torn.data = bytes(data)
        lines = inspect(of=[*whole[:place], torn, *whole[place + 1 :]])
        assert all(line.isprintable() and len(line) <= 160 for line in lines)
        damaged += sum(" damaged " in line for line in lines)
        assert " closed " in lines[-1]
    assert damaged


def test_a_gap_ends_the_episode(inspect: Inspect) -> None:
    some = packets("rlx")
    some[9].gap = 3
    lines = inspect(of=some)
    assert any(line.split()[4:] == ["gap", "0", "3"] for line in lines)
    rows = [json.loads(line) for line in inspect("--statistics", "--json", of=some)]
    assert "unfinished" in [row.get("end") for row in rows]


def test_a_protocol_without_a_dissector_is_bytes(inspect: Inspect) -> None:
    connection = RecordedConnection(1, "morse", "client", "x")
    assert "bytes[3] 010203" in inspect(of=[Packet(connection, True, 1, 1, b"\1\2\3")])[0]


def values() -> Iterator[Any]:
    yield from (np.arange(6).reshape(2, 3).astype(dtype) for dtype in ("u1", ">i4", "f2", "?"))
    yield np.random.default_rng(1).random(LISTED + 1)
    yield {"x": [1, "a", None, True, {"y": np.array(["a", "b"])}], "1": 2**70}


@pytest.mark.parametrize("value", [*values()], ids=lambda each: type(each).__name__)
def test_json_has_the_whole_value(value: Any) -> None:
    assert _same(arrays(json.loads(json.dumps(as_json(value), allow_nan=False))), value)
    odd = {1: [math.inf, np.float32("nan")], "b": b"\0\1", "o": np.array([None, b"x"], object)}
    told = json.loads(json.dumps(as_json(odd), allow_nan=False))
    assert (told["1"], told["b"]) == (["inf", "nan"], {"base64": "AAE="})


def test_texts_of_a_peer_cannot_control_the_terminal() -> None:
    text = "\x1b]0;x\x07\r\n\u202e"
    value = {text: text, "a": np.array([text]), "l": [text], "k": {text: {text: text.encode()}}}
    for most in range(3, 200):
        line = brief(value, most)
        assert line.isprintable()
        assert len(line) <= most


class Screens(gymnasium.Env[Any, Any]):
    """Observations that are noise."""

    observation_space = gymnasium.spaces.Box(0, 255, (12, 9, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    seen: list[Any]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seen = [np.random.default_rng(5).integers(0, 256, (12, 9, 3), np.uint8)]
        return self.seen[0], {}

    def step(self, action: Any) -> Any:
        self.seen.append(self.seen[-1][::-1].copy())
        return self.seen[-1], 1.0, len(self.seen) == 4, False, {}


def test_a_file_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, screens = tmp_path / "run.mcap", Screens()
    with (
        rlwire.serve(screens, "dm-env-rpc://127.0.0.1:0") as server,
        rlwire.make(server.url, record=str(file)) as env,
    ):
        env.reset()
        while not env.step(1)[2]:
            pass
    for each in list(Recorder._all.values()):
        each.finish()
    capsys.readouterr()
    assert main(["inspect", str(file), "--images", str(tmp_path / "to"), "--wall"]) == 0
    images = [np.array(Image.open(each)) for each in sorted((tmp_path / "to").iterdir())]
    assert _same(images, screens.seen)
    lines = capsys.readouterr().out.splitlines()
    assert sum(".png] " in line for line in lines) == len(images)
    assert all(line.startswith("20") for line in lines)  # the century
    command = [sys.executable, "-m", "rlwire", "inspect", str(file), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"preface" in process.stdout.readline()
        process.stdout.close()  # as `| head -1` does
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_foreign_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "foreign"
    file.write_bytes(b"\x89PNG and so on")
    assert main(["inspect", str(file)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(file) in line
    assert "byte " in line
