"""What the steps by name use of a `SpecManager`, at C level."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cimport numpy as cnp

from rlwire.codecs.dm_env_rpc.tensors cimport Tensor
from rlwire.codecs.dm_env_rpc.wire cimport Draft, Input, Maxima, Step
from rlwire.kernels cimport rlw_field


cdef class _Slot:
    cdef Py_ssize_t index  # among the manager's slots
    cdef uint64_t uid
    cdef uint8_t key[12]   # the field of a map's key
    cdef uint32_t key_size
    cdef int kind          # a DataType; 0: none that a tensor can have
    cdef int dims
    cdef int64_t shape[32]
    cdef str name
    cdef object spec
    cdef cnp.ndarray low   # contiguous, of the spec's dtype; one element or all; None: no bound
    cdef cnp.ndarray high
    cdef object problem    # what is wrong with the bounds; None: nothing

    cdef bint fits(self, int dims, const int64_t *shape) noexcept
    cdef bint is_outside(self, const void *data, size_t count) except -1


cdef class SpecManager:
    cdef object __weakref__
    cdef readonly object specs_by_uid
    cdef readonly object specs_by_name
    cdef dict _name_to_uid
    cdef dict _uid_to_name
    cdef dict _by_name     # _Slot
    cdef list _slots       # in the order of their UIDs
    cdef uint64_t *_uids   # of the slots, for the search
    cdef object _limits

    cdef _Slot slot_of_name(self, object name, const Step *path)
    cdef _Slot slot_of_uid(self, uint64_t uid)  # None: there is none
    cdef str known(self)  # for error texts
    # Measures a value as an entry of a step's map.
    cdef int add(self, Draft *draft, _Slot slot, object value, Maxima *maxima, bint check,
                 const Step *path) except -1
    # Decodes one tensor of a step: `data` lies in the input.
    cdef object take(self, _Slot slot, Input *input, const uint8_t *data, size_t size, bint check,
                     const uint8_t *at, const Step *path)
