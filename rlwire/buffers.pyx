"""Blocks of memory to receive into, and views of other objects' memory to send."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo, Py_buffer
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport uint8_t, uintptr_t
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    #if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
    #define rlw_sole_owner(o) PyUnstable_Object_IsUniquelyReferenced(o)
    #elif defined(Py_GIL_DISABLED)
    #define rlw_sole_owner(o) 0 /* unknown: allocate a new block each time */
    #else
    #define rlw_sole_owner(o) (Py_REFCNT(o) == 1)
    #endif
    #ifdef RLWIRE_DEBUG
    #define RLWIRE_DEBUG_FLAG 1
    #else
    #define RLWIRE_DEBUG_FLAG 0
    #endif
    static long rlw_live_blocks = 0; /* changed under the GIL, in debug builds only */
    """
    bint rlw_sole_owner(object o) noexcept
    int RLWIRE_DEBUG_FLAG
    long rlw_live_blocks

DEBUG = bool(RLWIRE_DEBUG_FLAG)


def live_blocks() -> int:
    """Return the number of live blocks in debug builds (`RLWIRE_DEBUG=1`), else 0."""
    return rlw_live_blocks


cdef class Block:
    """Writable, uninitialised memory on a 64-byte boundary; buffers of it keep it alive."""

    def __cinit__(self, Py_ssize_t size):
        cdef uintptr_t address
        if size < 0:
            raise ValueError(f"block size must be at least 0 bytes, not {size}")
        self._allocation = malloc(<size_t> size + 64)
        if self._allocation == NULL:
            raise MemoryError(f"cannot allocate a block of {size} bytes")
        address = <uintptr_t> self._allocation
        self.data = <uint8_t *> self._allocation + (64 - address % 64) % 64
        self.size = size
        if RLWIRE_DEBUG_FLAG:
            global rlw_live_blocks
            rlw_live_blocks += 1

    def __dealloc__(self):
        if self._allocation != NULL:
            free(self._allocation)
            if RLWIRE_DEBUG_FLAG:
                global rlw_live_blocks
                rlw_live_blocks -= 1

    def __len__(self) -> int:
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 0, flags)


cdef class Arena:
    """Reuses a block when nothing refers to it any more: its memory is already mapped."""

    def __cinit__(self, Py_ssize_t keep=4 * 1024 * 1024):
        self.keep = keep

    cpdef Block take(self, Py_ssize_t size):
        """Return a block of at least `size` bytes that nothing else refers to."""
        cdef Block block = self._spare
        if block is not None:
            self._spare = None
            if block.size >= size and rlw_sole_owner(block):
                self._spare = block
                return block
        block = Block(size)
        if size <= self.keep:
            self._spare = block
        return block


@cython.freelist(16)
cdef class _Span:
    """Read-only bytes of another object, kept alive."""

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *> self.data, self.size, 1, flags)


cdef object span_view(const uint8_t *data, Py_ssize_t size, object owner):
    """Return a memoryview of `size` bytes at `data` that keeps `owner` alive."""
    cdef _Span span = _Span.__new__(_Span)
    span.data = data
    span.size = size
    span.owner = owner
    return PyMemoryView_FromObject(span)
