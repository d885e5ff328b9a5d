"""PERLERT's messages: the draft's examples, each field both ways, limits, bad input by the ton."""

from contextlib import suppress

import numpy as np
import pytest

from rlwire.codecs import perlert as p
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.codecs.perlert.messages import as_tuple
from tests.raising import raised

SLOT = p.AgentSlot("agent0", True, "citizen", "cpu", True)
STEP = p.RolloutStep(
    *("city", 7, 1590853116323, 0, "x:0.54,y:0.95", 1.5, False), "did_jump:true,jump_length:6.84"
)

# Figure 1 of the draft, and the examples of its section 3.
CLIENT = {
    b"city:7;lobby": p.LobbyRequest("city", 7),
    b"city:7;register=agent0,patrick": p.Register("city", 7, "agent0", "patrick"),
    b"city:7;register=agent0,john_doe_q_learning": p.Register(
        "city", 7, "agent0", "john_doe_q_learning"
    ),
    b"city:7;ready=agent0,true": p.Ready("city", 7, "agent0", True),
    b"city:7;ready=agent0,false": p.Ready("city", 7, "agent0", False),
    b"city:7;action=walk": p.Action("city", 7, "walk"),
    b"cartpole:0;action=move_left": p.Action("cartpole", 0, "move_left"),
    b"cartpole:0;action=5,6.78": p.Action("cartpole", 0, "5,6.78"),
}
SERVER = {
    b"city:7;agent0=open,citizen,cpu,ready": p.LobbyInformation("city", 7, (SLOT,)),
    b"city:7;agent0=close,citizen,patrick,ready": p.LobbyInformation(
        "city", 7, (p.AgentSlot("agent0", False, "citizen", "patrick", True),)
    ),
    b"city:7;a=open,zombie,,not_ready;b=close,,z,ready": p.LobbyInformation(
        "city", 7,
        (p.AgentSlot("a", True, "zombie", "", False), p.AgentSlot("b", False, "", "z", True)),
    ),
    b"city:7;registered=agent0": p.Registered("city", 7, "agent0"),
    b"city:7;message=Simulation will start...": p.LobbyMessage(
        "city", 7, "Simulation will start..."
    ),
    b"city:7;message=a;": p.LobbyMessage("city", 7, "a;"),
    b"city:7;start=port:32323": p.Start("city", 7, 32323),
    **{
        b"city:7:%d:0;obs=%d;reward=%d;done=%s" % (stamp, seen, reward, done): p.RolloutStep(
            "city", 7, stamp, 0, str(seen), float(reward), done == b"true"
        )
        for stamp, seen, reward, done in [
            (1590853116323, 45, 0, b"false"), (1590853121058, 47, 0, b"false"),
            (1590853126423, 48, 1, b"false"), (1590853130429, 49, 0, b"false"),
            (1590853134833, 51, 1, b"true"),
        ]
    },
    (
        b"city:7:1590853116323:0;obs=x:0.54,y:0.95;reward=1.5;done=false;"
        b"extra=did_jump:true,jump_length:6.84"
    ): STEP,
}  # fmt: skip
MESSAGES = [*CLIENT.values(), *SERVER.values()]


@pytest.mark.parametrize("datagram", CLIENT)
def test_client_message_examples_round_trip(datagram):
    assert p.decode_client_message(datagram) == CLIENT[datagram]
    assert p.encode(CLIENT[datagram]) == datagram


@pytest.mark.parametrize("datagram", SERVER)
def test_server_message_examples_round_trip(datagram):
    assert p.decode_server_message(datagram) == SERVER[datagram]
    assert p.encode(SERVER[datagram]) == datagram


def test_encoder_rejects_fields_of_wrong_types_and_ranges():
    assert p.Start("city", np.int64(7), np.uint16(5)) == p.Start("city", 7, 5)
    assert p.encode(p.Action("city", np.int64(7), np.str_("walk"))) == b"city:7;action=walk"
    for field, *messages in (
        ("SERVER_INSTANCE_NUMBER", *(p.LobbyRequest("city", number) for number in (-1, 2**63))),
        ("SERVER_INSTANCE_NUMBER", p.Action("city", -1, "")),
        ("SERVER_ROLLOUT_PORT", *(p.Start("city", 7, port) for port in (0, 65536, 2**64))),
        ("TIMESTAMP", p.RolloutStep("city", 7, -1, 0, "", 0, False)),
        ("STEP_NUMBER", p.RolloutStep("city", 7, 0, 2**63, "", 0, False)),
    ):
        for message in messages:
            assert raised(EncodeError, p.encode, message).path == field
    for kind, *wrong in (
        *((p.LobbyRequest, "7"), (p.LobbyRequest, 7.0), (p.Register, 7, None, "t")),
        *((p.Action, 7, 5), (p.Action, 7, None), (p.LobbyInformation, 7, ["agent0"])),
        *((p.RolloutStep, 7, 0, 0, "", reward, False) for reward in (b"1", None)),
        (p.RolloutStep, 7, 0, 0, {"x": 1}, 0, False),
    ):
        raised(TypeError, p.encode, kind("city", *wrong))


def decode_any(datagram, **options):
    found = []
    for decode in (p.decode_client_message, p.decode_server_message):
        try:
            found.append(decode(datagram, **options))
        except DecodeError:
            continue
    assert len(found) < 2
    return found[0] if found else None


ONE_OF_EACH = [
    (p.LobbyRequest, "name", 7), (p.Register, "name", 7, "key", "tag"),
    (p.Ready, "name", 7, "key", True), (p.Action, "name", 7, "action"),
    (p.Registered, "name", 7, "key"), (p.LobbyMessage, "name", 7, "x"),
    (p.RolloutStep, "name", 7, 1, 2, "seen", "reward", True, "extra"),
    (p.AgentSlot, "key", True, "kind", "tag", True),
]  # fmt: skip


def with_text(text):
    """Every message with this text in every field that has one."""
    for kind, *fields in ONE_OF_EACH:
        for at, value in enumerate(fields):
            if isinstance(value, str):
                made = kind(*fields[:at], text, *fields[at + 1 :])
                yield p.LobbyInformation("name", 7, (SLOT, made)) if kind is p.AgentSlot else made


@pytest.mark.parametrize("mark", ":;,=")
def test_encoder_rejects_separator_characters_in_fields(perlert_oracle, mark):
    """A message with one would be read as another, or as none."""
    for message in with_text(f"a{mark}b"):
        wire = perlert_oracle.encode(as_tuple(message))
        readings = []
        for decode in (perlert_oracle.decode_client, perlert_oracle.decode_server):
            with suppress(perlert_oracle.Wrong):
                readings.append(decode(wire))
        if readings == [as_tuple(message)]:
            assert decode_any(p.encode(message)) == message
            continue
        assert decode_any(wire) != message
        caught = raised(EncodeError, p.encode, message)
        assert repr(mark) in str(caught)
        assert caught.path.isupper()


@pytest.mark.parametrize("message", MESSAGES)
def test_trailing_semicolon_is_accepted(message):
    if not isinstance(message, p.LobbyMessage):
        assert decode_any(p.encode(message) + b";") == message
        for wrong in (b";;", b"; ", b";,"):
            assert decode_any(p.encode(message) + wrong) is None


def test_header_numbers_are_63_bit_naturals():
    for text, number in ((b"0", 0), (b"007", 7), (b"9223372036854775807", 2**63 - 1)):
        assert p.decode_client_message(b"n:" + text + b";lobby") == p.LobbyRequest("n", number)
    assert p.decode_client_message(b"n:" + b"0" * 900 + b"7;lobby").number == 7
    assert p.encode(p.LobbyRequest("n", 7)) == b"n:7;lobby"
    for text in [*b"-1 +1 1.0 1_0 \xd9\xa1 9223372036854775808".split(), b"", b" 1", b"1 "]:
        raised(DecodeError, p.decode_client_message, b"n:" + text + b";lobby")
        raised(DecodeError, p.decode_server_message, b"n:1:" + text + b":0;obs=;reward=;done=true")
        raised(DecodeError, p.decode_server_message, b"n:1:0:" + text + b";obs=;reward=;done=true")
        raised(DecodeError, p.decode_server_message, b"n:1;start=port:" + text)


@pytest.mark.parametrize(
    ("datagram", "offset", "path"),
    [
        (b"", 0, "SERVER_INSTANCE_NAME"), (b":7;lobby", 0, "SERVER_INSTANCE_NAME"),
        (b"city:x;lobby", 5, "SERVER_INSTANCE_NUMBER"), (b"city:7;looby", 7, "body"),
        (b"city:7;lobby ", 12, "body"), (b"city:7;register=a,b,c", 19, "AGENT_TAG"),
        (b"city:7;ready=a,yes", 15, "BOOL_VALUE"), (b"city:7;action=a=b", 15, "ACTION"),
        (b"city\x80:7;lobby", 4, ""),
    ],
)  # fmt: skip
def test_invalid_client_datagrams_fail_at_their_offset_and_path(datagram, offset, path):
    caught = raised(DecodeError, p.decode_client_message, datagram)
    assert (caught.offset, caught.path) == (offset, path)
    # Inside a larger buffer the offset counts from where the view begins.
    again = raised(DecodeError, p.decode_client_message, memoryview(b"..." + datagram)[3:])
    assert str(again) == str(caught)


@pytest.mark.parametrize(
    ("datagram", "offset", "path"),
    [
        (b"city:7;", 7, "AGENT_KEY"), (b"city:7;lobby", 7, "AGENT_KEY"),
        (b"city:7;=open,a,b,ready", 7, "AGENT_KEY"),
        (b"city:7;a=opened,a,b,ready", 9, "SLOT_STATUS"),
        (b"city:7;a=open,a:,b,ready", 15, "AGENT_KIND"),
        (b"city:7;a=open,a,b=,ready", 17, "AGENT_TAG"),
        (b"city:7;a=open,a,b,Ready", 18, "READY_STATUS"),
        (b"city:7;a=open,a,b,ready,", 23, "READY_STATUS"),
        (b"city:7;a=open,a,b,ready;;", 24, "AGENT_KEY"), (b"city:7;registered=", 18, "AGENT_KEY"),
        (b"city:7;registered=a;;", 19, "AGENT_KEY"),
        (b"city:7;start=open,a,b,ready", 7, "SERVER_ROLLOUT_PORT"),
        (b"city:7;registered=open,a,b,ready", 22, "AGENT_KEY"),
        (b"city:7;obs=open,a,b,ready", 6, "TIMESTAMP"),
        (b"city:7;start=port:", 18, "SERVER_ROLLOUT_PORT"),
        (b"city:7;start=port:0", 18, "SERVER_ROLLOUT_PORT"),
        (b"city:7;start=port:65536", 18, "SERVER_ROLLOUT_PORT"),
        (b"city:7;start=port:5x", 18, "SERVER_ROLLOUT_PORT"),
        (b"city:7;start=port:5;;", 19, "SERVER_ROLLOUT_PORT"), (b"city:7:", 7, "TIMESTAMP"),
        (b"city:7:1;obs=", 8, "STEP_NUMBER"), (b"city:7:1:;obs=", 9, "STEP_NUMBER"),
        (b"city:7:1:2:3;obs=", 10, "OBSERVATION"), (b"city:7:1:2;message=", 10, "OBSERVATION"),
        (b"city:7:1:2;obs=5", 15, "OBSERVATION"), (b"city:7:1:2;obs=a=;reward=", 16, "OBSERVATION"),
        (b"city:7:1:2;obs=;extra=", 16, "REWARD"), (b"city:7:1:2;obs=;reward=1", 23, "REWARD"),
        (b"city:7:1:2;obs=;reward=1=;done=true", 24, "REWARD"),
        (b"city:7:1:2;obs=;reward=1;done=yes", 30, "BOOL_VALUE"),
        (b"city:7:1:2;obs=;reward=1;done=true;;", 34, "EXTRA"),
        (b"city:7:1:2;obs=;reward=1;done=true;more=", 34, "EXTRA"),
        (b"city:7:1:2;obs=;reward=1;done=true;extra=;;", 41, "EXTRA"),
    ],
)  # fmt: skip
def test_invalid_server_datagrams_fail_at_their_offset_and_path(datagram, offset, path):
    caught = raised(DecodeError, p.decode_server_message, datagram)
    assert (caught.offset, caught.path) == (offset, path)


def test_decoder_accepts_any_buffer_type():
    datagram = p.encode(STEP)
    for kind in [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)]:
        assert p.decode_server_message(kind(datagram)) == STEP
        assert p.decode_client_message(kind(b"city:7;lobby")) == p.LobbyRequest("city", 7)
    for wrong in ("city:7;lobby", None, 5):
        for call in (p.decode_client_message, p.decode_server_message):
            raised(TypeError, call, wrong)


def test_text_fields_are_encoded_as_utf8():
    message = p.Register("città", 7, "агент", "日本🙂")
    assert p.decode_client_message(p.encode(message)) == message
    assert p.encode(message) == "città:7;register=агент,日本🙂".encode()
    raised(EncodeError, p.encode, p.Register("city", 7, "a", "\ud800"))


@pytest.mark.parametrize(
    ("reward", "text"),
    [
        (0, "0"), (True, "1"), (1.5, "1.5"), (-0.1, "-0.1"), (1e-7, "1e-07"), (1e16, "1e+16"),
        (12345678.0, "12345678"), (float("inf"), "inf"), (np.float32(0.1), "0.1"),
        (np.float64(0.1), "0.1"), (np.float16(0.1), "0.1"), (np.float32(-1 / 3), "-0.33333334"),
        (np.int32(-5), "-5"), (np.bool_(True), "1"), ("three of five", "three of five"),
        ("1:2,3", "1:2,3"),
    ],
)  # fmt: skip
def test_rewards_of_each_type_are_encoded_alike(reward, text):
    message = p.RolloutStep("city", 7, 1, 2, "", reward, False)
    wire = p.encode(message)
    assert wire == f"city:7:1:2;obs=;reward={text};done=false".encode()
    found = p.decode_server_message(wire)
    assert found == message._replace(reward=reward if isinstance(reward, str) else float(text))
    assert p.StepWriter("city", 7).write(1, 2, "", reward, False) == wire


def test_datagram_limit_is_checked_before_the_content():
    for size in (1199, 1200, 1201):
        wire = b"city:7;action=" + b"a" * (size - 14)
        message = p.Action("city", 7, "a" * (size - 14))
        if size <= 1200:
            assert p.encode(message) == wire
            assert p.decode_client_message(wire) == message
            continue
        caught = raised(LimitExceeded, p.encode, message)
        assert (caught.limit, caught.maximum, caught.size) == ("datagram", 1200, 1201)
        assert raised(LimitExceeded, p.decode_client_message, wire).limit == "datagram"
        # The limit comes first, whatever the bytes are.
        raised(LimitExceeded, p.decode_server_message, b"\xff" * size)
        raised(LimitExceeded, p.decode_server_message, b"city:7:1:2;" + b"\xff" * size)
        wide = Limits(datagram=65_507)
        assert p.encode(message, limits=wide) == wire
        assert p.decode_client_message(wire, limits=wide) == message


def test_fields_over_the_datagram_limit_are_rejected_before_copying():
    huge = "a" * 50_000_000
    slots = [p.AgentSlot(str(i), True, "kind", "tag", False) for i in range(10_000)]
    for message in (
        p.Action("city", 7, huge),
        p.LobbyMessage("city", 7, huge),
        p.RolloutStep("city", 7, 1, 2, "", 0, True, huge),
        p.LobbyInformation("city", 7, [p.AgentSlot("a", True, "", huge, True)]),
        p.LobbyInformation("city", 7, slots),
    ):
        assert raised(LimitExceeded, p.encode, message).limit == "datagram"
    writer = p.StepWriter("city", 7)
    for observation in (np.zeros(10**7), huge, {"x": np.zeros(10**7)}, {huge: 1}):
        raised(LimitExceeded, writer.write, 1, 2, observation, 0.0, False)
        raised(LimitExceeded, writer.write, 1, 2, "", 0.0, False, observation)
    raised(LimitExceeded, writer.write, 1, 2, {str(i): i for i in range(10**5)}, 0.0, False)


def test_encode_into_writes_only_its_range_of_the_buffer():
    wire = p.encode(STEP)
    buffer = bytearray(len(wire) + 5)
    assert p.encode_into(STEP, buffer, 5) == len(wire)
    assert buffer == bytes(5) + wire
    for offset in (6, -1, len(buffer) + 1):
        raised(EncodeError, p.encode_into, STEP, buffer, offset)
    assert buffer == bytes(5) + wire
    raised(BufferError, p.encode_into, STEP, wire)


def test_step_writer_writes_each_type_of_value():
    writer = p.StepWriter("city", 7)
    wire = writer.write(1590853116323, 0, STEP.observation, 1.5, False, STEP.extra)
    assert wire == p.encode(STEP)
    head = b"city:7:1:2;obs="
    for value, text in [
        *(("a:b,c", b"a:b,c"), (5, b"5"), (0.1, b"0.1"), (True, b"true"), ((), b""), ({}, b"")),
        *((-(10**30), b"-1" + b"0" * 30), (np.float32(0.1), b"0.1"), ([0.5, 1], b"0.5,1")),
        *((np.float32([0.1, 2]), b"0.1,2"), (np.arange(6).reshape(2, 3), b"0,1,2,3,4,5")),
        ({"x": 0.54, "y": [1, 2], "z": np.bool_(False), "w": "so"}, b"x:0.54,y:1,2,z:false,w:so"),
    ]:
        wire = writer.write(1, 2, value, 0.0, True)
        assert wire == head + text + b";reward=0;done=true"
        wire = writer.write(1, 2, "", 0.0, True, value)
        assert wire == head + b";reward=0;done=true;extra=" + text
    rounding = p.StepWriter("city", 7, decimals=2)
    assert rounding.write(1, 2, np.array([1 / 3, 2]), 2 / 3, False, {"t": 0.125}) == (
        head + b"0.33,2;reward=0.67;done=false;extra=t:0.12"
    )


def test_step_writer_rejects_values_without_text_form():
    writer = p.StepWriter("city", 7)
    for value in ("a;b", "a=b", {"a;": 1}, {"a": "b=c"}, {"a:": 1}, {"": 1}, {"a": "b,c"},
                  {"a": {"b": 1}}, np.array(["a"]), np.array([1j]), [[1], [1, 2]]):  # fmt: skip
        raised(EncodeError, writer.write, 1, 2, value, 0.0, False)
        raised(EncodeError, writer.write, 1, 2, "", 0.0, False, value)
    raised(EncodeError, writer.write, 1, 2, "a;b", 0.0, False)
    raised(EncodeError, writer.write, 1, 2, "", "a=b", False)
    for value in (None, object(), {5: 1}, b"a", bytearray(b"a"), {"a": b"b"}):
        raised(TypeError, writer.write, 1, 2, value, 0.0, False)
    for numbers in ((-1, 0), (0, -1), (2**63, 0), (0, 2**64)):
        raised(EncodeError, writer.write, *numbers, "", 0.0, False)
    raised(EncodeError, p.StepWriter, "ci:ty", 7)
    assert "decimals" in str(raised(ValueError, p.StepWriter, "city", 7, decimals=-1))
