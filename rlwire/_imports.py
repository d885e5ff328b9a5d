"""What importing rlwire does with Python's import system."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def use_compiled_modules(path: list[str]) -> None:
    """In a checkout that is not built, set the package's `path` to the installed modules.

    After ``pip install .``, Python in the checkout's folder still imports the sources. After
    ``pip install -e .`` or a build in place nothing changes.
    """
    sources = os.path.dirname(os.path.abspath(__file__))
    if not os.path.exists(os.path.join(sources, "buffers.pyx")):
        return
    folders = [sources, *(os.path.join(folder, "rlwire") for folder in sys.path)]
    found = PathFinder.find_spec("rlwire.buffers", folders)
    if found is None or found.origin is None:
        raise ImportError(
            f"rlwire in {os.path.dirname(sources)} has no compiled modules, and rlwire is not "
            "installed: run `pip install .` there",
            name="rlwire",
            path=sources,
        )
    path[:] = [os.path.dirname(os.path.abspath(found.origin))]


def register_environment() -> None:
    """Register ``rlwire/Remote-v0`` when Gymnasium is imported, before or after rlwire.

    Gymnasium has had no entry points for plugins since 1.0, and importing it here would be slow.
    """
    name = "gymnasium.envs.registration"

    def register(module: Any) -> None:
        module.register("rlwire/Remote-v0", entry_point="rlwire:make")

    class Finder:
        @staticmethod
        def find_spec(wanted: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            if wanted != name:
                return None
            sys.meta_path.remove(Finder)
            found = PathFinder.find_spec(name, path)
            if found is not None and found.loader is not None:
                run = found.loader.exec_module

                def execute(module: ModuleType) -> None:
                    run(module)
                    register(module)

                found.loader.exec_module = execute  # type: ignore[method-assign]
            return found

    if hasattr(sys.modules.get(name), "register"):  # else it is missing, or just being imported
        register(sys.modules[name])
    else:
        sys.meta_path.insert(0, Finder)


def version_of_package() -> str:
    """Return the installed version, for ``rlwire.__version__``."""
    # Slow to import; and with `python -m rlwire` a module of the current folder could replace it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rlwire")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"
