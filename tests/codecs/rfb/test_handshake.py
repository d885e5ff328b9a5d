import builtins

import pytest

from rlwire.codecs.rfb import handshake
from rlwire.codecs.rfb.handshake import ServerInit, respond
from rlwire.codecs.rfb.messages import RGB888, Encoding, level_encoding
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, MissingExtra
from rlwire.limits import Limits
from tests.raising import raised

OLD, NEW = (3, 3), (3, 8)


@pytest.mark.each("version", [(3, 3), (3, 7), (3, 8), (3, 889), (4, 1), (0, 0)])
def test_protocol_version_round_trips(version):
    data = handshake.encode_version(version)
    assert len(data) == handshake.VERSION_SIZE
    assert handshake.decode_version(b"x" + data, 1) == version


@pytest.mark.each(
    "data", [b"RFB 003.008", b"RFB 003.008\r", b"RFB 003 008\n", b"rfb 003.008\n", b"SSH-2.0-Open"]
)
def test_invalid_versions_are_rejected(data):
    raised(DecodeError, handshake.decode_version, data)


@pytest.mark.each(
    ("version", "offer", "data"),
    [
        (OLD, [1], b"\0\0\0\1"), (OLD, "no", b"\0\0\0\0\0\0\0\2no"), (NEW, [2, 16], b"\2\2\x10"),
        (NEW, list(range(1, 256)), bytes((255, *range(1, 256)))), (NEW, "é", b"\0\0\0\0\2\xc3\xa9"),
        (NEW, "", b"\0\0\0\0\0"),
    ],
)  # fmt: skip
def test_security_types_round_trip(version, offer, data):
    assert handshake.encode_security(offer, version) == data
    assert handshake.decode_security(data, version) == offer
    sizes = [handshake.security_size(data, 0, have, version) for have in range(len(data) + 1)]
    known = sizes.index(len(data))
    assert sizes == [0] * known + [len(data)] * (len(data) + 1 - known)


def test_reason_over_the_header_limit_is_rejected():
    with pytest.raises(LimitExceeded, match="header=8192 - at byte 1"):
        handshake.security_size(b"\0\xff\xff\xff\xff", 0, 5, NEW)
    assert handshake.reason_size(b"\0\0\0\5", 0, 4, Limits(header=5)) == 9


def test_non_utf8_reason_is_decoded_as_latin1():
    assert handshake.decode_reason(b"\0\0\0\1\xe9") == "é"
    assert handshake.encode_reason("é") == b"\0\0\0\2\xc3\xa9"


def test_security_result_round_trips():
    for version, failure, data in (
        (NEW, None, b"\0\0\0\0"),
        (NEW, "no", b"\0\0\0\1\0\0\0\2no"),
        ((3, 7), "no", b"\0\0\0\1"),
        (OLD, None, b"\0\0\0\0"),
    ):
        assert handshake.encode_result(failure, version) == data
        assert handshake.decode_result(data) == (failure is not None)


INIT = bytes.fromhex("0400 0300 2018000100ff00ff00ff100800000000 00000002") + b"me"


def test_server_init_round_trips():
    init = ServerInit(1024, 768, RGB888, "me")
    assert handshake.encode_server_init(init) == INIT
    assert handshake.decode_server_init(INIT) == init
    sizes = [handshake.server_init_size(INIT, 0, have) for have in range(len(INIT) + 1)]
    assert sizes == [0] * 24 + [26, 26, 26]
    raised(LimitExceeded, handshake.server_init_size, INIT[:20] + b"\xff" * 4, 0, 24)


@pytest.mark.parametrize(("place", "value"), [(7, 0), (4, 24)], ids=["colour map", "24 bits"])
def test_server_init_with_unsupported_pixels_has_no_pixel_format(place, value):
    data = bytearray(INIT)
    data[place] = value
    assert handshake.decode_server_init(data).pixel_format is None


def test_level_encoding_maps_levels_0_to_9():
    assert [level_encoding(Encoding.QUALITY_0, i) for i in (0, 9)] == [-32, -23]
    assert "0 to 9, not 10" in str(raised(ValueError, level_encoding, Encoding.COMPRESS_0, 10))


CHALLENGE = bytes(range(16))


def test_vnc_response_is_des_with_reversed_key_bits():
    # FIPS 81's example, its key with the bits of each byte reversed as text of Latin-1.
    key = bytes(int(f"{byte:08b}"[::-1], 2) for byte in bytes.fromhex("0123456789abcdef"))
    plain = bytes.fromhex("4e6f772069732074") * 2
    assert respond(plain, key.decode("latin-1")) == bytes.fromhex("3fa40e8a984d4815") * 2


def test_vnc_response_uses_the_first_8_password_characters():
    assert respond(CHALLENGE, "12345678") == respond(CHALLENGE, "123456789")
    assert respond(CHALLENGE, "12345678") != respond(CHALLENGE, "1234567")
    assert respond(CHALLENGE, "") == respond(CHALLENGE, "\0" * 8)
    assert "1" in str(raised(EncodeError, respond, CHALLENGE, "€"))


def test_missing_cryptography_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.partition(".")[0] == "cryptography":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    raised(MissingExtra, respond, CHALLENGE, "secret")
