"""The processes that ``rlwire run`` starts: ``server FILE`` and ``environment``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rlwire.errors import RlwireError


def main(arguments: Sequence[str]) -> int:
    """Be one process, and return its exit status."""
    program, *rest = arguments
    try:
        if program == "server":
            from rlwire.relaax.applications.server import serve

            serve(*rest)
            return 0
        from rlwire.relaax.applications.environment import play

        return play(rest)
    except (RlwireError, OSError) as error:
        print(f"rlwire: {' '.join(str(error).split())}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
