# cython: language_level=3
"""A Cython module of somebody else's that calls rlwire's codec without going through Python.

By hand, in an empty folder with a copy of this file and of build_outside.py, in an environment
with rlwire, NumPy, Cython and setuptools:
    python build_outside.py build_ext --inplace
    python -c 'import outside; print(outside.round_trip({"command": "reset"}))'
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from rlwire.buffers cimport Arena, Block
from rlwire.codecs.rlx.decoder cimport RLXDecoder
from rlwire.codecs.rlx.encoder cimport RLXEncoder
from rlwire.kernels cimport *


cdef class Pipe:
    """Takes messages in at one end and gives them out at the other."""

    cdef RLXEncoder encoder
    cdef RLXDecoder decoder
    cdef Arena arena

    def __init__(self):
        self.encoder = RLXEncoder(framed=True)
        self.decoder = RLXDecoder(framed=True, copy=False)
        self.arena = Arena()

    cpdef dict send(self, dict message):
        # Each a call in C: a cpdef method of the encoder, Arena.take, RLXDecoder.decode_memory.
        cdef bytes frame = self.encoder.encode(message)
        cdef Block block = self.arena.take(len(frame))
        memcpy(block.data, <const char *> frame, <size_t> len(frame))
        return self.decoder.decode_memory(block.data, <size_t> len(frame), block, True)

    cpdef dict send_in_place(self, dict message):
        cdef Block block = self.arena.take(1 << 20)
        cdef Py_ssize_t size = self.encoder.encode_into(message, block)
        return self.decoder.decode_memory(block.data, <size_t> size, block, True)

    cpdef dict send_by_parts(self, dict message):
        return self.decoder.decode(b"".join(self.encoder.encode_parts(message)))


def round_trip(message):
    return Pipe().send(message)


cdef rlw_status write_update(rlw_writer *w, double reward, const float *state,
                             uint32_t shape) noexcept nogil:
    """An update in RLX, unframed, without the GIL."""
    cdef rlw_status status = rlw_rlx_put_version(w)
    if status == RLW_OK:
        status = rlw_rlx_put_text(w, <const char *> b"command", 7)
    if status == RLW_OK:
        status = rlw_rlx_put_string(w, <const char *> b"update", 6)
    if status == RLW_OK:
        status = rlw_rlx_put_text(w, <const char *> b"reward", 6)
    if status == RLW_OK:
        status = rlw_rlx_put_double(w, reward)
    if status == RLW_OK:
        status = rlw_rlx_put_text(w, <const char *> b"state", 5)
    if status == RLW_OK:
        status = rlw_rlx_put_array_head(w, <const char *> b"float32", 7, 1, &shape, 4 * shape)
    if status == RLW_OK:
        status = rlw_put(w, state, 4 * <size_t> shape)
    return status


def kernel_update(double reward, const float[::1] state not None):
    """Return the bytes of an update, written by the C kernels alone."""
    cdef rlw_writer w
    cdef uint32_t count = <uint32_t> state.shape[0]
    cdef const float *numbers = &state[0] if count else NULL
    cdef rlw_status status
    rlw_writer_init(&w, NULL, 0)
    try:
        with nogil:
            status = write_update(&w, reward, numbers, count)
        if status != RLW_OK:
            raise MemoryError(rlw_status_text(status).decode())
        return (<const char *> w.start)[:rlw_written(&w)]
    finally:
        rlw_writer_free(&w)


def kernel_types(const uint8_t[::1] message):
    """Return the type number of each entry at the top of a message, or the kernel's complaint."""
    cdef rlw_rlx_limits limits
    cdef rlw_rlx_reader reader
    cdef rlw_rlx_value value
    cdef rlw_text key
    cdef rlw_status status
    limits.items, limits.string, limits.pixels = 1 << 20, 1 << 24, 1 << 26
    limits.depth, limits.dims = 64, 32
    rlw_rlx_reader_init(&reader, &message[0], <size_t> message.shape[0], &limits)
    status = rlw_rlx_read_version(&reader)
    types = {}
    while status == RLW_OK and rlw_left(&reader.c):
        status = rlw_rlx_read_text(&reader, &key)
        if status == RLW_OK:
            status = rlw_rlx_read(&reader, &value)
        if status == RLW_OK:
            types[key.data[:key.size].decode()] = <int> value.type
    if status != RLW_OK:
        return rlw_status_text(status).decode()
    return types
