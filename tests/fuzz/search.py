#!/usr/bin/env python3
"""libFuzzer over one of `decoders.DECODERS`, by way of Atheris; `run` starts it.

    DECODER=json search.py [libFuzzer's arguments]

The name is no argument, since libFuzzer starts the program again with its arguments alone.
"""

import os
import sys

import atheris

# Python's lines are counted by Atheris; the compiled modules count their own branches.
with atheris.instrument_imports(include=["rlwire"]):
    import decoders

if __name__ == "__main__":
    atheris.Setup(sys.argv, decoders.DECODERS[os.environ["DECODER"]])
    atheris.Fuzz()
