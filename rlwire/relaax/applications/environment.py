"""The process of one copy of an application's environment, which ``rlwire run`` starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
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


def play(address: str, command: str) -> int:
    """Run a shell command after the RLX server accepts connections."""
    tcp.connect(address, RLXClientSession(), backoff=_BACKOFF).close()
    return subprocess.run(command, shell=True, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(play, *sys.argv[1:]))
