"""The processes that ``rlwire run`` starts: ``server FILE``, ``apart FILE`` and ``environment``.

``apart`` is a server that has Ray in it. What ends a process ends its group, and Ray's processes
would be gone before what was learned is saved: so they and the server are a group of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from rlwire.applications.running import PYTHON
from rlwire.errors import RlwireError, describe


def main(arguments: Sequence[str]) -> int:
    """Be one process, and return its exit status; what is wrong is said in one line."""
    program, *rest = arguments
    if program == "apart":
        return _apart(rest)
    try:
        if program in ("server", "server-apart"):
            from rlwire.applications.server import serve

            if program == "server-apart":
                threading.Thread(target=_end_with_parent, daemon=True).start()
            serve(*rest)
            return 0
        from rlwire.applications.environment import play

        return play(rest)
    except (RlwireError, OSError, ImportError) as error:
        print(f"rlwire: {' '.join(str(error).split())}", file=sys.stderr)
    except Exception as error:
        print(f"rlwire: {' '.join(describe(error).split())}", file=sys.stderr)
    return 1


def _apart(arguments: Sequence[str]) -> int:
    command = [*PYTHON, "rlwire.applications", "server-apart", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        return process.wait()


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # until there is nobody at its other end
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
