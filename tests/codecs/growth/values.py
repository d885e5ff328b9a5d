"""Values: RLX and MessagePack."""

import numpy as np
from cases import add_cases, names, nested, refused

from rlwire.codecs import msgpack, rlx

RLX_VALUES = {
    "integers": lambda n: list(range(n)), "names": lambda n: dict.fromkeys(names(n), 1),
    "texts": lambda n: ["x" * 20] * n, "long_text": lambda n: "é" * n * 4,
    "nested": lambda n: [nested(50, 1, lambda value: [value]) for _ in range(n // 50)],
    "arrays": lambda n: [np.zeros(1, np.float32)] * n, "empty": lambda n: [[], {}] * n,
    "numbers": lambda n: [1.5, 2**40, True, None] * n,
}  # fmt: skip


def _rlx_cases():
    def decode(value):
        data = rlx.encode({"a": value})
        return lambda: rlx.decode(data)

    def encode(value):
        return lambda: rlx.encode({"a": value})

    def parts(value):
        return lambda: rlx.encode_parts({"a": value})

    def wrong(value):
        data = rlx.encode({"a": [value, 1]}, framed=False)[:-5] + b"\xff" * 5
        return refused(lambda: rlx.decode(data, framed=False))

    def unwritable(value):
        return refused(lambda: rlx.encode({"a": [value, object()]}))

    add_cases("rlx", 250, RLX_VALUES, decode, encode, parts, wrong, unwritable)


_rlx_cases()


def _msgpack_cases():
    values = {
        **RLX_VALUES,
        "binary": lambda n: [b"x" * 8] * n,
        "scalars": lambda n: [np.float32(1)] * n,
        "marks": lambda n: [{b"nd": False, b"x": {b"nd": 1, b"y": {b"z": 1, b"a": 2}}}] * n,
        "half_marks": lambda n: [
            nested(40, 1, lambda value: {b"nd": value, b"type": 1, b"x": 3}) for _ in range(n // 40)
        ],
        "ends_with_marks": lambda n: [
            nested(40, 1, lambda value: {b"x": value, b"nd": 1}) for _ in range(n // 40)
        ],
        "structured": lambda n: np.zeros(1, [(f"f{i}", "f4") for i in range(min(n, 4000))]),
        "structured_each": lambda n: [np.zeros(1, [("a", "f4"), ("b", "u1")])] * n,
        "times": lambda n: [msgpack.Timestamp(1, 2)] * n,
        "complex": lambda n: [1 + 2j] * n,
    }

    def decode(value):
        data = msgpack.encode(value)
        return lambda: msgpack.decode(data)

    def encode(value):
        return lambda: msgpack.encode(value)

    def parts(value):
        return lambda: msgpack.encode_parts(value)

    def wrong(value):
        data = msgpack.encode([value, 1])[:-1] + b"\xc1"
        return refused(lambda: msgpack.decode(data))

    def unwritable(value):
        return refused(lambda: msgpack.encode([value, object()]))

    add_cases("msgpack", 250, values, decode, encode, parts, wrong, unwritable)


_msgpack_cases()
