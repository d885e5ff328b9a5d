"""Values that the properties of several codecs are tried with."""

import numpy as np
from hypothesis import strategies as st

__all__ = ["arrays"]


@st.composite
def arrays(draw, dtypes):
    """Draw an array of any shape, bits and layout."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    count = int(np.prod(shape))
    if dtype.kind in "bUS":
        array = (np.arange(count) % 2).astype(dtype).reshape(shape)
    else:
        data = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
        array = np.frombuffer(data, dtype).reshape(shape)
    if draw(st.booleans()):
        array = array.T
    if array.ndim and draw(st.booleans()):
        array = array[:: draw(st.sampled_from([-2, -1, 2]))]
    return array
