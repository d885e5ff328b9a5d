"""One copy of an application's environment, as ``rlwire run`` starts it.

It begins when the RLX server is there, and ends with the last of all copies: the process manager
ends everything as soon as one process does. Not here: that manager (`running.py`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rlwire.sessions.rlx import RLXClientSession
from rlwire.transports import tcp
from rlwire.transports.sockets import Backoff

_PATIENCE = Backoff(attempts=10_000, deadline=300.0, first=0.05, longest=0.5)
"""For a server that imports Ray or PyTorch first."""


def play(arguments: Sequence[str]) -> int:
    """Run one copy, and return the first exit status of any that is not 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wait", metavar="ADDRESS", help="of the RLX server")
    parser.add_argument("--ends", metavar="FOLDER", type=Path, help="where copies say their status")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("name")
    parser.add_argument("command", help="for the shell")
    given = parser.parse_args(arguments)
    if given.wait is not None:
        try:
            tcp.connect(given.wait, RLXClientSession(), backoff=_PATIENCE).close()
        except OSError as error:
            print(f"rlwire: {error}", file=sys.stderr)
            return 1
    status = subprocess.run(given.command, shell=True, check=False).returncode
    if given.ends is None:
        return status
    # Beside its place first: whoever sees it can read it.
    written = given.ends / f"{given.name}.writing"
    written.write_text(str(status))
    written.rename(given.ends / given.name)
    while len(ended := [path for path in given.ends.iterdir() if not path.suffix]) < given.copies:
        time.sleep(0.1)
    return next((found for path in sorted(ended) if (found := int(path.read_text()))), 0)
