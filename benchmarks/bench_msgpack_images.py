"""Which compression pays for camera frames in msgpack: bytes, time, and up to what link speed?

Random play is recorded from Gymnasium; each frame is then sent in turn in every way. "pays below"
is the speed of a link at which the time that the saved bytes take is the time that compression
takes on top of sending the array as it is; on a slower link it pays, on a faster one it costs.
`python benchmarks/bench_msgpack_images.py` prints the table, `pytest
benchmarks/bench_msgpack_images.py` times each way.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import mean, median
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest
import zstandard
from pairs import TINY, print_head, print_table

from rlwire.codecs import msgpack
from rlwire.codecs.msgpack import images
from rlwire.sessions.msgpack_images import FrameReader, FrameWriter

FRAMES = 4 if TINY else 100
FEWER = 2 if TINY else 20  # of those that take long
PASSES = 1 if TINY else 3
SEED = 20_180_131
QUALITY = 90

Array = np.ndarray[Any, Any]
Way = tuple[Callable[[Array], bytes], Callable[[bytes], Any]]


def _play(env: Any, picture: Callable[[Any], Array], count: int) -> Iterator[Array]:
    """What random play shows, through as many episodes as it takes."""
    env.action_space.seed(SEED)
    seen, _ = env.reset(seed=SEED)
    try:
        for _ in range(count):
            yield np.array(picture(seen), order="C")
            seen, _, ended, cut, _ = env.step(env.action_space.sample())
            if ended or cut:
                seen, _ = env.reset()
    finally:
        env.close()


def _atari(game: str, count: int, kind: str) -> Iterator[Array]:
    import ale_py
    import gymnasium

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # it greets on stderr
    gymnasium.register_envs(ale_py)
    return _play(gymnasium.make(f"ALE/{game}-v5", obs_type=kind), lambda seen: seen, count)


def _stacks(game: str, count: int) -> Iterator[Array]:
    """Four grey frames of 84x84, as DQN has them."""
    from PIL import Image

    squares = [
        np.asarray(Image.fromarray(frame).resize((84, 84), Image.Resampling.BOX))
        for frame in _atari(game, count + 3, "grayscale")
    ]
    for first in range(count):
        yield np.stack(squares[first : first + 4], axis=-1)


def _rendered(name: str, count: int, **sizes: int) -> Iterator[Array]:
    import gymnasium

    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    env: Any = gymnasium.make(name, render_mode="rgb_array")
    for attribute, size in sizes.items():
        setattr(env.unwrapped, attribute, size)
    return _play(env, lambda _: env.render(), count)


def _noisy(frames: Iterator[Array]) -> Iterator[Array]:
    """What a camera would make of it: each pixel of each frame is off by some 2 of 255."""
    rng = np.random.default_rng(SEED)
    for frame in frames:
        yield np.clip(np.rint(frame + rng.normal(0, 2, frame.shape)), 0, 255).astype(np.uint8)


def _before_a_picture(frames: Iterator[Array]) -> Iterator[Array]:
    """White replaced by a still and detailed picture, as simulators with textures show one."""
    rng = np.random.default_rng(SEED)
    picture: Array | None = None
    for frame in frames:
        if picture is None:
            picture = rng.integers(60, 190, frame.shape, dtype=np.uint8)
        yield np.where(frame == 255, picture, frame)


def _depth(count: int) -> Iterator[Array]:
    """A computed depth image in millimetres, moving, with a sensor's noise."""
    rng = np.random.default_rng(SEED)
    y, x = np.mgrid[0:480, 0:640]
    for number in range(count):
        waves = 400 * np.sin((x + 4 * number) / 50) * np.cos(y / 40)
        yield (2000 + 3 * x + 2 * y + waves + rng.normal(0, 3, x.shape)).astype(np.uint16)


_cartpole = functools.partial(_rendered, "CartPole-v1", screen_width=640, screen_height=480)

STREAMS: dict[str, Callable[[], Iterator[Array]]] = {
    "Pong 210x160x3": lambda: _atari("Pong", FRAMES, "rgb"),
    "Breakout 210x160x3": lambda: _atari("Breakout", FRAMES, "rgb"),
    "Pong 84x84x4": lambda: _stacks("Pong", FRAMES),
    "Breakout 84x84x4": lambda: _stacks("Breakout", FRAMES),
    "CartPole 480x640x3": lambda: _cartpole(FRAMES),
    "Pendulum 500x500x3": lambda: _rendered("Pendulum-v1", FRAMES),
    "CartPole before a picture 480x640x3": lambda: _before_a_picture(_cartpole(FEWER)),
    "CartPole + noise 480x640x3": lambda: _noisy(_cartpole(FEWER)),
    "depth, computed 480x640 uint16": lambda: _depth(FEWER),
}


@functools.cache
def frames_of(stream: str) -> list[Array]:
    """The recorded frames."""
    return list(STREAMS[stream]())


def _single(kind: Any, level: int | None = None) -> Way:
    def encode(frame: Array) -> bytes:
        wrapped = images.encode(frame, kind, level=level, quality=QUALITY)
        return msgpack.encode({"camera": wrapped})

    return encode, functools.partial(msgpack.decode, ext_hook=images.ImageHook())


def _stream(kind: Any) -> Way:
    writer, reader = FrameWriter(kind), FrameReader()
    return (
        lambda frame: msgpack.encode({"camera": writer.write(frame, "camera")}),
        functools.partial(msgpack.decode, ext_hook=reader),
    )


PLAIN = "as it is"
WAYS: dict[str, Callable[[], Way]] = {
    PLAIN: lambda: (lambda frame: msgpack.encode({"camera": frame}), msgpack.decode),
    "raw": lambda: _single("raw"),
    "png, level 1": lambda: _single("png"),
    "png, level 6": lambda: _single("png", 6),
    f"jpeg, quality {QUALITY}": lambda: _single("jpeg"),
    "lz4": lambda: _single("lz4"),
    "zstd, level 1": lambda: _single("zstd"),
    "zstd, level 3": lambda: _single("zstd", 3),
    "difference, lz4": lambda: _stream("lz4"),
    "difference, zstd": lambda: _stream("zstd"),
}


def ways_for(frame: Array) -> list[str]:
    """JPEG has 8 bits."""
    return [name for name in WAYS if frame.dtype == np.uint8 or not name.startswith("jpeg")]


def measure(stream: str) -> dict[str, tuple[float, float, float]]:
    """Bytes of a frame, and the microseconds of encoding and decoding it, for each way."""
    frames = frames_of(stream)
    ways = {name: WAYS[name]() for name in ways_for(frames[0])}
    sizes: dict[str, list[int]] = {name: [] for name in ways}
    encoding: dict[str, list[int]] = {name: [] for name in ways}
    decoding: dict[str, list[int]] = {name: [] for name in ways}
    order = list(ways)
    for frame in frames * PASSES:
        for name in order:
            encode, decode = ways[name]
            begin = perf_counter_ns()
            wire = encode(frame)
            middle = perf_counter_ns()
            found = decode(wire)
            end = perf_counter_ns()
            if not name.startswith("jpeg") and not np.array_equal(found["camera"], frame):
                raise AssertionError(f"{name} of {stream} came back different")
            sizes[name].append(len(wire))
            encoding[name].append(middle - begin)
            decoding[name].append(end - middle)
        order.append(order.pop(0))
    return {
        name: (mean(sizes[name]), median(encoding[name]) / 1e3, median(decoding[name]) / 1e3)
        for name in ways
    }


def rows_of(stream: str) -> Iterator[tuple[str, ...]]:
    """The table's rows of one stream."""
    found = measure(stream)
    plain, plain_encode, plain_decode = found[PLAIN]
    for name, (size, encode, decode) in found.items():
        extra = encode + decode - plain_encode - plain_decode
        speed = (plain - size) * 8 / extra if extra > 0 and size < 0.99 * plain else None
        yield (
            stream,
            name,
            f"{size:,.0f}",
            f"{plain / size:.1f}",
            f"{encode:,.0f}",
            f"{decode:,.0f}",
            "" if speed is None else f"{speed:,.0f}",
        )


def transform_row(stream: str) -> tuple[str, ...]:
    """Mean bytes that zstd makes of frames, after the ways to change them that were weighed."""
    compress = zstandard.ZstdCompressor(level=1).compress
    frames = frames_of(stream)
    words = np.dtype(f"u{frames[0].itemsize}")

    def size(pictures: list[Array], shuffled: bool) -> str:
        if shuffled and words.itemsize == 1:
            return ""
        planes = [picture.reshape(-1, 1).view(np.uint8) for picture in pictures]
        laid = [np.ascontiguousarray(plane.T if shuffled else plane) for plane in planes]
        return f"{mean(len(compress(picture.tobytes())) for picture in laid):,.0f}"

    pairs = [(after.view(words), before.view(words)) for before, after in pairwise(frames)]
    changes = (
        frames[1:],
        [after - before for after, before in pairs],
        [after ^ before for after, before in pairs],
    )
    return stream, *(size(change, shuffled) for change in changes for shuffled in (False, True))


@pytest.mark.benchmark(group="a frame of Pong both ways")
@pytest.mark.parametrize("name", WAYS)
def test_pong(benchmark: Any, name: str) -> None:
    """One frame after another."""
    frames = frames_of("Pong 210x160x3")
    encode, decode = WAYS[name]()

    def all_frames() -> Any:
        return [decode(encode(frame)) for frame in frames]

    found = benchmark.pedantic(all_frames, rounds=1 if TINY else 20)
    assert all(message["camera"].shape == frames[0].shape for message in found)


def main() -> None:
    """Print the table."""
    packages = ("pillow", "lz4", "zstandard", "gymnasium", "ale-py")
    print_head("Which compression pays for camera frames in msgpack?", *packages)
    columns = ("frames", "sent", "bytes", "times smaller", "encode us", "decode us")
    for stream in STREAMS:
        print_table((*columns, "pays below Mbit/s"), list(rows_of(stream)))
        print(flush=True)
    print(
        "Bytes after zstd at level 1: the frame, or its difference to the one before, "
        "and the same with its bytes sorted by their place in an element"
    )
    ways = ("as it is", "subtracted", "exclusive or")
    heads = [name for way in ways for name in (way, f"{way}, sorted")]
    print_table(("frames", *heads), [transform_row(stream) for stream in STREAMS])


if __name__ == "__main__":
    main()
