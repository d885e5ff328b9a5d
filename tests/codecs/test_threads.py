"""Configured encoders and decoders keep no state of a message, so threads share them."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rlwire.codecs import dm_env_rpc, msgpack, rlx
from rlwire.codecs import dm_env_rpc as tensors

MESSAGES = [
    {"command": "update", f"key {n}": n, "state": np.arange(2000.0 + n), "text": [str(n)] * n}
    for n in range(8)
]
ARRAYS = [np.arange(n, n + 2000, dtype=np.int32).reshape(20, 100) for n in range(8)]
MANAGER = dm_env_rpc.SpecManager(
    {
        1: dm_env_rpc.make_spec("reward", (), np.float64),
        2**64 - 1: dm_env_rpc.make_spec("pixels", (-1,), np.uint8),
    }
)
NAMED = [{"reward": np.float64(n), "pixels": np.full(900 + n, n, np.uint8)} for n in range(8)]

PARTS = rlx.RLXEncoder()


def encode_parts(value):
    return b"".join(PARTS.encode_parts(value))


CODECS = {
    "rlx": (MESSAGES, rlx.RLXEncoder(framed=True).encode, rlx.RLXDecoder(framed=True).decode),
    "rlx parts": (MESSAGES, encode_parts, rlx.RLXDecoder(copy=None).decode),
    "msgpack": (MESSAGES, msgpack.Encoder().encode, msgpack.Decoder().decode),
    "tensors": (ARRAYS, tensors.encode_tensor, tensors.decode_tensor),
    "steps": (
        NAMED,
        lambda values: dm_env_rpc.encode_step_request(MANAGER, values),
        lambda wire: dm_env_rpc.decode_step_request(MANAGER, wire)[0],
    ),
}


@pytest.mark.parametrize("name", CODECS)
def test_codec_shared_between_threads_is_correct(name, same):
    values, encode, decode = CODECS[name]
    expected = [encode(value) for value in values]

    def work(n):
        return all(
            encode(values[n]) == expected[n] and same(decode(expected[n]), values[n])
            for _ in range(100)
        )

    with ThreadPoolExecutor(len(values)) as threads:
        assert all(threads.map(work, range(len(values))))
