"""How long do the rewarder's messages and JSON's lists of numbers take, against orjson and json?

`pytest benchmarks/bench_rewarder_codec.py` times each rival; `python
benchmarks/bench_rewarder_codec.py` prints the ratios.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
import pytest
from pairs import TINY, Line, call_times, print_head, print_lines, run_benchmark

from rlwire.codecs import json as rlwire_json
from rlwire.codecs import rewarder

# The document's example, as its JSON would be.
REWARD: dict[str, Any] = {
    "method": "v0.env.reward",
    "headers": {"sent_at": 1479493678.1937322617, "message_id": 15, "episode_id": "1.2"},
    "body": {"reward": -3, "done": False, "info": {}},
}
ACTION: dict[str, Any] = {
    "method": "v0.agent.action",
    "headers": {"sent_at": 1479493678.1937322617, "message_id": 15},
    "body": {"action": [["JoystickAxisXEvent", 0.1], ["JoystickAxisZEvent", 0.1]]},
}
RANDOM = random.Random(7)
# As a server of many agents could report: nested objects, lists, texts, numbers.
REPORT: list[dict[str, Any]] = [
    {
        "id": i,
        "name": f"agent{i}",
        "alive": i % 3 != 0,
        "position": [round(RANDOM.uniform(-9, 9), 3), RANDOM.uniform(-9, 9)],
        "tags": ["red", "fast", "näher"],
        "parent": None,
    }
    for i in range(4 if TINY else 100)
]

Calls = Mapping[str, tuple[Callable[..., Any], Any]]


def numpy_text(array: np.ndarray[Any, Any]) -> bytes:
    """Orjson's way with arrays."""
    return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)


DECODE_ARRAY = rlwire_json.Decoder(arrays="all").decode


def numpy_array(text: bytes) -> np.ndarray[Any, Any]:
    """Orjson's way to arrays."""
    return np.array(orjson.loads(text))


def _message(name: str, value: dict[str, Any]) -> dict[str, tuple[Calls, str, float | None]]:
    compact = orjson.dumps(value)
    spaced = json.dumps(value).encode()
    message = rewarder.decode(compact)
    found: dict[str, tuple[Calls, str, float | None]] = {}
    for work, ours, rivals in (
        ("encode", (rewarder.encode, message), {"orjson": orjson.dumps, "json": json.dumps}),
        ("decode", (rewarder.decode, compact), {"orjson": orjson.loads, "json": json.loads}),
        ("decode, spaces", (rewarder.decode, spaced), {"orjson": orjson.loads, "json": json.loads}),
    ):
        for rival, call in rivals.items():
            found[f"{work} {name}, against {rival}"] = (
                {"rlwire": ours, rival: (call, value if work == "encode" else ours[1])},
                rival,
                1.0 if rival == "orjson" else 3.0,
            )
    return found


def _arrays() -> dict[str, tuple[Calls, str, float | None]]:
    found: dict[str, tuple[Calls, str, float | None]] = {}
    normal = np.random.default_rng(7).normal
    for shape in ((4,), (8,) if TINY else (64,), (16,) if TINY else (1000,), (8, 8)):
        name = "x".join(map(str, shape))
        for kind, array in (
            ("doubles", normal(size=shape)),
            ("4 decimals", normal(size=shape).round(4)),
            ("integers", (normal(size=shape) * 1000).astype(np.int64)),
            ("float32", normal(size=shape).astype(np.float32)),
        ):
            text = numpy_text(array)
            found[f"{name} {kind} to text"] = (
                {"rlwire": (rlwire_json.encode, array), "orjson": (numpy_text, array)},
                "orjson",
                None,
            )
            if kind != "float32":
                found[f"{name} {kind} from text"] = (
                    {
                        "rlwire": (DECODE_ARRAY, text),
                        "orjson, np.array": (numpy_array, text),
                    },
                    "orjson, np.array",
                    None,
                )
    return found


def _generic() -> dict[str, tuple[Calls, str, float | None]]:
    text = orjson.dumps(REPORT)
    return {
        "a report of plain values to text": (
            {"rlwire": (rlwire_json.encode, REPORT), "orjson": (orjson.dumps, REPORT)},
            "orjson",
            None,
        ),
        "a report of plain values from text": (
            {"rlwire": (rlwire_json.decode, text), "orjson": (orjson.loads, text)},
            "orjson",
            None,
        ),
    }


WORKS: dict[str, tuple[Calls, str, float | None]] = {
    **_message("a reward", REWARD),
    **_message("an action", ACTION),
    **_generic(),
    **_arrays(),
}


@pytest.mark.parametrize(
    ("work", "name"), [(work, name) for work, (calls, _, _) in WORKS.items() for name in calls]
)
def test_work(benchmark: Any, work: str, name: str) -> None:
    """One rival at one work."""
    benchmark.group = work
    call, value = WORKS[work][0][name]
    run_benchmark(benchmark, call, value)


def lines() -> list[Line]:
    """The ratios and their targets."""
    found = []
    for work, (calls, rival, target) in WORKS.items():
        times = call_times(calls)
        if "reward" not in work:  # the others are for information
            target = None
        found.append(Line(work, times["rlwire"], rival, times[rival], target, faster=True))
    return found


if __name__ == "__main__":
    for value in (REWARD, ACTION):
        text = orjson.dumps(value)
        assert rewarder.encode(rewarder.decode(text)) == text
    assert rlwire_json.encode(REPORT) == orjson.dumps(REPORT)
    assert rlwire_json.decode(orjson.dumps(REPORT)) == REPORT
    print_head("The rewarder's messages, and JSON's lists of numbers.", "orjson")
    print_lines(lines())
