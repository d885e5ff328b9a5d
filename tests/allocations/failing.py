"""Fails every request for memory that an encoder or a decoder makes, one after the other.

    python failing.py failing.so [CODEC ...]

`test_failing_allocations.py` preloads it with failing.so. Each call of `CALLS` is repeated with its
first request failing, then its second, until it passes without a failure; and then with all
requests failing from there on. It must end in a MemoryError or in what it gives otherwise, leave no
block behind, and no reference to what it was given. A line tells each call's count of requests.

What is called is ours and compiled. Not ours, and therefore left out: dtypes of dates, of which
NumPy gives back a reference too many; its reductions, which the bounds of specs go through, and
which then end in a SystemError; Pillow's images in an encoder, on which it waits forever; calls of
Python functions, whose arguments CPython 3.11 keeps when there is no memory for the call.
"""

import ctypes
import faulthandler
import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
sys.path.append(str(Path(__file__).parents[2]))

import decoders
import messages as m
import numpy as np
from PIL import Image

from rlwire import buffers
from rlwire.codecs import _json_arrays, dm_env_rpc, msgpack, perlert, rfb, rlx
from rlwire.codecs.http2 import frames as http2
from rlwire.codecs.rewarder import texts
from rlwire.codecs.rfb.encoder import RectangleEncoder, changed
from rlwire.codecs.rfb.messages import RGBX
from rlwire.codecs.websocket import frames as websocket
from rlwire.limits import Limits
from rlwire.sessions.http2.core import Http2Core, Stream
from rlwire.sessions.rlx import session as sessions
from rlwire.streams import NOTHING, StreamCore
from tests.ends import TIMES

FEW, MANY = 3, 200  # failures of the same request: to suspect a leak, and to be sure
MOST = 5_000


def coded(name, value, encode, decode, *modes):
    """A value there and back."""
    wire = encode(value)
    writable = bytearray(wire)
    yield f"{name} encode", lambda: encode(value), (value,)
    for mode in modes or ({},):
        words = "".join(f" {key}={item}" for key, item in mode.items())
        yield f"{name} decode{words}", lambda mode=mode: decode(wire, **mode), (wire,)
    if modes:
        yield f"{name} decode writable", lambda: decode(writable, **modes[-1]), (writable,)


def ours(message):
    """Without what the module's text says is not."""
    return {
        key: value
        for key, value in message.items()
        if not isinstance(value, Image.Image) and getattr(value, "dtype", None) != "M8[D]"
    }


VIEWS = ({"copy": True}, {"copy": None})


def calls_rlx():
    room = bytearray(4096)
    images = rlx.encode(m.RLX[2])
    for kind in ("array", "float32"):
        yield f"images {kind}", lambda kind=kind: rlx.decode(images, images=kind), (images,)
    for number, message in enumerate(map(ours, m.RLX)):
        name = f"message {number}"
        yield from coded(name, message, rlx.encode, rlx.decode, *VIEWS)
        yield f"{name} into", lambda message=message: rlx.encode_into(message, room), (message,)
        yield f"{name} parts", lambda message=message: rlx.encode_parts(message), (message,)
    big = {"state": np.zeros((100, 100)), "next": [np.zeros(9000, np.uint8)] * 20}
    yield from coded("large", big, rlx.encode, rlx.decode, *VIEWS)
    yield "large parts", lambda: rlx.encode_parts(big), (big,)
    wire = rlx.encode(m.RLX[0], framed=True)
    decoder = rlx.RLXDecoder(framed=True)
    yield "whole", lambda: decoder.decode_whole(wire, len(wire)), (wire, decoder)


def calls_msgpack():
    room = bytearray(4096)
    for number, value in enumerate(m.MSGPACK):
        name = f"message {number}"
        encode = msgpack.Encoder().encode
        modes = ({"arrays": "bytes"}, {"timestamp": msgpack.Timestamp}, *VIEWS)
        yield from coded(name, value, encode, msgpack.decode, *modes)
        openpi = msgpack.Encoder(arrays="openpi")
        yield from coded(f"{name} openpi", value, openpi.encode, msgpack.decode, *VIEWS)
        yield f"{name} into", lambda v=value, e=openpi: e.encode_into(v, room), (value,)
        yield f"{name} parts", lambda v=value, e=openpi: e.encode_parts(v), (value,)
    big = {"image": np.zeros((100, 100)), "next": [np.zeros(9000, np.uint8)] * 20}
    yield from coded("large", big, msgpack.encode, msgpack.decode, *VIEWS)
    yield "large parts", lambda: msgpack.encode_parts(big), (big,)


def calls_perlert():
    for message in m.PERLERT_CLIENT:
        name = type(message).__name__
        yield from coded(name, message, perlert.encode, perlert.decode_client_message)
    for message in m.PERLERT_SERVER:
        name = type(message).__name__
        yield from coded(name, message, perlert.encode, perlert.decode_server_message)
    writer = perlert.StepWriter("env", 7)
    array = np.arange(5.0) / 3
    many = np.arange(3000.0) / 3
    yield "step write", lambda: writer.write(1, 2, array, 0.5, False, "a:1"), (array,)
    for values in (array, many):
        text = perlert.value_to_text(values)
        yield "text to array", lambda t=text: perlert.text_to_array(t), (text,)
        yield "value to text", lambda v=values: perlert.value_to_text(v), (values,)


def calls_json():
    for array in (np.arange(6.0).reshape(2, 3) / 7, np.arange(900, dtype=np.uint8).reshape(30, 30)):
        text = _json_arrays.text_of(array)
        assert text is not None
        for name, call, given in (
            ("text of", _json_arrays.text_of, array),
            ("array of", _json_arrays.array_of, text),
            ("measure", _json_arrays.measure, text),
        ):
            yield f"{name} {array.dtype}", lambda c=call, g=given: c(g), (given,)
    values = 12, 0.5, "1", ((("KeyEvent", 97, True), ("PointerEvent", 0.5)),)
    assert texts.write_text(2, *values) is not None
    yield "write of a rewarder's text", lambda: texts.write_text(2, *values), values


def calls_dm_env_rpc():
    d = dm_env_rpc
    room = bytearray(4096)
    for number, tensor in enumerate(m.TENSORS):
        name = f"tensor {number}"
        yield from coded(name, tensor, d.encode_tensor, d.decode_tensor, *VIEWS)
        yield f"{name} into", lambda t=tensor: d.encode_tensor_into(t, room), (tensor,)
        yield f"{name} parts", lambda t=tensor: d.encode_tensor_parts(t), (tensor,)
    for message in m.REQUESTS:
        name = type(message).__name__
        yield from coded(name, message, d.encode_request, d.decode_request, *VIEWS)
    for message in m.RESPONSES:
        name = type(message).__name__
        yield from coded(name, message, d.encode_response, d.decode_response, *VIEWS)
    actor, observer = decoders.ACTIONS, decoders.OBSERVATIONS
    uids = list(decoders.OBSERVATIONS.specs_by_uid)
    asked = d.encode_step_request(actor, m.MOVES, uids)
    reported = d.encode_step_response(observer, 1, m.SIGHTS)
    yield "ask", lambda: d.encode_step_request(actor, m.MOVES, uids), (m.MOVES, actor)
    yield "tell", lambda: d.encode_step_response(observer, 1, m.SIGHTS), (m.SIGHTS, observer)
    for copy in (True, None):
        yield (
            f"asked copy={copy}",
            lambda copy=copy: d.decode_step_request(actor, asked, copy=copy, check_bounds=True),
            (asked, actor),
        )
        yield (
            f"told copy={copy}",
            lambda copy=copy: d.decode_step_response(observer, reported, copy=copy),
            (reported, observer),
        )


def calls_websocket():
    w = websocket
    for name, masked in (("client", True), ("server", False)):
        sender, receiver = w.FrameEncoder(masked), w.FrameDecoder(masked)
        for message in (b"some bytes", "wörd", b"x" * 20_000):
            sent = b"".join(bytes(part) for part in sender.message(message))
            words = f"{name} {type(message).__name__} {len(message)}"
            yield f"{words} send", lambda s=sender, v=message: type(s.message(v)), (message,)
            yield f"{words} whole", lambda r=receiver, b=sent: r.message(b, len(b)), (sent,)
            yield f"{words} take", lambda r=receiver, b=sent: r.frame(b), (sent,)
            yield f"{words} size", lambda r=receiver, b=sent: r.frame_size(b, 0, len(b)), (sent,)
    yield "close", lambda: w.decode_close(w.encode_close(1000, "bye")), ()


def calls_http2():
    h = http2
    message = b"\0\0\0\0\5hello"
    large = b"\0\0\0\x30\0" + bytes(0x3000)
    frames = {
        "whole": h.frame(h.DATA, 0, 1, message),
        "padded": h.frame(h.DATA, h.PADDED, 1, b"\2" + message * 2 + b"\0\0"),
        "large": h.frame(h.DATA, 0, 1, large),
        "settings": h.settings({h.INITIAL_WINDOW_SIZE: 70_000, h.MAX_FRAME_SIZE: 20_000}),
        "window": h.window_update(1, 5),
        "headers": h.frame(h.HEADERS, h.END_HEADERS, 3, b"block"),
        "ping": h.ping(),
    }
    block = [h.frame(h.HEADERS, 0, 3, b"a"), h.frame(h.CONTINUATION, h.END_HEADERS, 3, b"b")]

    def taken(wires):
        peer, found = begun(), []
        for wire in wires:
            assert peer.frame_size(wire, 0, len(wire)) == len(wire)
            assert peer.data_offset(wire, 0, len(wire))
            found.extend(map(type, peer.receive(wire)))
        return found

    def begun():
        peer = Http2Core(True)
        peer.receive(frames["settings"])
        peer.add(Stream(1))
        return peer

    for name, wires in [("block", block), *((name, [wire]) for name, wire in frames.items())]:
        yield f"take {name}", lambda wires=wires: taken(wires), (wires,)
    yield (
        "in one call",
        lambda: [each[1] for each in begun().receive_whole(frames["whole"], 19)],
        (frames["whole"],),
    )
    for parts in ([b"small"], [b"head", bytes(30_000), b"tail"], [bytes(100_000)]):

        def sent(parts=parts):
            peer = begun()
            buffers = peer.message(peer.streams[1], parts) + peer.output()
            return list(map(len, buffers))

        yield f"send {sum(map(len, parts))}", sent, (parts,)
    yield "headers", lambda: h.header_frames(1, bytes(40_000), True, 16_384), ()
    yield "words", lambda: Http2Core(True).preface(), ()


class Told(sessions.RLXServerSession):
    """A session whose path is compiled throughout."""

    __slots__ = ()

    data_offset = staticmethod(rlx.data_offset)


def calls_rfb():
    """Without JPEG, whose readers are others'; the streams of zlib begin anew each time."""
    frame = np.zeros((30, 40, 3), np.uint8)
    frame[3:9, 4:30] = np.random.default_rng(1).integers(0, 256, (6, 26, 3))
    frame[20:] = 7
    areas = [(0, 0, 40, 30), (2, 1, 9, 5), (30, 20, 3, 3)]
    before = np.zeros_like(frame)
    yield "changed", lambda: changed(before, frame), (before, frame)
    framebuffer = rfb.Framebuffer(40, 30)

    for encoding in (0, 5, 7):
        if encoding == 5:
            count, wire = 1, m.rfb_rectangles()[2]
        else:
            count, wire = RectangleEncoder(RGBX, encoding=encoding).encode(frame, areas)
        wire = b"\x8f".join((m.rfb_head(0, 0, 1, 1, 7), b"\1\2\3" + wire))
        decoder = rfb.RectangleDecoder(framebuffer, inflater="zlib")

        def size(decoder=decoder, wire=wire):
            return decoder.size(wire, 0, len(wire), 99), decoder.counted

        def paint(decoder=decoder, wire=wire, most=count + 1):
            return [tuple(one) for one in decoder.paint(wire, 0, most)]

        name = rfb.Encoding(encoding).name
        yield f"{name} size", size, (wire,)
        yield f"{name} paint", paint, (wire, framebuffer.pixels)
    for wire in m.rfb_rectangles()[4:6]:
        yield "one", lambda w=wire: [tuple(one) for one in decoder.paint(w, 0, 1)], (wire,)


def calls_streams():
    session = Told()
    for name in ("init", "ready"):
        session.replied(name)

    def enter(command):
        if session.command != command:
            session.replied(command or "action")

    def hear(wire, chunk):
        enter(None)
        core = StreamCore(session, "", TIMES)
        data = memoryview(wire)
        event = NOTHING
        while data:
            space = core.room()
            count = min(len(data), len(space), chunk)
            space[:count] = data[:count]
            data = data[count:]
            event = core.feed(count)
        return event

    def say(reply, piece):
        enter("update")
        core = StreamCore(session, "", TIMES)
        core.put(reply)
        waiting = core.waiting
        while core.sending:
            core.wrote(min(piece, sum(map(len, core.output()))))
        return waiting

    for size in (3, 4000):
        array = np.zeros(size)
        wire = rlx.encode({"command": "update", "state": array}, framed=True)
        reply = {"response": "action", "data": array}
        for chunk in (2**20, len(wire) // 3):
            yield f"hear {size} by {chunk}", lambda w=wire, c=chunk: hear(w, c), (wire,)
            yield f"say {size} by {chunk}", lambda r=reply, c=chunk: say(r, c), (array,)


def calls_refusals():
    """What is refused needs memory as well, for the error and its path."""

    def refuse(decode, wire, **options):
        def refused():
            try:
                decode(wire, **options)
            except ValueError as problem:
                return str(problem)
            raise AssertionError("it was taken")

        return refused

    few = Limits(items=2, string=2)
    state = rlx.encode(ours(m.RLX[1]))
    reported, packed = dm_env_rpc.encode_response(m.RESPONSES[1])[:-2], msgpack.encode(m.MSGPACK[1])
    pairs = [
        ("rlx", rlx.decode, state[:-2], {}),
        ("rlx limits", rlx.decode, state, {"limits": few}),
        ("msgpack", msgpack.decode, packed[:-2], {}),
        ("msgpack limits", msgpack.decode, packed, {"limits": few}),
        ("perlert", perlert.decode_server_message, b"env:7;start:x", {}),
        ("dm_env_rpc", dm_env_rpc.decode_response, reported, {}),
    ]
    for name, decode, wire, options in pairs:
        yield name, refuse(decode, wire, **options), (wire,)


CALLS = {
    name.removeprefix("calls_"): function
    for name, function in list(globals().items())
    if name.startswith("calls_")
}


def check(library, name, call, given):
    """Fail each request of one call; return how many there are."""
    for _ in range(3):  # caches fill, modules that are imported late are imported
        expected = decoders.bits(call())
    counts = [sys.getrefcount(value) for value in given]

    def fail(n, every):
        """What comes back, or None; never the error, which has its frames and what is in them."""
        try:
            return library.failing_call(call, n, every)
        except MemoryError:
            return None

    def growth(times, n, every):
        """Blocks that each of some failures leaves behind, whole ones: caches come and go."""
        gc.collect()
        before = library.failing_live()
        for _ in range(times):
            fail(n, every)
        gc.collect()
        return int(library.failing_live() - before) // times

    for every in (0, 1):
        for n in range(1, MOST):
            result = fail(n, every)
            if result is not None:
                whole = library.failing_calls() < n
                assert decoders.bits(result) == expected, f"{name}, request {n}: {result!r}"
                if whole:
                    break
            grown = growth(FEW, n, every)
            if grown:
                grown = min(growth(MANY, n, every) for _ in range(3))
            assert grown <= 0, f"{name}, request {n} of memory: {grown} blocks stay each time"
        else:
            raise AssertionError(f"{name} asks for memory more than {MOST} times")
    result = None
    now = [sys.getrefcount(value) for value in given]
    assert now == counts, f"{name}: references {counts} became {now}"
    return n - 1


def main():
    library = ctypes.PyDLL(sys.argv[1])
    library.failing_call.argtypes = [ctypes.py_object, ctypes.c_long, ctypes.c_int]
    library.failing_call.restype = ctypes.py_object
    library.failing_calls.restype = library.failing_live.restype = ctypes.c_long
    faulthandler.enable()
    gc.disable()
    gc.freeze()  # so that a collection looks at new objects only
    for codec in sys.argv[2:] or CALLS:
        before = buffers.live_blocks()
        for name, call, given in CALLS[codec]():
            print(f"{codec}: {name}", end=" ", flush=True)
            print(check(library, f"{codec}: {name}", call, given), flush=True)
        assert buffers.live_blocks() == before


if __name__ == "__main__":
    main()
