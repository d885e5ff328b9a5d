"""The JSON of frequent messages: actions, observations and rewards of plain values, at once.

`messages` has the general way of writing, and reads both.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.unicode cimport PyUnicode_1BYTE_DATA, PyUnicode_GET_LENGTH
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, strlen, strstr

cimport numpy as cnp

from rlwire.codecs._json_arrays cimport put_real, text_of
from rlwire.kernels cimport RLW_INT64, rlw_number, rlw_put_number

cdef extern from "Python.h":
    Py_UCS4 PyUnicode_MAX_CHAR_VALUE(object text)

cnp.import_array()

cdef enum:
    ROOM = 1024  # bytes of a text without its array
    MARGIN = 96  # bytes of a name and a number


cdef uint8_t *_put(uint8_t *to, const char *text) noexcept:
    memcpy(to, text, strlen(text))
    return to + strlen(text)


cdef uint8_t *_put_value(uint8_t *to, const uint8_t *end, const char *before, value):
    """Write `before`, which is short, and a scalar; NULL for others, and without room."""
    cdef Py_ssize_t size, i
    cdef int overflow = 0
    cdef int64_t whole
    cdef const uint8_t *characters
    kind = type(value)
    if to == NULL or end - to < MARGIN:
        return NULL
    to = _put(to, before)
    if kind is str:
        size = PyUnicode_GET_LENGTH(value)
        if PyUnicode_MAX_CHAR_VALUE(value) >= 0x80 or end - to < size + MARGIN:
            return NULL
        characters = PyUnicode_1BYTE_DATA(value)
        to[0] = c'"'
        for i in range(size):
            to[i + 1] = characters[i]
            if characters[i] < 0x20 or characters[i] == c'"' or characters[i] == c"\\":
                return NULL
        to[size + 1] = c'"'
        return to + size + 2
    if kind is bool:
        return _put(to, "true" if value else "false")
    if kind is float:
        return put_real(to, value)
    if kind is not int:
        return NULL
    whole = PyLong_AsLongLongAndOverflow(value, &overflow)
    return NULL if overflow else rlw_put_number(to, <rlw_number> RLW_INT64, &whole, -1)


cdef uint8_t *_put_events(uint8_t *to, const uint8_t *end, events):
    cdef const char *before = b"["
    for event in events:
        if type(event) is not tuple and type(event) is not list:
            return NULL
        if not event or type(event[0]) is not str:
            return NULL
        for value in event:
            to = _put_value(to, end, before, value)
            if to == NULL:
                return NULL
            before = b","
        before = b"],["
    return _put(to, b"]]}}") if events else NULL


cpdef bytes with_id(bytes text, int64_t number):
    """Return a text with this number as its message id, in place of one of one digit."""
    cdef uint8_t[24] digits
    cdef uint8_t *end = rlw_put_number(digits, <rlw_number> RLW_INT64, &number, -1)
    cdef const char *start = PyBytes_AS_STRING(text)
    # The first match is the header: only the method and `sent_at` come before it.
    cdef const char *at = strstr(start, b'"message_id":') + strlen(b'"message_id":')
    return start[:at - start] + (<char *> digits)[:end - digits] + text[at + 1 - start:]


cpdef bytes write_text(int code, number, sent_at, episode_id, tuple values):
    """Return the text of a message with these values in its body; None if they are not plain.

    `code` is 1 for an observation, 2 for an action, as in binary messages, and 3 for a reward.
    """
    cdef uint8_t[ROOM] room
    cdef uint8_t *to = room
    cdef const uint8_t *end = room + ROOM
    cdef bytes array, text
    value = values[0]
    if code == 3 and (type(values[2]) is not dict or values[2]):
        return None
    to = _put_value(
        to, end,
        b'{"method":"v0.env.observation","headers":{"sent_at":' if code == 1
        else b'{"method":"v0.agent.action","headers":{"sent_at":' if code == 2
        else b'{"method":"v0.env.reward","headers":{"sent_at":',
        sent_at,
    )
    to = _put_value(to, end, b',"message_id":', number)
    if episode_id is not None:
        to = _put_value(to, end, b',"episode_id":', episode_id)
    if code == 3:
        to = _put_value(to, end, b'},"body":{"reward":', value)
        to = _put_value(to, end, b',"done":', values[1])
    if to == NULL or end - to < MARGIN:
        return None
    if code == 1:
        plain = type(value) is cnp.ndarray and cnp.PyArray_NDIM(<cnp.ndarray> value) <= 32
        array = text_of(value) if plain else None  # for more, `messages` checks the depth
        if array is None:
            return None
        to = _put(to, b'},"body":{"observation":')
        text = PyBytes_FromStringAndSize(NULL, to - room + len(array) + 2)
        memcpy(PyBytes_AS_STRING(text), room, to - room)
        memcpy(PyBytes_AS_STRING(text) + (to - room), PyBytes_AS_STRING(array), len(array))
        memcpy(PyBytes_AS_STRING(text) + len(text) - 2, b"}}", 2)
        return text
    if code == 2:
        to = _put_events(_put(to, b'},"body":{"action":['), end, value)
        if to == NULL:
            return None
    else:
        to = _put(to, b',"info":{}}}')
    return PyBytes_FromStringAndSize(<const char *> room, to - room)
