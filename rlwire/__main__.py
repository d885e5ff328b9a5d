"""``python -m rlwire`` is the command ``rlwire``."""

from rlwire.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
