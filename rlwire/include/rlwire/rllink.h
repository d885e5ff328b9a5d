/* RLlink, the protocol of Ray's RLlib, in msgpack: the messages of a simulator.
 *
 * A frame is eight digits, the length of its body, and the body: one map. A simulator sends one
 * request at a time and reads the reply with `rlw_rllink_read_frame` and `rlw_rllink_read`, whose
 * results are views into the frame. Episodes have one array per column, which Ray reads.
 *
 *     rlw_rllink_put_ping(&w, NULL);  rlw_rllink_end(&w, &frame, &size);  ... send, receive ...
 *
 * Not included: the JSON form, ONNX files, episodes of several agents, sockets.
 */
#ifndef RLWIRE_RLLINK_H
#define RLWIRE_RLLINK_H

#include "msgpack.h"
#include "msgpack_array.h"

enum {
    RLW_RLLINK_HEAD = 8,
    RLW_RLLINK_MOST = 99999999, /* bytes of a body, the maximum of eight digits */
    RLW_RLLINK_DEEPEST = 16     /* nested maps that are searched for weights */
};

typedef enum rlw_rllink_kind {
    RLW_RLLINK_PING,
    RLW_RLLINK_GET_CONFIG,
    RLW_RLLINK_GET_STATE,
    RLW_RLLINK_EPISODES,
    RLW_RLLINK_EPISODES_AND_GET_STATE,
    RLW_RLLINK_PONG,
    RLW_RLLINK_SET_CONFIG,
    RLW_RLLINK_SET_STATE
} rlw_rllink_kind;

#define RLW_RLLINK_DEFAULT_LIMITS \
    {64, 1 << 20, 1 << 24, RLW_RLLINK_MOST, RLW_RLLINK_MOST, 1 << 20, 1 << 20, RLW_MSGPACK_DIMS}

/* Returns the name of a kind on the wire. */
static inline const char *rlw_rllink_name(rlw_rllink_kind kind) {
    static const char *const names[] = {
        "PING", "GET_CONFIG", "GET_STATE", "EPISODES", "EPISODES_AND_GET_STATE", "PONG",
        "SET_CONFIG", "SET_STATE",
    };
    return (unsigned)kind <= RLW_RLLINK_SET_STATE ? names[kind] : "";
}

/* ---- reading ---- */

/* Reads the frame at the cursor, returns its body and advances past it. With RLW_NEED_MORE, the
 * fault's `got` is the frame's size once it is known. `most`: bytes of the longest body. */
static inline rlw_status rlw_rllink_read_frame(rlw_cursor *c, uint64_t most, const uint8_t **body,
                                               size_t *size) {
    size_t left = rlw_left(c), i;
    uint64_t length = 0;
    for (i = 0; i < left && i < RLW_RLLINK_HEAD; i++) {
        if (c->at[i] < '0' || c->at[i] > '9')
            return rlw_fail(c, RLW_BAD_CHARACTER, c->at + i, c->at[i], 0);
        length = length * 10 + (uint64_t)(c->at[i] - '0');
    }
    if (i < RLW_RLLINK_HEAD) return rlw_fail(c, RLW_NEED_MORE, c->at, RLW_RLLINK_HEAD, left);
    if (length == 0) return rlw_fail(c, RLW_BAD_EMPTY, c->at, 0, 1);
    if (length > most) return rlw_fail(c, RLW_OVER_FRAME, c->at, length, most);
    if (length > left - RLW_RLLINK_HEAD)
        return rlw_fail(c, RLW_NEED_MORE, c->at, RLW_RLLINK_HEAD + length, left);
    *body = c->at + RLW_RLLINK_HEAD;
    *size = (size_t)length;
    c->at += RLW_RLLINK_HEAD + (size_t)length;
    return RLW_OK;
}

/* A received message. Missing fields have the kind RLW_MSGPACK_NIL. */
typedef struct rlw_rllink_message {
    rlw_rllink_kind kind;
    rlw_msgpack_value steps;     /* SET_CONFIG: an integer >= 1, steps per batch */
    rlw_msgpack_value on_policy; /* SET_CONFIG: a boolean, whether to wait for new weights */
    rlw_msgpack_value config;    /* SET_CONFIG: a binary, Ray's pickle; never unpickle it */
    rlw_msgpack_value state;     /* SET_STATE: a map, for `rlw_rllink_tensors_init` */
    uint64_t state_size;         /* its bytes from `state.at` on; 0 if there is none */
    int64_t number;              /* SET_STATE: version of the weights; 0 if the server has none */
} rlw_rllink_message;

static inline int rlw_rllink_is(const rlw_msgpack_value *v, const char *word) {
    return rlw_msgpack_is_text(v, word, strlen(word));
}

/* Skips a value whose head only was read. */
static inline rlw_status rlw_rllink_pass(rlw_msgpack_reader *r, const rlw_msgpack_value *v,
                                         uint64_t depth) {
    if (v->kind < RLW_MSGPACK_ARRAY) return RLW_OK;
    r->items -= v->size;
    r->c.at = v->at;
    return rlw_msgpack_skip(r, depth);
}

/* Reads an entry into `out`; it must be nil or of one kind. */
static inline rlw_status rlw_rllink_field(rlw_msgpack_reader *r, const rlw_msgpack_value *v,
                                          rlw_msgpack_kind kind, rlw_msgpack_value *out) {
    if (v->kind != kind && v->kind != RLW_MSGPACK_NIL)
        return rlw_fail(&r->c, RLW_BAD_WIRE, v->at, (uint64_t)v->kind, (uint64_t)kind);
    *out = *v;
    return RLW_OK;
}

static inline rlw_status rlw_rllink_number(rlw_msgpack_reader *r, const rlw_msgpack_value *v,
                                           int64_t least, int64_t *out) {
    if (v->kind == RLW_MSGPACK_NIL) return RLW_OK;
    if (v->kind != RLW_MSGPACK_INTEGER)
        return rlw_fail(&r->c, RLW_BAD_WIRE, v->at, (uint64_t)v->kind, RLW_MSGPACK_INTEGER);
    if (v->integer < least) return rlw_fail(&r->c, RLW_BAD_INTEGER, v->at, 0, 0);
    *out = v->integer;
    return RLW_OK;
}

/* Passes the entries of a state, and finds the weights' number. */
static inline rlw_status rlw_rllink_state_number(rlw_msgpack_reader *r, uint64_t entries,
                                                 int64_t *out) {
    rlw_msgpack_value key, value;
    for (; entries; entries--) {
        RLW_TRY(rlw_msgpack_read(r, &key));
        RLW_TRY(rlw_rllink_pass(r, &key, 2));
        RLW_TRY(rlw_msgpack_read(r, &value));
        if (rlw_rllink_is(&key, "weights_seq_no"))
            RLW_TRY(rlw_rllink_number(r, &value, 0, out));
        else
            RLW_TRY(rlw_rllink_pass(r, &value, 2));
    }
    return RLW_OK;
}

/* Reads the value under `key` in the message's own map. */
static inline rlw_status rlw_rllink_entry(rlw_msgpack_reader *r, const rlw_msgpack_value *key,
                                          rlw_rllink_message *m, rlw_msgpack_value *type) {
    rlw_msgpack_value v;
    int64_t steps = 0;
    RLW_TRY(rlw_msgpack_read(r, &v));
    if (rlw_rllink_is(key, "type")) return rlw_rllink_field(r, &v, RLW_MSGPACK_STRING, type);
    if (rlw_rllink_is(key, "env_steps_per_sample")) {
        m->steps = v;
        return rlw_rllink_number(r, &v, 1, &steps);
    }
    if (rlw_rllink_is(key, "force_on_policy"))
        return rlw_rllink_field(r, &v, RLW_MSGPACK_BOOLEAN, &m->on_policy);
    if (rlw_rllink_is(key, "config"))
        return rlw_rllink_field(r, &v, RLW_MSGPACK_BINARY, &m->config);
    if (rlw_rllink_is(key, "weights_seq_no")) return rlw_rllink_number(r, &v, 0, &m->number);
    if (rlw_rllink_is(key, "state")) {
        v.data = r->c.at;
        RLW_TRY(rlw_rllink_field(r, &v, RLW_MSGPACK_MAP, &m->state));
        m->state_size = 0;
        if (v.kind == RLW_MSGPACK_NIL) return RLW_OK;
        if (r->limits.depth < 2) return rlw_fail(&r->c, RLW_OVER_DEPTH, v.at, 2, r->limits.depth);
        RLW_TRY(rlw_rllink_state_number(r, v.size, &m->number));
        m->state_size = (uint64_t)(r->c.at - v.at);
        return RLW_OK;
    }
    return rlw_rllink_pass(r, &v, 1);
}

static inline rlw_status rlw_rllink_read_body(rlw_msgpack_reader *r, rlw_rllink_message *m) {
    rlw_msgpack_value map, key, type;
    unsigned kind;
    memset(m, 0, sizeof *m); /* nil */
    memset(&type, 0, sizeof type);
    type.at = r->c.at;
    RLW_TRY(rlw_msgpack_read(r, &map));
    if (map.kind != RLW_MSGPACK_MAP)
        return rlw_fail(&r->c, RLW_BAD_WIRE, map.at, (uint64_t)map.kind, RLW_MSGPACK_MAP);
    if (r->limits.depth == 0) return rlw_fail(&r->c, RLW_OVER_DEPTH, map.at, 1, 0);
    for (; map.size; map.size--) {
        RLW_TRY(rlw_msgpack_read(r, &key));
        RLW_TRY(rlw_rllink_pass(r, &key, 1));
        RLW_TRY(rlw_rllink_entry(r, &key, m, &type));
    }
    if (rlw_left(&r->c)) return rlw_fail(&r->c, RLW_TRAILING, r->c.at, rlw_left(&r->c), 0);
    for (kind = 0; kind <= RLW_RLLINK_SET_STATE; kind++) {
        m->kind = (rlw_rllink_kind)kind;
        if (rlw_rllink_is(&type, rlw_rllink_name(m->kind))) return RLW_OK;
    }
    return rlw_fail(&r->c, RLW_BAD_WORD, type.at, 0, 0);
}

/* Reads and checks a whole body.
 *
 * RLW_BAD_WORD: an unknown type. RLW_BAD_WIRE: not a map, or a field of the wrong kind; `got` and
 * `allowed` are kinds of msgpack.h. */
static inline rlw_status rlw_rllink_read(rlw_cursor *c, const uint8_t *body, size_t size,
                                         const rlw_msgpack_limits *limits,
                                         rlw_rllink_message *m) {
    rlw_msgpack_reader r;
    rlw_status status;
    rlw_msgpack_reader_init(&r, body, size, limits);
    status = rlw_rllink_read_body(&r, m);
    *c = r.c;
    return status;
}

/* Iterates over the arrays in a state. */
typedef struct rlw_rllink_tensors {
    rlw_msgpack_reader r;
    uint32_t level; /* open maps */
    uint64_t left[RLW_RLLINK_DEEPEST];
    rlw_msgpack_value names[RLW_RLLINK_DEEPEST]; /* keys of the open maps */
} rlw_rllink_tensors;

typedef struct rlw_rllink_tensor {
    rlw_msgpack_value name;   /* its key, a string or binary */
    rlw_msgpack_value module; /* the key of the map around it, such as "rl_module" */
    rlw_dtype dtype;
    uint32_t dims;
    uint64_t shape[RLW_MSGPACK_DIMS];
    uint64_t count;      /* elements */
    const uint8_t *data; /* the elements, in the dtype's byte order; not aligned */
} rlw_rllink_tensor;

/* Starts at the state of a message; there are no arrays if it has none. */
static inline void rlw_rllink_tensors_init(rlw_rllink_tensors *t, const rlw_rllink_message *m,
                                           const rlw_msgpack_limits *limits) {
    memset(t, 0, sizeof *t);
    if (m->state_size == 0) return;
    rlw_msgpack_reader_init(&t->r, m->state.at, (size_t)m->state_size, limits);
    t->r.c.at = m->state.data; /* its first key */
    t->left[0] = m->state.size;
    t->level = 1;
}

/* Returns the next array of a plain dtype and skips other values. `found` is 0 at the end. */
static inline rlw_status rlw_rllink_next_tensor(rlw_rllink_tensors *t, rlw_rllink_tensor *out,
                                                int *found) {
    rlw_msgpack_value v;
    rlw_msgpack_marked mark;
    uint32_t i;
    *found = 0;
    while (t->level) {
        uint32_t top = t->level - 1;
        if (t->left[top] == 0) {
            t->level--;
            continue;
        }
        t->left[top]--;
        RLW_TRY(rlw_msgpack_read(&t->r, &out->name));
        RLW_TRY(rlw_rllink_pass(&t->r, &out->name, t->level));
        RLW_TRY(rlw_msgpack_read(&t->r, &v));
        if (v.kind != RLW_MSGPACK_MAP) {
            RLW_TRY(rlw_rllink_pass(&t->r, &v, t->level));
            continue;
        }
        RLW_TRY(rlw_msgpack_read_marked(&t->r, &v, t->level + UINT64_C(1), &mark));
        if (mark.mark == RLW_MSGPACK_UNMARKED) {
            if (t->level == RLW_RLLINK_DEEPEST)
                return rlw_fail(&t->r.c, RLW_OVER_DEPTH, v.at, RLW_RLLINK_DEEPEST + 1,
                                RLW_RLLINK_DEEPEST);
            t->left[t->level] = v.size;
            t->names[t->level++] = out->name;
            continue;
        }
        if (mark.mark != RLW_MSGPACK_ND || mark.dtype.itemsize == 0) continue;
        out->module = t->names[top];
        out->dtype = mark.dtype;
        out->dims = mark.dims;
        memcpy(out->shape, mark.shape, mark.dims * sizeof *mark.shape);
        out->data = mark.field[RLW_MSGPACK_FIELD_DATA].data;
        out->count = 1;
        for (i = 0; i < mark.dims; i++) { /* the product has been checked, except for zeros */
            if (mark.shape[i] == 0) {
                out->count = 0;
                break;
            }
            out->count *= mark.shape[i];
        }
        *found = 1;
        return RLW_OK;
    }
    return RLW_OK;
}

/* Copies a tensor to `out`; returns 0 if it is not `count` elements of float32 or float64. */
static inline int rlw_rllink_floats(const rlw_rllink_tensor *t, float *out, uint64_t count) {
    uint64_t i;
    int big = t->dtype.order == '>';
    if (t->dtype.kind != 'f' || t->count != count) return 0;
    if (t->dtype.itemsize == 4) {
        for (i = 0; i < count; i++)
            out[i] = rlw_bits_float(big ? rlw_load_u32be(t->data + 4 * i)
                                        : rlw_load_u32le(t->data + 4 * i));
    } else if (t->dtype.itemsize == 8) {
        for (i = 0; i < count; i++)
            out[i] = (float)(big ? rlw_load_f64be(t->data + 8 * i) : rlw_load_f64le(t->data + 8 * i));
    } else {
        return 0;
    }
    return 1;
}

/* ---- writing: start a frame with `rlw_rllink_begin` or one of the requests ---- */

/* Starts a frame, in the memory of the previous one. */
static inline rlw_status rlw_rllink_begin(rlw_writer *w) {
    w->at = w->start;
    return rlw_put(w, "00000000", RLW_RLLINK_HEAD);
}

/* Ends a frame. Its bytes are valid until the next write. RLW_OVER_FRAME: send fewer steps. */
static inline rlw_status rlw_rllink_end(rlw_writer *w, const uint8_t **frame, size_t *size) {
    size_t length = rlw_written(w) - RLW_RLLINK_HEAD;
    int i;
    if (length > RLW_RLLINK_MOST) return RLW_OVER_FRAME;
    *frame = w->start;
    *size = RLW_RLLINK_HEAD + length;
    for (i = RLW_RLLINK_HEAD - 1; i >= 0; i--) {
        w->start[i] = (uint8_t)('0' + length % 10);
        length /= 10;
    }
    return RLW_OK;
}

static inline rlw_status rlw_rllink_put_text(rlw_writer *w, const char *text) {
    size_t size = text ? strlen(text) : 0;
    if (!text) return rlw_msgpack_put_nil(w);
    if (size > RLW_RLLINK_MOST) return RLW_OVER_FRAME;
    return rlw_msgpack_put_string(w, text, (uint32_t)size);
}

static inline rlw_status rlw_rllink_put_head(rlw_writer *w, rlw_rllink_kind kind,
                                             uint32_t entries) {
    if (rlw_rllink_begin(w) != RLW_OK || rlw_msgpack_put_map_head(w, entries + 1) != RLW_OK ||
        rlw_rllink_put_text(w, "type") != RLW_OK)
        return RLW_NO_MEMORY;
    return rlw_rllink_put_text(w, rlw_rllink_name(kind));
}

/* Writes a request without fields: PING, GET_CONFIG or GET_STATE. */
static inline rlw_status rlw_rllink_put_request(rlw_writer *w, rlw_rllink_kind kind) {
    return rlw_rllink_put_head(w, kind, 0);
}

/* Writes a PING with a token, or NULL, for one of rlwire's servers. Ray's server ignores it. */
static inline rlw_status rlw_rllink_put_ping(rlw_writer *w, const char *token) {
    RLW_TRY(rlw_rllink_put_head(w, RLW_RLLINK_PING, 1));
    RLW_TRY(rlw_rllink_put_text(w, "rlwire"));
    RLW_TRY(rlw_msgpack_put_map_head(w, token ? 1 : 0));
    if (!token) return RLW_OK;
    RLW_TRY(rlw_rllink_put_text(w, "token"));
    return rlw_rllink_put_text(w, token);
}

typedef enum rlw_rllink_type {
    RLW_RLLINK_UINT8,
    RLW_RLLINK_INT32,
    RLW_RLLINK_INT64,
    RLW_RLLINK_FLOAT32,
    RLW_RLLINK_FLOAT64
} rlw_rllink_type;

/* An array with one entry per step, contiguous, in the host's byte order. */
typedef struct rlw_rllink_column {
    rlw_rllink_type type;
    const void *data;
    uint32_t dims;        /* of one entry; 0 for a number */
    const int64_t *shape; /* of one entry; NULL for a number */
    const char *name;     /* of an output; NULL for other columns */
} rlw_rllink_column;

/* A fragment of an episode of one agent. */
typedef struct rlw_rllink_episode {
    const char *id;                   /* the same in all fragments of an episode */
    uint32_t steps;                   /* T */
    rlw_rllink_column observations;   /* T + 1, the first from before the first step */
    rlw_rllink_column actions;        /* T */
    rlw_rllink_column rewards;        /* T */
    const rlw_rllink_column *outputs; /* T each: the model's other outputs. RLlib's PPO needs */
    uint32_t output_count;            /* "action_dist_inputs" and "action_logp" */
    int terminated;
    int truncated;
    int64_t started; /* steps of the episode before this fragment */
    double seconds;  /* duration, for RLlib's metrics */
} rlw_rllink_episode;

/* Writes {data, lookback, finalized, space}: one of Ray's buffers, with an array as its data. */
static inline rlw_status rlw_rllink_put_column(rlw_writer *w, const rlw_rllink_column *column,
                                               uint64_t entries) {
    static const char *const names[] = {"|u1", "<i4", "<i8", "<f4", "<f8"};
    static const uint8_t sizes[] = {1, 4, 8, 4, 8};
    static const char rest[] = "\xA8lookback\x00\xA9" "finalized\xC3\xA5space\xC0";
    int64_t shape[RLW_MSGPACK_DIMS];
    uint64_t count = entries;
    uint32_t i, itemsize = sizes[column->type];
    size_t size;
    if (column->dims >= RLW_MSGPACK_DIMS) return RLW_OVER_DIMS;
    shape[0] = (int64_t)entries;
    for (i = 0; i < column->dims; i++) {
        shape[i + 1] = column->shape[i];
        if (shape[i + 1] < 0) return RLW_BAD_DIMENSION;
        if (shape[i + 1] && count > RLW_RLLINK_MOST / (uint64_t)shape[i + 1])
            return RLW_OVER_FRAME;
        count *= (uint64_t)shape[i + 1];
    }
    if (count > RLW_RLLINK_MOST / itemsize) return RLW_OVER_FRAME;
    RLW_TRY(rlw_msgpack_put_map_head(w, 4));
    RLW_TRY(rlw_rllink_put_text(w, "data"));
    size = (size_t)count * itemsize;
    RLW_TRY(rlw_msgpack_put_nd(w, names[column->type], 3, column->dims + 1, shape, (uint32_t)size));
    RLW_TRY(rlw_reserve(w, size));
    rlw_copy_little(w->at, column->data, size, itemsize);
    w->at += size;
    return rlw_put(w, rest, sizeof rest - 1);
}

/* Writes EPISODES, or with `wait` EPISODES_AND_GET_STATE, whose reply has new weights. Then call
 * `rlw_rllink_put_episode` `count` times, for `steps` in all. `number`: version of the weights. */
static inline rlw_status rlw_rllink_put_episodes(rlw_writer *w, int wait, uint32_t count,
                                                 uint64_t steps, int64_t number) {
    rlw_rllink_kind kind = wait ? RLW_RLLINK_EPISODES_AND_GET_STATE : RLW_RLLINK_EPISODES;
    RLW_TRY(rlw_rllink_put_head(w, kind, 3));
    RLW_TRY(rlw_rllink_put_text(w, "timesteps"));
    RLW_TRY(rlw_msgpack_put_unsigned(w, steps));
    RLW_TRY(rlw_rllink_put_text(w, "weights_seq_no"));
    RLW_TRY(rlw_msgpack_put_integer(w, number));
    RLW_TRY(rlw_rllink_put_text(w, "episodes"));
    return rlw_msgpack_put_array_head(w, count);
}

/* Writes one episode: the state of a SingleAgentEpisode of Ray's. */
static inline rlw_status rlw_rllink_put_episode(rlw_writer *w, const rlw_rllink_episode *e) {
    static const char nobody[] = "\xA8" "agent_id\xC0\xA9module_id\xC0"
                                 "\xB6multi_agent_episode_id\xC0";
    static const char no_infos[] = "\xA8lookback\x00\xA9" "finalized\xC2\xA5space\xC0";
    static const char start[] = "\xAB_start_time\xCB\0\0\0\0\0\0\0\0";
    static const char no_spaces[] = "\xB2_observation_space\xC0\xAD_action_space\xC0"
                                    "\xAB" "custom_data\x80";
    static const char *const names[] = {"observations", "actions", "rewards"};
    const rlw_rllink_column *const columns[] = {&e->observations, &e->actions, &e->rewards};
    uint32_t i;
    RLW_TRY(rlw_msgpack_put_map_head(w, 18));
    RLW_TRY(rlw_rllink_put_text(w, "id_"));
    RLW_TRY(rlw_rllink_put_text(w, e->id));
    RLW_TRY(rlw_put(w, nobody, sizeof nobody - 1));
    for (i = 0; i < 3; i++) {
        RLW_TRY(rlw_rllink_put_text(w, names[i]));
        RLW_TRY(rlw_rllink_put_column(w, columns[i], e->steps + UINT64_C(1) - (i > 0)));
    }
    RLW_TRY(rlw_rllink_put_text(w, "infos"));
    RLW_TRY(rlw_msgpack_put_map_head(w, 4));
    RLW_TRY(rlw_rllink_put_text(w, "data"));
    if (e->steps >= RLW_RLLINK_MOST) return RLW_OVER_FRAME;
    RLW_TRY(rlw_msgpack_put_array_head(w, e->steps + 1));
    RLW_TRY(rlw_reserve(w, e->steps + (size_t)1));
    memset(w->at, 0x80, e->steps + (size_t)1); /* empty maps */
    w->at += e->steps + (size_t)1;
    RLW_TRY(rlw_put(w, no_infos, sizeof no_infos - 1));
    RLW_TRY(rlw_rllink_put_text(w, "extra_model_outputs"));
    RLW_TRY(e->output_count ? rlw_msgpack_put_map_head(w, e->output_count)
                            : rlw_msgpack_put_nil(w));
    for (i = 0; i < e->output_count; i++) {
        RLW_TRY(rlw_rllink_put_text(w, e->outputs[i].name));
        RLW_TRY(rlw_rllink_put_column(w, &e->outputs[i], e->steps));
    }
    RLW_TRY(rlw_rllink_put_text(w, "is_terminated"));
    RLW_TRY(rlw_msgpack_put_boolean(w, e->terminated));
    RLW_TRY(rlw_rllink_put_text(w, "t_started"));
    RLW_TRY(rlw_msgpack_put_integer(w, e->started));
    RLW_TRY(rlw_put(w, start, sizeof start - 1));
    RLW_TRY(rlw_rllink_put_text(w, "is_truncated"));
    RLW_TRY(rlw_msgpack_put_boolean(w, e->truncated));
    RLW_TRY(rlw_rllink_put_text(w, "t"));
    RLW_TRY(rlw_msgpack_put_integer(w, e->started + e->steps));
    RLW_TRY(rlw_rllink_put_text(w, "_last_step_time"));
    RLW_TRY(rlw_msgpack_put_float64(w, e->seconds));
    return rlw_put(w, no_spaces, sizeof no_spaces - 1);
}

#endif
