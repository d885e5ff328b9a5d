"""`ParameterServer` and `Session`, which algorithms define, and `ParameterServerHandle`.

All agents share one parameter server, and call the ``op_...`` methods of its model:
``parameter_server.session.op_get_weights()``. It runs in the server's process or on Ray.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from rlwire.errors import LocalProtocolError, PeerError, describe, quoted
from rlwire.relaax.algorithm import Algorithm
from rlwire.relaax.checkpoints import Checkpoints
from rlwire.rlx.config import Options
from rlwire.rlx.metrics import Metrics, MultiMetrics

logger = logging.getLogger(__name__)


class ParameterServerError(PeerError):
    """An op raised, does not exist, or has a result that cannot be sent; see ``__cause__``."""


class Session:
    """A model with ``op_...`` methods, or several by name: ``session.policy.op_get_weights()``.

    A dictionary of models becomes a nested `Session`.
    """

    def __init__(self, model: Any = None, /, **models: Any) -> None:
        if (model is None) == (not models):
            raise TypeError("pass Session one model, or several as keywords, not both")
        self._models = {
            name: Session(**each) if isinstance(each, Mapping) else each
            for name, each in models.items()
        }
        self.model = SimpleNamespace(**self._models) if model is None else model

    def __getattr__(self, name: str) -> Any:
        if name in ("model", "_models"):  # copy looks attributes up before __init__
            raise AttributeError(name)
        return getattr(self.model, name)

    def state_dict(self) -> dict[str, Any]:
        """Return the model's `state_dict`, or those of several models by name."""
        if self._models:
            return {name: each.state_dict() for name, each in self._models.items()}
        state: dict[str, Any] = self.model.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, each in self._models.items():
            each.load_state_dict(state[name])
        if not self._models:
            self.model.load_state_dict(state)


class ParameterServer:
    """Base class of an algorithm's parameter server; define `init` or `init_session`.

    One op runs at a time. A model must not change arrays that its ops have returned, because agents
    may still use them.

    Attributes:
        config: the algorithm's settings, the section ``algorithm`` of ``app.yaml``.
        metrics: `scalar` and `histogram`; `x` is `n_step` by default.
        session: the model's `Session`, set by `init` or `init_session`.
        version: version of the model's state; checkpoints of other versions are rejected.
    """

    session: Session
    version = 1

    def __init__(self, config: Options, metrics: Metrics) -> None:
        self.config = config
        self.metrics: Metrics = MultiMetrics([metrics], self.n_step)
        self.init()
        if not hasattr(self, "session"):
            name = "init_session" if type(self).init is ParameterServer.init else "init"
            raise TypeError(f"{type(self).__qualname__}.{name} must set self.session")

    def init(self) -> None:
        """Make the model and set `session`: the name of RELAAX's README."""
        self.init_session()

    def init_session(self) -> None:
        """Make the model and set `session`: the name of RELAAX's program."""
        name = type(self).__qualname__
        raise NotImplementedError(f"{name} must define init or init_session")

    def close(self) -> None:
        """Clean up after the last checkpoint."""

    def n_step(self) -> int:
        """Return the number of steps that the model has learned from; calls `op_n_step`."""
        return int(self.session.op_n_step())

    def create_checkpoint(self) -> Mapping[str, Any]:
        """Return the model's state, for a checkpoint."""
        return self.session.state_dict()

    def restore_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Set the model's state from a checkpoint."""
        self.session.load_state_dict(state)


class ParameterServerHandle:
    """An agent's interface to the parameter server; thread-safe.

    Attributes:
        config: the algorithm's settings.
        metrics: the server's sink.
        session: ``session.op_name(...)`` and ``session.model.op_name(...)`` call an op.
    """

    def __init__(self, config: Options, metrics: Metrics) -> None:
        self.config = config
        self.metrics = metrics
        self.session: Any = _OpPath(self.call_op, ())

    def n_step(self) -> int:
        """Return the number of steps of all agents."""
        return int(self.call_op((), (), {}))

    def close(self) -> None:
        """Disconnect; in the program that opened it, save a checkpoint and end the server."""

    def call_op(self, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call an op, or `n_step` if `names` is empty; return its result."""
        raise NotImplementedError


class _OpPath:
    """A path to an op of a model: attributes extend the path, a call calls the op."""

    __slots__ = ("_call", "_names")

    def __init__(self, call: Callable[..., Any], names: tuple[str, ...]) -> None:
        self._call = call
        self._names = names

    def __getattr__(self, name: str) -> _OpPath:
        if name.startswith("__"):  # such as __wrapped__, which tools look up
            raise AttributeError(name)
        return _OpPath(self._call, (*self._names, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._names, args, kwargs)


def op(model: Any, names: Sequence[str]) -> Any:
    path = ".".join(["session", *names])
    if not names or not names[-1].startswith("op_") or any(n.startswith("_") for n in names):
        raise AttributeError(f"{quoted(path)[1:-1]} is not an op: its name must begin with op_")
    for name in names:
        model = getattr(model, name, None)
    if not callable(model):
        raise AttributeError(f"the model has no {quoted(path)[1:-1]}")
    return model


def path_of(names: Sequence[str]) -> str:
    return ".".join(["session", *names]) if names else "n_step"


class LocalParameterServer(ParameterServerHandle):
    """A parameter server in this process, which runs one op at a time."""

    def __init__(
        self, algorithm: Algorithm, checkpoints: Checkpoints | None, metrics: Metrics
    ) -> None:
        super().__init__(algorithm.config, metrics)
        self._algorithm = algorithm.name
        self._checkpoints = checkpoints
        self._lock = threading.Lock()
        self._server: ParameterServer | None = None
        try:
            server = self._server = algorithm.parameter_server(algorithm.config, metrics)
            if checkpoints is not None:
                found = checkpoints.restore(self._algorithm, server.version)
                if found is not None:
                    server.restore_checkpoint(found[1])
                checkpoints.due(server.n_step())  # starts the interval
        except Exception as error:
            raise ParameterServerError(f"no parameter server: {describe(error)}") from error

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "worker processes cannot use a parameter server of this process: pass "
            "parameter_server='ray' or workers='threads'"
        )

    def close(self) -> None:
        with self._lock:
            server, self._server = self._server, None
            if server is None:
                return
            try:
                self._save(server, closing=True)
                server.close()
            except Exception:
                logger.exception("%s: closing the parameter server failed", self._algorithm)

    def call_op(self, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        with self._lock:
            server = self._server
            if server is None:
                raise LocalProtocolError(f"{path_of(names)}: the parameter server has been closed")
            try:
                value = op(server.session, names)(*args, **kwargs) if names else server.n_step()
            except Exception as error:
                raise ParameterServerError(f"{path_of(names)}: {describe(error)}") from error
            if names:
                self._save(server, closing=False)
            return value

    def _save(self, server: ParameterServer, closing: bool) -> None:
        checkpoints = self._checkpoints
        if checkpoints is None:
            return
        try:
            step = int(server.n_step())
            if not checkpoints.saved(step) if closing else checkpoints.due(step):
                state = server.create_checkpoint()
                checkpoints.save(step, state, algorithm=self._algorithm, version=server.version)
        except Exception:
            logger.exception("%s: saving a checkpoint failed", self._algorithm)
