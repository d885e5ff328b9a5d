"""RELAAX's message class over the codec: its interface, and where it differs on purpose."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from rlwire.errors import DecodeError, EncodeError
from rlwire.rlx import RLXMessage, RLXMessageImage


def test_to_wire_gives_the_bytes_of_the_format():
    wire = RLXMessage.to_wire({"command": "init", "exploit": False})
    assert type(wire) is bytearray
    assert wire == (
        struct.pack("<I", 1)
        + struct.pack("<I", 7) + b"command" + struct.pack("<BI", 3, 4) + b"init"
        + struct.pack("<I", 7) + b"exploit" + struct.pack("<BB", 5, 0)
    )  # fmt: skip


def test_round_trip():
    message = {
        "none": None,
        "int": -5,
        "long": 2**40,
        "float": 0.25,
        "text": "\N{SNOWMAN}",
        "list": [1, [2.5, True]],
        "dict": {"a": {}},
    }
    assert RLXMessage.from_wire(RLXMessage.to_wire(message)) == message


def test_arrays_own_their_memory():
    state = np.arange(12, dtype=">i4").reshape(3, 4)
    wire = RLXMessage.to_wire({"state": state})
    result = RLXMessage.from_wire(wire)["state"]
    wire[:] = bytes(len(wire))
    assert result.dtype == state.dtype
    assert np.array_equal(result, state)
    result[0, 0] = 9


@pytest.mark.parametrize("wrap", [RLXMessageImage, lambda image: image])
def test_images_become_floats_as_relaax_makes_them(wrap):
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    wire = RLXMessage.to_wire({"state": wrap(Image.fromarray(pixels))})
    result = RLXMessage.from_wire(wire)["state"]
    assert result.dtype == np.float32
    assert np.array_equal(result, pixels.astype(np.float32) * (1.0 / 255.0))


def test_unknown_values_are_refused_not_sent_as_text():
    with pytest.raises(EncodeError, match="state"):
        RLXMessage.to_wire({"state": [object()]})


@pytest.mark.parametrize("wire", [b"", b"\x01\x00", RLXMessage.to_wire({"a": 1})[:-1]])
def test_malformed_bytes_have_a_name(wire):
    with pytest.raises(DecodeError):
        RLXMessage.from_wire(wire)
