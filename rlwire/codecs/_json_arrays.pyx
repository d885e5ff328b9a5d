"""Arrays to JSON text and back, and the sizes in a JSON text that limits apply to."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport isinf
from libc.stdint cimport int64_t, uint8_t, uint64_t

cimport numpy as cnp

from rlwire.codecs._arrays cimport contiguous, number_kind
from rlwire.kernels cimport *

cnp.import_array()

cdef enum:
    DIMS = 32
    ITEM = 256  # bytes that a list item or member counts, see `Limits.expanded`
    WIDEST = 4  # bytes per character of a string with one beyond the basic plane


cdef enum:
    PLAIN, COMMA, OPEN, CLOSE, QUOTE, NULLS  # classes of bytes outside a string
    BACKSLASH, WIDE  # and inside one

cdef uint8_t[256] OUTSIDE
cdef uint8_t[256] INSIDE


cdef void _classify() noexcept:
    cdef int i
    for i in range(256):
        OUTSIDE[i] = PLAIN
        INSIDE[i] = WIDE if i >= 0x80 else PLAIN
    OUTSIDE[<int> c","] = COMMA
    OUTSIDE[<int> c"["] = OUTSIDE[<int> c"{"] = OPEN
    OUTSIDE[<int> c"]"] = OUTSIDE[<int> c"}"] = CLOSE
    OUTSIDE[<int> c'"'] = INSIDE[<int> c'"'] = QUOTE
    OUTSIDE[<int> c"n"] = NULLS
    INSIDE[<int> c"\\"] = BACKSLASH


_classify()


cdef inline size_t _expanded(size_t items, bint wide, size_t size) noexcept:
    return items * ITEM + (size * WIDEST if wide else 0)


def fits(bytes text, size_t string, size_t items, size_t expanded, size_t depth):
    """Return whether a text is within these limits by counts that are quick, and may be too high."""
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(text)
    cdef size_t size = PyBytes_GET_SIZE(text), left = size, commas = 0, opening = 0, i, count
    cdef uint8_t some, others, rare = 0
    while left:
        count = min(left, <size_t> 128)  # for counters of one byte, which fit SIMD registers
        some = others = 0
        for i in range(count):
            some += p[i] == c","
            others += (p[i] | 0x20) == c"{"  # or "["
            rare |= (p[i] & 0x80) | (p[i] == c"\\")
        commas += some
        opening += others
        p += count
        left -= count
    return (size <= string and commas + opening <= items and opening <= depth
            and _expanded(commas + opening, rare, size) <= expanded)


def measure(bytes text):
    """Return items (commas and opening brackets), depth, bytes of the longest string, bytes when
    decoded, and whether the text has nulls."""
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(text)
    cdef const uint8_t *end = p + PyBytes_GET_SIZE(text)  # a zero byte
    cdef const uint8_t *start
    cdef size_t items = 0, longest = 0
    cdef int64_t depth = 0, deepest = 0
    cdef bint wide = False, nulls = False
    cdef uint8_t kind
    while p < end:
        kind = OUTSIDE[p[0]]
        p += 1
        if kind == PLAIN:
            continue
        if kind == COMMA:
            items += 1
        elif kind == OPEN:
            items += 1
            depth += 1
            deepest = max(deepest, depth)
        elif kind == CLOSE:
            depth -= 1
        elif kind == NULLS:
            nulls = True
        else:
            start = p
            while p < end:
                kind = INSIDE[p[0]]
                if kind != PLAIN:
                    if kind == QUOTE:
                        break
                    if kind == BACKSLASH and p + 1 < end:
                        p += 1
                        wide |= p[0] >= 0x80 or p[0] == c"u"
                    else:
                        wide |= kind == WIDE
                p += 1
            longest = max(longest, <size_t> (p - start))
            p += 1
    return items, deepest, longest, _expanded(items, wide, PyBytes_GET_SIZE(text)), nulls


cdef inline uint8_t *_as_real(uint8_t *start, uint8_t *to) noexcept:
    """Add ".0" to the text of a whole number, which keeps it a float; NULL if it is not finite."""
    to[0] = 0
    while start[0] != 0 and start[0] != c"." and start[0] != c"e" and start[0] != c"n":
        start += 1
    if start[0] == c"n":  # nan or inf
        return NULL
    if start == to:
        to[0] = c"."
        to[1] = c"0"
        to += 2
    return to


cdef uint8_t *put_real(uint8_t *to, double value) noexcept:
    """Write a float in at most 26 bytes; return NULL if it is not finite."""
    return _as_real(to, rlw_put_number(to, RLW_FLOAT64, &value, -1))


cdef uint8_t *_put_list(uint8_t *to, int kind, const uint8_t **values, int size,
                        const cnp.npy_intp *shape, int dims) noexcept:
    """Write a list; return NULL if a number is not finite."""
    cdef cnp.npy_intp left = shape[0]
    cdef uint8_t *start
    to[0] = c"["
    to += left == 0  # else the loop steps over the bracket, later over each comma
    while left:
        start = to = to + 1
        if dims > 1:
            to = _put_list(to, kind, values, size, shape + 1, dims - 1)
            if to == NULL:
                return NULL
        else:
            to = rlw_put_number(to, <rlw_number> kind, values[0], -1)
            values[0] += size
            if kind >= RLW_FLOAT32:
                to = _as_real(start, to)
                if to == NULL:
                    return NULL
        to[0] = c","
        left -= 1
    to[0] = c"]"
    return to + 1


cpdef bytes text_of(cnp.ndarray array):
    """Return an array of numbers as nested JSON lists; None if JSON has no such numbers.

    Each float gets the shortest digits that read back as the same float of its dtype.
    """
    if array.descr.type_num == cnp.NPY_FLOAT16:
        array = array.astype("float32")
    cdef int kind = number_kind(array.dtype), dims = cnp.PyArray_NDIM(array), i
    cdef cnp.npy_intp lists = 1, rows = 1, width
    if kind < 0 or not dims:
        return None
    if cnp.PyArray_ISBYTESWAPPED(array):
        array = array.astype(array.dtype.newbyteorder("="))
    array = contiguous(array)
    for i in range(dims - 1):
        rows *= cnp.PyArray_DIM(array, i)
        lists += rows
    width = 28 if kind >= RLW_FLOAT32 else 6 if array.itemsize == 1 else 21  # includes the comma
    cdef bytes text = PyBytes_FromStringAndSize(NULL, width * array.size + 3 * lists + 40)
    cdef const uint8_t *values = <const uint8_t *> cnp.PyArray_DATA(array)
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(text)
    cdef uint8_t *end = _put_list(to, kind, &values, array.itemsize, array.shape, dims)
    return None if end == NULL else text[:end - to]


cdef struct Numbers:
    const uint8_t *end
    int64_t *whole
    double *real  # the same memory, used from the first number that is not an integer
    bint is_real
    size_t count
    int dims
    cnp.npy_intp shape[DIMS]


cdef inline const uint8_t *_read_number(Numbers *n, const uint8_t *p) noexcept:
    """Append a number; return NULL if there is none or it is too large."""
    cdef const uint8_t *q = p + (p[0] == c"-")
    cdef const uint8_t *first = q
    cdef uint64_t value = 0
    cdef size_t i
    while c"0" <= q[0] <= c"9":
        value = value * 10 + (q[0] - c"0")
        q += 1
    if q[0] == c"." or (q[0] | 0x20) == c"e":
        if not n.is_real:
            for i in range(n.count):
                if not -(<int64_t> 1 << 53) <= n.whole[i] <= <int64_t> 1 << 53:
                    return NULL
                n.real[i] = <double> n.whole[i]
            n.is_real = True
        q = rlw_parse_double(p, n.end, &n.real[n.count])
        if q == NULL or isinf(n.real[n.count]):
            return NULL
    elif not 0 < q - first < 19 or (first[0] == c"0" and q - first > 1):
        return NULL
    elif n.is_real and value > <uint64_t> 1 << 53:
        return NULL
    elif n.is_real:
        n.real[n.count] = <double> <int64_t> (0 - value if first != p else value)
    else:
        n.whole[n.count] = <int64_t> (0 - value if first != p else value)
    n.count += 1
    return q


cdef inline const uint8_t *_after_space(const uint8_t *p) noexcept:
    while p[0] == c" " or p[0] == c"\n" or p[0] == c"\r" or p[0] == c"\t":
        p += 1
    return p


cdef const uint8_t *_read_list(Numbers *n, const uint8_t *p, int depth) noexcept:
    """Append a list's numbers; return NULL if it is ragged or has other items."""
    cdef cnp.npy_intp count = 0
    cdef bint flat
    if depth >= DIMS:
        return NULL
    p = _after_space(p + 1)
    flat = p[0] != c"["
    if n.dims == 0 and flat:
        n.dims = depth + 1
    elif n.dims != 0 and flat != (depth + 1 == n.dims):
        return NULL
    while p[0] != c"]":
        p = _read_number(n, p) if flat else _read_list(n, p, depth + 1) if p[0] == c"[" else NULL
        if p == NULL:
            return NULL
        count += 1
        p = _after_space(p)
        if p[0] == c",":
            p = _after_space(p + 1)
        elif p[0] != c"]":
            return NULL
    if n.shape[depth] < 0:
        n.shape[depth] = count
    return p + 1 if n.shape[depth] == count else NULL


def array_of(bytes text):
    """Return a valid JSON text that is a list of numbers as int64 or float64; else None."""
    cdef Numbers n
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(text)
    cdef cnp.npy_intp i, size = PyBytes_GET_SIZE(text), most = 1
    cdef bint real = False
    if p[0] != c"[":
        return None
    for i in range(size):
        if p[i] == c",":
            most += 1
        elif p[i] == c'"':
            return None
        elif p[i] == c"." or (p[i] | 0x20) == c"e":
            real = True
    cdef cnp.ndarray values = cnp.PyArray_EMPTY(
        1, &most, cnp.NPY_FLOAT64 if real else cnp.NPY_INT64, 0
    )
    n.end, n.whole, n.real = p + size, <int64_t *> values.data, <double *> values.data
    n.count = n.dims = n.is_real = 0
    for i in range(DIMS):
        n.shape[i] = -1
    p = _read_list(&n, p, 0)
    if p != n.end:
        return None
    if n.count and real == n.is_real and <cnp.npy_intp> n.count == most:
        if n.dims == 1:
            return values
    else:
        values = values[: n.count].view("f8" if n.is_real or not n.count else "i8")
    return values.reshape([n.shape[i] for i in range(n.dims)])
