"""RFB's rectangles, painted into a framebuffer.

The kernels are in include/rlwire/rfb.h; here are the zlib streams between them, which a connection
has from its first rectangle to its last, so this is the one codec with a memory. A rectangle is
inflated by one call. What it may inflate to is known before: from its size, exactly for Tight, at
most for ZRLE.

Painting lets other threads run. Nobody else should paint into the same framebuffer meanwhile, and
`Framebuffer.resize` refuses to.

Source: RFC 6143, section 7.7; Tight, ExtendedDesktopSize and LastRect: rfbproto.rst.
"""

from cpython.buffer cimport (PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer,
                             Py_buffer)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cimport cython

from rlwire.codecs._glue cimport raise_fault
from rlwire.codecs.rfb.framebuffer cimport Framebuffer
from rlwire.kernels cimport *

from rlwire.codecs.rfb.inflating import choose, decode_jpeg
from rlwire.codecs.rfb.pixels import PixelFormat
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import checked

__all__ = ["Rectangle", "RectangleDecoder"]

cdef enum:
    ZRLE_STREAM = 4

cdef object NOTHING = memoryview(b"")


@cython.freelist(64)
cdef class Rectangle:
    """A rectangle that was decoded.

    Attributes:
        x, y, width, height: in pixels; of a pseudo-encoding what it makes of them.
        encoding: a number of `rlwire.codecs.rfb.encodings.Encoding`.
        payload: of a pseudo-encoding, a view of the bytes behind the head; else None.
    """

    def __init__(self, x, y, width, height, encoding, payload=None):
        self.x, self.y, self.width, self.height = x, y, width, height
        self.encoding = encoding
        self.payload = payload

    def __iter__(self):
        return iter((self.x, self.y, self.width, self.height, self.encoding))

    def __eq__(self, other):
        return tuple(self) == tuple(other) if isinstance(other, (Rectangle, tuple)) \
            else NotImplemented

    def __hash__(self):
        return hash(tuple(self))

    def __repr__(self):
        return (f"Rectangle(x={self.x}, y={self.y}, width={self.width}, height={self.height}, "
                f"encoding={self.encoding})")


cdef class RectangleDecoder:
    """Rectangles of one connection, in the order in which they come.

    Args:
        framebuffer: what is painted into. It may be resized between rectangles.
        pixel_format: what the server was told, or told first.
        limits: `received` is for the bytes of a rectangle, `expanded` for what it inflates to.
        inflater: one of `rlwire.codecs.rfb.inflating.INFLATERS`; if None what is installed, for
            Tight zlib-ng before isal, for ZRLE isal before zlib-ng.

    Attributes:
        framebuffer: the same.
        inflaters: the names of those in use, for Tight and for ZRLE.
        pixel_format: may be set when the server has been told another.

    After an error the framebuffer is as far as it got, and the connection is lost: its zlib streams
    cannot go on.
    """

    def __init__(self, framebuffer, pixel_format, *, limits=None, inflater=None):
        self.framebuffer = framebuffer
        self._limits = limits = checked(limits)
        self._received = min(limits.received, limits.message)
        self._expanded = limits.expanded
        self.inflaters, self._fresh, self._errors = zip(
            choose(inflater, "zlib-ng"), choose(inflater, "isal"))
        self._streams = [None] * (ZRLE_STREAM + 1)
        self.pixel_format = pixel_format

    @property
    def pixel_format(self):
        return self._format

    @pixel_format.setter
    def pixel_format(self, value):
        cdef rlw_rfb_format f
        if not isinstance(value, PixelFormat):
            raise TypeError(f"not a PixelFormat: {value!r}")
        f.bits = value.bits_per_pixel
        f.depth = value.depth
        f.big_endian = value.big_endian
        f.max[0], f.max[1], f.max[2] = value.red_max, value.green_max, value.blue_max
        f.shift[0], f.shift[1], f.shift[2] = value.red_shift, value.green_shift, value.blue_shift
        rlw_rfb_prepare(&self._pixels, &f)
        self._format = value
        memset(&self._progress, 0, sizeof(self._progress))

    cpdef Py_ssize_t size(self, object buffer, Py_ssize_t start, Py_ssize_t end) except -1:
        """Return the bytes of the rectangle that begins at `start`, its head included.

        0 while bytes that tell are still missing; asked again for the same rectangle, wherever it
        lies by then, it goes on where it was. The size may be known before all of it is there.

        Raises:
            DecodeError: it cannot be painted, for what is known of it.
            LimitExceeded: it is longer than the limit ``received``.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_status status
        cdef uint64_t size = 0
        cdef const uint8_t *data
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len or start > end:
                raise ValueError(f"{start} to {end} is not within {view.len} bytes")
            if end - start < RLW_RFB_HEAD:
                return 0
            data = <const uint8_t *> view.buf
            if memcmp(self._head, data + start, RLW_RFB_HEAD) != 0:
                memset(&self._progress, 0, sizeof(self._progress))
                memcpy(self._head, data + start, RLW_RFB_HEAD)
            rlw_cursor_init(&c, data + start, <size_t> (end - start))
            with nogil:
                status = rlw_rfb_measure(&c, &self._pixels, &self.framebuffer.screen,
                                         &self._progress, &size)
            if size > self._received:
                raise LimitExceeded("received", self._received, size, offset=start)
            if status == RLW_NEED_MORE:
                return 0
            # Another one of the same head may follow.
            memset(&self._progress, 0, sizeof(self._progress))
            if status != RLW_OK:
                self._refuse(&c, data)
            return <Py_ssize_t> size
        finally:
            PyBuffer_Release(&view)

    cpdef Rectangle decode(self, object buffer, Py_ssize_t offset=0):
        """Paint the rectangle at `offset`, all of which is in `buffer`, and return it.

        Raises:
            DecodeError: it is not what the protocol says, or not whole.
            LimitExceeded: it inflates to more than the limit ``expanded``.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_rfb_rectangle r
        cdef rlw_status status
        cdef const uint8_t *data
        cdef const rlw_rfb_layouts *pixels = &self._pixels
        cdef const rlw_rfb_screen *screen = &self.framebuffer.screen
        cdef Rectangle done
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        self.framebuffer.painted_by += 1
        try:
            if offset < 0 or offset > view.len:
                raise ValueError(f"{offset} is not within {view.len} bytes")
            memset(&self._progress, 0, sizeof(self._progress))
            data = <const uint8_t *> view.buf
            rlw_cursor_init(&c, data + offset, <size_t> (view.len - offset))
            status = rlw_rfb_read_head(&c, &r)
            if status == RLW_OK and rlw_rfb_paints(r.encoding):
                status = rlw_rfb_check_place(&c, data + offset, screen, &r)
            if status != RLW_OK:
                self._refuse(&c, data)
            done = Rectangle.__new__(Rectangle)
            done.x, done.y, done.width, done.height = r.x, r.y, r.width, r.height
            done.encoding = r.encoding
            if r.encoding == RLW_RFB_TIGHT:
                self._tight(&c, &r, data)
            elif r.encoding == RLW_RFB_ZRLE:
                self._zrle(&c, &r, data)
            elif not rlw_rfb_paints(r.encoding):
                if r.encoding == RLW_RFB_LAST_RECT or r.encoding == RLW_RFB_DESKTOP_SIZE:
                    done.payload = NOTHING
                else:
                    done.payload = self._payload(buffer, view.len, offset)
            else:
                with nogil:
                    if r.encoding == RLW_RFB_RAW:
                        status = rlw_rfb_paint_raw(&c, pixels, screen, &r)
                    elif r.encoding == RLW_RFB_HEXTILE:
                        status = rlw_rfb_paint_hextile(&c, pixels, screen, &r)
                    elif r.encoding == RLW_RFB_COPY_RECT:
                        status = rlw_rfb_paint_copy(&c, screen, &r)
                    else:
                        status = rlw_rfb_paint_rre(&c, pixels, screen, &r)
                if status != RLW_OK:
                    self._refuse(&c, data)
            return done
        finally:
            self.framebuffer.painted_by -= 1
            PyBuffer_Release(&view)

    def _payload(self, buffer, Py_ssize_t end, Py_ssize_t offset):
        """What stands behind the head of a pseudo-encoding."""
        size = self.size(buffer, offset, end)
        if not size or offset + size > end:
            raise DecodeError("the rectangle is not whole", offset=offset)
        return memoryview(buffer).cast("B")[offset + RLW_RFB_HEAD:offset + size]

    cdef bytes _inflate(self, int stream, const unsigned char *data, size_t size, uint64_t most,
                        Py_ssize_t offset):
        """The bytes that one call has; one more than `most` at most, so that more are seen."""
        cdef object inflate = self._streams[stream]
        cdef bytes made
        if most > self._expanded:
            # Only what is really there counts: `most` is of pixels, and those have a limit too.
            most = self._expanded
        if inflate is None:
            inflate = self._streams[stream] = self._fresh[stream == ZRLE_STREAM]().decompress
        try:
            # Not read after the call: zlib copies what it did not come to.
            made = inflate(
                PyMemoryView_FromMemory(<char *> data, <Py_ssize_t> size, PyBUF_READ),
                <object> (most + 1))
        except self._errors as problem:
            name = self.inflaters[stream == ZRLE_STREAM]
            raise DecodeError(f"{name} on stream {stream}: {problem}", offset=offset) from None
        if <uint64_t> PyBytes_GET_SIZE(made) > self._expanded:
            raise LimitExceeded("expanded", self._expanded, PyBytes_GET_SIZE(made), offset=offset)
        return made

    cdef int _tight(self, rlw_cursor *c, const rlw_rfb_rectangle *r,
                    const unsigned char *start) except -1:
        cdef rlw_rfb_tight t
        cdef rlw_cursor inside
        cdef rlw_status status = rlw_rfb_read_tight(c, &self._pixels, r, &t)
        cdef const rlw_rfb_layouts *pixels = &self._pixels
        cdef const rlw_rfb_screen *screen = &self.framebuffer.screen
        cdef bytes made
        cdef int i
        if status != RLW_OK:
            self._refuse(c, start)
        if t.resets:
            for i in range(4):
                if t.resets >> i & 1:
                    self._streams[i] = None
        if t.kind == RLW_RFB_JPEG:
            return self._jpeg(&t, r, t.data - start)
        if t.packed:
            made = self._inflate(t.stream, t.data, t.size, t.need, t.data - start)
            rlw_cursor_init(&inside, <const uint8_t *> PyBytes_AS_STRING(made),
                            <size_t> PyBytes_GET_SIZE(made))
        else:
            made = None
            rlw_cursor_init(&inside, t.data, t.size)
        with nogil:
            status = rlw_rfb_paint_tight(&inside, pixels, screen, r, &t)
        if status != RLW_OK:
            self._refuse_inflated(&inside, made, t.data, start)
        return 0

    cdef int _jpeg(self, const rlw_rfb_tight *t, const rlw_rfb_rectangle *r,
                   Py_ssize_t offset) except -1:
        cdef const uint8_t[:, :, ::1] made
        cdef uint32_t y
        cdef rlw_rfb_layout rgb
        cdef const rlw_rfb_screen *screen = &self.framebuffer.screen
        if not r.width or not r.height:
            return 0
        made = decode_jpeg((<const char *> t.data)[:t.size], r.width, r.height, offset)
        rgb.size, rgb.whole, rgb.lift = 3, 1, 0
        rgb.at[0], rgb.at[1], rgb.at[2] = 0, 1, 2
        with nogil:
            for y in range(r.height):
                rlw_rfb_row(&self._pixels, &rgb, screen.channels,
                            rlw_rfb_spot(screen, r.x, r.y + y), &made[y, 0, 0], r.width)
        return 0

    cdef int _zrle(self, rlw_cursor *c, const rlw_rfb_rectangle *r,
                   const unsigned char *start) except -1:
        cdef rlw_cursor inside
        cdef const uint8_t *data = NULL
        cdef size_t size = 0
        cdef const rlw_rfb_layouts *pixels = &self._pixels
        cdef const rlw_rfb_screen *screen = &self.framebuffer.screen
        cdef rlw_status status = rlw_take(c, 4, &data)
        cdef bytes made
        if status == RLW_OK:
            size = rlw_load_u32be(data)
            status = rlw_take(c, size, &data)
        if status != RLW_OK:
            self._refuse(c, start)
        made = self._inflate(ZRLE_STREAM, data, size,
                             rlw_rfb_zrle_most(pixels, r.width, r.height), data - start)
        rlw_cursor_init(&inside, <const uint8_t *> PyBytes_AS_STRING(made),
                        <size_t> PyBytes_GET_SIZE(made))
        with nogil:
            status = rlw_rfb_paint_zrle(&inside, pixels, screen, r)
        if status != RLW_OK:
            self._refuse_inflated(&inside, made, data, start)
        return 0

    cdef int _refuse(self, const rlw_cursor *c, const uint8_t *start) except -1:
        return raise_fault(&c.fault, start, "", "received")

    cdef int _refuse_inflated(self, const rlw_cursor *inside, bytes made,
                              const unsigned char *data, const unsigned char *start) except -1:
        """As `_refuse`, of a fault in inflated bytes: the offset is of the compressed ones."""
        cdef Py_ssize_t at
        if made is None:
            return raise_fault(&inside.fault, start, "")
        at = inside.fault.at - <const uint8_t *> PyBytes_AS_STRING(made)
        try:
            raise_fault(&inside.fault, inside.fault.at, "")
        except DecodeError as problem:
            raise DecodeError(f"{problem.reason} (byte {at} of what is inflated here)",
                              offset=data - start) from None
        return 0
