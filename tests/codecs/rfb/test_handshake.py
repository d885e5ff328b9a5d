from __future__ import annotations

import pytest

from rlwire.codecs.rfb import handshake
from rlwire.codecs.rfb.handshake import ServerInit, Version
from rlwire.codecs.rfb.messages import RGB888, compress_level, quality_level
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits

OLD, NEW = (3, 3), (3, 8)


@pytest.mark.each("version", [(3, 3), (3, 7), (3, 8), (3, 889), (4, 1), (0, 0)])
def test_a_version_and_its_bytes(version: Version) -> None:
    data = handshake.encode_version(version)
    assert len(data) == handshake.VERSION_SIZE
    assert handshake.decode_version(b"x" + data, 1) == version


@pytest.mark.each(
    "data", [b"RFB 003.008", b"RFB 003.008\r", b"RFB 003 008\n", b"rfb 003.008\n", b"SSH-2.0-Open"]
)
def test_what_is_no_version_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="is no version of RFB"):
        handshake.decode_version(data)


@pytest.mark.each(
    ("version", "offer", "data"),
    [
        (OLD, [1], b"\0\0\0\1"),
        (OLD, "no", b"\0\0\0\0\0\0\0\2no"),
        (NEW, [2, 16], b"\2\2\x10"),
        (NEW, list(range(1, 256)), bytes((255, *range(1, 256)))),
        (NEW, "é", b"\0\0\0\0\2\xc3\xa9"),
        (NEW, "", b"\0\0\0\0\0"),
    ],
)
def test_what_a_server_offers(version: Version, offer: list[int] | str, data: bytes) -> None:
    if version == NEW:
        assert handshake.encode_security(offer) == data
    assert handshake.decode_security(data, version) == offer
    sizes = [handshake.security_size(data, 0, have, version) for have in range(len(data) + 1)]
    known = sizes.index(len(data))
    assert sizes == [0] * known + [len(data)] * (len(data) + 1 - known)


def test_an_endless_reason_is_refused_by_its_length() -> None:
    with pytest.raises(LimitExceeded, match="header=8192 - at byte 1"):
        handshake.security_size(b"\0\xff\xff\xff\xff", 0, 5, NEW)
    assert handshake.reason_size(b"\0\0\0\5", 0, 4, Limits(header=5)) == 9


def test_a_reason_that_is_not_utf8_is_latin1() -> None:
    assert handshake.decode_reason(b"\0\0\0\1\xe9") == "é"
    assert handshake.encode_reason("é") == b"\0\0\0\2\xc3\xa9"


def test_how_it_ended() -> None:
    for failure, data in ((None, b"\0\0\0\0"), ("no", b"\0\0\0\1\0\0\0\2no")):
        assert handshake.encode_result(failure) == data
        assert handshake.decode_result(data) == (failure is not None)


INIT = bytes.fromhex("0400 0300 2018000100ff00ff00ff100800000000 00000002") + b"me"


def test_what_the_desktop_is() -> None:
    init = ServerInit(1024, 768, RGB888, "me")
    assert handshake.encode_server_init(init) == INIT
    assert handshake.decode_server_init(INIT) == init
    sizes = [handshake.server_init_size(INIT, 0, have) for have in range(len(INIT) + 1)]
    assert sizes == [0] * 24 + [26, 26, 26]


@pytest.mark.parametrize(("place", "value"), [(7, 0), (4, 24)], ids=["colour map", "24 bits"])
def test_a_desktop_of_other_pixels_has_no_format(place: int, value: int) -> None:
    data = bytearray(INIT)
    data[place] = value
    init = handshake.decode_server_init(data)
    assert init.pixel_format is None
    with pytest.raises(EncodeError, match="pixel format"):
        handshake.encode_server_init(init)


def test_a_desktop_with_an_endless_name_is_refused() -> None:
    with pytest.raises(LimitExceeded):
        handshake.server_init_size(INIT[:20] + b"\xff" * 4, 0, 24)


def test_a_desktop_that_is_too_wide_is_not_written() -> None:
    with pytest.raises(EncodeError, match="70000x1"):
        handshake.encode_server_init(ServerInit(70000, 1, RGB888, ""))


def test_whether_others_may_stay() -> None:
    assert handshake.encode_client_init(True) == b"\1"
    assert handshake.encode_client_init(False) == b"\0"


def test_security_types_have_names() -> None:
    assert handshake.security_name(19) == "VeNCrypt (19)"
    assert handshake.security_name(77) == "77"


def test_levels() -> None:
    assert [quality_level(i) for i in (0, 9)] == [-32, -23]
    assert [compress_level(i) for i in (0, 9)] == [-256, -247]
    with pytest.raises(ValueError, match="quality must be 0 to 9, not 10"):
        quality_level(10)
