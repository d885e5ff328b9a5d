"""What a protocol brings to the bench: a `Provider`, which makes one `Row` a payload.

A protocol joins with one file in ``providers/`` and one line in ``providers/__init__.py``.

Not here: measuring (`rlwire.bench.runner`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rlwire.bench.payloads import Payload
from rlwire.bench.processes import BenchError, ServerProcess
from rlwire.errors import RlwireError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Cores", "LeftOut", "Mismatch", "Provider", "Row", "ServedRow", "array_difference"]


class Mismatch(BenchError):
    """What came back over the wire is not what was sent."""


@dataclass(frozen=True)
class Cores:
    """Where the two processes of a round trip run; None leaves it to the system."""

    client: list[int] | None = None
    server: list[int] | None = None


@dataclass(frozen=True)
class LeftOut:
    """A payload that a protocol cannot carry, and why."""

    protocol: str
    payload: Payload
    reason: str


class Row(Protocol):
    """One protocol with one payload: a server in its own process, and a client of it.

    Entering starts the server and connects; leaving ends both.
    """

    @property
    def protocol(self) -> str:
        """The protocol's name."""

    @property
    def payload(self) -> Payload:
        """What is sent."""

    @property
    def datagrams(self) -> bool:
        """Whether each message is a UDP datagram; else they are in a TCP stream."""

    @property
    def requests(self) -> list[bytes]:
        """The wire's bytes, framing included, of the request for each step; all of one size."""

    @property
    def reply_bytes(self) -> int:
        """How many bytes, framing included, answer each request."""

    @property
    def messages(self) -> Sequence[Any]:
        """What `encode` is timed with, one for each step: what carries the observation."""

    @property
    def received(self) -> Sequence[Any]:
        """What `decode` is timed with: each message in the memory that a transport puts it in."""

    @property
    def encode(self) -> Callable[[Any], Any]:
        """A message to its bytes, as one object."""

    @property
    def decode(self) -> Callable[[Any], Any]:
        """A received message to values, as the protocol's own receiver does it."""

    def __enter__(self) -> Row: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def exchange(self, index: int) -> None:
        """One timed round trip with the step number `index` (modulo their count)."""

    def check(self, index: int) -> None:
        """Untimed: read back what went over in `exchange(index)` and compare all of it.

        It makes a round trip itself, as the raw exchange does that it is measured against.

        Raises:
            Mismatch: something differs.
        """


class ServedRow:
    """What the rows of all protocols do alike: begin, end, and say what went wrong.

    A subclass sets `payload` and `_server`, and has `_connect` and `_disconnect`.

    Attributes:
        failures: what the protocol's client raises when its server is gone or wrong.
        rounds: round trips so far.
    """

    protocol: str
    datagrams = False
    payload: Payload
    failures: tuple[type[Exception], ...] = (RlwireError, OSError)
    rounds = 0
    _server: ServerProcess

    def __enter__(self) -> Self:
        self._server.__enter__()
        try:
            self._connect()
        except self.failures as error:
            failure = self._failed(error)
            self._end()
            raise failure from error
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def server_pid(self) -> int:
        """The process number of the server."""
        return self._server.pid

    def _connect(self) -> None:
        """Make a client of the server, and get it as far as the first round trip."""
        raise NotImplementedError

    def _disconnect(self) -> None:
        """End the client, if there is one."""
        raise NotImplementedError

    def _end(self) -> None:
        self._disconnect()
        self._server.stop()

    def _failed(self, error: Exception) -> BenchError:
        """What to raise for a client's error: the server's own words, if it has died."""
        return BenchError(self._server.epitaph() or str(error))

    def _mismatch(self, difference: str) -> Mismatch:
        return Mismatch(
            f"{self.protocol}, {self.payload.name}, round trip {self.rounds}: {difference}"
        )


class Provider(Protocol):
    """A protocol's rows."""

    @property
    def name(self) -> str:
        """The protocol's name, and the word for ``--protocol``."""

    def rows(self, payloads: Sequence[Payload], cores: Cores) -> Iterator[Row | LeftOut]:
        """For each payload a row, not yet entered, or why the protocol cannot carry it."""


def array_difference(sent: NDArray[Any], state: Any) -> str:
    """What differs between an array that was sent and what came back; "" for nothing."""
    if not isinstance(state, np.ndarray):
        return f"the state came back as a {type(state).__name__}"
    if state.dtype != sent.dtype or state.shape != sent.shape:
        return f"a state of {sent.dtype} {sent.shape} came back as {state.dtype} {state.shape}"
    # Bytes, not values: a NaN equals itself here, and -0.0 differs from 0.0.
    wrong = np.flatnonzero(_bytes(state) != _bytes(sent))
    if wrong.size:
        return f"byte {wrong[0]} of the state differs, {wrong.size} in all"
    return ""


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
