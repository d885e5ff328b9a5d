"""RFB's rectangles, painted into a framebuffer. include/rlwire/rfb.h has the kernels.

A decoder keeps the zlib streams of one connection. A rectangle's size limits its inflated bytes.
Large rectangles are painted without the GIL; `Framebuffer.resize` raises in the meantime.

Source: RFC 6143, section 7.7; Tight and LastRect: rfbproto.rst.
"""

from cpython.buffer cimport (PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer,
                             Py_buffer)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cimport cython

import numpy as np

from rlwire.codecs._glue cimport raise_fault
from rlwire.kernels cimport *

from rlwire.codecs.rfb._zlib import choose
from rlwire.codecs.rfb.jpeg import decode_jpeg
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import checked

cdef enum:
    ZRLE_STREAM = 4
    LARGE = 65536  # pixels: isal inflates ZRLE of such screens faster than zlib-ng
    SMALL = 8192  # pixels: painting fewer is faster than releasing the GIL
    SHORT = 1024  # bytes: calling the inflater costs more than inflating so few,
    JOINED = 8192  # so ZRLE rectangles of up to this many bytes are inflated together
    FRAMES = 16  # an update may paint this many times the framebuffer's pixels,
    LEAST = 1 << 20  # and at least this many


cdef class Framebuffer:
    """Pixels of a screen, painted in place without a lock.

    Args:
        width, height: in pixels.
        limits: `pixels` is checked before allocation.

    Attributes:
        pixels: uint8 of shape (height, width, 3); `resize` replaces the array.
    """

    cdef readonly object pixels
    cdef readonly int width
    cdef readonly int height
    cdef object _limits
    cdef object _view  # keeps the memory of `screen` alive
    cdef rlw_rfb_screen screen
    cdef int painted_by  # calls that are painting

    def __init__(self, width, height, *, limits=None):
        self._limits = checked(limits)
        self.pixels = np.zeros((0, 0, 3), np.uint8)
        self.resize(width, height)

    def resize(self, width, height):
        """Change the size. Pixels that fit are kept; new ones are black."""
        cdef uint8_t[:, :, ::1] view
        if self.painted_by:
            raise RuntimeError("cannot resize a framebuffer while it is being painted")
        if width < 0 or height < 0:
            raise ValueError(f"a screen must have at least 0x0 pixels, not {width}x{height}")
        if width == self.width and height == self.height:
            return
        if width * height > self._limits.pixels:
            raise LimitExceeded("pixels", self._limits.pixels, width * height,
                                advice=f"the screen is {width}x{height}")
        fresh = np.zeros((height, width, 3), np.uint8)
        high, wide = min(height, self.height), min(width, self.width)
        fresh[:high, :wide] = self.pixels[:high, :wide]
        self._view = view = self.pixels = fresh
        self.height, self.width = height, width
        # An empty view has no first element to take the address of.
        self.screen.pixels = &view[0, 0, 0] if fresh.size else NULL
        self.screen.stride = <size_t> self.width * 3
        self.screen.width = self.width
        self.screen.height = self.height

    def snapshot(self, out=None):
        """Return a copy of the pixels, in `out` if given, an array of the same shape."""
        if out is None:
            return self.pixels.copy()
        np.copyto(out, self.pixels)
        return out

    def __repr__(self):
        return f"Framebuffer({self.width}, {self.height})"


@cython.freelist(64)
@cython.no_gc
cdef class Rectangle:
    """A decoded rectangle: x, y, width, height and encoding. It can be unpacked."""

    cdef readonly int x
    cdef readonly int y
    cdef readonly int width
    cdef readonly int height
    cdef readonly int encoding

    def __init__(self, x, y, width, height, encoding):
        self.x, self.y, self.width, self.height, self.encoding = x, y, width, height, encoding

    def __iter__(self):
        return iter((self.x, self.y, self.width, self.height, self.encoding))

    def __repr__(self):
        return f"Rectangle{tuple(self)}"


cdef class RectangleDecoder:
    """Decodes the rectangles of one connection, in order. After an error its zlib streams are lost.

    Args:
        framebuffer: may be resized between rectangles.
        limits: `received` limits a rectangle's bytes, `expanded` its inflated bytes.
        inflater: a key of `rlwire.codecs.rfb._zlib.INFLATERS`; None for the fastest installed.

    Attributes:
        counted: whole rectangles in the last result of `size`.
        ended: whether the last of them is a LastRect.
        painted: pixels painted so far in the update of the last `paint`.
        most: pixels that an update may paint: 16 times the framebuffer's, at least 2**20. A few
            bytes can fill or copy the whole framebuffer.
    """

    cdef readonly Framebuffer framebuffer
    cdef tuple _fresh  # functions that create a stream for Tight, and for ZRLE
    cdef tuple _errors  # their exceptions
    cdef list _streams  # four for Tight, one for ZRLE; None until used
    cdef uint64_t _received
    cdef uint64_t _expanded
    cdef rlw_rfb_progress _progress
    cdef unsigned char _head[12]  # of the rectangle being measured
    cdef readonly Py_ssize_t counted
    cdef readonly bint ended
    cdef readonly uint64_t painted
    cdef bytes _tiles  # inflated ZRLE, painted up to `_at`,
    cdef size_t _at
    cdef Py_ssize_t _short  # for this many more rectangles

    def __init__(self, framebuffer, *, limits=None, inflater=None):
        self.framebuffer = framebuffer
        limits = checked(limits)
        self._received = min(limits.received, limits.message)
        self._expanded = limits.expanded
        large = framebuffer.width * framebuffer.height > LARGE
        self._fresh, self._errors = zip(
            choose(inflater, "zlib-ng"), choose(inflater, "isal" if large else "zlib-ng"))
        self._streams = [None] * (ZRLE_STREAM + 1)

    @property
    def most(self):
        return _most(&self.framebuffer.screen)

    cpdef Py_ssize_t size(self, object buffer, Py_ssize_t start, Py_ssize_t end,
                          Py_ssize_t most=1) except -1:
        """Return the size of the rectangle at `start` in bytes, head included; 0 while unknown.

        A call with more bytes of the same rectangle continues, even if it has moved. While the
        rectangle is incomplete, `counted` is 0. Once it is complete, the size is that of up to
        `most` complete rectangles, up to the first one without pixels.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_status status
        cdef uint64_t size = 0
        cdef const uint8_t *data
        cdef Py_ssize_t at = start
        cdef int32_t encoding
        self.counted = 0
        self.ended = False
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len or start > end:
                raise ValueError(f"{start} to {end} is not within {view.len} bytes")
            data = <const uint8_t *> view.buf
            while self.counted < most and end - at >= RLW_RFB_HEAD:
                encoding = <int32_t> rlw_load_u32be(data + at + 8)
                if encoding < 0 and encoding != RLW_RFB_LAST_RECT and self.counted:
                    break
                if self.counted:
                    memset(&self._progress, 0, sizeof(self._progress))
                elif memcmp(self._head, data + at, RLW_RFB_HEAD) != 0:
                    memset(&self._progress, 0, sizeof(self._progress))
                    memcpy(self._head, data + at, RLW_RFB_HEAD)
                rlw_cursor_init(&c, data + at, <size_t> (end - at))
                status = rlw_rfb_measure(&c, &self.framebuffer.screen, &self._progress, &size)
                if size > self._received and not self.counted:
                    raise LimitExceeded("received", self._received, size, offset=at)
                # Only an incomplete first rectangle is measured again; others may have its head.
                if status != RLW_NEED_MORE or self.counted:
                    memset(&self._progress, 0, sizeof(self._progress))
                if status == RLW_NEED_MORE:
                    break
                if self.counted == 0:
                    if status != RLW_OK:
                        self._refuse(&c, data)
                    if size > <uint64_t> (end - at):
                        return <Py_ssize_t> size
                elif status != RLW_OK or size > <uint64_t> (end - at):
                    break  # reported once it is the first
                at += <Py_ssize_t> size
                self.counted += 1
                self.ended = encoding == RLW_RFB_LAST_RECT
                if encoding < 0:
                    break
            return at - start
        finally:
            PyBuffer_Release(&view)

    cpdef list paint(self, object buffer, Py_ssize_t offset, Py_ssize_t count, uint64_t painted=0):
        """Paint `count` consecutive rectangles in `buffer`, up to a LastRect; return them.

        `painted` is the number of pixels that the update has painted before.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_rfb_rectangle r
        cdef Rectangle made
        cdef const uint8_t *data
        cdef const uint8_t *head
        cdef list done = []
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        self.painted = painted
        self.framebuffer.painted_by += 1
        try:
            if offset < 0 or offset > view.len:
                raise ValueError(f"{offset} is not within {view.len} bytes")
            memset(&self._progress, 0, sizeof(self._progress))
            self._short = 0
            data = <const uint8_t *> view.buf
            rlw_cursor_init(&c, data + offset, <size_t> (view.len - offset))
            for count in range(count, 0, -1):
                head = c.at
                if rlw_rfb_read_head(&c, &r) != RLW_OK:
                    self._refuse(&c, data)
                if r.encoding == RLW_RFB_LAST_RECT:
                    break
                if not rlw_rfb_paints(r.encoding):
                    rlw_fail(&c, RLW_BAD_ENCODING, head + 8, <uint64_t> <uint32_t> r.encoding, 0)
                    self._refuse(&c, data)
                self._paint(&c, &r, head, data, count - 1)
                made = Rectangle.__new__(Rectangle)
                made.x, made.y, made.width, made.height = r.x, r.y, r.width, r.height
                made.encoding = r.encoding
                done.append(made)
            return done
        finally:
            self.framebuffer.painted_by -= 1
            PyBuffer_Release(&view)

    cdef int _paint(self, rlw_cursor *c, const rlw_rfb_rectangle *r, const unsigned char *head,
                    const unsigned char *start, Py_ssize_t more) except -1:
        cdef rlw_status status
        cdef rlw_rfb_tight t
        cdef rlw_cursor inside
        cdef size_t size = 0
        cdef const uint8_t *data = NULL
        cdef const rlw_rfb_screen *screen = &self.framebuffer.screen
        if rlw_rfb_check_place(c, head, screen, r) != RLW_OK:
            self._refuse(c, start)
        self.painted += rlw_rfb_work(c, r)
        if self.painted > _most(screen):
            raise LimitExceeded("painted", self.most, self.painted, offset=head - start,
                                advice="pixels of one update")
        if r.encoding == RLW_RFB_TIGHT:
            if rlw_rfb_read_tight(c, r, &t) != RLW_OK:
                self._refuse(c, start)
            if t.resets:
                for i in range(4):
                    if t.resets >> i & 1:
                        self._streams[i] = None
            if t.kind == RLW_RFB_JPEG:
                return self._jpeg(&t, r, t.data - start)
            if t.packed:
                made = self._inflate(t.stream, t.data, t.size, t.need, t.data - start)
                self._paint_inflated(made, 0, True, r, &t, t.data - start)
                return 0
            rlw_cursor_init(&inside, t.data, t.size)
            c = &inside
        elif r.encoding == RLW_RFB_ZRLE:
            status = rlw_take(c, 4, &data)
            if status == RLW_OK:
                size = rlw_load_u32be(data)
                status = rlw_take(c, size, &data)
            if status != RLW_OK:
                self._refuse(c, start)
            if self._short:
                self._short -= 1
            else:
                self._tiles, self._at = self._inflate_zrle(c, r, data, size, more, start), 0
            self._at = self._paint_inflated(
                self._tiles, self._at, not self._short, r, &t, data - start)
            if not self._short:
                self._tiles = None  # may be large
            return 0
        if _run(c, screen, r, &t) != RLW_OK:
            self._refuse(c, start)
        return 0

    cdef bytes _inflate_zrle(self, const rlw_cursor *c, const rlw_rfb_rectangle *r,
                             const unsigned char *data, size_t size, Py_ssize_t more,
                             const unsigned char *start):
        """Return a rectangle's inflated bytes, and those of the `_short` short ones after it."""
        cdef rlw_cursor ahead = c[0]
        cdef rlw_rfb_rectangle other
        cdef unsigned char joined[JOINED]
        cdef const uint8_t *tail = NULL
        cdef size_t length
        cdef uint64_t need, most = rlw_rfb_zrle_most(r.width, r.height)
        if size > SHORT:
            return self._inflate(ZRLE_STREAM, data, size, most, data - start)
        memcpy(joined, data, size)
        while (self._short < more and rlw_rfb_read_head(&ahead, &other) == RLW_OK
               and other.encoding == RLW_RFB_ZRLE and rlw_take(&ahead, 4, &tail) == RLW_OK):
            length = rlw_load_u32be(tail)
            need = rlw_rfb_zrle_most(other.width, other.height)
            if (length > SHORT or size + length > JOINED or most + need > self._expanded
                    or rlw_take(&ahead, length, &tail) != RLW_OK):
                break
            memcpy(joined + size, tail, length)
            size += length
            most += need
            self._short += 1
        return self._inflate(ZRLE_STREAM, joined, size, most, data - start)

    cdef bytes _inflate(self, int stream, const unsigned char *data, size_t size, uint64_t most,
                        Py_ssize_t offset):
        """Return the inflated bytes, at most one more than `most`."""
        cdef bytes made
        inflate = self._streams[stream]
        if inflate is None:
            inflate = self._streams[stream] = self._fresh[stream == ZRLE_STREAM]().decompress
        # `most` is computed from announced pixels; only bytes that arrive count.
        most = min(most, self._expanded)
        try:
            # zlib copies input that it has not consumed, so this is not read after the call.
            made = inflate(PyMemoryView_FromMemory(<char *> data, <Py_ssize_t> size, PyBUF_READ),
                           <object> (most + 1))
        except self._errors as problem:
            if "Error -4 " in str(problem):  # zlib's Z_MEM_ERROR is not the peer's fault
                raise MemoryError from None
            raise DecodeError(f"zlib stream {stream}: {problem}", offset=offset) from None
        if <uint64_t> PyBytes_GET_SIZE(made) > self._expanded:
            raise LimitExceeded("expanded", self._expanded, PyBytes_GET_SIZE(made), offset=offset)
        return made

    cdef Py_ssize_t _paint_inflated(self, bytes made, size_t at, bint last,
                                    const rlw_rfb_rectangle *r, const rlw_rfb_tight *t,
                                    Py_ssize_t offset) except -1:
        """Paint a rectangle from `made` at `at`; return its end, for the `last` one that of `made`.

        Errors have the offset of the compressed bytes.
        """
        cdef rlw_cursor inside
        cdef rlw_status status
        cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(made)
        rlw_cursor_init(&inside, data, <size_t> PyBytes_GET_SIZE(made))
        inside.at += at
        status = _run(&inside, &self.framebuffer.screen, r, t)
        if status == RLW_OK and (inside.at == inside.end or not last):
            return inside.at - data
        if status == RLW_OK:
            rlw_fail(&inside, RLW_TRAILING, inside.at, <uint64_t> (inside.end - inside.at), 0)
        try:
            raise_fault(&inside.fault, inside.fault.at, "")
        except DecodeError as problem:
            raise DecodeError(f"{problem.reason} (byte {inside.fault.at - data - at} of the "
                              f"inflated rectangle)", offset=offset) from None
        return 0

    cdef int _jpeg(self, const rlw_rfb_tight *t, const rlw_rfb_rectangle *r,
                   Py_ssize_t offset) except -1:
        cdef const uint8_t[:, :, ::1] made
        if r.width and r.height:
            made = decode_jpeg((<const char *> t.data)[:t.size], r.width, r.height, offset)
            with nogil:
                rlw_rfb_rows(&self.framebuffer.screen, r.x, r.y, &made[0, 0, 0], 3 * r.width, 3,
                             r.width, r.height)
        return 0

    cdef int _refuse(self, const rlw_cursor *c, const uint8_t *start) except -1:
        return raise_fault(&c.fault, start, "", "received")


cdef inline uint64_t _most(const rlw_rfb_screen *screen) noexcept:
    return max(<uint64_t> screen.width * screen.height * FRAMES, <uint64_t> LEAST)


cdef rlw_status _run(rlw_cursor *c, const rlw_rfb_screen *screen, const rlw_rfb_rectangle *r,
                     const rlw_rfb_tight *t) noexcept:
    if r.width * r.height < SMALL:
        return _run_unlocked(c, screen, r, t)
    with nogil:
        return _run_unlocked(c, screen, r, t)


cdef rlw_status _run_unlocked(rlw_cursor *c, const rlw_rfb_screen *screen,
                              const rlw_rfb_rectangle *r,
                              const rlw_rfb_tight *t) noexcept nogil:
    if r.encoding == RLW_RFB_RAW:
        return rlw_rfb_paint_raw(c, screen, r)
    if r.encoding == RLW_RFB_TIGHT:
        return rlw_rfb_paint_tight(c, screen, r, t)
    if r.encoding == RLW_RFB_ZRLE:
        return rlw_rfb_paint_zrle_tiles(c, screen, r)
    if r.encoding == RLW_RFB_HEXTILE:
        return rlw_rfb_paint_hextile(c, screen, r)
    if r.encoding == RLW_RFB_COPY_RECT:
        return rlw_rfb_paint_copy(c, screen, r)
    return rlw_rfb_paint_rre(c, screen, r)
