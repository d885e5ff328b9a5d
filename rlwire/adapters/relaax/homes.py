"""Where a parameter server lives: in the server's process, or on Ray (`homes_ray`).

`Host` runs it in either place: its ops one at a time, and its checkpoints.
"""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from rlwire.adapters.relaax.metrics import LoggingMetrics, Metrics
from rlwire.adapters.relaax.parameter_server import (
    Handle,
    ParameterServer,
    ParameterServerError,
    op,
)
from rlwire.checkpoints import Aside, Checkpoints
from rlwire.errors import ConnectionClosed, DeadlineExceeded, LocalProtocolError, describe, on_error

if TYPE_CHECKING:
    from rlwire.adapters.relaax.algorithm import Algorithm

logger = logging.getLogger(__name__)

_RETRY = 60.0  # seconds until a checkpoint that could not be saved is tried again


def open_parameter_server(
    algorithm: Algorithm,
    *,
    home: str = "server",
    checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
    metrics: Metrics | None = None,
    deadline: float = 60.0,
) -> Handle:
    """Make an algorithm's parameter server and restore its latest checkpoint.

    Args:
        algorithm: as `rlwire.adapters.relaax.algorithm.load_algorithm` returns it.
        home: ``"server"``, this process; ``"ray"``, an actor (the extra `ray`), which agents in
            other processes and on other machines reach; or ``"ray:NAME"``, an actor that all
            programs which open it by this name share: the first makes it, and ends it. An actor
            that dies comes back from its latest checkpoint; then each agent's next op raises
            `UpdatesLost`.
        checkpoints: where to keep what was learned, by default nowhere; in a folder given by its
            path, one is saved a minute.
        metrics: where its measurements go; by default they are logged.
        deadline: seconds that a call waits for its answer.

    Raises:
        ParameterServerError: it cannot be made, or its checkpoint cannot be restored.
        ValueError: there is no such home, or the deadline is not positive.
        MissingExtra: Ray is not installed.
    """
    check_home(home)
    if not deadline > 0:
        raise ValueError(f"deadline must be positive, not {deadline!r}")
    if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
        checkpoints = Checkpoints(checkpoints, every_seconds=60.0)
    metrics = LoggingMetrics() if metrics is None else metrics
    if home == "server":
        return _Local(algorithm, checkpoints, metrics, deadline)
    from rlwire.adapters.relaax import homes_ray

    name = home.partition(":")[2]
    handle = homes_ray.open_actor(algorithm, checkpoints, metrics, deadline, name)
    with on_error(handle.close):
        handle.n_step()
    return handle


def check_home(home: str) -> None:
    """Raise a ValueError if there is no such home."""
    if home not in ("server", "ray") and not home.startswith("ray:"):
        raise ValueError(
            f"a parameter server is at home in 'server', 'ray' or 'ray:NAME', not {home!r}"
        )


class Host:
    """Runs a parameter server: its ops one at a time, and its checkpoints.

    Args:
        algorithm: whose parameter server.
        checkpoints: where they are kept; None for nowhere.
        metrics: where its measurements go.

    Attributes:
        restored: the step of the checkpoint that it began with, None without one.
    """

    def __init__(
        self, algorithm: Algorithm, checkpoints: Checkpoints | None, metrics: Metrics
    ) -> None:
        self._algorithm = algorithm.name
        self._checkpoints = checkpoints
        self._aside = None if checkpoints is None else Aside(checkpoints, self._not_saved)
        self.restored: int | None = None
        self._retry_at = 0.0
        self._turn = threading.Condition(threading.Lock())  # of an op
        self._closing = False
        self._server: ParameterServer | None = algorithm.parameter_server(algorithm.config, metrics)
        self._server.wait_at_home = self._wait_for
        if checkpoints is not None:
            found = checkpoints.restore(self._algorithm, self._server.version)
            if found is not None:
                self.restored, state = found
                self._server.restore_checkpoint(state)
            checkpoints.due(self._server.n_step())

    def run(self, names: Sequence[str], args: Any, kwargs: Any, deadline: float) -> Any:
        """Return what an op returns, or whatever it raises.

        Raises:
            DeadlineExceeded: other ops took longer than the deadline; this one was not called.
            LocalProtocolError: the parameter server has been closed.
        """
        if not self._turn.acquire(timeout=deadline):
            raise DeadlineExceeded(
                f"{path_of(names)}: other ops took longer than deadline={deadline} s; it was not "
                "called"
            )
        try:
            server = self._server
            if server is None:
                raise LocalProtocolError(f"{path_of(names)}: the parameter server has been closed")
            if not names:
                return server.n_step()
            value = op(server.session, names)(*args, **kwargs)
            self._turn.notify_all()
            self._save_if_due(server)
            return value
        finally:
            self._turn.release()

    def close(self) -> None:
        """Save a last checkpoint and close the parameter server; errors are logged."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        with self._turn:
            server, self._server = self._server, None
            if server is None:
                return
            try:
                if self._aside is not None:
                    self._aside.wait()
                self._save_if_due(server, closing=True)
                if self._aside is not None:
                    self._aside.wait()
                server.close()
            except Exception:
                logger.exception("closing the parameter server of %s failed", self._algorithm)

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        self._turn.wait_for(lambda: self._closing or condition(), seconds)
        if condition():
            return True
        if self._closing:
            raise ConnectionClosed("the parameter server is closed, and no other agent comes")
        return False

    def _save_if_due(self, server: ParameterServer, closing: bool = False) -> None:
        """Save a checkpoint if one is due; a full disk does not stop the learning."""
        checkpoints, aside = self._checkpoints, self._aside
        if checkpoints is None or aside is None or (monotonic() < self._retry_at and not closing):
            return
        try:
            step = int(server.n_step())
            if not (not checkpoints.saved(step) if closing else checkpoints.due(step)):
                return
            score = server.score()
            scored = score is not None
            state = server.create_scored_checkpoint() if scored else server.create_checkpoint()
            aside.save(step, state, score, self._algorithm, server.version)
        except Exception as error:
            self._not_saved(error)

    def _not_saved(self, error: Exception) -> None:
        self._retry_at = monotonic() + _RETRY
        logger.error(
            "no checkpoint of %s was saved; the next try is in %g s",
            self._algorithm,
            _RETRY,
            exc_info=error,
        )


class _Local(Handle):
    """A parameter server in this process, for its threads."""

    def __init__(
        self,
        algorithm: Algorithm,
        checkpoints: Checkpoints | None,
        metrics: Metrics,
        deadline: float,
    ) -> None:
        super().__init__(algorithm.config, metrics)
        self._deadline = deadline
        try:
            self._host = Host(algorithm, checkpoints, metrics)
        except Exception as error:
            raise failed("the parameter server", error) from error

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "agents in other processes cannot reach a parameter server of this process: use "
            "parameter_server='ray', or workers='threads'"
        )

    def close(self) -> None:
        self._host.close()

    def _call(self, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return self._host.run(names, args, kwargs, self._deadline)
        except (DeadlineExceeded, LocalProtocolError):
            raise
        except Exception as error:
            raise failed(path_of(names), error) from error


def path_of(names: Sequence[str]) -> str:
    """Return what errors call an op; `n_step` has no names."""
    return ".".join(["session", *names]) if names else "n_step"


def failed(what: str, error: BaseException) -> ParameterServerError:
    """Return the error that an agent gets, with the traceback of where it arose."""
    where = "".join(traceback.format_exception(error))
    return ParameterServerError(f"{what}: {describe(error)}", where)
