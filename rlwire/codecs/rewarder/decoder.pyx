"""The rewarder's JSON to messages. `rlwire.codecs.rewarder` is the face."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t

from rlwire.codecs._glue cimport ITEM, afford
from rlwire.codecs.json.reader cimport *
from rlwire.codecs.rewarder.values cimport *
from rlwire.kernels cimport *

from rlwire.limits import DEFAULT
from rlwire.errors import quoted

__all__ = ["decode"]

cdef extern from *:
    """
    static int rlw_method_of(const rlw_json_text *t) { /* 0: unknown */
        int kind;
        for (kind = 1; kind < (int) (sizeof rlw_methods / sizeof *rlw_methods); kind++)
            if (t->size == rlw_methods[kind].size &&
                memcmp(t->data, rlw_methods[kind].begin + 11, t->size) == 0)
                return kind;
        return 0;
    }
    static int rlw_place_of(const rlw_json_text *t, const rlw_method *kind) { /* -1: unknown */
        int place;
        for (place = 0; place < kind->fields; place++)
            if (t->size == kind->field[place].size &&
                memcmp(t->data, kind->field[place].words + 1, t->size) == 0)
                return place;
        return -1;
    }

    enum { /* names beside or in headers and body; each a bit */
        RLW_OTHER,
        RLW_METHOD = 1 << 0, RLW_HEADERS = 1 << 1, RLW_BODY = 1 << 2,
        RLW_SENT_AT = 1 << 0, RLW_MESSAGE_ID = 1 << 1, RLW_EPISODE_ID = 1 << 2,
        RLW_PARENT_MESSAGE_ID = 1 << 3, RLW_PARENT_RUNTIME = 1 << 4
    };
    #define RLW_ONE_OF(word, bit) if (RLW_JSON_IS(*t, word)) return bit
    static unsigned rlw_top_field(const rlw_json_text *t) {
        RLW_ONE_OF("method", RLW_METHOD);
        RLW_ONE_OF("headers", RLW_HEADERS);
        RLW_ONE_OF("body", RLW_BODY);
        return RLW_OTHER;
    }
    static unsigned rlw_header_field(const rlw_json_text *t) {
        RLW_ONE_OF("sent_at", RLW_SENT_AT);
        RLW_ONE_OF("message_id", RLW_MESSAGE_ID);
        RLW_ONE_OF("episode_id", RLW_EPISODE_ID);
        RLW_ONE_OF("parent_message_id", RLW_PARENT_MESSAGE_ID);
        RLW_ONE_OF("parent_runtime", RLW_PARENT_RUNTIME);
        return RLW_OTHER;
    }
    #undef RLW_ONE_OF
    """
    int rlw_method_of(const rlw_json_text *t) noexcept
    int rlw_place_of(const rlw_json_text *t, const rlw_method *kind) noexcept
    unsigned RLW_OTHER, RLW_METHOD, RLW_HEADERS, RLW_BODY
    unsigned RLW_SENT_AT, RLW_MESSAGE_ID, RLW_EPISODE_ID, RLW_PARENT_MESSAGE_ID, RLW_PARENT_RUNTIME
    unsigned rlw_top_field(const rlw_json_text *t) noexcept
    unsigned rlw_header_field(const rlw_json_text *t) noexcept

cdef enum:
    NAME_ROOM = 128  # the longest name that we know has 17 characters, 102 when all are escaped

ctypedef unsigned (*field_function)(const rlw_json_text *) noexcept


cdef const rlw_json_text *_plain(const rlw_json_text *name, rlw_json_text *plain,
                                 uint8_t *room) noexcept:
    """The name without escapes, by way of `plain` if it has some; too long ones are unknown."""
    if not name.escaped:
        return name
    plain.data, plain.size = room, 0
    if name.size <= NAME_ROOM:
        plain.size = rlw_json_unescape(name, room)
    return plain


cdef unsigned _field_of(const rlw_json_text *name, field_function find) noexcept:
    """The field of a name, which may be written with escapes."""
    cdef uint8_t room[NAME_ROOM]
    cdef rlw_json_text plain
    return find(_plain(name, &plain, room))


cdef int _twice(JsonReader *r, const rlw_json_text *name) except -1:
    return json_wrong_at(r, name.data - 1, f"the name {quoted(json_text(r, name))} stands twice")


cdef int _add(JsonReader *r, dict fields, const rlw_json_text *name) except -1:
    """An unknown field, whose value comes next."""
    if not afford(&r.budget, ITEM):
        json_over(r, name.data - 1, ITEM)
    key = json_key(r, name)
    if key in fields:
        _twice(r, name)
    fields[key] = read_json(r)
    return 0


# --- values of known fields


cdef inline int _read(JsonReader *r, rlw_json_value *v) except -1:
    if rlw_json_read(&r.json, v) != RLW_OK:
        json_wrong(r)
    return 0


cdef inline bint _is_number(const rlw_json_value *v) noexcept:
    return RLW_JSON_INTEGER <= v.kind <= RLW_JSON_REAL


cdef object _number(JsonReader *r, const rlw_json_value *v):
    if not _is_number(v):
        json_wrong_at(r, v.at, "not a number")
    return json_value(r, v)


cdef object _seconds(JsonReader *r, const rlw_json_value *v):
    """A float, or None of null."""
    if v.kind == RLW_JSON_REAL:
        return v.real
    if v.kind == RLW_JSON_NULL:
        return None
    return float(_number(r, v))


cdef str _text(JsonReader *r, const rlw_json_value *v):
    if v.kind != RLW_JSON_STRING:
        json_wrong_at(r, v.at, "not a string")
    return json_text(r, &v.text)


cdef str _name(JsonReader *r, const rlw_json_value *v):
    """A str of those that come again and again, or None of null."""
    if v.kind == RLW_JSON_NULL:
        return None
    if v.kind != RLW_JSON_STRING:
        json_wrong_at(r, v.at, "neither a string nor null")
    return json_key(r, &v.text)


cdef object _id(JsonReader *r, const rlw_json_value *v):
    if v.kind == RLW_JSON_INTEGER:
        return v.integer
    if v.kind == RLW_JSON_STRING:
        return json_text(r, &v.text)
    if v.kind == RLW_JSON_NULL:
        return None
    if v.kind != RLW_JSON_NATURAL and v.kind != RLW_JSON_BIG:
        json_wrong_at(r, v.at, "neither an integer nor a string")
    return json_value(r, v)


cdef dict _info(JsonReader *r):
    cdef rlw_json_value v
    _read(r, &v)
    if v.kind != RLW_JSON_OBJECT:
        json_wrong_at(r, v.at, "not an object")
    return <dict> json_value(r, &v)


cdef object _observation(JsonReader *r):
    array = read_json_numbers(r)
    return read_json(r) if array is None else array


cdef tuple _action(JsonReader *r):
    cdef rlw_json_value v
    cdef int more
    _read(r, &v)
    if v.kind != RLW_JSON_LIST:
        json_wrong_at(r, v.at, "not a list of events")
    events = []
    more = not v.empty
    while more:
        _read(r, &v)
        if not afford(&r.budget, ITEM):
            json_over(r, v.at, ITEM)
        event = json_value(r, &v)
        if type(event) is not list or not event or type((<list> event)[0]) is not str:
            json_wrong_at(r, v.at, "not an event, which is a list that begins with a name")
        events.append(tuple(<list> event))
        if rlw_json_next(&r.json, c"]", &more) != RLW_OK:
            json_wrong(r)
    return tuple(events)


# --- headers and body


cdef int _header(JsonReader *r, Message m, unsigned field) except -1:
    cdef rlw_json_value v
    _read(r, &v)
    if field == RLW_SENT_AT:
        m.sent_at = _seconds(r, &v)
    elif field == RLW_MESSAGE_ID:
        m.message_id = _id(r, &v)
    elif field == RLW_EPISODE_ID:
        m.episode_id = _name(r, &v)
    elif field == RLW_PARENT_MESSAGE_ID:
        m.parent_message_id = _id(r, &v)
    else:
        m.parent_runtime = _seconds(r, &v)
    return 0


cdef object _body_value(JsonReader *r, int holds):
    cdef rlw_json_value v
    if holds == RLW_INFO:
        return _info(r)
    if holds == RLW_OBSERVATION:
        return _observation(r)
    if holds == RLW_EVENTS:
        return _action(r)
    _read(r, &v)
    if holds == RLW_NUMBER:
        return _number(r, &v)
    if holds == RLW_FLAG:
        if v.kind != RLW_JSON_TRUE and v.kind != RLW_JSON_FALSE:
            json_wrong_at(r, v.at, "neither true nor false")
        return v.kind == RLW_JSON_TRUE
    if holds == RLW_TEXT:
        return _text(r, &v)
    if holds == RLW_NAME:
        return _name(r, &v)
    return None if v.kind == RLW_JSON_NULL else _number(r, &v)  # as if it were missing


cdef int _object(JsonReader *r, rlw_json_value *v, int *more) except -1:
    """Open an object; null is one without members."""
    _read(r, v)
    more[0] = v.kind == RLW_JSON_OBJECT and not v.empty
    if v.kind != RLW_JSON_OBJECT and v.kind != RLW_JSON_NULL:
        json_wrong_at(r, v.at, "neither an object nor null")
    return 0


cdef int _headers(JsonReader *r, Message m) except -1:
    cdef rlw_json_text name
    cdef rlw_json_value v
    cdef unsigned field, seen = 0
    cdef int more = 0
    _object(r, &v, &more)
    while more:
        if rlw_json_name(&r.json, &name) != RLW_OK:
            json_wrong(r)
        field = _field_of(&name, rlw_header_field)
        if seen & field:
            _twice(r, &name)
        seen |= field
        if field:
            _header(r, m, field)
        else:
            if m.more_headers is None:
                m.more_headers = {}
            _add(r, m.more_headers, &name)
        if rlw_json_next(&r.json, c"}", &more) != RLW_OK:
            json_wrong(r)
    return 0


cdef int _body(JsonReader *r, Message m) except -1:
    cdef const rlw_method *kind = &rlw_methods[m.kind]
    cdef uint8_t room[NAME_ROOM]
    cdef rlw_json_text name, plain
    cdef rlw_json_value v
    cdef unsigned seen = 0
    cdef int more = 0, place, holds
    if m.kind == UNKNOWN:
        m._second = read_json(r)
        return 0
    _object(r, &v, &more)
    while more:
        if rlw_json_name(&r.json, &name) != RLW_OK:
            json_wrong(r)
        place = rlw_place_of(_plain(&name, &plain, room), kind)
        if place >= 0:
            if seen >> place & 1:
                _twice(r, &name)
            seen |= 1u << place
            set_field(m, place, _body_value(r, kind.field[place].holds))
        else:
            if m.more_body is None:
                m.more_body = {}
            _add(r, m.more_body, &name)
        if rlw_json_next(&r.json, c"}", &more) != RLW_OK:
            json_wrong(r)
    for place in range(kind.fields):
        holds = kind.field[place].holds
        if not seen >> place & 1 and holds != RLW_NUMBER_OR_NULL and holds != RLW_NUMBER_OR_NOTHING:
            json_wrong_at(r, v.at, f"the body of {m.method} has no {field_name(m.kind, place)}")
    return 0


cdef Message _method(JsonReader *r):
    """The message of the method that comes next, without its fields."""
    cdef uint8_t room[NAME_ROOM]
    cdef rlw_json_value v
    cdef rlw_json_text plain
    cdef Message m
    _read(r, &v)
    if v.kind != RLW_JSON_STRING:
        json_wrong_at(r, v.at, "not a string")
    m = new_message(rlw_method_of(_plain(&v.text, &plain, room)))
    if m.kind == UNKNOWN:
        m._first = json_key(r, &v.text)
    return m


cdef struct Place:  # of a value that is read later
    const uint8_t *at
    uint64_t items


cdef int _later(JsonReader *r, Place *place) except -1:
    place.at, place.items = r.json.c.at, r.json.items
    if rlw_json_skip(&r.json) != RLW_OK:
        json_wrong(r)
    return 0


cdef Message _message(JsonReader *r):
    cdef Place headers, body
    cdef rlw_json_text name
    cdef rlw_json_value v
    cdef unsigned field, seen = 0
    cdef Message m = None
    cdef dict others = None
    cdef int more
    headers.at = body.at = NULL
    headers.items = body.items = 0
    _read(r, &v)
    if v.kind != RLW_JSON_OBJECT:
        json_wrong_at(r, v.at, "a message is an object")
    more = not v.empty
    while more:
        if rlw_json_name(&r.json, &name) != RLW_OK:
            json_wrong(r)
        field = _field_of(&name, rlw_top_field)
        if seen & field:
            _twice(r, &name)
        seen |= field
        if field == RLW_METHOD:
            m = _method(r)
        elif field == RLW_HEADERS:
            if m is None:
                _later(r, &headers)
            else:
                _headers(r, m)
        elif field == RLW_BODY:
            if m is None:
                _later(r, &body)
            else:
                _body(r, m)
        else:
            if others is None:
                others = {}
            _add(r, others, &name)
        if rlw_json_next(&r.json, c"}", &more) != RLW_OK:
            json_wrong(r)
    if rlw_json_end(&r.json) != RLW_OK:
        json_wrong(r)
    if m is None:
        json_wrong_at(r, v.at, "a message without a method")
    m.more = others
    # What stood before the method; the reader is as deep again as it was there.
    r.json.depth = 1
    if headers.at != NULL:
        r.json.c.at, r.json.items = headers.at, headers.items
        _headers(r, m)
    if body.at != NULL:
        r.json.c.at, r.json.items = body.at, body.items
        _body(r, m)
    if not seen & RLW_BODY and m.kind != UNKNOWN and rlw_methods[m.kind].fields:
        json_wrong_at(r, v.at, f"a message {m.method} without a body")
    return m


cdef Message _decoded(const uint8_t *data, size_t size, object limits):
    cdef JsonReader r
    begin_json(&r, data, size, limits)
    return _message(&r)


def decode(buffer, *, limits=DEFAULT):
    """Return the message in a JSON text, of either direction.

    Args:
        buffer: UTF-8 in any buffer.
        limits: `rlwire.limits.Limits`; ``message``, ``depth``, ``items``, ``string``, ``dims`` and
            ``expanded`` count.

    Returns:
        One of the classes of `rlwire.codecs.rewarder`; `UnknownMessage` for other methods.

    Raises:
        DecodeError: not JSON, a field twice, or a field that is missing or of another type; it
            says where.
        LimitExceeded: the message passes one of the limits.
    """
    cdef Py_buffer view
    if PyBytes_CheckExact(buffer):
        return _decoded(<const uint8_t *> PyBytes_AS_STRING(buffer), PyBytes_GET_SIZE(buffer),
                        limits)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return _decoded(<const uint8_t *> view.buf, <size_t> view.len, limits)
    finally:
        PyBuffer_Release(&view)
