"""`new`, `generate` and `configure`: create and change applications.

Replaced files and folders are kept, as ``app.yaml.~1~`` and ``environment.~1~``.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any

from rlwire.relaax.algorithm import instead_of
from rlwire.relaax.applications.configuration import ApplicationError, read_application
from rlwire.rlx.config import yaml

logger = logging.getLogger(__name__)

_TEMPLATES = Path(__file__).resolve().parent / "templates"

ENVIRONMENTS = {"bandit": "bandit", "gym": "gym", "openai-gym": "gym", "ale": "ale"}
"""Names of environments, and the template of each; openai-gym is RELAAX's name."""
_PROGRAMS = {"ale": "gym"}  # a template with the program of another
ALGORITHMS = ("bandit", "pg")


def new(
    name: str | os.PathLike[str], environment: str = "bandit", algorithm: str | None = None
) -> Path:
    """Create an application in a new folder; return the folder.

    `environment` is one of `ENVIRONMENTS`, `algorithm` one of `ALGORITHMS` (default: bandit for the
    environment bandit, else pg).
    """
    folder = Path(name)
    text = _environment(environment) + (_TEMPLATES / "servers.yaml").read_text("utf-8") + "\n"
    algorithm = algorithm or ("bandit" if environment == "bandit" else "pg")
    text += _configuration(algorithm, environment)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ApplicationError(f"{folder} already exists: pass another name") from None
    (folder / "app.yaml").write_text(text, "utf-8")
    _copy(_program(environment), folder / "environment")
    logger.info("created %s; to run it: cd %s && rlwire run all", folder, folder)
    return folder


def generate(
    environment: str | None = None,
    algorithm: str | None = None,
    config: str | os.PathLike[str] = "app.yaml",
) -> None:
    """Replace an application's environment by a template, or copy an algorithm into it.

    Copies the algorithm to the folder ``algorithm``, and sets its path in the file. Replaces the
    sections as `configure` does, except one that names the algorithm already.
    """
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise ApplicationError(
            f"no algorithm {algorithm}: expected one of {', '.join(ALGORITHMS)}"
            f"{instead_of(algorithm)}"
        )
    folder = Path(config).resolve().parent
    section = read_application(config).algorithm
    known = section is not None and section.name == algorithm
    path = None if algorithm is None else "./algorithm"
    configure(environment, None if known else algorithm, config, path)
    if environment is not None:
        _replace(_program(environment), folder / "environment")
    if algorithm is not None:
        _replace(Path(__file__).parents[1] / "algorithms" / algorithm, folder / "algorithm")


def configure(
    environment: str | None = None,
    algorithm: str | None = None,
    config: str | os.PathLike[str] = "app.yaml",
    path: str | None = None,
) -> None:
    """Replace an application's sections by those of templates; `path` is of an own algorithm."""
    application = read_application(config)
    sections: dict[str, Any] = {}
    kind = environment or (application.environment.type if application.environment else None)
    if environment is not None:
        sections |= yaml().load(_environment(environment))
    if algorithm is not None:
        if kind is None and path is not None:
            kind = "bandit"
        if kind is None:
            raise ApplicationError(
                f"{application.name}: environment/type is missing: set it to one of "
                f"{', '.join(ENVIRONMENTS)}"
            )
        sections |= yaml().load(_configuration(algorithm, kind))
    file = Path(config)
    found = yaml().load(file.read_text("utf-8"))
    found.update(sections)
    if path is not None:
        found["algorithm"].pop("path", None)
        found["algorithm"].insert(0, "path", path, "remove this line to use rlwire's")
    kept = _kept(file)
    shutil.copy2(file, kept)
    with open(file, "w", encoding="utf-8") as writing:
        yaml().dump(found, writing)  # preserves comments
    logger.info("wrote %s, and kept the old one as %s", file.name, kept.name)


def configurations() -> dict[str, str]:
    found = {}
    for path in sorted((_TEMPLATES / "configs").glob("*.yaml")):
        comment = re.match(r"(?:#.*\n)+", path.read_text("utf-8"))
        found[path.stem] = " ".join(comment[0].replace("#", " ").split()) if comment else ""
    return found


def _environment(name: str) -> str:
    if name not in ENVIRONMENTS:
        raise ApplicationError(
            f"no environment template {name}: expected one of {', '.join(ENVIRONMENTS)}"
        )
    return (_TEMPLATES / "environments" / ENVIRONMENTS[name] / "app.yaml").read_text("utf-8")


def _program(environment: str) -> Path:
    template = ENVIRONMENTS[environment]
    return _TEMPLATES / "environments" / _PROGRAMS.get(template, template) / "environment"


def _configuration(algorithm: str, kind: str) -> str:
    """Return the text of an algorithm's section of ``app.yaml`` for a kind of environment."""
    kind = ENVIRONMENTS.get(kind, kind)
    name = algorithm if algorithm == kind else f"{algorithm}-{kind}"
    if name not in configurations():
        raise ApplicationError(
            f"no configuration of algorithm {algorithm} for an environment of type {kind}, only of "
            f"{', '.join(configurations())}: write the section algorithm yourself"
            f"{instead_of(algorithm)}"
        )
    return (_TEMPLATES / "configs" / f"{name}.yaml").read_text("utf-8")


def _copy(template: Path, folder: Path) -> None:
    shutil.copytree(template, folder, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyi"))


def _replace(template: Path, folder: Path) -> None:
    if folder.exists():
        logger.info("keeping %s as %s", folder.name, kept := _kept(folder))
        folder.rename(kept)
    _copy(template, folder)
    logger.info("wrote %s", folder)


def _kept(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.name}.~{number}~")).exists():
        number += 1
    return kept
