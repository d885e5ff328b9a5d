"""What something allocates, by Python's own tracing; memory of other kinds than bytes."""

import contextlib
import mmap
import tracemalloc

from rlwire.buffers import Block

__all__ = ["at_most", "in_block", "mapped"]


@contextlib.contextmanager
def at_most(size):
    """Fail if the block holds `size` bytes or more at a time that it allocated itself."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert most < size


def in_block(data, before=0):
    """Return a block with `data` after `before` other bytes, and the part of it that has `data`."""
    block = Block(before + len(data))
    memoryview(block)[before:] = data
    return block, memoryview(block)[before:]


def mapped(data):
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory
