"""Dissectors, by conversations of rlwire's clients and servers, and of others."""

import functools
import itertools
import json
from typing import Any

import gymnasium
import hpack
import numpy as np
import pytest

import rlwire
from rlwire.codecs import dm_env_rpc as dm
from rlwire.codecs.http2 import frames as http2
from rlwire.codecs.rllink import Codec, Episodes
from rlwire.codecs.rlx import encode
from rlwire.codecs.websocket.frames import FrameEncoder
from rlwire.errors import DecodeError
from rlwire.limits import Limits
from rlwire.recording.dissecting import dissector
from rlwire.recording.messages import Packet, RecordedConnection
from rlwire.recording.reading import messages
from rlwire.registry import PROTOCOLS
from rlwire.urls import parse_url
from rlwire.websocket import connect
from tests.conftest import _same
from tests.raising import raised
from tests.recording.captures import AgentAndPolicy, damage, dissected, relay

LABELS = [label for label in PROTOCOLS if label != "perlert"]


class Walk(gymnasium.Env[Any, Any]):
    """Episodes of three steps that terminate, and of four that are truncated, in turn."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.MultiDiscrete([3, 2])

    def __init__(self):
        self.episodes = []
        self._random = np.random.default_rng(1)

    def reset(self, *, seed=None, options=None):
        self.episodes.append([self._seen()])
        return self.episodes[-1][0], {}

    def step(self, action):
        size = len(self.episodes[-1])
        number = sum(len(episode) > 1 for episode in self.episodes) % 2
        ended, cut = size == 3 and not number, size == 4
        step = [np.array(action), self._seen(), size / 8, ended, cut]
        self.episodes[-1].append(step)
        return (*step[1:], {})

    def _seen(self):
        return self._random.uniform(-1, 1, 3).astype(np.float32)


class Both(Walk):
    """Episodes of three steps, the last of which is terminated and truncated."""

    def step(self, action):
        seen, reward, *_, info = super().step(action)
        ends = len(self.episodes[-1]) == 4
        self.episodes[-1][-1][3:] = [ends, ends]
        return seen, reward, ends, ends, info


@functools.cache
def captured(label, kind=Walk):
    """A conversation, and the episodes that were played, or what else was sent."""
    walk = kind()
    served = walk if PROTOCOLS[label].caller == "trainer" else AgentAndPolicy
    options = {"universe": {"lockstep": True}, "rllink": {"steps": 5}}.get(label, {})
    served = AgentAndPolicy() if label in ("openpi", "rllink") else served
    plus = "+" if label == "universe" else ""
    with rlwire.serve(served, f"{label}://127.0.0.1:{plus}0", **options) as server:
        port = parse_url(server.url).port or 0
        with relay(port) as relayed:
            facts = talk(label, str(server.url).replace(str(port), str(relayed.port)), walk)
    return relayed.chunks, facts


def talk(label, url, walk):
    if label == "openpi" and isinstance(walk, Both):
        rlwire.play(walk, url, episodes=2)
        return walk.episodes
    if label == "openpi":
        sent = [{"state": np.eye(3, dtype=np.float32), "n": {"a": i}} for i in range(3)]
        with rlwire.connect(url) as client:
            return sent, [client.infer(each) for each in sent]
    if label == "rlx-ws":
        steps = [{"command": "update", "reward": 0.5, "state": [i, 0.25]} for i in range(3)]
        texts, replies = [{"command": "init"}, *steps, {"command": "reset"}], []
        with connect(url.replace("rlx-ws", "ws")) as socket:
            for text in texts:
                socket.send(json.dumps({"sid": 7, **text}))
                replies.append(json.loads(socket.receive()))
        return texts, replies
    choose, episodes = AgentAndPolicy(), []
    if label in ("rlx", "rllink"):
        options = {"policy": lambda *_: np.array(choose.update())}
        rlwire.play(walk, url, episodes=4, **options if label == "rllink" else {})
        return walk.episodes
    with rlwire.make(url) as env:
        for _ in range(4):
            episodes.append([env.reset()[0]])
            while len(episodes[-1]) == 1 or not (episodes[-1][-1][3] or episodes[-1][-1][4]):
                action = np.array(choose.update())
                episodes[-1].append([action, *env.step(action)[:4]])
    return episodes


def messages_of(label):
    return dissected(dissector(label), captured(label)[0])


def played(messages):
    """Rewards and flags of each step, by episode."""
    episodes = []
    acted = False
    for step in (step for found in messages for step in found.steps):
        if step.begins:
            episodes.append([])
        elif step.reward is not None:
            assert acted
            assert step.has_observation
            episodes[-1].append([float(step.reward), step.terminated, step.truncated])
        acted = step.has_action
    # A rewarder begins an episode by itself after each one.
    return [episode for episode in episodes if episode]


def outcomes(episodes):
    return [[step[2:] for step in episode[1:]] for episode in episodes]


def of_kind(messages, kind):
    return [found.value for found in messages if found.kind == kind]


@pytest.mark.parametrize("label", ["rlx", "dm-env-rpc", "universe", "rllink"])
def test_dissected_steps_equal_the_played_episodes(label):
    messages, episodes = messages_of(label), captured(label)[1]
    assert not of_kind(messages, "damaged")
    assert [len(episode) for episode in episodes] == [5, 4, 5, 4]
    assert played(messages) == outcomes(episodes)


@pytest.mark.parametrize("label", ["rlx", "dm-env-rpc", "universe", "rllink", "openpi"])
def test_dissected_step_keeps_terminated_and_truncated(label):
    chunks, episodes = captured(label, Both)
    connection = RecordedConnection(1, label, "server", "")
    packets = [Packet(connection, up, 1, 1, data) for up, data in chunks]
    found = [each for message in messages(packets) for each in message.episodes]
    assert len(found) >= 2
    for each in found:
        assert (each.length, each.terminated, each.truncated) == (3, True, True)
    assert found[0].total == sum(step[2] for step in episodes[0][1:])


def test_dissected_values_equal_the_sent_values():
    sent, replies = captured("openpi")[1]
    messages = messages_of("openpi")
    assert _same(of_kind(messages, "observation"), sent)
    assert _same(of_kind(messages, "action"), replies)
    kinds = [found.kind for found in messages]
    assert (kinds[0], kinds[2], kinds[-2:]) == ("handshake", "metadata", ["close", "close"])

    texts, answers = captured("rlx-ws")[1]
    messages = messages_of("rlx-ws")
    for kind, name, sent in (("update", "state", texts), ("action", "data", answers)):
        values = [each[name].tolist() for each in of_kind(messages, kind)]
        assert values == [each[name] for each in sent[1:4]]
    begins = [found.steps[0].begins for found in messages if found.kind == "update"]
    assert begins == [True, False, False]

    messages = messages_of("dm-env-rpc")
    actions = [each["step"]["actions"] for each in of_kind(messages, "StepRequest")]
    played_ones = [step[0] for episode in captured("dm-env-rpc")[1] for step in episode[1:]]
    assert _same([each["action"] for each in actions if each], played_ones)
    seen = [each["step"]["observations"] for each in of_kind(messages, "StepResponse")]
    episodes = captured("dm-env-rpc")[1]
    shown = [array for first, *steps in episodes for array in (first, *(step[1] for step in steps))]
    assert _same([each["observation"] for each in seen], shown)
    results = of_kind(messages, "StepResponse")
    assert {each["step"]["state"] for each in results} == {"RUNNING", "TERMINATED", "INTERRUPTED"}
    assert of_kind(messages, "trailers")[0]["status"] == "OK"

    messages = messages_of("rllink")
    assert [found.kind for found in messages[:2]] == ["PING", "PONG"]
    assert _same(of_kind(messages, "SET_STATE")[0]["state"], {"w": np.arange(3.0)})


@pytest.mark.parametrize("label", LABELS)
def test_each_dissected_reply_has_its_request(label):
    made, asked, count = dissector(label), {}, 0
    for from_client, data in captured(label)[0]:
        for found in made.dissect(data, from_client):
            count += 1
            if found.reply_key is not None:
                asker, kind = asked.pop(found.reply_key)
                assert asker != from_client
                if label == "dm-env-rpc":
                    assert found.kind == kind.replace("Request", "Response")
            if found.request_key is not None:
                assert found.request_key not in asked
                asked[found.request_key] = from_client, found.kind
    assert count > 10
    assert not asked


@pytest.mark.parametrize("label", LABELS)
def test_dissection_does_not_depend_on_packet_boundaries(label):
    chunks = captured(label)[0]
    single = [(side, data[i : i + 1]) for side, data in chunks for i in range(len(data))]
    runs = itertools.groupby(chunks, lambda chunk: chunk[0])
    for cut in (single, [(side, b"".join(data for _, data in run)) for side, run in runs]):
        assert repr(dissected(dissector(label), cut)) == repr(messages_of(label))


@pytest.mark.parametrize("label", LABELS)
def test_dissection_resumes_after_a_gap(label):
    chunks, whole = captured(label)[0], messages_of(label)
    last = {side: index for index, (side, _) in enumerate(chunks)}
    for lost in range(1, min(last.values())):  # its side sends more, which shows the gap
        made, found, gaps = dissector(label), [], {True: 1, False: 1}
        for index, (side, data) in enumerate(chunks):
            cut = data[:-1] if index == lost - 1 else data
            if index != lost:
                found += made.dissect(cut, side, gaps.pop(side, 0) if index > lost else 0)
        assert any("1 packets" in each.error for each in found)
        if 2 < lost < len(chunks) - 8:
            assert [each.kind for each in found[-3:]] == [each.kind for each in whole[-3:]]
            if label != "dm-env-rpc":  # whose names may be lost
                assert _same(found[-1].value, whole[-1].value)


@pytest.mark.parametrize("label", LABELS)
def test_dissector_reports_damaged_bytes_without_raising(label):
    made = functools.partial(dissector, label, Limits(received=2**20))
    assert damage(made, captured(label)[0][:60]) > 150


def test_dissector_names_the_damaged_path_and_decodes_the_next_message():
    good = encode({"command": "update", "state": [1.0, "x"]}, framed=True)
    first, second = dissector("rlx").dissect(good.replace(b"x", b"\xff") + good, True)
    assert (first.kind, first.offset, first.size) == ("damaged", 0, len(good))
    assert "$.state[1]" in first.error
    assert "byte" in first.error
    assert (second.kind, second.offset) == ("update", len(good))
    made = dissector("rlx", Limits(received=10))
    (over,) = made.dissect(b"99999:x", True)
    assert "received=10" in over.error
    assert over.size == 7
    (after,) = made.dissect(b"x:", True)
    assert (after.kind, after.offset) == ("damaged", 7)


def test_dissectors_name_properties_and_refuse_messages_without_a_sid():
    request = dm.encode_request(dm.encode_property_request(dm.ReadPropertyRequest("wind")))
    found = dissector("dm-env-rpc").decode(request, True, 1)
    assert (found.kind, found.value["extension"]["key"]) == ("ReadPropertyRequest", "wind")
    for page in (b"[1]", b'{"sid": null}'):
        assert "sid" in str(raised(DecodeError, dissector("rlx-ws").decode, page, True, None))


def test_dissector_decodes_websocket_frames():
    client, server = (FrameEncoder(each) for each in (True, False))
    made = dissector("openpi")
    request = b"GET /x HTTP/1.1\r\nAuthorization: Basic abc\r\n\r\n"
    (head,) = made.dissect(request, True)
    assert head.value == {"line": "GET /x HTTP/1.1", "headers": {"Authorization": "(secret)"}}
    page = b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabc"
    (found,) = made.dissect(page, False)
    assert (found.value["body"], found.size) == (b"abc", len(page))
    value = b"\x81\xa1a\xc3"  # {"a": True}
    pieces = [client.frame(2, value[:1], False), client.frame(9, b"hi"), client.frame(0, value[1:])]
    ping, message = made.dissect(b"".join(pieces), True)
    assert (ping.kind, ping.value) == ("ping", b"hi")
    assert (message.kind, message.value) == ("observation", {"a": True})
    assert (message.offset, message.size) == (len(request), len(pieces[0] + pieces[2]))
    pieces = [server.frame(10, b"hi"), server.frame(1, b"no"), server.frame(8, b"\x03\xe8bye")]
    pong, text, close = made.dissect(b"".join(pieces), False)
    assert pong.reply_key == ping.request_key
    assert (text.kind, text.value) == ("error", "no")
    assert close.value == {"code": 1000, "reason": "bye"}
    (compressed,) = made.dissect(b"\xc2\x03abc", False)  # by an extension
    assert compressed.kind == "damaged"
    (bad,) = made.dissect(client.frame(2, b"\xc1"), True)
    (reply,) = made.dissect(server.frame(2, b"\x80"), False)
    assert (bad.kind, reply.kind) == ("damaged", "action")


def test_dissector_decodes_http2_frames():
    made = dissector("dm-env-rpc")
    block = hpack.Encoder().encode([(":path", "/x"), ("authorization", "me"), ("a" * 50, "b")])
    step = dm.encode_request(dm.ResetWorldRequest("sea", {"depth": np.arange(3)}))
    body = b"\0" + len(step).to_bytes(4, "big") + step
    (preface, *_) = made.dissect(http2.PREFACE + http2.settings({1: 100}), True)
    assert preface.kind == "preface"
    data = http2.frame(1, 8, 1, b"\x02" + block[:5] + b"??") + http2.frame(9, 4, 1, block[5:])
    (head,) = made.dissect(data, True)
    assert head.value["headers"] == {":path": "/x", "authorization": "(secret)", "a" * 50: "b"}
    data = http2.frame(77, 0, 1, b"unknown") + http2.frame(0, 8, 1, b"\x03" + body[:7] + b"???")
    one, two = made.dissect(data + http2.frame(0, 0, 1, body[7:] + body), True)
    assert one.kind == two.kind == "ResetWorldRequest"
    assert _same(one.value, two.value)
    assert _same(one.value["reset_world"]["settings"], {"depth": np.arange(3)})
    assert one.offset < two.offset
    (bad,) = made.dissect(http2.frame(2, 0, 5, b"four"), True)
    assert (bad.kind, bad.value) == ("damaged", {"stream": 5})
    made.dissect(http2.settings({}), False).__next__()
    for kind, flags, payload in ((0, 1, b"\0\0"), (1, 5, b"\x88")):  # which end a stream
        data = http2.frame(0, 0, 7, b"\0") + http2.frame(kind, flags, 7, payload)
        *_, bad = made.dissect(data, False)
        assert (bad.kind, bad.value) == ("damaged", {"stream": 7})
    data = http2.reset(1, 8) + http2.goaway(1, 2, "end")
    reset, away, bad = made.dissect(data + http2.frame(0, 0, 3, b"\x01\0\0\0\0"), True)
    assert reset.value == {"code": "CANCEL", "stream": 1}
    assert away.value == {"last": 1, "code": "INTERNAL_ERROR", "text": "end"}
    assert (bad.kind, bad.value) == ("damaged", {"stream": 3})


def test_http1_request_on_an_http2_port_is_damaged():
    made = dissector("dm-env-rpc")
    for _ in range(2):
        (found,) = made.dissect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", True)
        assert found.kind == "damaged"
        assert "HTTP/1" in found.error
    assert [each.kind for each in made.dissect(http2.PREFACE, True)] == ["preface"]


def test_dissector_decodes_steps_of_the_reference_client():
    """Over grpcio, whose HPACK uses its table and Huffman's code."""
    grpc = pytest.importorskip("grpc")
    dm_connection = pytest.importorskip("dm_env_rpc.v1.connection")
    dm_env_adaptor = pytest.importorskip("dm_env_rpc.v1.dm_env_adaptor")
    walk = Walk()
    with (
        # A factory, because the second call may begin before the server has ended the first.
        rlwire.serve(lambda: walk, "dm-env-rpc://127.0.0.1:0") as server,
        relay(parse_url(server.url).port or 0) as relayed,
        grpc.insecure_channel(f"127.0.0.1:{relayed.port}") as channel,
    ):
        for _ in range(2):  # two calls on one connection
            with dm_connection.Connection(channel) as connection:
                env, _ = dm_env_adaptor.create_and_join_world(connection, {}, {})
                env.reset()
                for i in range(3):
                    env.step({"action": np.array([i, 1])})
                env.close()
    messages = dissected(dissector("dm-env-rpc"), relayed.chunks)
    assert not of_kind(messages, "damaged")
    assert [len(episode) for episode in walk.episodes] == [4, 4]
    assert played(messages) == outcomes(walk.episodes)


def test_dissector_allocates_no_arrays_for_hostile_shapes():
    made = dissector("dm-env-rpc")
    specs = {1: dm.TensorSpec("reward", (2**20, 2**20), dm.DataType.UINT8)}
    join = dm.encode_response(dm.JoinWorldResponse(dm.ActionObservationSpecs({}, specs)))
    data = http2.settings({}) + http2.frame(0, 0, 1, b"\0" + len(join).to_bytes(4, "big") + join)
    *_, found = made.dissect(data, False)
    assert found.kind == "JoinWorldResponse"
    assert not found.steps
    column = np.zeros(2**18, np.uint8)
    many, few = (
        {"obs": column[:size], "actions": column[1:size], "rewards": column[1:size]}
        | {"is_terminated": True, "is_truncated": False}
        for size in (2**18, 4)
    )
    frame = Codec().encode(Episodes([many, few]))
    (found,) = dissector("rllink", Limits(expanded=2**26)).dissect(frame, True)
    assert len(found.steps) == 1 + 2 * 3
