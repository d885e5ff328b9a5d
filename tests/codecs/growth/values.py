"""Values: RLX and MessagePack."""

from functools import partial

import numpy as np
from cases import add_cases, names, nested, of_codec, refused

from rlwire.codecs import msgpack, rlx

RLX_VALUES = {
    "integers": lambda n: list(range(n)), "names": lambda n: dict.fromkeys(names(n), 1),
    "texts": lambda n: ["x" * 20] * n, "long_text": lambda n: "é" * n * 4,
    "nested": lambda n: [nested(50, 1, lambda value: [value]) for _ in range(n // 50)],
    "arrays": lambda n: [np.zeros(1, np.float32)] * n, "empty": lambda n: [[], {}] * n,
    "numbers": lambda n: [1.5, 2**40, True, None] * n,
}  # fmt: skip


add_cases(
    "rlx",
    250,
    RLX_VALUES,
    **of_codec(
        lambda value: rlx.encode({"a": value}),
        rlx.decode,
        lambda value: rlx.encode({"a": [value, 1]})[:-6] + b"\xff" * 5 + b",",
    ),
    parts=lambda value: partial(rlx.encode_parts, {"a": value}),
    unwritable=lambda value: refused(partial(rlx.encode, {"a": [value, object()]})),
)
MSGPACK_VALUES = {
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
add_cases(
    "msgpack",
    250,
    MSGPACK_VALUES,
    **of_codec(
        msgpack.encode, msgpack.decode, lambda value: msgpack.encode([value, 1])[:-1] + b"\xc1"
    ),
    parts=lambda value: partial(msgpack.encode_parts, value),
    unwritable=lambda value: refused(partial(msgpack.encode, [value, object()])),
)
