"""How fast is JSON without arrays, against orjson, msgspec and the standard library's json?

`pytest benchmarks/bench_json_generic.py` times each rival; `python
benchmarks/bench_json_generic.py` prints the ratios.
"""

from __future__ import annotations

import json as standard
import random
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
from pairs import TINY, Line, call_times, print_head, print_lines, run_benchmark

from rlwire.codecs import json

RANDOM = random.Random(7)
WORDS = ["red", "fast", "n\u00e4her", "a longer text of some words", 'quoted "text"', "x" * 100]

# As a server of many agents could report: nested objects, lists, texts, numbers.
REPORT: list[dict[str, Any]] = [
    {
        "id": i,
        "name": f"agent{i}",
        "alive": i % 3 != 0,
        "position": [round(RANDOM.uniform(-9, 9), 3), RANDOM.uniform(-9, 9)],
        "tags": ["red", "fast", "n\u00e4her"],
        "parent": None,
    }
    for i in range(4 if TINY else 100)
]
MESSAGE: dict[str, Any] = {
    "method": "update",
    "params": {"reward": -0.25, "state": [0.1, 2.5, -3.75, 1e-3], "terminal": False},
    "id": 17,
}
VALUES: dict[str, Any] = {
    "a report": REPORT,
    "a message": MESSAGE,
    "texts": [RANDOM.choice(WORDS) for _ in range(20 if TINY else 1000)],
    "integers": [
        RANDOM.randrange(10 ** RANDOM.randrange(1, 10)) for _ in range(20 if TINY else 1000)
    ],
    "floats": [RANDOM.uniform(-9, 9) for _ in range(20 if TINY else 1000)],
}

ENCODERS: dict[str, Callable[[Any], Any]] = {
    "rlwire": json.encode,
    "orjson": orjson.dumps,
    "msgspec": msgspec.json.encode,
    "json": standard.dumps,
}
DECODERS: dict[str, Callable[[Any], Any]] = {
    "rlwire": json.decode,
    "orjson": orjson.loads,
    "msgspec": msgspec.json.decode,
    "json": standard.loads,
}
WORKS = {
    f"{name}, {way}": (calls, value if way == "encode" else orjson.dumps(value))
    for name, value in VALUES.items()
    for way, calls in (("encode", ENCODERS), ("decode", DECODERS))
}


@pytest.mark.parametrize(("work", "name"), [(work, name) for work in WORKS for name in ENCODERS])
def test_work(benchmark: Any, work: str, name: str) -> None:
    """One rival at one work."""
    benchmark.group = work
    calls, value = WORKS[work]
    run_benchmark(benchmark, calls[name], value)


def lines() -> list[Line]:
    """The ratios and their targets: the report is the one that counts."""
    found = []
    for work, (calls, value) in WORKS.items():
        times = call_times({name: (call, value) for name, call in calls.items()})
        for rival in list(calls)[1:]:
            target = 1.5 if rival == "orjson" and "report" in work else None
            found.append(Line(work, times["rlwire"], rival, times[rival], target))
    return found


if __name__ == "__main__":
    for value in VALUES.values():
        assert orjson.loads(json.encode(value)) == value  # exponents begin elsewhere
        assert json.decode(orjson.dumps(value)) == value
    print_head("JSON of plain values.", "orjson", "msgspec")
    print_lines(lines())
