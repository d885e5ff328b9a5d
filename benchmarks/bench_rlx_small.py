"""How long does the codec take for a small `update` message, against plain Python and msgpack?

`python benchmarks/bench_rlx_small.py` prints the ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from pairs import Line, call_times, oracle, print_head, print_lines

from rlwire.codecs import rlx

MESSAGE: dict[str, Any] = {
    "command": "update",
    "reward": 1.0,
    "state": [0.0273956, -0.00611216, 0.03585979, 0.0197368],
    "terminal": False,
}

# The same call shape for both: an encoder and a decoder made once, a message a call.
ENCODERS: dict[str, Callable[[Any], Any]] = {
    "rlwire": rlx.RLXEncoder().encode,
    "plain Python": oracle().encode,
    "msgspec.msgpack": msgspec.msgpack.Encoder().encode,
}
DECODERS: dict[str, Callable[[Any], Any]] = {
    "rlwire": rlx.RLXDecoder().decode,
    "plain Python": oracle().decode,
    "msgspec.msgpack": msgspec.msgpack.Decoder().decode,
}
WIRE: dict[str, bytes] = {name: encode(MESSAGE) for name, encode in ENCODERS.items()}


def lines() -> list[Line]:
    """The ratios and their targets."""
    assert WIRE["rlwire"] == WIRE["plain Python"]
    encode = call_times({name: (call, MESSAGE) for name, call in ENCODERS.items()})
    decode = call_times({name: (call, WIRE[name]) for name, call in DECODERS.items()})
    found = []
    for what, times, slow in (("encode", encode, 40), ("decode", decode, 25)):
        ours = times["rlwire"]
        found.append(Line(what, ours, "plain Python", times["plain Python"], slow, faster=True))
        found.append(Line(what, ours, "msgspec.msgpack", times["msgspec.msgpack"], 1.3))
    return found


if __name__ == "__main__":
    print_head(f"A small update message, {len(WIRE['rlwire'])} bytes in RLX.", "msgspec")
    print_lines(lines())
