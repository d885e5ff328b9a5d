"""How long do arrays take to msgpack and back, against msgpack with msgpack-numpy?

An episode of 500 steps, and 64 stacks of frames of 84x84x4: whole, by reference, by view, and by
size. `python benchmarks/bench_msgpack_arrays.py` prints the ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack_numpy
import numpy as np
from pairs import Line, call_times, print_head, print_lines, print_table

from rlwire.codecs import msgpack

_CHANCE = np.random.default_rng(0)


def frames(count: int) -> dict[str, Any]:
    """Stacks of four frames."""
    return {"obs": _CHANCE.integers(0, 256, (count, 84, 84, 4), dtype=np.uint8)}


EPISODE: dict[str, Any] = {
    "obs": _CHANCE.random((501, 4), dtype=np.float32),
    "actions": np.arange(500),
    "rewards": _CHANCE.random(500),
}
VALUES = {"episode": EPISODE, "frames": frames(64)}
WIRE = {name: msgpack_numpy.packb(value) for name, value in VALUES.items()}

ENCODERS: dict[str, Callable[[Any], Any]] = {
    "encode": msgpack.Encoder().encode,
    "encode_parts": msgpack.Encoder().encode_parts,
    "msgpack-numpy": msgpack_numpy.packb,
}
DECODERS: dict[str, Callable[[Any], Any]] = {
    "decode": msgpack.Decoder().decode,
    "decode copy=False": msgpack.Decoder(copy=False).decode,
    "msgpack-numpy": msgpack_numpy.unpackb,
}


def lines() -> list[Line]:
    """The ratios and their targets."""
    rival = "msgpack-numpy"
    # An array of a copy of its own costs what allocation and memcpy cost, whoever makes it.
    targets: dict[tuple[str, str], float | None] = {
        ("episode", "encode"): 8,
        ("episode", "encode_parts"): 8,
        ("episode", "decode"): 8,
        ("episode", "decode copy=False"): 8,
        ("frames", "encode_parts"): 50,
        ("frames", "decode copy=False"): 50,
    }
    found = []
    for what, value in VALUES.items():
        for calls, argument in ((ENCODERS, value), (DECODERS, WIRE[what])):
            times = call_times({name: (call, argument) for name, call in calls.items()})
            for name in calls:
                if name != rival:
                    target = targets.get((what, name))
                    found.append(
                        Line(f"{what}, {name}", times[name], rival, times[rival], target, True)
                    )
    return found


def sizes() -> list[tuple[str, ...]]:
    """Time by size: what is only referred to takes no longer when there is more of it."""
    rows = []
    for count in (1, 8, 64, 256):
        value = frames(count)
        wire = msgpack.encode(value)
        times = call_times(
            {
                "encode_parts": (ENCODERS["encode_parts"], value),
                "decode copy=False": (DECODERS["decode copy=False"], wire),
                "theirs": (msgpack_numpy.packb, value),
                "theirs back": (msgpack_numpy.unpackb, wire),
            },
            0.5,
        )
        rows.append((f"{len(wire):,}", *(f"{time:,.3f}" for time in times.values())))
    return rows


if __name__ == "__main__":
    print_head(
        "Arrays in msgpack: an episode of 16 KB, frames of 1.8 MB.", "msgpack", "msgpack-numpy"
    )
    print_lines(lines())
    print()
    print_table(
        ("bytes", "encode_parts us", "decode copy=False us", "packb us", "unpackb us"), sizes()
    )
