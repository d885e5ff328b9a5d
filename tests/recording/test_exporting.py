"""`rlwire export FILE foxglove`: curves, pictures and a layout, by MCAP's own reader."""

import base64
import json
from io import BytesIO

import numpy as np
import pytest
from mcap.reader import make_reader
from PIL import Image

from rlwire.cli import main
from rlwire.codecs.rlx import encode
from rlwire.recording import exporting
from rlwire.recording.messages import Packet, RecordedConnection
from tests.recording.test_dissecting import captured
from tests.recording.test_inspecting import packets

KINDS = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int}


def check(value, schema):
    """Hold a value against what JSON Schema says of it, with the words that the exporter uses."""
    limits = {"minimum", "maximum", "required"}
    assert schema.keys() <= {"title", "type", "properties", "items", "contentEncoding", *limits}
    if value is None:  # an array's number that is not finite
        assert schema["type"] == "number"
        return
    assert isinstance(value, KINDS[schema["type"]])
    for name, inner in schema.get("properties", {}).items():
        check(value[name], inner)
    for each in value if "items" in schema else ():
        check(each, schema["items"])


@pytest.fixture
def export(tmp_path, monkeypatch):
    def run(source, *options, status=0):
        monkeypatch.setattr(exporting, "packets", lambda path: iter(source))
        path = tmp_path / "run-foxglove.mcap"
        assert main(["export", str(tmp_path / "run.mcap"), "foxglove", *options]) == status
        found = {}
        if status:
            return None
        with path.open("rb") as file:
            for schema, channel, message in make_reader(file, validate_crcs=True).iter_messages():
                assert (schema.encoding, channel.message_encoding) == ("jsonschema", "json")
                value = json.loads(message.data)
                check(value, json.loads(schema.data))
                found.setdefault(channel.topic, []).append((schema.name, value))
        return found, json.loads(path.with_suffix(".json").read_text())

    return run


@pytest.mark.parametrize("label", ["rlx", "dm-env-rpc", "universe", "rllink"])
def test_export_plots_rewards_actions_and_observations(label, export):
    found, layout = export(packets(label))

    def values(name, key="value"):
        topics = (topic for topic in found if topic.endswith(f"/{name}"))
        return [value[key] for topic in topics for _, value in found[topic]]

    episodes = [episode[1:] for episode in captured(label)[1]]
    actions, observations, rewards, *_ = zip(*(s for each in episodes for s in each), strict=True)
    assert sorted(values("reward")) == sorted(rewards)
    assert sorted(values("return")) == sorted(sum(step[2] for step in each) for each in episodes)
    for name, sent in ("action", actions), ("observation", observations):
        got = values(name)
        assert all(any(np.allclose(each, value) for value in got) for each in sent)
    curves = [path["value"] for plot in layout["configById"].values() for path in plot["paths"]]
    topic = next(topic for topic in found if topic.endswith("/reward"))
    assert {f"{topic}.value", f"{topic.replace('reward', 'observation')}.value[2]"} <= {*curves}
    if label == "rlx":
        assert values("reward", "step") == list(range(1, len(rewards) + 1))
    assert layout["layout"] == {"direction": "column", "first": "Plot!1", "second": "Plot!2"}


def test_export_writes_images_as_compressed_images(export):
    image = np.random.default_rng(1).integers(0, 256, (40, 30, 3), np.uint8)
    states = [{"camera": image, "speed": 1.5, "far": float("nan")}, image]
    connection = RecordedConnection(2, "rlx", "server", "")
    sent = [
        encode({"command": "update", "reward": None, "state": state}, framed=True)
        for state in states
    ]
    found, layout = export([Packet(connection, True, 5.25, 1, data) for data in sent])
    ((name, picture),) = found["/2/image/camera"]
    assert name == "foxglove.CompressedImage"
    assert picture["timestamp"] == {"sec": 5, "nsec": 250_000_000}
    read = Image.open(BytesIO(base64.b64decode(picture["data"])))
    assert read.format.lower() == picture["format"] == "png"
    assert np.array_equal(read, image)
    assert [value["value"] for _, value in found["/2/observation"]] == [{"speed": 1.5}]
    assert layout["configById"]["Image!1"]["imageMode"]["imageTopic"] == "/2/image/camera"
    assert {layout["layout"][side] for side in ("first", "second")} == {*layout["configById"]}


def test_export_selects_one_connection(export):
    both = [*packets("rlx"), *packets("dm-env-rpc")]
    numbers = {packet.connection.number for packet in both}
    found, _ = export(both, "--connection", str(max(numbers)))
    assert {topic.split("/")[1] for topic in found} == {str(max(numbers))}


def test_export_of_an_unknown_connection_is_an_error(export, tmp_path, capsys):
    export(packets("rlx"), "--connection", "7", status=1)
    assert "the last connection is 1" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_export_plots_each_dict_entry_under_a_quoted_name(export):
    state = {"joint.pos": np.array([np.nan, 2.0]), "in": {'a"b\\': 1.5, "x-y": 2.0, "text": "no"}}
    sent = encode({"command": "update", "reward": None, "state": state}, framed=True)
    connection = RecordedConnection(1, "rlx", "server", "")
    found, layout = export([Packet(connection, True, 5.25, 1, sent)])
    assert found["/1/observation"][0][1]["value"]["joint.pos"] == [None, 2.0]
    assert {path["value"] for path in layout["configById"]["Plot!1"]["paths"]} == {
        '/1/observation.value."joint.pos"[0]',
        '/1/observation.value."joint.pos"[1]',
        r'/1/observation.value.in."a\"b\\"',
        "/1/observation.value.in.x-y",
    }
    assert exporting._name("/1/CartPole-v1:0/reward") == '"/1/CartPole-v1:0/reward"'


@pytest.mark.parametrize("suffix", ["mcap", "json"])
def test_export_overwrites_no_existing_file(suffix, export, tmp_path, capsys):
    existing = tmp_path / f"run-foxglove.{suffix}"
    existing.write_bytes(b"mine")
    export(packets("rlx"), status=1)
    assert existing.read_bytes() == b"mine"
    assert [*tmp_path.iterdir()] == [existing]
    assert existing.name in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"no recording"])
def test_export_of_an_invalid_file_creates_none(content, tmp_path, capsys):
    wrong = tmp_path / "run.mcap"
    if content:
        wrong.write_bytes(content)
    assert main(["export", str(wrong), "foxglove"]) == 1
    assert [*tmp_path.iterdir()] == [wrong] * bool(content)
    assert str(wrong) in capsys.readouterr().err
