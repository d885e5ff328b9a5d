"""A parameter server in a Ray actor, for agents on any node of the cluster (extra `ray`)."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from typing import Any

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LocalProtocolError,
    describe,
    optional,
)
from rlwire.relaax.algorithm import Algorithm
from rlwire.relaax.checkpoints import Checkpoints
from rlwire.relaax.parameter_server import (
    LocalParameterServer,
    ParameterServerError,
    ParameterServerHandle,
    path_of,
)
from rlwire.rlx.config import Options
from rlwire.rlx.metrics import Metrics
from rlwire.serving.stopping import keep_signals

_NAMESPACE = "rlwire"
_DEADLINE = 60.0  # seconds for a call, including a restart of the actor
_GRACE = 60.0  # seconds for the last checkpoint


class _Actor:
    """The actor: a parameter server, or the error that prevented it."""

    def __init__(
        self, algorithm: Algorithm, checkpoints: Checkpoints | None, metrics: Metrics, creator: str
    ) -> None:
        self._creator = creator
        self._metrics = metrics
        self._server: LocalParameterServer | ParameterServerError
        try:
            self._server = LocalParameterServer(algorithm, checkpoints, metrics)
        except ParameterServerError as error:  # if it were raised, Ray would restart the actor
            self._server = error

    def creator(self) -> str:
        return self._creator

    def call(self, names: Sequence[str], args: Any, kwargs: Any) -> Any:
        if isinstance(self._server, ParameterServerError):
            raise self._server
        try:
            return self._server.call_op(names, args, kwargs)
        except SystemExit as error:  # it would end the actor
            raise RuntimeError("the op raised SystemExit") from error

    def close(self) -> None:
        if isinstance(self._server, LocalParameterServer):
            self._server.close()
        self._metrics.close()


class RayParameterServer(ParameterServerHandle):
    """A parameter server on Ray; picklable. `close` of the `owner` ends the actor."""

    def __init__(
        self,
        config: Options,
        metrics: Metrics,
        address: str,
        name: str,
        *,
        actor: Any = None,
        owner: bool = False,
        owns_ray: bool = False,
    ) -> None:
        super().__init__(config, metrics)
        self._where = address, name
        self._owner = owner
        self._owns_ray = owns_ray
        self._actor = actor
        self._closed = False

    def __reduce__(self) -> Any:
        return RayParameterServer, (self.config, self.metrics, *self._where)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        ray = _ray()
        if self._owner and ray.is_initialized():
            with contextlib.suppress(ray.exceptions.RayError):  # if the actor has died
                actor = self._find_actor()
                ray.get(actor.close.remote(), timeout=_GRACE)
                ray.kill(actor)
        self._actor = None
        if self._owns_ray:
            ray.shutdown()

    def call_op(self, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call an op; if the actor dies, Ray restarts it and calls the op again."""
        path = path_of(names)
        if self._closed:
            raise LocalProtocolError(f"{path}: the parameter server has been closed")
        ray = _ray()
        try:
            asked = self._find_actor().call.remote(list(names), list(args), kwargs)
        except TypeError as error:  # Ray's, for values that it cannot serialize
            raise EncodeError(f"{path}: cannot send to Ray: {error}") from error
        try:
            return ray.get(asked, timeout=_DEADLINE)
        except ray.exceptions.GetTimeoutError as error:
            raise DeadlineExceeded(
                f"{path}: no reply from the parameter server within {_DEADLINE} s; the op may have "
                "run"
            ) from error
        except ray.exceptions.RayActorError as error:
            raise ConnectionClosed(f"{path}: the parameter server's actor died: {error}") from error
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            ours = isinstance(cause, ParameterServerError)
            text = str(cause) if ours else f"{path}: {describe(cause)}"
            raise ParameterServerError(text) from error

    def _find_actor(self) -> Any:
        if self._actor is None:
            ray = _ray()
            address, name = self._where
            if not ray.is_initialized():
                with keep_signals():
                    ray.init(address=address, namespace=_NAMESPACE)
            self._actor = ray.get_actor(name, namespace=_NAMESPACE)
        return self._actor


def open_actor(
    algorithm: Algorithm, checkpoints: Checkpoints | None, metrics: Metrics, name: str = ""
) -> RayParameterServer:
    """Start the actor, or use the existing one called `name`; initialize Ray if necessary."""
    ray = _ray()
    owns_ray = not ray.is_initialized()
    if owns_ray:
        with keep_signals():
            ray.init(namespace=_NAMESPACE)
    creator = uuid.uuid4().hex
    name = f"parameter-server-{name or creator}"
    kind = ray.remote(_Actor).options(
        name=name,
        namespace=_NAMESPACE,
        get_if_exists=True,
        max_restarts=-1,
        max_task_retries=3,
        num_cpus=0,
    )
    actor = kind.remote(algorithm, checkpoints, metrics, creator)
    owner = ray.get(actor.creator.remote(), timeout=_DEADLINE) == creator
    address = ray.get_runtime_context().gcs_address
    return RayParameterServer(
        algorithm.config, metrics, address, name, actor=actor, owner=owner, owns_ray=owns_ray
    )


def _ray() -> Any:
    with optional("ray", "ray"):
        import ray
        import ray.exceptions
    return ray
