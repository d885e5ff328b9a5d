"""The bytes that RELAAX itself produced, both ways. A missing vectors file is an error here."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rlwire.codecs import rlx
from rlwire.errors import DecodeError
from rlwire.rlx import RLXMessageImage
from tests.memory import in_block, mapped
from tests.raising import raised

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "rlx.json").read_text("utf-8"))
CASES = [
    pytest.param(case["message"], bytes.fromhex(case["wire"]), id=case["name"])
    for case in VECTORS["cases"]
]
every_case = pytest.mark.each(("tagged", "wire"), CASES)

SCALED = {"L", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV"}


def value_of(tagged):
    """What a vector's tagged JSON stands for, as a caller would hold it."""
    ((kind, data),) = tagged.items()
    if kind == "float":
        return float.fromhex(data)
    if kind == "list":
        return [value_of(item) for item in data]
    if kind == "dict":
        return message_of(data)
    if kind == "ndarray":
        array = np.frombuffer(bytes.fromhex(data["hex"]), np.dtype(data["dtype"]))
        return array.reshape(data["shape"])
    if kind == "image":
        return Image.frombytes(data["mode"], tuple(data["size"]), bytes.fromhex(data["hex"]))
    if kind in ("numpy.int32", "numpy.int64"):
        return getattr(np, kind.removeprefix("numpy."))(data)
    assert kind in ("null", "bool", "int", "str"), kind
    return data


def message_of(entries):
    return {key: value_of(value) for key, value in entries}


def received(value, images):
    """What a receiver gets for a sent value."""
    if isinstance(value, dict):
        return {key: received(item, images) for key, item in value.items()}
    if isinstance(value, list):
        return [received(item, images) for item in value]
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, Image.Image):
        array = np.asarray(value)
        if value.mode == "1":  # Pillow gives a bool of the byte 255
            return array.view(np.uint8) != 0
        if images == "float32" and value.mode in SCALED:
            return array.astype(np.float32) * (1.0 / 255.0)  # RELAAX's own expression
        return array
    return value


FEEDS = {
    "bytes": bytes, "bytearray": bytearray, "memoryview": memoryview,
    "writable memoryview": lambda data: memoryview(bytearray(data)),
    "inner memoryview": lambda data: memoryview(b"?" + data + b"?")[1:-1], "mmap": mapped,
    "ndarray": lambda data: np.frombuffer(data, np.uint8), "Block": lambda data: in_block(data)[0],
}  # fmt: skip


def test_all_vectors_are_present():
    assert len(CASES) == 147
    assert "a0cf280" in VECTORS["about"]
    kinds = str([case["message"] for case in VECTORS["cases"]])
    for kind in ("null", "bool", "int", "float", "str", "list", "dict", "ndarray", "image"):
        assert f"'{kind}'" in kinds


@every_case
def test_vector_message_is_encoded_to_the_bytes_of_relaax(tagged, wire):
    message = message_of(tagged)
    framed = b"%d:%b," % (len(wire), wire)
    assert rlx.encode(message) == wire
    assert rlx.encode(message, framed=True) == framed
    assert b"".join(rlx.encode_parts(message)) == wire
    assert b"".join(rlx.encode_parts(message, framed=True)) == framed
    room = bytearray(len(framed) + 2)
    assert rlx.encode_into(message, room, 1, framed=True) == len(framed)
    assert bytes(room) == b"\0" + framed + b"\0"


@every_case
def test_wrapped_images_are_encoded_and_decoded_as_by_relaax(tagged, wire, same):
    sent = message_of(tagged)
    wrapped = {k: RLXMessageImage(v) if isinstance(v, Image.Image) else v for k, v in sent.items()}
    assert rlx.encode(wrapped) == wire
    for feed in FEEDS.values():
        assert same(rlx.decode(feed(wire), images="float32"), received(sent, "float32"))


@every_case
def test_oracle_agrees_with_the_vectors(tagged, wire, oracle, same):
    message = message_of(tagged)
    assert oracle.encode(message) == wire
    assert same(oracle.decode(wire), received(message, "array"))


@every_case
@pytest.mark.each("images", ["array", "float32"])
def test_vector_bytes_are_decoded_to_the_message(tagged, wire, images, same):
    expected = received(message_of(tagged), images)
    for copy in (True, False, None):
        decoder = rlx.RLXDecoder(copy=copy, images=images)
        for name, feed in FEEDS.items():
            assert same(decoder.decode(feed(wire)), expected), (name, copy)


@every_case
def test_vector_frame_is_decoded_to_the_message(tagged, wire, same):
    frame = b"%d:%b," % (len(wire), wire)
    expected = received(message_of(tagged), "array")
    for feed in FEEDS.values():
        assert same(rlx.decode(feed(frame), framed=True), expected)


@every_case
def test_truncated_message_is_rejected_unless_cut_between_entries(tagged, wire, oracle, same):
    message = received(message_of(tagged), "array")
    sent = list(message_of(tagged).items())
    whole = {len(oracle.encode(dict(sent[:count]))): count for count in range(len(sent))}
    for cut in range(len(wire)):
        if cut in whole:  # a message has no end of its own: fewer entries are a message, too
            assert same(rlx.decode(wire[:cut]), dict(list(message.items())[: whole[cut]]))
            continue
        assert raised(DecodeError, rlx.decode, wire[:cut]).offset <= cut
