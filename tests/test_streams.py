"""The stream core without any I/O: frames however they are cut, conversations, ends and times."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.buffers import Arena, Block
from rlwire.errors import (
    ConnectionClosed,
    DecodeError,
    LimitExceeded,
)
from rlwire.sessions import openpi, rlx, websocket
from rlwire.streams import INBOX, NOTHING, FrameReader, Phase, StreamCore

# The session's frames have a header of 20 bytes; what follows it is to be aligned.
HEADER = 20
SIZES = [0, 1, 100, INBOX - HEADER - 1, INBOX - HEADER, INBOX - HEADER + 1, 3 * INBOX, 100_000]


def feed(reader: FrameReader, data: bytes, chunk: int = 2**30) -> list[Any]:
    """Write `data` in pieces, as a socket would, and return the frames."""
    frames = []
    while data:
        space = reader.room()
        count = min(len(space), len(data), chunk)
        assert count > 0
        space[:count] = data[:count]
        reader.advance(count)
        data = data[count:]
        while (frame := reader.frame()) is not None:
            frames.append(frame)
    return frames


def body(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("chunk", [2**30, 1, 7, 1460], ids=["whole", "bytes", "sevens", "packets"])
@pytest.mark.parametrize("size", SIZES)
def test_a_frame_arrives_however_it_is_cut(blobs: Any, size: int, chunk: int) -> None:
    reader = FrameReader(blobs())
    sent = blobs.frame(body(size))
    (frame,) = feed(reader, sent, chunk)
    assert bytes(frame) == sent
    assert reader.partial == (0, 0)


@pytest.mark.parametrize("chunk", [2**30, 1, 7])
def test_glued_frames_come_apart(blobs: Any, chunk: int) -> None:
    reader = FrameReader(blobs())
    sent = [blobs.frame(body(size)) for size in SIZES]
    assert [bytes(frame) for frame in feed(reader, b"".join(sent), chunk)] == sent


class Plain:
    """Asks for frames of a 4-byte size and a body, and has no other side."""

    def frame_size(self, buffer: Any, start: int, end: int) -> int:
        return int.from_bytes(buffer[start : start + 4], "big") if end - start >= 4 else 0

    def data_offset(self, buffer: Any, start: int, end: int) -> int:
        return 4


# Sizes that come again are what the reader bets on after a large frame.
sizes = st.one_of(
    st.integers(0, 3 * INBOX), st.sampled_from([0, 10, INBOX - 4, INBOX - 3, 5000, 9000])
)


@given(
    sizes=st.lists(sizes, max_size=12),
    cuts=st.lists(st.integers(1, 2 * INBOX), min_size=1, max_size=20),
    fetches=st.lists(st.booleans(), min_size=1, max_size=20),
)
def test_any_frames_in_any_pieces(sizes: list[int], cuts: list[int], fetches: list[bool]) -> None:
    reader = FrameReader(Plain())  # type: ignore[arg-type]
    sent = [(4 + size).to_bytes(4, "big") + body(size) for size in sizes]
    data, got, turn = b"".join(sent), [], 0
    while True:
        space = reader.room()
        count = min(len(space), len(data), cuts[turn % len(cuts)])
        space[:count] = data[:count]
        data = data[count:]
        reader.advance(count)
        if not data or fetches[turn % len(fetches)]:
            while (frame := reader.frame()) is not None:
                got.append(bytes(frame))
        if not data:
            break
        turn += 1
    assert got == sent
    assert reader.partial == (0, 0)


@pytest.mark.parametrize("chunk", [2**30, 1000, 1])
def test_a_large_frame_lies_in_a_block_with_its_data_aligned(blobs: Any, chunk: int) -> None:
    reader = FrameReader(blobs())
    (frame,) = feed(reader, blobs.frame(body(20_000)), chunk)
    assert isinstance(frame, memoryview)
    assert isinstance(frame.obj, Block)
    assert np.frombuffer(frame, np.uint8)[HEADER:].ctypes.data % 64 == 0
    assert not frame.readonly


def test_a_small_frame_is_owned(blobs: Any) -> None:
    reader = FrameReader(blobs())
    (one,) = feed(reader, blobs.frame(b"one"))
    (two,) = feed(reader, blobs.frame(b"two"))
    assert bytes(one) == blobs.frame(b"one")
    assert bytes(two) == blobs.frame(b"two")


def test_the_rest_of_a_large_frame_is_received_into_its_block(blobs: Any) -> None:
    reader = FrameReader(blobs())
    sent = blobs.frame(body(50_000))
    assert not feed(reader, sent[:INBOX])
    assert reader.direct
    space = reader.room()
    assert len(space) == len(sent) - INBOX, "the next frame must not fit in"
    space[:] = sent[INBOX:]
    reader.advance(len(space))
    assert not reader.partial[1] - reader.partial[0]
    frame = reader.frame()
    assert isinstance(frame, memoryview)
    assert frame.obj is space.obj
    assert bytes(frame) == sent


def test_a_block_is_used_again_only_when_nobody_holds_a_view(blobs: Any) -> None:
    reader = FrameReader(blobs())
    sent = blobs.frame(body(20_000))

    def arrive() -> memoryview:
        (frame,) = feed(reader, sent)
        assert isinstance(frame, memoryview)
        return frame

    where = id(arrive().obj)
    assert id(arrive().obj) == where
    held = arrive()
    part = held[100:200]
    del held
    other = arrive()
    assert other.obj is not part.obj
    other[100:200] = bytes(100)
    assert part == sent[100:200]


def test_after_a_large_frame_the_next_one_goes_to_a_block_at_once(blobs: Any) -> None:
    reader = FrameReader(blobs())
    sent = blobs.frame(body(20_000))
    feed(reader, sent)
    assert reader.expecting
    space = reader.room()
    assert isinstance(space.obj, Block)
    assert len(space) == len(sent)
    assert not reader.direct, "it is not known yet that the next frame does not fit in"
    assert reader.frame() is None
    assert reader.partial == (0, 0)
    space[:7000] = sent[:7000]
    reader.advance(7000)
    assert reader.frame() is None
    assert reader.direct
    (frame,) = feed(reader, sent[7000:])
    assert isinstance(frame, memoryview)
    assert frame.obj is space.obj
    assert bytes(frame) == sent
    assert np.frombuffer(frame, np.uint8)[HEADER:].ctypes.data % 64 == 0


@pytest.mark.parametrize("sizes", [[10], [10, 20, 30], [0] * 400, [9_999, 30], [50_000], [10_001]])
def test_what_is_not_as_large_as_expected_arrives_too(blobs: Any, sizes: list[int]) -> None:
    reader = FrameReader(blobs())
    feed(reader, blobs.frame(body(10_000)))
    sent = [blobs.frame(body(size)) for size in sizes]
    assert [bytes(frame) for frame in feed(reader, b"".join(sent))] == sent
    assert [bytes(frame) for frame in feed(reader, sent[0])] == [sent[0]]
    while reader.expecting:
        feed(reader, blobs.frame(b"small"))
    assert len(reader.room()) == INBOX, "a larger store is not kept"


def test_a_block_that_was_not_fetched_does_not_stop_the_stream(blobs: Any) -> None:
    reader = FrameReader(blobs())
    large, small = blobs.frame(body(20_000)), blobs.frame(b"small")
    feed(reader, large)
    data = large + small + large
    while data:
        space = reader.room()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        reader.advance(count)
        data = data[count:]
    got = []
    while (frame := reader.frame()) is not None:
        got.append(bytes(frame))
    assert got == [large, small, large]


def test_nothing_very_large_is_expected(blobs: Any) -> None:
    reader = FrameReader(blobs())
    feed(reader, blobs.frame(bytes(2_000_000)))
    assert not reader.expecting
    assert len(reader.room()) == INBOX


def test_readers_may_share_an_arena(blobs: Any) -> None:
    arena = Arena()
    one, two = FrameReader(blobs(), arena), FrameReader(blobs(), arena)
    sent = blobs.frame(body(20_000))
    feed(one, sent[:10_000])
    (second,) = feed(two, sent)
    (first,) = feed(one, sent[10_000:])
    assert bytes(first) == bytes(second) == sent


def test_partial_says_what_is_there_and_what_is_missing(blobs: Any) -> None:
    reader = FrameReader(blobs())
    sent = blobs.frame(body(10_000))
    assert reader.partial == (0, 0)
    feed(reader, sent[:3])
    assert reader.partial == (3, 0)
    feed(reader, sent[3:100])
    assert reader.partial == (100, len(sent))
    feed(reader, sent[100:5000])
    assert reader.partial == (5000, len(sent))


def test_a_broken_frame_is_reported_each_time(blobs: Any) -> None:
    reader = FrameReader(blobs())
    with pytest.raises(DecodeError):
        feed(reader, b"\xff" * 10)
    with pytest.raises(DecodeError):
        reader.frame()


def test_nothing_is_allocated_for_a_frame_over_the_limit(blobs: Any) -> None:
    class Untouched(Arena):
        def take(self, size: int) -> Block:
            raise AssertionError(f"{size} bytes were asked for")

    reader = FrameReader(blobs(), Untouched())
    with pytest.raises(LimitExceeded) as caught:
        feed(reader, b"\x7f" + bytes(10))
    assert caught.value.limit == "received"


def test_a_full_inbox_does_not_stop_the_stream(blobs: Any) -> None:
    reader = FrameReader(blobs())
    sent = [blobs.frame(body(size)) for size in (1000, 2000, 1500, 3000)]
    data = b"".join(sent)
    while data:
        space = reader.room()  # held on to, as asyncio's TLS does
        count = min(len(space), len(data))
        space[:count] = data[:count]
        reader.advance(count)
        data = data[count:]
    got = []
    while (frame := reader.frame()) is not None:
        got.append(bytes(frame))
    assert got == sent
    assert len(reader.room()) == INBOX
    assert reader.room().obj is reader.inbox


# The core around the frames: conversations of every session.


class Times(NamedTuple):
    read: float | None = 2.0
    write: float | None = 3.0
    idle: float | None = 10.0
    first_message: float | None = 1.0


def plain(value: Any) -> Any:
    """The value, comparable, with every bit of its arrays."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


Make = Callable[[], tuple[Any, Any, list[tuple[int, Any, Any]]]]
"""Sessions of both sides, and a conversation: who sends what, and what the other then hears."""

LARGE = np.random.default_rng(0).random((40, 40), dtype=np.float32)


def same(steps: list[tuple[int, Any]]) -> list[tuple[int, Any, Any]]:
    return [(side, event, event) for side, event in steps]


def rlx_talk() -> tuple[Any, Any, list[tuple[int, Any, Any]]]:
    steps: list[tuple[int, Any]] = [
        (0, {"command": "init", "exploit": False}),
        (1, {"response": "ready"}),
    ]
    for state in ([1.5, 2.5], LARGE, LARGE, "small again", LARGE):
        steps.append((0, {"command": "update", "reward": 1.0, "state": state, "terminal": False}))
        steps.append((1, {"response": "action", "data": state}))
    return rlx.Client(), rlx.Server(), same(steps)


def websocket_talk() -> tuple[Any, Any, list[tuple[int, Any, Any]]]:
    bodies = ["text", b"", b"x" * 125, b"y" * 5000, "z" * 5000, b"y" * 5000, "end"]
    steps = [(side, body) for body in bodies for side in (0, 1, 1, 0)]
    return (
        websocket.Client(websocket.Messages(), "ws://a/"),
        websocket.Server(websocket.Messages()),
        same(steps),
    )


def openpi_talk() -> tuple[Any, Any, list[tuple[int, Any, Any]]]:
    steps: list[tuple[int, Any]] = [(1, {"name": "policy"})]
    for image in (LARGE, LARGE[:3], LARGE):
        steps += [(0, {"image": image, "prompt": "up"}), (1, {"actions": image})]
    return (
        websocket.Client(openpi.Client(), "ws://a/", kind="any"),
        openpi.PolicySocket(lambda request: openpi.Server()),
        same(steps),
    )


TALKS: dict[str, Make] = {"rlx": rlx_talk, "websocket": websocket_talk, "openpi": openpi_talk}


class Wire:
    """Two cores, and what moves bytes between them: so many at a time, up to a cut."""

    def __init__(self, one: Any, two: Any, chunk: int = 2**30, cut: tuple[int, int] | None = None):
        self.cores = StreamCore(one, "two", Times()), StreamCore(two, "one", Times(), True)
        self.chunk = chunk
        self.cut = cut
        self.stopped = False  # at the cut
        self.way: tuple[bytearray, bytearray] = bytearray(), bytearray()  # to whom
        self.sent = [0, 0]  # bytes by whom
        self.borders: tuple[set[int], set[int]] = {0}, {0}  # where whole messages end
        self.heard: tuple[list[Any], list[Any]] = [], []
        for core in self.cores:
            core.begin(5.0)
        self.move()

    def send(self, side: int, event: Any) -> None:
        core = self.cores[side]
        data = core.put(event)
        assert data is None or core.output() == [data]
        self.flush(side)

    def flush(self, side: int) -> None:
        """Write what there is, in pieces, onto the way to the other."""
        core = self.cores[side]
        while core.sending:
            data = b"".join(core.output())[: self.chunk]
            assert len(data) <= core.waiting
            self.way[1 - side].extend(data)
            self.sent[side] += len(data)
            core.wrote(len(data))
        self.borders[side].add(self.sent[side])

    def move(self) -> None:
        """Deliver all that is under way, and what is said about it."""
        for side in (0, 1):
            self.flush(side)
        while any(self.way) and not self.stopped:
            for side in (0, 1):
                self.deliver(side)
                self.flush(side)

    def deliver(self, side: int) -> None:
        core, way = self.cores[side], self.way[side]
        if not way:
            return
        space = core.room()
        count = min(len(space), len(way), self.chunk)
        if self.cut is not None and self.cut[0] == side:
            count = min(count, self.cut[1])
            self.cut = side, self.cut[1] - count
            if not count:
                self.stopped = True
                return
        space[:count] = way[:count]
        del way[:count]
        event = core.take(count)
        while event is not NOTHING:
            self.heard[side].append(plain(event))
            event = core.next()


def converse(make: Make, chunk: int = 2**30, cut: tuple[int, int] | None = None) -> Wire:
    """Have the whole conversation, or as much of it as comes before the cut."""
    one, two, steps = make()
    wire = Wire(one, two, chunk, cut)
    for side, event, _ in steps:
        if not wire.stopped:
            wire.send(side, event)
            wire.move()
    return wire


def expected(make: Make) -> tuple[list[Any], list[Any]]:
    heard: tuple[list[Any], list[Any]] = [], []
    for side, _, event in make()[2]:
        heard[1 - side].append(plain(event))
    return heard


@pytest.mark.parametrize("chunk", [2**30, 1, 7, 1460], ids=["whole", "bytes", "sevens", "packets"])
@pytest.mark.parametrize("talk", TALKS)
def test_a_conversation_however_it_is_cut(talk: str, chunk: int) -> None:
    wire = converse(TALKS[talk], chunk)
    assert wire.heard == expected(TALKS[talk])
    assert [core.phase for core in wire.cores] == [Phase.OPEN, Phase.OPEN]
    for core in wire.cores:
        assert core.partial == (0, 0)
        assert not core.sending
        assert core.waiting == 0


@pytest.mark.parametrize("chunk", [2**30, 1, 7], ids=["whole", "bytes", "sevens"])
def test_messages_glued_to_each_other(chunk: int) -> None:
    one, two, steps = websocket_talk()
    wire = Wire(one, two, chunk)
    for side, event, _ in steps:
        wire.send(side, event)
    wire.move()
    assert wire.heard == expected(websocket_talk)


@pytest.mark.parametrize("side", [0, 1], ids=["client", "server"])
@pytest.mark.parametrize("talk", TALKS)
def test_ended_at_every_byte(talk: str, side: int) -> None:
    make = TALKS[talk]
    whole, events = converse(make), expected(make)
    total = whole.sent[1 - side]
    places = range(total) if total < 500 else random.Random(5).sample(range(total), 400)
    for place in sorted({*places, *whole.borders[1 - side]} - {total}):
        wire = converse(make, cut=(side, place))
        assert wire.stopped
        core = wire.cores[side]
        with pytest.raises(ConnectionClosed, match="is closed by the peer"):
            core.take(0)
        with pytest.raises(ConnectionClosed, match="is closed by the peer"):
            core.next()
        assert core.phase is Phase.DEAF
        assert wire.heard[side] == events[side][: len(wire.heard[side])]
        inside = place not in whole.borders[1 - side]
        assert ("message bytes" in core.ended) == inside
        if inside:
            assert core.broken
