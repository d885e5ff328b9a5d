"""The fixture that times a rival of a group, and the comparison of ratios between releases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pairs import TINY

RATIOS = Path(__file__).with_name("ratios.json")
WORSE = 1.5
"""How much larger than the stored one a ratio may be, unless it is below 0.05 (by reference)."""

_times: dict[str, dict[str, float]] = {}
_floors: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--ratios", choices=("compare", "store"),
        help="compare rlwire's ratios to the floors with the last release's (fail if one is "
        f"{WORSE} times as large), or store them in {RATIOS.name}",
    )  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if TINY:
        config.option.benchmark_min_rounds = 1
        config.option.benchmark_max_time = config.option.benchmark_min_time = 1e-6


@pytest.fixture
def compare(benchmark: Any, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Time one rival of a group; note the bytes and the ratio to the floor."""

    def run(payload: str, size: int, floor: str, rival: str, call: Any, *arguments: Any) -> None:
        work = request.node.originalname.removeprefix("test_").replace("_", " ")
        codec = request.node.path.stem.removeprefix("test_")
        name = f"{codec}: {work}" + (f" {payload}" if payload else "")
        benchmark.group = name
        benchmark.extra_info["bytes"] = size
        benchmark(call, *arguments)
        if benchmark.stats is None:  # --benchmark-disable
            return
        shortest = _times.setdefault(name, {})
        shortest[rival] = benchmark.stats.stats.min  # other programs disturb it least
        _floors[name] = floor
        if floor in shortest:
            benchmark.extra_info.update(floor=floor, ratio=shortest[rival] / shortest[floor])

    return run


def _ratios() -> dict[str, dict[str, float]]:
    """Return the ratios of each group whose floor was timed."""
    return {
        name: {
            rival: float(f"{time / shortest[_floors[name]]:.3g}")
            for rival, time in shortest.items()
            if rival != _floors[name]
        }
        for name, shortest in _times.items()
        if _floors[name] in shortest
    }


def _worse() -> list[str]:
    stored = json.loads(RATIOS.read_text("utf-8"))
    return [
        f"{name}, {rival}: {ratio:g} times the time of {_floors[name]}, was {was:g}"
        for name, ratios in _ratios().items()
        for rival, ratio in ratios.items()
        if rival.startswith("rlwire")
        and ratio > max(0.05, WORSE * (was := stored.get(name, {}).get(rival, float("inf"))))
    ]


def pytest_sessionfinish(session: pytest.Session) -> None:
    asked = session.config.getoption("ratios")
    if asked == "store":
        codecs: dict[str, list[str]] = {}
        for name, each in _ratios().items():
            codecs.setdefault(name.partition(":")[0], []).append(
                f"{json.dumps(name)}: {json.dumps(each)}"
            )
        lines = (", ".join(groups) for groups in codecs.values())  # a line for each codec
        RATIOS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    elif asked == "compare" and _worse():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    say = terminalreporter.write_line
    terminalreporter.section("times as long as the floor")
    for name, ratios in _ratios().items():
        shown = ", ".join(f"{rival} {ratio:g}" for rival, ratio in ratios.items())
        say(f"{name} ({_floors[name]}): {shown}")
    if config.getoption("ratios") == "compare":
        terminalreporter.section("ratios worse than the last release's")
        for line in _worse() or ["none"]:
            say(line)
