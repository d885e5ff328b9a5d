import gc
import sys

import numpy as np
import pytest

from rlwire.buffers import Arena, Block, joined
from rlwire.codecs import msgpack
from tests.raising import raised


def address(block):
    return int(np.frombuffer(block, "u1").__array_interface__["data"][0])


@pytest.mark.parametrize("size", [1, 3, 63, 64, 65, 4096, 1_000_001])
def test_block_is_writable_aligned_memory(size):
    block = Block(size)
    assert len(block) == block.size == size
    view = memoryview(block)
    assert (view.nbytes, view.format, view.readonly, view.c_contiguous) == (size, "B", False, True)
    assert address(block) % 64 == 0
    view[:] = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert bytes(block)[: min(size, 256)] == bytes(view)[: min(size, 256)]
    view[-1] = 7
    assert bytes(block)[-1] == 7


def test_block_rejects_invalid_sizes():
    for size in (-1, -(2**63)):
        assert str(size) in str(raised(ValueError, Block, size))
    raised(OverflowError, Block, 2**63)
    raised(TypeError, Block, "many")


HOLDERS = {
    "block": lambda block: block,
    "memoryview": memoryview,
    "array": lambda block: np.frombuffer(block, "u1"),
    "slice": lambda block: np.frombuffer(block, "u1")[10:20],
}


@pytest.mark.each("holder", HOLDERS)
def test_view_keeps_its_block_alive(holder):
    block = Block(5000)
    memoryview(block)[:] = b"\x11" * 5000
    held = HOLDERS[holder](block)
    del block
    gc.collect()
    others = [Block(5000) for _ in range(20)]
    for other in others:
        memoryview(other)[:] = b"\xff" * 5000
    assert set(bytes(held)) == {0x11}


def test_arena_reuses_its_free_block():
    arena = Arena()
    where = address(arena.take(1000))
    block = arena.take(1000)
    memoryview(block)[:3] = b"abc"
    assert address(block) == where
    del block
    for size in (1000, 10, 0):
        block = arena.take(size)
        assert len(block) >= size
        assert bytes(memoryview(block)[:3]) == b"abc"
        del block


@pytest.mark.each("holder", HOLDERS)
def test_held_block_is_not_reused(holder):
    arena = Arena()
    block = arena.take(1000)
    memoryview(block)[:] = b"\x11" * len(block)
    held = HOLDERS[holder](block)
    where = address(block)
    del block
    other = arena.take(1000)
    assert address(other) != where
    memoryview(other)[:] = b"\xff" * len(other)
    assert set(bytes(held)) == {0x11}
    del held
    where = address(other)
    del other
    assert address(arena.take(1000)) == where


def test_arena_replaces_a_block_that_is_too_small():
    arena = Arena()
    arena.take(100)
    block = arena.take(1000)
    assert len(block) >= 1000
    where = address(block)
    del block
    assert address(arena.take(500)) == where


def test_views_leave_the_references_to_none_as_they_were():
    before = sys.getrefcount(None)
    for _ in range(1000):
        memoryview(Block(10)).release()
    assert abs(sys.getrefcount(None) - before) < 500


def test_arena_does_not_keep_a_block_over_its_limit():
    arena = Arena(keep=1000)
    assert arena.keep == 1000
    over, kept = arena.take(1001), arena.take(1000)
    assert (len(over), len(kept)) == (1001, 1000)
    assert sys.getrefcount(kept) == sys.getrefcount(over) + 1  # the arena's own


@pytest.mark.parametrize("size", [0, 10, 3_000_000])
def test_joined_bytes_are_a_bytearray(size):
    parts = [b"", b"a" * size, b"bc", b"d" * size]
    whole = joined(parts)
    assert type(whole) is bytearray
    assert whole == b"".join(parts)
    whole += b"e"
    raised(TypeError, joined, [b"a", bytearray(b"b")])


def test_encode_in_huge_pages_equals_encode_parts():
    arrays = [np.arange(1_000_000, dtype="<f8"), np.ones(3, "u1")]
    assert msgpack.encode(arrays) == b"".join(msgpack.encode_parts(arrays))
