"""How fast do ndarrays become JSON and come back, against orjson with NumPy?

`pytest benchmarks/bench_json_arrays.py` times each rival; `python benchmarks/bench_json_arrays.py`
prints the ratios. The rival's way back is `orjson.loads` and `numpy.array` for each array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
import pytest
from pairs import TINY, Line, call_times, print_head, print_lines, run_benchmark

from rlwire.codecs import json

STEPS = 8 if TINY else 500
RANDOM = np.random.default_rng(7)

# As a pole is balanced: observations wander, actions are 0 or 1.
EPISODE: dict[str, Any] = {
    "observations": RANDOM.normal(0, 0.05, (STEPS + 1, 4)).cumsum(0).astype(np.float32),
    "actions": RANDOM.integers(0, 2, STEPS),
    "rewards": np.ones(STEPS),
}
SHAPED: dict[str, Any] = {**EPISODE, "rewards": RANDOM.normal(size=STEPS)}
MATRIX = RANDOM.random((8, 8) if TINY else (64, 64))
IMAGE = RANDOM.integers(0, 256, (8, 8, 4) if TINY else (84, 84, 4), dtype=np.uint8)
LARGE = RANDOM.integers(-(10**12), 10**12, 20 if TINY else 2000)
ROUNDED = RANDOM.normal(0, 10, 20 if TINY else 2000).round(4)

Calls = Mapping[str, tuple[Callable[..., Any], Any]]


def rival_encode(value: Any) -> bytes:
    """Orjson's way with arrays."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def _episode_back(text: bytes) -> dict[str, Any]:
    value = orjson.loads(text)
    return {
        "observations": np.array(value["observations"], np.float32),
        "actions": np.array(value["actions"]),
        "rewards": np.array(value["rewards"]),
    }


def _array_back(dtype: Any) -> Callable[[bytes], Any]:
    return lambda text: np.array(orjson.loads(text), dtype)


def _work(
    name: str, value: Any, arrays: Any, back: Callable[[bytes], Any], to: float, fro: float
) -> dict[str, tuple[Calls, float]]:
    text = json.encode(value)
    decode = json.Decoder(arrays=arrays).decode
    return {
        f"{name} to text": ({"rlwire": (json.encode, value), "orjson": (rival_encode, value)}, to),
        f"{name} from text": ({"rlwire": (decode, text), "orjson, np.array": (back, text)}, fro),
    }


DTYPES = {"observations": np.float32, "actions": np.int64, "rewards": np.float64}
WORKS: dict[str, tuple[Calls, float | None]] = {
    **_work("episode", EPISODE, DTYPES, _episode_back, 1.5, 3),
    **_work("episode, rewards of all digits", SHAPED, DTYPES, _episode_back, 1.5, 3),
    **_work("64x64 random doubles", MATRIX, {"": np.float64}, _array_back(np.float64), 1.2, 2),
    **{
        name: (calls, None)
        for name, (calls, _) in {
            **_work("episode, any list", SHAPED, "all", _episode_back, 0, 0),
            **_work("84x84x4 uint8", IMAGE, {"": np.uint8}, _array_back(np.uint8), 0, 0),
            **_work("2000 integers", LARGE, {"": np.int64}, _array_back(np.int64), 0, 0),
            **_work("2000 of 4 decimals", ROUNDED, {"": np.float64}, _array_back(None), 0, 0),
        }.items()
    },
}
del WORKS["episode, any list to text"]


@pytest.mark.parametrize(
    ("work", "name"), [(work, name) for work, (calls, _) in WORKS.items() for name in calls]
)
def test_work(benchmark: Any, work: str, name: str) -> None:
    """One rival at one work."""
    benchmark.group = work
    call, value = WORKS[work][0][name]
    run_benchmark(benchmark, call, value)


def check() -> None:
    """All write what the others read."""
    for value in (EPISODE, SHAPED):
        ours, theirs = (
            json.decode(text, arrays=DTYPES) for text in (json.encode(value), rival_encode(value))
        )
        for name in DTYPES:
            assert ours[name].tobytes() == theirs[name].tobytes() == value[name].tobytes()
    for array in (MATRIX, IMAGE, LARGE, ROUNDED):
        assert json.encode(array) == rival_encode(array)


def lines() -> list[Line]:
    """The ratios and their targets."""
    found = []
    for work, (calls, target) in WORKS.items():
        times = call_times(calls)
        rival = next(name for name in calls if name != "rlwire")
        found.append(Line(work, times["rlwire"], rival, times[rival], target, faster=True))
    return found


if __name__ == "__main__":
    check()
    print_head("ndarrays to JSON and back.", "orjson")
    print_lines(lines())
