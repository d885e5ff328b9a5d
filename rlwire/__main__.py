"""``python -m rlwire`` is the command ``rlwire``."""

import os
import sys

if __name__ == "__main__":
    # With `-m` the current folder is first, and an application's `random.py` would be Python's.
    if sys.path[0] == os.getcwd() and not getattr(sys.flags, "safe_path", False):
        del sys.path[0]

    from rlwire.cli import main

    raise SystemExit(main())
