/* PERLERT's datagrams.
 *
 * Source: R. Montero, draft-perlert-wg-00 (2020), with its names. docs/protocols/perlert.md has the
 * choices that the draft leaves open.
 *
 * A datagram is UTF-8: a header, a semicolon, a body. Reading fills an rlw_perlert_message, whose
 * texts point into the datagram. Writing uses the same struct. Numbers need numbers.cpp.
 */
#ifndef RLWIRE_PERLERT_H
#define RLWIRE_PERLERT_H

#include "cursor.h"
#include "numbers.h"
#include "utf8.h"
#include "writer.h"

typedef enum rlw_perlert_kind {
    RLW_PERLERT_NONE,
    /* from a client */
    RLW_PERLERT_LOBBY_REQUEST, RLW_PERLERT_REGISTER, RLW_PERLERT_READY, RLW_PERLERT_ACTION,
    /* from a server */
    RLW_PERLERT_LOBBY, RLW_PERLERT_REGISTERED, RLW_PERLERT_MESSAGE, RLW_PERLERT_START,
    RLW_PERLERT_STEP
} rlw_perlert_kind;

/* Fields by their names in the draft, for error texts. */
typedef enum rlw_perlert_field {
    RLW_PERLERT_AT_DATAGRAM, RLW_PERLERT_AT_NAME, RLW_PERLERT_AT_NUMBER, RLW_PERLERT_AT_TIMESTAMP,
    RLW_PERLERT_AT_STEP_NUMBER, RLW_PERLERT_AT_BODY, RLW_PERLERT_AT_KEY, RLW_PERLERT_AT_SLOT_STATUS,
    RLW_PERLERT_AT_KIND, RLW_PERLERT_AT_TAG, RLW_PERLERT_AT_READY_STATUS, RLW_PERLERT_AT_BOOL,
    RLW_PERLERT_AT_ACTION, RLW_PERLERT_AT_MESSAGE, RLW_PERLERT_AT_PORT, RLW_PERLERT_AT_OBSERVATION,
    RLW_PERLERT_AT_REWARD, RLW_PERLERT_AT_EXTRA
} rlw_perlert_field;

static inline const char *rlw_perlert_field_name(rlw_perlert_field field) {
    static const char *const names[] = {
        "datagram", "SERVER_INSTANCE_NAME", "SERVER_INSTANCE_NUMBER", "TIMESTAMP", "STEP_NUMBER",
        "body", "AGENT_KEY", "SLOT_STATUS", "AGENT_KIND", "AGENT_TAG", "READY_STATUS",
        "BOOL_VALUE", "ACTION", "MESSAGE", "SERVER_ROLLOUT_PORT", "OBSERVATION", "REWARD", "EXTRA",
    };
    return (size_t)field < sizeof names / sizeof *names ? names[field] : "unknown field";
}

typedef struct rlw_perlert_text {
    const uint8_t *data;
    size_t size;
} rlw_perlert_text;

typedef struct rlw_perlert_limits {
    uint64_t datagram; /* bytes; UDP over IPv4 carries at most 65,507 */
    uint64_t items;    /* slots of a lobby */
} rlw_perlert_limits;

typedef struct rlw_perlert_message {
    rlw_perlert_kind kind;
    rlw_perlert_field field; /* where reading or writing stopped */
    rlw_perlert_text name;
    uint64_t number;
    rlw_perlert_text key;  /* register, ready, registered */
    rlw_perlert_text text; /* AGENT_TAG of register, ACTION, MESSAGE, OBSERVATION, [AGENT_SLOT] */
    uint64_t timestamp;    /* step, like the fields down to `extra` */
    uint64_t step;
    rlw_perlert_text reward;
    double reward_value; /* valid if reward_is_number, else `reward` */
    rlw_perlert_text extra;
    uint32_t port;     /* start */
    uint8_t flag;      /* BOOL_VALUE of ready, or done */
    uint8_t reward_is_number;
    uint8_t has_extra;
    uint8_t ascii;     /* reading: the whole datagram is ASCII */
    int32_t decimals;  /* writing: decimals of the reward; negative: the shortest that reads back */
    rlw_perlert_text wrong; /* writing: the field with an invalid character */
    size_t wrong_at;        /* and the character's offset in it */
} rlw_perlert_message;

typedef struct rlw_perlert_slot {
    rlw_perlert_text key;
    rlw_perlert_text kind;
    rlw_perlert_text tag;
    uint8_t open;
    uint8_t ready;
} rlw_perlert_slot;

/* ---- characters ---- */

enum { /* characters that a field must not contain */
    RLW_PERLERT_COLON = 1,
    RLW_PERLERT_SEMICOLON = 2,
    RLW_PERLERT_COMMA = 4,
    RLW_PERLERT_EQUALS = 8,
    RLW_PERLERT_ANY = 15,
    RLW_PERLERT_NOT_IN_ACTION = RLW_PERLERT_COLON | RLW_PERLERT_SEMICOLON | RLW_PERLERT_EQUALS,
    RLW_PERLERT_NOT_IN_OBSERVATION = RLW_PERLERT_SEMICOLON | RLW_PERLERT_EQUALS,
    RLW_PERLERT_NOT_IN_TAG = RLW_PERLERT_SEMICOLON | RLW_PERLERT_COMMA | RLW_PERLERT_EQUALS
};

static inline unsigned rlw_perlert_class(uint8_t byte) {
    return byte == ':'   ? RLW_PERLERT_COLON
           : byte == ';' ? RLW_PERLERT_SEMICOLON
           : byte == ',' ? RLW_PERLERT_COMMA
           : byte == '=' ? RLW_PERLERT_EQUALS
                         : 0;
}

/* Returns the index of the first byte that is one of `refused`, or `size`. */
static inline size_t rlw_perlert_find(const uint8_t *data, size_t size, unsigned refused) {
    size_t i;
    if (!refused) return size;
    if (refused == RLW_PERLERT_NOT_IN_OBSERVATION) { /* long fields: memchr is faster */
        const uint8_t *first = size ? (const uint8_t *)memchr(data, ';', size) : NULL;
        if (first) size = (size_t)(first - data);
        first = size ? (const uint8_t *)memchr(data, '=', size) : NULL;
        return first ? (size_t)(first - data) : size;
    }
    for (i = 0; i < size; i++)
        if (rlw_perlert_class(data[i]) & refused) break;
    return i;
}

#define RLW_PERLERT_IS(text, word) \
    ((text).size == sizeof(word) - 1 && memcmp((text).data, word, sizeof(word) - 1) == 0)

/* ---- reading ---- */

/* Whether this is a semicolon that ends the datagram: section 3.3 allows it for a lobby only. */
static inline int rlw_perlert_last(const uint8_t *at, const uint8_t *end) {
    return end - at == 1 && *at == ';';
}

/* Reads `field` up to and including `end`: one of ':' ';' ',' '=', or 0 for the datagram's end. */
static inline rlw_status rlw_perlert_take(rlw_cursor *c, rlw_perlert_message *m,
                                          rlw_perlert_field field, unsigned refused, char end,
                                          rlw_perlert_text *out) {
    size_t size = rlw_perlert_find(c->at, rlw_left(c), refused);
    const uint8_t *stop = c->at + size;
    m->field = field;
    if (!end && rlw_perlert_last(stop, c->end)) end = ';';
    if (stop == c->end) {
        if (end) return rlw_fail(c, RLW_NEED_MORE, c->at, size + 1, size);
    } else if (*stop != (uint8_t)end || !end) {
        return rlw_fail(c, RLW_BAD_CHARACTER, stop, *stop, 0);
    }
    out->data = c->at;
    out->size = size;
    c->at = stop + (end != 0);
    return RLW_OK;
}

/* Reads a field that must not be empty. */
static inline rlw_status rlw_perlert_take_name(rlw_cursor *c, rlw_perlert_message *m,
                                               rlw_perlert_field field, char end,
                                               rlw_perlert_text *out) {
    RLW_TRY(rlw_perlert_take(c, m, field, RLW_PERLERT_ANY, end, out));
    return out->size ? RLW_OK : rlw_fail(c, RLW_BAD_EMPTY, out->data, 0, 0);
}

/* Skips `word`; a fault if it does not come next. */
static inline rlw_status rlw_perlert_word(rlw_cursor *c, const char *word, size_t size) {
    size_t left = rlw_left(c);
    if (left >= size && memcmp(c->at, word, size) == 0) {
        c->at += size;
        return RLW_OK;
    }
    if (left < size && (!left || memcmp(c->at, word, left) == 0))
        return rlw_fail(c, RLW_NEED_MORE, c->at, size, left);
    return rlw_fail(c, RLW_BAD_WORD, c->at, 0, 0);
}

/* Skips `word` if it comes next; returns whether it does. */
static inline int rlw_perlert_skip(rlw_cursor *c, const char *word, size_t size) {
    if (rlw_left(c) < size || memcmp(c->at, word, size) != 0) return 0;
    c->at += size;
    return 1;
}

#define RLW_PERLERT_WORD(c, word) rlw_perlert_word(c, word, sizeof(word) - 1)
#define RLW_PERLERT_SKIP(c, word) rlw_perlert_skip(c, word, sizeof(word) - 1)

/* Reads digits of a number up to `most`, followed by a separator or the end. */
static inline rlw_status rlw_perlert_integer(rlw_cursor *c, uint64_t most, uint64_t *out) {
    const uint8_t *after = rlw_parse_u64(c->at, c->end, most, out);
    if (!after || (after < c->end && !rlw_perlert_class(*after))) {
        if (c->at == c->end) return rlw_fail(c, RLW_NEED_MORE, c->at, 1, 0);
        return rlw_fail(c, RLW_BAD_INTEGER, c->at, 0, 0);
    }
    c->at = after;
    return RLW_OK;
}

/* Reads "true" or "false", followed by a semicolon or the datagram's end. */
static inline rlw_status rlw_perlert_bool(rlw_cursor *c, rlw_perlert_message *m) {
    const uint8_t *start = c->at;
    m->field = RLW_PERLERT_AT_BOOL;
    m->flag = (uint8_t)RLW_PERLERT_SKIP(c, "true");
    if ((m->flag || RLW_PERLERT_SKIP(c, "false")) && (c->at == c->end || *c->at == ';'))
        return RLW_OK;
    return rlw_fail(c, RLW_BAD_WORD, start, 0, 0);
}

static inline rlw_status rlw_perlert_end(rlw_cursor *c) {
    if (rlw_perlert_last(c->at, c->end)) c->at++;
    return c->at == c->end ? RLW_OK : rlw_fail(c, RLW_TRAILING, c->at, rlw_left(c), 0);
}

/* Reads a header up to its number. The caller continues at c->at, which must be ':' or ';'. */
static inline rlw_status rlw_perlert_read_header(rlw_cursor *c, rlw_perlert_message *m) {
    RLW_TRY(rlw_perlert_take_name(c, m, RLW_PERLERT_AT_NAME, ':', &m->name));
    m->field = RLW_PERLERT_AT_NUMBER;
    return rlw_perlert_integer(c, INT64_MAX, &m->number);
}

/* Checks the size and the encoding of a datagram. */
static inline rlw_status rlw_perlert_check(rlw_cursor *c, const rlw_perlert_limits *limits,
                                           rlw_perlert_message *m) {
    size_t size = rlw_left(c), bad;
    memset(m, 0, sizeof *m);
    if (size > limits->datagram)
        return rlw_fail(c, RLW_OVER_DATAGRAM, c->at, size, limits->datagram);
    m->ascii = (uint8_t)rlw_is_ascii(c->at, size);
    if (m->ascii) return RLW_OK;
    bad = rlw_utf8_check(c->at, size);
    return bad == size ? RLW_OK : rlw_fail(c, RLW_BAD_TEXT, c->at + bad, bad, 0);
}

/* Reads the rest of a step, after the number in its header. */
static inline rlw_status rlw_perlert_read_step(rlw_cursor *c, rlw_perlert_message *m) {
    const unsigned refused = RLW_PERLERT_NOT_IN_OBSERVATION;
    rlw_decimal decimal;
    m->kind = RLW_PERLERT_STEP;
    m->field = RLW_PERLERT_AT_TIMESTAMP;
    RLW_TRY(RLW_PERLERT_WORD(c, ":"));
    RLW_TRY(rlw_perlert_integer(c, INT64_MAX, &m->timestamp));
    m->field = RLW_PERLERT_AT_STEP_NUMBER;
    RLW_TRY(RLW_PERLERT_WORD(c, ":"));
    RLW_TRY(rlw_perlert_integer(c, INT64_MAX, &m->step));
    m->field = RLW_PERLERT_AT_OBSERVATION;
    RLW_TRY(RLW_PERLERT_WORD(c, ";obs="));
    RLW_TRY(rlw_perlert_take(c, m, RLW_PERLERT_AT_OBSERVATION, refused, ';', &m->text));
    m->field = RLW_PERLERT_AT_REWARD;
    RLW_TRY(RLW_PERLERT_WORD(c, "reward="));
    RLW_TRY(rlw_perlert_take(c, m, RLW_PERLERT_AT_REWARD, refused, ';', &m->reward));
    m->reward_is_number =
        rlw_scan_decimal(m->reward.data, c->at - 1, &decimal) == c->at - 1;
    if (m->reward_is_number) m->reward_value = rlw_decimal_double(&decimal);
    m->field = RLW_PERLERT_AT_BOOL;
    RLW_TRY(RLW_PERLERT_WORD(c, "done="));
    RLW_TRY(rlw_perlert_bool(c, m));
    m->has_extra = c->end - c->at > 1;
    if (!m->has_extra) return rlw_perlert_end(c);
    m->field = RLW_PERLERT_AT_EXTRA;
    RLW_TRY(RLW_PERLERT_WORD(c, ";extra="));
    return rlw_perlert_take(c, m, RLW_PERLERT_AT_EXTRA, refused, 0, &m->extra);
}

/* Whether an agent's key would be read as the first word of another message. */
static inline int rlw_perlert_reserved(rlw_perlert_text key) {
    return RLW_PERLERT_IS(key, "registered") || RLW_PERLERT_IS(key, "message") ||
           RLW_PERLERT_IS(key, "start") || RLW_PERLERT_IS(key, "obs");
}

/* Reads the slot at c->at and the semicolon after it, if any. */
static inline rlw_status rlw_perlert_next_slot(rlw_cursor *c, rlw_perlert_message *m,
                                               rlw_perlert_slot *slot) {
    const unsigned refused = RLW_PERLERT_ANY;
    rlw_perlert_text word;
    RLW_TRY(rlw_perlert_take_name(c, m, RLW_PERLERT_AT_KEY, '=', &slot->key));
    if (rlw_perlert_reserved(slot->key)) return rlw_fail(c, RLW_BAD_WORD, slot->key.data, 0, 0);
    RLW_TRY(rlw_perlert_take(c, m, RLW_PERLERT_AT_SLOT_STATUS, refused, ',', &word));
    slot->open = RLW_PERLERT_IS(word, "open");
    if (!slot->open && !RLW_PERLERT_IS(word, "close"))
        return rlw_fail(c, RLW_BAD_WORD, word.data, 0, 0);
    RLW_TRY(rlw_perlert_take(c, m, RLW_PERLERT_AT_KIND, refused, ',', &slot->kind));
    RLW_TRY(rlw_perlert_take(c, m, RLW_PERLERT_AT_TAG, RLW_PERLERT_NOT_IN_TAG, ',', &slot->tag));
    m->field = RLW_PERLERT_AT_READY_STATUS;
    word.data = c->at;
    word.size = rlw_perlert_find(c->at, rlw_left(c), refused);
    slot->ready = RLW_PERLERT_IS(word, "ready");
    if (!slot->ready && !RLW_PERLERT_IS(word, "not_ready"))
        return rlw_fail(c, RLW_BAD_WORD, word.data, 0, 0);
    c->at += word.size;
    if (c->at == c->end) return RLW_OK;
    if (*c->at != ';') return rlw_fail(c, RLW_BAD_CHARACTER, c->at, *c->at, 0);
    c->at++;
    return RLW_OK;
}

/* Reads a datagram from a client. */
static inline rlw_status rlw_perlert_read_client(rlw_cursor *c, const rlw_perlert_limits *limits,
                                                 rlw_perlert_message *m) {
    RLW_TRY(rlw_perlert_check(c, limits, m));
    RLW_TRY(rlw_perlert_read_header(c, m));
    RLW_TRY(RLW_PERLERT_WORD(c, ";"));
    m->field = RLW_PERLERT_AT_BODY;
    if (RLW_PERLERT_SKIP(c, "action=")) {
        m->kind = RLW_PERLERT_ACTION;
        return rlw_perlert_take(c, m, RLW_PERLERT_AT_ACTION, RLW_PERLERT_NOT_IN_ACTION, 0,
                                &m->text);
    }
    if (RLW_PERLERT_SKIP(c, "register=")) {
        m->kind = RLW_PERLERT_REGISTER;
        RLW_TRY(rlw_perlert_take_name(c, m, RLW_PERLERT_AT_KEY, ',', &m->key));
        return rlw_perlert_take(c, m, RLW_PERLERT_AT_TAG, RLW_PERLERT_NOT_IN_TAG, 0, &m->text);
    }
    if (RLW_PERLERT_SKIP(c, "ready=")) {
        m->kind = RLW_PERLERT_READY;
        RLW_TRY(rlw_perlert_take_name(c, m, RLW_PERLERT_AT_KEY, ',', &m->key));
        RLW_TRY(rlw_perlert_bool(c, m));
        return rlw_perlert_end(c);
    }
    RLW_TRY(RLW_PERLERT_WORD(c, "lobby"));
    m->kind = RLW_PERLERT_LOBBY_REQUEST;
    return rlw_perlert_end(c);
}

/* Reads a datagram from a server. Of a lobby it reads only the header: call rlw_perlert_next_slot()
 * until c->at is c->end. */
static inline rlw_status rlw_perlert_read_server(rlw_cursor *c, const rlw_perlert_limits *limits,
                                                 rlw_perlert_message *m) {
    uint64_t port = 0;
    RLW_TRY(rlw_perlert_check(c, limits, m));
    RLW_TRY(rlw_perlert_read_header(c, m));
    if (c->at < c->end && *c->at == ':') return rlw_perlert_read_step(c, m);
    RLW_TRY(RLW_PERLERT_WORD(c, ";"));
    m->field = RLW_PERLERT_AT_BODY;
    if (RLW_PERLERT_SKIP(c, "message=")) {
        m->kind = RLW_PERLERT_MESSAGE;
        return rlw_perlert_take(c, m, RLW_PERLERT_AT_MESSAGE, 0, 0, &m->text);
    }
    if (RLW_PERLERT_SKIP(c, "registered=")) {
        m->kind = RLW_PERLERT_REGISTERED;
        return rlw_perlert_take_name(c, m, RLW_PERLERT_AT_KEY, 0, &m->key);
    }
    if (RLW_PERLERT_SKIP(c, "start=")) {
        c->at -= 6;
        m->kind = RLW_PERLERT_START;
        m->field = RLW_PERLERT_AT_PORT;
        RLW_TRY(RLW_PERLERT_WORD(c, "start=port:"));
        RLW_TRY(rlw_perlert_integer(c, 65535, &port));
        if (!port) return rlw_fail(c, RLW_BAD_INTEGER, c->at - 1, 0, 0);
        RLW_TRY(rlw_perlert_end(c));
        m->port = (uint32_t)port;
        return RLW_OK;
    }
    if (RLW_PERLERT_SKIP(c, "obs=")) { /* a step's body, without its TIMESTAMP */
        m->field = RLW_PERLERT_AT_TIMESTAMP;
        return rlw_fail(c, RLW_BAD_WORD, c->at - 5, 0, 0);
    }
    m->kind = RLW_PERLERT_LOBBY;
    m->text.data = c->at;
    m->text.size = rlw_left(c);
    return RLW_OK;
}

/* ---- writing: after a fault, discard what has been written ---- */

static inline rlw_status rlw_perlert_put_text(rlw_writer *w, rlw_perlert_message *m,
                                              rlw_perlert_field field, unsigned refused,
                                              rlw_perlert_text text) {
    size_t found = rlw_perlert_find(text.data, text.size, refused);
    m->field = field;
    if (found == text.size) return rlw_put(w, text.data, text.size);
    m->wrong = text;
    m->wrong_at = found;
    return RLW_BAD_CHARACTER;
}

static inline rlw_status rlw_perlert_put_name(rlw_writer *w, rlw_perlert_message *m,
                                              rlw_perlert_field field, rlw_perlert_text text) {
    m->field = field;
    return text.size ? rlw_perlert_put_text(w, m, field, RLW_PERLERT_ANY, text) : RLW_BAD_EMPTY;
}

static inline rlw_status rlw_perlert_put_integer(rlw_writer *w, rlw_perlert_message *m,
                                                 rlw_perlert_field field, uint64_t value) {
    m->field = field;
    if (value > INT64_MAX) return RLW_BAD_INTEGER;
    if (rlw_reserve(w, 20) != RLW_OK) return RLW_NO_MEMORY;
    w->at = rlw_put_u64(w->at, value);
    return RLW_OK;
}

#define RLW_PERLERT_PUT(w, word) rlw_put(w, word, sizeof(word) - 1)
#define RLW_PERLERT_PUT_IF(w, flag, yes, no) \
    ((flag) ? RLW_PERLERT_PUT(w, yes) : RLW_PERLERT_PUT(w, no))

static inline rlw_status rlw_perlert_put_header(rlw_writer *w, rlw_perlert_message *m) {
    RLW_TRY(rlw_perlert_put_name(w, m, RLW_PERLERT_AT_NAME, m->name));
    RLW_TRY(RLW_PERLERT_PUT(w, ":"));
    return rlw_perlert_put_integer(w, m, RLW_PERLERT_AT_NUMBER, m->number);
}

/* Writes a step from after its header's number up to its observation. */
static inline rlw_status rlw_perlert_put_step_head(rlw_writer *w, rlw_perlert_message *m) {
    RLW_TRY(RLW_PERLERT_PUT(w, ":"));
    RLW_TRY(rlw_perlert_put_integer(w, m, RLW_PERLERT_AT_TIMESTAMP, m->timestamp));
    RLW_TRY(RLW_PERLERT_PUT(w, ":"));
    RLW_TRY(rlw_perlert_put_integer(w, m, RLW_PERLERT_AT_STEP_NUMBER, m->step));
    return RLW_PERLERT_PUT(w, ";obs=");
}

/* Writes a step from after its observation to its end, or up to the extra if the caller writes that
 * itself. */
static inline rlw_status rlw_perlert_put_step_tail(rlw_writer *w, rlw_perlert_message *m) {
    const unsigned refused = RLW_PERLERT_NOT_IN_OBSERVATION;
    RLW_TRY(RLW_PERLERT_PUT(w, ";reward="));
    if (!m->reward_is_number) {
        RLW_TRY(rlw_perlert_put_text(w, m, RLW_PERLERT_AT_REWARD, refused, m->reward));
    } else {
        if (rlw_reserve(w, RLW_FIXED_ROOM) != RLW_OK) return RLW_NO_MEMORY;
        if (m->decimals >= 0)
            w->at = rlw_put_fixed(w->at, m->reward_value, (unsigned)m->decimals);
        else
            w->at = rlw_put_double(w->at, m->reward_value);
    }
    RLW_TRY(RLW_PERLERT_PUT_IF(w, m->flag, ";done=true", ";done=false"));
    if (!m->has_extra) return RLW_OK;
    RLW_TRY(RLW_PERLERT_PUT(w, ";extra="));
    return rlw_perlert_put_text(w, m, RLW_PERLERT_AT_EXTRA, refused, m->extra);
}

/* Writes one slot and a semicolon; after the last one, the caller may drop it with w->at--. */
static inline rlw_status rlw_perlert_put_slot(rlw_writer *w, rlw_perlert_message *m,
                                              const rlw_perlert_slot *slot) {
    const unsigned refused = RLW_PERLERT_ANY;
    RLW_TRY(rlw_perlert_put_name(w, m, RLW_PERLERT_AT_KEY, slot->key));
    if (rlw_perlert_reserved(slot->key)) return RLW_BAD_WORD;
    RLW_TRY(RLW_PERLERT_PUT_IF(w, slot->open, "=open,", "=close,"));
    RLW_TRY(rlw_perlert_put_text(w, m, RLW_PERLERT_AT_KIND, refused, slot->kind));
    RLW_TRY(RLW_PERLERT_PUT(w, ","));
    RLW_TRY(rlw_perlert_put_text(w, m, RLW_PERLERT_AT_TAG, RLW_PERLERT_NOT_IN_TAG, slot->tag));
    return RLW_PERLERT_PUT_IF(w, slot->ready, ",ready;", ",not_ready;");
}

/* Writes a message. For a lobby it writes the header and the semicolon; call rlw_perlert_put_slot()
 * for the rest. The caller checks that all texts are UTF-8, and the size of the whole. */
static inline rlw_status rlw_perlert_write(rlw_writer *w, rlw_perlert_message *m) {
    RLW_TRY(rlw_perlert_put_header(w, m));
    switch (m->kind) {
    case RLW_PERLERT_LOBBY_REQUEST: return RLW_PERLERT_PUT(w, ";lobby");
    case RLW_PERLERT_REGISTER:
        RLW_TRY(RLW_PERLERT_PUT(w, ";register="));
        RLW_TRY(rlw_perlert_put_name(w, m, RLW_PERLERT_AT_KEY, m->key));
        RLW_TRY(RLW_PERLERT_PUT(w, ","));
        return rlw_perlert_put_text(w, m, RLW_PERLERT_AT_TAG, RLW_PERLERT_NOT_IN_TAG, m->text);
    case RLW_PERLERT_READY:
        RLW_TRY(RLW_PERLERT_PUT(w, ";ready="));
        RLW_TRY(rlw_perlert_put_name(w, m, RLW_PERLERT_AT_KEY, m->key));
        return RLW_PERLERT_PUT_IF(w, m->flag, ",true", ",false");
    case RLW_PERLERT_ACTION:
        RLW_TRY(RLW_PERLERT_PUT(w, ";action="));
        return rlw_perlert_put_text(w, m, RLW_PERLERT_AT_ACTION, RLW_PERLERT_NOT_IN_ACTION,
                                    m->text);
    case RLW_PERLERT_LOBBY: return RLW_PERLERT_PUT(w, ";");
    case RLW_PERLERT_REGISTERED:
        RLW_TRY(RLW_PERLERT_PUT(w, ";registered="));
        return rlw_perlert_put_name(w, m, RLW_PERLERT_AT_KEY, m->key);
    case RLW_PERLERT_MESSAGE:
        RLW_TRY(RLW_PERLERT_PUT(w, ";message="));
        return rlw_perlert_put_text(w, m, RLW_PERLERT_AT_MESSAGE, 0, m->text);
    case RLW_PERLERT_START:
        RLW_TRY(RLW_PERLERT_PUT(w, ";start=port:"));
        m->field = RLW_PERLERT_AT_PORT;
        if (!m->port || m->port > 65535) return RLW_BAD_INTEGER;
        return rlw_perlert_put_integer(w, m, RLW_PERLERT_AT_PORT, m->port);
    case RLW_PERLERT_STEP:
        RLW_TRY(rlw_perlert_put_step_head(w, m));
        RLW_TRY(rlw_perlert_put_text(w, m, RLW_PERLERT_AT_OBSERVATION,
                                             RLW_PERLERT_NOT_IN_OBSERVATION, m->text));
        return rlw_perlert_put_step_tail(w, m);
    case RLW_PERLERT_NONE: break;
    }
    m->field = RLW_PERLERT_AT_BODY;
    return RLW_BAD_TYPE;
}

#endif
