"""A parameter server as an actor of Ray's, for agents on any node of its cluster (extra `ray`).

Ray carries arrays in its object store, and starts an actor that died again. Not here: what runs the
parameter server there (`rlwire.adapters.relaax.homes`).
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import deque
from collections.abc import Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlwire.adapters.relaax.config import Options
from rlwire.adapters.relaax.homes import Host, failed, path_of
from rlwire.adapters.relaax.metrics import Metrics
from rlwire.adapters.relaax.parameter_server import Handle, ParameterServerError, UpdatesLost
from rlwire.adapters.stopping import keep_signals
from rlwire.checkpoints import Checkpoints
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LocalProtocolError,
    optional,
)

if TYPE_CHECKING:
    from rlwire.adapters.relaax.algorithm import Algorithm

_NAMESPACE = "rlwire"
_GRACE = 60.0  # seconds for the last op and checkpoint
_THREADS = 64  # of the actor, for ops that wait for others
_MEASUREMENTS = 10_000  # that wait for a reply to go with


class _Reply(NamedTuple):
    """What the actor says to a call.

    Attributes:
        run: which of the actor's lives it is.
        kind: ``"value"``, ``"error"`` or ``"lost"``.
        value: what the op returned; an error's text and traceback; the step of the checkpoint.
        measurements: since the last reply, as `(method, name, y, x)`.
    """

    run: str
    kind: str
    value: Any
    measurements: list[Any]


class _Measurements(Metrics):
    """Keeps measurements until a reply takes them; of too many the oldest are dropped."""

    def __init__(self) -> None:
        self._entries: deque[tuple[Any, ...]] = deque(maxlen=_MEASUREMENTS)

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        self._keep("scalar", name, y, x)

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        self._keep("histogram", name, y, x)

    def _keep(self, method: str, name: str, y: Any, x: Any) -> None:
        # A tensor could need its package at the other end.
        y = y if isinstance(y, (int, float, str)) else np.array(y)
        self._entries.append((method, name, y, None if x is None else int(x)))

    def pop_all(self) -> list[Any]:
        entries = self._entries
        return [entries.popleft() for _ in range(len(entries))]


class _Actor:
    """What lives on Ray."""

    def __init__(self, algorithm: Algorithm, checkpoints: Checkpoints | None, maker: str) -> None:
        self._maker = maker
        self._run = uuid.uuid4().hex
        self._measurements = _Measurements()
        self._host: Host | None = None
        try:
            self._host = Host(algorithm, checkpoints, self._measurements)
        except Exception as error:  # the reply to all calls; raised here, Ray would try again
            self._failure = failed("the parameter server", error)

    def maker(self) -> str:
        return self._maker

    def call(
        self, seen: str | None, names: Sequence[str], args: Any, kwargs: Any, deadline: float
    ) -> _Reply:
        """Call an op, unless the agent has `seen` another of this actor's lives."""
        if self._host is None:
            text = (self._failure.text, self._failure.traceback)
            return _Reply(self._run, "error", text, [])
        if seen is not None and seen != self._run:
            return _Reply(self._run, "lost", self._host.restored, [])
        try:
            kind, value = "value", self._host.run(names, args, kwargs, deadline)
        except BaseException as error:  # SystemExit included: an op must not end the actor
            raised = failed(path_of(names), error)
            kind, value = "error", (raised.text, raised.traceback)
        return _Reply(self._run, kind, value, self._measurements.pop_all())

    def close(self) -> None:
        if self._host is not None:
            self._host.close()


class OnRay(Handle):
    """A parameter server on Ray; it can be pickled, for agents in other processes.

    Args:
        config: the algorithm's settings.
        metrics: where the parameter server's measurements go.
        deadline: seconds that a call may take.
        address: of the cluster.
        name: of the actor.
        actor: the actor, where it is known.
        owner: whether closing this handle ends the actor.
        began: whether it also ends this program's connection to Ray.
    """

    def __init__(
        self,
        config: Options,
        metrics: Metrics,
        deadline: float,
        address: str,
        name: str,
        *,
        actor: Any = None,
        owner: bool = False,
        began: bool = False,
    ) -> None:
        super().__init__(config, metrics)
        self._deadline = deadline
        self._where = address, name
        self._owner = owner
        self._began = began
        self._actor = actor
        self._seen = threading.local()  # each agent has a thread, and each learns of a loss
        self._closed = False

    def __reduce__(self) -> Any:
        return OnRay, (self.config, self.metrics, self._deadline, *self._where)

    def close(self) -> None:
        """Leave the actor; its owner ends it, after a last checkpoint."""
        if self._closed:
            return
        self._closed = True
        ray = _ray()
        if self._owner and ray.is_initialized():
            with contextlib.suppress(ray.exceptions.RayError):  # it died: there is no last one
                actor = self._found()
                ray.get(actor.close.remote(), timeout=_GRACE)
                ray.kill(actor)
        self._actor = None
        if self._began:
            ray.shutdown()

    def _call(self, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self._closed:
            raise LocalProtocolError(f"{path_of(names)}: this parameter server has been closed")
        if names and getattr(self._seen, "run", None) is None:
            # Learn which life it is before the first op, which a later one must not repeat.
            with contextlib.suppress(ParameterServerError):
                self._call((), (), {})
        seen = getattr(self._seen, "run", None)
        # n_step changes nothing, so nothing of it can be lost.
        reply = self._ask(seen if names else None, names, args, kwargs)
        for method, name, y, x in reply.measurements:
            getattr(self.metrics, method)(name, y, x)
        if seen is None or reply.kind == "lost":
            self._seen.run = reply.run
        if reply.kind == "value":
            return reply.value
        if reply.kind == "lost":
            step = reply.value
            back = "began anew" if step is None else f"came back from its checkpoint of step {step}"
            raise UpdatesLost(
                f"{path_of(names)}: the parameter server died and {back}; what came after that is "
                "lost, and this call with it if it is not in there"
            )
        raise ParameterServerError(*reply.value)

    def _ask(self, seen: str | None, names: Sequence[str], args: Any, kwargs: Any) -> _Reply:
        """Return the actor's reply; a call that died with the actor is asked again.

        The new life knows by `seen` that it has not had the agent's updates, and does not call the
        op.
        """
        ray = _ray()
        until = monotonic() + self._deadline
        while True:
            try:
                asked = self._found().call.remote(
                    seen, list(names), list(args), kwargs, self._deadline
                )
            except TypeError as error:  # Ray's word for what it cannot serialize
                raise EncodeError(f"an argument cannot be sent to Ray: {error}") from error
            try:
                reply: _Reply = ray.get(asked, timeout=max(until - monotonic(), 0.001))
                return reply
            except ray.exceptions.GetTimeoutError as error:
                raise DeadlineExceeded(
                    f"{path_of(names)}: no answer from the parameter server within "
                    f"deadline={self._deadline} s; whether it was called is not known"
                ) from error
            except ray.exceptions.RayActorError as error:
                if monotonic() >= until:
                    raise ConnectionClosed(
                        f"{path_of(names)}: the parameter server's actor is lost: {error}"
                    ) from error
                sleep(0.1)
            except ray.exceptions.RayTaskError as error:
                # The actor replies to whatever an op raises; what is left is a value that Ray
                # cannot send.
                raise ParameterServerError(
                    f"{path_of(names)}: it was called, and what it returned cannot be sent: "
                    f"{error.cause}",
                    str(error),
                ) from None

    def _found(self) -> Any:
        if self._actor is None:
            ray = _ray()
            address, name = self._where
            if not ray.is_initialized():
                with keep_signals():
                    ray.init(address=address, namespace=_NAMESPACE)
            self._actor = ray.get_actor(name, namespace=_NAMESPACE)
        return self._actor


def open_actor(
    algorithm: Algorithm,
    checkpoints: Checkpoints | None,
    metrics: Metrics,
    deadline: float,
    name: str = "",
) -> OnRay:
    """Start the actor, and Ray on this machine if this program is connected to no cluster.

    Args:
        algorithm: whose parameter server; every node finds it under the same name or path.
        checkpoints: in a folder that every node reaches.
        metrics: where its measurements go.
        deadline: seconds that a call may take.
        name: by which other programs find it, and join one that is there already; by default a new
            actor is made, which no other program finds.

    Raises:
        MissingExtra: Ray is not installed.
    """
    ray = _ray()
    began = not ray.is_initialized()
    if began:
        with keep_signals():
            ray.init(namespace=_NAMESPACE)
    maker = uuid.uuid4().hex
    name = f"parameter-server-{name or maker}"
    options = {"name": name, "namespace": _NAMESPACE, "max_restarts": -1, "num_cpus": 0}
    options["max_concurrency"] = _THREADS
    kind = ray.remote(_Actor).options(get_if_exists=True, **options)
    actor = kind.remote(algorithm, checkpoints, maker)
    owner = ray.get(actor.maker.remote(), timeout=deadline) == maker
    return OnRay(
        algorithm.config,
        metrics,
        deadline,
        ray.get_runtime_context().gcs_address,
        name,
        actor=actor,
        owner=owner,
        began=began,
    )


def _ray() -> Any:
    with optional("ray", "ray"):
        import ray
        import ray.exceptions
    return ray
