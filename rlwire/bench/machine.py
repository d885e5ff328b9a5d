"""What a measurement ran on: versions of packages, and the machine.

Not here: anything measured.
"""

from __future__ import annotations

import os
import platform
import socket
from importlib import metadata
from pathlib import Path

from rlwire.bench.processes import allowed_cores

__all__ = ["machine", "versions"]


def versions(*packages: str) -> dict[str, str]:
    """The interpreter's version and those of `packages`; one that is not installed is left out."""
    found = {platform.python_implementation(): platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, str | int]:
    """Operating system, processor, how many of its cores this process may use, and TCP's pace.

    ``tcp`` is the congestion control of new sockets. Under ``bbr`` the kernel sends by timers, over
    loopback too, which shows in the times of large messages.
    """
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": len(allowed_cores()) or os.cpu_count() or 1,
        "tcp": _congestion(),
    }


def _congestion() -> str:
    if not hasattr(socket, "TCP_CONGESTION"):
        return "unknown"
    with socket.socket() as plain:
        name = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode("ascii", "replace")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return f"{value.strip()} {platform.machine()}"
    return platform.processor() or platform.machine()
