"""HPACK through our class: the examples of RFC 7541, limits, and what never enters a table."""

import random
import re

import pytest

from rlwire.codecs.http2 import frames as http2
from rlwire.codecs.http2.frames import Http2Error
from rlwire.codecs.http2.headers import Headers, SecretBlanker, malformed
from rlwire.errors import EncodeError, LimitExceeded
from rlwire.limits import Limits
from rlwire.sessions.http2.core import Http2Core, Stream
from tests.raising import raised

REQUEST = [
    (":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com"),
]  # fmt: skip
REQUESTS = [
    REQUEST,
    [*REQUEST, ("cache-control", "no-cache")],
    [
        *(REQUEST[0], (":scheme", "https"), (":path", "/index.html"), REQUEST[3]),
        ("custom-key", "custom-value"),
    ],
]
DATE = "Mon, 21 Oct 2013 20:13:21 GMT"
RESPONSE = [
    (":status", "302"), ("cache-control", "private"), ("date", DATE),
    ("location", "https://www.example.com"),
]  # fmt: skip
RESPONSES = [
    RESPONSE,
    [(":status", "307"), *RESPONSE[1:]],
    [
        *((":status", "200"), RESPONSE[1], ("date", DATE.replace("21 GMT", "22 GMT")), RESPONSE[3]),
        ("content-encoding", "gzip"),
        ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
]
# A table of 256 bytes, as appendix C.5 and C.6 have it, is chosen by an update of its size.
SMALL_TABLE = "3fe101"

APPENDIX_C = {
    "C.2.1": (
        ["400a637573746f6d2d6b65790d637573746f6d2d686561646572"],
        [[("custom-key", "custom-header")]],
    ),
    "C.2.2": (["040c2f73616d706c652f70617468"], [[(":path", "/sample/path")]]),
    "C.2.3": (["100870617373776f726406736563726574"], [[("password", "secret")]]),
    "C.2.4": (["82"], [[(":method", "GET")]]),
    "C.3": (
        [
            "828684410f7777772e6578616d706c652e636f6d", "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ],
        REQUESTS,
    ),
    "C.4": (
        [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff", "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ],
        REQUESTS,
    ),
    "C.5": (
        [
            SMALL_TABLE + "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a"
            "31333a323120474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d",
            "4803333037c1c0bf",
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738"
            "666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d33"
            "3630303b2076657273696f6e3d31",
        ],
        RESPONSES,
    ),
    "C.6": (
        [
            SMALL_TABLE + "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e"
            "919d29ad171863c78f0b97c8e9ae82ae43d3",
            "4883640effc1c0bf",
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7"
            "b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ],
        RESPONSES,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("blocks", "lists"), APPENDIX_C.values(), ids=list(APPENDIX_C))
def test_rfc_examples_are_decoded(blocks, lists):
    headers = Headers()
    assert [headers.decode(bytes.fromhex(block)) for block in blocks] == lists
    # What we say of the same is read by another.
    sender, receiver = Headers(), Headers()
    assert [receiver.decode(sender.encode(fields)) for fields in lists] == lists


def test_repeated_header_is_encoded_in_one_byte():
    headers = Headers()
    fields = [(":path", "/dm_env_rpc.v1.Environment/Process"), ("user-agent", "rlwire")]
    first, second = headers.encode(fields), headers.encode(fields)
    assert (len(first) > 20, len(second)) == (True, 2)


@pytest.mark.parametrize("name", ["authorization", "cookie", "grpc-timeout", "grpc-message"])
def test_credentials_are_never_indexed(name):
    """RFC 7541, section 7.1.3: as a literal that is never indexed, by whoever passes it on too."""
    headers = Headers()
    first = headers.encode([(name, "Bearer 123")])
    assert first[0] & 0xF0 == 0x10
    assert headers.encode([(name, "Bearer 123")]) == first


def test_header_encoder_honours_the_peers_table_size():
    sender, receiver = Headers(), Headers()
    sender.resize(0)
    for _ in range(3):
        block = sender.encode([("custom", "value")])
        assert receiver.decode(block) == [("custom", "value")]
        assert len(block) > 5
    sender.resize(2**32 - 1)
    sender.encode([("custom", "value")])
    assert len(sender.encode([("custom", "value")])) == 1


@pytest.mark.parametrize(
    "block",
    [
        "80",  # index 0
        "ff80808080808080808001",  # an endless number
        "be",  # an index that no table has
        "400a6375",  # it ends inside a name
        "4082ffff01610161",  # Huffman padding of over 7 bits
        "4081000161",  # Huffman padding that is not the code's begin
        "3fe2ff03",  # a table larger than we allow
        "8220",  # a new size behind a field
    ],
)
def test_invalid_header_block_is_a_compression_error(block):
    """RFC 9113, section 4.3: a connection error COMPRESSION_ERROR."""
    caught = raised(Http2Error, Headers().decode, bytes.fromhex(block))
    assert (caught.code, caught.stream) == (http2.COMPRESSION_ERROR, 0)
    assert "header block" in str(caught)
    assert not re.search("0x|b'|memory", str(caught))  # hpack's text has the block


def test_header_list_over_the_limit_is_rejected():
    each = len("ab") + 32
    for count, good in ((8192 // each, True), (8192 // each + 1, False)):
        headers = Headers(Limits(header=8192))
        block = b"\x00\x01a\x01b" * count
        if good:
            assert len(headers.decode(block)) == count
        else:
            raised(LimitExceeded, headers.decode, block)


@pytest.mark.parametrize(
    "field",
    [("A", "b"), ("", "b"), ("a b", "c"), ("a", "b\n"), ("a", " b"), ("a", "b\0"), ("a", "\u20ac")],
)
def test_header_encoder_rejects_invalid_fields(field):
    raised(EncodeError, Headers().encode, [field])


PSEUDO = (":method", ":scheme", ":path", ":authority")


def test_malformed_header_field_error_names_the_field():
    assert malformed([*REQUEST, ("te", "trailers"), ("a", "")], PSEUDO) == ""
    assert malformed(REQUEST[:3], PSEUDO) == ""
    assert malformed(REQUEST[:2], PSEUDO) == "missing :path"
    assert malformed([("grpc-status", "0")]) == ""
    assert ":path" in malformed([(":path", "/")])
    for field in (("a", "b\0"), ("a", " b"), ("a:b", "c"), ("transfer-encoding", "chunked")):
        assert field[0] in malformed([*REQUEST, field], PSEUDO)


@pytest.mark.parametrize("cut", [1, 5, 8, 9, 10, 4000])
def test_recording_masks_only_secret_headers(cut):
    looks_like_headers = http2.frame(http2.HEADERS, 4, 1, b"\xff" * 30) * 40
    data = http2.PREFACE + http2.settings({}) + http2.frame(http2.DATA, 0, 1, looks_like_headers)
    unknown = http2.frame(0xBE, 0, 0, http2.PREFACE + looks_like_headers)
    secret = http2.frame(http2.HEADERS, 4, 1, Headers().encode([("authorization", "s3cr3t")]))
    blanker, found = SecretBlanker(), b""
    for frame in (data, unknown, secret, unknown, secret):
        head, rest = (frame, b"") if frame in (data, secret) else (frame[:9], frame[9:])
        pieces = [head, *(rest[at : at + cut] for at in range(0, len(rest), cut))]
        found += b"".join(map(bytes, map(blanker.blank, pieces)))
    before, *blanked = found.split(unknown)
    assert before == data
    decoder = Headers()
    for frame in blanked:
        assert decoder.decode(frame[9:]) == [("authorization", "*" * 6)]
    assert len(blanked) == 2


def test_recording_omits_undecodable_header_blocks():
    encoder, blanker = Headers(Limits(header=10**6)), SecretBlanker(Limits(header=10_000))

    def blanked(*fields):
        return bytes(blanker.blank(http2.frame(http2.HEADERS, 4, 1, encoder.encode(fields))))

    assert blanked(("long", "x" * 9000), ("x-token", "1"))[3] == http2.HEADERS
    assert blanked(("long", "y" * 10_000), ("x-token", "2")) == b""
    assert blanked(("x-token", "s3cr3t")) == b""  # its name may be in the lost part of the table
    assert blanker.blank(http2.ping()) == http2.ping()


def test_frame_head_is_never_split_between_buffers():
    """A recording blanks the buffers of a long message one by one."""
    endpoint = Http2Core(True)
    endpoint.receive(http2.settings({http2.INITIAL_WINDOW_SIZE: 2**30}))
    endpoint.receive(http2.window_update(0, 2**30))
    rng = random.Random(29)
    for number in range(1, 400, 2):
        stream = Stream(number)
        endpoint.add(stream)
        sizes = [rng.choice((0, 1, 5, 900, 1100, 16375, 16384, 16390, 50_000)) for _ in range(4)]
        parts = [bytes([rng.choice((1, 9, 255))]) * size for size in sizes]
        buffers = [*endpoint.message(stream, parts), *endpoint.output()]
        assert b"".join(map(bytes, map(SecretBlanker().blank, buffers))) == b"".join(buffers)
        assert sum(map(len, buffers)) >= sum(sizes) + 14
