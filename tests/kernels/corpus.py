"""Writes the vectors as the fuzz driver takes them: each message after its size, uint32.

    python3 corpus.py ../vectors/rlx.json corpus.bin

The standard library is enough, so that run_sanitized needs no environment.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path


def convert(vectors: Path, corpus: Path) -> int:
    """Return how many messages there were."""
    wires = [bytes.fromhex(case["wire"]) for case in json.loads(vectors.read_text())["cases"]]
    corpus.write_bytes(b"".join(struct.pack("<I", len(wire)) + wire for wire in wires))
    return len(wires)


if __name__ == "__main__":
    print(convert(Path(sys.argv[1]), Path(sys.argv[2])), "messages")
