"""`rlwire.install` replaces the codec inside an installed library; `uninstall` restores it."""

from __future__ import annotations

import pkgutil
import threading
from typing import Any

__all__ = ["LIBRARIES", "install", "uninstall"]

# By import name (for RLlib, "rllib"): the drop-in, the package to install, and its modules.
LIBRARIES = {
    "dm_env_rpc": (
        "rlwire.dm_env_rpc.drop_in:dm_env_rpc_drop_in", "dm_env_rpc", ["dm_env_rpc"]
    ),
    "msgpack_numpy": (
        "rlwire.msgpack_numpy:msgpack_numpy_drop_in", "msgpack-numpy", ["msgpack_numpy", "msgpack"]
    ),
    "openpi_client": (
        "rlwire.msgpack_numpy:openpi_client_drop_in", "openpi-client", ["openpi_client", "msgpack"]
    ),
    "lerobot": ("rlwire.lerobot:lerobot_drop_in", "lerobot", ["lerobot", "torch"]),
    "rllib": ("rlwire.rllink.drop_in:rllib_drop_in", "'ray[rllib]'", ["ray"]),
}  # fmt: skip

_lock = threading.Lock()


def install(library: str, **options: Any) -> None:
    """Make `library` use rlwire's codec; see `rlwire.install`."""
    with _lock:
        drop_in = _drop_in(library)
        _, package, wanted = LIBRARIES[library]
        try:
            drop_in.install(**options)
        except ImportError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in wanted:
                raise
            raise ImportError(
                f"{missing} is not installed: pip install {package}", name=missing
            ) from None


def uninstall(library: str) -> None:
    """Undo `install`; does nothing if `library` is not installed."""
    with _lock:
        _drop_in(library).uninstall()


def _drop_in(library: str) -> Any:
    if not isinstance(library, str) or library not in LIBRARIES:
        known = ", ".join(map(repr, LIBRARIES))
        raise ValueError(f"no drop-in for {library!r}; expected one of {known}")
    return pkgutil.resolve_name(LIBRARIES[library][0])
