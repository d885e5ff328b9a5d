"""How much faster are msgpack-numpy's and openpi-client's own functions after `rlwire.install`?

`pytest benchmarks/bench_msgpack_drop_in.py` times each; `python
benchmarks/bench_msgpack_drop_in.py` prints the ratios. Functions are called as a program calls
them, by the library's names. openpi-client is left out where it is not installed (`pip install
--no-deps openpi-client`: it asks for an older NumPy than it needs).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
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

Functions = tuple[Callable[[Any], Any], Callable[[Any], Any]]
LIBRARIES: dict[str, ModuleType] = {}
for _name, _module in (
    ("msgpack_numpy", "msgpack_numpy"),
    ("openpi_client", "openpi_client.msgpack_numpy"),
):
    with suppress(ImportError):
        LIBRARIES[_name] = importlib.import_module(_module)


def bare(function: Any) -> Any:
    """A function as it is now: of openpi-client's partial objects a copy."""
    return type(function)(function) if hasattr(function, "keywords") else function


def functions(library: str) -> Functions:
    """`packb` and `unpackb` as they are now."""
    module = LIBRARIES[library]
    return bare(module.packb), bare(module.unpackb)


def installed(library: str) -> Functions:
    """The same while rlwire's are in their place; they go on working when they are not."""
    rlwire.install(library)
    try:
        return functions(library)
    finally:
        rlwire.uninstall(library)


OWN = {library: functions(library) for library in LIBRARIES}
OURS = {library: installed(library) for library in LIBRARIES}
CASES = [(library, name) for library in LIBRARIES for name in VALUES]


@pytest.mark.parametrize(("library", "name"), CASES)
@pytest.mark.parametrize("who", ["rlwire", "own"])
def test_packb(benchmark: Any, library: str, name: str, who: str) -> None:
    """A value to bytes."""
    benchmark.group = f"{library}, {name}, packb"
    pack = (OURS if who == "rlwire" else OWN)[library][0]
    value = VALUES[name]
    assert run_benchmark(benchmark, pack, value) == OWN[library][0](value)


@pytest.mark.parametrize(("library", "name"), CASES)
@pytest.mark.parametrize("who", ["rlwire", "own"])
def test_unpackb(benchmark: Any, library: str, name: str, who: str) -> None:
    """Bytes to a value."""
    benchmark.group = f"{library}, {name}, unpackb"
    pack = OWN[library][0]
    packed = pack(VALUES[name])
    unpack = (OURS if who == "rlwire" else OWN)[library][1]
    assert pack(run_benchmark(benchmark, unpack, packed)) == packed


def lines(library: str, name: str) -> list[Line]:
    """One value, both ways."""
    value = VALUES[name]
    (own_pack, own_unpack), (our_pack, our_unpack) = OWN[library], OURS[library]
    packed = own_pack(value)
    assert our_pack(value) == packed
    pack = call_times({"ours": (our_pack, value), "own": (own_pack, value)})
    unpack = call_times({"ours": (our_unpack, packed), "own": (own_unpack, packed)})
    return [
        Line(f"{name}: packb", pack["ours"], library, pack["own"], faster=True),
        Line(f"{name}: unpackb", unpack["ours"], library, unpack["own"], faster=True),
    ]


if __name__ == "__main__":
    print_head(
        "The libraries' own functions, with rlwire's codec installed and without.",
        "msgpack",
        "msgpack-numpy",
        "openpi-client",
    )
    print_lines([line for library, name in CASES for line in lines(library, name)])
