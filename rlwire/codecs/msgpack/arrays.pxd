cimport numpy as cnp


cdef str wire_name(cnp.dtype descr)
cdef cnp.dtype named_dtype(str name)
cdef cnp.dtype structured_dtype(list fields)
cdef list structured_fields(cnp.dtype descr)
