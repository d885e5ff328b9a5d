"""Writes messages as a fuzz driver takes them: each after its size, uint32.

    python3 corpus.py dm_env_rpc corpus.bin

The standard library is enough, so that run_sanitized needs no environment.
"""

from __future__ import annotations

import importlib
import json
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "rlx.json"


def messages(name: str) -> Iterable[bytes]:
    """Return a format's messages: of RLX the vectors, of others what corpus_NAME.py makes."""
    if name == "rlx":
        return [bytes.fromhex(case["wire"]) for case in json.loads(VECTORS.read_text())["cases"]]
    found: Iterable[bytes] = importlib.import_module(f"corpus_{name}").messages()
    return found


if __name__ == "__main__":
    wires = list(messages(sys.argv[1]))
    Path(sys.argv[2]).write_bytes(b"".join(struct.pack("<I", len(wire)) + wire for wire in wires))
    print(len(wires), "messages")
