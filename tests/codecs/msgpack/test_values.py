"""Extensions and timestamps, as the msgpack package has them."""

import copy
import pickle

import msgpack as original
import pytest

from rlwire.codecs.msgpack import ExtType, Timestamp
from tests.raising import raised

POINTS = [(0, 0), (1, 5), (-1, 999_999_999), (2**34, 1), (2**32 - 1, 0), (2**32, 0), (-(2**63), 0)]


@pytest.mark.parametrize(("seconds", "nanoseconds"), POINTS)
def test_timestamp_behaves_as_that_of_msgpack(seconds, nanoseconds):
    ours, theirs = Timestamp(seconds, nanoseconds), original.Timestamp(seconds, nanoseconds)
    assert repr(ours) == repr(theirs)
    assert hash(ours) == hash(theirs)
    assert ours == copy.copy(ours) == pickle.loads(pickle.dumps(ours))
    assert ours != theirs
    assert ours != Timestamp(seconds, (nanoseconds + 1) % 10**9)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((1.5,), TypeError), ((1, 1.5), TypeError), ((2**63,), ValueError), ((0, -1), ValueError),
        ((0, 10**9), ValueError),
    ],
)  # fmt: skip
def test_invalid_timestamps_are_rejected(arguments, error):
    raised(error, Timestamp, *arguments)


def test_extension_behaves_as_that_of_msgpack():
    found = ExtType(5, b"data")
    assert (found.code, found.data) == found == (5, b"data")
    assert repr(found) == repr(original.ExtType(5, b"data"))
    assert pickle.loads(pickle.dumps(found)) == found
    assert ExtType(-128, b"").code == -128


@pytest.mark.parametrize(
    ("code", "data", "error"),
    [(128, b"", ValueError), (-129, b"", ValueError), (1.0, b"", TypeError), (1, "x", TypeError)],
)
def test_invalid_extensions_are_rejected(code, data, error):
    raised(error, ExtType, code, data)
