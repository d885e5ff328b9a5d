"""Every dm_env_rpc message: against protobuf in both directions, and what cannot be sent."""

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2
from dm_env_rpc.v1.extensions import properties_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwire.codecs import dm_env_rpc as d
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.raising import raised

NUMBERS = [np.dtype(kind) for kind in ("f4", "f8", "i1", "i4", "i8", "u1", "u4", "u8")]
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
# NumPy's strings end before their last NULs.
TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=6)


@st.composite
def numbers(draw, dtype=None, shape=None):
    """A scalar or array of any bits, but no signalling NaN: Python's floats cannot hold one."""
    dtype = draw(st.sampled_from(NUMBERS)) if dtype is None else dtype
    shape = draw(SHAPES) if shape is None else shape
    size = int(np.prod(shape)) * dtype.itemsize
    array = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)
    if dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            array = np.asarray(array * dtype.type(1))
    return array if shape else array[()]


@st.composite
def others(draw, items, dtype):
    shape = draw(SHAPES)
    count = int(np.prod(shape))
    values = draw(st.lists(items, min_size=count, max_size=count))
    array = np.array(values, dtype).reshape(shape)
    return array if shape else array[()]


ANYS = st.builds(d.AnyMessage, st.text(max_size=8), st.binary(max_size=8))


@st.composite
def proto_arrays(draw):
    shape = draw(SHAPES.filter(bool))
    count = int(np.prod(shape))
    return d.ProtoArray(tuple(draw(st.lists(ANYS, min_size=count, max_size=count))), shape)


TENSORS = numbers() | others(st.booleans(), np.bool_) | others(TEXTS, np.str_) | ANYS
TENSORS |= proto_arrays()
NAMES = st.text(max_size=12)
UIDS = st.integers(0, 2**64 - 1) | st.integers(0, 3)
SETTINGS = st.dictionaries(NAMES, TENSORS, max_size=4)
BY_UID = st.dictionaries(UIDS, TENSORS, max_size=4)


@st.composite
def specs(draw):
    shape = tuple(draw(st.lists(st.integers(-1, 4) | st.just(-(2**31)), max_size=4)))
    fixed = all(size >= 0 for size in shape)
    bounds = []
    for _which in range(2):
        # A shape of one element takes a scalar, as every shape does.
        full = fixed and int(np.prod(shape)) != 1
        bound_shape = draw(st.sampled_from([(), shape])) if full else ()
        bounds.append(draw(st.none() | numbers(shape=bound_shape)))
    dtype = draw(st.sampled_from(d.DataType) | st.sampled_from([12, -1, 2**31 - 1, -(2**31)]))
    return d.TensorSpec(draw(NAMES), shape, dtype, *bounds)


ALL_SPECS = st.builds(
    d.ActionObservationSpecs,
    st.dictionaries(UIDS, specs(), max_size=3),
    st.dictionaries(UIDS, specs(), max_size=3),
)
STATES = st.sampled_from(d.EnvironmentStateType) | st.sampled_from([4, -1, -(2**31)])
REQUESTS = st.one_of(
    st.builds(d.CreateWorldRequest, SETTINGS),
    st.builds(d.JoinWorldRequest, NAMES, SETTINGS),
    st.builds(d.StepRequest, BY_UID, st.lists(UIDS, max_size=5)),
    st.builds(d.ResetRequest, SETTINGS),
    st.builds(d.ResetWorldRequest, NAMES, SETTINGS),
    st.builds(d.LeaveWorldRequest),
    st.builds(d.DestroyWorldRequest, NAMES),
    ANYS,
)
RESPONSES = st.one_of(
    st.builds(d.CreateWorldResponse, NAMES),
    st.builds(d.JoinWorldResponse, ALL_SPECS),
    st.builds(d.StepResponse, STATES, BY_UID),
    st.builds(d.ResetResponse, ALL_SPECS),
    st.builds(d.ResetWorldResponse),
    st.builds(d.LeaveWorldResponse),
    st.builds(d.DestroyWorldResponse),
    st.builds(
        d.Status,
        st.integers(-(2**31), 2**31 - 1) | st.integers(0, 16),
        st.text(),
        st.lists(ANYS, max_size=3).map(tuple),
    ),
)
PROPERTY_SPECS = st.builds(
    d.PropertySpec, specs(), st.booleans(), st.booleans(), st.booleans(), st.text(max_size=9)
)
PROPERTY_REQUESTS = st.one_of(
    st.builds(d.ReadPropertyRequest, NAMES),
    st.builds(d.WritePropertyRequest, NAMES, st.none() | TENSORS),
    st.builds(d.ListPropertyRequest, NAMES),
)
PROPERTY_RESPONSES = st.one_of(
    st.builds(d.ReadPropertyResponse, st.none() | TENSORS),
    st.builds(d.WritePropertyResponse),
    st.builds(d.ListPropertyResponse, st.lists(PROPERTY_SPECS, max_size=3).map(tuple)),
)
MANY = settings(max_examples=2 * settings().max_examples)


REQUEST = (dm_env_rpc_pb2.EnvironmentRequest, d.encode_request, d.decode_request)
RESPONSE = (dm_env_rpc_pb2.EnvironmentResponse, d.encode_response, d.decode_response)
EITHER = st.tuples(st.just(REQUEST), REQUESTS) | st.tuples(st.just(RESPONSE), RESPONSES)


@MANY
@given(either=EITHER)
def test_protobuf_reads_ours(protobuf, either):
    (theirs, encode, _), message = either
    encoded = encode(message)
    parsed = theirs.FromString(encoded)
    assert protobuf.bits(parsed) == protobuf.bits(protobuf.to_pb(message))
    assert len(encoded) == parsed.ByteSize()


@given(either=EITHER)
def test_cut_messages_are_refused(either):
    """A whole message is one field: less than all of it is none."""
    (_, encode, decode), message = either
    wire = encode(message)
    for size in range(1, len(wire)):
        raised(DecodeError, decode, wire[:size])


@MANY
@given(
    either=EITHER,
    feed=st.sampled_from([bytes, bytearray, memoryview]),
    copy=st.sampled_from([True, False, None]),
)
def test_we_read_protobufs(protobuf, either, feed, copy):
    (*_, decode), message = either
    written = protobuf.to_pb(message).SerializeToString()
    assert protobuf.same(decode(feed(written), copy=copy), message)


@settings(max_examples=40)
@given(message=ANYS)
def test_extension_in_a_response_round_trips(protobuf, message):
    """The one class that both messages have."""
    expected = protobuf.extension_response_to_pb(message)
    assert dm_env_rpc_pb2.EnvironmentResponse.FromString(d.encode_response(message)) == expected
    assert d.decode_response(expected.SerializeToString()) == message


PROPERTY_REQUEST = (
    properties_pb2.PropertyRequest,
    d.encode_property_request,
    d.decode_property_request,
)
PROPERTY_RESPONSE = (
    properties_pb2.PropertyResponse,
    d.encode_property_response,
    d.decode_property_response,
)


@MANY
@given(
    either=st.tuples(st.just(PROPERTY_REQUEST), PROPERTY_REQUESTS)
    | st.tuples(st.just(PROPERTY_RESPONSE), PROPERTY_RESPONSES)
)
def test_properties_round_trip_through_protobuf(protobuf, either):
    (theirs, encode, decode), message = either
    extension = encode(message)
    parsed = theirs()
    assert protobuf.any_to_pb(extension).Unpack(parsed)
    expected = protobuf.to_pb(message)
    assert protobuf.bits(parsed) == protobuf.bits(expected)
    written = d.AnyMessage(extension.type_url, expected.SerializeToString())
    assert protobuf.same(decode(written), message)


@pytest.mark.parametrize("decode", [d.decode_request, d.decode_response])
def test_message_without_payload_is_none(decode):
    assert decode(b"") is None
    assert decode(b"\x58\x01\x9a\x01\x01x") is None  # unknown fields only


def test_many_tensors_in_one_message_round_trip():
    """More than a draft holds without the heap."""
    settings = {f"setting {number}": np.int64(number) for number in range(100)}
    settings["long" * 100] = np.arange(5)
    decoded = d.decode_request(d.encode_request(d.CreateWorldRequest(settings)))
    assert isinstance(decoded, d.CreateWorldRequest)
    assert list(decoded.settings) == list(settings)
    assert all(np.array_equal(decoded.settings[name], settings[name]) for name in settings)


def test_a_bound_that_fits_no_shape_is_flat():
    bound = np.arange(3, dtype=np.int32)
    for shape in ((2, 2), (-1,), (), (2**31 - 1,) * 32):
        spec = d.TensorSpec("x", shape, d.DataType.INT32, bound)
        decoded = d.decode_response(
            d.encode_response(d.ResetResponse(d.ActionObservationSpecs({1: spec})))
        )
        assert isinstance(decoded, d.ResetResponse)
        assert decoded.specs.actions[1].min.tolist() == [0, 1, 2]


SPEC = d.TensorSpec("x", (), d.DataType.INT32)


def with_spec(spec, uid=1):
    return d.JoinWorldResponse(d.ActionObservationSpecs({}, {uid: spec}))


ASKED, SPEC_AT = "$.step.requested_observations", "$.join_world.specs.observations[1]"
TWO_DETAILS = d.Status(5, "", (d.AnyMessage(), b"x"))
TEXT_BOUND = d.TensorSpec("x", (), d.DataType.INT32, "low")
BOOL_BOUND = d.TensorSpec("x", (), d.DataType.BOOL, None, np.bool_(True))
REFUSED = [
    (5, "int is .*Environment", ""), (None, "NoneType is .*Environment", ""),
    (d.Step(), "encode_step_request", ""), (d.StepResult(), "encode_step_response", ""),
    (d.ResetRequest([1]), "expected a mapping, not list", "$.reset.settings"),
    (d.ResetRequest({1: 2}), "expected str, not int", "$.reset.settings"),
    (d.ResetRequest({"a": 1j}), "complex", "$.reset.settings.a"),
    (d.ResetRequest({"a": [[1], [2, 3]]}), "inhomogeneous", "$.reset.settings.a"),
    (d.ResetRequest({"\udc80": 1}), "not valid Unicode", "$.reset.settings"),
    (d.StepRequest({3: object()}), "type object is not", "$.step.actions[3]"),
    (d.StepRequest({-1: 1}), "UID.*-1|-1.*UID", "$.step.actions"),
    (d.StepRequest({2**64: 1}), "UID", "$.step.actions"),
    (d.StepRequest({"a": 1}), "a UID must be int, not str", "$.step.actions"),
    (d.StepRequest({}, [1, -1]), "UID.*-1|-1.*UID", f"{ASKED}[1]"),
    (d.StepRequest({}, 3), "expected several values, not int", ASKED),
    (d.DestroyWorldRequest(7), "expected str, not int", "$.destroy_world.world_name"),
    (d.JoinWorldRequest("\ud800"), "not valid Unicode", "$.join_world.world_name"),
    (d.AnyMessage(1), "expected str, not int", "$.extension.type_url"),
    (d.AnyMessage("", "x"), "expected bytes, not str", "$.extension.value"),
    (d.StepResponse("on"), "expected int, not str", "$.step.state"),
    (d.StepResponse(2**31), "does not fit 32 bits", "$.step.state"),
    (d.StepResponse(1, {2: {}}), "type dict is not", "$.step.observations[2]"),
    (d.ResetResponse({}), "expected ActionObservationSpecs", "$.reset.specs"),
    (with_spec(3), "expected TensorSpec", SPEC_AT), (with_spec(SPEC, 2**64), "UID", SPEC_AT[:-3]),
    (with_spec(d.TensorSpec("x", (1, 2**31))), "does not fit 32 bits", f"{SPEC_AT}.shape[1]"),
    (with_spec(TEXT_BOUND), "dtype <U3 .*int32", f"{SPEC_AT}.min"),
    (with_spec(BOOL_BOUND), "a bound cannot be of type bool", f"{SPEC_AT}.max"),
    (d.Status("5"), "expected int, not str", "$.error.code"),
    (d.Status(2**31), "does not fit 32 bits", "$.error.code"),
    (TWO_DETAILS, "expected AnyMessage, not bytes", "$.error.details[1]"),
]  # fmt: skip


@pytest.mark.each(("message", "words", "path"), REFUSED)
def test_unencodable_messages_are_rejected_with_their_path(message, words, path):
    response = isinstance(
        message, d.StepResponse | d.ResetResponse | d.JoinWorldResponse | d.Status | d.StepResult
    )
    encode = d.encode_response if response else d.encode_request
    with pytest.raises(EncodeError) as caught:
        encode(message)
    assert caught.match(words)
    assert caught.value.path == path


def test_a_request_is_no_response():
    raised(EncodeError, d.encode_response, d.StepRequest())
    raised(EncodeError, d.encode_request, d.Status())


def test_property_messages_of_another_type_are_rejected():
    for url in ("", "type.googleapis.com/dm_env_rpc.v1.Tensor", d.PROPERTY_RESPONSE_URL):
        raised(DecodeError, d.decode_property_request, d.AnyMessage(url, b""))
    # Only what follows the last slash names the type.
    url = d.PROPERTY_REQUEST_URL.replace("type.googleapis.com", "example.org/types")
    request = d.encode_property_request(d.ReadPropertyRequest("a"))
    assert d.decode_property_request(d.AnyMessage(url, request.value)) == d.ReadPropertyRequest("a")
    raised(EncodeError, d.encode_property_request, d.ReadPropertyResponse())


def test_request_kind_is_that_of_the_last_payload():
    leave = d.encode_request(d.LeaveWorldRequest())
    step = d.encode_request(d.StepRequest({1: 1.0}))
    assert d.request_kind(b"") is None
    assert d.request_kind(leave) == "leave_world"
    assert d.request_kind(step) == "step"
    assert d.request_kind(leave + step) == "step"
    assert d.request_kind(step + leave) == "leave_world"
    for wire, limits in ((b"\x1a\x05", None), (step, Limits(message=3))):
        raised((DecodeError, LimitExceeded), d.request_kind, wire, limits=limits)


TOO_MUCH = [
    (d.ResetRequest({"a": 1, "b": 2, "c": 3}), Limits(items=2), "items", 3),
    (d.StepRequest({}, [1, 2, 3]), Limits(items=2), "items", 3),
    (d.StepRequest({1: 1, 2: 2}, [3]), Limits(items=2), "items", 3),
    (d.DestroyWorldRequest("abc"), Limits(string=2), "string", 3),
    (d.ResetRequest({"äb": 1}), Limits(string=2), "string", 3),
    (d.DestroyWorldRequest("abc"), Limits(message=6), "message", 7),
    (d.StepRequest({1: bytearray(50)}), Limits(message=20), "message", 65),
    (d.StepRequest({1: np.zeros((1, 1, 1))}), Limits(dims=2), "dims", 3),
]


@pytest.mark.each(("message", "limits", "name", "size"), TOO_MUCH)
def test_limits_bound_encoded_messages(message, limits, name, size):
    d.encode_request(message)
    caught = raised(LimitExceeded, d.encode_request, message, limits=limits)
    assert (caught.limit, caught.size) == (name, size)
