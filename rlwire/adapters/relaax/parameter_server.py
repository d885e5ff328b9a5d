"""What an algorithm of one's own is written with: `ParameterServer`, and `Session` of its model.

A parameter server is one for all agents. Each agent is given a `Handle` of it and calls the methods
``op_...`` of its model: ``parameter_server.session.op_get_weights()``. Where it lives (in the
server's process, in one of its own, on Ray) no agent sees.

Not here: the homes (`rlwire.adapters.relaax.homes`), and how an algorithm is found
(`rlwire.adapters.relaax.algorithm`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from rlwire.adapters.relaax.config import Options
from rlwire.adapters.relaax.metrics import Metrics, StepMetrics
from rlwire.errors import PeerError, quoted

__all__ = ["Handle", "ParameterServer", "ParameterServerError", "Session", "UpdatesLost"]


class ParameterServerError(PeerError):
    """An op raised, does not exist, or returned what cannot be sent; nothing else is the matter.

    Attributes:
        text: the op, and the type and text of what it raised.
        traceback: where, at the parameter server, as Python prints it; empty if it is not known.
    """

    def __init__(self, text: str, traceback: str = "") -> None:
        super().__init__(text)
        self.traceback = traceback
        if traceback:  # Python prints it above the agent's own, as of multiprocessing's pools
            self.__cause__ = _Remote(traceback)

    def __reduce__(self) -> Any:
        return type(self), (self.text, self.traceback)


class UpdatesLost(ParameterServerError):
    """The parameter server died and has come back from a checkpoint, or from its beginning.

    Raised once, by an agent's first call after that, which is not made: what it says may be old.
    """


class _Remote(Exception):
    def __init__(self, traceback: str) -> None:
        super().__init__(f"\n\nat the parameter server:\n{traceback}")


class Session:
    """The model of a parameter server, or of an agent, with its methods ``op_...``.

    ::

        session = Session(Model())                       # session.op_get_weights()
        session = Session(policy=Policy(), value=Value())  # session.policy.op_get_weights()

    Args:
        model: has the methods; None for several by name.
        models: sub-models by name, dictionaries of them for deeper ones.

    Raises:
        TypeError: neither or both are given.
    """

    def __init__(self, model: Any = None, /, **models: Any) -> None:
        if (model is None) == (not models):
            raise TypeError("a Session has one model, or several by name")
        self.model = _namespace(models) if model is None else model

    def __getattr__(self, name: str) -> Any:
        if name == "model":  # while it is made, or copied
            raise AttributeError(name)
        return getattr(self.model, name)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: the models' own `state_dict`, by name if several.

        Raises:
            TypeError: a model has none.
        """
        state: dict[str, Any] = _save(self.model, "the model")
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring back what `state_dict` returned.

        Raises:
            TypeError: a model has no method for it.
            KeyError: there is no state of one of the models.
        """
        _load(self.model, state, "the model")


class ParameterServer:
    """Base of an algorithm's parameter server; it has to define `init_session`.

    One op runs at a time, so a model needs no locks. One that waits for other agents does so with
    `wait_for`, and nobody else is kept waiting. Checkpoints are written beside ops, from a copy.
    What ops return is no longer theirs to write to, unless it is a copy: in the server's process
    agents hold the same arrays.

    Args:
        config: the algorithm's settings, the section ``algorithm`` of ``app.yaml``.
        metrics: where `metrics` goes.

    Attributes:
        config: the settings.
        metrics: `scalar` and `histogram`; without an `x`, at the step `n_step`.
        session: of the model; set by `init_session`.
        version: of the model's state; checkpoints of another one are refused.
    """

    session: Session
    version = 1
    wait_at_home: Callable[[Callable[[], bool], float], bool] = staticmethod(
        lambda condition, seconds: condition()
    )
    """Of its home: how `wait_for` waits. Without one nobody else calls."""

    def __init__(self, config: Options, metrics: Metrics) -> None:
        self.config = config
        self.metrics: Metrics = StepMetrics(metrics, self.n_step)
        self.init_session()
        if not hasattr(self, "session"):
            raise TypeError(f"{type(self).__qualname__}.init_session must set self.session")

    def init_session(self) -> None:
        """Make the model, and set `session`."""
        raise NotImplementedError(f"{type(self).__qualname__} must define init_session")

    def close(self) -> None:
        """Tidy up; called once, after the last checkpoint."""

    def n_step(self) -> int:
        """Return how many steps were learned from: by default what the model's `op_n_step` says."""
        return int(self.session.op_n_step())

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Have other ops run until a condition holds; for an op, which has its turn again then.

        Args:
            condition: called again after each op.
            seconds: at most; fewer than the agents' deadline.

        Returns:
            whether it holds.

        Raises:
            ConnectionClosed: it does not, and the parameter server is being closed.
        """
        return self.wait_at_home(condition, seconds)

    def score(self) -> float | None:
        """Return how good the model is; None, by default, if that is not known."""
        return None

    def create_checkpoint(self) -> Mapping[str, Any]:
        """Return the state to keep: nested dictionaries and lists of arrays, tensors, numbers."""
        return self.session.state_dict()

    def create_scored_checkpoint(self) -> Mapping[str, Any]:
        """Return the state to keep where there is a score; by default the same."""
        return self.create_checkpoint()

    def restore_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Bring back a state that was kept."""
        self.session.load_state_dict(state)


class Handle:
    """A parameter server as agents see it, wherever it lives; for any number of threads.

    Attributes:
        config: the algorithm's settings.
        metrics: where the server's measurements go.
        session: ``session.op_name(...)`` and ``session.model.op_name(...)`` call an op. Over a
            connection tuples come as lists, and arrays may be read-only.
    """

    def __init__(self, config: Options, metrics: Metrics) -> None:
        self.config = config
        self.metrics = metrics
        self.session: Any = Ops(self._call, ())

    def n_step(self) -> int:
        """Return how many steps the parameter server has learned from; errors as of an op."""
        return int(self._call((), (), {}))

    def close(self) -> None:
        """Leave the parameter server; where it was opened, end it, after a last checkpoint."""

    def _call(self, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return what an op returns; of no name, the step.

        Raises:
            ParameterServerError: the op failed.
            UpdatesLost: the parameter server had died.
            EncodeError, LimitExceeded: an argument cannot be sent.
            DeadlineExceeded, OSError: there was no answer in time; whether the op ran is not known.
        """
        raise NotImplementedError


class Ops:
    """A path into a model: more of it as an attribute, its end when it is called."""

    __slots__ = ("_call", "_names")

    def __init__(self, call: Callable[..., Any], names: tuple[str, ...]) -> None:
        self._call = call
        self._names = names

    def __getattr__(self, name: str) -> Ops:
        if name.startswith("__"):  # what Python and its tools look for
            raise AttributeError(name)
        return Ops(self._call, (*self._names, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._names, args, kwargs)

    def __repr__(self) -> str:
        return f"<session{''.join('.' + name for name in self._names)} of a parameter server>"


def op(session: Any, names: Sequence[str]) -> Callable[..., Any]:
    """Return the method of a session's model that a path names.

    Raises:
        AttributeError: it is no op, or there is none.
    """
    path = ".".join(names)
    if not names or not names[-1].startswith("op_") or any(n.startswith("_") for n in names):
        raise AttributeError(f"session.{quoted(path)[1:-1]} is no op: their names begin with op_")
    found: Any = session
    for depth, name in enumerate(names):
        found = getattr(found, name, None)
        if found is None:
            where = ".".join(["session", *names[:depth]])
            raise AttributeError(
                f"{where} has no {quoted(name)[1:-1]}, asked for as session.{path}"
            )
    if not callable(found):
        raise AttributeError(f"session.{path} cannot be called")
    return cast("Callable[..., Any]", found)


class _Several(SimpleNamespace):
    """Sub-models by name."""


def _namespace(models: Mapping[str, Any]) -> _Several:
    return _Several(
        **{k: _namespace(v) if isinstance(v, Mapping) else v for k, v in models.items()}
    )


def _save(model: Any, name: str) -> Any:
    if isinstance(model, _Several):
        return {key: _save(each, key) for key, each in vars(model).items()}
    return _method(model, "state_dict", name)()


def _load(model: Any, state: Any, name: str) -> None:
    if isinstance(model, _Several):
        for key, each in vars(model).items():
            _load(each, state[key], key)
    else:
        _method(model, "load_state_dict", name)(state)


def _method(model: Any, method: str, name: str) -> Any:
    found = getattr(model, method, None)
    if not callable(found):
        raise TypeError(
            f"{name} ({type(model).__qualname__}) has no method {method}, which checkpoints need; "
            "define it, or create_checkpoint and restore_checkpoint of the ParameterServer"
        )
    return found
