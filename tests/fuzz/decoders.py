"""Every decoder as a function of bytes, with options that the first byte names. Wrong bytes end in
`DecodeError` or `LimitExceeded`; right ones are read the same as a copy and as views, and what they
say survives a round trip. `tests/fuzz/run` searches, `test_corpus.py` replays what it found."""

import base64
import contextlib
import math
import struct
import tempfile
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
from conversations import feed_stream
from PIL import Image

from rlwire.codecs import dm_env_rpc, grpc, msgpack, perlert, rewarder, rfb, rllink, rlx
from rlwire.codecs.http2 import frames as http2
from rlwire.codecs.http2 import headers as http2_headers
from rlwire.codecs.rfb import messages as rfb_messages
from rlwire.codecs.websocket import frames as websocket
from rlwire.codecs.websocket import handshake as websocket_handshake
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, RemoteProtocolError
from rlwire.limits import Limits
from rlwire.perlert.cipher import DatagramCipher
from rlwire.relaax import checkpoints
from rlwire.sessions.http2 import events
from rlwire.sessions.http2.core import Http2Core, Stream
from rlwire.sessions.rllink import RLlinkServerSession as RLlinkServer
from rlwire.streams import FrameReader
from tests.ends import frames_in

REFUSED = (DecodeError, LimitExceeded)

# What a few bytes may take is bounded, and no input takes long.
LIMITS = Limits(expanded=2**20, string=2**20, pixels=2**18, message=2**24, received=2**24)
TINY = {"depth": 3, "items": 12, "dims": 2, "string": 8, "pixels": 12}
TIGHT = Limits(**TINY, expanded=48, message=512, received=96, header=512)


def bits(value):
    """The value with every bit of it, comparable; NaN equals itself."""
    if isinstance(
        value, np.float64 | np.str_ | np.bytes_
    ):  # msgpack has them as what they also are
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        # NumPy ends an element before its NULs, so what is written again may be narrower.
        data, size = value.tobytes(), value.dtype.itemsize
        ends = range(size, len(data) + 1, size)
        texts = [data[end - size : end].rstrip(b"\0") for end in ends]
        return "ndarray", value.dtype.byteorder, value.shape, texts
    if isinstance(value, np.ndarray | np.generic):
        return type(value).__name__, value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Image.Image):
        return value.mode, value.size, value.tobytes()
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value.hex()
    if isinstance(value, dict):
        return "dict", [(bits(key), bits(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [bits(item) for item in value]
    if is_dataclass(value):
        return type(value).__name__, [bits(getattr(value, field.name)) for field in fields(value)]
    names = getattr(type(value), "__match_args__", ())
    if isinstance(value, rewarder.RewarderMessage):
        names = value.__struct_fields__
    if names:
        return type(value).__name__, [bits(getattr(value, name)) for name in names]
    return type(value).__name__, value


def same(one, other):
    assert bits(one) == bits(other), (one, other)


def refusal(problem):
    """What views must refuse as well, in the same place; the text is for a person to read."""
    assert len(str(problem)) < 2000, str(problem)[:200]
    return type(problem), problem.offset


def attempt(decode):
    """Whether the bytes were right, and what they say or why not."""
    try:
        return True, decode()
    except REFUSED as problem:
        return False, refusal(problem)


def agree(decode, data, offsets=True):
    """`attempt`, as a copy and as views, of memory that can be written to and that cannot."""
    good, value = attempt(lambda: decode(True, data))
    assert good or (value[1] is None and not offsets) or 0 <= value[1] <= len(data)
    for copy, buffer in ((None, data), (None, bytearray(data))):
        other = attempt(lambda copy=copy, buffer=buffer: decode(copy, buffer))
        assert other[0] == good, (value, other)
        same(other[1], value)
    return good, value


def take_options(data, *counts):
    """One number below each count, from the first byte; what is behind it; and limits."""
    number = data[0] if data else 0
    chosen = []
    for count in counts:
        number, option = divmod(number, count)
        chosen.append(option)
    return chosen, data[1:], TIGHT if number % 3 == 2 else LIMITS


def feed_rlx(data):
    (images, framed), body, limits = take_options(data, 2, 2)
    options = {"framed": bool(framed)}
    read = {"images": ("array", "float32")[images], "limits": limits}
    good, message = agree(lambda copy, b: rlx.decode(b, copy=copy, **read, **options), body)
    for start in (0, len(body) // 2):
        attempt(lambda at=start: rlx.frame_size(body, at, len(body), limits.message))
        assert 0 <= rlx.data_offset(body, start, len(body)) <= len(body)
    if good:
        wire = rlx.encode(message, **options)
        same(rlx.decode(wire, **{**read, "limits": LIMITS}, **options), message)


def feed_msgpack(data):
    (arrays, keys), body, limits = take_options(data, 3, 2)
    decoder = {
        "arrays": (True, False, "bytes")[arrays],
        "strict_map_key": bool(keys),
        "limits": limits,
    }
    good, value = agree(lambda copy, b: msgpack.decode(b, copy=copy, **decoder), body)
    if good and arrays == 0:
        same(msgpack.decode(msgpack.encode(value), **{**decoder, "limits": LIMITS}), value)


def feed_rewarder(data):
    _, body, limits = take_options(data, 1)
    good, message = attempt(lambda: rewarder.decode(body, limits=limits))
    if good and rewarder.is_binary(body):
        same(rewarder.decode(bytearray(body), limits=limits), message)
    elif good:
        same(rewarder.decode(rewarder.encode(message)), message)


def feed_perlert(data):
    (side, _), body, limits = take_options(data, 3, 2)
    if side == 2:
        for text in (body, body[len(body) // 2 :]):
            attempt(lambda text=text: perlert.text_to_array(text, limits=limits))
            attempt(lambda text=text: perlert.text_to_array(text, np.uint8, limits=limits))
            attempt(lambda text=text: perlert.text_to_mapping(text, limits=limits))
        return
    decode = (perlert.decode_client_message, perlert.decode_server_message)[side]
    good, message = attempt(lambda: decode(body, limits=limits))
    if good:
        wire = perlert.encode(message, limits=Limits(datagram=65_507))
        same(decode(wire, limits=Limits(datagram=65_507)), message)


ACTIONS = dm_env_rpc.SpecManager(
    {
        1: dm_env_rpc.make_spec("move", (), np.int32, 0, 17),
        7: dm_env_rpc.make_spec("arm.goal", (2,), "f4"),
    },
    limits=LIMITS,
)
OBSERVATIONS = dm_env_rpc.SpecManager(
    {
        1: dm_env_rpc.make_spec("pixels", (2, 2, 3), np.uint8),
        2: dm_env_rpc.make_spec("reward", (), np.float32),
        300: dm_env_rpc.make_spec("words", (-1,), str),
        0: dm_env_rpc.make_spec("ids", (-1, 2), np.uint64),
        2**64 - 1: dm_env_rpc.make_spec("done", (), bool),
    },
    limits=LIMITS,
)


def feed_dm_env_rpc(data):
    (kind, _, check), body, limits = take_options(data, 7, 2, 2)
    if kind == 4:  # steps by name; the managers have the limits
        agree(
            lambda copy, b: dm_env_rpc.decode_step_request(
                ACTIONS, b, copy=copy, check_bounds=bool(check)
            ),
            body,
        )
        return
    if kind == 5:
        agree(lambda copy, b: dm_env_rpc.decode_step_response(OBSERVATIONS, b, copy=copy), body)
        return
    d = dm_env_rpc
    if kind == 3:
        url = (d.PROPERTY_REQUEST_URL, d.PROPERTY_RESPONSE_URL)[check]
        inner = (d.decode_property_request, d.decode_property_response)[check]
        outer = (d.encode_property_request, d.encode_property_response)[check]

        def decode(buffer, **options):
            return inner(d.AnyMessage(url, bytes(buffer)), **options)

        def encode(message):
            return outer(message).value

    else:  # 6 is there for the corpus
        decode = (d.decode_request, d.decode_response, d.decode_tensor)[min(kind, 2)]
        encode = (d.encode_request, d.encode_response, d.encode_tensor)[min(kind, 2)]
    good, message = agree(lambda copy, b: decode(b, copy=copy, limits=limits), body)
    if good and message is not None and not (kind == 2 and ends_in_nul(message)):
        same(decode(encode(message)), message)


def ends_in_nul(value):
    """Whether `encode_tensor` drops NULs of the value, as the package does."""
    items = np.asarray(value, object).flat if isinstance(value, str | np.ndarray) else ()
    return any(isinstance(item, str) and item.endswith("\0") for item in items)


def feed_websocket(data):
    """A connection's bytes, as a framer is asked about them."""
    (client, kind, short), body, limits = take_options(data, 2, 3, 2)
    options = (not client, ("any", "binary", "text")[kind], limits)
    framer, encoder = websocket.FrameDecoder(*options), websocket.FrameEncoder(*options)
    text, start = websocket.Utf8Checker(), 0
    try:
        while start < len(body):
            size = framer.frame_size(body, start, len(body), 40 if short else None)
            offset = framer.data_offset(body, start, len(body))
            if not size:
                break
            assert 0 < offset <= size
            if size > len(body) - start:
                break
            frame = body[start : start + size]
            whole = framer.message(frame, size)
            block = bytearray(frame)
            assert framer.message(block, size, True) == whole
            if whole is None:
                assert block == frame  # whoever looks again finds it as it came
            opcode, fin, payload = framer.frame(frame)
            same(
                (opcode, fin, bytes(payload)), (*framer.frame(bytearray(frame))[:2], bytes(payload))
            )
            if opcode == websocket.CLOSE:
                websocket.decode_close(payload)
            elif opcode < 3 and kind == 2:
                text.feed(payload)
                if fin:
                    text.end()
            if whole is not None:
                assert fin
                assert (whole.encode() if isinstance(whole, str) else whole) == bytes(payload)
            assert framer.frame(encoder.frame(opcode, payload, fin))[2] == bytes(payload)
            start += size
    except REFUSED:
        pass


def feed_handshake(data):
    (side,), body, limits = take_options(data, 2)
    begins = (b"GET ", b"HTTP/1.")[side]
    good, size = attempt(
        lambda: websocket_handshake.head_size(body, 0, len(body), limits.header, begins)
    )
    if good:
        assert 0 <= size <= len(body)
    read = (websocket_handshake.read_request, websocket_handshake.read_response)[side]
    good, head = attempt(lambda: read(body))
    if not good:
        return
    for name in ("Origin", "Authorization", "Cookie"):
        attempt(lambda name=name: head.headers.get(name))
    for name, value in head.headers:
        assert not set(name + value) & set("\r\n\0")
        websocket_handshake.basic_credentials(value)
    if side == 0:
        assert len(base64.b64decode(head.key)) == 16
        assert isinstance(head.path, str)
        wire = websocket_handshake.write_response(101, key=head.key)
        assert websocket_handshake.read_response(wire).status == 101


KEY = bytes(range(32))
NOW = 1_700_000_000.0


class Http2(Http2Core):
    """A core that notes its events, and goes on where it can."""

    def __init__(self, client, limits):
        super().__init__(client, limits, 65_535, 65_535)
        self.told = []
        for number in (1, 3):
            self.add(Stream(number))

    def receive(self, frame):
        messages = [each[1] for each in super().receive(frame) if each is not None]
        event, self.frame_event = self.frame_event, None
        if isinstance(event, events.Frame) and event.kind == http2.HEADERS:
            if event.number not in self.streams and len(self.streams) < 4:
                self.add(Stream(event.number))
        elif isinstance(event, events.StreamFailed):
            if event.number in self.streams:
                self.drop(self.streams[event.number])
            event = event.number, type(event.error), str(event.error)
        if event is not None:
            self.told.append(event)
        return messages


def take_http2(body, client, limits, piece):
    """All that can be seen of an endpoint, after these bytes came in pieces."""
    endpoint = Http2(client, limits)
    for stream in endpoint.streams.values():
        endpoint.message(stream, [b"some", bytes(90_000 if limits is LIMITS else 300)])
    messages, text_sent, fault = [], b"", None
    try:
        for frame in frames_in(FrameReader(endpoint), body, piece):
            messages += map(bytes, endpoint.receive(frame))
            text_sent += b"".join(bytes(buffer) for buffer in endpoint.output())
            assert endpoint.receive_window >= 0
            assert endpoint.assembling <= 2 * limits.received
    except REFUSED as problem:
        # Of what is no HTTP/2 as much is shown as has come.
        fault = str(problem).partition(" - at ")[0].partition(" speaks ")[0]
    windows = [(s.number, s.send_window, s.receive_window) for s in endpoint.streams.values()]
    return messages, endpoint.told, text_sent, fault, windows, endpoint.send_window


def feed_http2(data):
    """A connection says the same however its bytes come."""
    (client,), body, limits = take_options(data, 2)
    whole = take_http2(body, bool(client), limits, len(body) or 1)
    for piece in (7, 1):
        assert take_http2(body, bool(client), limits, piece) == whole
    rules = http2.FrameRules(limits)
    for at in range(min(len(body), 20)):
        attempt(lambda at=at: http2.open_frame(body[at:], rules))
        attempt(lambda at=at: http2.frame_size(body, at, len(body), rules))
        attempt(lambda at=at: http2.message_size(body, at, rules))


def feed_http2_headers(data):
    _, body, limits = take_options(data, 1)
    headers = http2_headers.Headers(limits)
    for block in (body[: len(body) // 2], body[len(body) // 2 :]):
        good, fields = attempt(lambda block=block: headers.decode(block))
        if not good:
            break
        assert sum(len(name) + len(value) + 32 for name, value in fields) <= limits.header
        http2_headers.malformed(fields, (":path",))
        attempt(lambda fields=fields: grpc.decode_metadata(fields))
        try:
            again = http2_headers.Headers().encode(fields)
        except EncodeError:
            continue
        same(http2_headers.Headers(limits).decode(again), fields)
    text = body.decode("latin-1")
    assert grpc.decode_message(grpc.encode_message(text)) == text
    grpc.decode_message(text)
    attempt(lambda: grpc.decode_timeout(text))
    attempt(lambda: grpc.decode_status(text))


def painted(body, limits, most):
    """The pixels after all whole rectangles, measured and painted up to `most` at a time."""
    framebuffer = rfb.Framebuffer(40, 30)
    decoder = rfb.RectangleDecoder(framebuffer, limits=limits)
    at = 0
    while decoder.size(body, at, len(body), most) and decoder.counted:
        start, count = at, decoder.counted
        at += decoder.size(body, at, len(body), most)
        assert decoder.counted == count
        if body[start + 8] >= 128:
            width, height, encoding = struct.unpack_from(">HHi", body, start + 4)
            if encoding == rfb.Encoding.DESKTOP_SIZE and width * height < 10_000:
                framebuffer.resize(width, height)
        else:
            assert len(decoder.paint(body, start, count)) == count - decoder.ended
    return framebuffer.pixels


def feed_rfb(data):
    (what,), body, limits = take_options(data, 3)
    if what == 0:
        good, pixels = attempt(lambda: painted(body, limits, 1))
        if good:
            same(painted(body, limits, 99), pixels)
        else:
            attempt(lambda: painted(body, limits, 99))
        return
    measure, decode = (
        (rfb_messages.server_message_size, rfb_messages.decode_server_message),
        (rfb_messages.client_message_size, rfb_messages.decode_client_message),
    )[what - 1]
    start = 0
    while start < len(body):
        good, size = attempt(lambda at=start: measure(body, at, len(body), limits))
        if not good or not size or size > len(body) - start:
            return
        part = body[start : start + size]
        good, message = attempt(lambda part=part: decode(part, limits))
        if good and message is not None:
            same(decode(rfb_messages.encode(message)), message)
        start += size


def feed_cipher(data):
    """Datagrams sent, changed, repeated and delayed, four bytes each; none is wrongly taken."""
    clock = [NOW]
    kind = type("Small", (DatagramCipher,), {"CLOCK_SKEW": 4.0, "WINDOW": 4, "SENDERS": 2})
    server = kind(KEY, "server", clock=lambda: clock[0])
    clients = [kind(KEY, "client", clock=lambda: clock[0]) for _ in range(3)]
    strangers = [
        kind(KEY[::-1], "client", clock=lambda: clock[0]),
        kind(KEY, "server", clock=lambda: clock[0]),
    ]
    sent = []  # datagram, message, whether it may be taken
    taken = set()
    arrived = 0
    server.open(data)
    for at in range(0, min(len(data), 256) - 3, 4):
        what, who, where, change = data[at : at + 4]
        message = bytes((at % 256, who))
        if what % 4 == 0 or not sent:
            good = who % 5 < 3
            sender = clients[who % 5] if good else strangers[who % 5 - 3]
            sent.append((sender.seal(message), message, good))
        if what % 4 == 1:
            clock[0] += who / 16.0
        datagram, message, good = sent[where % len(sent)]
        if what % 4 == 2:
            changed = bytearray(datagram)
            changed[who % len(changed)] ^= change
            good = good and not change
            datagram = bytes(changed)
        if what % 4 == 3:
            datagram = datagram[: change % (len(datagram) + 1)]
            good = (
                good
                and len(datagram) >= DatagramCipher.overhead
                and datagram == sent[where % len(sent)][0]
            )
        opened = server.open(datagram)
        arrived += 1
        if opened is not None:
            assert good
            assert opened == message
            assert datagram not in taken
            taken.add(datagram)
    assert arrived + 1 == len(taken) + server.dropped.total()


def feed_rllink(data):
    """A body, as the codec reads it and as a session does, with the episodes in it."""
    _, body, limits = take_options(data)
    attempt(lambda: rllink.frame_size(body, 0, len(body), limits.received))
    frame = b"%08d" % len(body) + body
    codecs = {copy: rllink.Codec(limits=limits, copy=copy) for copy in (True, None)}
    # JSON's errors have no offset.
    agree(lambda copy, b: codecs[copy].decode(b), frame, offsets=False)
    for token in (None, "secret"):
        server = RLlinkServer(token=token, limits=limits)
        with contextlib.suppress(RemoteProtocolError):
            attempt(lambda server=server: server.receive(frame))


def feed_checkpoints(data):
    """A file, or the msgpack of a state."""
    (kind,), body, _ = take_options(data, 2)
    if kind:
        body = b"\x84\xa9algorithm\xa2pg\xa7version\1\xa4step\2\xa5state" + body
    checkpoints.logger.disabled = True  # it warns of each that is not whole
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "checkpoint-000000000001.msgpack").write_bytes(body)
        kept = checkpoints.Checkpoints(folder)
        try:
            found = kept.restore("pg")
        except (checkpoints.CheckpointMismatch, checkpoints.CheckpointDamaged):
            return
        finally:
            checkpoints.logger.disabled = False
    assert type(found[0]) is int


DECODERS = {
    "rlx": feed_rlx, "msgpack": feed_msgpack, "rewarder": feed_rewarder, "perlert": feed_perlert,
    "dm_env_rpc": feed_dm_env_rpc, "websocket": feed_websocket, "handshake": feed_handshake,
    "http2": feed_http2, "http2_headers": feed_http2_headers, "rfb": feed_rfb,
    "perlert_cipher": feed_cipher, "streams": feed_stream, "checkpoints": feed_checkpoints,
    "rllink": feed_rllink,
}  # fmt: skip
"""By their names in `corpus.json`."""
