# Types for episodes.py, which is compiled.
cdef class _Fields:
    cdef dict _entries
    cdef str _path

    cpdef object get(self, object name, object default=*)
    cpdef object need(self, object name)
    cpdef object _typed(self, object name, tuple kinds, str wanted)
    cpdef bint flag(self, object name) except -1
    cpdef object seconds(self)
    cpdef object column(self, object name, object value, bint whole=*)
    cpdef tuple buffer(self, object name, bint raw=*)


cdef object _buffer(object column, object lookback, bint brief=*)
cdef object _column(object data, bint whole, int depth=*)
cdef object _check(object column, Py_ssize_t wanted, str name, Py_ssize_t steps, int depth=*)
