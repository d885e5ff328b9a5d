"""libFuzzer over one of `decoders.DECODERS`, by way of Atheris; `run` starts it.

    python search.py DECODER [libFuzzer's arguments]
"""

from __future__ import annotations

import sys

import atheris

# Python's lines are counted by Atheris; the compiled modules count their own branches.
with atheris.instrument_imports(include=["rlwire"]):
    import decoders

if __name__ == "__main__":
    feed = decoders.DECODERS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, feed)
    atheris.Fuzz()
