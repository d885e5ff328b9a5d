"""RFB's rectangles, painted into a framebuffer.

The kernels are in include/rlwire/rfb.h. A decoder keeps the zlib streams of one connection. A
rectangle is inflated by one call, short ones together by one; its size bounds what it inflates to.

Large rectangles are painted with the interpreter's lock released. Nothing else may paint into the
same framebuffer meanwhile, and `Framebuffer.resize` raises.

Source: RFC 6143, section 7.7; Tight, ExtendedDesktopSize and LastRect: rfbproto.rst.
"""

from cpython.buffer cimport (PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer,
                             Py_buffer)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cimport cython

import numpy as np

from rlwire.codecs._glue cimport raise_fault
from rlwire.kernels cimport *

from rlwire.codecs.rfb._zlib import choose
from rlwire.codecs.rfb.jpeg import decode_jpeg
from rlwire.codecs.rfb.messages import PixelFormat
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import checked

cdef enum:
    ZRLE_STREAM = 4
    LARGE = 65536  # pixels
    SMALL = 8192  # pixels: fewer are painted sooner than another thread would be let run
    SHORT = 1024  # bytes: fewer are inflated with the next rectangle's
    JOINED = 8192  # bytes of those at most
    FRAMES = 16  # as many pixels as they have may be painted at once,
    LEAST = 1 << 20  # and so many in any case

cdef struct Ahead:  # what is inflated of rectangles that are still to be painted
    size_t at  # where the next one's is
    uint32_t rectangles


cdef class Framebuffer:
    """Pixels of a screen, painted in place.

    Nothing locks them: another thread than the one that paints sees updates half done.

    Args:
        width, height: in pixels.
        channels: 3 for red, green, blue; 4 for these and 255.
        limits: `pixels` is checked before anything is made.

    Attributes:
        pixels: the array, (height, width, channels) of uint8, which `resize` replaces.
    """

    cdef readonly object pixels
    cdef readonly int width
    cdef readonly int height
    cdef readonly int channels
    cdef object _limits
    cdef object _view  # keeps the memory that `screen` has
    cdef rlw_rfb_screen screen
    cdef int painted_by  # how many paint just now, whose memory must stay

    def __init__(self, width, height, *, channels=3, limits=None):
        if channels != 3 and channels != 4:
            raise ValueError(f"a framebuffer has 3 or 4 channels, not {channels}")
        self.channels = channels
        self._limits = checked(limits)
        self._take(self._made(width, height))

    def _made(self, width, height):
        if width < 0 or height < 0:
            raise ValueError(f"a screen of {width}x{height}")
        if width * height > self._limits.pixels:
            raise LimitExceeded("pixels", self._limits.pixels, width * height)
        made = np.zeros((height, width, self.channels), np.uint8)
        made[..., 3:] = 255
        return made

    cdef int _take(self, object pixels) except -1:
        cdef uint8_t[:, :, ::1] view = pixels
        self.pixels = pixels
        self._view = view
        self.height, self.width = pixels.shape[:2]
        # An empty view has no first element to take the address of.
        self.screen.pixels = &view[0, 0, 0] if pixels.size else NULL
        self.screen.stride = <size_t> self.width * self.channels
        self.screen.width = self.width
        self.screen.height = self.height
        self.screen.channels = self.channels
        return 0

    def resize(self, width, height):
        """Take another size; what fits of the picture stays, the rest is black."""
        if self.painted_by:
            raise RuntimeError("the framebuffer is being painted into")
        if width == self.width and height == self.height:
            return
        fresh = self._made(width, height)
        high, wide = min(height, self.height), min(width, self.width)
        fresh[:high, :wide] = self.pixels[:high, :wide]
        self._take(fresh)

    def snapshot(self, out=None):
        """Return a copy of the pixels, in `out` if it is given: an array of their shape."""
        if out is None:
            return self.pixels.copy()
        np.copyto(out, self.pixels)
        return out

    def __repr__(self):
        return f"Framebuffer({self.width}, {self.height}, channels={self.channels})"


@cython.freelist(64)
@cython.no_gc
cdef class Rectangle:
    """A rectangle that was decoded; `payload` is what a pseudo-encoding has behind its head."""

    cdef readonly int x
    cdef readonly int y
    cdef readonly int width
    cdef readonly int height
    cdef readonly int encoding
    cdef readonly bytes payload

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
    """The rectangles of one connection, in order.

    Args:
        framebuffer: it may be resized between rectangles.
        pixel_format: of the pixels on the wire.
        limits: `received` is for the bytes of a rectangle, `expanded` for what it inflates to.
        inflater: one of `rlwire.codecs.rfb.inflating.INFLATERS`; if None what is installed, for
            Tight zlib-ng before isal, for ZRLE of more than 65,536 pixels isal before zlib-ng.

    Attributes:
        inflaters: the names of those in use, for Tight and for ZRLE.
        pixel_format: may be set when the server has been told another.
        counted: how many whole rectangles the last `size` was of.
        ended: whether the last of those is a LastRect.
        painted: pixels so far, of the last `paint`.
        most: pixels that an update may paint: 16 times the framebuffer's, or 2^20. Few bytes fill or
            copy all of it.

    After an error the connection is lost: its zlib streams cannot go on.
    """

    cdef readonly Framebuffer framebuffer
    cdef readonly tuple inflaters
    cdef object _format
    cdef tuple _fresh  # what makes a stream of Tight, and one of ZRLE
    cdef tuple _errors  # what they raise
    cdef object _limits
    cdef list _streams  # four of Tight's and one of ZRLE's, each None until it is used
    cdef uint64_t _received
    cdef uint64_t _expanded
    cdef rlw_rfb_layouts _pixels
    cdef rlw_rfb_progress _progress
    cdef unsigned char _head[12]  # of the rectangle that is measured
    cdef readonly Py_ssize_t counted
    cdef readonly bint ended
    cdef readonly uint64_t painted
    cdef Ahead _ahead[5]  # of each stream
    cdef list _inflated  # the bytes there
    cdef const unsigned char *_begins  # of the rectangle that is painted

    def __init__(self, framebuffer, pixel_format, *, limits=None, inflater=None):
        self.framebuffer = framebuffer
        self._limits = limits = checked(limits)
        self._received = min(limits.received, limits.message)
        self._expanded = limits.expanded
        self.inflaters, self._fresh, self._errors = zip(
            choose(inflater, "zlib-ng"),
            choose(inflater, "isal" if framebuffer.width * framebuffer.height > LARGE else "zlib-ng"))
        self._streams = [None] * (ZRLE_STREAM + 1)
        self._inflated = [None] * (ZRLE_STREAM + 1)
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

    @property
    def most(self):
        return _most(&self.framebuffer.screen)

    cpdef Py_ssize_t size(self, object buffer, Py_ssize_t start, Py_ssize_t end,
                          Py_ssize_t most=1) except -1:
        """Return the bytes of the rectangle that begins at `start`, its head included.

        0 while bytes that tell are missing; asked again for the same rectangle, wherever it is by
        then, it continues. If the size is known before the rectangle is whole, `counted` is 0. If it
        is whole, the size is of up to `most` whole rectangles, to one that paints nothing at most.
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
                status = rlw_rfb_measure(&c, &self._pixels, &self.framebuffer.screen,
                                         &self._progress, &size)
                if size > self._received and not self.counted:
                    raise LimitExceeded("received", self._received, size, offset=at)
                # Only where the first is not known is it asked for again; others may have its head.
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
                    break  # what is wrong with it is told when it is the first
                at += <Py_ssize_t> size
                self.counted += 1
                self.ended = encoding == RLW_RFB_LAST_RECT
                if encoding < 0:
                    break
            return at - start
        finally:
            PyBuffer_Release(&view)

    cpdef list paint(self, object buffer, Py_ssize_t offset, Py_ssize_t count, uint64_t painted=0):
        """Paint `count` rectangles that follow one another in `buffer`, or fewer if a LastRect comes.

        Their update has `painted` so many pixels before. Returns the rectangles, without a LastRect.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_rfb_rectangle r
        cdef const uint8_t *data
        cdef const uint8_t *head
        cdef list done = []
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        self.painted = painted
        self.framebuffer.painted_by += 1
        try:
            data = self._begin(&view, offset, &c)
            for count in range(count, 0, -1):
                head = c.at
                if rlw_rfb_read_head(&c, &r) != RLW_OK:
                    self._refuse(&c, data)
                if r.encoding == RLW_RFB_LAST_RECT:
                    break
                if not rlw_rfb_paints(r.encoding):
                    raise DecodeError(f"a rectangle of encoding {r.encoding} is no pixels",
                                      offset=head - data)
                self._paint(&c, &r, head, data, count - 1)
                done.append(_made_of(&r))
            return done
        finally:
            self.framebuffer.painted_by -= 1
            PyBuffer_Release(&view)

    cpdef Rectangle decode(self, object buffer, Py_ssize_t offset=0):
        """Paint the rectangle at `offset`, all of which is in `buffer`, and return it."""
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_rfb_rectangle r
        cdef const uint8_t *data
        cdef Py_ssize_t size
        cdef Rectangle done
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            data = self._begin(&view, offset, &c)
            if rlw_rfb_read_head(&c, &r) != RLW_OK:
                self._refuse(&c, data)
            if rlw_rfb_paints(r.encoding):
                return self.paint(buffer, offset, 1)[0]
            size = self.size(buffer, offset, view.len)
            if not self.counted:
                raise DecodeError("the rectangle is not whole", offset=offset)
            done = _made_of(&r)
            done.payload = PyBytes_FromStringAndSize(<const char *> c.at, size - RLW_RFB_HEAD)
            return done
        finally:
            PyBuffer_Release(&view)

    cdef const unsigned char *_begin(self, const Py_buffer *view, Py_ssize_t offset,
                                     rlw_cursor *c) except NULL:
        cdef const uint8_t *data = <const uint8_t *> view.buf
        if offset < 0 or offset > view.len:
            raise ValueError(f"{offset} is not within {view.len} bytes")
        memset(&self._progress, 0, sizeof(self._progress))
        memset(self._ahead, 0, sizeof(self._ahead))
        rlw_cursor_init(c, data + offset, <size_t> (view.len - offset))
        return data

    cdef int _paint(self, rlw_cursor *c, const rlw_rfb_rectangle *r, const unsigned char *head,
                    const unsigned char *start, Py_ssize_t more) except -1:
        """Paint what stands behind a head; `more` rectangles follow it."""
        cdef rlw_status status
        cdef const rlw_rfb_layouts *pixels = &self._pixels
        cdef const rlw_rfb_screen *screen = &self.framebuffer.screen
        if rlw_rfb_check_place(c, head, screen, r) != RLW_OK:
            self._refuse(c, start)
        self.painted += rlw_rfb_work(c, pixels, r)
        if self.painted > _most(screen):
            raise LimitExceeded("painted", self.most, self.painted, offset=head - start,
                                advice="pixels of one update")
        if r.encoding == RLW_RFB_TIGHT:
            return self._tight(c, r, start, more)
        if r.encoding == RLW_RFB_ZRLE:
            return self._zrle(c, r, start, more)
        if r.width * r.height < SMALL:
            status = _paint_plain(c, pixels, screen, r)
        else:
            with nogil:
                status = _paint_plain(c, pixels, screen, r)
        if status != RLW_OK:
            self._refuse(c, start)
        return 0

    cdef int _inflate(self, int stream, const rlw_cursor *c, const unsigned char *data, size_t size,
                      uint64_t most, const unsigned char *start, Py_ssize_t more,
                      rlw_cursor *inside) except -1:
        """Set the cursor to what a rectangle's bytes inflate to; its first byte is `_begins`.

        A call costs as much as inflating a few hundred bytes, so short ones that follow on the same
        stream are inflated with it, and kept for their turn. Of what is not used up at the end, a
        byte at most is made, so that it is seen.
        """
        cdef object inflate
        cdef bytes made
        cdef size_t total
        cdef unsigned char joined[JOINED]
        cdef uint32_t others = 0
        if not self._ahead[stream].rectangles:
            inflate = self._streams[stream]
            if inflate is None:
                inflate = self._streams[stream] = self._fresh[stream == ZRLE_STREAM]().decompress
            if size <= SHORT:
                memcpy(joined, data, size)
                total = size
                if more:
                    others = self._look_ahead(stream, c, more, joined, &total, &most)
                packed = PyBytes_FromStringAndSize(<char *> joined, <Py_ssize_t> total)
            else:
                packed = PyMemoryView_FromMemory(<char *> data, <Py_ssize_t> size, PyBUF_READ)
            if most > self._expanded:
                # Only what is really there counts: `most` is of pixels, and those have a limit too.
                most = self._expanded
            try:
                # Not read after the call: zlib copies what it did not come to.
                made = inflate(packed, <object> (most + 1))
            except self._errors as problem:
                if "Error -4 " in str(problem):  # zlib's Z_MEM_ERROR: it is not the peer's fault
                    raise MemoryError from None
                name = self.inflaters[stream == ZRLE_STREAM]
                raise DecodeError(f"{name} on stream {stream}: {problem}",
                                  offset=data - start) from None
            if <uint64_t> PyBytes_GET_SIZE(made) > self._expanded:
                raise LimitExceeded("expanded", self._expanded, PyBytes_GET_SIZE(made),
                                    offset=data - start)
            self._inflated[stream] = made
            self._ahead[stream].at = 0
            self._ahead[stream].rectangles = others + 1
        made = self._inflated[stream]
        rlw_cursor_init(inside, <const uint8_t *> PyBytes_AS_STRING(made),
                        <size_t> PyBytes_GET_SIZE(made))
        inside.at += self._ahead[stream].at
        self._begins = inside.at
        self._ahead[stream].rectangles -= 1
        return 0

    cdef uint32_t _look_ahead(self, int stream, const rlw_cursor *c, Py_ssize_t more,
                              unsigned char *joined, size_t *total, uint64_t *most) noexcept:
        """Join what short rectangles have on a stream; returns how many of them."""
        cdef rlw_cursor ahead = c[0]
        cdef rlw_rfb_rectangle r
        cdef rlw_rfb_tight t
        cdef uint32_t count = 0
        cdef const uint8_t *data = NULL
        cdef size_t size
        cdef uint64_t need
        while more > 0 and rlw_rfb_read_head(&ahead, &r) == RLW_OK:
            more -= 1
            if r.encoding == RLW_RFB_TIGHT and stream != ZRLE_STREAM:
                if rlw_rfb_read_tight(&ahead, &self._pixels, &r, &t) != RLW_OK \
                        or t.resets >> stream & 1:
                    break
                if not t.packed or t.stream != stream:
                    continue
                data, size, need = t.data, t.size, t.need
            elif r.encoding == RLW_RFB_ZRLE and stream == ZRLE_STREAM:
                if rlw_take(&ahead, 4, &data) != RLW_OK:
                    break
                size = rlw_load_u32be(data)
                if rlw_take(&ahead, size, &data) != RLW_OK:
                    break
                need = rlw_rfb_zrle_most(&self._pixels, r.width, r.height)
            else:
                break
            if size > SHORT or total[0] + size > JOINED or most[0] + need > self._expanded:
                break
            memcpy(joined + total[0], data, size)
            total[0] += size
            most[0] += need
            count += 1
        return count

    cdef int _used(self, int stream, const rlw_cursor *inside, rlw_status status,
                   const unsigned char *data, const unsigned char *start) except -1:
        """Note how far a rectangle came in what is inflated; the last must come to its end."""
        cdef rlw_cursor end = inside[0]
        if status == RLW_OK and not self._ahead[stream].rectangles:
            if inside.at == inside.end:
                self._inflated[stream] = None
                return 0
            status = rlw_fail(&end, RLW_TRAILING, inside.at, <uint64_t> (inside.end - inside.at), 0)
        if status != RLW_OK:
            self._refuse_inflated(&end, data, start)
        self._ahead[stream].at = <size_t> (
            inside.at - <const uint8_t *> PyBytes_AS_STRING(self._inflated[stream]))
        return 0

    cdef int _tight(self, rlw_cursor *c, const rlw_rfb_rectangle *r, const unsigned char *start,
                    Py_ssize_t more) except -1:
        cdef rlw_rfb_tight t
        cdef rlw_cursor inside
        cdef rlw_status status = rlw_rfb_read_tight(c, &self._pixels, r, &t)
        cdef const rlw_rfb_layouts *pixels = &self._pixels
        cdef const rlw_rfb_screen *screen = &self.framebuffer.screen
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
            self._inflate(t.stream, c, t.data, t.size, t.need, start, more, &inside)
            if self._ahead[t.stream].rectangles and rlw_left(&inside) > t.need:
                inside.end = inside.at + t.need  # the others' follow
        else:
            rlw_cursor_init(&inside, t.data, t.size)
        if r.width * r.height < SMALL:
            status = rlw_rfb_paint_tight(&inside, pixels, screen, r, &t)
        else:
            with nogil:
                status = rlw_rfb_paint_tight(&inside, pixels, screen, r, &t)
        if t.packed:
            self._used(t.stream, &inside, status, t.data, start)
        elif status != RLW_OK:
            self._refuse(&inside, start)
        return 0

    cdef int _jpeg(self, const rlw_rfb_tight *t, const rlw_rfb_rectangle *r,
                   Py_ssize_t offset) except -1:
        cdef const uint8_t[:, :, ::1] made
        cdef rlw_rfb_layout rgb
        cdef const rlw_rfb_screen *screen = &self.framebuffer.screen
        if not r.width or not r.height:
            return 0
        made = decode_jpeg((<const char *> t.data)[:t.size], r.width, r.height, offset)
        rgb.size, rgb.whole, rgb.lift = 3, 1, 0
        rgb.at[0], rgb.at[1], rgb.at[2] = 0, 1, 2
        with nogil:
            rlw_rfb_rows(&self._pixels, &rgb, screen, r.x, r.y, &made[0, 0, 0], 3 * r.width, r.width,
                         r.height)
        return 0

    cdef int _zrle(self, rlw_cursor *c, const rlw_rfb_rectangle *r, const unsigned char *start,
                   Py_ssize_t more) except -1:
        cdef rlw_cursor inside
        cdef const uint8_t *data = NULL
        cdef size_t size = 0
        cdef const rlw_rfb_layouts *pixels = &self._pixels
        cdef const rlw_rfb_screen *screen = &self.framebuffer.screen
        cdef rlw_status status = rlw_take(c, 4, &data)
        if status == RLW_OK:
            size = rlw_load_u32be(data)
            status = rlw_take(c, size, &data)
        if status != RLW_OK:
            self._refuse(c, start)
        self._inflate(ZRLE_STREAM, c, data, size, rlw_rfb_zrle_most(pixels, r.width, r.height), start,
                      more, &inside)
        if r.width * r.height < SMALL:
            status = rlw_rfb_paint_zrle_tiles(&inside, pixels, screen, r)
        else:
            with nogil:
                status = rlw_rfb_paint_zrle_tiles(&inside, pixels, screen, r)
        self._used(ZRLE_STREAM, &inside, status, data, start)
        return 0

    cdef int _refuse(self, const rlw_cursor *c, const uint8_t *start) except -1:
        return raise_fault(&c.fault, start, "", "received")

    cdef int _refuse_inflated(self, const rlw_cursor *inside, const unsigned char *data,
                              const unsigned char *start) except -1:
        """As `_refuse`, of a fault in inflated bytes: the offset is of the compressed ones."""
        cdef Py_ssize_t at = inside.fault.at - self._begins
        try:
            raise_fault(&inside.fault, inside.fault.at, "")
        except DecodeError as problem:
            raise DecodeError(f"{problem.reason} (byte {at} of what is inflated here)",
                              offset=data - start) from None
        return 0


cdef inline uint64_t _most(const rlw_rfb_screen *screen) noexcept:
    return max(<uint64_t> screen.width * screen.height * FRAMES, <uint64_t> LEAST)


cdef Rectangle _made_of(const rlw_rfb_rectangle *r):
    cdef Rectangle made = Rectangle.__new__(Rectangle)
    made.x, made.y, made.width, made.height = r.x, r.y, r.width, r.height
    made.encoding = r.encoding
    return made


cdef rlw_status _paint_plain(rlw_cursor *c, const rlw_rfb_layouts *pixels,
                             const rlw_rfb_screen *screen,
                             const rlw_rfb_rectangle *r) noexcept nogil:
    if r.encoding == RLW_RFB_RAW:
        return rlw_rfb_paint_raw(c, pixels, screen, r)
    if r.encoding == RLW_RFB_HEXTILE:
        return rlw_rfb_paint_hextile(c, pixels, screen, r)
    if r.encoding == RLW_RFB_COPY_RECT:
        return rlw_rfb_paint_copy(c, screen, r)
    return rlw_rfb_paint_rre(c, pixels, screen, r)
