"""What an algorithm of your own is written with: `ParameterServer`, and `Session` of its model.

A parameter server is one for all agents. Each agent is given a `Handle` of it and calls the methods
``op_...`` of its model: ``parameter_server.session.op_get_weights()``. Where it lives
(`rlwire.relaax.homes`) no agent sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from rlwire.errors import PeerError, quoted
from rlwire.rlx.config import Options
from rlwire.rlx.metrics import Metrics, StepMetrics


class ParameterServerError(PeerError):
    """An op raised, does not exist, or returned what cannot be sent; ``__cause__`` tells where."""


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
        self._models = {
            name: Session(**each) if isinstance(each, Mapping) else each
            for name, each in models.items()
        }
        self.model = SimpleNamespace(**self._models) if model is None else model

    def __getattr__(self, name: str) -> Any:
        if name in ("model", "_models"):  # while it is made, or copied
            raise AttributeError(name)
        return getattr(self.model, name)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: the models' own `state_dict`, by name if several."""
        if self._models:
            return {name: each.state_dict() for name, each in self._models.items()}
        state: dict[str, Any] = self.model.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring back what `state_dict` returned."""
        for name, each in self._models.items():
            each.load_state_dict(state[name])
        if not self._models:
            self.model.load_state_dict(state)


class ParameterServer:
    """Base of an algorithm's parameter server; it has to define `init_session`.

    One op runs at a time, so a model needs no locks. What ops return is no longer theirs to write
    to, unless it is a copy: in the server's process agents hold the same arrays.

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

    def create_checkpoint(self) -> Mapping[str, Any]:
        """Return the state to keep: nested dictionaries and lists of arrays, tensors, numbers."""
        return self.session.state_dict()

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
        """Return what an op returns; of no name, the step."""
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
        """Call the op."""
        return self._call(self._names, args, kwargs)

    def __repr__(self) -> str:
        return f"<session{''.join('.' + name for name in self._names)} of a parameter server>"


def op(session: Any, names: Sequence[str]) -> Callable[..., Any]:
    """Return the method of a session's model that a path names, or raise AttributeError."""
    path = ".".join(["session", *names])
    if not names or not names[-1].startswith("op_") or any(n.startswith("_") for n in names):
        raise AttributeError(f"{quoted(path)[1:-1]} is no op: their names begin with op_")
    found: Any = session
    for name in names:
        found = getattr(found, name, None)
    if not callable(found):
        raise AttributeError(f"there is no {quoted(path)[1:-1]}")
    return cast("Callable[..., Any]", found)
