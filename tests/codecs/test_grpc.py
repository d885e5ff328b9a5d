"""gRPC's words in header fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs import grpc
from rlwire.errors import DecodeError, EncodeError
from tests.raising import raised


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("plain, with ~ and !", "plain, with ~ and !"), ("100%", "100%25"), ("\x7f", "%7F"),
        ("a\nb\0", "a%0Ab%00"), ("Grüße", "Gr%C3%BC%C3%9Fe"),
    ],
)  # fmt: skip
def test_status_messages_are_percent_encoded(text, encoded):
    assert grpc.encode_message(text) == encoded
    assert grpc.decode_message(encoded) == text


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_random_status_message_round_trips(text):
    encoded = grpc.encode_message(text)
    assert encoded.isascii()
    assert encoded.isprintable()
    assert grpc.decode_message(encoded) == text


def test_malformed_percent_encoding_keeps_the_message():
    """PROTOCOL-HTTP2.md: a wrong encoding MUST NOT lose the message."""
    assert grpc.decode_message("50% of %zz %4") == "50% of %zz %4"
    assert grpc.decode_message("%C3") == "\ufffd"
    assert grpc.decode_message("Gr\xc3\xbc\xc3\x9fe") == "Grüße"
    assert grpc.encode_message("\ud800") == "\\ud800"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0n"), (1e-9, "1n"), (0.05, "50000000n"), (0.1, "100000u"), (99.999999, "99999999u"),
        (100, "100000m"), (1e5, "100000S"), (3e8, "5000000M"), (1e11, "27777778H"),
    ],
)  # fmt: skip
def test_timeouts_are_decoded(seconds, text):
    assert grpc.decode_timeout(text) == pytest.approx(seconds, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("text", ["", "S", "1", "-1S", "123456789S", "1s", "1.5S", "1 S", "१S"])
def test_malformed_timeouts_are_rejected(text):
    raised(DecodeError, grpc.decode_timeout, text)


def test_status_codes_equal_those_of_grpc():
    assert [grpc.status_code(name) for name in grpc.Code.__members__] == list(range(17))
    assert grpc.decode_status("5") == "NOT_FOUND"
    assert grpc.decode_status("99") == "UNKNOWN"
    for text in ("", "x", "-1", "1" * 10, "1.0"):
        raised(DecodeError, grpc.decode_status, text)
    raised(EncodeError, grpc.status_code, "FINE")


def test_http_and_reset_codes_map_to_grpc_statuses():
    assert [grpc.status_of_http(code) for code in (400, 401, 404, 503, 418)] == [
        *("INTERNAL", "UNAUTHENTICATED", "UNIMPLEMENTED", "UNAVAILABLE", "UNKNOWN")
    ]
    names = ["INTERNAL"] * 5 + ["UNKNOWN", "INTERNAL", "UNAVAILABLE", "CANCELLED"]
    names += ["INTERNAL", "INTERNAL", "RESOURCE_EXHAUSTED", "PERMISSION_DENIED", "UNKNOWN"]
    assert [grpc.status_of_reset(code) for code in range(14)] == names


def test_metadata_round_trips():
    metadata = (("a", "text"), ("b-bin", b"\0\xff\x01"), ("a", ""), ("_.-0", "~"))
    fields = grpc.encode_metadata(metadata)
    assert fields == [("a", "text"), ("b-bin", "AP8B"), ("a", ""), ("_.-0", "~")]
    assert grpc.decode_metadata([(":path", "/"), *fields]) == metadata


@given(st.binary(max_size=40))
def test_binary_metadata_is_decoded_with_and_without_padding(value):
    [(name, text)] = grpc.encode_metadata([("x-bin", value)])
    assert not text.endswith("=")
    for padded in (text, text + "=" * (-len(text) % 4)):
        assert grpc.decode_metadata([(name, padded)]) == (("x-bin", value),)
    assert grpc.decode_metadata([(name, f"{text}, {text}")]) == (("x-bin", value),) * 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Upper", "x"), ("a b", "x"), ("", "x"), (":path", "x"), ("grpc-own", "x"), ("a", "b\n"),
        ("a", " b"), ("a", "é"), ("a", b"\xff"), ("a-bin", "text"),
    ],
)  # fmt: skip
def test_encoder_rejects_invalid_metadata(name, value):
    raised(EncodeError, grpc.encode_metadata, [(name, value)])


@pytest.mark.parametrize("text", ["a", "!!!!", "abcd=efg"])
def test_malformed_base64_in_metadata_is_rejected(text):
    assert "x-bin" in str(raised(DecodeError, grpc.decode_metadata, [("x-bin", text)]))
