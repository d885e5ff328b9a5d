"""Other threads run while a large message is decoded."""

import sys
import threading
import time

import msgpack as original
import numpy as np
import pytest

from rlwire.codecs import msgpack

PLENTY = 300_000


@pytest.fixture
def turns():
    """How many blocks of memory there were, each time that another thread had the interpreter."""
    seen = []
    stop = threading.Event()

    def take_turns():
        while not stop.is_set():
            seen.append(sys.getallocatedblocks())
            time.sleep(0)  # gives the interpreter away, and asks for it again

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)


MESSAGES = {
    "list": [0.5] * PLENTY,
    "map": {str(number): number for number in range(PLENTY)},
    "lists": [[1, 2]] * PLENTY,
    "arrays": [{b"__ndarray__": True, b"data": b"12345678", b"dtype": "<f8", b"shape": [1]}]
    * (PLENTY // 6),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_decoder_lets_other_threads_run(name, turns):
    if not sys.getallocatedblocks():
        pytest.skip("PYTHONMALLOC=malloc: nobody counts the blocks")
    message = original.packb(MESSAGES[name])
    decode = msgpack.Decoder(arrays="bytes").decode
    assert name == "arrays" or decode(message) == MESSAGES[name]
    for _ in range(1_000):  # the machine may have no time for the other thread just now
        turns.clear()
        before = sys.getallocatedblocks()
        value = decode(message)
        made = sys.getallocatedblocks() - before
        assert made > PLENTY // 10
        # A turn just before or after says nothing; one that saw the value half made does.
        if any(0.1 * made < blocks - before < 0.9 * made for blocks in turns):
            return
        del value
    raise AssertionError("no other thread had a turn while a message was decoded")


def test_large_data_is_decoded_correctly_beside_other_threads(turns):
    large = bytes(range(256)) * 2**14
    packed = msgpack.encode({"b": large, "a": np.frombuffer(large, np.float32)})
    found = msgpack.decode(packed)
    assert found["b"] == large
    assert found["a"].tobytes() == large
