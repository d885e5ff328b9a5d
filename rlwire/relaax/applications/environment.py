"""The process of one copy of an application's environment, which ``rlwire run`` starts."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlwire.errors import RlwireError
from rlwire.sessions.rlx import RLXClientSession
from rlwire.transports import tcp
from rlwire.transports.sockets import Backoff

# The server may need minutes to import Ray or PyTorch.
_BACKOFF = Backoff(attempts=10_000, deadline=300.0, first=0.05, longest=0.5)


def main(run: Callable[..., int | None], *arguments: Any) -> int:
    try:
        return run(*arguments) or 0
    except (RlwireError, OSError) as error:
        print(f"rlwire: {' '.join(str(error).split())}", file=sys.stderr)
    return 1


def play(arguments: Sequence[str]) -> int:
    """Run one copy of an environment after the RLX server accepts connections.

    honcho ends all processes with the first. Therefore each copy waits for the others, and returns
    the first status other than 0.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--wait", metavar="ADDRESS", help="address of the RLX server")
    parser.add_argument("--ends", metavar="FOLDER", type=Path, help="folder of exit statuses")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("name")
    parser.add_argument("command", help="shell command")
    given = parser.parse_args(arguments)
    if given.wait is not None:
        tcp.connect(given.wait, RLXClientSession(), backoff=_BACKOFF).close()
    status = subprocess.run(given.command, shell=True, check=False).returncode
    if given.ends is None:
        return status
    written = given.ends / f"{given.name}.writing"
    written.write_text(str(status))
    written.rename(given.ends / given.name)
    while len(ended := [path for path in given.ends.iterdir() if not path.suffix]) < given.copies:
        time.sleep(0.1)
    return next((found for path in sorted(ended) if (found := int(path.read_text()))), 0)


if __name__ == "__main__":
    sys.exit(main(play, sys.argv[1:]))
