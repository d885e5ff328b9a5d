"""What importing rlwire does with Python's import system."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, SimpleNamespace
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


def after_import(name: str, call: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call `call` with the module `name` whenever it is imported, until the result is called.

    `python -m` of the module is refused: it would run the module without the call.
    """

    def get_code(name: str) -> Any:
        what = f"{name} cannot be run by `python -m`, since rlwire changes it when it is imported"
        raise ImportError(f"{what}: call its function in a file of your own", name=name)

    class Finder:
        @staticmethod
        def find_spec(wanted: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            if wanted != name:
                return None
            spec = PathFinder.find_spec(name, path)
            if spec is not None and (own := spec.loader) is not None:

                def exec_module(module: ModuleType) -> None:
                    own.exec_module(module)
                    call(module)

                loader: Any = SimpleNamespace(create_module=own.create_module, get_code=get_code)
                loader.exec_module = exec_module
                spec.loader = loader
            return spec

    sys.meta_path.insert(0, Finder)
    return lambda: sys.meta_path.remove(Finder)


def register_environment() -> None:
    """Register ``rlwire/Remote-v0`` when Gymnasium is imported, before or after rlwire.

    Gymnasium has had no entry points for plugins since 1.0, and importing it here would be slow.
    """
    name = "gymnasium.envs.registration"

    def register(module: Any) -> None:
        module.register("rlwire/Remote-v0", entry_point="rlwire:make")

    if hasattr(sys.modules.get(name), "register"):  # else it is missing, or just being imported
        register(sys.modules[name])
    else:
        after_import(name, register)


def version_of_package() -> str:
    """Return the installed version, for ``rlwire.__version__``."""
    # Slow to import; and with `python -m rlwire` a module of the current folder could replace it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rlwire")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"


def install_command(extra: str) -> str:
    """Return the line that installs an extra of this rlwire, from where the program runs."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.exists(os.path.join(os.curdir, "rlwire", "buffers.pyx")):
        what = f".[{extra}]"
    elif os.path.exists(os.path.join(root, "pyproject.toml")):
        what = f"{root}[{extra}]"
    else:
        what = f"rlwire[{extra}]"
        try:
            origin = json.loads(distribution("rlwire").read_text("direct_url.json") or "{}")
        except PackageNotFoundError:
            origin = {}
        url = origin.get("url", "")
        if "vcs_info" in origin:
            what += f" @ {origin['vcs_info']['vcs']}+{url}"
        elif os.path.exists(path := url.removeprefix("file://")):  # a checkout or a wheel
            what = f"{path}[{extra}]"
    return f"pip install '{what}'"
