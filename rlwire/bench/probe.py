"""`Probe`: how long the calls of a session take while steps are made, at either end.

The session's class gets methods that look at the clock around its own; a connection that is made
meanwhile calls these. Nothing of it is in a process that does not ask for it.
Not here: what the times mean (`rlwire.bench.runner`).
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from pkgutil import resolve_name
from time import perf_counter_ns
from typing import Any

__all__ = ["Probe"]

_CALLS = (
    *("frame_size", "data_offset", "receive", "receive_whole", "send", "outgoing"),
    *("act", "datagrams"),  # where messages are datagrams
)


class Probe:
    """Times a class's calls while it is entered, in this process or in one that is given it.

    Args:
        kind: ``"module:class"`` of the session.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._spent = get_context("spawn").RawArray("q", 1)
        self._before: dict[str, Any] = {}

    @property
    def spent(self) -> int:
        """Nanoseconds within the calls so far, in whichever process they were."""
        return int(self._spent[0])

    def __enter__(self) -> Probe:
        kind = resolve_name(self._kind)
        within = False

        def timed(call: Callable[..., Any]) -> Callable[..., Any]:
            def timing(*given: Any) -> Any:
                nonlocal within
                if within:  # one of them calls another
                    return call(*given)
                within = True
                begin = perf_counter_ns()
                try:
                    return call(*given)
                finally:
                    self._spent[0] += perf_counter_ns() - begin
                    within = False

            return timing

        for name in _CALLS:
            if callable(found := getattr(kind, name, None)):
                self._before[name] = vars(kind).get(name)
                setattr(kind, name, timed(found))
        return self

    def __exit__(self, *_: object) -> None:
        kind = resolve_name(self._kind)
        for name, before in self._before.items():
            if before is None:
                delattr(kind, name)
            else:
                setattr(kind, name, before)
        self._before = {}
