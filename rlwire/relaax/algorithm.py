"""Load algorithms: an `Agent` and a `ParameterServer`, by name or folder.

As in RELAAX, a folder defines them in ``agent.py`` and ``parameter_server.py``; a module in itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from rlwire.errors import RlwireError
from rlwire.rlx.config import Options

_SHIPPED = "rlwire.relaax.algorithms"

# RELAAX's algorithms, and those that come closest: docs/howto/applications.md.
_SIMILAR = {
    "policy-gradient": "algorithm:pg",
    "da3c": "algorithm:pg or rllib:IMPALA",
    "trpo": "rllib:PPO",
    "dppo": "rllib:PPO --runners N",
    "dqn": "rllib:DQN",
    "ddpg": "rllib:SAC",
}


class AlgorithmError(RlwireError, ImportError):
    """There is no such algorithm, or it has no `Agent` or no `ParameterServer`."""


@dataclass(frozen=True)
class Algorithm:
    """An agent and its parameter server.

    Attributes:
        name: name in checkpoints and errors.
        agent: called for each environment, as ``agent(parameter_server)`` or
            ``agent(parameter_server, metrics)``.
        parameter_server: called once, as ``parameter_server(config, metrics)``; a subclass of
            `rlwire.relaax.parameter_server.ParameterServer`.
        config: settings of both.
    """

    name: str
    agent: Callable[..., Any]
    parameter_server: Callable[..., Any]
    config: Options
    _source: tuple[Any, ...] | None = field(default=None, repr=False, compare=False)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.agent)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.agent(*arguments, **keywords)

    def __reduce__(self) -> Any:
        # Another process cannot import modules of a folder by name.
        if self._source is not None:
            return load_algorithm, self._source
        return Algorithm, (self.name, self.agent, self.parameter_server, self.config)


def load_algorithm(
    where: str | os.PathLike[str], config: Mapping[str, Any] | Options | None = None
) -> Algorithm:
    """Import an algorithm's `Agent` and `ParameterServer`.

    Args:
        where: the name of an algorithm that rlwire ships, such as ``"pg"``; the path of a folder or
            Python file; or ``"package.module"``.
        config: settings, the section ``algorithm`` of ``app.yaml``. For a path, its `name` is the
            algorithm's name (default: the file's name).

    Raises:
        AlgorithmError: there is no such algorithm, or it has no `Agent` or no `ParameterServer`.
        Exception: raised by the algorithm's modules.
    """
    where = os.fspath(where)
    options = config if isinstance(config, Options) else Options(config)
    if "/" in where or os.sep in where or where.endswith(".py") or os.path.isdir(where):
        where = os.path.abspath(where)
        module, name = _of_path(where)
        # With the same name, a copy can read the original's checkpoints.
        name = str(options.get("name", name))
    else:
        module, name = _of_name(where), where.rpartition(".")[2]
    found = {attribute: _find(where, module, attribute) for attribute in _FILES}
    return Algorithm(name, found["Agent"], found["ParameterServer"], options, (where, options))


def instead_of(name: str) -> str:
    """Return the remedy for a name of RELAAX's, for errors; "" for other names."""
    similar = _SIMILAR.get(name.replace("_", "-"))
    return f"; a similar one: rlwire serve {similar} rlx://HOST:PORT" if similar else ""


_FILES = {"Agent": "agent", "ParameterServer": "parameter_server"}


def _of_name(where: str) -> ModuleType:
    for name in (f"{_SHIPPED}.{where}", where):
        if _exists(name):
            return importlib.import_module(name)
    raise AlgorithmError(
        f"no algorithm {where}: expected one that rlwire ships, a module, or a folder "
        f"{os.path.abspath(where)}{instead_of(where)}"
    )


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            return False
        raise  # the package `name` is in lacks another
    except ValueError:
        return False


def _of_path(path: str) -> tuple[ModuleType, str]:
    """Import a file or a folder, under a unique name; return its module and own name."""
    if not os.path.exists(path):
        raise AlgorithmError(f"no algorithm: there is no folder or file {path}")
    name = os.path.splitext(os.path.basename(path))[0]
    unique = f"_algorithm_{zlib.crc32(path.encode()):08x}_{re.sub(r'[^0-9A-Za-z_]', '_', name)}"
    if unique in sys.modules:
        return sys.modules[unique], name
    places = [path] if os.path.isdir(path) else None
    file = os.path.join(path, "__init__.py") if places else path
    spec = importlib.util.spec_from_file_location(unique, file, submodule_search_locations=places)
    if spec is None or spec.loader is None:
        raise AlgorithmError(f"no algorithm: {path} is not a Python file")
    module = sys.modules[unique] = importlib.util.module_from_spec(spec)
    try:
        if os.path.exists(file):  # a folder needs no __init__.py
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[unique]
        raise
    return module, name


def _find(where: str, module: ModuleType, attribute: str) -> Any:
    found = getattr(module, attribute, None)
    if found is None and hasattr(module, "__path__"):
        name = f"{module.__name__}.{_FILES[attribute]}"
        if _exists(name):
            found = getattr(importlib.import_module(name), attribute, None)
    if not callable(found):
        raise AlgorithmError(
            f"algorithm {where} has no {attribute}: define it (a folder: in {_FILES[attribute]}.py)"
        )
    return found
