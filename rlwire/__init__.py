"""rlwire: compiled codecs and thin transports for the wire protocols of reinforcement learning.

Layers, each a folder: `codecs` (bytes to values and back, compiled), `sessions` (who may say what
when), `transports` (moving buffers), `adapters` (what users hold). Nothing below the adapters is
imported until it is used.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = ["__version__", "get_include", "install", "uninstall"]

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
