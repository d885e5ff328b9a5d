"""Connecting with retries, for blocking and asyncio transports and clients."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from itertools import count
from math import inf
from time import monotonic
from typing import Any, TypeVar

from rlwire.transports.address import Address
from rlwire.transports.sockets import (
    Backoff,
    Timeouts,
    check_not_self,
    connect_error,
    is_permanent,
    prepare,
)
from rlwire.transports.waits import Waits

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Error = TypeVar("_Error", bound=Exception)


def retry(
    attempt: Callable[[float], Waits[_T]],
    backoff: Backoff,
    sleep: Callable[[float], Any],
    *,
    what: object,
    errors: type[_Error],
    passing: Callable[[_Error], bool],
    failed: Callable[[_Error, int, float], Exception] | None = None,
) -> Waits[_T]:
    """Call `attempt` with the retries of `backoff`, and return its result.

    An error that is not `passing` is raised at once. `failed` makes the final error from the last
    one, the number of attempts and the seconds that they took.
    """
    begun = monotonic()
    until = inf if backoff.deadline is None else begun + backoff.deadline
    delays = backoff.delays()
    for number in count(1):
        try:
            return (yield from attempt(until))
        except errors as error:
            delay = next(delays, None) if passing(error) else None
            if delay is None or monotonic() + delay >= until:
                if failed is None:
                    raise
                raise failed(error, number, monotonic() - begun) from error
            logger.info(
                "%s: attempt %d of %d failed (%s), retrying in %.2f s",
                what, number, backoff.attempts, error, delay,
            )  # fmt: skip
        yield sleep(delay)
    raise AssertionError


def connect(where: Address, dialer: Any, timeout: Timeouts, backoff: Backoff | None) -> Waits[Any]:
    """Connect, run the session's handshake, and return the connection.

    The dialer's methods return a value or an awaitable, and raise an OSError after `until`.
    """
    seconds = inf if timeout.connect is None else timeout.connect
    connection = yield from retry(
        lambda until: dial(where, dialer, min(until, monotonic() + seconds)),
        backoff or Backoff(),
        dialer.sleep,
        what=where,
        errors=OSError,
        passing=lambda error: not is_permanent(error),
        failed=lambda error, number, took: connect_error(where, number, took, error),
    )
    try:
        yield connection.open(timeout.connect)
    except BaseException as error:
        if not isinstance(error, Exception):  # a cancellation: the second `close` does not linger
            connection.close()
        if not isinstance(error, GeneratorExit):
            yield from close_and_wait(connection)
        raise
    return connection


def dial(where: Address, dialer: Any, until: float) -> Waits[Any]:
    """Return a connection to the first address of `where` that accepts one."""
    failure: OSError | None = OSError(f"{where} has no address")
    for family, sockaddr in (yield dialer.resolve(where, until)):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            yield dialer.connect(sock, sockaddr, until)
            check_not_self(sock)
            prepare(sock)
            return (yield dialer.finish(sock, until))
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            failure = error
    try:
        assert failure is not None
        raise failure
    finally:
        failure = None  # its traceback refers to this frame


def close_and_wait(connection: Any) -> Waits[None]:
    """Close a blocking or asyncio connection, and wait until it is closed."""
    connection.close()
    if hasattr(connection, "wait_closed"):
        yield connection.wait_closed()


def time_left(until: float) -> float | None:
    """Return the seconds left, None for no limit; raise TimeoutError after `until`."""
    if until == inf:
        return None
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
