# Types for episodes.py, which is compiled.
cdef class _Fields:
    cdef dict _entries
    cdef str _path

    cpdef object get(self, object name, object default=*)
    cpdef object need(self, object name)
    cpdef object _typed(self, object name, object kinds, str wanted)
    cpdef bint flag(self, object name) except -1
    cpdef object column(self, object name, object value, bint whole=*)
    cpdef tuple buffer(self, object name, bint raw=*)
