"""Writes JSON texts as the fuzz driver takes them: each after its size, uint32.

python3 corpus_json.py corpus.bin
"""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path


def texts() -> Iterator[str]:
    """All that JSON has: messages, arrays of all shapes, odd numbers, odd strings."""
    chance = random.Random(5)
    yield (
        '{"method":"v0.env.reward","headers":{"sent_at":1479493678.1937322617,"message_id":15,'
        '"episode_id":"1.2"},"body":{"reward":-3,"done":false,"info":{}}}'
    )
    yield '{"observation": [0.12, 0.51, 2, 12], "a": [], "b": {}, "c": null, "d": [true, false]}'
    yield "[[1,2,3],[4,5,6]]"
    yield " [ [ [ 1.5 , -2e3 ] , [ 0 , -0 ] ] , [ [ 1e-7 , 7 ] , [ 8 , 9 ] ] ] "
    yield "[[],[]]"
    yield "[[[]],[[]],[[]]]"
    yield "[1,-1,9223372036854775807,-9223372036854775808]"
    yield "[9223372036854775808,18446744073709551615,0]"
    yield "[9223372036854775808,-1,1.5]"
    yield "[18446744073709551616,-9223372036854775809]"
    yield "[0,127,255,-128,32767,65535,2147483647,4294967295]"
    yield "[1.7976931348623157e308,2.2250738585072014e-308,5e-324,1e400]"
    yield "[-1e-400,123456789012345678901e-5,0.1,12345678901234567890.5]"
    yield "[" + ",".join(repr(chance.uniform(-9, 9)) for _ in range(40)) + "]"
    yield "[" + ",".join(str(chance.getrandbits(chance.randrange(1, 70))) for _ in range(40)) + "]"
    yield json.dumps([[round(chance.gauss(0, 1), 4) for _ in range(7)] for _ in range(5)])
    yield r'"\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud834\udd1e\uDBFF\uDFFF\u0000"'
    yield '"plain ascii, long enough for several words of eight bytes, to the end"'
    yield '"w\u00f6rld \u65e5\u672c\u8a9e \U0001d11e mixed with \u007f and \ud7ff\ue000\uffff"'
    yield json.dumps({"w\u00f6rld": ["\x00\x1f", "\u2028", "\U0010ffff"], "": {"": {"": [[[]]]}}})
    yield '"' + "x" * 198 + '"'
    yield "[" * 23 + "1" + "]" * 23
    yield '{"a":' * 12 + "{}" + "}" * 12
    yield "[" + ",".join(["[1,[2,{}]]"] * 70) + "]"
    yield "true"
    yield "-12.5E+3"
    yield '[1,"]",{"a":"}"},[2]]'
    yield json.dumps([{"id": i, "name": f"agent{i}", "pos": [i / 7, -i]} for i in range(6)])


def write(corpus: Path) -> int:
    """Return how many texts there were."""
    wires = [text.encode("utf-8", "surrogatepass") for text in texts()]
    corpus.write_bytes(b"".join(struct.pack("<I", len(wire)) + wire for wire in wires))
    return len(wires)


if __name__ == "__main__":
    print(write(Path(sys.argv[1])), "texts")
