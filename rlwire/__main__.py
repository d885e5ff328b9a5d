"""The command ``rlwire``, and ``python -m rlwire``."""

import os
import sys


def main() -> int:
    """Run `rlwire.cli.main`; until its modules are imported, SIGINT kills the program."""
    import signal

    if (before := signal.getsignal(signal.SIGINT)) is signal.default_int_handler:
        # A KeyboardInterrupt would have a traceback, or be ignored in a callback of importlib.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rlwire.cli import main

    return main(imported=lambda: signal.signal(signal.SIGINT, before))


if __name__ == "__main__":
    # `-m` puts the current folder first, where a file `random.py` would replace Python's module.
    if sys.path[0] == os.getcwd() and not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    raise SystemExit(main())
