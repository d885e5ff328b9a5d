# Types for spaces.py, which is compiled.
cimport cython


cdef class Tensor:
    cdef readonly object spec
    cdef readonly str name
    cdef str _path
    cdef object _wire, _native, _scalar, _passed, _type, _least, _most, _largest, _stacked
    cdef bint _boolean, _double, _is_number, _exact, _same, _single

    cpdef object to_wire(self, object value)
    cpdef object to_native(self, object value)


cdef class _Texts(Tensor):
    cdef object _leaf
    cdef bint _checked

    cpdef object to_wire(self, object value)
    cpdef object to_native(self, object value)


cdef class Structure:
    cdef object _tree
    cdef Tensor _single
    cdef readonly bint is_leaf
    cdef readonly str what
    cdef readonly list leaves, specs, names

    @cython.locals(leaf=Tensor)
    cpdef dict flatten(self, object value, dict tensors=*)
    cpdef object build(self, object tensors)
