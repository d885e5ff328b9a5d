"""Tests to inherit: `rlx`, for RLX servers. Tests by recordings: `replay`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["replay"]


def replay(
    path: str, url: str, *, tolerance: float = 0.0, ignore: Iterable[str] = (), **options: Any
) -> int:
    """Play a recording's client against the server at `url`; return how many replies are equal.

    Arguments, options and further errors are those of `rlwire.recording.replaying.replay`.

    Raises:
        AssertionError: a reply differs; says the message, the path and both values.
    """
    from rlwire.recording import replaying

    try:
        return replaying.replay(path, url, tolerance=tolerance, ignore=ignore, **options)
    except replaying.Difference as difference:
        raise AssertionError(str(difference)) from None
