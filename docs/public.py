"""Lists the public names, for the site's reference and the tests.

A module is public unless a part of its name begins with an underscore, or its package lists names
in ``__all__``: then only these are public. Programs (``rlwire.bench``, ``rlwire.cli``) are not.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType

import rlwire
from rlwire._options import options_of
from rlwire.errors import MissingExtra
from rlwire.registry import PROTOCOLS

__all__ = ["directives", "home", "modules", "names", "on_page", "options"]

PROGRAMS = ("rlwire.bench", "rlwire.cli", "rlwire.demo", "rlwire.__main__")


@functools.cache
def modules() -> list[ModuleType]:
    """Return the public modules that have public names, `rlwire` first."""
    return [rlwire, *_below(rlwire)]


def _below(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if found.name.rpartition(".")[2].startswith("_") or found.name in PROGRAMS:
            continue
        try:
            module = importlib.import_module(found.name)
        except MissingExtra:  # such as Stable-Baselines3
            continue
        if getattr(module, "__all__", None):
            yield module
        elif found.ispkg:
            yield from _below(module)


def names() -> dict[str, list[str]]:
    """Return the public names of each public module."""
    return {module.__name__: list(module.__all__) for module in modules()}


def on_page(room: str) -> list[str]:
    """Return the modules on the page of a package; of `rlwire`, those beside packages."""
    found = list(names())
    if room != "rlwire":
        return [name for name in found if name == room or name.startswith(f"{room}.")]
    return [
        name
        for name in found
        if name == "rlwire" or (name.count(".") == 1 and not hasattr(sys.modules[name], "__path__"))
    ]


def home(module: str, name: str) -> str:
    """Return the public module that describes a class or function that several have."""
    value = getattr(sys.modules[module], name)
    written = getattr(value, "__module__", None)
    if not (isinstance(value, type) or inspect.isroutine(value)) or not isinstance(written, str):
        return module
    holders = [
        place
        for place, listed in names().items()
        if name in listed and getattr(sys.modules[place], name) is value
    ]
    nearest = (written, written.rpartition(".")[0])
    return next((place for place in nearest if place in holders), holders[0])


def directives(module: str) -> str:
    """Return Sphinx's directives for a module: a table of its public names, then each name."""
    lines = [f".. automodule:: {module}", ""]
    found = [(name, getattr(sys.modules[module], name)) for name in names()[module]]
    called = [name for name, value in found if inspect.isclass(value) or inspect.isroutine(value)]
    if len(called) > 1:
        lines += [".. autosummary::", "   :nosignatures:", ""]
        places = [(home(module, name), name) for name in called]
        lines += [f"   {name if place == module else f'~{place}.{name}'}" for place, name in places]
        lines += [""]
    for name, value in found:
        place = home(module, name)
        if place != module:
            lines += [f".. py:data:: {name}", "   :no-contents-entry:", ""]
            lines += [f"   The same as :py:obj:`{place}.{name}`.", ""]
        elif isinstance(value, type) and value.__name__ == name:
            lines += [f".. autoclass:: {module}.{name}"]
            lines += ["   :members:", "   :undoc-members:", "   :show-inheritance:", ""]
        elif inspect.isroutine(value):
            lines += [f".. autofunction:: {module}.{name}", ""]
        elif isinstance(value, ModuleType):
            lines += [f".. py:data:: {name}", "", f"   The module `{value.__name__}`.", ""]
        else:
            lines += [f".. autodata:: {module}.{name}"]
            lines += ["   :no-value:"] * (len(repr(value)) > 60) + [""]
    return "\n".join(lines)


def options() -> str:
    """Return Markdown's tables of all options, by protocol and side."""
    lines = []
    calls = {"server": "serve", "environment": "make", "client": "connect"}
    calls |= {"listener": "listen", "player": "play"}
    for record in PROTOCOLS.values():
        lines += [f"## {record.scheme}", ""]
        for side, kind in record.options.items():
            lines += [f"`rlwire.{calls[side]}`", "", "| option | default | |", "|---|---|---|"]
            for option in options_of(kind).values():
                if option.kind is None:
                    cells = (f"`{option.name}`", f"`{option.default!r}`", option.help)
                    row = " | ".join(cell.replace("|", "\\|") for cell in cells)
                    lines += [f"| {row} |"]
            lines += [""]
    return "\n".join(lines)
