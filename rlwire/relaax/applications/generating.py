"""`new`, `generate` and `configure`: create and change applications.

Replaced files and folders are kept, as ``app.yaml.~1~`` and ``environment.~1~``.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlwire.errors import optional
from rlwire.relaax.algorithm import instead_of
from rlwire.relaax.applications.configuration import ApplicationError, read_application

logger = logging.getLogger(__name__)

_TEMPLATES = Path(__file__).resolve().parent / "templates"

ENVIRONMENTS = {"bandit": "bandit", "gym": "gym", "openai-gym": "gym", "ale": "gym"}
"""Names of environments, and the template with the program of each."""
_ALIASES = {"openai-gym": "gym"}  # RELAAX's name
_WITHOUT_TEMPLATE = {  # RELAAX's
    "deepmind-lab": "copy RELAAX's folder environment, which imports deepmind_lab, into an "
    "application made with -e bandit, and set environment/run to the command that starts it",
    "vizdoom": "use -e gym, and set environment/name to one of the package vizdoom, such as "
    "vizdoom.gymnasium_wrapper:VizdoomBasic-v0",
}
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

    Replaces the section of the environment too. Copies the algorithm to the folder ``algorithm``,
    and sets its path in the file.
    """
    folder = Path(config).resolve().parent
    if environment is not None:
        section = _yaml().load(_environment(environment))
        _replace(_program(environment), folder / "environment")
        _edit(config, section)
    if algorithm is not None:
        spec = importlib.util.find_spec(f"rlwire.relaax.algorithms.{algorithm}")
        if algorithm not in ALGORITHMS or spec is None or spec.origin is None:
            raise ApplicationError(
                f"no algorithm {algorithm}: expected one of {', '.join(ALGORITHMS)}"
                f"{instead_of(algorithm)}"
            )
        _replace(Path(spec.origin).parent, folder / "algorithm")
        application = read_application(config)
        section = application.algorithm
        sections: dict[str, Any] = {}
        if section is None or section.name != algorithm:
            kind = (application.environment and application.environment.type) or "bandit"
            sections = _yaml().load(_configuration(algorithm, kind))
        _edit(config, sections, path="./algorithm")


def configure(
    environment: str | None = None,
    algorithm: str | None = None,
    config: str | os.PathLike[str] = "app.yaml",
) -> None:
    application = read_application(config)
    sections: dict[str, Any] = {}
    kind = environment or (application.environment.type if application.environment else None)
    if environment is not None:
        sections |= _yaml().load(_environment(environment))
    if algorithm is not None:
        if kind is None:
            raise ApplicationError(
                f"{application.name}: environment/type is missing: set it to one of "
                f"{', '.join(ENVIRONMENTS)}"
            )
        sections |= _yaml().load(_configuration(algorithm, kind))
    _edit(config, sections)


def configurations() -> dict[str, str]:
    found = {}
    for path in sorted((_TEMPLATES / "configs").glob("*.yaml")):
        comment = re.match(r"(?:#.*\n)+", path.read_text("utf-8"))
        found[path.stem] = " ".join(comment[0].replace("#", " ").split()) if comment else ""
    return found


def _environment(name: str) -> str:
    name = _ALIASES.get(name, name)
    if name not in ENVIRONMENTS:
        way = _WITHOUT_TEMPLATE.get(name)
        raise ApplicationError(
            f"no environment template {name}: expected one of {', '.join(ENVIRONMENTS)}"
            + (f"; {way}" if way else "")
        )
    return (_TEMPLATES / "environments" / name / "app.yaml").read_text("utf-8")


def _program(environment: str) -> Path:
    return _TEMPLATES / "environments" / ENVIRONMENTS[environment] / "environment"


def _configuration(algorithm: str, kind: str) -> str:
    """Return the text of an algorithm's section of ``app.yaml`` for a kind of environment."""
    kind = _ALIASES.get(kind, kind)
    name = algorithm if algorithm == kind else f"{algorithm}-{kind}"
    if name not in configurations():
        raise ApplicationError(
            f"no configuration of {algorithm} for an environment of type {kind}, only of "
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


def _yaml() -> Any:
    with optional("ruamel.yaml", "relaax", "ruamel"):
        import ruamel.yaml
    return ruamel.yaml.YAML()  # preserves comments


def _edit(config: str | os.PathLike[str], sections: Mapping[str, Any], path: str = "") -> None:
    file = Path(config)
    read_application(file)
    found = _yaml().load(file.read_text("utf-8"))
    found.update(sections)
    algorithm = found.get("algorithm")
    if path and algorithm is not None:
        algorithm.pop("path", None)
        algorithm.insert(0, "path", path, "remove this line to use rlwire's")
    kept = _kept(file)
    shutil.copy2(file, kept)
    with open(file, "w", encoding="utf-8") as writing:
        _yaml().dump(found, writing)
    logger.info("wrote %s, and kept the old one as %s", file.name, kept.name)
