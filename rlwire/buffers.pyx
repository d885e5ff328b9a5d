"""Blocks of memory to receive into, and views of other objects' memory to send."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo, Py_buffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint8_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

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

    #ifdef __linux__
    #include <sys/mman.h>
    #endif
    /* Asks for huge pages for new memory of 4 MiB and more, as NumPy does: in small ones the page
     * faults take three times as long as the copy. */
    static inline void rlw_use_huge_pages(void *data, size_t size) {
    #ifdef MADV_HUGEPAGE
        size_t skip = (4096 - (uintptr_t)data % 4096) % 4096;
        if (size >= ((size_t)4 << 20)) madvise((char *)data + skip, size - skip, MADV_HUGEPAGE);
    #else
        (void)data, (void)size;
    #endif
    }
    """
    void rlw_use_huge_pages(void *data, size_t size) noexcept
    bint rlw_sole_owner(object o) noexcept
    int RLWIRE_DEBUG_FLAG
    long rlw_live_blocks

DEBUG = bool(RLWIRE_DEBUG_FLAG)


def live_blocks() -> int:
    """Return the number of live blocks in debug builds (`RLWIRE_DEBUG=1`), else 0."""
    return rlw_live_blocks


cdef class Block:
    """Writable, uninitialised memory on a 64-byte boundary; buffers of it keep it alive.

    They are of the whole block, or of the part that `narrow` set last.
    """

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
        self.narrow(self.data, size)
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
        PyBuffer_FillInfo(view, self, self._begin, self._length, 0, flags)
        Py_DECREF(None)  # which `view` held, by Cython

    cdef void narrow(self, const uint8_t *begin, Py_ssize_t length) noexcept:
        self._begin, self._length = <uint8_t *> begin, length

    cdef object view(self, const uint8_t *begin, Py_ssize_t length):
        """Return a memoryview of a part: one object, where slicing takes two."""
        self.narrow(begin, length)
        return PyMemoryView_FromObject(self)


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
                block.narrow(block.data, block.size)
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
        Py_DECREF(None)  # as above


cdef object span_view(const uint8_t *data, Py_ssize_t size, object owner):
    """Return a memoryview of `size` bytes at `data` that keeps `owner` alive."""
    cdef _Span span = _Span.__new__(_Span)
    span.data = data
    span.size = size
    span.owner = owner
    return PyMemoryView_FromObject(span)


cdef bytes new_bytes(Py_ssize_t size):
    """Return bytes for the caller to fill."""
    data = PyBytes_FromStringAndSize(NULL, size)
    rlw_use_huge_pages(PyBytes_AS_STRING(data), <size_t> size)
    return data


def joined(list parts not None) -> bytearray:
    """Return several bytes objects as one bytearray."""
    cdef Py_ssize_t size = 0
    cdef bytes part
    for part in parts:
        size += len(part)
    whole = PyByteArray_FromStringAndSize(NULL, size)
    cdef char *at = PyByteArray_AS_STRING(whole)
    rlw_use_huge_pages(at, <size_t> size)
    for part in parts:
        memcpy(at, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
        at += PyBytes_GET_SIZE(part)
    return whole
