"""The rewarder's messages to JSON. `rlwire.codecs.rewarder` is the face."""

from cpython.dict cimport PyDict_Next
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

from rlwire.codecs.json_writer cimport *
from rlwire.codecs.rewarder_values cimport *
from rlwire.codecs.rlx_options cimport Step
from rlwire.kernels cimport *

from rlwire.limits import DEFAULT

__all__ = ["encode", "encode_into"]

cdef extern from *:
    """
    typedef struct rlw_words {
        const char *text;
        size_t size;
    } rlw_words;

    /* In the order of Kind: how a message begins. */
    static const rlw_words rlw_begins[] = {
    #define RLW_BEGIN(method) {method, sizeof(method) - 1}
    #define RLW_METHOD(name) RLW_BEGIN("{\\"method\\":\\"" name "\\",\\"headers\\":{")
        RLW_BEGIN("{\\"method\\":"),
        RLW_METHOD("v0.env.describe"), RLW_METHOD("v0.env.reward"), RLW_METHOD("v0.env.text"),
        RLW_METHOD("v0.env.observation"), RLW_METHOD("v0.connection.close"),
        RLW_METHOD("v0.reply.error"), RLW_METHOD("v0.reply.env.reset"),
        RLW_METHOD("v0.reply.control.ping"), RLW_METHOD("v0.agent.action"),
        RLW_METHOD("v0.env.reset"), RLW_METHOD("v0.control.ping"),
    #undef RLW_METHOD
    };

    enum { /* of rlw_pieces */
        RLW_HEADERS, RLW_SENT_AT, RLW_MESSAGE_ID, RLW_PARENT_MESSAGE_ID, RLW_EPISODE_ID,
        RLW_PARENT_RUNTIME, RLW_BODY, RLW_ENV_ID, RLW_ENV_STATE, RLW_FPS, RLW_REWARD,
        RLW_DONE_TRUE, RLW_DONE_FALSE, RLW_TEXT, RLW_OBSERVATION, RLW_MESSAGE, RLW_ACTION, RLW_SEED
    };
    static const rlw_words rlw_pieces[] = {
        RLW_BEGIN(",\\"headers\\":{"), RLW_BEGIN("\\"sent_at\\":"), RLW_BEGIN("\\"message_id\\":"),
        RLW_BEGIN("\\"parent_message_id\\":"), RLW_BEGIN("\\"episode_id\\":"),
        RLW_BEGIN("\\"parent_runtime\\":"), RLW_BEGIN(",\\"body\\":"), RLW_BEGIN("\\"env_id\\":"),
        RLW_BEGIN("\\"env_state\\":"), RLW_BEGIN("\\"fps\\":"), RLW_BEGIN("\\"reward\\":"),
        RLW_BEGIN(",\\"done\\":true,\\"info\\":"), RLW_BEGIN(",\\"done\\":false,\\"info\\":"),
        RLW_BEGIN("\\"text\\":"), RLW_BEGIN("\\"observation\\":"), RLW_BEGIN("\\"message\\":"),
        RLW_BEGIN("\\"action\\":"), RLW_BEGIN("\\"seed\\":"),
    #undef RLW_BEGIN
    };
    #define rlw_put_words(w, words) rlw_put((w), (words).text, (words).size)
    """
    ctypedef struct rlw_words:
        pass
    const rlw_words *rlw_begins
    const rlw_words *rlw_pieces
    int RLW_HEADERS, RLW_SENT_AT, RLW_MESSAGE_ID, RLW_PARENT_MESSAGE_ID, RLW_EPISODE_ID
    int RLW_PARENT_RUNTIME, RLW_BODY, RLW_ENV_ID, RLW_ENV_STATE, RLW_FPS, RLW_REWARD
    int RLW_DONE_TRUE, RLW_DONE_FALSE, RLW_TEXT, RLW_OBSERVATION, RLW_MESSAGE, RLW_ACTION, RLW_SEED
    rlw_status rlw_put_words(rlw_writer *w, rlw_words words) noexcept

cdef enum:
    STACK = 2048  # bytes of a message before the heap is asked

cdef str _HEADERS_NAME = "headers", _BODY_NAME = "body"
cdef str _REWARD = "reward", _INFO = "info", _OBSERVATION = "observation", _ACTION = "action"


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


cdef int _value(JsonWriter *j, int piece, object value, const Step *path) except -1:
    """A field and a comma."""
    _checked(rlw_put_words(&j.w, rlw_pieces[piece]))
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
        _value(j, RLW_SENT_AT, sent_at, &path)
    if message_id is not None:
        _value(j, RLW_MESSAGE_ID, message_id, &path)
    if m.parent_message_id is not None:
        _value(j, RLW_PARENT_MESSAGE_ID, m.parent_message_id, &path)
    if m.episode_id is not None:
        _value(j, RLW_EPISODE_ID, m.episode_id, &path)
    if m.parent_runtime is not None:
        _value(j, RLW_PARENT_RUNTIME, m.parent_runtime, &path)
    if m.more_headers is not None:
        _others(j, m.more_headers, &path)
    return _end(j)


cdef int _put_body(JsonWriter *j, Message m, Kind kind) except -1:
    cdef Step body, path
    body.parent, body.key, body.index = NULL, <void *> _BODY_NAME, 0
    path.parent, path.index = &body, 0
    if kind == KIND_UNKNOWN:
        return put_json(j, (<UnknownMessage> m).body, &body)
    _byte(j, c"{")
    if kind == KIND_ENV_REWARD:
        path.key = <void *> _REWARD
        _checked(rlw_put_words(&j.w, rlw_pieces[RLW_REWARD]))
        put_json(j, (<EnvReward> m).reward, &path)
        _checked(rlw_put_words(&j.w, rlw_pieces[
            RLW_DONE_TRUE if (<EnvReward> m).done else RLW_DONE_FALSE]))
        path.key = <void *> _INFO
        put_json(j, (<EnvReward> m).info, &path)
        _byte(j, c",")
    elif kind == KIND_ENV_OBSERVATION:
        path.key = <void *> _OBSERVATION
        _value(j, RLW_OBSERVATION, (<EnvObservation> m).observation, &path)
    elif kind == KIND_AGENT_ACTION:
        path.key = <void *> _ACTION
        _value(j, RLW_ACTION, (<AgentAction> m).action, &path)
    elif kind == KIND_ENV_TEXT:
        _value(j, RLW_TEXT, (<EnvText> m).text, &body)
    elif kind == KIND_ENV_DESCRIBE:
        _value(j, RLW_ENV_ID, (<EnvDescribe> m).env_id, &body)
        _value(j, RLW_ENV_STATE, (<EnvDescribe> m).env_state, &body)
        if (<EnvDescribe> m).fps is not None:
            _value(j, RLW_FPS, (<EnvDescribe> m).fps, &body)
    elif kind == KIND_ENV_RESET:
        # All three, null where there is none: the original's servers read them without asking.
        _value(j, RLW_ENV_ID, (<EnvReset> m).env_id, &body)
        _value(j, RLW_SEED, (<EnvReset> m).seed, &body)
        _value(j, RLW_FPS, (<EnvReset> m).fps, &body)
    elif kind == KIND_REPLY_ERROR:
        _value(j, RLW_MESSAGE, (<ReplyError> m).message, &body)
    elif kind == KIND_CONNECTION_CLOSE:
        _value(j, RLW_MESSAGE, (<ConnectionClose> m).message, &body)
    if m.more_body is not None:
        _others(j, m.more_body, &body)
    return _end(j)


cdef int _put(JsonWriter *j, object message, object sent_at, object message_id) except -1:
    cdef Message m
    cdef Kind kind
    if not isinstance(message, Message):
        raise TypeError(f"not a message of the rewarder: {type(message).__qualname__}")
    m = message
    kind = m.kind()
    j.depth = 2  # what fields hold is in the body or in the headers
    _checked(rlw_put_words(&j.w, rlw_begins[<unsigned> kind]))
    if kind == KIND_UNKNOWN:
        put_json_text(j, (<UnknownMessage> m).name, NULL)
        _checked(rlw_put_words(&j.w, rlw_pieces[RLW_HEADERS]))
    _put_headers(j, m, sent_at, message_id)
    if kind == KIND_UNKNOWN:
        j.depth = 1
    _checked(rlw_put_words(&j.w, rlw_pieces[RLW_BODY]))
    _put_body(j, m, kind)
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
