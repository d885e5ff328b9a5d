"""Messages of every codec, as values and as bytes, for what wants some of each kind."""

import json
import struct
import zlib
from pathlib import Path

import conversations
import numpy as np
from PIL import Image

from rlwire.codecs import dm_env_rpc, msgpack, perlert, rewarder, rllink, rlx
from rlwire.codecs.http2 import frames as http2
from rlwire.codecs.http2 import headers as http2_headers
from rlwire.codecs.rfb import messages as rfb_messages
from rlwire.codecs.rfb.encoder import RectangleEncoder
from rlwire.codecs.websocket import frames as websocket
from rlwire.codecs.websocket import handshake as websocket_handshake
from rlwire.limits import DEFAULT

FRAME = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
DEPTH = np.arange(6, dtype=np.uint16).reshape(2, 3)

RLX = [
    {"command": "reset"},
    {
        "response": "state",
        "state": [FRAME, {"a": None, "b": [1, -(2**40), 2**31, True, 1.5, "wörd"]}],
        "reward": -1.0,
        "terminal": False,
        "when": np.array(["2020-01-01"], "M8[D]"),
        "names": np.array(["a", "bc"]),
    },
    {
        "state": Image.new("L", (3, 2)),
        "bits": Image.new("1", (9, 2)),
        "rgb": Image.new("RGB", (1, 1)),
    },
    {"empty": [], "none": {}, "action": np.float32([[0.5], [1]]), "depth": DEPTH.astype(">u2")},
]

MSGPACK = [
    {"a": [1, -1, 300, -(2**40), 2**63, 0.5, None, True, "x" * 40, b"yz"], "b": {"c": {}}},
    {"image": FRAME, "scalar": np.float32(2), "wide": DEPTH, "words": np.array(["ab", "c"])},
    [msgpack.ExtType(5, b"ext"), msgpack.Timestamp(1, 5), msgpack.Timestamp(2**40, 1), []],
]

HEADERS = {"sent_at": 1479493678.25, "message_id": 15}
REWARDER = [
    rewarder.EnvDescribe("flashgames.A-v0", "running", 60, **HEADERS, episode_id="1.2"),
    rewarder.EnvReward(-3.5, False, {"a": [1]}, **HEADERS, episode_id="1.2"),
    rewarder.EnvText("words", **HEADERS),
    rewarder.EnvObservation(np.array([0.5, 1.5]), **HEADERS),
    rewarder.ReplyError("no such", **HEADERS, parent_message_id="26"),
    rewarder.AgentAction([("KeyEvent", 97, True), ("PointerEvent", 1, 2, 0)], **HEADERS),
    rewarder.EnvReset("flashgames.A-v0", seed=7, fps=30, **HEADERS),
    rewarder.ControlPing(**HEADERS),
    rewarder.UnknownMessage("v1.new", {"b": 1}, **HEADERS, extra_headers={"b": [1]}),
    rewarder.EnvText("x", **HEADERS, extra_body={"b": [1]}, extra={"b": {}}),
]

REWARDER_ARRAYS = rewarder.EnvObservation(
    {"a": np.zeros((9, 64), np.uint8), "b": [np.ones(99, ">f8"), 1]}, episode_id="1"
)

PERLERT_CLIENT = [
    perlert.LobbyRequest("env", 7),
    perlert.Register("env", 7, "key", "tag"),
    perlert.Ready("env", 7, "key", True),
    perlert.Action("env", 7, "0.5,1"),
]
SLOTS = [("key", False, "kind", "tag", True), ("other", True, "", "", False)]
SLOTS = [perlert.AgentSlot(*slot) for slot in SLOTS]
PERLERT_SERVER = [
    perlert.LobbyInformation("env", 7, SLOTS),
    perlert.Registered("env", 7, "key"),
    perlert.LobbyMessage("env", 7, "hello; there"),
    perlert.Start("env", 7, 4000),
    perlert.RolloutStep("env", 7, 1234, 5, "0.25,1,-3e-05", 1.5, False, "lives:3,score:2.5"),
    perlert.RolloutStep("env", 7, 1235, 6, "a:1,b:2", "0.5:1", True),
]

SPECS = dm_env_rpc.ActionObservationSpecs(
    {1: dm_env_rpc.make_spec("move", (), np.int32, 0, 17)},
    {2: dm_env_rpc.make_spec("goal", (2,), "f4", -1, [1, 2])},
)
TENSORS = [
    np.float32(1.5), FRAME, np.array([1, 300, -1], np.int64), np.array([True, False]), "word",
    np.array([["a", "bc"]]), np.array([1.5, 2.5]),
    dm_env_rpc.AnyMessage("type.googleapis.com/x", b"abc"),
    dm_env_rpc.ProtoArray((dm_env_rpc.AnyMessage("a", b"b"),) * 2, (2,)),
    np.full((4, 5), 7, np.uint32),
]  # fmt: skip
REQUESTS = [
    dm_env_rpc.CreateWorldRequest({"seed": np.int64(3), "name": "x"}),
    dm_env_rpc.JoinWorldRequest("world", {"a": np.float32(1)}),
    dm_env_rpc.StepRequest({1: np.int32(3)}, [1, 2, 300]), dm_env_rpc.ResetRequest({}),
    dm_env_rpc.ResetWorldRequest("world", {}), dm_env_rpc.LeaveWorldRequest(),
    dm_env_rpc.DestroyWorldRequest("world"), dm_env_rpc.AnyMessage("url", b"value"),
]  # fmt: skip
RESPONSES = [
    dm_env_rpc.CreateWorldResponse("world"),
    dm_env_rpc.JoinWorldResponse(SPECS),
    dm_env_rpc.StepResponse(
        dm_env_rpc.EnvironmentStateType.RUNNING, {1: FRAME, 2: np.float32(1), 300: np.array(["a"])}
    ),
    dm_env_rpc.ResetResponse(SPECS),
    dm_env_rpc.Status(3, "no", (dm_env_rpc.AnyMessage("url", b"value"),)),
]
PROPERTY_REQUESTS = [
    dm_env_rpc.ReadPropertyRequest("key"),
    dm_env_rpc.WritePropertyRequest("key", np.float32(1)),
    dm_env_rpc.ListPropertyRequest("key"),
]
PROPERTY_RESPONSES = [
    dm_env_rpc.ReadPropertyResponse(np.float32(1)),
    dm_env_rpc.ListPropertyResponse(
        (dm_env_rpc.PropertySpec(SPECS.actions[1], True, False, True, "what it is"),)
    ),
]
MOVES = {"move": np.int32(3), "arm.goal": np.array([1, 2], "f4")}
SIGHTS = {
    "pixels": np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
    "reward": np.float32(0.5),
    "words": np.array(["a", "bcd"]),
    "ids": np.array([[1, 2**63]], np.uint64),
    "done": np.bool_(True),
}

# A cut text, and colours of a map.
RFB_PASSED = b"\3\0\0\0\0\0\0\4w\xf6rd\1\0\0\1\0\1\0\1\0\2\0\3"
RFB_SERVER = [
    rfb_messages.FramebufferUpdate(3),
    rfb_messages.Bell(),
    rfb_messages.EndOfContinuousUpdates(),
    rfb_messages.Fence(rfb_messages.FENCE_REQUEST, b"abc"),
]
RFB_CLIENT = [
    rfb_messages.SetPixelFormat(rfb_messages.RGB888), rfb_messages.SetEncodings((7, 16, -223)),
    rfb_messages.FramebufferUpdateRequest(True, 1, 2, 3, 4), rfb_messages.KeyEvent(97, True),
    rfb_messages.PointerEvent(5, 6, 1), rfb_messages.EnableContinuousUpdates(True, 0, 0, 9, 9),
    rfb_messages.Fence(1, b""),
]  # fmt: skip


def rfb_head(x, y, width, height, encoding):
    return struct.pack(">HHHHi", x, y, width, height, encoding)


def rfb_rectangles():
    """Some of every encoding, for a screen of 40x30; each begins its streams."""
    rows, columns = np.mgrid[0:30, 0:40]
    frame = np.stack([rows // 4 * 20, columns // 9 * 50, rows * 0], -1).astype(np.uint8)
    frame[3:9, 4:30] = np.random.default_rng(1).integers(0, 256, (6, 26, 3))
    areas = [(0, 0, 40, 30), (2, 1, 9, 5), (30, 20, 3, 3)]
    made = []
    for encoding in (0, 7):
        made.append(RectangleEncoder(rfb_messages.RGBX, encoding=encoding).encode(frame, areas)[1])
    colour = b"\1\2\3\0"
    tiles = b"\2" + colour + b"\x0c" + colour + b"\1\0\x33\x18\1" + colour + b"\x11\x22"
    tiles += b"\0\1" + colour * 16 * 14 + b"\2" + colour
    return [
        *made,
        rfb_head(0, 0, 40, 30, 5) + tiles,
        b"".join(rfb_zrle(colour[:3])),
        rfb_head(3, 4, 20, 10, 1) + b"\0\1\0\2",
        rfb_head(3, 4, 20, 10, 2) + b"\0\0\0\1" + colour * 2 + struct.pack(">HHHH", 1, 2, 3, 4),
        rfb_head(0, 0, 50, 20, -223) + rfb_head(40, 0, 10, 20, 0) + colour * 200,
        rfb_head(0, 0, 60, 40, -223) + rfb_head(0, 0, 0, 0, -224),
    ]


def rfb_zrle(colour):
    """A tile of each kind, on one stream."""
    stream = zlib.compressobj()
    for tile in (
        b"\1" + colour,
        b"\0" + colour * 27,
        b"\2" + colour * 2 + bytes(6),
        b"\x80" + colour + b"\x1a",
        b"\x82" + colour * 2 + b"\x81\x19\0",
    ):
        data = stream.compress(tile) + stream.flush(zlib.Z_SYNC_FLUSH)
        yield rfb_head(5, 6, 9, 3, 16) + struct.pack(">I", len(data)) + data


TARGET = websocket_handshake.parse_url("ws://user:word@example.org:1500/a?b=c")
WS_KEY = "AAAAAAAAAAAAAAAAAAAAAA=="


def framed(client, *messages):
    """One WebSocket connection's bytes, as the other side of `client` writes them."""
    framer = websocket.FrameEncoder(client)
    whole = b"".join(bytes(part) for message in messages for part in framer.message(message))
    parts = framer.frame(websocket.TEXT, b"ab", fin=False), framer.frame(0, b"c")
    close = framer.frame(websocket.CLOSE, websocket.encode_close(1000, "bye"))
    return b"".join((whole, framer.frame(websocket.PING, b"ping"), *parts, close))


def with_options(numbers, *messages):
    """Each message with each first byte that `decoders.take_options` is to see."""
    numbers = [numbers] if isinstance(numbers, int) else numbers
    return [bytes([number]) + bytes(message) for number in numbers for message in messages]


def http2_frames():
    """What either side may say, after its settings."""
    frame = http2.frame
    first = http2.settings({http2.INITIAL_WINDOW_SIZE: 100, http2.MAX_FRAME_SIZE: 20_000})
    message = b"\0\0\0\0\5hello"
    data = [
        frame(0, 0, 1, message),
        frame(0, 8, 1, b"\3" + message * 2 + bytes(3)),
        frame(0, 0, 1, message[:7]) + frame(0, 1, 1, message[7:]),
        frame(0, 0, 3, b"\0\0\0\0\x50" + bytes(30)) + frame(0, 0, 3, bytes(50)),
        frame(0, 0, 7, message) + frame(0, 0, 3, b"\1\0\0\0\1x"),
    ]
    others = [
        frame(1, 0, 5, b"abc") + frame(9, 4, 5, b"def"),
        frame(1, 4 | 8 | 32 | 1, 5, b"\2" + bytes(5) + b"abc" + bytes(2)),
        http2.settings({http2.INITIAL_WINDOW_SIZE: 5}) + http2.settings({4: 70_000}),
        http2.window_update(1, 50_000) + http2.window_update(0, 100_000),
        http2.ping() + http2.reset(1, 8) + http2.goaway(0, 1, "why") + frame(4, 1, 0),
        frame(2, 0, 1, bytes(5)) + frame(99, 0, 1, b"what") + frame(5, 4, 1, bytes(4)),
    ]
    return [first + one for one in (*data, *others, b"".join(data[:3]))]


CORPUS = Path(__file__).with_name("corpus.json")


def corpus():
    """The inputs that searches of `tests/fuzz/run` have kept, by decoder."""
    kept = json.loads(CORPUS.read_text())
    return {name: [bytes.fromhex(data) for data in kept[name]] for name in kept}


def seeds(decoder):
    """What a search of `decoders.DECODERS` begins with."""
    if decoder == "rlx":
        plain = [rlx.encode(message) for message in RLX]
        in_frames = [rlx.encode(message, framed=True) for message in RLX]
        return [*with_options(range(2), *plain), *with_options(2, *in_frames)]
    if decoder == "msgpack":
        dialects = ("msgpack_numpy", "openpi")
        some = [msgpack.encode(m, arrays=a) for m in MSGPACK for a in dialects]
        return [*with_options(range(3), *some), *with_options(range(6, 9), *some)]
    if decoder == "rewarder":
        step = rewarder.EnvStep(1.5, False, {"a": 1}, np.zeros(9, np.float32), episode_id="1")
        messages = (REWARDER_ARRAYS, step, rewarder.AgentAction([("Action", 3)]))
        binary = (rewarder.encode_binary(each, 0.5, 5, DEFAULT) for each in messages)
        return with_options(0, *map(rewarder.encode, REWARDER), *map(b"".join, binary))
    if decoder == "perlert":
        from_server = [perlert.encode(message) for message in PERLERT_SERVER]
        return [
            *with_options(range(0, 6, 3), *[perlert.encode(message) for message in PERLERT_CLIENT]),
            *with_options(range(1, 6, 3), *from_server),
            *with_options(2, *from_server, b"1,2.5,-3", b"a:1,b:2.5"),
        ]
    if decoder == "dm_env_rpc":
        requests = [dm_env_rpc.encode_request(message) for message in REQUESTS]
        responses = [dm_env_rpc.encode_response(message) for message in RESPONSES]
        questions = [dm_env_rpc.encode_property_request(m).value for m in PROPERTY_REQUESTS]
        answers = [dm_env_rpc.encode_property_response(m).value for m in PROPERTY_RESPONSES]
        return [
            *with_options(0, *requests),
            *with_options(1, *responses),
            *with_options(2, *[dm_env_rpc.encode_tensor(value) for value in TENSORS]),
            *with_options(9, dm_env_rpc.encode_tensor(TENSORS[-1], try_compress=True)),
            *with_options(3, *questions),
            *with_options(17, *answers),
            *with_options(4, requests[2]),
            *with_options(5, responses[2]),
        ]
    if decoder == "websocket":
        return [
            *with_options(range(0, 6, 2), framed(True, b"some bytes", "wörd")),
            *with_options(range(1, 6, 2), framed(False, b"x" * 5000, "wörd")),
        ]
    if decoder == "handshake":
        request = websocket_handshake.write_request(TARGET, WS_KEY, origin="http://example.org")
        response = websocket_handshake.write_response(101, key=WS_KEY)
        return [
            *with_options(0, request),
            *with_options(1, response, websocket_handshake.write_response(426, text="no")),
        ]
    if decoder == "http2":
        return [
            *with_options(range(0, 6, 2), *[http2.PREFACE + wire for wire in http2_frames()]),
            *with_options(range(1, 6, 2), *http2_frames()),
        ]
    if decoder == "http2_headers":
        fields = [(":path", "/a"), ("te", "trailers"), ("a-bin", "AP8"), ("grpc-status", "0")]
        headers = http2_headers.Headers()
        blocks = headers.encode(fields) + headers.encode(fields)
        return with_options(0, blocks, b"\x3f\xe1\x1f" + blocks, b"\x10\x01a\x01b", b"10S", b"%41")
    if decoder == "rfb":
        return [
            *with_options(range(0, 7, 6), *rfb_rectangles()),
            *with_options(1, RFB_PASSED + b"".join(map(rfb_messages.encode, RFB_SERVER))),
            *with_options(
                2, b"\6" + RFB_PASSED[1:12] + b"".join(map(rfb_messages.encode, RFB_CLIENT))
            ),
        ]
    if decoder == "perlert_cipher":
        return [
            b"\0\0\0\0\1\20\0\0\2\3\0\5\0\1\0\0\3\0\1\50",
            b"\0\3\0\0\0\4\1\0" * 2,
            b"\0\0\0\0" * 3,
        ]
    if decoder == "checkpoints":
        state = {"weights": [FRAME, np.float32(0.5)], 1: {"step": 7, "none": None, "two": b"2"}}
        head = {"step": 7, "algorithm": "pg", "version": 1, "state": state}
        named = msgpack.encode({"a": msgpack.ExtType(1, b"a"), 1: {"two": b"2"}})
        return [b"\0" + msgpack.encode(head), b"\1" + named]
    if decoder == "rllink":
        columns = np.zeros((3, 2), np.float32), np.zeros(2, int), np.ones(2)
        one = rllink.Episode(*columns)
        codec = rllink.Codec()
        files = rllink.SetState(2, None, b"onnx" * 9, b"mlir")
        plain = [
            codec.encode(rllink.Ping("secret")),
            codec.encode(rllink.Episodes([one.to_state()], 2, 1)),
            codec.encode(rllink.EpisodesAndGetState([one.to_document()], 2, 1), "json"),
            codec.encode(rllink.SetState(1, {"w": DEPTH}), "msgpack"),
            codec.encode(rllink.SetConfig(5, True), "json"),
            codec.encode(files, "json"),
        ]
        return with_options(0, *[frame[8:] for frame in plain])
    if decoder == "streams":
        return conversations.seeds()
    raise ValueError(decoder)
