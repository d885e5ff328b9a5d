"""Waiting for what other threads, tasks and processes do: one way for all tests.

A condition decides, and never a time. The patience is long, as a machine may be busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 30.0


def eventually(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until something is so, and return what it is."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"it did not come to that within {seconds:g} s"
        time.sleep(0.002)
    return found


async def eventually_async(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """`eventually` for a task among others."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"it did not come to that within {seconds:g} s"
        await asyncio.sleep(0.002)
    return found
