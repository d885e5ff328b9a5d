cdef class _Fields:
    cdef dict _entries
    cdef object _path
    cdef object get

    cdef need(self, name)
    cdef _typed(self, name, kinds, wanted)
    cdef flag(self, name)
    cdef count(self, name)
    cdef text(self, name)
    cdef seconds(self)
    cdef column(self, name, value, whole=*)
    cdef buffer(self, name, raw=*)

cdef _buffer(column, lookback, brief=*)
cdef _column(data, whole, depth=*)
cdef _length(column, name)
cdef _same(column, wanted, name, steps)
