"""How much faster are msgpack-numpy's and openpi-client's own functions after `rlwire.install`?

`pytest benchmarks/bench_msgpack_drop_in.py` times each; `python
benchmarks/bench_msgpack_drop_in.py` prints the ratios. Functions are called as a program calls
them, by the library's names. openpi-client is left out where it is not installed (`pip install
--no-deps openpi-client`: it asks for an older NumPy than it needs).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pairs import TINY, Line, call_times, print_head, print_lines, run_benchmark

import rlwire

STEPS = 20 if TINY else 500
RANDOM = np.random.default_rng(7)

EPISODE = {
    "obs": RANDOM.random((STEPS + 1, 4), np.float32),
    "actions": RANDOM.integers(0, 2, STEPS),
    "rewards": RANDOM.random(STEPS),
}
VALUES: dict[str, Any] = {
    "a 500-step episode": EPISODE,
    "64 x 84x84x4 uint8": RANDOM.integers(0, 256, (64, 84, 84, 4), np.uint8),
    "84x84x4 float32": RANDOM.random((84, 84, 4), np.float32),
    "a policy's observation": {
        "observation/image": RANDOM.integers(0, 256, (224, 224, 3), np.uint8),
        "observation/wrist_image": RANDOM.integers(0, 256, (224, 224, 3), np.uint8),
        "observation/state": RANDOM.random(8, np.float32),
        "prompt": "fold the towel",
    },
    "a chunk of actions": {"actions": RANDOM.random((50, 14))},
    "100 small arrays": [RANDOM.random(4, np.float32) for _ in range(100)],
    "no arrays": {"command": "update", "n": list(range(50)), "s": ["word"] * 20},
}

LIBRARIES: dict[str, ModuleType] = {}
for _name, _module in (
    ("msgpack_numpy", "msgpack_numpy"),
    ("openpi_client", "openpi_client.msgpack_numpy"),
):
    with suppress(ImportError):
        LIBRARIES[_name] = importlib.import_module(_module)
CASES = [(library, name) for library in LIBRARIES for name in VALUES]


@contextmanager
def served_by(who: str, library: str) -> Iterator[ModuleType]:
    """The library with its own packing, or with rlwire's."""
    if who == "rlwire":
        rlwire.install(library)
    try:
        yield LIBRARIES[library]
    finally:
        rlwire.uninstall(library)


@pytest.mark.parametrize(("library", "name"), CASES)
@pytest.mark.parametrize("who", ["rlwire", "own"])
def test_packb(benchmark: Any, library: str, name: str, who: str) -> None:
    """A value to bytes."""
    benchmark.group = f"{library}, {name}, packb"
    value = VALUES[name]
    with served_by(who, library) as module:
        packed = run_benchmark(benchmark, module.packb, value)
    assert packed == LIBRARIES[library].packb(value)


@pytest.mark.parametrize(("library", "name"), CASES)
@pytest.mark.parametrize("who", ["rlwire", "own"])
def test_unpackb(benchmark: Any, library: str, name: str, who: str) -> None:
    """Bytes to a value."""
    benchmark.group = f"{library}, {name}, unpackb"
    packed = LIBRARIES[library].packb(VALUES[name])
    with served_by(who, library) as module:
        value = run_benchmark(benchmark, module.unpackb, packed)
    assert LIBRARIES[library].packb(value) == packed


def lines(library: str, name: str) -> list[Line]:
    """One value, both ways."""
    value = VALUES[name]
    packed = LIBRARIES[library].packb(value)
    times = {}
    for who in ("rlwire", "own"):
        with served_by(who, library) as module:
            assert module.packb(value) == packed
            times[who] = call_times(
                {"packb": (module.packb, value), "unpackb": (module.unpackb, packed)}
            )
    return [
        Line(f"{name}: {what}", times["rlwire"][what], library, times["own"][what], faster=True)
        for what in ("packb", "unpackb")
    ]


if __name__ == "__main__":
    print_head(
        "The libraries' own functions, with rlwire's codec installed and without.",
        "msgpack",
        "msgpack-numpy",
        "openpi-client",
    )
    print_lines([line for library, name in CASES for line in lines(library, name)])
