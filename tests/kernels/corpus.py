"""Writes messages as a fuzz driver takes them: each after its size, uint32.

    python3 corpus.py dm_env_rpc corpus.bin

The standard library is enough, so that run_sanitized needs no environment.
"""

import importlib
import json
import struct
import sys
from pathlib import Path

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "rlx.json"


def messages(name):
    """Return a format's messages: of RLX the vectors, of others what corpus_NAME.py makes."""
    if name == "rlx":
        return [bytes.fromhex(case["wire"]) for case in json.loads(VECTORS.read_text())["cases"]]
    return importlib.import_module(f"corpus_{name}").messages()


if __name__ == "__main__":
    wires = list(messages(sys.argv[1]))
    Path(sys.argv[2]).write_bytes(b"".join(struct.pack("<I", len(wire)) + wire for wire in wires))
    print(len(wires), "messages")
