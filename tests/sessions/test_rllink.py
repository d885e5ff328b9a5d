"""Who may say what when in RLlink."""

import base64
import gzip
import json

import numpy as np
import pytest

from rlwire.codecs import rllink as r
from rlwire.errors import DecodeError, LimitExceeded, LocalProtocolError, RemoteProtocolError
from rlwire.limits import Limits
from rlwire.sessions.rllink import RLlinkClientSession, RLlinkServerSession
from tests.memory import at_most
from tests.raising import raised, raised_with


def episode(steps=2):
    return r.Episode(np.zeros((steps + 1, 4), np.float32), np.zeros(steps, int), np.ones(steps))


joined = b"".join


def greeted(client, server):
    server.receive(joined(client.send(r.Ping())))
    [pong] = client.receive(joined(server.send(r.Pong())))
    assert type(pong) is r.Pong


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_client_and_server_exchange_config_episodes_and_weights(form):
    client, server = RLlinkClientSession(form=form), RLlinkServerSession()
    greeted(client, server)
    assert server.form == form
    assert type(server.receive(joined(client.send(r.GetConfig())))[0]) is r.GetConfig
    assert server.pending
    assert client.pending
    config = r.SetConfig(500, True)
    assert client.receive(joined(server.send(config))) == [config]
    server.receive(joined(client.send(r.Episodes([episode()], 2))))
    assert not server.pending
    assert not client.pending
    [got] = server.receive(joined(client.send(r.EpisodesAndGetState([episode(3)], 3, 1))))
    assert isinstance(got.episodes[0], r.Episode)
    assert len(got.episodes[0]) == 3
    [state] = client.receive(joined(server.send(r.SetState(2, None, b"onnx"))))
    assert (state.weights_seq_no, state.onnx) == (2, b"onnx")
    assert not (client.closed)
    assert not (server.closed)


@pytest.mark.parametrize("reply", [r.Pong(), r.SetConfig(), r.GetState()])
def test_client_rejects_unrequested_replies(reply):
    client = RLlinkClientSession()
    for message in (r.SetState(), r.Pong()):
        raised(LocalProtocolError, client.send, message)
    greeted(client, RLlinkServerSession())
    client.send(r.GetState())
    for message in (r.GetState(), r.Ping(), r.Episodes([])):
        raised(LocalProtocolError, client.send, message)
    raised(RemoteProtocolError, client.receive, r.Codec().encode(reply))
    raised(RemoteProtocolError, RLlinkClientSession().receive, r.Codec().encode(r.SetState()))


def test_server_sends_only_the_awaited_reply():
    server = RLlinkServerSession()
    raised(LocalProtocolError, server.send, r.SetState())
    server.receive(r.Codec().encode(r.GetConfig()))
    raised(LocalProtocolError, server.send, r.SetState())
    raised(RemoteProtocolError, server.receive, r.Codec().encode(r.GetState()))
    for message in (r.SetState(), r.Pong(), r.SetConfig()):
        with pytest.raises(RemoteProtocolError, match=type(message).__name__):
            RLlinkServerSession().receive(r.Codec().encode(message))


def test_ray_client_gets_replies_in_the_format_of_ray():
    server = RLlinkServerSession()
    server.receive(b"00000011\x81\xa4type\xa4PING")
    assert joined(server.send(r.Pong())) == b"00000011\x81\xa4type\xa4PONG"
    reported = r.Codec().decode(joined(server.reject(DecodeError("wrong"))))
    assert "wrong" in reported.message  # rlwire's own message, after the first one only
    assert server.closed
    assert server.reject(DecodeError("again")) == []
    assert RLlinkServerSession().reject(DecodeError("wrong")) == []


def test_client_sends_brief_episodes_except_to_ray():
    client = RLlinkClientSession()
    for pong, whole in ((b"00000011\x81\xa4type\xa4PONG", True), (None, False)):
        if pong is None:
            greeted(client, RLlinkServerSession())
        else:
            client.send(r.Ping())
            client.receive(pong)
        [state] = r.Codec().decode(joined(client.send(r.Episodes([episode()])))).episodes
        assert ("infos" in state) is ("agent_id" in state) is whole
        assert isinstance(state["rewards"], dict if whole else np.ndarray)


def test_server_rejects_a_missing_or_wrong_token():
    greeted(RLlinkClientSession(token="s"), RLlinkServerSession(token="s"))
    for client, words in (
        (RLlinkClientSession(token="t"), "wrong token"),
        (RLlinkClientSession(), "none"),
    ):
        server = RLlinkServerSession(token="s")
        with pytest.raises(RemoteProtocolError, match=words) as caught:
            server.receive(joined(client.send(r.Ping())))
        assert joined(server.reject(caught.value)) == b""  # a stranger hears no reason
    caught = raised(
        RemoteProtocolError, RLlinkServerSession(token="s").receive, r.Codec().encode(r.GetState())
    )
    assert "token" in str(caught)


def test_frames_before_the_token_are_limited_to_4_kib():
    server = RLlinkServerSession(token="s", limits=Limits(received=10_000))
    caught = raised(LimitExceeded, server.frame_size, b"00004089", 0, 8)
    assert (caught.maximum, caught.size) == (4088, 4089)
    assert server.frame_size(b"00004088", 0, 8) == 4096
    greeted(RLlinkClientSession(token="s"), server)
    assert server.frame_size(b"00010000", 0, 8) == 10_008
    server = RLlinkServerSession(limits=Limits(received=10_000))
    assert server.frame_size(b"00010000", 0, 8) == 10_008
    assert raised(LimitExceeded, server.frame_size, b"00010001", 0, 8).limit == "received"
    assert RLlinkServerSession(token="s" * 3000)
    assert "4100" in str(raised(ValueError, RLlinkServerSession, token="s" * 4100))


def first_frames():
    zeros = base64.b64encode(gzip.compress(bytes(2_000_000))).decode()
    codec, state = r.Codec(), {"type": "SET_STATE", "onnx_file": zeros}
    return {
        "a file": b"%08d" % len(text := json.dumps(state).encode()) + text,
        "items in msgpack": b"%08d" % 4088 + b"\xdc\x0f\xf5" + bytes(4085),
        "items in JSON": b"%08d" % 4088 + b'{"type":[' + b"[]," * 1359 + b"0]",
        "episodes": codec.encode(r.Episodes([{} for _ in range(4000)])),
        "weights": codec.encode(r.SetState(1, {"w": np.zeros(900, np.float32)})),
    }


@pytest.mark.parametrize("name", first_frames())
def test_frames_before_the_token_allocate_bounded_memory(name):
    frame = first_frames()[name]
    server = RLlinkServerSession(token="s")
    with at_most(300_000):
        raised((DecodeError, RemoteProtocolError), server.receive, frame)
    assert not server.pending


def test_unrequested_file_is_not_decompressed():
    """A file's gzip is unpacked only where a SET_STATE is awaited."""
    bomb = base64.b64encode(gzip.compress(bytes(1_000_000))).decode()
    text = json.dumps({"type": "SET_STATE", "onnx_file": bomb}).encode()
    frame = b"%08d" % len(text) + text
    for side in (
        RLlinkServerSession(limits=Limits(expanded=100_000)),
        RLlinkClientSession(limits=Limits(expanded=100_000)),
    ):
        with pytest.raises((RemoteProtocolError, LimitExceeded)) as caught:
            side.receive(frame)
        assert caught.type is RemoteProtocolError


def test_timesteps_must_equal_the_steps_of_the_episodes():
    server, good, wrong = RLlinkServerSession(), episode(2).to_state(), episode(2).to_state()
    wrong["actions"]["data"] = np.zeros(5)
    for steps in (1, 3):
        frame = r.Codec().encode(r.EpisodesAndGetState([good], steps))
        raised_with(DecodeError, f"timesteps is {steps}, .* 2 steps", server.receive, frame)
    for invalid in (wrong, 1):
        frame = r.Codec().encode(r.Episodes([good, invalid]))
        assert raised(DecodeError, server.receive, frame).path == "$.episodes[1]"
    assert not server.pending


def test_receive_whole_accepts_only_one_complete_frame():
    frame = r.Codec().encode(r.Ping())
    assert RLlinkServerSession().receive_whole(bytearray(frame), len(frame)) == [r.Ping()]
    assert RLlinkServerSession().receive_whole(bytearray(frame + frame), 2 * len(frame)) is None
    assert RLlinkServerSession().receive_whole(bytearray(frame), len(frame) - 1) is None


def test_received_arrays_are_writable():
    frame = r.Codec().encode(r.Episodes([episode(500).to_state()], 500))
    for whole in (frame, bytearray(frame)):
        [message] = RLlinkServerSession().receive(whole)
        message.episodes[0].rewards[0] = 5
        assert message.episodes[0].rewards[0] == 5
