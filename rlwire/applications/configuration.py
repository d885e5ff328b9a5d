"""``app.yaml``: what an application is made of, read and checked.

Names are RELAAX's, in both spellings: ``relaax-rlx-server`` and ``relaax_rlx_server``. Whatever is
wrong is said with the file and the line. Not here: what an environment reads of the same file, with
settings of its own (`rlwire.adapters.relaax.options`).
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from rlwire import options as texts
from rlwire.adapters.relaax.config import read, setting_name, truth
from rlwire.errors import RlwireError, optional, quoted
from rlwire.options import Option
from rlwire.protocol_options import RLX, RLX_WS
from rlwire.transports.address import Address, parse

__all__ = [
    "AlgorithmSection",
    "Application",
    "ApplicationError",
    "EnvironmentSection",
    "MetricsServerSection",
    "ParameterServerSection",
    "ProxySection",
    "RLXServerSection",
    "read_application",
]

logger = logging.getLogger(__name__)

_Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
_Section = TypeVar("_Section", bound="Section")


class ApplicationError(RlwireError, ValueError):
    """Something is wrong with an application; the text has the place, such as ``app.yaml:12``."""


@dataclass(frozen=True)
class Section:
    """Base of sections; its fields are what may stand in one.

    Attributes:
        place: the file and line where it begins, for errors.
        own: what else stands in it, by name, where anything may.
        given: options of the protocol that is served, as they are written.
        options: the same as keywords.
    """

    passed_over: ClassVar[tuple[str, ...]] = ()
    """What RELAAX has, and is of no effect here."""
    refused: ClassVar[Mapping[str, str]] = {}
    """What RELAAX has, and what to write instead."""
    open: ClassVar[bool] = False
    """Whether other names are somebody else's to understand."""
    protocol: ClassVar[tuple[Option, ...]] = ()
    """Options that may stand in it as well."""

    place: str = ""
    own: Mapping[str, Any] = field(default_factory=dict)
    given: Sequence[tuple[str, str]] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvironmentSection(Section):
    """``environment``; whatever else stands in it is the environment's own.

    Attributes:
        run: the command that starts it, in the application's folder.
        type: which template it is of; says which configurations of algorithms fit.
        max_episodes: how many episodes to run; see `rlwire.adapters.relaax.TrainingBase`.
        infinite_run: go on after these.
    """

    open = True

    run: str | None = None
    type: str | None = None
    max_episodes: int | None = None
    infinite_run: bool = False


def _except(protocol: Sequence[Option], *names: str) -> tuple[Option, ...]:
    return tuple(o for o in protocol if o.of("server") and o.name not in names)


@dataclass(frozen=True)
class RLXServerSection(Section):
    """``relaax-rlx-server``; the options of a server of ``rlx://`` may stand in it.

    Attributes:
        bind: where to listen, ``host:port`` or ``unix:/path``.
        bind_by_env_var: the variable that has it instead, if it is set.
        log_level: of what is logged.
    """

    passed_over = ("protocol", "timeout", "profile_dir", "metrics_server", "parameter_server")
    protocol = _except(RLX, "parameter_server", "metrics", "config", "checkpoints")

    bind: str = "localhost:7001"
    bind_by_env_var: str | None = None
    log_level: _Level = "INFO"

    @property
    def address(self) -> Address:
        """Where to listen."""
        return _address(self, os.environ.get(self.bind_by_env_var or "") or self.bind)


@dataclass(frozen=True)
class ParameterServerSection(Section):
    """``relaax-parameter-server``.

    Attributes:
        home: where it lives: in the RLX server's process, or on Ray.
        deadline: seconds that an agent waits for it.
        checkpoint_dir: where checkpoints are kept, a folder; nowhere if not set.
        checkpoint_step_interval: after how many steps one is saved.
        checkpoint_time_interval: after how many seconds one is saved.
        checkpoints_to_keep: how many of the latest.
        best_checkpoints_to_keep: how many of those with the best scores.
    """

    passed_over = (
        *("bind", "bind_by_env_var", "log_level", "metrics_dir", "metrics_server"),
        *("profile_dir", "aws_access_key", "aws_secret_key", "aws_keys"),
    )
    refused = types.MappingProxyType({"checkpoint_aws_s3": "checkpoint-dir, a local folder"})

    home: Literal["server", "ray"] = "server"
    deadline: float = 60.0
    checkpoint_dir: str | None = None
    checkpoint_step_interval: int | None = None
    checkpoint_time_interval: float | None = None
    checkpoints_to_keep: int = 5
    best_checkpoints_to_keep: int = 1


@dataclass(frozen=True)
class MetricsServerSection(Section):
    """``relaax-metrics-server``.

    Attributes:
        metrics_dir: where TensorBoard's files are written; none if not set.
        log_metrics_to_console: whether each measurement is logged.
        enable_unknown_metrics: whether metrics are kept that `metrics` does not name.
        metrics: which are kept, by name.
    """

    passed_over = ("bind", "log_level", "log_metrics", "profile_dir", "bind_by_env_var")

    metrics_dir: str | None = None
    log_metrics_to_console: bool = False
    enable_unknown_metrics: bool = False
    metrics: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class ProxySection(Section):
    """``relaax-wsproxy``, for pages; the options of a server of ``rlx-ws://`` may stand in it.

    Attributes:
        bind: where to listen, ``host:port``.
        log_level: of what is logged.
    """

    passed_over = ("rlx_server", "profile_dir")
    protocol = _except(RLX_WS)

    bind: str = "localhost:9000"
    log_level: _Level = "INFO"

    @property
    def address(self) -> Address:
        """Where to listen."""
        return _address(self, self.bind)


# RELAAX's algorithms: those whose settings pg understands, and what comes near to the others.
_LIKE_PG = ("policy_gradient", "policy-gradient", "da3c")
_NEAREST = {"trpo": "PPO", "dppo": "PPO", "dqn": "DQN", "ddpg": "SAC"}


@dataclass(frozen=True)
class AlgorithmSection(Section):
    """``algorithm``; whatever else stands in it is the algorithm's own.

    Attributes:
        name: of a shipped algorithm or a module's, or ``rllib:NAME`` of one of RLlib's.
        path: of a folder that has it instead, from the application's folder on.
    """

    open = True

    name: str | None = None
    path: str | None = None

    @property
    def thing(self) -> str:
        """What is served: ``algorithm:...`` or ``rllib:...``.

        RELAAX's own algorithms are not here: for two of them `pg` is taken, which the log says.

        Raises:
            ApplicationError: none is named, or another of RELAAX's.
        """
        if self.path is not None:
            return f"algorithm:{self.path}"
        if self.name is None:
            raise ApplicationError(f"{self.place}: algorithm needs a name or a path")
        name = self.name
        if name in _LIKE_PG:
            logger.warning("%s: %s is RELAAX's; what learns here is pg", self.place, name)
            name = "pg"
        if name in _NEAREST:
            near = f"rllib:{_NEAREST[name]}"
            raise ApplicationError(
                f"{self.place}: {name} is RELAAX's; {near} comes near to it, with other settings: "
                f"rlwire config -a {near}"
            )
        return name if name.startswith("rllib:") else f"algorithm:{name}"


@dataclass(frozen=True)
class Application:
    """An application, as its file has it; a section that is not there is None.

    Attributes:
        path: of the file, absolute.
        environment: what calls.
        rlx_server: what it calls.
        parameter_server: what learns.
        metrics_server: where metrics go.
        wsproxy: what stands between pages and the RLX server.
        algorithm: what is learned with.
    """

    path: str
    environment: EnvironmentSection | None = None
    rlx_server: RLXServerSection | None = None
    parameter_server: ParameterServerSection | None = None
    metrics_server: MetricsServerSection | None = None
    wsproxy: ProxySection | None = None
    algorithm: AlgorithmSection | None = None

    @property
    def folder(self) -> str:
        """Where the file is, and everything else from there on."""
        return os.path.dirname(self.path)

    @property
    def name(self) -> str:
        """Of the file, as errors have it."""
        return os.path.basename(self.path)


_SECTIONS: dict[str, tuple[str, type[Section]]] = {
    "environment": ("environment", EnvironmentSection),
    "relaax_rlx_server": ("rlx_server", RLXServerSection),
    "relaax_parameter_server": ("parameter_server", ParameterServerSection),
    "relaax_metrics_server": ("metrics_server", MetricsServerSection),
    "relaax_wsproxy": ("wsproxy", ProxySection),
    "algorithm": ("algorithm", AlgorithmSection),
}
# What an environment reads, or RELAAX did.
_BESIDE = (
    *("version", "log_level", "short_log_messages", "exploit", "show_ui", "rlx_server_address"),
    *("enable_unknown_metrics", "metrics"),
)


def read_application(path: str | os.PathLike[str] = "app.yaml") -> Application:
    """Read an application's file.

    Raises:
        ApplicationError: it is not there, is not YAML, or something in it makes no sense.
        MissingExtra: ruamel.yaml is not installed.
    """
    path = os.fspath(path)
    with optional("ruamel.yaml", "apps", "ruamel"):
        import ruamel.yaml
    try:
        values = read(path)
        with open(path, encoding="utf-8") as file:
            places = ruamel.yaml.YAML().load(file)  # this one knows lines
    except FileNotFoundError:
        raise ApplicationError(
            f"there is no {path}: `rlwire new NAME` makes an application, and its folder is where "
            "to run it; or say --config FILE"
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
                raise ApplicationError(f"{line}: {key} is there twice, in two spellings")
            if value is not None and not isinstance(value, Mapping):
                raise ApplicationError(f"{line}: {key} must be a section, not {quoted(value)}")
            sections[attribute] = _section(kind, str(key), value or {}, places[key], line)
        elif known not in _BESIDE:
            near = _near(known, [*_SECTIONS, *_BESIDE])
            raise ApplicationError(f"{line}: there is no section {key}{near}")
    return Application(os.path.abspath(path), **sections)


def _section(
    kind: type[_Section], section: str, values: Mapping[Any, Any], places: Any, line: str
) -> _Section:
    name = line.rpartition(":")[0]
    hints = typing.get_type_hints(kind)
    fields = {each.name for each in dataclasses.fields(kind)} - {"place", "own", "given", "options"}
    options = {option.name: option for option in kind.protocol}
    found: dict[str, Any] = {}
    own: dict[str, Any] = {}
    given: list[tuple[str, str]] = []
    seen = set()
    for key, value in values.items():
        where, known = f"{_line(name, places, key)}: {section}/{key}", setting_name(key)
        if known in seen:
            raise ApplicationError(f"{where}: it is there twice, in two spellings")
        seen.add(known)
        try:
            if known in fields:
                found[known] = _value(hints[known], value)
            elif known in options:
                for each in value if isinstance(value, list) else [value]:
                    options[known].read(_text(each))
                    given.append((known, _text(each)))
            elif known in kind.refused:
                raise ValueError(f"write instead {kind.refused[known]}")
            elif kind.open:
                own[str(key)] = value
            elif known not in kind.passed_over:
                near = _near(known, [*fields, *options])
                raise ValueError(f"there is no such setting{near}")
        except (ValueError, OSError) as error:
            raise ApplicationError(f"{where}: {error}") from None
    if options:
        scheme = "rlx" if kind is RLXServerSection else "rlx-ws"
        found["options"] = texts.keywords(kind.protocol, given, "server", scheme)
    return kind(line, own, given, **found)


def _value(hint: Any, value: Any) -> Any:
    """Return a value as a field's type says, or raise ValueError."""
    kinds = [each for each in typing.get_args(hint) if each is not type(None)]
    origin = typing.get_origin(hint)
    if origin is Literal:
        text = str(value)
        for choice in typing.get_args(hint):
            if choice.lower() == text.lower():
                return choice
        raise ValueError(f"expected {' or '.join(typing.get_args(hint))}, not {quoted(value)}")
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if value is not None and not isinstance(value, Mapping):
            raise ValueError(f"expected names, each true or false, not {quoted(value)}")
        return {str(name): truth(each) for name, each in (value or {}).items()}
    if kinds:  # or None
        return None if value is None else _value(kinds[0], value)
    if hint is bool:
        return truth(value)
    if hint is str:
        if not isinstance(value, str) or not value:
            raise ValueError(f"expected a text, not {quoted(value)}")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"expected a number above 0, not {quoted(value)}")
    if hint is int and value != int(value):
        raise ValueError(f"expected a whole number, not {quoted(value)}")
    return hint(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _near(name: str, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {found[0].replace('_', '-')}?" if found else ""


def _line(name: str, places: Any, key: Any) -> str:
    return f"{name}:{places.lc.key(key)[0] + 1}"


def _address(section: Section, bind: str) -> Address:
    try:
        return parse(bind)
    except ValueError as error:
        raise ApplicationError(f"{section.place}: bind: {error}") from None
