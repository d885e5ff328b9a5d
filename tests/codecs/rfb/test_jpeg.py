"""Broken and hostile JPEG files: the named error at the right byte."""

import io
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rlwire.codecs.rfb import jpeg
from rlwire.codecs.rfb.jpeg import decode_jpeg
from rlwire.errors import DecodeError
from tests.mutating import mutated
from tests.raising import raised

FRAME = (np.arange(24 * 20 * 3) % 251).astype(np.uint8).reshape(24, 20, 3)
BASE = 17  # where the file begins in the message


def file_of(frame=FRAME, **options):
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "JPEG", **options)
    return file.getvalue()


def sof(data):
    """Where the frame header of a baseline JPEG begins."""
    return data.index(b"\xff\xc0")


def changed(data, spot, new):
    return data[:spot] + new + data[spot + len(new) :]


GOOD = file_of()
HEAD = sof(GOOD)
SCAN = GOOD.index(b"\xff\xda")
GREY = file_of(FRAME[..., 0])
PROGRESSIVE = file_of(progressive=True)

# name, data, a word of the error, offset in the file
BAD = [
    ("empty", b"", "SOI", 0),
    ("a PNG", b"\x89PNG\r\n\x1a\n" + GOOD, "SOI", 0),
    ("SOI alone", b"\xff\xd8", "first scan", 2),
    ("wider", changed(GOOD, HEAD + 7, b"\xff\xff"), "width is 65535", HEAD + 7),
    ("higher", changed(GOOD, HEAD + 5, b"\xff\xff"), "height is 65535", HEAD + 5),
    ("its height comes later", changed(GOOD, HEAD + 5, b"\0\0"), "height is 0", HEAD + 5),
    ("12 bits", changed(GOOD, HEAD + 4, b"\x0c"), "bit depth is 12", HEAD + 4),
    ("grey", GREY, "channels is 1", sof(GREY) + 9),
    ("progressive", PROGRESSIVE, "0xc2", PROGRESSIVE.index(b"\xff\xc2")),
    ("arithmetic coding", changed(GOOD, HEAD + 1, b"\xc9"), "0xc9", HEAD),
    ("two frame headers", GOOD[:SCAN] + GOOD[HEAD:], "frame header", SCAN),
    ("no frame header", b"\xff\xd8" + GOOD[SCAN:], "frame header", 2),
    ("many scans", GOOD[:-2] + GOOD[SCAN:-2] * 3 + GOOD[-2:], "more scans", SCAN),
    ("many segments", b"\xff\xd8" + b"\xff\xfe\0\2" * 1025 + GOOD[2:], "1024", 2 + 4 * 1024),
    ("bytes between segments", b"\xff\xd8\0\0\0\0" + GOOD[2:], "0x00", 2),
    ("a segment of 1 byte", b"\xff\xd8\xff\xfe\0\1", "0xfe", 2),
]


@pytest.fixture(params=["simplejpeg", "pillow"])
def reader(request, monkeypatch):
    if request.param == "pillow":
        monkeypatch.setattr(jpeg, "simplejpeg", None)
    elif jpeg.simplejpeg is None:
        pytest.skip("simplejpeg is not installed")


@pytest.mark.each(("data", "word", "offset"), [pytest.param(*c[1:], id=c[0]) for c in BAD])
def test_malformed_pictures_fail_at_their_offset(data, word, offset):
    caught = raised(DecodeError, decode_jpeg, data, 20, 24, BASE)
    assert word in str(caught)
    assert caught.offset == BASE + offset


def test_valid_jpeg_is_decoded_with_fill_bytes(reader):
    shown = np.asarray(Image.open(io.BytesIO(GOOD))).astype(int)
    assert np.abs(decode_jpeg(GOOD, 20, 24, BASE) - shown).max() <= 8
    assert decode_jpeg(GOOD[:2] + b"\xff\xff" + GOOD[2:], 20, 24, BASE).shape == FRAME.shape


def test_jpeg_without_a_scan_is_rejected(reader):
    assert raised(DecodeError, decode_jpeg, GOOD[: SCAN + 4], 20, 24, BASE).offset == BASE


def check(data):
    try:
        found = decode_jpeg(data, 20, 24, BASE)
    except DecodeError as problem:
        found = problem
    if isinstance(found, DecodeError):
        assert BASE <= found.offset <= BASE + len(data)
    else:
        assert (found.shape, found.dtype) == (FRAME.shape, np.uint8)


def test_mutated_pictures_are_decoded_or_rejected(reader):
    rng = random.Random(0)
    for _ in range(1500):
        check(mutated(rng, rng.choice((GOOD, GREY, PROGRESSIVE))))


@settings(max_examples=3 * settings().max_examples)
@given(st.binary(max_size=80))
def test_random_bytes_are_decoded_or_rejected(data):
    check(data)
    check(b"\xff\xd8" + data)
