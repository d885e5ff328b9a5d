"""Waiting for what other threads, tasks and processes do: one way for all tests.

A condition decides, and never a time. The patience is long, as a machine may be busy.
"""

import asyncio
import time

PATIENCE = 30.0


def eventually(condition, seconds=PATIENCE):
    """Wait until something is so, and return what it is."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"it did not come to that within {seconds:g} s"
        time.sleep(0.002)
    return found


async def eventually_async(condition, seconds=PATIENCE):
    """`eventually` for a task among others."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"it did not come to that within {seconds:g} s"
        await asyncio.sleep(0.002)
    return found
