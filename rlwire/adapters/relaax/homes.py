"""Where a parameter server lives: `open_parameter_server` gives agents a `Handle` of it.

In the server's own process, or in a process of its own over shared memory; on Ray is in
`rlwire.adapters.relaax.homes_ray`. What runs it there is in `rlwire.adapters.relaax.homes_host`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from rlwire.adapters.relaax.config import Options
from rlwire.adapters.relaax.homes_host import Host, Waiting, called
from rlwire.adapters.relaax.metrics import METHODS, LoggingMetrics, Metrics
from rlwire.adapters.relaax.parameter_server import Handle, ParameterServerError, UpdatesLost
from rlwire.adapters.serving import Service, StreamServer
from rlwire.checkpoints import Checkpoints
from rlwire.errors import DeadlineExceeded, EncodeError, LocalProtocolError, on_error
from rlwire.sessions.calls import Answer, Call, Client, Server
from rlwire.transports.connection import Connection
from rlwire.transports.shm import AVAILABLE
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.tcp import connect

if TYPE_CHECKING:
    from rlwire.adapters.relaax.algorithm import Algorithm

__all__ = ["check_home", "open_parameter_server"]

logger = logging.getLogger(__name__)

_GRACE = 60.0  # seconds for the last op and checkpoint of a process


def open_parameter_server(
    algorithm: Algorithm,
    *,
    home: str = "server",
    checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
    metrics: Metrics | None = None,
    deadline: float = 60.0,
    initializer: Callable[[], None] | None = None,
) -> Handle:
    """Make an algorithm's parameter server, bring back its latest checkpoint; return it for agents.

    The handle can be pickled for agents in other processes. One that dies in a process of its own,
    or on Ray, comes back from its latest checkpoint; then each agent's next op raises
    `UpdatesLost`.

    Args:
        algorithm: as `rlwire.adapters.relaax.algorithm.load_algorithm` returns it.
        home: ``"server"``, this process; ``"process"``, one of its own, for which a program needs
            the usual ``if __name__ == "__main__":``; ``"ray"``, an actor (the extra `ray`); or
            ``"ray:NAME"``, an actor that all who open it by this name on a cluster share: the first
            makes it, and ends it.
        checkpoints: where to keep what was learned, by default nowhere; of a folder one is saved a
            minute.
        metrics: where its measurements go; by default they are logged.
        deadline: seconds that a call waits for its answer, reconnecting included.
        initializer: called first in a process of its own, such as to set up its log.

    Raises:
        ParameterServerError: it cannot be made, or its checkpoint not be brought back.
        ValueError: there is no such home, or the deadline is not positive.
        OSError: there is no process or socket for it.
        MissingExtra: Ray is not installed.
    """
    check_home(home)
    if not deadline > 0:
        raise ValueError(f"deadline must be positive, not {deadline!r}")
    if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
        checkpoints = Checkpoints(checkpoints, every_seconds=60.0)
    metrics = LoggingMetrics() if metrics is None else metrics
    if home == "server":
        return _Local(Host(algorithm, checkpoints, metrics), metrics, deadline)
    handle: Distant
    if home == "process":
        server = _Serving(_Own(algorithm, checkpoints), 1, initializer).start()
        handle = Connected(algorithm.config, metrics, deadline, str(server.address), server)
    else:
        from rlwire.adapters.relaax import homes_ray

        name = home.partition(":")[2]
        handle = homes_ray.open_actor(algorithm, checkpoints, metrics, deadline, name)
    with on_error(handle.close):
        handle.n_step()
    return handle


def check_home(home: str) -> None:
    """Raise a ValueError if there is no such home."""
    if home not in ("server", "process", "ray") and not home.startswith("ray:"):
        raise ValueError(
            "a parameter server is at home in 'server', 'process', 'ray' or 'ray:NAME', "
            f"not {home!r}"
        )


class _Local(Handle):
    """A parameter server in this process. Pickled, it is a connection to here."""

    def __init__(self, host: Host, metrics: Metrics, deadline: float) -> None:
        host.check()
        super().__init__(host.config, metrics)
        self._host = host
        self._deadline = deadline
        self._server: _Serving | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        with self._lock:
            if self._server is None:
                self._server = _Serving(_Shared(self._host), "threads").start()
            address = str(self._server.address)
        return Connected, (self.config, self.metrics, self._deadline, address)

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()
        self._host.close()

    def _call(self, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self._host.run(names, args, kwargs, self._deadline)


class Caller:
    """One who makes one call at a time: a thread's, while it calls.

    Attributes:
        name: that no other has.
        number: of its last call.
        connection: over which, if there is one.
    """

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.number = 0
        self.connection: Connection | None = None

    def hang_up(self) -> None:
        """Leave the connection."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class Distant(Handle):
    """A parameter server that is not in this process; base of those by connection and by Ray.

    Args:
        config: the algorithm's settings.
        metrics: where the server's measurements go, which come with answers.
        deadline: seconds that a call may take.
    """

    def __init__(self, config: Options, metrics: Metrics, deadline: float) -> None:
        super().__init__(config, metrics)
        self._deadline = deadline
        self._idle: list[Caller] = []
        self._seen = threading.local()  # each agent has a thread, and is told what was lost
        self._closed = False

    def close(self) -> None:
        """Leave the parameter server; where it was opened, end it, after a last checkpoint."""
        self._closed = True
        with contextlib.suppress(IndexError):  # all are
            while True:
                self._idle.pop().hang_up()

    def _call(self, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self._closed:
            raise LocalProtocolError(f"{called(names)}: this parameter server has been closed")
        if names and getattr(self._seen, "server", None) is None:
            # Whom it speaks to is known before its first op: that is not to be called twice either.
            with contextlib.suppress(ParameterServerError):
                self._call((), (), {})
        seen = getattr(self._seen, "server", None)
        try:
            caller = self._idle.pop()
        except IndexError:
            caller = Caller()
        caller.number += 1
        # Of the step alone nothing can be lost.
        server = seen if names else None
        call = Call(server, caller.name, caller.number, list(names), list(args), kwargs)
        try:
            answer = self._ask(caller, call)
        finally:
            if caller.connection is not None:
                caller.connection.release()
            self._idle.append(caller)
            if self._closed:  # meanwhile
                Distant.close(self)
        for method, name, y, x in answer.metrics:
            if method in METHODS:
                getattr(self.metrics, method)(name, y, x)
        if answer.server and (seen is None or answer.kind == "lost"):
            self._seen.server = answer.server
        if answer.kind == "value":
            return answer.value
        if answer.kind == "lost":
            step = answer.value
            back = "began anew" if step is None else f"came back from its checkpoint of step {step}"
            raise UpdatesLost(
                f"{called(names)}: the parameter server died and {back}; what came after that is "
                "lost, and this call with it if it is not in there"
            )
        raise ParameterServerError(*answer.value)

    def _ask(self, caller: Caller, call: Call) -> Answer:
        """Return the answer to a call; errors as of `Handle._call`."""
        raise NotImplementedError

    def _late(self, call: Call) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"{called(call.names)}: no answer from the parameter server within "
            f"deadline={self._deadline} s; whether it was called is not known"
        )


class Connected(Distant):
    """A parameter server at the other end of connections, one for each thread that calls.

    Args:
        config: this, `metrics` and `deadline`: as of `Distant`.
        address: where it listens.
        server: what ends it, at its owner's.
    """

    def __init__(
        self,
        config: Options,
        metrics: Metrics,
        deadline: float,
        address: str,
        server: _Serving | None = None,
    ) -> None:
        super().__init__(config, metrics, deadline)
        self._address = address
        self._server = server
        self._timeouts = Timeouts(connect=deadline, read=deadline, write=deadline, idle=deadline)

    def __reduce__(self) -> Any:
        return Connected, (self.config, self.metrics, self._deadline, self._address)

    def close(self) -> None:
        """Leave it, and end it if this is its owner."""
        super().close()
        server, self._server = self._server, None
        if server is not None:
            server.stop(_GRACE)

    def _ask(self, caller: Caller, call: Call) -> Answer:
        until = monotonic() + self._deadline
        while True:
            try:
                if caller.connection is None:
                    left = max(until - monotonic(), 0.001)
                    backoff = Backoff(attempts=10_000, deadline=left, first=0.02, longest=0.5)
                    caller.connection = connect(
                        self._address, Client(), timeouts=self._timeouts, backoff=backoff
                    )
                answer: Answer = caller.connection.exchange(call)
                return answer
            except EncodeError:
                raise  # nothing was sent
            except DeadlineExceeded as error:
                caller.hang_up()
                raise self._late(call) from error
            except OSError as error:  # ConnectionClosed is one
                caller.hang_up()
                # Without its socket it has been closed for good.
                if monotonic() >= until or isinstance(error, FileNotFoundError):
                    raise
                logger.info("%s: %s; it is sent again", called(call.names), error)
                sleep(0.02)
            except BaseException:
                caller.hang_up()
                raise


class _Calls(Service):
    """Answers calls with a host."""

    made: Host | None

    def host(self) -> Host:
        assert self.made is not None
        return self.made

    def part(self) -> None:
        if self.made is not None:
            self.made.end_waits()

    def session(self) -> Server:
        return Server()

    def responder(self, connection: Any) -> _Answering:
        return _Answering(self.host())


class _Shared(_Calls):
    """The host of this process, for agents in others."""

    def __init__(self, host: Host) -> None:
        self.made = host


@dataclass
class _Own(_Calls):
    """The host of a process of its own."""

    algorithm: Algorithm
    checkpoints: Checkpoints | None
    made: Host | None = field(default=None, init=False)

    def begin(self) -> None:
        self.made = Host(self.algorithm, self.checkpoints, Waiting())

    def end(self) -> None:
        made, self.made = self.made, None
        if made is not None:
            made.close()


class _Answering:
    """One connection's; a `rlwire.transports.interface.Responder`."""

    def __init__(self, host: Host) -> None:
        self.answer = host.answer
        self.failure = host.unsendable

    def close(self) -> None:
        """Nothing is kept for a connection."""


class _Serving(StreamServer):
    """Serves calls over shared memory, or a unix socket, in a directory that no other may enter."""

    scheme = "unix"
    handlers = "an op"

    def __init__(
        self,
        service: _Calls,
        workers: Any,
        initializer: Callable[[], None] | None = None,
    ) -> None:
        self._folder = tempfile.mkdtemp(prefix="rlwire-")
        carrier = "shm" if AVAILABLE else "unix"
        address = f"{carrier}:{os.path.join(self._folder, 'calls')}"
        super().__init__(
            address, service, workers=workers, initializer=initializer, idle_timeout=None
        )

    @property
    def url(self) -> str:
        """Where it listens, for the log."""
        return str(self.address)

    def start(self) -> _Serving:
        """Listen, or leave nothing behind."""
        with on_error(lambda: shutil.rmtree(self._folder, ignore_errors=True)):
            return super().start()

    def _after_stop(self) -> None:
        super()._after_stop()
        shutil.rmtree(self._folder, ignore_errors=True)
