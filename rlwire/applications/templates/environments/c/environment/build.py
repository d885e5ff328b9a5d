"""Compiles the simulator if need be, and becomes it: what `rlwire run` starts."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import rlwire
from rlwire.adapters.relaax import options
from rlwire.transports.address import parse

source = Path(__file__).with_name("bandit.c")


def compiled() -> Path:
    """Return the program, newer than its source."""
    program = source.with_suffix("")
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        # Beside its place first: other copies may be starting it.
        building = program.with_suffix(f".{os.getpid()}")
        cc = shlex.split(os.environ.get("CC", "cc"))
        include = f"-I{rlwire.get_include()}"
        command = [*cc, "-std=c11", "-O2", include, str(source), "-o", str(building)]
        subprocess.run(command, check=True)
        building.replace(program)
    return program


if __name__ == "__main__":
    address = parse(options.rlx_server_address)
    if address.path:
        sys.exit("bandit.c connects over TCP: relaax-rlx-server/bind must be host:port")
    settings = [
        options.get("environment/max_episodes", 1),
        options.get("environment/steps", 200),
        int(options.exploit),
    ]
    program = compiled()
    arguments = [program, address.host, address.port, *settings]
    os.execv(program, [str(argument) for argument in arguments])
