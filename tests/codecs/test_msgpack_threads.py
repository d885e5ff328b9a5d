"""Other threads run while a large message is decoded."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgpack as original
import numpy as np
import pytest

from rlwire.codecs import msgpack

# Decoding takes longer than a busy machine lets a thread wait for its turn.
PLENTY = 300_000


@pytest.fixture
def turns() -> Iterator[list[int]]:
    """How often another thread has had the interpreter."""
    count = [0]
    stop = threading.Event()

    def take_turns() -> None:
        while not stop.is_set():
            count[0] += 1
            time.sleep(0)  # gives the interpreter away, and asks for it again

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)


MESSAGES = {
    "list": [0.5] * PLENTY,
    "map": {str(number): number for number in range(PLENTY)},
    "lists": [[1, 2]] * PLENTY,
    "arrays": [
        {b"__ndarray__": True, b"data": b"12345678", b"dtype": "<f8", b"shape": [1]},
    ]
    * (PLENTY // 6),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_other_threads_have_turns(name: str, turns: list[int]) -> None:
    message = original.packb(MESSAGES[name])
    decode = msgpack.Decoder(arrays="bytes").decode
    for _ in range(100):  # the machine may have no time for the other thread just now
        gained = []
        for _ in range(5):
            before = turns[0]
            value = decode(message)
            gained.append(turns[0] - before)
            del value
        # Not the most: both threads may have waited for the machine just before or after.
        if statistics.median(gained) > 4:
            return
    raise AssertionError(f"turns of another thread while a message was decoded: {gained}")


@pytest.mark.parametrize("options", [{}, {"use_list": False}, {"object_pairs_hook": dict}])
def test_values_are_the_same(options: dict[str, Any], turns: list[int]) -> None:
    some = 5_000  # more than are decoded in one go
    for value in ([0.5] * some, {str(number): number for number in range(some)}, [[1, 2]] * some):
        packed = original.packb(value)
        assert msgpack.Decoder(**options).decode(packed) == original.unpackb(packed, **options)
    large = bytes(range(256)) * 2**14
    array = np.frombuffer(large, np.float32)
    packed = msgpack.Encoder(arrays="openpi").encode({"b": large, "a": array})
    found = msgpack.Decoder(arrays="bytes").decode(packed)
    assert found["b"] == large
    assert found["a"].tobytes() == large
