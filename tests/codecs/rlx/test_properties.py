"""Round trips against the oracle in both directions, and any bytes at all."""

import contextlib
import json
import random
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rlwire.codecs import rlx
from rlwire.errors import DecodeError, LimitExceeded
from tests.codecs.strategies import arrays
from tests.mutating import mutated
from tests.raising import raised

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "rlx.json").read_text("utf-8"))
WIRES = [bytes.fromhex(case["wire"]) for case in VECTORS["cases"]]

DTYPES = [
    *["?", "i1", "u1", "<i2", ">i2", "<u2", ">u2", "<i4", ">i4", "<u4", ">u4", "<i8", ">i8"],
    *["<u8", ">u8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c8", "<c16", ">c16"],
    *["S1", "S7", "<U1", ">U3", "<M8[ns]", ">M8[D]", "<m8[25us]", "m8", "M8"],
]


@st.composite
def images(draw):
    mode, pixel = draw(st.sampled_from([("L", 1), ("RGB", 3), ("RGBA", 4), ("I;16", 2), ("F", 4)]))
    width, height = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    size = width * height * pixel
    return Image.frombytes(mode, (width, height), draw(st.binary(min_size=size, max_size=size)))


INTS = st.integers(-(2**63), 2**63 - 1)
EDGES = st.sampled_from([2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63)])
PLAIN = st.none() | st.booleans() | INTS | EDGES | st.floats() | st.text(max_size=20)
SCALARS = st.builds(
    lambda kind, n: np.array(n if kind in "bhilq" else n % 2**63).astype(kind)[()],
    st.sampled_from("?bhilqBHILQfdg"),
    INTS | EDGES | st.integers(2**31, 2**32 - 1),
)
LEAVES = PLAIN | arrays(DTYPES) | images() | SCALARS
KEYS = st.text(max_size=40)


def messages(leaves):
    values = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=12,
    )
    return st.dictionaries(KEYS, values, max_size=5)


@given(message=messages(LEAVES), framed=st.booleans())
def test_random_message_is_encoded_as_by_the_oracle(oracle, message, framed):
    expected = oracle.encode(message)
    if framed:
        expected = b"%d:%b," % (len(expected), expected)
    assert rlx.encode(message, framed=framed) == expected
    assert b"".join(rlx.encode_parts(message, framed=framed)) == expected
    room = bytearray(len(expected))
    assert rlx.encode_into(message, room, framed=framed) == len(expected)
    assert room == expected


@given(
    message=messages(LEAVES),
    copy=st.sampled_from([True, False, None]),
    images=st.sampled_from(["array", "float32"]),
)
def test_random_message_is_decoded_as_by_the_oracle(oracle, same, message, copy, images):
    data = rlx.encode(message)
    expected = oracle.decode(data, images=images)
    for feed in (bytes, bytearray, memoryview):
        assert same(rlx.decode(feed(data), copy=copy, images=images), expected)


def verdicts_agree(oracle, same, data):
    try:
        expected = oracle.decode(data)
    except oracle.Refused:
        caught = raised((DecodeError, LimitExceeded), rlx.decode, data)
        assert caught.offset is not None
        assert 0 <= caught.offset <= len(data)
        return
    assert same(rlx.decode(data), expected)


@settings(max_examples=3 * settings().max_examples)
@given(data=st.binary(max_size=60))
def test_random_bytes_are_decoded_as_by_the_oracle_or_rejected(oracle, same, data):
    verdicts_agree(oracle, same, data)
    verdicts_agree(oracle, same, b"\1\0\0\0" + data)
    verdicts_agree(oracle, same, b"\1\0\0\0\0\0\0\0" + data)
    with contextlib.suppress(DecodeError, LimitExceeded):
        rlx.decode(data, framed=True)
    with contextlib.suppress(DecodeError, LimitExceeded):
        assert 0 <= rlx.frame_size(data, 0, len(data), 1000) <= 1005
    assert 0 <= rlx.data_offset(data, 0, len(data)) <= len(data)


@settings(max_examples=3 * settings().max_examples)
@given(
    name=st.text("<>|=?bifcSUMmuOVT0123456789,()[]nsD", max_size=8)
    | st.from_regex(r"\A[<>|=]?[?bifucSUMmOV](8|4|16|0?[0-9])(\[[0-9]{0,3}(ns|us|D|x)\])?\Z")
    | st.from_regex(r"\A(float|int|uint|complex|bool|datetime|timedelta)[0-9]{0,3}(\[s\])?\Z"),
    count=st.integers(0, 2),
)
def test_dtype_names_are_parsed_as_by_numpy_or_rejected(oracle, same, name, count):
    text = name.encode()
    head = b"\1\0\0\0\0\0\0\0\7" + len(text).to_bytes(4, "little") + text
    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        size = 8
    else:
        size = dtype.itemsize
        if dtype.kind == "U" and count:
            count = 0  # not any bits are text
    size *= count
    body = count.to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(size)
    verdicts_agree(oracle, same, head + b"\1\0\0\0" + body)


def test_mutated_message_is_decoded_as_by_the_oracle_or_rejected(oracle, same):
    chance = random.Random(4711)
    decoders = [
        (images, rlx.RLXDecoder(copy=copy, images=images))
        for copy in (True, False, None)
        for images in ("array", "float32")
    ]
    accepted = 0
    for turn in range(20_000):
        data = mutated(chance, WIRES[turn % len(WIRES)])
        images, decoder = decoders[turn % len(decoders)]
        try:
            expected = oracle.decode(data, images=images)
        except oracle.Refused:
            caught = raised((DecodeError, LimitExceeded), decoder.decode, data)
            assert caught.offset is not None
            assert 0 <= caught.offset <= len(data)
            continue
        try:
            decoded = decoder.decode(bytearray(data))
        except LimitExceeded:
            continue  # the oracle has none
        accepted += 1
        assert same(decoded, expected), data
    assert accepted > 1000
