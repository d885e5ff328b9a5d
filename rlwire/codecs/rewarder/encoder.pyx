"""The rewarder's messages to JSON. `rlwire.codecs.rewarder` is the face."""

from cpython.dict cimport PyDict_Next
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

from rlwire.codecs._glue cimport Step
from rlwire.codecs.json.writer cimport *
from rlwire.codecs.rewarder.values cimport *
from rlwire.kernels cimport *

from rlwire.limits import DEFAULT

__all__ = ["encode", "encode_into"]

cdef extern from *:
    """
    #define rlw_put_words(w, words) rlw_put((w), (words), strlen(words))
    """
    rlw_status rlw_put_words(rlw_writer *w, const char *words) noexcept

cdef enum:
    STACK = 2048  # bytes of a message before the heap is asked

cdef str _HEADERS_NAME = "headers", _BODY_NAME = "body"


cdef inline int _checked(rlw_status status) except -1:
    if status != RLW_OK:
        raise MemoryError()
    return 0


cdef inline int _byte(JsonWriter *j, char byte) except -1:
    _checked(rlw_reserve(&j.w, 1))
    j.w.at[0] = byte
    j.w.at += 1
    return 0


cdef inline int _end(JsonWriter *j) except -1:
    """The closing bracket of an object, after its last comma or its opening bracket."""
    if (j.w.at - 1)[0] == c",":
        (j.w.at - 1)[0] = c"}"
        return 0
    return _byte(j, c"}")


cdef inline int _value(JsonWriter *j, const char *name, object value,
                       const Step *path) except -1:
    """A field and a comma."""
    _checked(rlw_put_words(&j.w, name))
    put_json(j, value, path)
    return _byte(j, c",")


cdef int _others(JsonWriter *j, dict fields, const Step *parent) except -1:
    """Fields that the protocol does not name, each with a comma."""
    cdef Step step
    step.parent, step.index = parent, 0
    for name, value in fields.items():
        step.key = <void *> name
        put_json_text(j, name, parent)
        _byte(j, c":")
        put_json(j, value, &step)
        _byte(j, c",")
    return 0


cdef int _put_headers(JsonWriter *j, Message m, object sent_at, object message_id) except -1:
    cdef Step path
    path.parent, path.key, path.index = NULL, <void *> _HEADERS_NAME, 0
    if sent_at is None:
        sent_at = m.sent_at
    if message_id is None:
        message_id = m.message_id
    if sent_at is not None:
        _value(j, b'"sent_at":', sent_at, &path)
    if message_id is not None:
        _value(j, b'"message_id":', message_id, &path)
    if m.parent_message_id is not None:
        _value(j, b'"parent_message_id":', m.parent_message_id, &path)
    if m.episode_id is not None:
        _value(j, b'"episode_id":', m.episode_id, &path)
    if m.parent_runtime is not None:
        _value(j, b'"parent_runtime":', m.parent_runtime, &path)
    if m.more_headers is not None:
        _others(j, m.more_headers, &path)
    return _end(j)


cdef int _put_body(JsonWriter *j, Message m) except -1:
    cdef const rlw_method *kind = &rlw_methods[m.kind]
    cdef rlw_member told
    cdef Step body, path
    cdef int place
    body.parent, body.key, body.index = NULL, <void *> _BODY_NAME, 0
    path.parent, path.index = &body, 0
    if m.kind == UNKNOWN:
        return put_json(j, m._second, &body)
    _byte(j, c"{")
    for place in range(kind.fields):
        told = kind.field[place]
        value = field_of(m, place)
        if value is None and told.holds == RLW_NUMBER_OR_NOTHING:
            continue
        _checked(rlw_put(&j.w, told.words, told.size + 3))
        if told.holds == RLW_FLAG:
            _checked(rlw_put_words(&j.w, b"true" if value else b"false"))
        elif told.holds == RLW_TEXT or told.holds == RLW_NAME:
            put_json(j, value, &body)
        else:
            name = field_name(m.kind, place)
            path.key = <void *> name
            put_json(j, value, &path)
        _byte(j, c",")
    if m.more_body is not None:
        _others(j, m.more_body, &body)
    return _end(j)


cdef int _put(JsonWriter *j, object message, object sent_at, object message_id) except -1:
    cdef Message m
    if not isinstance(message, Message):
        raise TypeError(f"not a message of the rewarder: {type(message).__qualname__}")
    m = message
    j.depth = 2  # what fields hold is in the body or in the headers
    if m.kind == UNKNOWN:
        _checked(rlw_put_words(&j.w, b'{"method":'))
        put_json_text(j, m._first, NULL)
        _checked(rlw_put_words(&j.w, b',"headers":{'))
    else:
        _checked(rlw_put(&j.w, rlw_methods[m.kind].begin, rlw_methods[m.kind].size + AROUND_METHOD))
    _put_headers(j, m, sent_at, message_id)
    if m.kind == UNKNOWN:
        j.depth = 1
    _checked(rlw_put_words(&j.w, b',"body":'))
    _put_body(j, m)
    if m.more is not None:
        j.depth = 1
        _byte(j, c",")
        _others(j, m.more, NULL)
    return _end(j)


def encode(message, *, sent_at=None, message_id=None, limits=DEFAULT):
    """Return a message as JSON, in UTF-8.

    Args:
        message: one of the classes of `rlwire.codecs.rewarder`.
        sent_at: this header, in place of the message's own.
        message_id: this header, in place of the message's own.
        limits: `rlwire.limits.Limits`; ``message`` and ``depth`` count.

    Raises:
        EncodeError: a field holds what JSON does not have; it says where.
        LimitExceeded: longer, or nested deeper, than the limits.
    """
    cdef uint8_t room[STACK]
    cdef JsonWriter j
    begin_json_writer(&j, room, sizeof(room), limits)
    try:
        _put(&j, message, sent_at, message_id)
        return json_bytes(&j)
    finally:
        rlw_writer_free(&j.w)


def encode_into(message, buffer, offset=0, *, sent_at=None, message_id=None, limits=DEFAULT):
    """Write a message into a writable buffer from `offset` on; return the bytes written.

    Raises:
        EncodeError: as `encode`, or the buffer is too small; nothing is written then.
        LimitExceeded: as `encode`.
    """
    cdef uint8_t room[STACK]
    cdef JsonWriter j
    begin_json_writer(&j, room, sizeof(room), limits)
    try:
        _put(&j, message, sent_at, message_id)
        return json_into(&j, buffer, offset)
    finally:
        rlw_writer_free(&j.w)
