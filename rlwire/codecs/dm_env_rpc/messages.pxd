"""The table of messages, at C level."""

from libc.stdint cimport uint32_t

cdef enum Kind:
    TEXT             # string
    DATA             # bytes
    FLAG             # bool
    INT32
    DIMENSIONS       # repeated int32; a tuple
    UIDS             # repeated uint64; a list
    STATE            # EnvironmentStateType
    DATA_TYPE
    MESSAGE
    MESSAGES         # repeated; a tuple
    TENSOR           # one, or None
    BOUND            # a TensorSpec.Value, or None
    TENSORS_BY_UID   # map<uint64, Tensor>
    TENSORS_BY_NAME  # map<string, Tensor>
    SPECS_BY_UID     # map<uint64, TensorSpec>

cdef enum:
    MOST_FIELDS = 5     # of one message
    MOST_NUMBERS = 17   # field numbers are smaller
    # Sets of kinds, for _Field.is_in().
    VARINTS = 1 << FLAG | 1 << INT32 | 1 << STATE | 1 << DATA_TYPE
    NUMBERS = 1 << DIMENSIONS | 1 << UIDS
    TENSOR_MAPS = 1 << TENSORS_BY_UID | 1 << TENSORS_BY_NAME
    MAPS = TENSOR_MAPS | 1 << SPECS_BY_UID


cdef class _Field:
    cdef uint32_t number
    cdef Kind kind
    cdef str name
    cdef int at        # its place among the message's fields
    cdef _Message sub  # of MESSAGE, MESSAGES and SPECS_BY_UID

    cdef bint is_in(self, int kinds) noexcept


cdef class _Message:
    cdef type cls
    cdef list fields
    cdef list by_number  # None where there is no such field


cdef class _Choice:
    cdef str name
    cdef list by_number
    cdef dict by_class
