"""`new`, `generate` and `configure`: write applications, and change what is theirs to change.

Whatever is replaced is kept beside: ``app.yaml.~1~``, ``environment.~1~``.
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
from rlwire.relaax.applications.configuration import ApplicationError, read_application

logger = logging.getLogger(__name__)

_TEMPLATES = Path(__file__).resolve().parent / "templates"

ENVIRONMENTS = ("bandit", "gym", "ale")
ALGORITHMS = ("bandit", "pg")
_DEFAULTS = {"bandit": "bandit", "gym": "pg", "ale": "pg"}


def new(
    name: str | os.PathLike[str], environment: str = "bandit", algorithm: str | None = None
) -> Path:
    """Make an application in a folder that does not exist yet; return the folder.

    Args:
        name: of the folder.
        environment: a template, of `ENVIRONMENTS`.
        algorithm: one of `ALGORITHMS`; by default a small one that learns this environment.
    """
    folder = Path(name)
    template = _environment(environment)
    text = (template / "app.yaml").read_text("utf-8")
    kind = re.search(r"^  type: (\w+)", text, re.M)
    assert kind is not None
    text += (_TEMPLATES / "servers.yaml").read_text("utf-8") + "\n"
    algorithm = algorithm or _DEFAULTS[environment]
    text += _configuration(algorithm, kind[1])
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ApplicationError(f"{folder} exists already; say another name") from None
    (folder / "app.yaml").write_text(text, "utf-8")
    _copy(template / "environment", folder / "environment")
    logger.info("made %s; to run it: cd %s && rlwire run all", folder, folder)
    return folder


def generate(
    environment: str | None = None,
    algorithm: str | None = None,
    config: str | os.PathLike[str] = "app.yaml",
) -> None:
    """Replace an application's environment by a template, or copy an algorithm to change it.

    Args:
        environment: of `ENVIRONMENTS`; its section of the file is replaced as well.
        algorithm: of `ALGORITHMS`; the folder ``algorithm`` gets its source, and the file names it.
        config: the application's file.
    """
    folder = Path(config).resolve().parent
    if environment is not None:
        template = _environment(environment)
        _replace(template / "environment", folder / "environment")
        section = _load((template / "app.yaml").read_text("utf-8"))
        _edit(config, section)
    if algorithm is not None:
        spec = importlib.util.find_spec(f"rlwire.relaax.algorithms.{algorithm}")
        if algorithm not in ALGORITHMS or spec is None or spec.origin is None:
            raise ApplicationError(
                f"there is no algorithm {algorithm} to copy; there are {', '.join(ALGORITHMS)}"
            )
        _replace(Path(spec.origin).parent, folder / "algorithm")
        application = read_application(config)
        kind = application.environment.type if application.environment else None
        found = _load(_configuration(algorithm, kind or "bandit"))["algorithm"]
        section = application.algorithm
        if section is not None and section.name == algorithm:
            found = None  # it is configured already
        _edit(config, {} if found is None else {"algorithm": found}, path="./algorithm")


def configure(
    algorithm: str | None = None,
    environment: str | None = None,
    config: str | os.PathLike[str] = "app.yaml",
) -> None:
    """Replace the sections of an application's file that configure these.

    Args:
        algorithm: of `ALGORITHMS`; for the environment that the file has.
        environment: of `ENVIRONMENTS`.
        config: the application's file.
    """
    application = read_application(config)
    sections: dict[str, Any] = {}
    kind = application.environment.type if application.environment else None
    if environment is not None:
        text = (_environment(environment) / "app.yaml").read_text("utf-8")
        sections |= _load(text)
        kind = sections["environment"]["type"]
    if algorithm is not None:
        if kind is None:
            raise ApplicationError(
                f"{application.name}: environment/type is missing, of which configurations are: "
                "bandit, gym or ale"
            )
        sections |= _load(_configuration(algorithm, kind))
    _edit(config, sections)


def configurations() -> dict[str, str]:
    """Return what each configuration of an algorithm is for, by the name of its file."""
    found = {}
    for path in sorted((_TEMPLATES / "configs").glob("*.yaml")):
        comment = re.match(r"(?:#.*\n)+", path.read_text("utf-8"))
        found[path.stem] = " ".join(comment[0].replace("#", " ").split()) if comment else ""
    return found


def _environment(name: str) -> Path:
    if name not in ENVIRONMENTS:
        raise ApplicationError(f"there is no environment {name}; say {', '.join(ENVIRONMENTS)}")
    return _TEMPLATES / "environments" / name


def _configuration(algorithm: str, kind: str) -> str:
    """Return the text of an algorithm's section for a kind of environment."""
    name = algorithm if algorithm == kind else f"{algorithm}-{kind}"
    file = _TEMPLATES / "configs" / f"{name}.yaml"
    if name not in configurations():
        raise ApplicationError(
            f"there is no configuration of {algorithm} for an environment of type {kind}; there "
            f"are {', '.join(configurations())}. Write the section algorithm yourself"
        )
    return file.read_text("utf-8")


def _copy(template: Path, folder: Path) -> None:
    shutil.copytree(template, folder, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyi"))


def _replace(template: Path, folder: Path) -> None:
    if folder.exists():
        logger.info("%s is kept as %s", folder.name, kept := _kept(folder))
        folder.rename(kept)
    _copy(template, folder)
    logger.info("wrote %s", folder)


def _kept(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.name}.~{number}~")).exists():
        number += 1
    return kept


def _yaml() -> Any:
    with optional("ruamel.yaml", "apps", "ruamel"):
        import ruamel.yaml
    return ruamel.yaml.YAML()  # keeps comments


def _load(text: str) -> Any:
    return _yaml().load(text)


def _edit(config: str | os.PathLike[str], sections: Mapping[str, Any], path: str = "") -> None:
    """Put sections in the place of a file's, which are kept otherwise as they are."""
    yaml, file = _yaml(), Path(config)
    read_application(file)
    found = yaml.load(file.read_text("utf-8"))
    for name, section in sections.items():
        found[name] = section
    algorithm = found.get("algorithm")
    if path and algorithm is not None:
        algorithm.pop("path", None)
        algorithm.insert(0, "path", path, "without this line, what is shipped is used")
    kept = _kept(file)
    shutil.copy2(file, kept)
    with open(file, "w", encoding="utf-8") as writing:
        yaml.dump(found, writing)
    logger.info("wrote %s; as it was: %s", file.name, kept.name)
