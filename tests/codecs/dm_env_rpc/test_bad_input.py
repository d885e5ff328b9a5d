"""Broken and hostile messages: the named error at the right byte, and no memory for lies."""

from contextlib import suppress

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2
from google.protobuf.message import DecodeError as ProtobufError
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs import dm_env_rpc as d
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import Limits
from tests.codecs.dm_env_rpc.wires import field as part
from tests.codecs.dm_env_rpc.wires import varint
from tests.memory import at_most
from tests.raising import raised, raised_with


def property_request(data, **options):
    return d.decode_property_request(d.AnyMessage(d.PROPERTY_REQUEST_URL, data), **options)


def property_response(data, **options):
    return d.decode_property_response(d.AnyMessage(d.PROPERTY_RESPONSE_URL, data), **options)


def action(tensor):
    """A step request whose action 1 is `tensor`, which begins at byte 8."""
    return part(3, part(1, b"\x08\x01" + part(2, tensor)))


def setting(entry):
    """A reset request with one entry, which begins at byte 4."""
    return part(4, part(1, entry))


def spec(content):
    """The observation 1 of a join response; the content begins at byte 10."""
    return part(2, part(1, part(2, b"\x08\x01" + part(2, content))))


LONG = b"\x80" * 9 + b"\x02"  # ten bytes, but more than 64 bits
ELEVEN = b"\x80" * 10 + b"\x01"

STEP, RESET = "$.step.actions", "$.reset.settings"
ASKED = "$.step.requested_observations"
SPEC = "$.join_world.specs.observations[1]"
WORLD = "$.destroy_world.world_name"

# wire, words of the error, offset, path
BAD_REQUESTS = [
    (b"\x80", "ends inside a field", 0, "$"),
    (ELEVEN, "longer than 64 bits", 0, "$"),
    (LONG, "longer than 64 bits", 0, "$"),
    (b"\x80\x80\x80\x80\x10", "not a protobuf tag", 0, "$"),
    (b"\x02\x00", "not a protobuf tag", 0, "$"),
    (b"\x1e", "not a protobuf tag", 0, "$"),
    (b"\x1f", "not a protobuf tag", 0, "$"),
    (b"\x9c\x06", "not a protobuf tag", 0, "$"),  # an end without a group
    (b"\x9b\x06\x08\x01", "ends inside a field", 4, "$"),  # and the reverse
    (b"\x9b\x06\xa4\x06", "not a protobuf tag", 2, "$"),  # with another's end
    (b"\x1a", "ends inside a field", 1, "$"),
    (b"\x1a\x80", "ends inside a field", 1, "$"),
    (b"\x1a" + ELEVEN, "longer than 64 bits", 1, "$"),
    (b"\x1a\x02\x0a", "2 bytes needed, 1 left", 2, "$"),
    (b"\x1a" + b"\xff" * 9 + b"\x01", "bytes needed, 0 left", 11, "$"),
    (b"\x99\x06" + bytes(7), "8 bytes needed, 7 left", 2, "$"),
    (b"\x9d\x06" + bytes(3), "4 bytes needed, 3 left", 2, "$"),
    (b"\x1a\x01\x0a", "ends inside a field", 3, "$.step"),
    (part(3, b"\x12\x02\x01\x80"), "ends inside a field", 5, ASKED),
    (part(3, part(2, LONG)), "longer than 64 bits", 4, ASKED),
    (setting(part(1, b"ab\xff")), "a string is not UTF-8", 8, RESET),
    (setting(part(1, b"ab")), "without a payload", 8, f"{RESET}.ab"),
    (action(b""), "without a payload", 8, f"{STEP}[1]"),
    (action(b"\x7a\x01\x01"), "without a payload", 8, f"{STEP}[1]"),
    (part(7, part(1, b"\xc3")), "not UTF-8", 4, WORLD),
    (part(7, part(1, b"\xed\xa0\x80")), "not UTF-8", 4, WORLD),
    (part(15, part(1, b"\x80")), "not UTF-8", 4, "$.extension.type_url"),
]
DETAILS = part(16, part(3, b"") + part(3, part(1, b"\xff")))
BAD_RESPONSES = [
    (part(16, b"\x08" + ELEVEN), "longer than 64", 4, "$.error"),
    (part(16, part(2, b"ab\xfe")), "not UTF-8", 7, "$.error.message"),
    (DETAILS, "not UTF-8", 9, "$.error.details[1].type_url"),
    (spec(b"\x12\x01\x80"), "ends inside a field", 12, f"{SPEC}.shape"),
    (spec(part(4, part(9, part(1, bytes(5))))), "", 16, f"{SPEC}.min"),
]


@pytest.mark.each(
    ("decode", "data", "words", "offset", "path"),
    [(d.decode_request, *row) for row in BAD_REQUESTS]
    + [(d.decode_response, *row) for row in BAD_RESPONSES],
)
def test_malformed_messages_fail_at_their_offset_and_path(decode, data, words, offset, path):
    for feed in (bytes, bytearray, memoryview):
        caught = raised(DecodeError, decode, feed(data))
        assert words in caught.reason
        assert (caught.offset, caught.path) == (offset, path)


INT32 = part(4, part(1, b"\x01\x02\x03"))  # three elements


# One fault of each kind; all of them are in test_tensors.py.
@pytest.mark.parametrize(
    "tensor",
    [
        INT32 + part(15, b"\x04"),  # fewer elements than the shape
        part(4, b""),  # none for a scalar
        INT32 + part(15, varint(2**31 - 1) * 4),  # a product over 64 bits
        part(4, part(1, ELEVEN)),
        part(10, part(1, b"\xff")),
        part(11, part(1, b"\x0a\x05")),
        b"\x20\x01",  # a payload as a number
    ],
)
def test_malformed_tensor_error_has_its_path_in_each_message(tensor):
    manager = d.SpecManager({1: d.make_spec("x", (-1,), np.int32)})
    places = [
        (d.decode_request, action(tensor), "$.step.actions[1]"),
        (d.decode_request, setting(part(1, b"a") + part(2, tensor)), "$.reset.settings.a"),
        (d.decode_response, part(3, part(2, part(2, tensor))), "$.step.observations[0]"),
        (property_request, part(2, part(2, tensor)), "$.write_property.value"),
        (property_response, part(1, part(1, tensor)), "$.read_property.value"),
        (lambda data: d.decode_step_request(manager, data), action(tensor), "$.step.actions[1]"),
    ]
    for decode, data, path in places:
        caught = raised(DecodeError, decode, data)
        assert caught.path.startswith(path)
        # What does not fit a spec is reported at the map's entry, a few bytes before.
        assert len(data) - len(tensor) - 6 <= caught.offset <= len(data)


@pytest.mark.parametrize(
    "tensor",
    [
        part(1, part(1, bytes(4))) + part(15, varint(2**20) * 2),  # one float for 2**40
        part(6, part(1, b"\1")) + part(15, varint(2**31 - 1)),
        part(10, part(1, b"a")) + part(15, varint(2**30)),
        part(10, part(1, b"a" * 9000) + part(1, b"") * 9000) + part(15, varint(9001)),
    ],
)
def test_broadcast_tensor_over_the_expanded_limit_is_rejected(tensor):
    kind = d.DataType(tensor[0] >> 3)
    (shape,) = {1: [(-1, 2**20)]}.get(kind, [(-1,)])
    manager = d.SpecManager({1: d.TensorSpec("x", shape, kind)})
    for decode in (d.decode_request, lambda data: d.decode_step_request(manager, data)):
        with at_most(1_000_000), pytest.raises(LimitExceeded) as caught:
            decode(action(tensor))
        assert caught.value.limit == "expanded"
        assert caught.value.path == "$.step.actions[1]"


def test_broadcast_message_is_decoded_as_one_item():
    tensor = part(11, part(1, b"")) + part(15, varint(2**28))
    with at_most(100_000):
        decoded = d.decode_request(action(tensor))
    assert decoded.actions[1] == d.ProtoArray((d.AnyMessage(),), (2**28,))


@given(data=st.binary(max_size=40))
def test_decoder_accepts_no_message_that_protobuf_rejects(data):
    """We are stricter, never laxer."""
    both = (
        (d.decode_request, dm_env_rpc_pb2.EnvironmentRequest),
        (d.decode_response, dm_env_rpc_pb2.EnvironmentResponse),
    )
    for number in (1, 2, 3, 5, 7, 15, 16):
        for content in (data, part(1, data), part(2, data)):
            message = part(number, content)
            for decode, theirs in both:
                try:
                    theirs.FromString(message)
                except ProtobufError:
                    caught = raised((DecodeError, LimitExceeded), decode, message)
                    assert 0 <= caught.offset <= len(message)
                else:
                    with suppress(DecodeError, LimitExceeded):
                        decode(message)


ENTRY = part(1, part(2, part(4, part(1, b"\1"))))
# limit, its value, the size, the offset, the path, the wire
OVER = [
    ("message", 10, 11, 0, "", part(7, part(1, b"world 1"))),
    ("items", 2, 3, 20, STEP, part(3, ENTRY * 3)),
    ("items", 2, 3, 6, ASKED, part(3, part(2, b"\1\2\3"))),
    ("items", 1, 2, 5, ASKED, part(3, b"\x10\1\x10\2")),
    ("items", 2, 3, 14, ASKED, part(3, ENTRY + part(2, b"\1\2"))),
    ("items", 1, 2, 6, SPEC[:-3], part(2, part(1, part(1, b"") + part(2, b"")))),
    ("items", 3, 4, 8, f"{STEP}[1]", action(part(11, part(1, b"") * 3) + part(15, b"\3"))),
    ("items", 1, 2, 5, "$.error.details", part(16, part(3, b"") * 2)),
    ("dims", 2, 3, 10, f"{SPEC}.shape", spec(part(2, b"\1\1\1"))),
    ("string", 3, 4, 4, WORLD, part(7, part(1, b"abcd"))),
    ("string", 3, 4, 6, RESET, setting(part(1, b"abcd") + part(2, part(4, part(1, b"\1"))))),
]


@pytest.mark.parametrize(("name", "most", "size", "offset", "path", "data"), OVER)
def test_limit_error_has_limit_size_offset_and_path(name, most, size, offset, path, data):
    decode = d.decode_response if path.startswith(("$.join_world", "$.error")) else d.decode_request
    decode(data)
    problem = raised(LimitExceeded, decode, data, limits=Limits(**{name: most}))
    assert (problem.limit, problem.size, problem.offset, problem.path) == (name, size, offset, path)


def test_more_than_32_dimensions_are_rejected():
    assert raised(LimitExceeded, d.decode_response, spec(part(2, b"\1" * 33))).limit == "dims"
    assert raised(LimitExceeded, d.decode_response, spec(b"\x10\1" * 33)).limit == "dims"
    with pytest.raises(LimitExceeded, match="dims=32"):
        d.decode_request(action(part(4, part(1, b"\1")) + part(15, b"\1" * 33)))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(part(3, part(2, b"\1" * 2_000_000)), id="uids"),
        pytest.param(part(3, part(1, b"") * 100), id="entries without a value"),
        pytest.param(b"\x1a\xff\xff\xff\xff\x07", id="a length of 2 GiB"),
        pytest.param(part(3, b"\x12\xff\xff\xff\xff\x07"), id="UIDs of 2 GiB"),
        pytest.param(action(b"\x22\xff\xff\xff\xff\x07"), id="a payload of 2 GiB"),
        pytest.param(part(7, b"\x0a\xff\xff\xff\xff\x07"), id="a name of 2 GiB"),
        pytest.param(b"\x9b\x06" * 1_000_000, id="a million groups"),
    ],
)
def test_false_sizes_allocate_no_memory(data):
    limits = Limits(items=1000)
    with at_most(200_000), pytest.raises((DecodeError, LimitExceeded)):
        d.decode_request(data, limits=limits)


def test_groups_nested_over_the_depth_limit_are_rejected():
    assert d.decode_request(b"\x9b\x06" * 100 + b"\x9c\x06" * 100) is None
    raised_with(LimitExceeded, "depth=100", d.decode_request, b"\x9b\x06" * 101 + b"\x9c\x06" * 101)


def test_numeric_keys_count_toward_the_keys_limit():
    """Numbers can be chosen to collide in a dictionary; names cannot."""
    few = Limits(keys=3)
    one = np.float32(1)
    data = d.encode_request(d.StepRequest(dict.fromkeys(range(3), one), [1, 2, 3, 4]))
    assert len(d.decode_request(data, limits=few).actions) == 3
    names = d.encode_request(d.CreateWorldRequest({name: one for name in "abcdef"}))
    d.decode_request(names, limits=few)
    problem = raised(LimitExceeded, d.decode_request, data + data, limits=few)  # over both pieces
    assert (problem.limit, problem.size, problem.path) == ("keys", 4, "$.step.actions")
    spec = d.make_spec("move", (), np.int32)
    specs = d.ActionObservationSpecs({1: spec}, dict.fromkeys(range(3), spec))
    response = d.encode_response(d.JoinWorldResponse(specs))
    assert raised(LimitExceeded, d.decode_response, response, limits=few).limit == "keys"
    d.decode_response(response, limits=Limits(keys=4))
