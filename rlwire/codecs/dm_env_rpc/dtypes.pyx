"""dm_env_rpc's data types and NumPy's dtypes.

A kind is a DataType as a C number; in the headers it is an rlw_tensor_kind.
"""

cimport numpy as cnp

from rlwire.kernels cimport RLW_TENSOR_PROTO, RLW_TENSOR_STRING

import numpy as np

from rlwire.codecs.dm_env_rpc.values import DataType
from rlwire.errors import EncodeError

cnp.import_array()

__all__ = ["data_type", "numpy_dtype"]

cdef list _DTYPES = [
    None,
    np.dtype(np.float32),
    np.dtype(np.float64),
    np.dtype(np.int8),
    np.dtype(np.int32),
    np.dtype(np.int64),
    np.dtype(np.uint8),
    np.dtype(np.uint32),
    np.dtype(np.uint64),
    np.dtype(np.bool_),
    np.dtype(np.str_),
    np.dtype(np.object_),
]
# As they stand on the wire; the native ones on a little-endian host.
cdef list _WIRE_DTYPES = [
    None if dtype is None else dtype.newbyteorder("<") if dtype.kind in "fiu" else dtype
    for dtype in _DTYPES
]

# What NumPy's type numbers are on the wire; several of them may be the same integer.
cdef int _kinds[32]
for _number in range(32):
    _kinds[_number] = 0
for _number in range(cnp.NPY_BOOL, cnp.NPY_LONGDOUBLE):
    _found = cnp.PyArray_DescrFromType(_number)
    if _found in _DTYPES[1:10]:  # without the None, which equals float64
        _kinds[_number] = 1 + _DTYPES[1:10].index(_found)
_kinds[<int> cnp.NPY_UNICODE] = RLW_TENSOR_STRING
_kinds[<int> cnp.NPY_OBJECT] = RLW_TENSOR_PROTO


# ---- data types ----

cdef int kind_of(cnp.dtype descr) noexcept:
    """The DataType of an array's elements, in whichever byte order; 0 if there is none."""
    cdef int number = descr.type_num
    return _kinds[number] if 0 <= number < 32 else 0


cdef int data_type_of(object dtype) except -1:
    cdef int kind
    if dtype is None:
        return 0
    if isinstance(dtype, int):
        if not 1 <= dtype < KINDS:
            raise EncodeError(f"dm_env_rpc has no data type {dtype}")
        return <int> dtype
    descr = np.dtype(dtype)
    kind = kind_of(descr)
    if kind == 0:
        raise EncodeError(f"dm_env_rpc has no data type for dtype {descr}")
    return kind


cdef cnp.dtype dtype_of_kind(int kind):
    return <cnp.dtype> _DTYPES[kind] if 0 < kind < KINDS else None


cdef cnp.dtype wire_dtype_of_kind(int kind):
    return <cnp.dtype> _WIRE_DTYPES[kind] if 0 < kind < KINDS else None


cdef str shown_kind(int kind):
    return DataType(kind).name.lower() if 0 < kind < KINDS else f"data type {kind}"


def data_type(dtype):
    """Return the `DataType` for a NumPy dtype or anything that `numpy.dtype` takes.

    Raises:
        EncodeError: dm_env_rpc has no such type.
    """
    return DataType(data_type_of(np.dtype(dtype)))


def numpy_dtype(data_type):
    """Return the NumPy dtype for a `DataType`: of strings ``<U0``, of messages ``object``.

    Raises:
        EncodeError: dm_env_rpc has no such type.
    """
    if not isinstance(data_type, int):
        raise TypeError(f"expected a DataType, not {type(data_type).__qualname__}")
    return _DTYPES[data_type_of(data_type)]
