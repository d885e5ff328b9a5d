"""JSON to values, strictly by RFC 8259: for codecs whose messages are JSON.

What other modules cimport is in the .pxd: a `JsonReader` on the stack, values, texts and arrays of
numbers from it. The grammar is in include/rlwire/json.h. Not here: any protocol's messages.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyObject_GetBuffer, Py_buffer
from cpython.dict cimport PyDict_SetItem
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cimport numpy as cnp

from rlwire.codecs._arrays cimport new_array, number_kind
from rlwire.codecs._glue cimport (Budget, ITEM, afford, begin_budget, key_of, over_budget,
                                  raise_fault, text_of, valid_text, wide_size)
from rlwire.kernels cimport *

from rlwire.errors import DecodeError, LimitExceeded, quoted, shown
from rlwire.limits import DEFAULT, checked

cnp.import_array()

cdef extern from *:
    """
    #define rlw_dict_size(d) PyDict_GET_SIZE(d)

    /* A new reference at a list's end: takes it over, also when it fails. */
    static inline int rlw_list_append(PyObject *list, PyObject *item) {
        PyListObject *l = (PyListObject *)list;
        Py_ssize_t size = Py_SIZE(l);
        int failed;
        if (size < l->allocated) {
            PyList_SET_ITEM(list, size, item);
            Py_SET_SIZE(l, size + 1);
            return 0;
        }
        failed = PyList_Append(list, item);
        Py_DECREF(item);
        return failed;
    }

    #define rlw_take_reference(o) (Py_INCREF(o), (PyObject *)(o))
    """
    Py_ssize_t rlw_dict_size(dict d) noexcept
    int rlw_list_append(list items, PyObject *item) except -1
    PyObject *rlw_take_reference(object o) noexcept
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 most)
    uint8_t *PyUnicode_1BYTE_DATA(object text) noexcept

cdef enum:
    STACK = 512     # bytes of a text with escapes, and
    NUMBERS = 128   # numbers of an array, before the heap is asked
    DIGITS = 4300   # of an integer, as many as Python's own int() reads by default

cdef rlw_json_limits _DEFAULT_LIMITS
_DEFAULT_LIMITS.depth = DEFAULT.depth
_DEFAULT_LIMITS.items = DEFAULT.items
_DEFAULT_LIMITS.string = DEFAULT.string
cdef uint64_t _DEFAULT_MESSAGE = DEFAULT.message
cdef uint64_t _DEFAULT_EXPANDED = DEFAULT.expanded
cdef unsigned _DEFAULT_DIMS = DEFAULT.dims


cdef int begin_json(JsonReader *r, const uint8_t *data, size_t size, limits) except -1:
    """Set up a reader of strict defaults: no big integers, no name twice."""
    cdef rlw_json_limits room
    cdef uint64_t message = _DEFAULT_MESSAGE
    r.start = data
    r.big_integers = r.numbers = r.ragged = False
    r.repeated = REFUSE_REPEATED
    if limits is None or limits is DEFAULT:
        begin_budget(&r.budget, _DEFAULT_EXPANDED)
        r.dims = _DEFAULT_DIMS
        rlw_json_reader_init(&r.json, data, size, &_DEFAULT_LIMITS)
    else:
        limits = checked(limits)
        room.depth, room.items, room.string = limits.depth, limits.items, limits.string
        message, r.dims = limits.message, limits.dims
        begin_budget(&r.budget, min(limits.expanded, 2**62))
        rlw_json_reader_init(&r.json, data, size, &room)
    if size > message:
        raise LimitExceeded("message", message, size, offset=0)
    return 0


# --- errors


cdef enum:
    NAME_SHOWN = 400  # bytes of a name in a path


cdef str _path(const uint8_t *data, size_t size, size_t offset):
    """`$.state[3]`, where in a message a byte stands: found by reading it again up to there."""
    cdef rlw_json_limits unlimited
    cdef rlw_json_reader r
    cdef rlw_json_value v
    cdef rlw_json_text name
    cdef int more
    unlimited.depth = unlimited.items = unlimited.string = <uint64_t> -1
    rlw_json_reader_init(&r, data, size, &unlimited)
    steps = []  # of each open list the index, of each open object the name or None
    while rlw_json_read(&r, &v) == RLW_OK and <size_t> (r.c.at - data) <= offset:
        more = v.kind >= RLW_JSON_LIST and not v.empty
        if more:
            steps.append(0 if v.kind == RLW_JSON_LIST else None)
        while not more and steps:
            step = steps.pop()
            is_list = type(step) is int
            if (rlw_json_next(&r, c"]" if is_list else c"}", &more) != RLW_OK
                    or <size_t> (r.c.at - data) > offset):
                more = False
                break
            if more:
                steps.append(step + 1 if is_list else None)
        if not more:
            break
        step = steps.pop()
        if step is None:
            if rlw_json_name(&r, &name) != RLW_OK or <size_t> (r.c.at - data) > offset:
                break
            # Of a long one only the beginning: a copy of all of it would cost what it weighs.
            step = _text(&name, NULL) if name.size <= NAME_SHOWN else (
                (<bytes> name.data[:NAME_SHOWN]).decode("utf-8", "replace") + "...")
        steps.append(step)
    parts = [f"[{step}]" if type(step) is int else "." + shown(step, 100) for step in steps]
    return "$" + "".join(parts)


cdef int json_wrong(JsonReader *r) except -1:
    """Raise what the kernel has found."""
    cdef const rlw_fault *fault = &r.json.c.fault
    path = _path(r.start, r.json.c.end - r.start, fault.at - r.start)
    return raise_fault(fault, r.start, path)


cdef int json_wrong_at(JsonReader *r, const uint8_t *at, str reason) except -1:
    """Raise a DecodeError for the field at `at`."""
    raise DecodeError(reason, offset=at - r.start,
                      path=_path(r.start, r.json.c.end - r.start, at - r.start))


cdef int json_over(JsonReader *r, const uint8_t *at, size) except -1:
    """Raise that `size` bytes more pass the limit of what the text may make."""
    raise over_budget(&r.budget, size, at - r.start,
                      _path(r.start, r.json.c.end - r.start, at - r.start))


# --- values


cdef str _unescaped(const rlw_json_text *text, Budget *budget):
    """None: the budget does not last."""
    cdef uint8_t stack[STACK]
    cdef uint8_t *room = stack
    cdef size_t size
    if text.size > STACK:
        if budget != NULL and budget.left < text.size:  # until the str is made
            return None
        room = <uint8_t *> PyMem_Malloc(text.size)
        if room == NULL:
            raise MemoryError()
    try:
        size = rlw_json_unescape(text, room)
        return text_of(room, size, budget)
    finally:
        if room != stack:
            PyMem_Free(room)


cdef str _text(const rlw_json_text *text, Budget *budget):
    if text.escaped:
        return _unescaped(text, budget)
    if not text.ascii:
        return valid_text(text.data, text.size, budget)
    plain = PyUnicode_New(<Py_ssize_t> text.size, 127)
    memcpy(PyUnicode_1BYTE_DATA(plain), text.data, text.size)
    return <str> plain


cdef int _text_over(JsonReader *r, const rlw_json_text *text) except -1:
    return json_over(r, text.data - 1, 4 * text.size if text.escaped
                     else wide_size(text.data, text.size))


cdef str json_text(JsonReader *r, const rlw_json_text *text):
    """The str of a text that the kernel has passed."""
    found = _text(text, &r.budget)
    if found is None:
        _text_over(r, text)
    return found


cdef str json_key(JsonReader *r, const rlw_json_text *text):
    """The same; one that came before is the same object, its hash already known."""
    cdef str found
    if text.escaped:
        found = _unescaped(text, &r.budget)
    else:
        found = key_of(text.data, text.size, &r.budget)
    if found is None:
        _text_over(r, text)
    return found


cdef object _big(JsonReader *r, const rlw_json_value *v):
    if not r.big_integers:
        json_wrong_at(r, v.at, "an integer of more than 64 bits")
    if v.text.size > DIGITS:  # before Python's own check, and where it has none
        json_wrong_at(r, v.at, f"an integer of more than {DIGITS} digits")
    return int(v.text.data[:v.text.size])


cdef list _list(JsonReader *r):
    cdef list items = []
    cdef int more = 1
    while more:
        if not afford(&r.budget, ITEM):
            json_over(r, r.json.c.at, ITEM)
        item = read_json(r)
        rlw_list_append(items, rlw_take_reference(item))
        if rlw_json_next(&r.json, c"]", &more) != RLW_OK:
            json_wrong(r)
    return items


cdef int put_member(JsonReader *r, dict members, str key, object value,
                    const rlw_json_text *name) except -1:
    """Add a member to an object."""
    cdef Py_ssize_t count = rlw_dict_size(members)
    if r.repeated == FIRST_WINS:
        members.setdefault(key, value)
        return 0
    PyDict_SetItem(members, key, value)
    if rlw_dict_size(members) == count and r.repeated == REFUSE_REPEATED:
        json_wrong_at(r, name.data - 1, f"the name {quoted(key)} stands twice")
    return 0


cdef dict _object(JsonReader *r):
    cdef dict members = {}
    cdef rlw_json_text name
    cdef int more = 1
    while more:
        if rlw_json_name(&r.json, &name) != RLW_OK:
            json_wrong(r)
        if not afford(&r.budget, ITEM):
            json_over(r, r.json.c.at, ITEM)
        key = json_key(r, &name)
        put_member(r, members, key, read_json(r), &name)
        if rlw_json_next(&r.json, c"}", &more) != RLW_OK:
            json_wrong(r)
    return members


cdef int undo_json(JsonReader *r, const rlw_json_value *v) except -1:
    """Go back to the list or object of which the kernel has read the beginning."""
    r.json.c.at = v.at
    if not v.empty:
        r.json.depth -= 1
        r.json.items -= 1
    return 0


cdef bint _makes_none(list items):
    """Whether a list of numbers and of lists of numbers is no array: its items do not match."""
    cdef bint has_array = False
    for item in items:
        if isinstance(item, cnp.ndarray):
            has_array = True
        elif type(item) is not int and type(item) is not float and item != []:
            return False
    return has_array


cdef object _numbers(JsonReader *r, const rlw_json_value *v):
    """A list as an array, if it is one of numbers."""
    cdef rlw_json_reader inside = r.json
    cdef uint8_t first = inside.c.at[0] if inside.c.at < inside.c.end else 0
    if first == c"[" or first == c"-" or c"0" <= first <= c"9" or inside.special:
        undo_json(r, v)
        array = read_json_numbers(r)
        if array is not None and cnp.PyArray_SIZE(array):
            return array
        r.json = inside
    items = _list(r)
    if not r.ragged and _makes_none(items):
        json_wrong_at(r, v.at, "lists of different lengths or depths make no array")
    return items


cdef object json_value(JsonReader *r, const rlw_json_value *v):
    """The value of which the kernel has read the beginning."""
    if v.kind == RLW_JSON_REAL:
        return v.real
    if v.kind == RLW_JSON_STRING:
        return json_text(r, &v.text)
    if v.kind == RLW_JSON_INTEGER:
        return v.integer
    if v.kind == RLW_JSON_OBJECT:
        return {} if v.empty else _object(r)
    if v.kind == RLW_JSON_LIST:
        return [] if v.empty else _numbers(r, v) if r.numbers else _list(r)
    if v.kind == RLW_JSON_TRUE:
        return True
    if v.kind == RLW_JSON_FALSE:
        return False
    if v.kind == RLW_JSON_NATURAL:
        return v.natural
    if v.kind == RLW_JSON_BIG:
        return _big(r, v)
    return None


cdef object read_json(JsonReader *r):
    """The next value."""
    cdef rlw_json_value v
    if rlw_json_read(&r.json, &v) != RLW_OK:
        json_wrong(r)
    return json_value(r, &v)


# --- arrays


cdef int _measured(JsonReader *r, const rlw_json_shape *shape, size_t itemsize) except -1:
    """Pay for an array that is about to be made."""
    # No more numbers than the text has bytes: the product does not wrap.
    if not afford(&r.budget, shape.count * itemsize):
        json_over(r, r.json.c.at, shape.count * itemsize)
    return 0


cdef cnp.ndarray _new_array(cnp.dtype descr, const rlw_json_shape *shape):
    cdef cnp.npy_intp dims[32]
    cdef unsigned i
    for i in range(shape.dims):
        dims[i] = <cnp.npy_intp> shape.shape[i]
    return new_array(descr, <int> shape.dims, dims)


cdef cnp.dtype _dtype_of(rlw_number kind):
    return cnp.PyArray_DescrFromType(
        cnp.NPY_INT64 if kind == RLW_INT64 else cnp.NPY_UINT64 if kind == RLW_UINT64
        else cnp.NPY_FLOAT64
    )


cdef cnp.ndarray read_json_numbers(JsonReader *r):
    """The list of numbers that comes next, or None, with nothing read, where none does.

    Integers become int64, or uint64 where they are that large, others float64. Lists in it must
    make an array.
    """
    cdef uint64_t small[NUMBERS]
    cdef rlw_json_shape shape
    cdef rlw_number kind = RLW_FLOAT64
    cdef cnp.ndarray array = None
    cdef void *room = small
    cdef const uint8_t *start
    rlw_json_space(&r.json.c)
    start = r.json.c.at
    if start == r.json.c.end or start[0] != c"[":
        return None
    if rlw_json_measure(&r.json, r.dims, False, &shape) != RLW_OK:
        return None
    _measured(r, &shape, 8)
    if shape.count > NUMBERS:
        array = _new_array(_dtype_of(RLW_FLOAT64), &shape)
        room = cnp.PyArray_DATA(array)
    if rlw_json_fill(&r.json, &shape, RLW_JSON_ANY, &kind, room) != RLW_OK:
        r.json.c.at = start
        r.budget.left += 8 * shape.count
        return None
    if array is not None:
        if kind == RLW_FLOAT64:
            return array
        _measured(r, &shape, 8)  # for a moment there are two
    exact = _new_array(_dtype_of(kind), &shape)
    memcpy(cnp.PyArray_DATA(exact), room, 8 * shape.count)
    if array is not None:
        r.budget.left += 8 * shape.count
    return exact


cdef cnp.ndarray read_json_array(JsonReader *r, cnp.dtype descr):
    """The nested list of numbers, or booleans, that comes next, as an array of a given dtype.

    A number alone is an array without dimensions. None where lists of different lengths or depths
    may stay lists, and do; what was read is then to be undone.

    Raises:
        DecodeError: it is none, or a number does not fit the dtype.
    """
    cdef int kind = number_kind(descr)
    cdef rlw_number given
    cdef rlw_json_shape shape
    if kind < 0:
        raise TypeError(f"no array of dtype {descr} can be made of numbers")
    if cnp.PyArray_DescrCheck(descr) and descr.byteorder in b"<>":
        descr = descr.newbyteorder("=")
    rlw_json_space(&r.json.c)
    if r.json.c.at < r.json.c.end and r.json.c.at[0] != c"[":
        shape.dims, shape.count = 0, 1
    elif rlw_json_measure(&r.json, r.dims, kind == RLW_BOOL, &shape) != RLW_OK:
        return _unless_ragged(r)
    given = <rlw_number> kind
    _measured(r, &shape, rlw_number_size(given))
    array = _new_array(descr, &shape)
    if rlw_json_fill(&r.json, &shape, RLW_JSON_GIVEN, &given, cnp.PyArray_DATA(array)) != RLW_OK:
        return _unless_ragged(r)
    return array


cdef cnp.ndarray _unless_ragged(JsonReader *r):
    """None for lists that may stay lists. No error is made for them: its path costs a reading."""
    if not r.ragged or r.json.c.fault.status != RLW_BAD_RAGGED:
        json_wrong(r)
    return None


# --- buffers


cdef int open_json(object buffer, Py_buffer *view) except -1:
    """The UTF-8 of a str or a buffer; PyBuffer_Release() it."""
    cdef Py_ssize_t size = 0
    cdef const char *data
    if isinstance(buffer, str):
        try:
            data = PyUnicode_AsUTF8AndSize(buffer, &size)
        except UnicodeEncodeError as problem:
            raise DecodeError("half of a surrogate pair",
                              offset=len(buffer[:problem.start].encode())) from None
        return PyBuffer_FillInfo(view, buffer, <void *> data, size, True, PyBUF_SIMPLE)
    return PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
