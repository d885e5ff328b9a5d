"""`rlwire.install`: swap the codec inside an installed library for rlwire's, and put it back.

Each library has a module, or an object, with `install()` and `uninstall()`; this only finds it.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

__all__ = ["LIBRARIES", "install", "uninstall"]

LIBRARIES = {
    "dm_env_rpc": "rlwire.dm_env_rpc.drop_in",
    "msgpack_numpy": "rlwire.msgpack_numpy:msgpack_numpy_drop_in",
    "openpi_client": "rlwire.msgpack_numpy:openpi_client_drop_in",
    "rllib": "rlwire.rllink.drop_in:rllib_drop_in",
}
"""Libraries by their import names (RLlib by its own), and what installs here for each."""

_WANTED = {
    "dm_env_rpc": ("dm_env_rpc", ["dm_env_rpc"]),
    "msgpack_numpy": ("msgpack-numpy", ["msgpack_numpy", "msgpack"]),
    "openpi_client": ("openpi-client", ["openpi_client", "msgpack"]),
    "rllib": ("'ray[rllib]'", ["ray"]),
}  # how they are installed, and what is missing then

_lock = threading.Lock()


def install(library: str, **options: Any) -> None:
    """Make `library` use rlwire's codec from now on, in this process; again does nothing."""
    with _lock:
        drop_in = _drop_in(library)
        package, wanted = _WANTED[library]
        try:
            drop_in.install(**options)
        except ImportError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in wanted:
                raise
            raise ImportError(
                f"{missing} is not installed, so there is nothing of {library} to replace: "
                f"pip install {package}",
                name=missing,
            ) from None


def uninstall(library: str) -> None:
    """Give `library` its own codec back; does nothing where `install` was not called."""
    with _lock:
        _drop_in(library).uninstall()


def _drop_in(library: str) -> Any:
    try:
        module, _, name = LIBRARIES[library].partition(":")
    except (KeyError, TypeError):
        raise ValueError(
            f"there is no drop-in for {library!r}; there is one for {', '.join(LIBRARIES)}"
        ) from None
    found = importlib.import_module(module)
    return getattr(found, name) if name else found
