"""`options`: the settings of a RELAAX environment, from its command line and its YAML file.

The interface is that of `relaax.environment.config`; docs/protocols/rlx.md lists the differences.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlwire.errors import optional, quoted

logger = logging.getLogger(__name__)

DEFAULT_ADDRESS = "localhost:7001"  # RELAAX's own default for its RLX server
VERSION = "1.1.0"  # of RELAAX
_DEFAULTS = {
    "config": None, "exploit": False, "show_ui": False, "short_log_messages": True,
    "log_level": "DEBUG",
}  # fmt: skip
# Flags: name, type, metavar and help. The last two are settings of the section ``environment``.
_FLAGS = (
    ("config", "str", "FILE", "RELAAX's YAML file (app.yaml)"),
    ("rlx_server_address", "str", "HOST:PORT[,...]",
     "RLX server, or several separated by commas (default: the file's relaax-rlx-server/bind, or "
     f"{DEFAULT_ADDRESS})"),
    ("exploit", "bool", "True|False", "ask the agent not to explore or learn (default: False)"),
    ("show_ui", "bool", "True|False", "show the environment's user interface (default: False)"),
    ("short_log_messages", "bool", "True|False",
     "log messages without time and logger name (default: True)"),
    ("max_episodes", "int", "N",
     "how many episodes to run (default: the file's environment/max_episodes, or 1)"),
    ("infinite_run", "bool", "True|False",
     "continue after max-episodes (default: the file's environment/infinite_run, or False)"),
)  # fmt: skip


class Options:
    """Settings by name; a section is an `Options` inside.

    ``relaax-rlx-server`` and ``relaax_rlx_server`` are the same name.
    """

    def __init__(self, values: Mapping[Any, Any] | None = None) -> None:
        self._values: dict[str, Any] = {}
        for name, value in (values or {}).items():
            self._values[setting_name(name)] = (
                Options(value) if isinstance(value, Mapping) else value
            )

    def get(self, path: str, default: Any = None) -> Any:
        """Return the setting or section at a path such as ``"environment/max_episodes"``."""
        found: Any = self
        for name in map(setting_name, path.split("/")):
            if not isinstance(found, Options) or name not in found._values:
                return default
            found = found._values[name]
        return found

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._values:
            return self._values[name]
        raise AttributeError(f"there is no setting {name!r}", name=name, obj=self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)


class EnvironmentOptions(Options):
    """Settings of an environment program; `options` is this program's instance."""

    def __init__(self) -> None:
        """Read nothing yet."""

    @functools.cached_property
    def _values(self) -> dict[str, Any]:  # type: ignore[override]
        return self.load()._values

    def load(self, argv: Sequence[str] | None = None) -> EnvironmentOptions:
        """Read a command line, by default this program's, and the file that it names.

        With a file, log records from its ``log_level`` (default: DEBUG) go to standard output,
        unless logging is configured already.

        Raises:
            SystemExit: an argument is invalid, or asks for help.
            OSError: the file cannot be read.
            ValueError: the file is not YAML, or a setting in it is invalid.
            MissingExtra: ruamel.yaml is not installed.
        """
        flags, unknown = _parser().parse_known_args(sys.argv[1:] if argv is None else list(argv))
        self._values = _settings(vars(flags))
        if unknown:
            logger.warning("unknown arguments, ignored by rlwire: %s", quoted(" ".join(unknown)))
        return self


options = EnvironmentOptions()
"""The settings of this program, read at the first access."""


def yaml(**options: Any) -> Any:
    """Return ruamel's parser, as in RELAAX: to PyYAML, which reads YAML 1.1, 1e-4 is a string."""
    with optional("ruamel.yaml", "relaax", "ruamel"):
        import ruamel.yaml
    return ruamel.yaml.YAML(**options)


def read(path: str) -> Mapping[Any, Any]:
    """Return the sections of a YAML file, with their original names; errors as in `load`."""
    parser = yaml(typ="safe", pure=True)
    from ruamel.yaml import YAMLError

    with open(path, encoding="utf-8") as file:
        try:
            found = parser.load(file)
        except (YAMLError, UnicodeError) as error:
            raise ValueError(f"{path} cannot be read as YAML: {error}") from error
    if not isinstance(found, Mapping):
        raise ValueError(
            f"{path} must hold sections, such as 'environment:', not {type(found).__name__}"
        )
    return found


def section(written: str, default: str = "algorithm") -> Options:
    """Return a section of a YAML file, ``"FILE"`` or ``"FILE:SECTION"``; errors as in `read`."""
    path, colon, name = written.rpartition(":")
    if not colon or os.path.exists(written):
        path, name = written, default
    found = Options(read(path)).get(name.replace(".", "/"))
    if not isinstance(found, Options):
        raise ValueError(f"{path} has no section {name!r} with an algorithm's settings")
    return found


def _settings(flags: dict[str, Any]) -> dict[str, Any]:
    """Return all settings by name, from the file that the flags name and from the flags."""
    path = flags.get("config")
    file = Options(None if path is None else read(path))
    environment = file.get("environment")
    if environment is None:
        environment = Options()
    if not isinstance(environment, Options):
        raise ValueError(f"{path}: environment must be a section, not {environment!r:.60}")
    for name, kind, _, _ in _FLAGS:
        inside = name in ("max_episodes", "infinite_run")
        values = (environment if inside else file)._values
        if name in values and kind != "str":
            try:
                values[name] = typed(kind, values[name])
            except (ValueError, OverflowError) as error:
                where = f"environment/{name}" if inside else name
                raise ValueError(f"{path}: {where}: {error}") from None
        if name in flags:
            values[name] = flags.pop(name)
    found = {**_DEFAULTS, **file._values}
    if environment._values:
        found["environment"] = environment
    if path is not None:
        _set_up_log(path, found)
        version = found.get("version")
        if version not in (None, VERSION):
            logger.warning("%s has version %s and is read as %s", path, version, VERSION)
    if "rlx_server_address" not in found:
        found["rlx_server_address"] = _address(path, file)
    return found


def _address(path: str | None, file: Options) -> str:
    variable = file.get("relaax_rlx_server/bind_by_env_var")
    bind = os.environ.get(variable) if isinstance(variable, str) else None
    bind = file.get("relaax_rlx_server/bind") if bind is None else bind
    if bind is not None and not isinstance(bind, str):
        raise ValueError(f"{path}: relaax-rlx-server/bind must be 'host:port', not {bind!r:.60}")
    if bind is None and path is not None:
        logger.warning("%s has no relaax-rlx-server/bind: using %s", path, DEFAULT_ADDRESS)
    return DEFAULT_ADDRESS if bind is None else bind


def _set_up_log(path: str, found: dict[str, Any]) -> None:
    level = str(found["log_level"]).upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        raise ValueError(f"{path}: log_level must be DEBUG, INFO, ..., not {level!r:.60}")
    short = "%(message)s"
    logging.basicConfig(
        stream=sys.stdout,
        datefmt="%H:%M:%S",
        format=short if found["short_log_messages"] else f"[%(asctime)s]:[%(name)s]: {short}",
        level=level,
    )


def _parser() -> argparse.ArgumentParser:
    # No abbreviations: "--max" may be the program's own.
    parser = argparse.ArgumentParser(allow_abbrev=False, argument_default=argparse.SUPPRESS)
    kinds: dict[str, Any] = {"str": str, "int": int, "bool": boolean}
    for name, kind, metavar, text in _FLAGS:
        alone: Any = {"nargs": "?", "const": True} if name == "infinite_run" else {}
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=kinds[kind], metavar=metavar, help=text, **alone)
    return parser


def boolean(value: Any) -> bool:
    """Return the boolean of a word of RELAAX's command line or YAML 1.1, or raise ValueError."""
    if isinstance(value, bool):
        return value
    lower = str(value).lower()
    if lower in ("yes", "true", "t", "y", "1", "on"):
        return True
    if lower in ("no", "false", "f", "n", "0", "off"):
        return False
    raise ValueError(f"expected True or False, not {value!r:.60}")


def typed(kind: str, value: Any) -> Any:
    """Convert a value to a type such as ``"int | None"``, or raise ValueError."""
    kind, _, nothing = kind.partition(" | ")
    if nothing and (value is None or value is False):
        return None
    if kind == "bool":
        return boolean(value)
    if kind == "str" and isinstance(value, str) and value:
        return value
    if kind.startswith("tuple[") and isinstance(value, list):
        inner = kind[len("tuple[") : kind.index(",")]
        return tuple(typed(inner, each) for each in value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if kind == "float":
            return float(value)
        if kind == "int" and float(value).is_integer():  # 1e6 is a float
            return int(value)
    raise ValueError(f"expected {kind}, not {value!r:.60}")


def setting_name(text: Any) -> str:
    text = str(text)
    return re.sub(r"^[^A-Za-z]+", "", re.sub(r"\W", "_", text)) or text
