from collections.abc import Callable
from typing import Any

from typing_extensions import disjoint_base

from rlwire.streams import StreamCore
from rlwire.transports.shm_calls import Rings

__all__ = ["PlainCalls", "SocketCalls", "open_timer"]

def open_timer(seconds: float) -> int: ...

@disjoint_base
class SocketCalls:
    doing: str
    lasted: float | None
    def __init__(
        self,
        core: StreamCore,
        file: int,
        *,
        blocking: bool = True,
        spin: float = 0.0,
        rings: Rings | None = None,
    ) -> None: ...
    def read(self) -> Any: ...
    def write(self) -> bool: ...
    def receive(self) -> Any: ...
    def send(self, event: Any) -> bool: ...
    def exchange(self, event: Any) -> Any: ...
    def serve(
        self,
        answer: Callable[[Any], Any],
        failure: Callable[[Any, Exception], Any] | None = None,
    ) -> None: ...
    def respond(
        self, answer: Callable[[Any], Any], later: type[Any], also_later: type[Any]
    ) -> bool: ...
    def forget(self) -> None: ...
    def unanswered(self) -> tuple[Any, Any, Exception | None]: ...

@disjoint_base
class PlainCalls(SocketCalls):
    def __init__(self, core: StreamCore, io: Any, *, blocking: bool = True) -> None: ...
