"""The process of one copy of an application's environment, which ``rlwire run`` starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from rlwire.errors import RlwireError
from rlwire.sessions.rlx import RLXClientSession
from rlwire.transports import tcp
from rlwire.transports.sockets import Backoff

# The server may need minutes to import Ray or PyTorch.
_BACKOFF = Backoff(attempts=10_000, deadline=300.0, first=0.05, longest=0.5)


def main(run: Callable[..., object], *arguments: Any) -> int:
    try:
        run(*arguments)
        return 0
    except (RlwireError, OSError) as error:
        print(f"rlwire: {' '.join(str(error).split())}", file=sys.stderr)
    return 1


def play(address: str, command: str) -> None:
    """Replace this process by a shell command once the RLX server accepts connections."""
    tcp.connect(address, RLXClientSession(), backoff=_BACKOFF).close()
    os.execl("/bin/sh", "sh", "-c", command)


if __name__ == "__main__":
    sys.exit(main(play, *sys.argv[1:]))
