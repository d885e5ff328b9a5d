"""Values that the properties of several codecs are tried with."""

import numpy as np
from hypothesis import strategies as st

__all__ = ["arrays", "laid_out"]


@st.composite
def arrays(draw, dtypes):
    """Draw an array of any shape, bits and layout."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    count = int(np.prod(shape))
    if dtype.kind in "bUS":
        return laid_out(draw, (np.arange(count) % 2).astype(dtype).reshape(shape))
    data = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    return laid_out(draw, np.frombuffer(data, dtype).reshape(shape))


def laid_out(draw, array):
    """Return an array whose elements lie in another way."""
    layout = draw(st.sampled_from(["plain", "transposed", "stepped", "misaligned", "broadcast"]))
    if layout == "transposed":
        return array.T
    if layout == "stepped" and array.ndim:
        return array[:: draw(st.sampled_from([-2, -1, 2]))]
    if layout == "misaligned":
        return np.frombuffer(b"?" + array.tobytes(), array.dtype, offset=1).reshape(array.shape)
    if layout == "broadcast":
        return np.broadcast_to(array, (3, *array.shape))
    return array
