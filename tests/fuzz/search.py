#!/usr/bin/env python3
"""libFuzzer over one of `decoders.DECODERS`, by way of Atheris; `run` starts it.

    DECODER=json search.py [libFuzzer's arguments]

The name is no argument, since libFuzzer starts the program again with its arguments alone.
"""

import os
import sys
from pathlib import Path

import atheris

# At the end, so that rlwire is the one that was built for libFuzzer.
sys.path.append(str(Path(__file__).resolve().parents[2]))

# Python's lines are counted by Atheris; the compiled modules count their own branches.
with atheris.instrument_imports(include=["rlwire"]):
    import decoders

if __name__ == "__main__":
    atheris.Setup(sys.argv, decoders.DECODERS[os.environ["DECODER"]])
    atheris.Fuzz()
