"""What decoding one message may make: its own bytes and `Limits.expanded`, in every codec.

Memory is counted by tracemalloc, which NumPy and Python report to; what C libraries take by
themselves is bounded from outside, by the process's address space.
"""

import functools
import pickle
import random
import struct
import sys
import tracemalloc

import msgpack as plain
import numpy as np
import pytest
from PIL import Image

from rlwire.codecs import dm_env_rpc as d
from rlwire.codecs import msgpack, perlert, rewarder, rlx
from rlwire.codecs.websocket.frames import TEXT, FrameDecoder, FrameEncoder, Utf8Checker
from rlwire.errors import DecodeError, LimitExceeded, RlwireError
from rlwire.limits import DEFAULT, Limits
from tests.codecs.dm_env_rpc.wires import field, varint
from tests.mutating import mutated
from tests.programs import python
from tests.raising import raised

KIB = 1024
ROOM = 256 * KIB
SMALL = Limits(expanded=ROOM)
# An exception with its path, tables that a codec fills once, and a tenth: an entry of a dictionary
# whose key and value are both as large as they can be for their bytes.
SLACK = 64 * KIB
FACTOR = 1.1


def made(decode, wire, limits=SMALL):
    """The outcome, and the most bytes that were held for it at a time."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        try:
            found = decode(wire, limits=limits)
        except RlwireError as problem:
            found = problem
        return found, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def within(wire, limits=SMALL):
    return FACTOR * (len(wire) + limits.expanded) + SLACK


def decode_property(wire, limits=None):
    return d.decode_property_response(d.AnyMessage(d.PROPERTY_RESPONSE_URL, wire), limits=limits)


def decode_step(wire, limits=None):
    float_spec = d.make_spec("x", (-1,), np.float32, 0.0, 1.0)
    manager = d.SpecManager({1: float_spec, 2: d.make_spec("t", (-1,), str)}, limits=limits)
    return d.decode_step_request(manager, wire)


def decode_frame(wire, limits):
    decoder = FrameDecoder(False, "any", limits)
    frame = FrameEncoder(False).frame(TEXT, wire)
    whole = decoder.message(frame, len(frame))
    if whole is not None:
        return whole
    payload = decoder.frame(frame)[2]
    Utf8Checker().feed(payload)
    return decoder.text(payload)


def rlx_text(data):
    return struct.pack("<I", len(data)) + data


def rlx_of(values):
    return struct.pack("<I", 1) + b"".join(
        rlx_text(b"%d" % number) + value for number, value in enumerate(values)
    )


def rlx_image(mode, width, height):
    return rlx.encode({"": Image.new(mode, (width, height))})[8:]


def broadcast(value, *dims):
    """A tensor of which one element stands for all."""
    shape = b"".join(varint(size) for size in dims)
    return d.encode_tensor(value) + b"\x7a" + varint(len(shape)) + shape


def world(tensors):
    """A create_world with these settings."""
    entries = (field(1, b"%d" % n) + field(2, tensor) for n, tensor in enumerate(tensors))
    return field(1, b"".join(field(1, entry) for entry in entries))


def settings(value, count):
    return d.decode_request, world([d.encode_tensor(value)] * count)


def response(message):
    return d.decode_response, d.encode_response(message)


def step(tensors):
    """A step with these actions by UID."""
    entries = (b"\x08" + varint(uid) + field(2, tensor) for uid, tensor in tensors)
    return field(3, b"".join(field(1, entry) for entry in entries))


def generic(dtype, value="x"):
    return {b"__npgeneric__": True, b"data": value, b"dtype": dtype}


EMOJI = "\U0001f600"
LISTS = b",".join(b'"%d":[]' % n for n in range(600))
WIDE = ("a" * 20_000 + EMOJI).encode()
PART = 200 * KIB  # one is within what may be made, two are not

# Each asks for more than a message may make, though nothing in it does so by itself.
HOSTILE = {
    "rlx bits": (rlx.decode, rlx_of([rlx_image("1", 256, 800)] * 2)),
    "rlx floats": (
        functools.partial(rlx.decode, images="float32"), rlx_of([rlx_image("L", 256, 200)] * 2),
    ),
    "rlx texts": (rlx.decode, rlx_of([b"\x03" + rlx_text(WIDE)] * 4)),
    "rlx keys": (
        rlx.decode,
        struct.pack("<I", 1) + b"".join(rlx_text(b"%d" % n + WIDE) + b"\x01" for n in range(4)),
    ),
    "rlx empty lists": (
        rlx.decode, rlx_of([b"\x08" + struct.pack("<I", 600) + (b"\x08" + bytes(4)) * 600] * 2),
    ),
    "rlx empty arrays": (rlx.decode, rlx_of([rlx.encode({"": np.zeros(0)})[8:]] * 1100)),
    "msgpack texts": (msgpack.decode, plain.packb([WIDE.decode()] * 4)),
    "msgpack empty maps": (msgpack.decode, plain.packb([[{}] * 600] * 2)),
    "msgpack maps": (msgpack.decode, plain.packb([{"a": [], "b": []}] * 600)),
    "msgpack keys": (
        functools.partial(msgpack.decode, strict_map_key=False),
        plain.packb({(n, *[None] * 600): 1 for n in range(2)}),
    ),
    "msgpack scalars": (msgpack.decode, plain.packb([generic("<U20000", "x" * 20_000)] * 2)),
    "rewarder action": (
        rewarder.decode,
        b'{"method":"v0.agent.action","headers":{},"body":{"action":['
        + b",".join([b'["k"]'] * 600) + b"]}}",
    ),
    "rewarder others": (
        rewarder.decode,
        b'{"method":"v0.control.ping","headers":{'
        + LISTS + b'},"body":{' + LISTS + b"}}",
    ),
    "dm_env_rpc broadcasts": (d.decode_request, world([broadcast(np.float64(1), PART // 8)] * 2)),
    "dm_env_rpc varints": settings(np.ones(PART // 8, np.int64), 2),
    "dm_env_rpc texts": settings(np.array(["", "x" * (PART // 8)]), 2),
    "dm_env_rpc broadcast texts that end in NUL": (
        d.decode_request,
        world([broadcast("ab", PART // 8).replace(b"ab", b"a\0")] * 2),
    ),
    "dm_env_rpc scalar texts": settings("x" * 50_000, 6),
    "dm_env_rpc same name": (
        d.decode_request,
        field(1, field(1, field(1, b"a") + field(2, broadcast(np.float64(1), PART // 8))) * 2),
    ),
    "dm_env_rpc settings": settings(1, 1100),
    "dm_env_rpc uids": (d.decode_request, field(3, field(2, b"\1" * 1100))),
    "dm_env_rpc step": (
        decode_step,
        step([(1, broadcast(np.float32(0.5), PART // 4)), (2, broadcast("ab", PART // 8))]),
    ),
    "dm_env_rpc specs": response(
        d.JoinWorldResponse(
            d.ActionObservationSpecs({n: d.TensorSpec("", (), 1) for n in range(1100)}, {})
        )
    ),
    "dm_env_rpc details": response(d.Status(1, "", (d.AnyMessage("", b""),) * 1100)),
    "dm_env_rpc property": (
        decode_property, field(1, field(1, broadcast(np.float64(1), ROOM // 8 + 1))),
    ),
    "dm_env_rpc properties": (decode_property, field(3, field(1, b"") * 1100)),
    "PERLERT values": (perlert.text_to_mapping, b"k:" + b"," * 1100),
    "PERLERT numbers": (perlert.text_to_array, b"0," * 33_000 + b"0"),
    "WebSocket text": (decode_frame, ("a" * 66_000 + EMOJI).encode()),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_each_part_of_a_message_counts_toward_the_expanded_limit(name):
    decode, wire = HOSTILE[name]
    found, peak = made(decode, wire)
    assert isinstance(found, LimitExceeded)
    assert (found.limit, found.maximum) == ("expanded", ROOM)
    assert found.size > ROOM
    assert peak < within(wire)
    # The same with more room.
    decode(wire, limits=Limits(expanded=2**24, items=50_000))


@pytest.mark.parametrize("kind", ["U", "S"])
@pytest.mark.parametrize("size", [2, 1000, 500_000_000])
def test_scalar_of_another_length_than_its_dtype_is_rejected(kind, size):
    value = "x" if kind == "U" else b"x"
    found, peak = made(msgpack.decode, plain.packb(generic(f"<{kind}{size}", value)), DEFAULT)
    assert isinstance(found, DecodeError)
    each = 4 if kind == "U" else 1
    assert f"has {each * size} bytes, its value {each}" in str(found)
    assert peak < SLACK
    right = msgpack.decode(plain.packb(generic(f"<{kind}3", value * 3)))
    assert right == value * 3
    assert right.dtype == np.dtype(f"{kind}3")


def test_item_counts_as_256_bytes_in_each_codec():
    for decode, wire in [
        (rlx.decode, rlx.encode({"a": [1, 2, {"b": 3}]})),
        (msgpack.decode, plain.packb({"a": [1, 2, {"b": 3}]})),
        settings(1, 5),
    ]:
        decode(wire, limits=Limits(expanded=5 * 256))
        few = Limits(expanded=5 * 256 - 1)
        assert raised(LimitExceeded, decode, wire, limits=few).limit == "expanded"


def test_budget_error_has_limit_offset_and_path():
    for decode, wire, path in [
        (rlx.decode, rlx.encode({"a": {"b": Image.new("1", (8, 1000))}}), "$.a.b"),
        (msgpack.decode, plain.packb({"a": {"b": "x" * 1000 + EMOJI}}), "$.a.b"),
        (d.decode_request, world([broadcast(np.float64(1), 10_000)]), "$.create_world.settings.0"),
    ]:
        caught = raised(LimitExceeded, decode, wire, limits=Limits(expanded=600))
        assert (caught.limit, caught.maximum) == ("expanded", 600)
        assert caught.path == path
        assert 0 < (caught.offset or 0) < len(wire)


@pytest.mark.parametrize("name", HOSTILE)
def test_mutated_messages_stay_within_the_memory_budget(name):
    decode, wire = HOSTILE[name]
    rng = random.Random(name)
    for _ in range(20):
        changed = mutated(rng, wire)
        assert made(decode, changed)[1] < within(changed), changed[:200]


CHILD = """
import pickle
import resource
import sys
from rlwire.codecs import dm_env_rpc, msgpack
from rlwire.errors import DecodeError, LimitExceeded
decode = {"scalar": msgpack.decode, "broadcasts": dm_env_rpc.decode_request}
asked = pickle.load(sys.stdin.buffer)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
most = used + 600 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (most, most))
for how, wire in asked:
    try:
        decode[how](wire)
    except (DecodeError, LimitExceeded) as problem:
        print(type(problem).__name__)
    except MemoryError:
        print("MemoryError")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the process's size")
def test_hostile_messages_keep_the_process_under_600_mib():
    """Messages that took gigabytes: 600 MiB are enough to refuse them."""
    asked = [
        ("scalar", plain.packb(generic("<U500000000"))),
        ("broadcasts", world([broadcast(np.float64(1), 2**25 - 64)] * 12)),
    ]
    assert [len(wire) for _, wire in asked] == [44, 305]
    done = python("-c", CHILD, input=pickle.dumps(asked), text=False)
    assert done.stdout.split() == [b"DecodeError", b"LimitExceeded"], done.stderr[-2000:]
