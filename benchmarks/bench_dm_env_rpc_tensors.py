"""What does a dm_env_rpc tensor cost, to bytes and back: against the reference's own packing?

`pytest benchmarks/bench_dm_env_rpc_tensors.py` times each; `python
benchmarks/bench_dm_env_rpc_tensors.py` prints the ratios. The reference is dm_env_rpc's
tensor_utils with protobuf: `pack_tensor` and `SerializeToString`, `FromString` and `unpack_tensor`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils
from pairs import TINY, Line, call_times, print_head, print_lines, run_benchmark

from rlwire.codecs.dm_env_rpc import tensors

SIDE = 8 if TINY else 64
RANDOM = np.random.default_rng(7)
PIXELS = (SIDE, SIDE, 3)
HALF = (SIDE // 2, SIDE, 3)
COUNT, HALF_COUNT = SIDE * SIDE * 3, SIDE * SIDE * 3 // 2


@dataclass(frozen=True)
class Work:
    """One value, and how many times faster each way aims to be; None: for information."""

    value: Any
    encode: float | None = None
    decode: float | None = None
    view: float | None = None


def _lengths(count: int) -> Any:
    """Numbers of each length in bits, so varints of each length, in any order."""
    shift = RANDOM.integers(0, 64, count, np.uint64)
    return (RANDOM.integers(0, 2**64, count, np.uint64) >> shift).reshape(HALF)


WORKS: dict[str, Work] = {
    "float32 (64,64,3)": Work(RANDOM.random(PIXELS, np.float32), 150, 80, 500),
    "int32 (64,64,3), 0..12287": Work(
        RANDOM.permutation(COUNT).astype(np.int32).reshape(PIXELS), 40, 40
    ),
    "int64 (32,64,3), 0..6143": Work(RANDOM.permutation(HALF_COUNT).reshape(HALF), 25, 25),
    "uint64 (32,64,3), 0..6143": Work(
        RANDOM.permutation(HALF_COUNT).astype(np.uint64).reshape(HALF), 25, 25
    ),
    "bool (128,128)": Work(RANDOM.random((2 * SIDE, 2 * SIDE)) < 0.5, 100, 100),
    "float32 (4,)": Work(np.arange(4, dtype=np.float32), 8, 8),
    "float32 scalar": Work(np.float32(1.5), 8, 8),
    "float": Work(1.5, 8, 8),
    "uint8 (84,84,4)": Work(RANDOM.integers(0, 256, (84, 84, 4), np.uint8)),
    "int32 (64,64,3), 0..127": Work(RANDOM.integers(0, 128, PIXELS).astype(np.int32)),
    "int32 (64,64,3), 1 or 2 bytes": Work(
        np.where(RANDOM.random(PIXELS) < 0.5, 5, 500).astype(np.int32)
    ),
    "int32 (64,64,3), -100..100": Work(RANDOM.integers(-100, 101, PIXELS).astype(np.int32)),
    "uint32 (64,64,3), any": Work(RANDOM.integers(0, 2**32, PIXELS).astype(np.uint32)),
    "uint64 (32,64,3), any length": Work(_lengths(HALF_COUNT)),
    "int64 (32,64,3), any": Work(RANDOM.integers(-(2**63), 2**63 - 1, HALF)),
    "str": Work("observation"),
    "str (16,)": Work(np.array(["north", "südwest"] * 8)),
    "float64 (64,64,3), strided": Work(RANDOM.random((3, SIDE, SIDE)).transpose(1, 2, 0)),
}


def _reference_encode(value: Any) -> bytes:
    wire: bytes = tensor_utils.pack_tensor(value).SerializeToString()
    return wire


def _reference_decode(wire: bytes) -> Any:
    return tensor_utils.unpack_tensor(dm_env_rpc_pb2.Tensor.FromString(wire))


ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "rlwire": tensors.encode_tensor,
    "dm_env_rpc": _reference_encode,
}
DECODERS: dict[str, Callable[[bytes], Any]] = {
    "rlwire": tensors.decode_tensor,
    "rlwire, view": functools.partial(tensors.decode_tensor, copy=False),
    "dm_env_rpc": _reference_decode,
}


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("name", ENCODERS)
def test_encode(benchmark: Any, work: str, name: str) -> None:
    """The value to bytes."""
    benchmark.group = f"{work}, encode"
    value = WORKS[work].value
    assert run_benchmark(benchmark, ENCODERS[name], value) == _reference_encode(value)


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("name", DECODERS)
def test_decode(benchmark: Any, work: str, name: str) -> None:
    """Bytes to the value."""
    benchmark.group = f"{work}, decode"
    value = WORKS[work].value
    got = run_benchmark(benchmark, DECODERS[name], _reference_encode(value))
    np.testing.assert_array_equal(got, value)


def lines(name: str, work: Work) -> list[Line]:
    """One value, both ways."""
    wire = tensors.encode_tensor(work.value)
    encode = call_times({who: (call, work.value) for who, call in ENCODERS.items()})
    decode = call_times({who: (call, wire) for who, call in DECODERS.items()})
    theirs = decode["dm_env_rpc"]
    found = [
        Line(
            f"{name}: encode",
            encode["rlwire"],
            "dm_env_rpc",
            encode["dm_env_rpc"],
            work.encode,
            faster=True,
        ),
        Line(f"{name}: decode", decode["rlwire"], "dm_env_rpc", theirs, work.decode, faster=True),
    ]
    if work.view is not None:
        what = f"{name}: decode as view"
        found.append(
            Line(what, decode["rlwire, view"], "dm_env_rpc", theirs, work.view, faster=True)
        )
    return found


def compress_lines() -> list[Line]:
    """`try_compress`, of an array that is all the same and one that begins otherwise."""
    same = np.full(PIXELS, 0.5, np.float32)
    other = same.copy()
    other[0, 1] = 1.0

    def ours(value: Any) -> bytes:
        return tensors.encode_tensor(value, try_compress=True)

    def theirs(value: Any) -> bytes:
        wire: bytes = tensor_utils.pack_tensor(value, try_compress=True).SerializeToString()
        return wire

    found = []
    for what, value in (("all equal", same), ("not all equal", other)):
        times = call_times({"rlwire": (ours, value), "dm_env_rpc": (theirs, value)})
        found.append(
            Line(
                f"float32 (64,64,3), try_compress, {what}",
                times["rlwire"],
                "dm_env_rpc",
                times["dm_env_rpc"],
                faster=True,
            )
        )
    return found


if __name__ == "__main__":
    print_head(
        "dm_env_rpc tensors; the reference packs with tolist() and unpacks with fromiter().",
        "dm-env-rpc",
        "protobuf",
    )
    table = [line for name, work in WORKS.items() for line in lines(name, work)]
    print_lines(table + compress_lines())
