"""The frequent texts: actions, observations and rewards of plain values, read and written at once.

Other texts, such as those with escapes, nulls or unknown members, are None: `messages` has the
general way.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.unicode cimport PyUnicode_1BYTE_DATA, PyUnicode_DecodeASCII, PyUnicode_GET_LENGTH
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy, strlen, strncmp

cimport numpy as cnp

from rlwire.codecs._json_arrays cimport (
    Number,
    after_space,
    array_at,
    put_real,
    read_number,
    text_of,
)
from rlwire.kernels cimport RLW_INT64, rlw_number, rlw_put_number

cdef extern from "Python.h":
    Py_UCS4 PyUnicode_MAX_CHAR_VALUE(object text)

cnp.import_array()

cdef enum:
    ROOM = 1024  # bytes of a text without its array
    MARGIN = 96  # bytes of a name and a number

cdef enum:  # a text's members, those of its headers, and those of its body
    METHOD, HEADERS, BODY
    SENT_AT, MESSAGE_ID, EPISODE_ID
    ACTION, OBSERVATION, REWARD, DONE, INFO
    MEMBERS

cdef const char *NAMES[MEMBERS]
NAMES[:] = [
    b"method", b"headers", b"body", b"sent_at", b"message_id", b"episode_id",
    b"action", b"observation", b"reward", b"done", b"info",
]
cdef size_t[MEMBERS] SIZES
SIZES[:] = [6, 7, 4, 7, 10, 10, 6, 11, 6, 4, 4]


cdef int _member(int first, int end, const uint8_t *name, size_t size) noexcept:
    """Return which member from `first` to `end` has this name; MEMBERS for others."""
    cdef int i
    for i in range(first, end):
        if size == SIZES[i] and memcmp(name, NAMES[i], size) == 0:
            return i
    return MEMBERS


cdef const uint8_t *_string_end(const uint8_t *p) noexcept:
    """Return the last quote of an ASCII string without escapes, else NULL."""
    if p[0] != c'"':
        return NULL
    p += 1
    while 0x20 <= p[0] < 0x80 and p[0] != c'"' and p[0] != c"\\":
        p += 1
    return p if p[0] == c'"' else NULL


cdef _scalar(const uint8_t **at, const uint8_t *end):
    """Return a string, number or boolean, and move after it; None for others."""
    cdef const uint8_t *p = at[0]
    cdef const uint8_t *q
    cdef Number number
    if p[0] == c'"':
        q = _string_end(p)
        if q == NULL:
            return None
        at[0] = q + 1
        return PyUnicode_DecodeASCII(<const char *> p + 1, q - p - 1, NULL)
    if p[0] == c"t" and strncmp(<const char *> p, "true", 4) == 0:
        at[0] = p + 4
        return True
    if p[0] == c"f" and strncmp(<const char *> p, "false", 5) == 0:
        at[0] = p + 5
        return False
    q = read_number(p, end, &number)
    if q == NULL:
        return None
    at[0] = q
    if number.is_real:
        return number.real
    return number.whole


cdef list _events(const uint8_t **at, const uint8_t *end):
    """Return an action's events, and move after them; None if there are other values."""
    cdef const uint8_t *p = at[0]
    cdef list events = [], event
    if p[0] != c"[":
        return None
    while True:
        p = after_space(p + 1)
        if p[0] != c"[":
            return None
        event = []
        while True:
            p = after_space(p + 1)
            value = _scalar(&p, end)
            if value is None:
                return None
            event.append(value)
            p = after_space(p)
            if p[0] != c",":
                break
        if p[0] != c"]" or type(event[0]) is not str:
            return None
        events.append(event)
        p = after_space(p + 1)
        if p[0] != c",":
            break
    if p[0] != c"]":
        return None
    at[0] = p + 1
    return events


cpdef list read(bytes text):
    """Return the values of a text, as of a binary message: code, message_id, sent_at, episode_id...

    Code 3, which no binary message has, is a reward without info.
    """
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(text)
    cdef const uint8_t *end = p + PyBytes_GET_SIZE(text)  # a zero byte
    cdef const uint8_t *name
    cdef const uint8_t *quote
    cdef int parent = METHOD, has = 0, member
    cdef list found = [None] * MEMBERS
    p = after_space(p)
    if p[0] != c"{":
        return None
    while True:  # at a brace or comma
        name = after_space(p + 1)
        quote = _string_end(name)
        if quote == NULL:
            return None
        name += 1
        member = (_member(METHOD, SENT_AT, name, quote - name) if parent == METHOD
                  else _member(SENT_AT, ACTION, name, quote - name) if parent == HEADERS
                  else _member(ACTION, MEMBERS, name, quote - name))
        p = after_space(quote + 1)
        if member == MEMBERS or has & 1 << member or p[0] != c":":
            return None
        has |= 1 << member
        p = after_space(p + 1)
        if member == HEADERS or member == BODY:
            if p[0] != c"{":
                return None
            parent = member
            continue
        if member == ACTION:
            value = _events(&p, end)
        elif member == OBSERVATION:
            value = array_at(&p)
        elif member != INFO:
            value = _scalar(&p, end)
        elif p[0] == c"{" and after_space(p + 1)[0] == c"}":
            value, p = {}, after_space(p + 1) + 1
        else:
            return None
        if value is None:
            return None
        found[member] = value
        p = after_space(p)
        if p[0] == c"}" and parent != METHOD:
            parent = METHOD
            p = after_space(p + 1)
        if p[0] == c"}":
            break
        if p[0] != c",":
            return None
    if parent != METHOD or after_space(p + 1) != end:
        return None
    method, number, sent_at, episode_id = (
        found[METHOD], found[MESSAGE_ID], found[SENT_AT], found[EPISODE_ID]
    )
    if type(number) is not int or type(sent_at) is not float or (
        type(episode_id) is not str and episode_id is not None
    ):
        return None
    has >>= ACTION
    if has == 0b1 and method == "v0.agent.action":
        return [2, number, sent_at, episode_id, found[ACTION]]
    if has == 0b10 and method == "v0.env.observation":
        return [1, number, sent_at, episode_id, found[OBSERVATION]]
    reward, done = found[REWARD], found[DONE]
    if has == 0b11100 and method == "v0.env.reward" and type(done) is bool and (
        type(reward) is float or type(reward) is int
    ):
        return [3, number, sent_at, episode_id, reward, done]
    return None


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


cpdef bytes write(int code, number, sent_at, episode_id, value, done=None):
    """Return the text of the values that `read` returns; None if it would not read them."""
    cdef uint8_t[ROOM] room
    cdef uint8_t *to = room
    cdef const uint8_t *end = room + ROOM
    cdef bytes array, text
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
        to = _put_value(to, end, b',"done":', done)
    if to == NULL or end - to < MARGIN:
        return None
    if code == 1:
        array = text_of(value) if type(value) is cnp.ndarray else None
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
