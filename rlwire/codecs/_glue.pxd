from cpython.buffer cimport Py_buffer
from cpython.object cimport PyObject, PyObject_Call
from libc.stdint cimport int64_t, uint8_t, uint64_t

from rlwire.kernels cimport rlw_fault, rlw_text

cdef extern from "Python.h":
    # Of a list or a tuple.
    Py_ssize_t Py_SIZE(object items) noexcept
    PyObject *PySequence_Fast_GET_ITEM(object items, Py_ssize_t i) noexcept

cdef enum:
    ITEM = 256  # bytes that a list item or a dictionary's entry counts, whatever it is: see Limits


cdef struct Step:  # one step of a value's path, for error texts
    const Step *parent
    void *key  # borrowed str, or NULL for an index
    uint64_t index


cdef inline Step below(const Step *parent, void *key) noexcept nogil:
    cdef Step step
    step.parent = parent
    step.key = key
    step.index = 0
    return step


# What decoding one message may make beyond the bytes of the message: `Limits.expanded`. It lives on
# the stack beside the reader. Copies of a message's bytes are free, anything larger than its bytes
# is paid for in full, before it is made.
cdef struct Budget:
    uint64_t left
    uint64_t most


cdef inline void begin_budget(Budget *budget, uint64_t most) noexcept nogil:
    budget.left = budget.most = most


cdef inline bint afford(Budget *budget, uint64_t size) noexcept nogil:
    """Pay for `size` bytes; False, and nothing paid: raise over_budget()."""
    if size > budget.left:
        return False
    budget.left -= size
    return True


cdef inline bint afford_items(Budget *budget, uint64_t count) noexcept nogil:
    """The same for list items or entries; no more than a message has bytes."""
    return afford(budget, ITEM * count)


cdef object over_budget(const Budget *budget, object size, int64_t offset, str path)
cdef str path_of(const Step *step)
cdef int raise_fault(const rlw_fault *fault, const uint8_t *start, str path,
                     str over_message=*) except -1
# A str of UTF-8 bytes; UnicodeDecodeError when they are not. None when `budget`, which may be NULL,
# does not last: over_budget(budget, wide_size(data, size), ...).
cdef str text_of(const uint8_t *data, size_t size, Budget *budget)
cdef str valid_text(const uint8_t *data, size_t size, Budget *budget)  # known to be UTF-8
cdef uint64_t wide_size(const uint8_t *data, size_t size) noexcept
cdef PyObject *known_key(const uint8_t *data, size_t size) noexcept
cdef str key_of(const uint8_t *data, size_t size, Budget *budget)
cdef uint8_t *room_in(object buffer, Py_ssize_t offset, uint64_t size, Py_buffer *view) except? NULL
cdef Py_ssize_t copy_into(object buffer, Py_ssize_t offset, const void *data,
                          size_t size) except -1


cdef inline object made_with(object kind, dict options):
    """`kind(**options)`, of which Cython 3.3.1 frees too much where there is no memory to copy them."""
    return PyObject_Call(kind, (), options)
