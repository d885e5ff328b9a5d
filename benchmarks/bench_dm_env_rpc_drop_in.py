"""How much faster are dm_env_rpc's own functions once `rlwire.install("dm_env_rpc")` was called?

`pytest benchmarks/bench_dm_env_rpc_drop_in.py` times each; `python
benchmarks/bench_dm_env_rpc_drop_in.py` prints the ratios. The messages are protobuf's own objects
on both sides: what is left of the time is mostly protobuf's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import tensor_utils
from pairs import TINY, Line, call_times, print_head, print_lines, run_benchmark

import rlwire

SIDE = 8 if TINY else 64
RANDOM = np.random.default_rng(7)
PIXELS = (SIDE, SIDE, 3)

VALUES: dict[str, tuple[Any, float | None, float | None]] = {
    "float32 (64,64,3)": (RANDOM.random(PIXELS, np.float32), 80, 80),
    "float64 (64,64,3)": (RANDOM.random(PIXELS), None, None),
    "int32 (64,64,3), 0..12287": (
        RANDOM.permutation(SIDE * SIDE * 3).astype(np.int32).reshape(PIXELS), None, None,
    ),
    "bool (128,128)": (RANDOM.random((2 * SIDE, 2 * SIDE)) < 0.5, None, None),
    "uint8 (84,84,4)": (RANDOM.integers(0, 256, (84, 84, 4), np.uint8), None, None),
    "uint8 (480,640,3)": (RANDOM.integers(0, 256, (480, 640, 3), np.uint8), None, None),
    "float32 (4,)": (np.arange(4, dtype=np.float32), None, None),
    "float32 scalar": (np.float32(1.5), None, None),
}  # fmt: skip


Functions = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def functions() -> Functions:
    """`pack_tensor` and `unpack_tensor` as they are now."""
    return tensor_utils.pack_tensor, tensor_utils.unpack_tensor


def installed() -> Functions:
    """The same while rlwire's are in their place; they go on working when they are not."""
    rlwire.install("dm_env_rpc")
    try:
        return functions()
    finally:
        rlwire.uninstall("dm_env_rpc")


OWN_PACK, OWN_UNPACK = functions()
OUR_PACK, OUR_UNPACK = installed()


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("who", ["rlwire", "dm_env_rpc"])
def test_pack(benchmark: Any, name: str, who: str) -> None:
    """An array to protobuf's message."""
    benchmark.group = f"{name}, pack_tensor"
    value = VALUES[name][0]
    pack = OUR_PACK if who == "rlwire" else OWN_PACK
    assert run_benchmark(benchmark, pack, value) == OWN_PACK(value)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("who", ["rlwire", "dm_env_rpc"])
def test_unpack(benchmark: Any, name: str, who: str) -> None:
    """Protobuf's message to an array."""
    benchmark.group = f"{name}, unpack_tensor"
    value = VALUES[name][0]
    unpack = OUR_UNPACK if who == "rlwire" else OWN_UNPACK
    np.testing.assert_array_equal(run_benchmark(benchmark, unpack, OWN_PACK(value)), value)


def lines(name: str) -> list[Line]:
    """One value, both ways."""
    value, pack_target, unpack_target = VALUES[name]
    tensor = OWN_PACK(value)
    pack = call_times({"ours": (OUR_PACK, value), "own": (OWN_PACK, value)})
    unpack = call_times({"ours": (OUR_UNPACK, tensor), "own": (OWN_UNPACK, tensor)})
    return [
        Line(f"{name}: pack_tensor", pack["ours"], "dm_env_rpc", pack["own"], pack_target,
             faster=True),
        Line(f"{name}: unpack_tensor", unpack["ours"], "dm_env_rpc", unpack["own"], unpack_target,
             faster=True),
    ]  # fmt: skip


if __name__ == "__main__":
    print_head("dm_env_rpc's functions with rlwire's packing.", "dm-env-rpc", "protobuf")
    print_lines([line for name in VALUES for line in lines(name)])
