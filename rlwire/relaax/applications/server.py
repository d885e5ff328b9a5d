"""The process of an application's RLX server, with algorithm, checkpoints and metrics."""

from __future__ import annotations

import logging
import os
import sys

from rlwire.relaax.algorithm import load_algorithm
from rlwire.relaax.applications.configuration import (
    Application,
    ApplicationError,
    MetricsServerSection,
    read_application,
)
from rlwire.relaax.applications.environment import main
from rlwire.relaax.checkpoints import Checkpoints
from rlwire.relaax.server import AlgorithmServer
from rlwire.rlx.metrics import LoggingMetrics, Metrics, MultiMetrics, TensorBoardMetrics

logger = logging.getLogger(__name__)

# RELAAX's algorithms whose settings pg understands.
_LIKE_PG = ("policy_gradient", "policy-gradient", "da3c")


def make_metrics(application: Application) -> Metrics:
    section = application.metrics_server or MetricsServerSection()
    sinks: list[Metrics] = []
    if section.log_metrics_to_console:
        sinks.append(LoggingMetrics())
    if section.metrics_dir is not None:
        sinks.append(TensorBoardMetrics(os.path.join(application.folder, section.metrics_dir)))
    return MultiMetrics(sinks)


def make_server(application: Application) -> AlgorithmServer:
    section, algorithm = application.served()
    where = algorithm.path or algorithm.name
    if where is None:
        raise ApplicationError(f"{algorithm.place}: the section algorithm needs a name or a path")
    if where in _LIKE_PG:
        logger.warning("%s: using pg instead of RELAAX's %s", algorithm.place, where)
        where = "pg"
    checkpoints, kept = None, application.parameter_server
    if kept is not None and kept.checkpoint_dir is not None:
        steps, seconds = kept.checkpoint_step_interval, kept.checkpoint_time_interval
        checkpoints = Checkpoints(
            kept.checkpoint_dir,
            keep=kept.checkpoints_to_keep,
            every_steps=steps,
            every_seconds=60.0 if steps is seconds is None else seconds,
        )
    return AlgorithmServer(
        load_algorithm(where, {"name": algorithm.name, **algorithm.own}),
        section.address,
        checkpoints=checkpoints,
        metrics=make_metrics(application),
        **section.options,
    )


def serve(path: str) -> None:
    application = read_application(path)
    section = application.rlx_server
    level = "INFO" if section is None else section.log_level.upper()
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    os.chdir(application.folder)
    sys.path.append(application.folder)  # for an algorithm in a module of the folder
    server = make_server(application)
    server.check()
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main(serve, sys.argv[1]))
