"""rlwire: compiled codecs and thin transports for the wire protocols of reinforcement learning.

Layers, each a folder: `codecs` (bytes to values and back, compiled), `sessions` (who may say what
when), `transports` (moving buffers), `adapters` (what users hold). Nothing below the adapters is
imported until it is used.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = ["__version__", "get_include", "install", "uninstall"]


def _with_compiled_modules(sources: str) -> str:
    """Return where the package is: here, or where it is installed.

    Python that is started in a checkout imports this file from there, and a regular install leaves
    no compiled modules in it. All other modules are then those of the installed package.
    """
    folders = [sources, *(os.path.join(folder, "rlwire") for folder in sys.path)]
    found = PathFinder.find_spec("rlwire.buffers", folders)
    if found is None or found.origin is None:
        raise ImportError(
            f"the rlwire in {os.path.dirname(sources)} has no compiled modules, and no other is "
            "installed: run `pip install .` there, or Python elsewhere",
            name="rlwire",
            path=sources,
        )
    return os.path.dirname(os.path.abspath(found.origin))


_here = os.path.dirname(os.path.abspath(__file__))
if os.path.exists(os.path.join(_here, "buffers.pyx")):  # which no wheel has
    __path__ = [_with_compiled_modules(_here)]

try:
    __version__ = version("rlwire")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"


def get_include() -> str:
    """Return the folder to give a C or C++ compiler for ``#include <rlwire/rlwire.h>``."""
    from rlwire import buffers  # the compiled module knows where the package really is

    return os.path.join(os.path.dirname(os.path.abspath(buffers.__file__)), "include")


def install(library: str, **options: Any) -> None:
    """Make an installed library use rlwire's codec: `rlwire.adapters.installing.install`."""
    from rlwire.adapters import installing

    installing.install(library, **options)


def uninstall(library: str) -> None:
    """Take `install` back: `rlwire.adapters.installing.uninstall`."""
    from rlwire.adapters import installing

    installing.uninstall(library)
