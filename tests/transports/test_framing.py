from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.buffers import Arena, Block
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.transports.framing import INBOX, FrameReader

# The session's frames have a header of 20 bytes; what follows it is to be aligned.
HEADER = 20
SIZES = [0, 1, 100, INBOX - HEADER - 1, INBOX - HEADER, INBOX - HEADER + 1, 3 * INBOX, 100_000]


def feed(reader: FrameReader, data: bytes, chunk: int = 2**30) -> list[Any]:
    """Write `data` in pieces, as a socket would, and return the frames."""
    frames = []
    while data:
        space = reader.writable()
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
        space = reader.writable()
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
    import numpy as np

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
    space = reader.writable()
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
    import numpy as np

    reader = FrameReader(blobs())
    sent = blobs.frame(body(20_000))
    feed(reader, sent)
    assert reader.expecting
    space = reader.writable()
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
    assert len(reader.writable()) == INBOX, "a larger store is not kept"


def test_a_block_that_was_not_fetched_does_not_stop_the_stream(blobs: Any) -> None:
    reader = FrameReader(blobs())
    large, small = blobs.frame(body(20_000)), blobs.frame(b"small")
    feed(reader, large)
    data = large + small + large
    while data:
        space = reader.writable()
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
    assert len(reader.writable()) == INBOX


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
        space = reader.writable()  # held on to, as asyncio's TLS does
        count = min(len(space), len(data))
        space[:count] = data[:count]
        reader.advance(count)
        data = data[count:]
    got = []
    while (frame := reader.frame()) is not None:
        got.append(bytes(frame))
    assert got == sent
    assert len(reader.writable()) == INBOX
    assert reader.writable().obj is reader.inbox
