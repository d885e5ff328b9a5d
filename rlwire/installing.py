"""`rlwire.install` replaces the codec inside an installed library; `uninstall` restores it."""

from __future__ import annotations

import pkgutil
import threading
from contextlib import ExitStack
from typing import Any

__all__ = ["LIBRARIES", "install", "uninstall"]

# By import name (for RLlib, "rllib"): a function that replaces the codec and returns a stack that
# undoes it, the package to install, and a module that is needed besides the library.
LIBRARIES = {
    "dm_env_rpc": ("rlwire.dm_env_rpc.drop_in:replace", "dm_env_rpc", "dm_env_rpc"),
    "msgpack_numpy": ("rlwire.msgpack_numpy:replace_msgpack_numpy", "msgpack-numpy", "msgpack"),
    "openpi_client": ("rlwire.msgpack_numpy:replace_openpi_client", "openpi-client", "msgpack"),
    "lerobot": ("rlwire.lerobot:replace_lerobot", "lerobot", "torch"),
    "rllib": ("rlwire.rllink.drop_in:replace", "'ray[rllib]'", "ray"),
}

_lock = threading.Lock()
_installed: dict[str, tuple[ExitStack, dict[str, Any]]] = {}


def install(library: str, **options: Any) -> None:
    """Make `library` use rlwire's codec; see `rlwire.install`."""
    replace, package, needed = _drop_in(library)
    with _lock:
        if library in _installed:
            before = _installed[library][1]
            if before != options:
                raise RuntimeError(f"installed with {before}, not {options}: uninstall it")
            return
        try:
            _installed[library] = pkgutil.resolve_name(replace)(**options), options
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in (library, needed):
                raise
            why = f"{missing} is not installed: pip install {package}"
            raise ImportError(why, name=missing) from None


def uninstall(library: str) -> None:
    """Undo `install`; does nothing if `library` is not installed."""
    _drop_in(library)
    with _lock:
        if library in _installed:
            _installed.pop(library)[0].close()


def _drop_in(library: str) -> tuple[str, str, str]:
    if not isinstance(library, str) or library not in LIBRARIES:
        known = ", ".join(map(repr, LIBRARIES))
        raise ValueError(f"no drop-in for {library!r}; expected one of {known}")
    return LIBRARIES[library]
