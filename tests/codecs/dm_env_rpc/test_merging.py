"""Every message both ways, and what protobuf allows: fields in pieces, twice, and unknown ones.

The wires are made here, piece by piece; protobuf parses them and the reference unpacks what it
found.
"""

import struct

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2
from dm_env_rpc.v1.extensions.properties_pb2 import PropertyRequest, PropertyResponse
from google.protobuf.message import DecodeError as ProtobufError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlwire.codecs import dm_env_rpc as d
from rlwire.errors import DecodeError
from tests.codecs.dm_env_rpc.wires import field, varint
from tests.raising import raised

UNKNOWN = st.sampled_from(
    [
        field(99, 5),
        field(2047, b"whatever"),
        varint(77 << 3 | 1) + bytes(8),
        varint(78 << 3 | 5) + bytes(4),
        varint(79 << 3 | 3) + field(1, 1) + varint(79 << 3 | 4),
        varint(80 << 3 | 3) + varint(81 << 3 | 3) + varint(81 << 3 | 4) + varint(80 << 3 | 4),
        # Known numbers, whose wire type is another in every message.
        *(varint(number << 3 | 3) + varint(number << 3 | 4) for number in (1, 2, 3, 4, 5, 15)),
    ]
)


@st.composite
def mixed(draw, *groups, unknown=True):
    """The pieces of all groups, each group in its own order, with unknown fields between."""
    left = [list(group) for group in groups if group]
    out = []
    while left:
        out.append(left[draw(st.integers(0, len(left) - 1))].pop(0))
        left = [group for group in left if group]
        if unknown and draw(st.integers(0, 9)) == 9:
            out.append(draw(UNKNOWN))
    return out


@st.composite
def divided(draw, number, pieces):
    """A singular sub-message whose fields are spread over several occurrences."""
    out = []
    rest = list(pieces)
    while True:
        cut = draw(st.just(len(rest)) | st.integers(0, len(rest)))
        out.append(field(number, b"".join(rest[:cut])))
        rest = rest[cut:]
        if not rest:
            return out


@st.composite
def numbers(draw, number, values, wire):
    """A repeated field of numbers, packed or not, in any mixture."""
    out = []
    rest = list(values)
    while rest:
        if draw(st.booleans()):
            out.append(varint(number << 3 | wire) + rest.pop(0))
        else:
            cut = draw(st.just(len(rest)) | st.integers(0, len(rest)))
            out.append(field(number, b"".join(rest[:cut])))
            rest = rest[cut:]
    return out


def element(kind, value):
    if kind == d.DataType.FLOAT:
        return struct.pack("<f", value)
    if kind == d.DataType.DOUBLE:
        return struct.pack("<d", value)
    return varint(value % 2**64)


VARINTS = st.integers(0, 3) | st.integers(0, 100) | st.integers(0, 2**64 - 1)
KINDS_OF = [kind for kind in d.DataType if kind]
KINDS = st.sampled_from(KINDS_OF)


@st.composite
def elements(draw, kind, count):
    """The fields of a payload sub-message."""
    if kind in (d.DataType.INT8, d.DataType.UINT8):
        # Not a repeated field: a later one replaces it.
        early = draw(st.lists(st.binary(max_size=3).map(lambda data: field(1, data)), max_size=1))
        return [*early, field(1, draw(st.binary(min_size=count, max_size=count)))]
    if kind == d.DataType.STRING:
        texts = st.text(st.characters(exclude_characters="\0"), max_size=3)
        return [field(1, draw(texts).encode("utf-8", "replace")) for _ in range(count)]
    if kind == d.DataType.PROTO:
        return [field(1, b"".join(draw(anys()))) for _ in range(count)]
    wire = {d.DataType.FLOAT: 5, d.DataType.DOUBLE: 1}.get(kind, 0)
    each = VARINTS if wire == 0 else st.floats(width=32)
    values = draw(st.lists(each, min_size=count, max_size=count))
    return draw(numbers(1, [element(kind, value) for value in values], wire))


@st.composite
def anys(draw):
    urls = [field(1, draw(st.text(max_size=3)).encode("utf-8", "replace")) for _ in range(2)]
    data = [field(2, draw(st.binary(max_size=3))) for _ in range(2)]
    return draw(mixed(urls[: draw(st.integers(0, 2))], data[: draw(st.integers(0, 2))]))


@st.composite
def tensors(draw):
    """A tensor that can be unpacked."""
    kind = draw(KINDS)
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    count = int(np.prod(shape))
    if shape and draw(st.integers(0, 3)) == 0:
        count = 1  # one for all
    sent = list(shape)
    if count > 1 and draw(st.booleans()):
        sent[draw(st.integers(0, len(sent) - 1))] = draw(st.sampled_from([-1, -5, -(2**31)]))
    payload = draw(divided(kind, draw(mixed(draw(elements(kind, count))))))
    other = draw(KINDS)
    if other != kind and draw(st.booleans()):  # replaced by the real one
        payload.insert(0, field(other, b"".join(draw(elements(other, 2)))))
    above = draw(st.sampled_from([0, 0, 2**32]))  # of which protobuf keeps 32 bits
    dimensions = draw(numbers(15, [varint((size + above) % 2**64) for size in sent], 0))
    return draw(mixed(payload, dimensions))


@st.composite
def bounds(draw):
    kind = draw(KINDS.filter(lambda kind: kind <= d.DataType.UINT64))
    payload = draw(divided(kind + 8, draw(elements(kind, draw(st.integers(0, 4))))))
    other = draw(KINDS.filter(lambda kind: kind <= d.DataType.UINT64))
    if other != kind and draw(st.booleans()):
        payload.insert(0, field(other + 8, b"".join(draw(elements(other, 2)))))
    return payload


@st.composite
def texts(draw, number):
    return [
        field(number, text.encode("utf-8", "replace"))
        for text in draw(st.lists(st.text(max_size=4), max_size=2))
    ]


@st.composite
def varints(draw, number):
    return [field(number, value) for value in draw(st.lists(VARINTS, max_size=2))]


@st.composite
def specs(draw):
    shape = draw(st.lists(st.integers(-1, 3).map(lambda size: varint(size % 2**64)), max_size=3))
    groups = [
        draw(texts(1)),
        draw(numbers(2, shape, 0)),
        draw(varints(3)),
        *(draw(divided(which, draw(bounds()))) for which in (4, 5) if draw(st.booleans())),
    ]
    return draw(mixed(*groups))


NAMES = st.sampled_from([b"", b"a", b"b"])
UIDS = st.sampled_from([0, 1, 2**63])


@st.composite
def maps(draw, number, values, named, always=True):
    """A map whose keys may come again, whose entries may lack what is the default."""
    out = []
    for _ in range(draw(st.integers(0, 3))):
        if named:
            keys = [field(1, key) for key in draw(st.lists(NAMES, max_size=2))]
        else:
            keys = [field(1, key) for key in draw(st.lists(UIDS, max_size=2))]
        value = draw(divided(2, draw(values))) if always or draw(st.booleans()) else []
        # Protobuf's newer implementations leave out entries that have unknown fields.
        out.append(field(number, b"".join(draw(mixed(keys, value, unknown=False)))))
    return out


@st.composite
def all_specs(draw):
    one, other = (draw(maps(n, specs(), False, always=False)) for n in (1, 2))
    return draw(mixed(one, other))


@st.composite
def uids(draw, number):
    return draw(numbers(number, draw(st.lists(VARINTS.map(varint), max_size=5)), 0))


@st.composite
def message(draw, *groups):
    return draw(mixed(*(draw(group) for group in groups)))


@st.composite
def within(draw, number, pieces):
    """A sub-message that may be left out."""
    return draw(divided(number, draw(pieces))) if draw(st.booleans()) else []


@st.composite
def several(draw, number, pieces):
    return [field(number, b"".join(draw(pieces))) for _ in range(draw(st.integers(0, 3)))]


SETTINGS = maps(1, tensors(), True)
REQUESTS = {
    1: message(SETTINGS), 2: message(texts(1), maps(2, tensors(), True)),
    3: message(maps(1, tensors(), False), uids(2)), 4: message(SETTINGS),
    5: message(texts(1), maps(2, tensors(), True)), 6: message(), 7: message(texts(1)), 15: anys(),
}  # fmt: skip
RESPONSES = {
    1: message(texts(1)), 2: message(within(1, all_specs())),
    3: message(varints(1), maps(2, tensors(), False)), 4: message(within(1, all_specs())),
    5: message(), 6: message(), 7: message(), 15: anys(),
    16: message(varints(1), texts(2), several(3, anys())),
}  # fmt: skip
PROPERTY_REQUESTS = {
    1: message(texts(1)),
    2: message(texts(1), within(2, tensors())),
    3: message(texts(1)),
}
PROPERTIES = message(within(1, specs()), varints(2), varints(3), varints(4), texts(5))
PROPERTY_RESPONSES = {
    1: message(within(1, tensors())),
    2: message(),
    3: message(several(1, PROPERTIES)),
}


@st.composite
def wires(draw, members):
    """Members that replace each other; the last one in several occurrences."""
    out = []
    last = 0
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        number = draw(st.sampled_from(sorted(set(members) - {last})))
        out += draw(divided(number, draw(members[number])))
        last = number
    return b"".join(draw(mixed(out)))


ONE = struct.pack("<f", 1.0)


@given(
    wire=tensors().map(b"".join),
    more=st.lists(st.integers(-2, 4).map(lambda size: field(15, size % 2**64)), max_size=2),
    cut=st.none() | st.integers(0, 99),
)
@example(b"\x0a\x8a\x80\x00\x0a\x84\x80\x80\x80\x00" + ONE, [], None)  # lengths longer than needed
@example(field(4, field(1, b"\x85" + b"\x80" * 8 + b"\x00")), [], None)  # and an element
@example(field(1, field(1, ONE * 2)) + field(15, varint(1) + varint(-(2**31))), [], None)
@example(field(3, field(1, b"a")) + field(3, field(1, b"")) + field(15, 0), [], None)
@settings(max_examples=8 * settings().max_examples)
def test_random_tensor_is_decoded_as_by_the_reference_or_rejected(protobuf, wire, more, cut):
    buffer = bytearray(b"".join([wire, *more])[:cut])
    try:
        expected = protobuf.tensor_from_pb(dm_env_rpc_pb2.Tensor.FromString(bytes(buffer)))
    except (ProtobufError, TypeError, ValueError):  # broken, without payload, of another size
        assert 0 <= raised(DecodeError, d.decode_tensor, buffer).offset <= len(buffer)
        return
    for copy in (True, False, None):
        assert protobuf.same(d.decode_tensor(buffer, copy=copy), expected)


def of_property(theirs, encode, decode):
    """Encode and decode the bytes of an extension."""
    url = f"type.googleapis.com/{theirs.DESCRIPTOR.full_name}"

    def encode_bytes(message):
        extension = encode(message)
        assert extension.type_url == url
        return extension.value

    return theirs, encode_bytes, lambda data, **kw: decode(d.AnyMessage(url, data), **kw)


MESSAGES = [
    (REQUESTS, dm_env_rpc_pb2.EnvironmentRequest, d.encode_request, d.decode_request),
    (RESPONSES, dm_env_rpc_pb2.EnvironmentResponse, d.encode_response, d.decode_response),
    (PROPERTY_REQUESTS,
     *of_property(PropertyRequest, d.encode_property_request, d.decode_property_request)),
    (PROPERTY_RESPONSES,
     *of_property(PropertyResponse, d.encode_property_response, d.decode_property_response)),
]  # fmt: skip


@pytest.mark.parametrize(("members", "theirs", "encode", "decode"), MESSAGES)
@given(data=st.data())
@settings(max_examples=2 * settings().max_examples)
def test_messages_round_trip_through_protobuf(protobuf, members, theirs, encode, decode, data):
    wire = data.draw(wires(members))
    message = protobuf.from_pb(theirs.FromString(wire))
    assert protobuf.same(decode(wire), message)
    assert protobuf.same(decode(bytearray(wire), copy=False), message)
    expected = protobuf.to_pb(message, theirs)
    encoded = encode(message)
    parsed = theirs.FromString(encoded)
    assert protobuf.bits(parsed) == protobuf.bits(expected)
    assert len(encoded) == parsed.ByteSize()
    for feed in (bytes, bytearray, memoryview):
        assert protobuf.same(decode(feed(expected.SerializeToString()), copy=None), message)
    for size in range(1, len(encoded)):  # one field: less than all of it is none
        raised(DecodeError, decode, encoded[:size])


def steps_manager(actions):
    """A manager that these values fit."""
    specs = {}
    for uid, value in actions.items():
        if isinstance(value, d.AnyMessage | d.ProtoArray):
            shape = getattr(value, "shape", ())
            dtype = d.DataType.PROTO
        else:
            shape, dtype = np.shape(value), d.data_type(value.dtype)
        specs[uid] = d.make_spec(f"name {uid}", shape, dtype)
    return d.SpecManager(specs)


def by_name(decode, manager, wire, values):
    """What is decoded, and these values by name; None if a value that is replaced does not fit."""
    try:
        decoded = decode(manager, wire)
    except DecodeError as problem:
        if "its spec " not in problem.reason:
            raise
        return None
    assert decoded is not None
    return decoded, {f"name {uid}": value for uid, value in values.items()}


@given(wire=wires({3: REQUESTS[3], 6: REQUESTS[6]}))
@settings(max_examples=3 * settings().max_examples)
def test_step_requests_round_trip_through_protobuf(protobuf, wire):
    message = protobuf.from_pb(dm_env_rpc_pb2.EnvironmentRequest.FromString(wire))
    if not isinstance(message, d.StepRequest):
        assert d.decode_step_request(d.SpecManager({}), wire) is None
        return
    # Values that others with the same UID replace must fit the specs too: no manager suits all.
    manager, uids = steps_manager(message.actions), message.requested_observations
    assert d.decode_step_request(manager, wire, ignore_actions=True) == ({}, uids)
    if found := by_name(d.decode_step_request, manager, wire, message.actions):
        assert protobuf.same(found[0], (found[1], uids))
    actions = {f"name {uid}": value for uid, value in message.actions.items()}
    expected = protobuf.to_pb(message)
    for requested in (uids, tuple(uids), manager.request_uids(uids)):
        encoded = d.encode_step_request(manager, actions, requested)
        parsed = dm_env_rpc_pb2.EnvironmentRequest.FromString(encoded)
        assert protobuf.bits(parsed) == protobuf.bits(expected)
    for feed in (bytes, bytearray, memoryview):
        decoded = d.decode_step_request(manager, feed(expected.SerializeToString()))
        assert protobuf.same(decoded, (actions, uids))


@given(wire=wires({3: RESPONSES[3], 16: RESPONSES[16]}))
@settings(max_examples=3 * settings().max_examples)
def test_step_responses_round_trip_through_protobuf(protobuf, wire):
    message = protobuf.from_pb(dm_env_rpc_pb2.EnvironmentResponse.FromString(wire))
    if not isinstance(message, d.StepResponse):
        assert d.decode_step_response(d.SpecManager({}), wire) is None
        return
    manager, state = steps_manager(message.observations), message.state
    if found := by_name(d.decode_step_response, manager, wire, message.observations):
        assert protobuf.same(found[0], (state, found[1]))
    values = {f"name {uid}": value for uid, value in message.observations.items()}
    expected = protobuf.to_pb(message)
    for uids in ((), (list(message.observations),)):
        encoded = d.encode_step_response(manager, state, values, *uids)
        parsed = dm_env_rpc_pb2.EnvironmentResponse.FromString(encoded)
        assert protobuf.bits(parsed) == protobuf.bits(expected)
        assert b"".join(d.encode_step_response_parts(manager, state, values, *uids)) == encoded
    for copy in (True, False, None):
        decoded = d.decode_step_response(manager, expected.SerializeToString(), copy=copy)
        assert protobuf.same(decoded, (state, values))


def of_wire(number, wire):
    """A field of any wire type."""
    tag = varint(number << 3 | wire)
    values = {0: b"\x01", 1: bytes(8), 2: b"\x01\x01", 3: varint(number << 3 | 4), 5: bytes(4)}
    return tag + values[wire]


NOT_BYTES = (0, 1, 3, 5)


@pytest.mark.parametrize("kind", KINDS_OF, ids=lambda kind: kind.name)
def test_tensor_skips_known_fields_of_another_wire_type(protobuf, kind):
    """As protobuf does, which keeps them as unknown: in the tensor, its payload and its shape."""
    bytewise = kind in (d.DataType.INT8, d.DataType.UINT8) or kind >= d.DataType.STRING
    unpacked = {d.DataType.FLOAT: 5, d.DataType.DOUBLE: 1}.get(kind, 0)
    skipped = [of_wire(1, wire) for wire in NOT_BYTES if bytewise or wire != unpacked]
    content = b"a" * 8
    if kind == d.DataType.PROTO:
        others = [of_wire(number, wire) for number in (1, 2) for wire in NOT_BYTES]
        content = b"".join([field(1, b"a"), *others])
    payload = b"".join([*skipped, field(1, content), *skipped])
    others = [of_wire(number, wire) for number in KINDS_OF for wire in NOT_BYTES]
    shape = [*(of_wire(15, wire) for wire in (1, 3, 5)), field(15, varint(-1))]
    wire = b"".join([*others, field(kind, payload), *others, *shape])
    expected = protobuf.tensor_from_pb(dm_env_rpc_pb2.Tensor.FromString(wire))
    assert protobuf.same(d.decode_tensor(wire), expected)


@pytest.mark.parametrize("response", [False, True])
def test_message_skips_known_fields_of_another_wire_type(response, protobuf):
    choice = (REQUESTS, RESPONSES)[response]
    theirs = (dm_env_rpc_pb2.EnvironmentRequest, dm_env_rpc_pb2.EnvironmentResponse)[response]
    decode = (d.decode_request, d.decode_response)[response]
    strange = b"".join(of_wire(number, wire) for number in range(1, 17) for wire in NOT_BYTES)
    # Not 0 in a step: a state, and UIDs without packing, are numbers.
    inner = b"".join(of_wire(number, wire) for number in (1, 2, 3) for wire in (1, 3, 5))
    for number in choice:
        members = [field(number, inner), field(number, b""), strange]
        for wire in (b"".join(members), b"".join(members[::-1])):
            assert protobuf.same(decode(wire), protobuf.from_pb(theirs.FromString(wire)))
    step = d.encode_request(d.StepRequest({1: np.int32(5)}, [7]))[2:]
    wire = strange + field(3, inner + step + inner) + strange
    manager = d.SpecManager({1: d.make_spec("a", (), np.int32)})
    if not response:
        assert d.decode_step_request(manager, wire) == ({"a": 5}, [7])


def test_fragments_of_a_submessage_are_not_concatenated():
    """Joined, their bytes would be a message; protobuf refuses each of them, and so do we."""
    whole = d.DestroyWorldRequest("world")
    content = field(1, b"world")
    assert d.decode_request(field(7, content)) == whole
    assert d.decode_request(field(7, content[:0]) + field(7, content)) == whole
    for cut in range(1, len(content)):
        wire = field(7, content[:cut]) + field(7, content[cut:])
        raised(Exception, dm_env_rpc_pb2.EnvironmentRequest.FromString, wire)
        raised(DecodeError, d.decode_request, wire)


def test_errors_in_merged_messages_name_the_first_occurrence():
    first = d.encode_request(d.StepRequest({}, [1]))
    second = field(3, field(1, field(1, 5) + field(2, b"")))
    for wire, offset in ((first + second, 0), (field(99, b"abc") + first + second, 6)):
        caught = raised(DecodeError, d.decode_request, wire)
        assert (caught.offset, caught.path) == (offset, "$.step.actions[5]")


def test_merging_is_linear_in_time():
    assert d.decode_response(field(2, field(1, field(99, 1))) * 200_000) == d.JoinWorldResponse()
