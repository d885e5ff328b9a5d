"""`AlgorithmServer`: an RLX server whose agents share one parameter server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlwire._options import given, with_options
from rlwire.errors import on_error
from rlwire.relaax.algorithm import Algorithm, load_algorithm
from rlwire.relaax.checkpoints import Checkpoints
from rlwire.relaax.parameter_server import LocalParameterServer, ParameterServerHandle
from rlwire.rlx.config import Options, section
from rlwire.rlx.metrics import LoggingMetrics, Metrics
from rlwire.rlx.options import RLXServerOptions
from rlwire.rlx.server import Server
from rlwire.serving.serving import Running

if TYPE_CHECKING:
    from rlwire.urls import URL


def open_parameter_server(
    algorithm: Algorithm,
    *,
    home: str = "server",
    checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
    metrics: Metrics | None = None,
) -> ParameterServerHandle:
    """Make an algorithm's parameter server and restore its latest checkpoint.

    Args:
        algorithm: the result of `rlwire.relaax.algorithm.load_algorithm`.
        home: where it runs: ``"server"``, in this process; ``"ray"``, in a Ray actor (the extra
            `ray`), for agents in other processes; ``"ray:NAME"``, in an actor that programs share
            by name, and that ends with the program that made it. An actor that dies restarts from
            its latest checkpoint.
        checkpoints: a `Checkpoints`, or a folder, with a checkpoint each minute; None for none.
        metrics: a sink (default: the log); an actor gets a copy.

    Raises:
        ParameterServerError: the server cannot be made, or its checkpoint not be restored.
        ValueError: `home` is invalid.
        MissingExtra: Ray is not installed.
    """
    if home not in ("server", "ray") and not home.startswith("ray:"):
        raise ValueError(f"parameter_server must be 'server', 'ray' or 'ray:NAME', not {home!r}")
    if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
        checkpoints = Checkpoints(checkpoints, every_seconds=60.0)
    metrics = LoggingMetrics() if metrics is None else metrics
    if home == "server":
        return LocalParameterServer(algorithm, checkpoints, metrics)
    from rlwire.relaax.parameter_server_ray import open_actor

    handle = open_actor(algorithm, checkpoints, metrics, home.partition(":")[2])
    with on_error(handle.close):
        handle.n_step()
    return handle


@dataclass(frozen=True, kw_only=True)
class AlgorithmServerOptions(RLXServerOptions):
    """Options of an `AlgorithmServer`.

    Attributes:
        parameter_server: the argument `home` of `open_parameter_server`.
        checkpoints: as for `open_parameter_server`.
        metrics: a sink, or pairs as for `Server`, also for the parameter server.
    """

    parameter_server: str = "server"
    checkpoints: Any = None


class AlgorithmServer(Server):
    """An RLX server whose agents share one parameter server.

    It restores the latest checkpoint when it starts, and saves one when it stops.

    The algorithm is the result of `load_algorithm`.
    """

    @with_options(AlgorithmServerOptions)
    def __init__(self, algorithm: Algorithm, options: AlgorithmServerOptions) -> None:
        fields = given(options, RLXServerOptions)
        super().__init__(algorithm, **{**fields, "parameter_server": None})
        self.algorithm = algorithm
        self._home = options.parameter_server
        self._checkpoints = options.checkpoints
        self._handle: ParameterServerHandle | None = None

    @property
    def parameter_server(self) -> ParameterServerHandle:
        """The parameter server, while the server runs."""
        if self._handle is None:
            raise RuntimeError("the parameter server exists only while the server is running")
        return self._handle

    def check(self) -> None:
        self._open()
        with on_error(self._close):
            super().check()

    def _open(self) -> None:
        if self._handle is None:
            self._handle = open_parameter_server(
                self.algorithm,
                home=self._home,
                checkpoints=self._checkpoints,
                metrics=self._agents.metrics,
            )
            self._agents.parameter_server = self._handle

    def _close(self) -> None:
        handle, self._handle = self._handle, None
        self._agents.parameter_server = None
        if handle is not None:
            handle.close()

    def _run(self) -> Running:
        self._open()
        with on_error(self._close):
            return super()._run()

    def _after_stop(self) -> None:
        self._close()
        super()._after_stop()


def server(
    name: str, url: URL, *, config: Mapping[str, Any] | Options | str | None = None, **options: Any
) -> AlgorithmServer:
    """Make the server of ``algorithm:NAME``; `config` may be ``"FILE"`` or ``"FILE:SECTION"``."""
    settings = section(config) if isinstance(config, str) else config
    return AlgorithmServer(load_algorithm(name, settings), url, **options)
