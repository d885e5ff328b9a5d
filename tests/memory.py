"""What something allocates, by Python's own tracing."""

import contextlib
import tracemalloc

__all__ = ["at_most"]


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
