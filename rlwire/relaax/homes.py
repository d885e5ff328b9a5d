"""Where a parameter server lives: in the server's process, or on Ray (`homes_ray`)."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from rlwire.errors import LocalProtocolError, describe, on_error
from rlwire.relaax.checkpoints import Checkpoints
from rlwire.relaax.parameter_server import (
    Handle,
    ParameterServer,
    ParameterServerError,
    op,
)
from rlwire.rlx.metrics import LoggingMetrics, Metrics

if TYPE_CHECKING:
    from rlwire.relaax.algorithm import Algorithm

logger = logging.getLogger(__name__)


def open_parameter_server(
    algorithm: Algorithm,
    *,
    home: str = "server",
    checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
    metrics: Metrics | None = None,
) -> Handle:
    """Make an algorithm's parameter server and restore its latest checkpoint.

    Args:
        algorithm: as `rlwire.relaax.algorithm.load_algorithm` returns it.
        home: ``"server"``, this process; ``"ray"``, an actor (the extra `ray`), which agents in
            other processes and on other machines reach; or ``"ray:NAME"``, an actor that all
            programs which open it by this name share: the first makes it, and ends it. An actor
            that dies restarts from its latest checkpoint.
        checkpoints: where to keep what was learned, by default nowhere; in a folder given by its
            path, one is saved a minute.
        metrics: where its measurements go, by default the log; an actor gets a copy of the sink.

    Raises:
        ParameterServerError: it cannot be made, or its checkpoint cannot be restored.
        ValueError: there is no such home.
        MissingExtra: Ray is not installed.
    """
    check_home(home)
    if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
        checkpoints = Checkpoints(checkpoints, every_seconds=60.0)
    metrics = LoggingMetrics() if metrics is None else metrics
    if home == "server":
        return _Local(algorithm, checkpoints, metrics)
    from rlwire.relaax import homes_ray

    handle = homes_ray.open_actor(algorithm, checkpoints, metrics, home.partition(":")[2])
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
    """Runs a parameter server: its ops one at a time, and its checkpoints."""

    def __init__(
        self, algorithm: Algorithm, checkpoints: Checkpoints | None, metrics: Metrics
    ) -> None:
        self._algorithm = algorithm.name
        self._checkpoints = checkpoints
        self._lock = threading.Lock()
        self._server: ParameterServer | None = algorithm.parameter_server(algorithm.config, metrics)
        if checkpoints is not None:
            found = checkpoints.restore(self._algorithm, self._server.version)
            if found is not None:
                self._server.restore_checkpoint(found[1])
            checkpoints.due(self._server.n_step())  # intervals count from here

    def run(self, names: Sequence[str], args: Any, kwargs: Any) -> Any:
        """Return what an op returns, or raise whatever it raises; no names mean `n_step`."""
        with self._lock:
            server = self._server
            if server is None:
                raise LocalProtocolError(f"{path_of(names)}: the parameter server has been closed")
            if not names:
                return server.n_step()
            value = op(server.session, names)(*args, **kwargs)
            if self._checkpoints is not None:
                self._save(server, self._checkpoints, closing=False)
            return value

    def close(self) -> None:
        """Save a last checkpoint and close the parameter server; errors are logged."""
        with self._lock:
            server, self._server = self._server, None
            if server is None:
                return
            try:
                if self._checkpoints is not None:
                    self._save(server, self._checkpoints, closing=True)
                server.close()
            except Exception:
                logger.exception("closing the parameter server of %s failed", self._algorithm)

    def _save(self, server: ParameterServer, checkpoints: Checkpoints, closing: bool) -> None:
        """Save a checkpoint if one is due; a full disk does not stop the learning."""
        try:
            step = int(server.n_step())
            if not checkpoints.saved(step) if closing else checkpoints.due(step):
                state = server.create_checkpoint()
                checkpoints.save(step, state, algorithm=self._algorithm, version=server.version)
        except Exception:
            logger.exception("no checkpoint of %s was saved", self._algorithm)


class _Local(Handle):
    """A parameter server in this process, for its threads."""

    def __init__(
        self, algorithm: Algorithm, checkpoints: Checkpoints | None, metrics: Metrics
    ) -> None:
        super().__init__(algorithm.config, metrics)
        try:
            self._host = Host(algorithm, checkpoints, metrics)
        except Exception as error:
            raise ParameterServerError(f"the parameter server: {describe(error)}") from error

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "agents in other processes cannot reach a parameter server of this process: use "
            "parameter_server='ray', or workers='threads'"
        )

    def close(self) -> None:
        self._host.close()

    def _call(self, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return self._host.run(names, args, kwargs)
        except LocalProtocolError:
            raise
        except Exception as error:
            raise ParameterServerError(f"{path_of(names)}: {describe(error)}") from error


def path_of(names: Sequence[str]) -> str:
    """Return what errors call an op; `n_step` has no names."""
    return ".".join(["session", *names]) if names else "n_step"
