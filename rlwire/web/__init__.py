"""Files for browsers: a JavaScript client of `rlwire.rlx.RLXPageServer` and an example.

| file | what it is |
|---|---|
| `rlx.js` | the client, an ES module without dependencies |
| `cartpole.js` | CartPole in JavaScript, for examples and tests |
| `cartpole.html` | a page that plays it, to be served by any web server |
| `universe.html`, `universe.js` | that of `rlwire.universe.page`; needs noVNC |
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["folder", "path"]


def folder() -> Path:
    """Return the folder of the files, for a web server."""
    return Path(__file__).resolve().parent


def path(name: str = "rlx.js") -> Path:
    """Return where a file is.

    Raises:
        FileNotFoundError: there is none of this name.
    """
    found = folder() / name
    if Path(name).name != name or not found.is_file():
        raise FileNotFoundError(f"rlwire.web has no file {name!r}")
    return found
