"""Files for browsers: `rlx.js`, a client of `rlwire.rlx.RLXPageServer`, and pages.

`cartpole.html` plays CartPole (`cartpole.js`); `universe.html` is that of `rlwire.universe.page`.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["folder", "path"]


def folder() -> Path:
    """Return the folder of the files, for a web server."""
    return Path(__file__).resolve().parent


def path(name: str = "rlx.js") -> Path:
    """Return the path of a file, or raise FileNotFoundError."""
    found = folder() / name
    if Path(name).name != name or not found.is_file():
        raise FileNotFoundError(f"rlwire.web has no file {name!r}")
    return found
