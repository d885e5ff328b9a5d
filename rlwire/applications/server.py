"""The RLX server of an application: its algorithm, parameter server, checkpoints and metrics.

Not here: the process that it is (`rlwire.applications.__main__`), and what is served
(`rlwire.adapters.relaax`, `rlwire.adapters.rllib`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys

from rlwire.adapters.agents import RLLIB
from rlwire.adapters.relaax import door
from rlwire.adapters.relaax.metrics import (
    EnabledMetrics,
    LoggingMetrics,
    Metrics,
    MultiMetrics,
    TensorBoardMetrics,
)
from rlwire.adapters.serving import BackgroundServer
from rlwire.applications.configuration import (
    Application,
    ApplicationError,
    ParameterServerSection,
    read_application,
)
from rlwire.checkpoints import Checkpoints
from rlwire.protocols import URL

__all__ = ["make_metrics", "make_server", "serve"]


def make_metrics(application: Application) -> Metrics:
    """Return where an application's metrics go.

    Raises:
        MissingExtra: tensorboardX is asked for and not installed.
    """
    section = application.metrics_server
    if section is None:
        return MultiMetrics([])
    sinks: list[Metrics] = []
    if section.log_metrics_to_console:
        sinks.append(LoggingMetrics())
    if section.metrics_dir is not None:
        sinks.append(TensorBoardMetrics(os.path.join(application.folder, section.metrics_dir)))
    names, others = section.metrics, section.enable_unknown_metrics
    return EnabledMetrics(MultiMetrics(sinks), names, default=others)


def make_server(application: Application, metrics: Metrics) -> BackgroundServer:
    """Return the RLX server of an application, not started.

    Relative paths in the file are meant from its folder on, which has to be the current one.

    Args:
        application: as `read_application` returns it.
        metrics: where measurements of environments, agents and the parameter server go.

    Raises:
        ApplicationError: a section is missing.
        Exception: whatever is wrong with the algorithm.
    """
    section, algorithm = application.rlx_server, application.algorithm
    for name, found in (("relaax-rlx-server", section), ("algorithm", algorithm)):
        if found is None:
            raise ApplicationError(f"{application.name} has no section {name}, so nothing to serve")
    assert section is not None
    assert algorithm is not None
    thing, address = algorithm.thing, section.address
    url = URL("rlx", address.host, address.port, unix=address.path or None)
    options = dict(section.options)
    learns = application.parameter_server or ParameterServerSection()
    if thing.startswith("algorithm:"):
        options |= {
            "config": {"name": algorithm.name, **algorithm.own},
            "parameter_server": learns.home,
            "deadline": learns.deadline,
            "checkpoints": _checkpoints(learns),
        }
    else:
        settings = dict(algorithm.own)
        options |= {name: settings.pop(name) for name in RLLIB if name in settings}
        options |= {"config": settings, "checkpoints": learns.checkpoint_dir}
    return door.server(thing, url, metrics=metrics, **options)


def _checkpoints(section: ParameterServerSection) -> Checkpoints | None:
    if section.checkpoint_dir is None:
        return None
    steps, seconds = section.checkpoint_step_interval, section.checkpoint_time_interval
    return Checkpoints(
        section.checkpoint_dir,
        keep=section.checkpoints_to_keep,
        keep_best=section.best_checkpoints_to_keep,
        every_steps=steps,
        every_seconds=60.0 if steps is seconds is None else seconds,
    )


def serve(path: str) -> None:
    """Serve the application of a file until SIGINT or SIGTERM, from its folder.

    Raises:
        Exception: whatever is wrong with it.
    """
    application = read_application(path)
    section = application.rlx_server
    level = "INFO" if section is None else section.log_level
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    os.chdir(application.folder)
    sys.path.append(application.folder)  # for an algorithm that is a module there
    with contextlib.ExitStack() as stack:
        metrics = make_metrics(application)
        stack.callback(metrics.close)
        server = make_server(application, metrics)
        server.check()
        server.serve_forever()
