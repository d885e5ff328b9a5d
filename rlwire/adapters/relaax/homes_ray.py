"""A parameter server as an actor of Ray's, for agents on any node of its cluster (extra `ray`).

Ray starts an actor that died again, and carries arrays in its object store; everything else is
`rlwire.adapters.relaax.homes`.
"""

from __future__ import annotations

import contextlib
import uuid
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from rlwire.adapters.relaax.config import Options
from rlwire.adapters.relaax.homes import Caller, Distant
from rlwire.adapters.relaax.homes_host import Host, Waiting
from rlwire.adapters.relaax.metrics import Metrics
from rlwire.adapters.stopping import keep_signals
from rlwire.checkpoints import Checkpoints
from rlwire.errors import ConnectionClosed, EncodeError, optional
from rlwire.sessions.calls import Answer, Call

if TYPE_CHECKING:
    from rlwire.adapters.relaax.algorithm import Algorithm

__all__ = ["OnRay", "open_actor"]

_NAMESPACE = "rlwire"
_GRACE = 60.0  # seconds for the last op and checkpoint
_THREADS = 64  # of the actor


class _Actor:
    """What lives on Ray."""

    def __init__(self, algorithm: Algorithm, checkpoints: Checkpoints | None, maker: str) -> None:
        self._host = Host(algorithm, checkpoints, Waiting())
        self._maker = maker

    def maker(self) -> str:
        return self._maker

    def answer(self, call: Call) -> Answer:
        return self._host.answer(call)

    def close(self) -> None:
        self._host.close()


class OnRay(Distant):
    """A parameter server on Ray.

    Args:
        config: this, `metrics` and `deadline`: as of `Distant`.
        address: of the cluster.
        name: of the actor.
        actor: itself, where it is known.
        owner: whether closing this handle ends the actor.
        began: whether it ends this program's connection to Ray as well.
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
        super().__init__(config, metrics, deadline)
        self._where = address, name
        self._owner = owner
        self._began = began
        self._actor = actor

    def __reduce__(self) -> Any:
        return OnRay, (self.config, self.metrics, self._deadline, *self._where)

    def close(self) -> None:
        """Leave it; its owner ends it, after a last checkpoint."""
        if self._closed:
            return
        super().close()
        ray = _ray()
        if self._owner and ray.is_initialized():
            with contextlib.suppress(ray.exceptions.RayError):  # it died: there is no last one
                actor = self._found()
                ray.get(actor.close.remote(), timeout=_GRACE)
                ray.kill(actor)
        self._actor = None
        if self._began:
            ray.shutdown()

    def _found(self) -> Any:
        if self._actor is None:
            ray = _ray()
            address, name = self._where
            if not ray.is_initialized():
                with keep_signals():
                    ray.init(address=address, namespace=_NAMESPACE)
            self._actor = ray.get_actor(name, namespace=_NAMESPACE)
        return self._actor

    def _ask(self, caller: Caller, call: Call) -> Answer:
        ray = _ray()
        until = monotonic() + self._deadline
        while True:
            try:
                asked = self._found().answer.remote(call)
            except TypeError as error:  # Ray's word for what it cannot serialize
                raise EncodeError(f"an argument cannot be sent to Ray: {error}") from error
            try:
                answer: Answer = ray.get(asked, timeout=max(until - monotonic(), 0.001))
                return answer
            except ray.exceptions.GetTimeoutError as error:
                raise self._late(call) from error
            except ray.exceptions.RayActorError as error:
                if monotonic() >= until:
                    raise ConnectionClosed(
                        f"the parameter server's actor is lost: {error}"
                    ) from error
                sleep(0.1)
            except ray.exceptions.RayTaskError as error:
                # The host answers whatever an op raises; what is left is that Ray cannot send it.
                return Answer("", call.number, "error", [str(error.cause), str(error)], [])


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
        checkpoints: a folder or URL that every node reaches.
        metrics: where its measurements go.
        deadline: seconds that a call may take.
        name: by which others find it; one that is there already is taken. By default nobody's.

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
    options["max_concurrency"] = _THREADS  # for ops that wait for others
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
