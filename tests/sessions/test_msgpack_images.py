"""Streams of frames: differences, key frames, resynchronisation, and what a reader may keep."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs import msgpack
from rlwire.codecs.msgpack import images as codec
from rlwire.codecs.msgpack.values import ExtType
from rlwire.errors import (
    DecodeError,
    EncodeError,
    LimitExceeded,
    MissingExtra,
    RemoteProtocolError,
)
from rlwire.limits import Limits
from rlwire.sessions.msgpack_images import FrameReader, FrameWriter, MissingReference

pytest.importorskip("lz4.block")
pytest.importorskip("zstandard")

Kind = Literal["zstd", "lz4"]


def film(count: int, shape: tuple[int, ...] = (40, 30, 3)) -> Iterator[np.ndarray[Any, Any]]:
    """A still picture in which one small thing moves."""
    frame = np.random.default_rng(2).integers(0, 256, shape, dtype=np.uint8)
    for number in range(count):
        frame[number % shape[0]] = number % 256
        yield frame.copy()


def place(wire: ExtType) -> codec.Place:
    found = codec.read_header(wire.data).place
    assert found is not None
    return found


def is_key(wire: ExtType) -> bool:
    return place(wire).reference is None


@pytest.mark.parametrize("kind", ["zstd", "lz4"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "i8"])
def test_a_film(kind: Kind, dtype: str) -> None:
    writer, reader = FrameWriter(kind, key_every=10, start=5), FrameReader()
    for number, frame in enumerate(film(35)):
        frame = frame.astype(dtype)
        wire = writer.write(frame, "front")
        expected = None if number % 10 == 0 else number + 4
        assert place(wire) == ("front", number + 5, expected)
        if number % 10:
            assert len(wire.data) < frame.nbytes // 5
        found = reader(*wire)
        np.testing.assert_array_equal(found, frame)
        assert found.dtype == frame.dtype
        assert found.flags.owndata
        assert found.flags.writeable
        assert found.flags.c_contiguous
    assert reader.held == frame.nbytes


def test_nobody_else_sees_what_is_kept() -> None:
    """Neither the array given away, nor the one that was handed in, nor the message."""
    writer, reader = FrameWriter(), FrameReader()
    buffer = np.empty((40, 30, 3), np.uint8)
    for frame in film(5):
        buffer[...] = frame
        code, data = writer.write(buffer)
        buffer[...] = 0
        message = bytearray(data)
        found = reader(code, memoryview(message))
        np.testing.assert_array_equal(found, frame)
        message[:] = bytes(len(message))
        found[...] = 7


def test_cameras_have_streams_of_their_own() -> None:
    writer, reader = FrameWriter(), FrameReader()
    for front, wrist in zip(film(6), film(6, (20, 20)), strict=True):
        cameras = {"front": front, "wrist": wrist}
        message = {name: writer.write(frame, name) for name, frame in cameras.items()}
        found = msgpack.decode(msgpack.encode(message), ext_hook=reader)
        for name, frame in cameras.items():
            np.testing.assert_array_equal(found[name], frame)
    assert [is_key(wire) for wire in message.values()] == [False, False]


def test_a_lost_frame_is_named_and_a_key_frame_helps() -> None:
    writer, reader = FrameWriter(start=0), FrameReader()
    frames = list(film(8))
    for frame in frames[:3]:
        reader(*writer.write(frame, "front"))
    writer.write(frames[3], "front")  # lost
    for frame in frames[4:6]:
        with pytest.raises(MissingReference, match="ask the sender for a key frame") as caught:
            reader(*writer.write(frame, "front"))
    problem = caught.value
    assert isinstance(problem, RemoteProtocolError)
    assert (problem.stream, problem.sequence, problem.reference) == ("front", 5, 4)
    copy = pickle.loads(pickle.dumps(problem))
    assert (str(copy), copy.stream, copy.reference) == (str(problem), "front", 4)
    writer.request_key(problem.stream)
    for frame in frames[6:]:
        np.testing.assert_array_equal(reader(*writer.write(frame, "front")), frame)


def test_requests_for_key_frames() -> None:
    writer = FrameWriter()
    frame = next(film(1))
    for name in ("a", "b"):
        writer.write(frame, name)
    writer.request_key("a")
    writer.request_key("no such stream")
    assert is_key(writer.write(frame, "a"))
    assert not is_key(writer.write(frame, "b"))
    writer.request_key()
    assert is_key(writer.write(frame, "a"))
    assert is_key(writer.write(frame, "b"))
    assert not is_key(writer.write(frame, "b"))
    writer.forget("b")
    writer.forget("b")
    assert is_key(writer.write(frame, "b"))


def test_a_reader_that_comes_later_waits_for_a_key_frame() -> None:
    writer, reader = FrameWriter(key_every=4), FrameReader()
    seen = []
    for number, frame in enumerate(film(10)):
        wire = writer.write(frame)
        if number < 2:
            continue
        try:
            np.testing.assert_array_equal(reader(*wire), frame)
        except MissingReference:
            continue
        seen.append(number)
    assert seen == [4, 5, 6, 7, 8, 9]


def test_a_writer_that_starts_anew_is_not_taken_for_the_old_one() -> None:
    reader = FrameReader()
    frames = list(film(6))
    old, new = FrameWriter(), FrameWriter()
    for frame in frames[:2]:
        reader(*old.write(frame))
    new.write(frames[2])  # its key frame is lost
    with pytest.raises(MissingReference):
        reader(*new.write(frames[3]))


def test_another_shape_or_dtype_is_a_key_frame() -> None:
    writer, reader = FrameWriter(), FrameReader()
    frames = [np.zeros((8, 9), np.uint8), np.zeros((9, 8), np.uint8), np.zeros((9, 8), np.int8)]
    for frame in frames * 2:
        wire = writer.write(frame)
        assert is_key(wire)
        found = reader(*wire)
        assert (found.shape, found.dtype) == (frame.shape, frame.dtype)


def test_where_differences_are_larger_key_frames_are_sent() -> None:
    """And a difference is tried again now and then, which pays when the scene rests."""
    rng = np.random.default_rng(0)
    writer, reader = FrameWriter(), FrameReader()
    ramp = np.arange(100, dtype=np.uint8)
    keys = []
    for number in range(60):
        # Flat stripes, elsewhere in each frame, then a noisy picture at rest.
        if number < 30:
            frame = np.repeat(rng.permutation(ramp)[:, None], 100, axis=1)
        elif number == 30:
            frame = rng.integers(0, 256, (100, 100), dtype=np.uint8)
        wire = writer.write(frame)
        keys.append(is_key(wire))
        np.testing.assert_array_equal(reader(*wire), frame)
    assert sum(keys[:30]) >= 28
    assert not any(keys[-10:])


def test_after_a_cut_differences_go_on() -> None:
    rng = np.random.default_rng(0)
    writer, keys = FrameWriter(), []
    for number in range(12):
        if number % 4 == 0:
            frame = rng.integers(0, 256, (100, 100), dtype=np.uint8)
        keys.append(is_key(writer.write(frame)))
    assert keys == [number % 4 == 0 for number in range(12)]


def test_a_refused_frame_changes_nothing() -> None:
    writer, reader = FrameWriter(streams=2, limits=Limits(expanded=7200)), FrameReader()
    first, second, third = film(3)
    reader(*writer.write(first, "a"))
    writer.write(first, "b")
    with pytest.raises(LimitExceeded, match="streams=2"):
        writer.write(first, "c")
    with pytest.raises(LimitExceeded, match="7202 is over the limit expanded=7200"):
        writer.write(np.zeros(3601, np.uint8), "a")
    with pytest.raises(EncodeError, match="not of object"):
        writer.write([None], "a")
    with pytest.raises(TypeError, match="must be a str"):
        writer.write(second, 1)
    wire = writer.write(second, "a")
    np.testing.assert_array_equal(reader(*wire), second)
    wire = writer.write(third, "a")
    with pytest.raises(DecodeError):
        reader(wire.code, wire.data[:-1])
    np.testing.assert_array_equal(reader(*wire), third)


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "\ud800"])
def test_names_that_no_stream_can_have(name: str) -> None:
    writer = FrameWriter(streams=1)
    with pytest.raises(EncodeError, match="stream's name"):
        writer.write(np.zeros((4, 4), np.uint8), name)
    writer.write(np.zeros((4, 4), np.uint8), "é" * 127)


def test_sequence_numbers_begin_again_after_64_bits() -> None:
    writer, reader = FrameWriter(start=2**64 - 2), FrameReader()
    found = []
    for frame in film(4):
        wire = writer.write(frame)
        found.append(place(wire)[1:])
        np.testing.assert_array_equal(reader(*wire), frame)
    last = 2**64 - 1
    assert found == [(last - 1, None), (last, last - 1), (0, last), (1, 0)]


def test_a_reader_keeps_no_more_than_it_is_told() -> None:
    frame = np.zeros((10, 10), np.uint8)
    names = [f"camera {number}" for number in range(4)]
    wires = [FrameWriter().write(frame, name) for name in names]
    reader = FrameReader(streams=3)
    for wire in wires[:3]:
        reader(*wire)
    with pytest.raises(LimitExceeded, match="streams=3"):
        reader(*wires[3])
    assert reader.held == 300
    reader.forget(names[0])
    reader.forget("no such stream")
    assert reader.held == 200
    reader(*wires[3])
    reader.forget()
    assert reader.held == 0

    reader = FrameReader(memory=250)
    reader(*wires[0])
    reader(*wires[0])
    reader(*wires[1])
    with pytest.raises(LimitExceeded, match="memory=250"):
        reader(*wires[2])
    larger = FrameWriter().write(np.zeros((10, 20), np.uint8), names[0])
    with pytest.raises(LimitExceeded, match="memory=250"):
        reader(*larger)
    assert reader.held == 200
    assert reader(*wires[1]).shape == (10, 10)


def test_a_reader_may_keep_several_frames() -> None:
    """For peers that refer to an older one; a message may also be read twice."""
    frames = list(film(5))
    kept = reader_of(frames[:4])
    assert kept.held == 3 * frames[0].nbytes
    for reference in (1, 2, 3):
        wire = codec.pack(
            codec.Kind.ZSTD,
            frames[4],
            place=codec.Place("", 3, reference),
            reference=frames[reference],
        )
        np.testing.assert_array_equal(reader_of(frames[:4])(*wire), frames[4])
    with pytest.raises(MissingReference):
        kept(
            *codec.pack(
                codec.Kind.ZSTD, frames[4], place=codec.Place("", 5, 0), reference=frames[0]
            )
        )


def reader_of(frames: list[np.ndarray[Any, Any]]) -> FrameReader:
    """One that has read these and keeps three of them."""
    reader = FrameReader(kept=3)
    for number, frame in enumerate(frames):
        reader(*codec.pack(codec.Kind.ZSTD, frame, place=codec.Place("", number)))
    return reader


def test_a_reader_takes_single_images_and_other_codes_too() -> None:
    reader = FrameReader(otherwise=lambda code, data: (code, data), limits=Limits(expanded=14_400))
    frame = next(film(1))
    for kind in ("raw", "png", "lz4", "zstd"):
        found = reader(*codec.encode(frame, kind))
        np.testing.assert_array_equal(found, frame)
        assert found.flags.owndata
    assert reader.held == 0
    assert reader(5, b"x") == (5, b"x")
    assert FrameReader()(5, b"x") == ExtType(5, b"x")
    with pytest.raises(LimitExceeded, match="expanded"):
        reader(*codec.encode(np.zeros(7201, np.uint8), "zstd"))


def test_arguments() -> None:
    for wrong in (
        {"kind": "jpeg"},
        {"key_every": 0},
        {"streams": 0},
        {"start": -1},
        {"start": 2**64},
        {"kind": "lz4", "level": 13},
    ):
        with pytest.raises(ValueError, match=r"must|levels"):
            FrameWriter(**wrong)
    for wrong in ({"kept": 0}, {"streams": 0}, {"memory": 0}):
        with pytest.raises(ValueError, match="must be"):
            FrameReader(**wrong)
    with pytest.raises(TypeError, match="limits must be"):
        FrameReader(limits=1)


@given(
    st.lists(st.sampled_from(["write", "lose", "request", "other shape", "forget"]), max_size=40),
    st.integers(1, 6),
    st.sampled_from(["zstd", "lz4"]),
)
def test_any_order_of_losses(events: list[str], key_every: int, kind: Kind) -> None:
    """A frame that is read is the frame that was written, whatever was lost before."""
    writer, reader = FrameWriter(kind, key_every=key_every), FrameReader()
    rng = np.random.default_rng(len(events))
    shape = (6, 7)
    for event in events:
        if event == "request":
            writer.request_key()
        elif event == "forget":
            reader.forget()
        elif event == "other shape":
            shape = shape[::-1]
        else:
            frame = rng.integers(0, 3, shape, dtype=np.uint8)
            wire = writer.write(frame)
            if event == "write":
                try:
                    found = reader(*wire)
                except MissingReference:
                    writer.request_key()
                else:
                    np.testing.assert_array_equal(found, frame)


@pytest.mark.parametrize("seed", range(3))
def test_mutations(seed: int) -> None:
    """Whatever comes, the reader stays within its bounds and keeps on reading."""
    rng = random.Random(seed)
    reader = FrameReader(streams=8, memory=100_000, limits=Limits(expanded=20_000))
    writer = FrameWriter(key_every=5)
    frames = list(film(40))
    for _ in range(800):
        frame = rng.choice(frames)
        wire = writer.write(frame, rng.choice("ab"))
        data = bytearray(wire.data)
        for _ in range(rng.randrange(4)):
            spot = int(rng.random() ** 3 * len(data))
            data[spot] = rng.randrange(256)
        try:
            found = reader(wire.code, bytes(data))
        except (DecodeError, LimitExceeded, MissingReference):
            writer.request_key()
        else:
            assert found.nbytes <= 20_000
            if data == wire.data and is_key(wire):
                np.testing.assert_array_equal(found, frame)
        assert reader.held <= 100_000
        if rng.random() < 0.02:
            reader.forget()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtra, match=r"rlwire\[compression\]"):
        FrameWriter()
