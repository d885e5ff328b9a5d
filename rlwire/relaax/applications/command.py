"""The commands ``rlwire new``, ``generate``, ``config`` and ``run``."""

from __future__ import annotations

import argparse
import logging

from rlwire.relaax.applications import generating, running
from rlwire.relaax.applications.configuration import ApplicationError, read_application


def add_arguments(parser: argparse.ArgumentParser) -> None:
    command = parser.prog.split()[-1]
    add = parser.add_argument
    if command == "new":
        add("name", metavar="NAME", help="folder to create")
    else:
        text = "the application's file (default: %(default)s)"
        add("-c", "--config", default="app.yaml", metavar="FILE", help=text)
    if command == "run":
        text = "processes to run; rlx-server includes the parameter server (default: all)"
        add("components", nargs="*", metavar="|".join(running.COMPONENTS), help=text)
        text = "number of environments (default: %(default)s)"
        add("-n", "--n-environments", type=int, default=1, metavar="COPIES", help=text)
        text = "ask the first environment's agent not to explore or learn"
        add("--exploit", action="store_true", help=text)
        add("--show-ui", action="store_true", help="render the first environment")
        return
    add(
        *("-e", "--environment"),
        default="bandit" if command == "new" else None,
        metavar="|".join(generating.ENVIRONMENTS),
        help="environment template" + (" (default: %(default)s)" if command == "new" else ""),
    )
    text = "algorithm" + (" (default: bandit for bandit, else pg)" if command == "new" else "")
    add("-a", "--algorithm", metavar="|".join(generating.ALGORITHMS), help=text)


def run(given: argparse.Namespace) -> int | None:
    logging.basicConfig(level="INFO", format="%(message)s")
    if given.command == "run":
        if unknown := set(given.components) - set(running.COMPONENTS):
            raise ApplicationError(
                f"unknown process {unknown.pop()}: expected {', '.join(running.COMPONENTS)}"
            )
        if given.n_environments < 1:
            raise ApplicationError(f"--n-environments must be above 0, not {given.n_environments}")
        return running.run(
            read_application(given.config),
            given.components or ("all",),
            copies=given.n_environments,
            exploit=given.exploit,
            show_ui=given.show_ui,
        )
    environment, algorithm = given.environment, given.algorithm
    if given.command == "new":
        generating.new(given.name, environment, algorithm)
    elif environment is not None or algorithm is not None:
        change = generating.generate if given.command == "generate" else generating.configure
        change(environment, algorithm, given.config)
    elif given.command == "generate":
        raise ApplicationError("pass --environment, --algorithm, or both")
    else:
        for name, text in generating.configurations().items():
            print(f"{name}\n    {text}")
    return None
