cimport numpy as cnp

cdef enum:
    KINDS = 12


cdef int kind_of(cnp.dtype descr) noexcept  # of an array's elements in any byte order; 0: none
cdef int data_type_of(object dtype) except -1  # of None: 0; EncodeError for a dtype without one
cdef cnp.dtype dtype_of_kind(int kind)  # native; None where there is no such DataType
cdef cnp.dtype wire_dtype_of_kind(int kind)  # little-endian
cdef str shown_kind(int kind)  # "int32", for error texts
