"""Groups of rivals and seeded payloads for `pytest benchmarks`.

A group is a piece of work. Its first rival is the floor, to which the others are compared.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pairs import TINY

Calls = dict[str, tuple[Any, ...]]
"""A function and its arguments for each rival."""


def group(
    *rivals: str, payloads: Sequence[str] = (), **options: Any
) -> Callable[[Callable[..., tuple[int, Calls]]], Callable[..., None]]:
    """Make a benchmark of a function that returns the bytes of the work and the rivals' calls.

    Args:
        rivals: their names; the first is the floor.
        payloads: names that the function is called with; none for a function without arguments.
        options: those of pytest-benchmark's mark.
    """

    def decorated(make: Callable[..., tuple[int, Calls]]) -> Callable[..., None]:
        made = functools.lru_cache(1)(make)  # keep only this group's payload in memory

        @pytest.mark.benchmark(**options)
        def run(payload: str, rival: str, compare: Callable[..., None]) -> None:
            size, calls = made(payload) if payload else made()
            if rival not in calls:
                pytest.skip(f"{rival} is not installed")
            compare(payload, size, rivals[0], rival, *calls[rival])

        # Time all rivals of a payload before the next payload is made.
        works = [(payload, rival) for payload in payloads or [""] for rival in rivals]
        ids = [f"{payload}-{rival}".lstrip("-") for payload, rival in works]
        return pytest.mark.parametrize(("payload", "rival"), works, ids=ids)(run)

    return decorated


@functools.cache
def reference(name: str) -> ModuleType:
    """Import a module of tests/reference."""
    root = str(Path(__file__).resolve().parent.parent)
    sys.path.insert(0, root)  # rlwire has been imported, from where it is installed
    try:
        return importlib.import_module(f"tests.reference.{name}")
    finally:
        sys.path.remove(root)


CARTPOLE = np.array([0.0273956, -0.00611216, 0.03585979, 0.0197368], np.float32)
UPDATE: dict[str, Any] = {
    "command": "update",
    "reward": 1.0,
    "state": CARTPOLE.tolist(),
    "terminal": False,
}


def pong() -> np.ndarray[Any, Any]:
    """Return a frame of Pong: a field, two paddles and a ball."""
    frame = np.full((210, 160, 3), (144, 72, 17), np.uint8)
    frame[24:34] = frame[194:] = (236, 236, 236)
    frame[90:106, 16:20], frame[120:136, 140:144] = (213, 130, 74), (92, 186, 92)
    frame[110:114, 77:79] = (236, 236, 236)
    return frame


def frames(count: int) -> np.ndarray[Any, Any]:
    """Return stacks of four frames, 84x84x4."""
    side = 8 if TINY else 84
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 4), dtype=np.uint8)


def episode() -> dict[str, Any]:
    """Return an episode of 500 steps, 16 KB."""
    random = np.random.default_rng(0)
    return {
        "obs": random.random((501, 4), dtype=np.float32),
        "actions": np.arange(500),
        "rewards": random.random(500),
    }


def array(name: str) -> np.ndarray[Any, Any]:
    """Return an array by the name of a payload."""
    if name == "cartpole":
        return CARTPOLE
    if name == "pong":
        return pong()
    if name == "84x84x4":
        return np.random.default_rng(7).random((84, 84, 4), np.float32)
    assert name == "100 MB"
    return np.random.default_rng(7).random((100, 250_000 if not TINY else 25), np.float32)


def copied(data: Any) -> tuple[Callable[..., Any], Any]:
    """Return the floor memcpy: a call that copies the bytes to new memory."""
    return bytes, bytearray(memoryview(data).cast("B") if memoryview(data).nbytes else b"")
