"""Regression tests of servers against recordings; needs the extra `record`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["replay"]


def replay(
    path: str,
    url: str,
    *,
    tolerance: float = 0.0,
    ignore: Iterable[str] = (),
    speed: float = 0.0,
    timeout: float = 60.0,
    **options: Any,
) -> int:
    """Send a recording's requests to a server; return the number of replies, all as recorded.

    Args:
        path: the recording, of RLX, dm_env_rpc, RLlink or openpi.
        url: the server.
        tolerance: absolute and relative, of floats, as in `numpy.isclose`.
        ignore: paths that may differ, such as ``response.info.time``; ``*`` is any name.
        speed: 1 sends at the recorded times, 2 twice as fast, 0 as fast as replies come. A request
            always waits for the reply to the one before.
        timeout: seconds for a reply, unless the URL has its own.
        options: of the protocol's client, such as ``auth``.

    Raises:
        AssertionError: a reply differs; has the message's number, the path and both values.
        ValueError: the protocol has no reply to each request.
        RlwireError, OSError: the file is invalid; the server is not there, closes or is silent.
    """
    from rlwire.recording import replaying

    try:
        return replaying.replay(
            path, url, tolerance=tolerance, ignore=ignore, speed=speed, timeout=timeout, **options
        )
    except replaying.Difference as difference:
        raise AssertionError(str(difference)) from None
