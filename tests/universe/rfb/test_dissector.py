"""The dissector on captures between rlwire's own viewer and server, and on damaged bytes."""

import struct
import zlib

import numpy as np
import pytest

from rlwire.codecs.rfb import messages as rfb
from rlwire.codecs.rfb.handshake import ServerInit, encode_server_init
from rlwire.codecs.rfb.messages import Encoding, PixelFormat
from rlwire.limits import Limits
from rlwire.universe.rfb import Display, RfbClient, RfbServer
from rlwire.universe.rfb.dissector import RfbDissector
from tests.recording.captures import damage, dissected, relay
from tests.sessions.rfb.test_client import sign, update
from tests.waiting import eventually

CHANCE = np.random.default_rng(1)
PICTURES = [
    np.full((height, width, 3), 50, np.uint8) for height, width in ((48, 64), (48, 64), (24, 32))
]
for _picture in PICTURES:
    _picture[:20, :30] = CHANCE.integers(0, 256, (20, 30, 3))
HELLO = [
    (False, b"RFB 003.003\n"), (True, b"RFB 003.003\n"), (False, b"\0\0\0\1"), (True, b"\1"),
    (False, encode_server_init(ServerInit(4, 2, rfb.RGB888, "small"))),
]  # fmt: skip


def captured(encoding):
    """The chunks of a viewer that sees all `PICTURES`, presses a key and moves the pointer."""
    received_all = []
    display = Display(64, 48, on_input=lambda viewer, message: received_all.append(message))
    with (
        RfbServer(display, "127.0.0.1:0", auth="secret") as server,
        relay(server.address.port) as relayed,
    ):
        where = f"127.0.0.1:{relayed.port}"
        with RfbClient(where, auth="secret", encodings=[encoding]).connect() as client:
            for frame in PICTURES:
                display.show(frame)
                while not np.array_equal(client.snapshot(), frame):
                    client.update(20.0)
            client.key("Left", True)
            client.pointer(3, 4)
            eventually(lambda: len(received_all) == 2)
        return relayed.chunks


def served(*messages, form=rfb.RGBX, cut=1000):
    first = [*HELLO, (True, rfb.encode(rfb.SetPixelFormat(form)))]
    cuts = [each[at : at + cut] for each in messages for at in range(0, len(each), cut)]
    return dissected(RfbDissector(), [*first, *((False, each) for each in cuts)])[len(first) :]


@pytest.mark.parametrize("encoding", [Encoding.TIGHT, Encoding.RAW])
@pytest.mark.parametrize("cut", [1 << 20, 7])
def test_dissector_decodes_a_captured_session(encoding, cut):
    seen = []
    found = {}
    names = set()
    size, whole, dissector = 0, captured(encoding), RfbDissector()
    for side, data in whole:
        for at in range(0, len(data), cut):
            for message in dissector.dissect(data[at : at + cut], side):
                found[message.kind] = message.value
                size += message.size
                if message.kind == "FramebufferUpdate":
                    assert not message.value["screen"].flags.writeable
                    seen.append(message.value["screen"].copy())
                    names |= {each["encoding"] for each in message.value["rectangles"]}
    assert size == sum(len(data) for _, data in whole)
    assert [*found][:8] == [
        "ProtocolVersion", "SecurityTypes", "SecurityType", "Challenge", "ChallengeResponse",
        "SecurityResult", "ClientInit", "ServerInit",
    ]  # fmt: skip
    assert found["SecurityResult"] == 0
    assert (found["ServerInit"]["width"], found["ServerInit"]["height"]) == (64, 48)
    assert encoding.name in found["SetEncodings"]
    assert found["KeyEvent"] == {"key": "Left", "keysym": 0xFF51, "down": True}
    assert found["PointerEvent"] == {"x": 3, "y": 4, "buttons": 0}
    assert {encoding.name, "DESKTOP_SIZE"} <= names
    assert "damaged" not in found
    for frame in PICTURES:
        assert any(np.array_equal(frame, one) for one in seen)


BIG = PixelFormat(32, 24, True, 255, 255, 255, 24, 16, 8)


@pytest.mark.parametrize(
    ("form", "pixel"), [(rfb.RGB888, b"\3\2\1\0"), (rfb.RGBX, b"\1\2\3\0"), (BIG, b"\1\2\3\0")]
)
def test_colours_have_the_same_order_in_every_format(form, pixel):
    (message,) = served(update(sign(Encoding.RAW, 0, 0, 4, 2, 8 * pixel)), form=form)
    assert (message.value["screen"] == [1, 2, 3]).all()


@pytest.mark.parametrize("cut", [1000, 1])
def test_dissector_decodes_messages_of_other_servers(cut):
    cursor = sign(Encoding.CURSOR, 0, 0, 9, 3, bytes(9 * 3 * 4 + 2 * 3))
    resized = sign(Encoding.EXTENDED_DESKTOP_SIZE, 0, 0, 3, 2, b"\1\0\0\0" + bytes(16))
    until_last = b"\0\0\xff\xff" + cursor + sign(Encoding.LAST_RECT, 0, 0, 0, 0)
    text, colours = b"\3\0\0\0\0\0\0\2ab", b"\1\0\0\1\0\1" + bytes(6)
    messages = update(cursor, resized), b"\2", text, colours, until_last
    first, bell, cut_text, colour_map, last = served(*messages, cut=cut)
    kinds = ["CURSOR", "EXTENDED_DESKTOP_SIZE"]
    assert [each["encoding"] for each in first.value["rectangles"]] == kinds
    assert first.value["screen"].shape == (2, 3, 3)
    assert (bell.kind, colour_map.kind) == ("Bell", "SetColourMapEntries")
    assert (cut_text.kind, cut_text.value["text"]) == ("ServerCutText", "ab")
    assert len(last.value["rectangles"]) == 1


def test_dissector_marks_undecodable_pixels():
    packed = zlib.compressobj()
    good = packed.compress(b"\1\1\2\3") + packed.flush(zlib.Z_SYNC_FLUSH)
    updates = [
        update(sign(Encoding.ZRLE, 0, 0, 4, 2, struct.pack(">I", len(data)) + data))
        for data in (good, b"no zlib")
    ]
    first, second = served(*updates)
    assert (first.value["screen"] == [1, 2, 3]).all()
    assert "zlib" in second.value["rectangles"][0]["error"]
    assert "screen" not in second.value
    small = PixelFormat(16, 16, False, 31, 63, 31, 11, 5, 0)
    message, bell = served(update(sign(Encoding.RAW, 0, 0, 1, 1, b"\1\2")), b"\2", form=small)
    assert (message.kind, "16" in message.error, bell.kind) == ("damaged", True, "Bell")
    found = dissected(RfbDissector(Limits(pixels=100)), captured(Encoding.RAW))
    assert {"damaged", "KeyEvent"} <= {message.kind for message in found}
    many = b"\0\0\xff\xff" + 3000 * sign(Encoding.CURSOR, 0, 0, 0, 0)
    *_, message = dissected(RfbDissector(Limits(received=1_000_000)), [*HELLO, (False, many)])
    assert (message.kind, "received" in message.error) == ("damaged", True)


def test_dissector_omits_the_screen_after_a_gap_until_complete():
    dissector = RfbDissector()
    part = update(sign(Encoding.RAW, 0, 0, 1, 1, b"\1\2\3\0"))
    whole = update(sign(Encoding.RAW, 0, 0, 4, 2, bytes(32)))
    for by_client, data in (*HELLO, (False, part[:-1])):
        assert "damaged" not in [each.kind for each in dissector.dissect(data, by_client)]
    lost, first = dissector.dissect(part, False, 3)
    (second,) = dissector.dissect(whole, False)
    assert lost.kind == "damaged"
    assert ["screen" in message.value for message in (first, second)] == [False, True]


@pytest.mark.parametrize("encoding", [Encoding.TIGHT, Encoding.RAW])
def test_dissector_survives_damaged_bytes(encoding):
    assert damage(lambda: RfbDissector(Limits(pixels=10_000)), captured(encoding), 150)
