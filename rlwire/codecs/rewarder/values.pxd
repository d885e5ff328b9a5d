cdef extern from *:
    """
    #ifndef RLW_REWARDER_KINDS
    #define RLW_REWARDER_KINDS
    enum { /* what a field of a body holds */
        RLW_TEXT, RLW_NAME, RLW_NUMBER, RLW_NUMBER_OR_NULL, RLW_NUMBER_OR_NOTHING, RLW_FLAG,
        RLW_INFO, RLW_EVENTS, RLW_OBSERVATION, RLW_ANYTHING
    };
    typedef struct rlw_member { /* its name with quotation marks and colon, the name's size */
        const char *words;
        size_t size;
        int holds;
    } rlw_member;
    typedef struct rlw_method { /* how a message begins, and its method's size, at METHOD_AT in it */
        const char *begin;
        size_t size;
        int fields;
        rlw_member field[3];
    } rlw_method;
    #define RLW_METHOD(name) "{\\"method\\":\\"" name "\\",\\"headers\\":{", sizeof(name) - 1
    #define RLW_FIELD(name, holds) {"\\"" name "\\":", sizeof(name) - 1, holds}
    static const rlw_method rlw_methods[] = { /* in the order of Kind */
        {RLW_METHOD(""), 2, {RLW_FIELD("method", RLW_TEXT), RLW_FIELD("body", RLW_ANYTHING)}},
        {RLW_METHOD("v0.env.describe"), 3,
         {RLW_FIELD("env_id", RLW_NAME), RLW_FIELD("env_state", RLW_NAME),
          RLW_FIELD("fps", RLW_NUMBER_OR_NOTHING)}},
        {RLW_METHOD("v0.env.reward"), 3,
         {RLW_FIELD("reward", RLW_NUMBER), RLW_FIELD("done", RLW_FLAG),
          RLW_FIELD("info", RLW_INFO)}},
        {RLW_METHOD("v0.env.text"), 1, {RLW_FIELD("text", RLW_TEXT)}},
        {RLW_METHOD("v0.env.observation"), 1, {RLW_FIELD("observation", RLW_OBSERVATION)}},
        {RLW_METHOD("v0.connection.close"), 1, {RLW_FIELD("message", RLW_TEXT)}},
        {RLW_METHOD("v0.reply.error"), 1, {RLW_FIELD("message", RLW_TEXT)}},
        {RLW_METHOD("v0.reply.env.reset"), 0, {{0}}},
        {RLW_METHOD("v0.reply.control.ping"), 0, {{0}}},
        {RLW_METHOD("v0.agent.action"), 1, {RLW_FIELD("action", RLW_EVENTS)}},
        /* All three, null where there is none: the original's servers read them without asking. */
        {RLW_METHOD("v0.env.reset"), 3,
         {RLW_FIELD("env_id", RLW_NAME), RLW_FIELD("seed", RLW_NUMBER_OR_NULL),
          RLW_FIELD("fps", RLW_NUMBER_OR_NULL)}},
        {RLW_METHOD("v0.control.ping"), 0, {{0}}},
    };
    #undef RLW_METHOD
    #undef RLW_FIELD
    #endif
    """
    int RLW_TEXT, RLW_NAME, RLW_NUMBER, RLW_NUMBER_OR_NULL, RLW_NUMBER_OR_NOTHING, RLW_FLAG
    int RLW_INFO, RLW_EVENTS, RLW_OBSERVATION, RLW_ANYTHING
    ctypedef struct rlw_member:
        const char *words
        size_t size
        int holds
    ctypedef struct rlw_method:
        const char *begin
        size_t size
        int fields
        rlw_member *field
    const rlw_method *rlw_methods

cdef enum:
    UNKNOWN = 0  # the kind of an UnknownMessage, whose fields are no fields of a body
    KINDS = 12
    METHOD_AT = 11  # bytes before a method's name
    AROUND_METHOD = 24  # and behind it, as a message of a known method begins


cdef class Message:
    cdef readonly object sent_at
    cdef readonly object message_id
    cdef readonly object episode_id
    cdef readonly object parent_message_id
    cdef readonly object parent_runtime
    cdef readonly object _first  # fields of the body, in the order of `rlw_methods`
    cdef readonly object _second
    cdef readonly object _third
    cdef dict more_headers  # None where there are no others, as in these:
    cdef dict more_body
    cdef dict more
    cdef int kind
    cdef bint made


cdef Message new_message(int kind)
cdef str field_name(int kind, int place)


cdef inline object field_of(Message m, int place):
    return m._first if place == 0 else m._second if place == 1 else m._third


cdef inline int set_field(Message m, int place, object value) except -1:
    if place == 0:
        m._first = value
    elif place == 1:
        m._second = value
    else:
        m._third = value
    return 0
