"""What does an array cost in the codec: against a memcpy, by size, and against other packages?

`pytest benchmarks/bench_rlx_array.py` times each rival; `python benchmarks/bench_rlx_array.py`
prints the ratios.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgpack
import msgpack_numpy
import msgspec
import numpy as np
import orjson
import pytest
from pairs import TINY, Line, call_times, oracle, print_head, print_lines, run_benchmark

from rlwire.codecs import rlx

SIDE = 8 if TINY else 84
SMALL, LARGE = (1_000, 10_000) if TINY else (100_000, 100_000_000)
BY_REFERENCE = 0.6  # microseconds that a call by reference may take, whatever the size
# The machine of that target encodes this with msgspec in 0.11 us: on another, compare with that.
YARDSTICK = {
    "command": "update",
    "reward": 1.0,
    "state": [0.0273956, -0.00611216, 0.03585979, 0.0197368],
    "terminal": False,
}


def update(state: Any) -> dict[str, Any]:
    """An `update` message around a state."""
    return {"command": "update", "reward": 1.0, "state": state, "terminal": False}


STACK = update(np.random.default_rng(7).random((SIDE, SIDE, 4), dtype=np.float32))


def _msgpack_encode(message: Any) -> bytes:
    packed: bytes = msgpack.packb(message, default=msgpack_numpy.encode)
    return packed


def _msgpack_decode(data: bytes) -> Any:
    return msgpack.unpackb(data, object_hook=msgpack_numpy.decode)


def _orjson_encode(message: Any) -> bytes:
    return orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY)


def _orjson_decode(data: bytes) -> Any:
    message = orjson.loads(data)
    message["state"] = np.asarray(message["state"], dtype=np.float32)
    return message


ENCODERS: dict[str, Callable[[Any], Any]] = {
    "rlwire": rlx.Encoder().encode,
    "plain Python": oracle().encode,
    "msgpack + msgpack-numpy": _msgpack_encode,
    "orjson": _orjson_encode,
}
DECODERS: dict[str, Callable[[Any], Any]] = {
    "rlwire": rlx.Decoder(copy=False).decode,
    "plain Python": oracle().decode,
    "msgpack + msgpack-numpy": _msgpack_decode,
    "orjson": _orjson_decode,
}
COPYING_DECODER = rlx.Decoder(copy=True).decode
WIRE: dict[str, bytes] = {name: encode(STACK) for name, encode in ENCODERS.items()}


def copier(size: int) -> tuple[Callable[[Any], Any], Any]:
    """A memcpy of `size` bytes into memory that is warm, as a function and its argument."""
    target = memoryview(bytearray(size))
    return functools.partial(target.__setitem__, slice(None)), memoryview(b"\1" * size)


def allocating_copier(size: int) -> tuple[Callable[[Any], Any], Any]:
    """A memcpy of `size` bytes into new memory: what any function that returns bytes has to do."""
    return bytes, bytearray(size)


def message_of(size: int) -> dict[str, Any]:
    """A message whose only value is an array of `size` bytes."""
    return {"data": np.ones(size // 4, np.float32)}


@pytest.mark.benchmark(group=f"update with {SIDE}x{SIDE}x4 float32, encode")
@pytest.mark.parametrize("name", ENCODERS)
def test_encode(benchmark: Any, name: str) -> None:
    """The message to bytes."""
    assert run_benchmark(benchmark, ENCODERS[name], STACK) == WIRE[name]


@pytest.mark.benchmark(group=f"update with {SIDE}x{SIDE}x4 float32, decode")
@pytest.mark.parametrize("name", DECODERS)
def test_decode(benchmark: Any, name: str) -> None:
    """Bytes to the message, the array a view where the package can do that."""
    message = run_benchmark(benchmark, DECODERS[name], WIRE[name])
    np.testing.assert_array_equal(message["state"], STACK["state"])


@pytest.mark.benchmark(group="one array by reference")
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_encode_parts(benchmark: Any, size: int) -> None:
    """Header and view, nothing copied."""
    parts = run_benchmark(benchmark, rlx.Encoder().encode_parts, message_of(size))
    assert sum(memoryview(part).nbytes for part in parts) > size


@pytest.mark.benchmark(group="one array by reference")
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_decode_view(benchmark: Any, size: int) -> None:
    """A view of the buffer, nothing copied."""
    wire = rlx.encode(message_of(size))
    message = run_benchmark(benchmark, rlx.Decoder(copy=False).decode, wire)
    assert message["data"].nbytes == size


def stack_lines() -> list[Line]:
    """An observation of four Atari frames."""
    size = STACK["state"].nbytes
    encode = call_times(
        {name: (call, STACK) for name, call in ENCODERS.items()}
        | {"memcpy": copier(size), "bytes(bytearray)": allocating_copier(size)}
    )
    decode = call_times(
        {name: (call, WIRE[name]) for name, call in DECODERS.items()}
        | {"rlwire, copy=True": (COPYING_DECODER, WIRE["rlwire"]), "memcpy": copier(size)}
    )
    what = f"encode {SIDE}x{SIDE}x4 float32"
    found = [
        Line(what, encode["rlwire"], "memcpy", encode["memcpy"], 1.5, extra=0.3),
        Line(what, encode["rlwire"], "bytes(bytearray)", encode["bytes(bytearray)"]),
    ]
    rivals = [name for name in ENCODERS if name != "rlwire"]
    found += [Line(what, encode["rlwire"], name, encode[name], faster=True) for name in rivals]
    what = f"decode {SIDE}x{SIDE}x4 float32, a view"
    found += [Line(what, decode["rlwire"], name, decode[name], faster=True) for name in rivals]
    what = f"decode {SIDE}x{SIDE}x4 float32, copied"
    found.append(Line(what, decode["rlwire, copy=True"], "memcpy", decode["memcpy"]))
    return found


def reference_lines() -> list[Line]:
    """Arrays by reference, small and large."""
    messages = {size: message_of(size) for size in (SMALL, LARGE)}
    wires = {size: rlx.encode(message) for size, message in messages.items()}
    encode_parts, decode = rlx.Encoder().encode_parts, rlx.Decoder(copy=False).decode
    times = call_times(
        {f"encode_parts {size}": (encode_parts, messages[size]) for size in messages}
        | {f"decode {size}": (decode, wires[size]) for size in wires}
        | {"yardstick": (msgspec.msgpack.Encoder().encode, YARDSTICK)}
    )
    found = []
    for work in ("encode_parts", "decode"):
        small, large = times[f"{work} {SMALL}"], times[f"{work} {LARGE}"]
        for size, took in ((SMALL, small), (LARGE, large)):
            found.append(
                Line(f"{work} of {size:,} B by reference", took, "a limit", BY_REFERENCE, 1.0)
            )
        found.append(Line(f"{work} of {LARGE:,} B", large, f"of {SMALL:,} B", small, 1.1))
        yardstick = times["yardstick"]
        what = f"{work} of {LARGE:,} B"
        found.append(Line(what, large, "msgspec, small update", yardstick, BY_REFERENCE / 0.11))
    return found


if __name__ == "__main__":
    print_head(
        f"Arrays; the stack of frames is {STACK['state'].nbytes:,} bytes.",
        "msgpack",
        "msgpack-numpy",
        "msgspec",
        "orjson",
    )
    print_lines(stack_lines() + reference_lines())
