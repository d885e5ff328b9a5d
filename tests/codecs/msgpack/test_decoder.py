"""msgpack to values: what the msgpack package reads, its options, hooks and keys."""

import msgpack as original
import pytest

from rlwire.codecs import msgpack
from rlwire.codecs.msgpack import Decoder
from rlwire.errors import DecodeError
from tests.raising import raised, raised_with


@pytest.mark.parametrize(
    "data",
    [
        *["ccff", "cd0005", "ce00000005", "cf0000000000000005", "cfffffffffffffffff"],
        *["d0ff", "d10005", "d2ffffffff", "d38000000000000000"],
        *["ca3fc00000", "ca7f800000", "cb7ff8000000000000", "ca00000001"],
        *["d90161", "da000161", "db0000000161", "c40161", "c5000161", "c60000000161"],
        *["dc000101", "dd0000000101", "de0001a16101", "df00000001a16101", "82a16101a16102"],
    ],
)
def test_overlong_forms_and_duplicate_keys_are_decoded_as_by_msgpack(data, same):
    assert same(msgpack.decode(bytes.fromhex(data)), original.unpackb(bytes.fromhex(data)))


@pytest.mark.parametrize(
    ("data"), [(b"\x81\x80\x01"), (b"\x81\x91\x80\x01"), (b"\x81\xd4\x05a\x01")]
)
def test_unhashable_keys_are_rejected_at_their_offset(data):
    decoder = Decoder(strict_map_key=False, ext_hook=lambda code, data: [code])
    caught = raised(DecodeError, decoder.decode, data)
    assert caught.offset == data.find(b"\x80" if b"\x80" in data else b"\xd4")


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1,), {}])
def test_strict_map_key_rejects_the_same_keys_as_msgpack(key):
    data = b"\x81" + original.packb(key) + b"\x01"
    assert "strict_map_key" in str(raised(DecodeError, msgpack.decode, data))
    raised_with(ValueError, r"not allowed for map key|unhashable", original.unpackb, data)


def test_decoder_options_are_validated_and_readable():
    wrong = [
        ({"copy": "yes"}, ValueError, "copy must be"),
        ({"timestamp": 3}, TypeError, "timestamp must be"),
        ({"ext_hook": 1}, TypeError, "ext_hook must be callable"),
        ({"limits": 1}, TypeError, "limits must be"),
    ]
    for options, error, words in wrong:
        raised_with(error, words, Decoder, **options)
