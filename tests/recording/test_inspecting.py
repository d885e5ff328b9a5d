"""`rlwire inspect`, of real conversations."""

import base64
import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import rlwire
from rlwire.cli import main
from rlwire.codecs.http2.frames import frame, settings
from rlwire.codecs.rfb.messages import RGBX, Encoding, SetPixelFormat
from rlwire.codecs.rfb.messages import encode as encode_rfb
from rlwire.codecs.rlx import encode
from rlwire.errors import LimitExceeded
from rlwire.limits import Limits
from rlwire.recording import files, reading
from rlwire.recording.inspecting import LISTED, as_json, brief, condition
from rlwire.recording.messages import Budget, Packet, RecordedConnection
from rlwire.recording.reading import messages
from tests.conftest import _same
from tests.programs import running
from tests.raising import raised
from tests.recording.captures import finish
from tests.recording.test_dissecting import LABELS, Walk, captured, talk
from tests.sessions.rfb.test_client import FILL, greeting, init, sign, update


def packets(label, number=1):
    """A conversation, one packet a millisecond."""
    connection = RecordedConnection(number, label, "server", "127.0.0.1:1")
    found = [
        Packet(connection, up, 1e9 + place / 1e3, 5 + place / 1e3, data)
        for place, (up, data) in enumerate(captured(label)[0])
    ]
    return [*found, replace(found[-1], data=b"", ended="so it was")]


@pytest.fixture
def inspect(monkeypatch, capsys):
    """The lines of a command, or the objects and arrays of its JSON."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments, of=None):
        source = packets("dm-env-rpc") if of is None else of
        monkeypatch.setattr(files, "packets", lambda path: iter(source))
        assert main(["inspect", "file", *arguments]) == 0
        lines = capsys.readouterr().out.splitlines()
        if "--json" in arguments:
            return list(map(loaded, lines))
        heads = ["time", "#", "kind", "bytes", "step", "value"]
        assert "--statistics" in arguments or lines[0].split() == heads
        return lines if "--statistics" in arguments else lines[1:]

    return run


def loaded(text):
    def unpacked(value):
        if [*value][:2] != ["dtype", "shape"]:
            return value
        flat = np.array(value.get("values", []), value["dtype"])
        if "base64" in value:
            flat = np.frombuffer(base64.b64decode(value["base64"]), value["dtype"])
        return flat.reshape(value["shape"])

    return json.loads(text, object_hook=unpacked)


@pytest.mark.parametrize("label", LABELS)
def test_inspect_prints_one_line_per_message(label, inspect):
    found = list(messages(packets(label)))
    lines, objects = inspect("--all", of=packets(label)), inspect("--json", of=packets(label))
    for line, reported, message in zip(lines, objects, found, strict=True):
        assert len(line) <= 160
        assert line.isprintable()
        up, kind, size = message.packet.from_client, message.decoded.kind, message.decoded.size
        facts = [f"{message.seconds:.6f}", "1", "->" if up else "<-", kind, str(size)]
        assert line.split()[:5] == facts
        assert (reported["kind"], reported["bytes"]) == (kind, size)
        assert reported["from"] == ("client" if up else "server")
    assert [each["value"] for each in objects if each["kind"] == "closed"] == ["so it was"]


def test_inspect_finds_a_step_by_number_and_by_episode(inspect):
    episodes = captured("dm-env-rpc")[1]
    number = len(episodes[0]) + 1  # the second step of the second episode
    action, observation, reward, *_ = episodes[1][2]
    for words in (["--step", str(number)], ["--step", "2", "--episode", "2"]):
        asked, answer = inspect("--json", *words)
        assert _same(asked["value"]["step"]["actions"]["action"], action.astype(np.int64))
        seen = answer["value"]["step"]["observations"]
        assert _same(seen["observation"], observation)
        assert seen["reward"] == reward
        assert answer["steps"] == [{"step": number, "episode": 2, "step_in_episode": 2}]
        assert [f" #{number} " in line for line in inspect(*words)] == [True, True]


@pytest.mark.parametrize(
    ("words", "keep"),
    [
        ("--kind StepRequest --kind update", lambda x: x["kind"] in ("StepRequest", "update")),
        ("--connection 2", lambda x: x["connection"] == 2),
        ("--from 0.005 --to 0.012", lambda x: 0.005 <= x["time"] <= 0.012),
        ("--where reward>=0.25", lambda x: (content(x).get("reward") or 0) >= 0.25),
    ],
)
def test_filters_select_messages(words, keep, inspect):
    both = sorted([*packets("dm-env-rpc"), *packets("rlx", 2)], key=lambda each: each.monotonic)
    everything = inspect("--json", of=both)
    expected = [each for each in everything if keep(each)]
    assert 0 < len(expected) < len(everything)
    assert _same(inspect("--json", *words.split(), of=both), expected)


def test_inspect_shows_transport_frames_on_request(inspect):
    carrier = {"preface", "SETTINGS", "WINDOW_UPDATE"}

    def kinds(*words):
        return {line.split()[3] for line in inspect(*words)}

    assert carrier & kinds() == set()
    assert carrier < kinds("--all") | {"WINDOW_UPDATE"}
    assert kinds("--kind", "SETTINGS") == {"SETTINGS"}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("--kind StepRequset", "StepRequest"),
        ("--step 99999", "the last step is 1"),
        ("--episode 77", "the last episode is "),
        ("--connection 5", "the last connection is 1"),
        ("--where step.actoins.action", "step.actions.action"),
        ("--where step.actoins", "step.actions, "),
        (
            "--where step.actions.action==9",
            "'step.actions.action' has values such as int64[2] 0 0, ",
        ),
        ("--from 9999", "the last message is at 0."),
        ("--where step.actions.action>=0 --kind PreFace --step 9", "there is no kind"),
        ("--where step.actions.action==1 --kind StepResponse", "try fewer conditions"),
    ],
)
def test_empty_selection_is_an_error_with_the_nearest_name(words, hint, monkeypatch, capsys):
    monkeypatch.setattr(files, "packets", lambda path: iter(packets("dm-env-rpc")))
    assert main(["inspect", "file", *words.split()]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert hint in err


def test_brief_puts_action_and_reward_first_and_shortens_arrays():
    value = {"observation": np.arange(9.0), "reward": 2.0, "action": np.int64(1)}
    assert brief(value, 80) == "action=1 reward=2 observation=float64[9] 0 1 2 ... 8"


def content(reported):
    return reported["value"] if isinstance(reported["value"], dict) else {}


PARTS = {"b": np.array([1.0, -2.0]), "text": "go", "5": "5"}
VALUE = {"a": PARTS, "n": [3, {"x": True}], "none": None}


TRUE = ["a.b", "none", "n[1].x", "a.b > 0.5", "a.b <= -2", "a.text = go", "a.text = 'go'", "n[0]=3"]
TRUE += ["n[0] >= 3", "n[1].x = true", "a.5 = 5", "n[0] != x", "n[0] == 3"]
FALSE = ["a.c", "n[2]", "a.b[1]>0", "a.b < -2", "a.text != go", "n.0 != 3", "n[1].x = false"]
FALSE += ["a > 1", "none > 1", "n[0] = x", "a.5 = 5.0", "a.b = go", "a.b.__class__", "a.text.upper"]
FALSE += ["a.b[7]", "n[0] = ", "n[0] == =3"]  # an empty text, and one that begins with =


@pytest.mark.parametrize("text", TRUE + FALSE)
def test_conditions_select_by_value(text):
    assert condition(text)(VALUE) is (text in TRUE)


@pytest.mark.parametrize("text", ["", "= 3", "a b", "a ! 3"])
def test_invalid_condition_is_a_usage_error(text, capsys):
    assert raised(SystemExit, main, ["inspect", "file", "--where", text]).code == 2
    assert "--where" in capsys.readouterr().err


def test_statistics_count_messages_latencies_and_episodes(inspect):
    rows, found = inspect("--statistics", "--json"), list(messages(packets("dm-env-rpc")))
    kinds, ended = [x for x in rows if "kind" in x], [x for x in rows if "return" in x]
    assert sum(row["messages"] for row in kinds) == len(found)
    assert sum(row["bytes"] for row in kinds) == sum(each.decoded.size for each in found)
    (asked,) = [row for row in kinds if row["kind"] == "StepRequest"]
    assert 0.99 < asked["median_ms"] <= asked["90%_ms"] <= asked["99%_ms"]  # a packet a millisecond
    assert asked["per_second"] == asked["messages"] / found[-1].seconds
    episodes = captured("dm-env-rpc")[1]
    ends = ["truncated" if episode[-1][4] else "terminated" for episode in episodes]
    totals = [sum(step[2] for step in episode[1:]) for episode in episodes]
    expected = list(zip(totals, [len(x) - 1 for x in episodes], ends, strict=True))
    assert [(row["return"], row["steps"], row["end"]) for row in ended] == expected
    assert len(inspect("--statistics")) == len(rows) + 2

    last = [each for each in found if each.episodes][-1]
    after = inspect("--statistics", "--json", "--from", str(last.seconds))
    assert [row for row in after if "return" in row] == ended[-1:]
    some = [x for x in packets("dm-env-rpc") if x.monotonic < last.packet.monotonic]
    assert inspect("--statistics", "--json", of=some)[-1]["end"] == "unfinished"


def test_inspect_prints_the_offset_of_a_damaged_message(inspect):
    some = packets("rlx")
    some[9] = replace(some[9], data=b"12a:")
    (line,) = [line for line in inspect(of=some) if " damaged " in line]
    assert " at " in line
    assert line.isprintable()


def test_gap_ends_the_episode(inspect):
    some = packets("rlx")
    some[9].gap = 3
    assert any(line.split()[3:] == ["gap", "0", "3"] for line in inspect(of=some))
    assert "unfinished" in [row.get("end") for row in inspect("--statistics", "--json", of=some)]


def test_inspect_prints_bytes_of_an_unknown_protocol(inspect):
    connection = RecordedConnection(1, "morse", "client", "x")
    assert "bytes[3] 010203" in inspect(of=[Packet(connection, True, 1, 1, b"\1\2\3")])[0]


@pytest.mark.parametrize(
    "value",
    [
        *[np.arange(6).reshape(2, 3).astype(dtype) for dtype in ("u1", ">i4", "f2", "?")],
        np.random.default_rng(1).random(LISTED + 1),
        {"x": [1, "a", None, True, {"y": np.array(["a", "b"])}], "1": 2**70},
    ],
)
def test_json_output_round_trips_values(value):
    assert _same(loaded(json.dumps(as_json(value), allow_nan=False)), value)


def test_json_output_encodes_nonfinite_numbers_and_bytes():
    odd = {1: [math.inf, np.float32("nan")], "b": b"\0\1", "o": np.array([None, b"x"], object)}
    reported = json.loads(json.dumps(as_json(odd), allow_nan=False))
    assert (reported["1"], reported["b"]) == (["inf", "nan"], {"base64": "AAE="})


def test_brief_escapes_control_characters_of_a_peer():
    text = "\x1b]0;x\x07\r\n\u202e"
    value = {text: text, "a": np.array([text]), "l": [text], "k": {text: {text: text.encode()}}}
    for most in range(3, 200):
        line = brief(value, most)
        assert line.isprintable()
        assert len(line) <= most


def test_inspect_writes_images_to_files(tmp_path, inspect):
    noise = np.random.default_rng(5).integers(0, 256, (9, 8, 4), np.uint8)
    grey, colours = noise[..., 0], noise[..., :3]
    none = [noise[:7], noise[..., :2], noise.astype(np.float32), noise[0]]
    states = [grey, [colours, *none], noise[..., :1], noise]
    data = encode({"command": "update", "state": states}, framed=True)
    to = tmp_path / "new" / "folder"
    packet = Packet(RecordedConnection(1, "rlx", "client", ""), True, 1, 1, data)
    (line, _) = inspect("--images", str(to), of=[packet])
    files = sorted(to.iterdir())
    expected = [grey, colours, grey, noise[..., 3]]
    assert _same([np.array(Image.open(each)) for each in files], expected)
    assert all(f"[{each.name}] " in line for each in files)


def test_inspect_command_prints_a_recorded_file(tmp_path, capsys):
    file = tmp_path / "run.mcap"
    with rlwire.serve(Walk(), "dm-env-rpc://127.0.0.1:0") as server:
        talk("dm-env-rpc", f"{server.url}?record={file}", Walk())
    finish()
    capsys.readouterr()
    assert main(["inspect", str(file), "--wall"]) == 0
    _head, *lines = capsys.readouterr().out.splitlines()
    assert sum(" StepRequest " in line for line in lines) > 14
    assert all(line.startswith("20") for line in lines)  # the century
    command = [sys.executable, "-m", "rlwire", "inspect", str(file), "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running(command, **pipes) as process:
        assert b"preface" in process.stdout.readline()
        process.stdout.close()  # as `| head -1` does
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_inspect_reports_a_foreign_file_in_one_line(tmp_path, capsys):
    file = tmp_path / "foreign"
    file.write_bytes(b"\x89PNG and so on")
    assert main(["inspect", str(file)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(file) in line
    assert "byte " in line


def rfb(*updates, size=256):
    """A viewer's connection, in packets that pay for nothing."""
    hello = greeting()[: -len(init())] + init(size, size)
    asked = b"RFB 003.008\n\1\1" + encode_rfb(SetPixelFormat(RGBX))
    connection = RecordedConnection(1, "rfb", "client", "")
    data = [(False, hello[:12]), (True, asked), (False, hello[12:]), *((False, x) for x in updates)]
    return [Packet(connection, up, 1, 1, each) for up, each in data]


PIXELS = {
    "fills": update(*[FILL] * 4),
    "sizes": b"".join(update(sign(Encoding.DESKTOP_SIZE, 0, 0, 256, 255 + x)) for x in (0, 1)),
}


@pytest.mark.parametrize("kind", PIXELS)
def test_screens_are_decoded_within_one_pixel_budget(kind):
    budget = Budget(pixels=2**20)
    found = list(messages(rfb(*[PIXELS[kind]] * 16), budget=budget))
    shown = ["screen" in x.decoded.value for x in found if x.decoded.kind == "FramebufferUpdate"]
    assert shown[0]
    assert not shown[-1]
    assert -(2**20) < budget.pixels < 2**16
    budget.pay(2**10)  # what comes later pays for its own pixels
    (*_, last, _) = messages(rfb(*[PIXELS["fills"]] * 8), budget=budget)
    assert "screen" in last.decoded.value


def test_json_includes_screens_within_the_budget():
    budget, lines = Budget(written=300_000), []
    for message in messages(rfb(*[update(FILL[:4] + b"\0\1\0\1" + FILL[8:])] * 9)):
        lines.append(json.dumps(as_json(message.decoded.value, budget)))
    assert sum("base64" in line for line in lines) == 1
    assert sum("196608 bytes" in line for line in lines) == 8
    assert sum(map(len, lines)) < 300_000


def test_messages_are_decoded_within_one_budget():
    found = messages(packets("dm-env-rpc"), budget=Budget(messages=10))
    assert len([next(found) for _ in range(10)]) == 10
    assert raised(LimitExceeded, next, found).limit == "messages"


WAITING = {
    "rlx": b"99999:",
    "rllink": b"00099999",
    "openpi": b"\x02\x7f" + (99_999).to_bytes(8, "big"),
    "dm-env-rpc": settings({}) + frame(0, 0, 1, b"\0\0\1\x86\x9f" + bytes(16_000)),
}


@pytest.mark.parametrize("label", WAITING)
def test_connections_share_the_memory_for_incomplete_messages(label, monkeypatch, caplog):
    monkeypatch.setattr(reading, "DEFAULT", Limits(expanded=100_000))
    small, large = packets(label), WAITING[label] + bytes(0 if "dm" in label else 16_000)
    loud = [
        Packet(RecordedConnection(number, label, "server", ""), False, 1, 1, large)
        for number in range(2, 22)
    ]
    found = list(messages([*small[:10], *loud, *small[10:]]))
    forgotten = [x for x in found if "forgotten" in str(x.decoded.value)]
    assert len(forgotten) == 14
    assert 1 not in [x.packet.connection.number for x in forgotten]
    mine = [x.decoded.kind for x in found if x.packet.connection.number == 1]
    assert mine == [x.decoded.kind for x in messages(small)]
    assert caplog.text.count("forgotten") == 1
    monkeypatch.setattr(reading, "_DECODERS", 5)
    *_, last = messages([*loud, replace(loud[0], from_client=True)])
    assert last.decoded.value == "the recording ends"
