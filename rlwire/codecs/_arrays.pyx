"""NumPy arrays in C: dtypes and their names, views of received memory, arrays of other packages."""

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint8_t, uintptr_t
from libc.string cimport memmove

cimport numpy as cnp

from rlwire.buffers cimport Block
from rlwire.codecs._glue cimport path_of
from rlwire.kernels cimport (RLW_BOOL, RLW_FLOAT32, RLW_INT8, RLW_UINT8, rlw_dtype,
                             rlw_host_is_little, rlw_text)

import numpy as np

from rlwire.codecs.casting import as_array
from rlwire.errors import EncodeError

cdef extern from *:
    """
    /* Steals a reference to descr, which NumPy's own declarations for Cython cannot express. */
    #define rlw_new_array(descr, dims, shape, data, flags) \\
        PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)(descr), (dims), (shape), NULL, \\
                             (data), (flags), NULL)
    #define rlw_is_element(array, o) \\
        (Py_TYPE(o) == PyArray_DESCR(array)->typeobj || \\
         (PyLong_CheckExact(o) && PyArray_TYPE(array) == NPY_INT64))
    """
    bint rlw_is_element(cnp.ndarray array, object o) noexcept
    object rlw_new_array(PyObject *descr, int dims, cnp.npy_intp *shape, void *data, int flags)

cnp.import_array()

# str(dtype) takes microseconds, and every array needs one.
cdef list _NATIVE_NAMES = [None] * 32
for _number in (*range(cnp.NPY_BOOL, cnp.NPY_CLONGDOUBLE + 1), cnp.NPY_FLOAT16):
    if _number != cnp.NPY_OBJECT:
        _NATIVE_NAMES[_number] = cnp.PyArray_DescrFromType(_number).name


cdef str dtype_name(cnp.dtype descr, const Step *path=NULL):
    """Return str(dtype) as on a little-endian host; EncodeError for a dtype that is not plain."""
    cdef int number = descr.type_num
    cdef char order = descr.byteorder
    if 0 <= number < 32 and order != c">" and order != c"<":
        name = _NATIVE_NAMES[number]
        if name is not None and (rlw_host_is_little() or descr.itemsize == 1):
            return <str> name
    # Above NPY_FLOAT16 are other packages' dtypes, and some have the kind of floats.
    if (number > cnp.NPY_FLOAT16 or descr.kind not in "biufcSUmM" or descr.itemsize == 0
            or descr.hasobject):
        raise EncodeError(
            f"an array of dtype {descr} cannot be sent: expected numbers, booleans, dates or "
            f"fixed-length strings", path=path_of(path)
        )
    little = order == c"<" or order == c"|" or (order == c"=" and rlw_host_is_little())
    return <str> (descr.name if little and descr.kind not in b"SU" else descr.str)


# Dtypes of numbers and booleans in this host's order, by kind and itemsize.
cdef enum:
    KINDS = 32
    ITEMSIZES = 33

cdef list _PLAIN = [None] * (KINDS * ITEMSIZES)
# Where a long double is a double, the double overwrites it.
for _name in ("g", "G", "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8",
              "c16"):
    _descr = np.dtype(_name)
    if _descr.itemsize < ITEMSIZES:
        _PLAIN[(ord(_descr.kind) & (KINDS - 1)) * ITEMSIZES + _descr.itemsize] = _descr


cdef cnp.dtype plain_dtype(char kind, size_t itemsize):
    """Return the dtype of numbers or booleans in this host's order; None if it has none."""
    if kind < c"a" or itemsize >= ITEMSIZES:
        return None
    return <cnp.dtype> _PLAIN[(kind & (KINDS - 1)) * ITEMSIZES + <Py_ssize_t> itemsize]


cdef cnp.dtype dtype_of(const rlw_dtype *parsed, rlw_text name):
    """Return the dtype that a kernel has parsed; None if this host lacks it."""
    cdef cnp.dtype descr
    if parsed.kind in b"SUmM":
        # The kernel's grammar excludes object, void and structured dtypes.
        try:
            descr = np.dtype(name.data[:name.size].decode("ascii"))
        except (TypeError, ValueError):
            return None
        if descr.kind != parsed.kind or descr.itemsize != <Py_ssize_t> parsed.itemsize:
            return None
        if parsed.order == c"<" and not rlw_host_is_little():
            descr = descr.newbyteorder("<")
        return descr
    descr = plain_dtype(parsed.kind, parsed.itemsize)
    if descr is not None and parsed.order != c"|":
        if (parsed.order == c"<") != rlw_host_is_little():
            return cnp.PyArray_DescrNewByteorder(descr, parsed.order)
    return descr


cdef int number_kind(cnp.dtype descr) noexcept:
    """Return the kernels' `rlw_number` for a dtype of any byte order; -1 if it has none."""
    cdef int size = descr.itemsize
    cdef int step = 0 if size == 1 else 1 if size == 2 else 2 if size == 4 else 3
    if size > 8 or descr.type_num > cnp.NPY_FLOAT16:  # longdouble, other packages' floats
        return -1
    if descr.kind == c"f":
        return RLW_FLOAT32 + step - 2 if step > 1 else -1
    if descr.kind == c"i":
        return RLW_INT8 + step
    if descr.kind == c"u":
        return RLW_UINT8 + step
    return RLW_BOOL if descr.kind == c"b" else -1


cdef cnp.ndarray contiguous(cnp.ndarray array):
    """Return the array in row-major order, copied if needed."""
    if cnp.PyArray_IS_C_CONTIGUOUS(array):
        return array
    return cnp.PyArray_GETCONTIGUOUS(array)


cdef object foreign_array(object value, const Step *path=NULL):
    """Return the array that an object exposes on the CPU; None if it exposes none."""
    try:
        if PyObject_CheckBuffer(value) and not isinstance(value, np.ndarray):
            return np.asarray(memoryview(value))
        if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
            return as_array(np.asanyarray(value), "it")
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
    except MemoryError:
        raise
    except Exception as problem:
        raise EncodeError(
            f"cannot make an array of {type(value).__qualname__}: {problem}", path=path_of(path)
        ) from problem
    return None


def assign(cnp.ndarray array not None, Py_ssize_t place, object value):
    """Write a value with the dtype and shape of an array's row to it; return False for others."""
    cdef cnp.ndarray given
    cdef int i, overflow = 0, dims = cnp.PyArray_NDIM(array) - 1
    if not cnp.PyArray_CheckExact(value):
        if dims != 0 or not rlw_is_element(array, value):
            return False
        if type(value) is int:
            PyLong_AsLongLongAndOverflow(value, &overflow)
            if overflow:
                return False
        array[place] = value
        return True
    given = <cnp.ndarray> value
    if cnp.PyArray_DESCR(given) != cnp.PyArray_DESCR(array) or cnp.PyArray_NDIM(given) != dims:
        return False
    for i in range(dims):
        if cnp.PyArray_DIM(given, i) != cnp.PyArray_DIM(array, i + 1):
            return False
    if not (cnp.PyArray_IS_C_CONTIGUOUS(given) and cnp.PyArray_IS_C_CONTIGUOUS(array)
            and 0 <= place < cnp.PyArray_DIM(array, 0)):
        array[place] = given
        return True
    # The two may overlap: an endpoint may return a part of the batch.
    memmove(<char *> cnp.PyArray_DATA(array) + place * cnp.PyArray_STRIDE(array, 0),
            cnp.PyArray_DATA(given), <size_t> cnp.PyArray_NBYTES(given))
    return True


cdef cnp.ndarray new_array(cnp.dtype descr, int dims, cnp.npy_intp *shape):
    """Return an owned, writable, aligned, row-major array with uninitialised values."""
    Py_INCREF(descr)
    return <cnp.ndarray> rlw_new_array(<PyObject *> descr, dims, shape, NULL, 0)


cdef inline bint is_aligned(cnp.dtype descr, const uint8_t *data) noexcept:
    return <uintptr_t> data % <uintptr_t> cnp.PyDataType_ALIGNMENT(descr) == 0


cdef bint wants_view(CopyMode mode, cnp.dtype descr, const uint8_t *data, size_t size) noexcept:
    if mode == COPY_AS_NEEDED:
        return size >= VIEW_LEAST and is_aligned(descr, data)
    return mode == COPY_NEVER


cdef cnp.ndarray view_array(cnp.dtype descr, int dims, cnp.npy_intp *shape, const uint8_t *data,
                            bint writable, object owner):
    """Return an array over `data`, which `owner` keeps alive."""
    cdef int flags = 0
    if writable:
        flags |= cnp.NPY_ARRAY_WRITEABLE
    if is_aligned(descr, data):
        flags |= cnp.NPY_ARRAY_ALIGNED
    Py_INCREF(descr)
    array = <cnp.ndarray> rlw_new_array(<PyObject *> descr, dims, shape, <void *> data, flags)
    cnp.set_array_base(array, owner)
    return array


cdef object memory_owner(object source, const uint8_t *start):
    """Return the object that keeps views of the buffer of `source` alive; it starts at `start`."""
    if PyBytes_CheckExact(source) or type(source) is Block:
        return source
    # A memoryview gets its own view, because the caller may release it.
    if type(source) is memoryview and type(PyMemoryView_GET_BUFFER(source).obj) is Block:
        return <object> PyMemoryView_GET_BUFFER(source).obj
    view = PyMemoryView_FromObject(source)
    if <const uint8_t *> PyMemoryView_GET_BUFFER(view).buf != start:
        raise BufferError(
            f"{type(source).__qualname__} exports different memory for each request: decode with "
            f"copy=True"
        )
    return view


cdef object view_owner(PyObject **owner, PyObject *source, const uint8_t *start):
    """Return `memory_owner` of a message; `owner` is NULL before the first call, owned after it."""
    if owner[0] == NULL:
        made = memory_owner(<object> source, start)
        Py_INCREF(made)
        owner[0] = <PyObject *> made
    return <object> owner[0]


cdef dict _COPY = {True: COPY_ALWAYS, False: COPY_NEVER, None: COPY_AS_NEEDED}


cdef int copy_mode(object copy) except -1:
    """Return the mode of a decoder's option."""
    if copy not in _COPY:
        raise ValueError(f"copy must be True, False or None, not {copy!r}")
    return _COPY[copy]
