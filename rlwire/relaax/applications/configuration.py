"""Read ``app.yaml``, with names in both of RELAAX's spellings; errors name the line."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from rlwire import _options
from rlwire.errors import RlwireError, quoted
from rlwire.rlx.config import read, setting_name, typed, yaml
from rlwire.rlx.options import OPTIONS
from rlwire.transports.address import Address, parse

__all__ = [
    "AlgorithmSection",
    "Application",
    "ApplicationError",
    "EnvironmentSection",
    "MetricsServerSection",
    "ParameterServerSection",
    "RLXServerSection",
    "read_application",
]

logger = logging.getLogger(__name__)

_Section = TypeVar("_Section", bound="Section")


class ApplicationError(RlwireError, ValueError):
    """An application is invalid; the text names the line, such as ``app.yaml:12``."""


@dataclass(frozen=True)
class Section:
    """Base class of sections; fields are settings."""

    open: ClassVar[bool] = False  # whether other settings are allowed, in `own`

    place: str = ""  # file and line, for errors
    own: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvironmentSection(Section):
    open = True

    run: str | None = None  # command
    type: str | None = None  # template, which selects configurations of algorithms
    max_episodes: int | None = None
    infinite_run: bool = False


@dataclass(frozen=True)
class RLXServerSection(Section):
    """The section ``relaax-rlx-server``; `own` has options of `rlwire.serve` over RLX."""

    open = True

    bind: str = "localhost:7001"
    bind_by_env_var: str | None = None  # environment variable that overrides `bind`
    log_level: str = "INFO"

    @property
    def address(self) -> Address:
        try:
            return parse(os.environ.get(self.bind_by_env_var or "") or self.bind)
        except ValueError as error:
            raise ApplicationError(f"{self.place}: bind: {error}") from None

    @property
    def options(self) -> dict[str, Any]:
        given = [
            (setting_name(name), str(each).lower() if isinstance(each, bool) else str(each))
            for name, value in self.own.items()
            for each in (value if isinstance(value, list) else [value])
        ]
        try:
            if elsewhere := [name for name, _ in given if name in _ELSEWHERE]:
                raise ValueError(f"{elsewhere[0]} is not a setting of this section")
            return _options.keywords(OPTIONS, "server", "rlx", given)
        except (ValueError, OSError) as error:
            raise ApplicationError(f"{self.place}: {error}") from None


@dataclass(frozen=True)
class ParameterServerSection(Section):
    checkpoint_dir: str | None = None  # None for no checkpoints
    checkpoint_step_interval: int | None = None
    checkpoint_time_interval: float | None = None  # seconds
    checkpoints_to_keep: int = 5


@dataclass(frozen=True)
class MetricsServerSection(Section):
    metrics_dir: str | None = None  # for TensorBoard's files
    log_metrics_to_console: bool = False


@dataclass(frozen=True)
class AlgorithmSection(Section):
    """The section ``algorithm``: `name` of a shipped one or a module, or `path` of a folder."""

    open = True

    name: str | None = None
    path: str | None = None


@dataclass(frozen=True)
class Application:
    """The sections of an application's file; None for a missing one."""

    path: str
    environment: EnvironmentSection | None = None
    rlx_server: RLXServerSection | None = None
    parameter_server: ParameterServerSection | None = None
    metrics_server: MetricsServerSection | None = None
    algorithm: AlgorithmSection | None = None

    def served(self) -> tuple[RLXServerSection, AlgorithmSection]:
        """Return the sections of the server and its algorithm; ApplicationError without them."""
        if self.rlx_server is None or self.algorithm is None:
            missing = "relaax-rlx-server" if self.rlx_server is None else "algorithm"
            raise ApplicationError(f"{self.name} has no section {missing}")
        return self.rlx_server, self.algorithm

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


_SECTIONS: dict[str, tuple[str, type[Section]]] = {
    "environment": ("environment", EnvironmentSection),
    "relaax_rlx_server": ("rlx_server", RLXServerSection),
    "relaax_parameter_server": ("parameter_server", ParameterServerSection),
    "relaax_metrics_server": ("metrics_server", MetricsServerSection),
    "algorithm": ("algorithm", AlgorithmSection),
}
# Options of RLX servers that other sections set.
_ELSEWHERE = ("parameter_server", "metrics", "config", "checkpoints")
# Settings of RELAAX's servers without an effect in rlwire.
_IGNORED = (
    *("bind", "bind_by_env_var", "log_level", "log_metrics", "profile_dir", "metrics_dir"),
    *("enable_unknown_metrics", "metrics", "metrics_server", "parameter_server"),
    *("protocol", "timeout", "best_checkpoints_to_keep", "checkpoint_aws_s3"),
    *("aws_access_key", "aws_secret_key", "aws_keys"),
)


def read_application(path: str | os.PathLike[str] = "app.yaml") -> Application:
    """Read an application's file.

    Raises:
        ApplicationError: there is no such file, it is not YAML, or a setting is invalid.
        MissingExtra: ruamel.yaml is not installed.
    """
    path = os.fspath(path)
    try:
        values = read(path)
        with open(path, encoding="utf-8") as file:
            places = yaml().load(file)  # the same, with line numbers
    except FileNotFoundError:
        raise ApplicationError(
            f"there is no {path}: run this in an application's folder, or pass --config FILE; "
            "`rlwire new NAME` creates an application"
        ) from None
    except (OSError, ValueError) as error:
        raise ApplicationError(" ".join(str(error).split())) from error
    name = os.path.basename(path)
    sections: dict[str, Any] = {}
    for key, value in values.items():
        line, known = _line(name, places, key), setting_name(key)
        if known in _SECTIONS:
            attribute, kind = _SECTIONS[known]
            if attribute in sections:
                raise ApplicationError(f"{line}: {key} is a second spelling of a section above")
            if value is not None and not isinstance(value, Mapping):
                raise ApplicationError(f"{line}: {key} must be a section, not {quoted(value)}")
            sections[attribute] = _section(kind, str(key), value or {}, places[key], line)
    return Application(os.path.abspath(path), **sections)


def _section(
    kind: type[_Section], section: str, values: Mapping[Any, Any], places: Any, line: str
) -> _Section:
    name = line.rpartition(":")[0]
    fields = {each.name: str(each.type) for each in dataclasses.fields(kind)}
    del fields["place"], fields["own"]
    found: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for key, value in values.items():
        where, known = f"{_line(name, places, key)}: {section}/{key}", setting_name(key)
        if known in found:
            raise ApplicationError(f"{where} is a second spelling of a setting above")
        if known in fields:
            try:
                found[known] = typed(fields[known], value)
            except ValueError as error:
                raise ApplicationError(f"{where}: {error}") from None
        elif known in _IGNORED and section.startswith("relaax"):
            logger.debug("ignoring %s, which has no effect in rlwire", where)
        elif kind.open:
            own[str(key)] = value
        else:
            raise ApplicationError(f"{where}: unknown setting, expected {', '.join(fields)}")
    return kind(line, own, **found)


def _line(name: str, places: Any, key: Any) -> str:
    return f"{name}:{places.lc.key(key)[0] + 1}"
