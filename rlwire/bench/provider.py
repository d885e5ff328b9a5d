"""What a protocol brings to the bench: its `Row`, made for one payload.

A protocol joins with one file in ``providers/`` and one line in ``providers/__init__.py``.

Not here: measuring (`rlwire.bench.runner`).
"""

from __future__ import annotations

import functools
import itertools
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlwire.bench.payloads import Payload
from rlwire.bench.probe import Probe
from rlwire.bench.processes import BenchError, ServerProcess
from rlwire.errors import RlwireError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "ANSWER_SECONDS",
    "Absent",
    "Cores",
    "LeftOut",
    "Mismatch",
    "Row",
    "Unfit",
    "array_difference",
    "serve",
    "value_difference",
]

ANSWER_SECONDS = 10.0
"""After this long a server is taken for dead."""


class Mismatch(BenchError):
    """What came back over the wire is not what was sent."""


class Unfit(BenchError):
    """A protocol cannot carry a payload; the text says why."""


class Absent(BenchError):
    """What a row needs is not installed, and no extra of ours brings it; the text says what."""


@dataclass(frozen=True)
class Cores:
    """Where the two processes of a round trip run, and over what they speak.

    Attributes:
        client: its cores; None leaves it to the system.
        server: the same.
        over: ``"tcp"``, ``"unix"`` or ``"shm"``.
    """

    client: list[int] | None = None
    server: list[int] | None = None
    over: str = "tcp"

    def place(self) -> str:
        """Return where a server is to listen, a new place for each."""
        if self.over == "tcp":
            return "127.0.0.1:0"
        return f"{self.over}:{_folder().name}/{next(_numbers)}"


_numbers = itertools.count()


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return where unix sockets are until this process ends."""
    return tempfile.TemporaryDirectory(prefix="rlwire-bench-")


@dataclass(frozen=True)
class LeftOut:
    """A payload that a protocol cannot carry, and why."""

    protocol: str
    payload: Payload
    reason: str


class Row:
    """One protocol with one payload: a server in its own process, and a client of it.

    Entering starts the server and connects; leaving ends both. A subclass has what is not written
    here: `_connect`, `_exchange`, `_difference`, and `_client` with a ``close``, or `_disconnect`.

    Args:
        payload: what is sent.
        cores: where the server runs.
        peer: ``"module:class"`` of what answers in the server, if not the protocol's own. One that
            does not answer as that does is found out, which is what the tests do.

    Attributes:
        protocol: its name, and the word for ``--protocol``.
        datagrams: whether each message is a UDP datagram; else they are in a TCP stream.
        asks: whether the request carries the observation, as where an environment asks its agent;
            else the reply does.
        has_codec: whether what encodes and decodes can be called by itself; without, a row lacks
            `encode`, `decode` and what they take, and its byte counts are those of the arrays.
        raw: whether it goes over what the raw exchange goes over, which is taken apart for both.
        payload: what is sent.
        requests: the wire's bytes, framing included, of the request for each step; all of one size.
        reply_bytes: how many bytes, framing included, answer each request.
        messages: what `encode` is timed with, one for each step: what carries the observation.
        received: what `decode` is timed with: each message in the memory that a transport puts it
            in.
        encode: a message to its bytes, as one object.
        decode: a received message to values, as the protocol's own receiver does it.
        encode_other: make the bytes of the other message, which carries no observation.
        decode_other: read them.
        sessions: ``"module:class"`` of the client's session and the server's, for a `Probe`; empty
            where no calls stand by themselves.
        rounds: round trips so far.

    Raises:
        Unfit: the protocol cannot carry the payload.
    """

    protocol: str
    datagrams = False
    asks = True
    has_codec = True
    raw = True
    sessions: tuple[str, ...] = ()
    payload: Payload
    requests: list[bytes]
    reply_bytes: int
    messages: Sequence[Any]
    received: Sequence[Any]
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    encode_other: Callable[[], Any]
    decode_other: Callable[[], Any]
    rounds = 0
    _client: Any = None
    _server: ServerProcess

    def __init__(self, payload: Payload, cores: Cores, peer: str | None = None) -> None:
        raise NotImplementedError

    @classmethod
    def require(cls) -> None:
        """Raise `MissingExtra` if what the protocol needs is not installed."""

    def exchange(self, index: int) -> None:
        """One timed round trip with the step number `index` (modulo their count).

        Raises:
            BenchError: the server is gone or wrong.
            Mismatch: its answer is another one than it was to be.
        """
        try:
            difference = self._exchange(index % len(self.messages))
        except BenchError:
            raise
        except (RlwireError, OSError) as error:
            raise self._failed(error) from error
        self.rounds += 1
        if difference:
            raise self._mismatch(difference)

    def check(self, index: int) -> None:
        """Untimed: read back what went over in `exchange(index)` and compare all of it.

        It makes a round trip itself, as the raw exchange does that it is measured against.

        Raises:
            BenchError: the server is gone or wrong.
            Mismatch: something differs.
        """
        try:
            difference = self._difference(index % len(self.messages))
        except BenchError:
            raise
        except (RlwireError, OSError) as error:
            raise self._failed(error) from error
        if difference:
            raise self._mismatch(difference)

    def __enter__(self) -> Self:
        self._server.__enter__()
        try:
            self._connect()
        except (RlwireError, OSError) as error:
            failure = self._failed(error)
            self.__exit__()
            raise failure from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._disconnect()
        self._server.stop()

    @property
    def server_pid(self) -> int:
        """The process number of the server."""
        return self._server.pid

    def _serve(
        self, cores: Cores, make: Callable[..., Any], peer: type | str, *arguments: Any
    ) -> None:
        """Have a process serve what `make` returns for a place, a class, and the arguments."""
        name = peer if isinstance(peer, str) else f"{peer.__module__}:{peer.__name__}"
        self._server = ServerProcess(
            self.protocol, serve, _made, make, cores.place(), name, *arguments, cores=cores.server
        )

    def probed(self, cores: Cores, server: Probe) -> Self:
        """Return another row like this, in whose server a session is timed."""
        row = type(self)(self.payload, cores)
        row._server.around.append(server)
        return row

    def _connect(self) -> None:
        """Make a client of the server, and get it as far as the first round trip."""
        raise NotImplementedError

    def _exchange(self, number: int) -> str:
        """Make one round trip with a step; return what is wrong with the answer, "" for nothing."""
        raise NotImplementedError

    def _difference(self, number: int) -> str:
        """Read back what went over with a step; return what differs from it, "" for nothing."""
        raise NotImplementedError

    def _disconnect(self) -> None:
        self._client.close()

    def _failed(self, error: Exception) -> BenchError:
        """What to raise for a client's error: the server's own words, if it has died."""
        return BenchError(self._server.epitaph() or str(error))

    def _mismatch(self, difference: str) -> Mismatch:
        where = f"{self.protocol}, {self.payload.name}, round trip {self.rounds}"
        return Mismatch(f"{where}: {difference}")


def serve(report: Callable[[str], None], make: Callable[..., Any], *arguments: Any) -> None:
    """Start the server that `make` returns for the arguments, and serve until killed."""
    server = make(*arguments)
    server.start()
    report(str(server.address))
    threading.Event().wait()


def _made(make: Callable[..., Any], place: str, peer: str, *arguments: Any) -> Any:
    return make(place, resolve_name(peer), *arguments)


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


def value_difference(name: str, sent: Any, value: Any) -> str:
    """The same of a value that is no array; its type is compared, too."""
    same = type(value) is type(sent) and value == sent
    return "" if same else f"{name} {sent!r} came back as {value!r}"


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
