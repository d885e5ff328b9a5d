from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.object cimport PyObject, PyObject_Call
from libc.stdint cimport int64_t, uint8_t, uint64_t

from rlwire.kernels cimport rlw_cursor, rlw_cursor_init, rlw_fault, rlw_text

cdef extern from "Python.h":
    # For a list or a tuple.
    Py_ssize_t Py_SIZE(object items) noexcept
    PyObject *PySequence_Fast_GET_ITEM(object items, Py_ssize_t i) noexcept

cdef enum:
    ITEM = 256  # bytes that a list item or dictionary entry counts, see Limits.expanded


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


# `Limits.expanded` of one message, on the stack.
cdef struct Budget:
    uint64_t left
    uint64_t most


cdef inline void begin_budget(Budget *budget, uint64_t most) noexcept nogil:
    budget.left = budget.most = most


cdef inline bint afford(Budget *budget, uint64_t size) noexcept nogil:
    """Charge `size` bytes; if it returns False, raise over_budget()."""
    if size > budget.left:
        return False
    budget.left -= size
    return True


cdef inline bint afford_items(Budget *budget, uint64_t count) noexcept nogil:
    return afford(budget, ITEM * count)


cdef object over_budget(const Budget *budget, object size, int64_t offset, str path)
cdef str path_of(const Step *step)
cdef const char *utf8_of(object text, Py_ssize_t *size, uint64_t most,
                         const Step *path) except NULL
cdef int raise_fault(const rlw_fault *fault, const uint8_t *start, str path,
                     str over_message=*) except -1
# Decodes UTF-8 or raises UnicodeDecodeError. Returns None if `budget`, which may be NULL, is
# exceeded: raise over_budget(budget, wide_size(data, size), ...).
cdef str text_of(const uint8_t *data, size_t size, Budget *budget)
cdef uint64_t wide_size(const uint8_t *data, size_t size) noexcept
cdef PyObject *known_key(const uint8_t *data, size_t size) noexcept
cdef str key_of(const uint8_t *data, size_t size, Budget *budget)
cdef uint8_t *room_in(object buffer, Py_ssize_t offset, uint64_t size, Py_buffer *view) except? NULL
cdef Py_ssize_t copy_into(object buffer, Py_ssize_t offset, const void *data,
                          size_t size) except -1


cdef inline int open_range(object buffer, Py_ssize_t start, Py_ssize_t end, Py_buffer *view,
                           rlw_cursor *c) except -1:
    """Open a buffer that the caller releases, with a cursor over ``buffer[start:end]``."""
    PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
    if not 0 <= start <= end <= view.len:
        size = view.len
        PyBuffer_Release(view)
        raise ValueError(f"bytes {start} to {end} are not within a buffer of {size}")
    rlw_cursor_init(c, <const uint8_t *> view.buf + start, <size_t> (end - start))
    return 0


cdef inline object made_with(object kind, dict options):
    """Return `kind(**options)`, which in Cython 3.3.1 frees too much if copying them fails."""
    return PyObject_Call(kind, (), options)
