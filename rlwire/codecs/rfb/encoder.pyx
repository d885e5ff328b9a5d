"""RFB for a server: changed areas of a frame, and rectangles. See include/rlwire/rfb_encode.h.

Tight resets its stream with each rectangle, so viewers with the same settings get the same bytes.

Source: RFC 6143, section 7.7; Tight: rfbproto.rst.
"""

import io
import zlib

from cpython.buffer cimport PyBUF_ND, PyBUF_READ, PyBuffer_Release
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyObject_GetBuffer, Py_buffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memset

from rlwire.kernels cimport *

from rlwire.codecs.rfb._zlib import compressor
from rlwire.codecs.rfb.messages import Encoding

ENCODINGS = frozenset((Encoding.RAW, Encoding.TIGHT))
cdef int _FLUSH = zlib.Z_FULL_FLUSH  # later data does not refer to earlier data


cdef int _open_frame(object frame, Py_buffer *view) except -1:
    """Get the buffer of a frame: C-contiguous bytes of shape (height, width, 3)."""
    PyObject_GetBuffer(frame, view, PyBUF_ND | PyBUF_C_CONTIGUOUS)
    if (
        view.ndim != 3
        or view.itemsize != 1
        or view.shape[2] != 3
        or not 0 < view.shape[0] < 65536
        or not 0 < view.shape[1] < 65536
    ):
        shape = tuple([view.shape[i] for i in range(view.ndim)])
        PyBuffer_Release(view)
        raise ValueError(f"a frame must be uint8 of shape (height, width, 3), with 1 to 65535 rows "
                         f"and columns, not {shape}")
    return 0


def changed(object before, object after, Py_ssize_t tile=16) -> list:
    """Return the areas (x, y, width, height) in which two equally large frames differ, disjoint.

    Frames are C-contiguous uint8 of shape (height, width, 3). `tile` is the side of the compared
    squares in pixels.
    """
    cdef Py_buffer old, new
    cdef bytearray marks, memory
    cdef uint8_t *marked
    cdef rlw_rfb_rect *rects
    cdef size_t width, height, found, size = tile
    if tile < 1:
        raise ValueError(f"tile must be at least 1, not {tile}")
    memset(&new, 0, sizeof(new))
    _open_frame(before, &old)
    try:
        _open_frame(after, &new)
        if old.shape[0] != new.shape[0] or old.shape[1] != new.shape[1]:
            raise ValueError("frames of different sizes cannot be compared")
        height, width = new.shape[0], new.shape[1]
        marks = bytearray(((width + size - 1) // size) * ((height + size - 1) // size))
        marked = <uint8_t *> PyByteArray_AS_STRING(marks)
        with nogil:
            found = rlw_rfb_changed(
                <const uint8_t *> old.buf, <const uint8_t *> new.buf, width, height, size, marked
            )
        if found == 0:
            return []
        memory = bytearray(found * sizeof(rlw_rfb_rect))
        rects = <rlw_rfb_rect *> PyByteArray_AS_STRING(memory)
        found = rlw_rfb_gather(marked, width, height, size, rects)
        return [(rects[i].x, rects[i].y, rects[i].width, rects[i].height) for i in range(found)]
    finally:
        PyBuffer_Release(&old)
        PyBuffer_Release(&new)


cdef class RectangleEncoder:
    """Encodes rectangles of frames. Use it from one thread at a time.

    Args:
        quality: of Tight's JPEG, 1 to 100; None for exact pixels.
        compression: 0 to 9.
    """

    cdef rlw_rfb_encoder _encoder
    cdef object _compress
    cdef object _flush
    cdef object _error
    cdef int _encoding
    cdef object _quality

    def __init__(self, object pixel_format, *, object encoding, object quality=None,
                 int compression=1):
        cdef uint16_t[3] most = [
            pixel_format.red_max, pixel_format.green_max, pixel_format.blue_max
        ]
        cdef uint8_t[3] shift = [
            pixel_format.red_shift, pixel_format.green_shift, pixel_format.blue_shift
        ]
        if encoding not in ENCODINGS:
            raise ValueError(f"encoding must be one of {sorted(ENCODINGS)}, not {encoding!r}")
        if quality is not None and not 1 <= quality <= 100:
            raise ValueError(f"quality must be 1 to 100, not {quality!r}")
        if not 0 <= compression <= 9:
            raise ValueError(f"compression must be 0 to 9, not {compression}")
        self._encoding = encoding
        self._quality = quality
        if not rlw_rfb_pixels_init(&self._encoder.pixels, pixel_format.bits_per_pixel,
                                   pixel_format.depth, pixel_format.big_endian, most, shift):
            raise ValueError(f"the colours of {pixel_format!r} do not fit its bits")
        self._encoder.deflate = _deflate
        self._encoder.jpeg = NULL
        if quality is not None:
            self._encoder.jpeg = _jpeg
        stream = compressor(compression)
        self._compress, self._flush = stream.compress, stream.flush

    def __dealloc__(self):
        rlw_writer_free(&self._encoder.plain)

    def encode(self, object frame, object areas) -> tuple:
        """Return the number of rectangles for these areas of a frame, and their bytes."""
        cdef Py_buffer view
        cdef rlw_writer out
        cdef rlw_rfb_rect rect
        cdef rlw_status status = RLW_OK
        cdef size_t count = 0
        cdef Py_ssize_t x, y, width, height
        self._encoder.self = <void *> self
        rlw_writer_init(&out, NULL, 0)
        _open_frame(frame, &view)
        try:
            for x, y, width, height in areas:
                if (
                    x < 0 or y < 0 or width < 1 or height < 1
                    or x + width > view.shape[1] or y + height > view.shape[0]
                ):
                    raise ValueError(
                        f"an area of {width}x{height} at ({x}, {y}) is not within a frame of "
                        f"{view.shape[1]}x{view.shape[0]}"
                    )
                rect = rlw_rfb_rect(x, y, width, height)
                with nogil:
                    status = rlw_rfb_put_rect(
                        &self._encoder, &out, <const uint8_t *> view.buf, view.shape[1], &rect,
                        self._encoding, &count
                    )
                if status != RLW_OK:
                    error, self._error = self._error, None
                    raise MemoryError() if error is None else error
            return count, PyBytes_FromStringAndSize(<char *> out.start, rlw_written(&out))
        finally:
            rlw_writer_free(&out)
            PyBuffer_Release(&view)


cdef rlw_status _deflate(
    void *self, const uint8_t *data, size_t size, rlw_writer *out
) noexcept with gil:
    cdef RectangleEncoder encoder = <RectangleEncoder> self
    try:
        part = encoder._compress(PyMemoryView_FromMemory(<char *> data, size, PyBUF_READ))
        return _put(out, part + encoder._flush(_FLUSH))
    except BaseException as error:
        encoder._error = error
        return RLW_NO_MEMORY


cdef rlw_status _jpeg(
    void *self, const uint8_t *rgb, size_t stride, size_t width, size_t height, rlw_writer *out
) noexcept with gil:
    cdef RectangleEncoder encoder = <RectangleEncoder> self
    try:
        from PIL import Image

        size = stride * (height - 1) + 3 * width
        rows = PyMemoryView_FromMemory(<char *> rgb, size, PyBUF_READ)
        if height > 1 and stride != 3 * width:  # Pillow reads the end of the last row as well
            rows = b"".join(
                [rows[i * stride : i * stride + 3 * width] for i in range(<Py_ssize_t> height)]
            )
        image = Image.frombuffer("RGB", (width, height), rows, "raw", "RGB", 0, 1)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=encoder._quality)
        return _put(out, file.getvalue())
    except BaseException as error:
        encoder._error = error
        return RLW_NO_MEMORY


cdef rlw_status _put(rlw_writer *out, bytes part) noexcept:
    return rlw_put(out, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
