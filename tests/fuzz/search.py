#!/usr/bin/env python3
"""libFuzzer over one of `decoders.DECODERS`, by Atheris: `DECODER=json search.py [ARGUMENTS]`:
libFuzzer starts the program again with its arguments alone; `run` starts it."""

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
