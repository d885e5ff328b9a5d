"""``python -m rlwire`` runs the command ``rlwire``."""

import os
import sys

if __name__ == "__main__":
    # `-m` puts the current folder first, where a file `random.py` would replace Python's module.
    if sys.path[0] == os.getcwd() and not getattr(sys.flags, "safe_path", False):
        del sys.path[0]

    from rlwire.cli import main

    raise SystemExit(main())
