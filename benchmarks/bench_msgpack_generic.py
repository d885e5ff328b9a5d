"""How long does msgpack of dictionaries, lists, texts and numbers take, against the fastest?

`pytest benchmarks/bench_msgpack_generic.py` times each rival; `python
benchmarks/bench_msgpack_generic.py` prints the ratios.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgpack as original
import msgspec
import ormsgpack
import pytest
from pairs import Line, call_times, print_head, print_lines, run_benchmark

from rlwire.codecs import msgpack

_CHANCE = random.Random(1)


def agent() -> dict[str, Any]:
    """What a server may tell of one agent."""
    return {
        "id": _CHANCE.randrange(10**6),
        "name": f"agent-{_CHANCE.randrange(1000)}",
        "alive": True,
        "score": _CHANCE.random(),
        "tags": ["alpha", "beta", "gamma"],
        "pos": [_CHANCE.random() for _ in range(3)],
        "info": {
            "episode": _CHANCE.randrange(10**5),
            "lives": 3,
            "text": "The quick brown fox jumps over the lazy dog",
            "none": None,
            "neg": -_CHANCE.randrange(10**5),
        },
    }


VALUES: dict[str, Any] = {
    "100 nested": {"agents": [agent() for _ in range(100)], "step": 123456, "done": False},
    "small": {"command": "update", "reward": 1.0, "state": [1, 2, 3], "done": False},
    "1,000 ints": [_CHANCE.randrange(-(10**9), 10**9) for _ in range(1000)],
    "1,000 floats": [_CHANCE.random() for _ in range(1000)],
    "1,000 texts": [f"word-{_CHANCE.randrange(10**9)}" for _ in range(1000)],
}
WIRE = {name: original.packb(value) for name, value in VALUES.items()}

# The same call shape for all: an encoder and a decoder made once, where there are such.
ENCODERS: dict[str, Callable[[Any], Any]] = {
    "rlwire": msgpack.Encoder().encode,
    "msgspec": msgspec.msgpack.Encoder().encode,
    "ormsgpack": ormsgpack.packb,
    "msgpack": original.packb,
}
DECODERS: dict[str, Callable[[Any], Any]] = {
    "rlwire": msgpack.Decoder().decode,
    "msgspec": msgspec.msgpack.Decoder().decode,
    "ormsgpack": ormsgpack.unpackb,
    "msgpack": original.unpackb,
}


@pytest.mark.benchmark(group="msgpack, encode")
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", ENCODERS)
def test_encode(benchmark: Any, name: str, value: str) -> None:
    """Values to bytes."""
    assert run_benchmark(benchmark, ENCODERS[name], VALUES[value]) == WIRE[value]


@pytest.mark.benchmark(group="msgpack, decode")
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", DECODERS)
def test_decode(benchmark: Any, name: str, value: str) -> None:
    """Bytes to values."""
    assert run_benchmark(benchmark, DECODERS[name], WIRE[value]) == VALUES[value]


def lines() -> list[Line]:
    """The ratios to the faster of msgspec and ormsgpack, and their target."""
    found = []
    for way, calls, given in (("encode", ENCODERS, VALUES), ("decode", DECODERS, WIRE)):
        for what, argument in given.items():
            times = call_times({name: (call, argument) for name, call in calls.items()}, 1.0)
            rival = min(("msgspec", "ormsgpack"), key=times.__getitem__)
            ours = times["rlwire"]
            found.append(Line(f"{way} {what}", ours, rival, times[rival], 1.2))
            found.append(
                Line(f"{way} {what}", ours, "msgpack", times["msgpack"], None, faster=True)
            )
    return found


if __name__ == "__main__":
    print_head("Plain values in msgpack.", "msgpack", "msgspec", "ormsgpack")
    print_lines(lines())
