"""The rewarder's JSON to messages. `rlwire.codecs.rewarder` is the face."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t

from rlwire.codecs._glue cimport ITEM, afford
from rlwire.codecs.json_reader cimport *
from rlwire.codecs.rewarder_values cimport *
from rlwire.kernels cimport *

from rlwire.limits import DEFAULT
from rlwire.errors import quoted

__all__ = ["decode"]

cdef extern from *:
    """
    /* In the order of Kind. */
    static const struct { const char *text; size_t size; } rlw_methods[] = {
    #define RLW_METHOD(text) {text, sizeof(text) - 1}
        RLW_METHOD(""),
        RLW_METHOD("v0.env.describe"), RLW_METHOD("v0.env.reward"), RLW_METHOD("v0.env.text"),
        RLW_METHOD("v0.env.observation"), RLW_METHOD("v0.connection.close"),
        RLW_METHOD("v0.reply.error"), RLW_METHOD("v0.reply.env.reset"),
        RLW_METHOD("v0.reply.control.ping"), RLW_METHOD("v0.agent.action"),
        RLW_METHOD("v0.env.reset"), RLW_METHOD("v0.control.ping"),
    #undef RLW_METHOD
    };

    static unsigned rlw_method_of(const rlw_json_text *t) { /* 0: unknown */
        unsigned kind;
        for (kind = 1; kind < sizeof rlw_methods / sizeof *rlw_methods; kind++)
            if (t->size == rlw_methods[kind].size &&
                memcmp(t->data, rlw_methods[kind].text, t->size) == 0)
                return kind;
        return 0;
    }

    enum { /* names of fields, beside or in headers and body; each a bit */
        RLW_OTHER,
        RLW_METHOD = 1 << 0, RLW_HEADERS = 1 << 1, RLW_BODY = 1 << 2,
        RLW_SENT_AT = 1 << 0, RLW_MESSAGE_ID = 1 << 1, RLW_EPISODE_ID = 1 << 2,
        RLW_PARENT_MESSAGE_ID = 1 << 3, RLW_PARENT_RUNTIME = 1 << 4,
        RLW_ENV_ID = 1 << 0, RLW_ENV_STATE = 1 << 1, RLW_FPS = 1 << 2, RLW_REWARD = 1 << 3,
        RLW_DONE = 1 << 4, RLW_INFO = 1 << 5, RLW_TEXT = 1 << 6, RLW_OBSERVATION = 1 << 7,
        RLW_MESSAGE = 1 << 8, RLW_ACTION = 1 << 9, RLW_SEED = 1 << 10
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
    static unsigned rlw_body_field(const rlw_json_text *t) {
        switch (t->size) {
        case 3: RLW_ONE_OF("fps", RLW_FPS); break;
        case 4:
            RLW_ONE_OF("done", RLW_DONE);
            RLW_ONE_OF("info", RLW_INFO);
            RLW_ONE_OF("text", RLW_TEXT);
            RLW_ONE_OF("seed", RLW_SEED);
            break;
        case 6:
            RLW_ONE_OF("reward", RLW_REWARD);
            RLW_ONE_OF("action", RLW_ACTION);
            RLW_ONE_OF("env_id", RLW_ENV_ID);
            break;
        case 7: RLW_ONE_OF("message", RLW_MESSAGE); break;
        case 9: RLW_ONE_OF("env_state", RLW_ENV_STATE); break;
        case 11: RLW_ONE_OF("observation", RLW_OBSERVATION); break;
        }
        return RLW_OTHER;
    }
    #undef RLW_ONE_OF

    /* In the order of Kind: the fields that a body must have, and that it may have besides. */
    static const unsigned rlw_required[] = {
        0, RLW_ENV_ID | RLW_ENV_STATE, RLW_REWARD | RLW_DONE | RLW_INFO, RLW_TEXT, RLW_OBSERVATION,
        RLW_MESSAGE, RLW_MESSAGE, 0, 0, RLW_ACTION, RLW_ENV_ID, 0,
    };
    static const unsigned rlw_optional[] = {
        0, RLW_FPS, 0, 0, 0, 0, 0, 0, 0, 0, RLW_SEED | RLW_FPS, 0,
    };
    """
    unsigned rlw_method_of(const rlw_json_text *t) noexcept
    unsigned RLW_OTHER, RLW_METHOD, RLW_HEADERS, RLW_BODY
    unsigned RLW_SENT_AT, RLW_MESSAGE_ID, RLW_EPISODE_ID, RLW_PARENT_MESSAGE_ID, RLW_PARENT_RUNTIME
    unsigned RLW_ENV_ID, RLW_ENV_STATE, RLW_FPS, RLW_REWARD, RLW_DONE, RLW_INFO, RLW_TEXT
    unsigned RLW_OBSERVATION, RLW_MESSAGE, RLW_ACTION, RLW_SEED
    unsigned rlw_top_field(const rlw_json_text *t) noexcept
    unsigned rlw_header_field(const rlw_json_text *t) noexcept
    unsigned rlw_body_field(const rlw_json_text *t) noexcept
    const unsigned *rlw_required
    const unsigned *rlw_optional

_BODY_NAMES = ("env_id", "env_state", "fps", "reward", "done", "info", "text", "observation",
               "message", "action", "seed")

cdef enum:
    NAME_ROOM = 128  # the longest name that we know has 17 characters, 102 when all are escaped

ctypedef unsigned (*field_function)(const rlw_json_text *) noexcept


cdef unsigned _field_of(const rlw_json_text *name, field_function find) noexcept:
    """The field of a name, which may be written with escapes."""
    cdef uint8_t room[NAME_ROOM]
    cdef rlw_json_text plain
    if not name.escaped:
        return find(name)
    if name.size > NAME_ROOM:
        return RLW_OTHER
    plain.data = room
    plain.size = rlw_json_unescape(name, room)
    return find(&plain)


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


cdef int _body_field(JsonReader *r, Message m, Kind kind, unsigned field) except -1:
    cdef rlw_json_value v
    if field == RLW_INFO:
        (<EnvReward> m).info = _info(r)
        return 0
    if field == RLW_OBSERVATION:
        (<EnvObservation> m).observation = _observation(r)
        return 0
    if field == RLW_ACTION:
        (<AgentAction> m).action = _action(r)
        return 0
    _read(r, &v)
    if field == RLW_REWARD:
        (<EnvReward> m).reward = _number(r, &v)
    elif field == RLW_DONE:
        if v.kind != RLW_JSON_TRUE and v.kind != RLW_JSON_FALSE:
            json_wrong_at(r, v.at, "neither true nor false")
        (<EnvReward> m).done = v.kind == RLW_JSON_TRUE
    elif field == RLW_TEXT:
        (<EnvText> m).text = _text(r, &v)
    elif field == RLW_MESSAGE:
        if kind == KIND_REPLY_ERROR:
            (<ReplyError> m).message = _text(r, &v)
        else:
            (<ConnectionClose> m).message = _text(r, &v)
    elif field == RLW_ENV_ID:
        if kind == KIND_ENV_RESET:
            (<EnvReset> m).env_id = _name(r, &v)
        else:
            (<EnvDescribe> m).env_id = _name(r, &v)
    elif field == RLW_ENV_STATE:
        (<EnvDescribe> m).env_state = _name(r, &v)
    elif v.kind == RLW_JSON_NULL:
        pass  # fps and seed, as if they were missing
    elif field == RLW_SEED:
        (<EnvReset> m).seed = _number(r, &v)
    elif kind == KIND_ENV_RESET:
        (<EnvReset> m).fps = _number(r, &v)
    else:
        (<EnvDescribe> m).fps = _number(r, &v)
    return 0


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


cdef int _body(JsonReader *r, Message m, Kind kind) except -1:
    cdef rlw_json_text name
    cdef rlw_json_value v
    cdef unsigned field, seen = 0, required = rlw_required[<unsigned> kind], i
    cdef int more = 0
    if kind == KIND_UNKNOWN:
        (<UnknownMessage> m).body = read_json(r)
        return 0
    _object(r, &v, &more)
    while more:
        if rlw_json_name(&r.json, &name) != RLW_OK:
            json_wrong(r)
        field = _field_of(&name, rlw_body_field) & (required | rlw_optional[<unsigned> kind])
        if seen & field:
            _twice(r, &name)
        seen |= field
        if field:
            _body_field(r, m, kind, field)
        else:
            if m.more_body is None:
                m.more_body = {}
            _add(r, m.more_body, &name)
        if rlw_json_next(&r.json, c"}", &more) != RLW_OK:
            json_wrong(r)
    if required & ~seen:
        for i in range(11):
            if required & ~seen & (1u << i):
                json_wrong_at(r, v.at, f"the body of {m.method} has no {_BODY_NAMES[i]}")
    return 0


cdef Message _new(Kind kind):
    if kind == KIND_ENV_REWARD:
        return EnvReward.__new__(EnvReward)
    if kind == KIND_ENV_OBSERVATION:
        return EnvObservation.__new__(EnvObservation)
    if kind == KIND_AGENT_ACTION:
        return AgentAction.__new__(AgentAction)
    if kind == KIND_ENV_TEXT:
        return EnvText.__new__(EnvText)
    if kind == KIND_CONTROL_PING:
        return ControlPing.__new__(ControlPing)
    if kind == KIND_REPLY_CONTROL_PING:
        return ReplyControlPing.__new__(ReplyControlPing)
    if kind == KIND_ENV_DESCRIBE:
        return EnvDescribe.__new__(EnvDescribe)
    if kind == KIND_ENV_RESET:
        return EnvReset.__new__(EnvReset)
    if kind == KIND_REPLY_ENV_RESET:
        return ReplyEnvReset.__new__(ReplyEnvReset)
    if kind == KIND_REPLY_ERROR:
        return ReplyError.__new__(ReplyError)
    if kind == KIND_CONNECTION_CLOSE:
        return ConnectionClose.__new__(ConnectionClose)
    return UnknownMessage.__new__(UnknownMessage)


cdef Message _method(JsonReader *r, Kind *kind):
    """The message of the method that comes next, without its fields."""
    cdef uint8_t room[NAME_ROOM]
    cdef rlw_json_value v
    cdef rlw_json_text plain
    cdef Message m
    _read(r, &v)
    if v.kind != RLW_JSON_STRING:
        json_wrong_at(r, v.at, "not a string")
    plain = v.text
    if plain.escaped and plain.size <= NAME_ROOM:  # at most 126 bytes of a method that we know
        plain.data = room
        plain.size = rlw_json_unescape(&v.text, room)
    kind[0] = <Kind> rlw_method_of(&plain)
    m = _new(kind[0])
    m.made = True
    if kind[0] == KIND_UNKNOWN:
        (<UnknownMessage> m).name = json_key(r, &v.text)
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
    cdef Kind kind = KIND_UNKNOWN
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
            m = _method(r, &kind)
        elif field == RLW_HEADERS:
            if m is None:
                _later(r, &headers)
            else:
                _headers(r, m)
        elif field == RLW_BODY:
            if m is None:
                _later(r, &body)
            else:
                _body(r, m, kind)
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
        _body(r, m, kind)
    if not seen & RLW_BODY and rlw_required[<unsigned> kind]:
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
