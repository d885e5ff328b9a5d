/* JSON (RFC 8259), strictly: a reader that is pulled, a writer, and skipping of whole values.
 * Arrays of numbers are in json_array.h.
 *
 *     rlw_json_reader r;
 *     rlw_json_reader_init(&r, data, size, &limits);
 *     status = rlw_json_read(&r, &v);            one value; of a list or an object the opening only
 *     if (v.kind == RLW_JSON_LIST && !v.empty)
 *         do { ... rlw_json_read(&r, &item) ...
 *         } while ((status = rlw_json_next(&r, ']', &more)) == RLW_OK && more);
 *     if (v.kind == RLW_JSON_OBJECT && !v.empty)
 *         do { ... rlw_json_name(&r, &name), rlw_json_read(&r, &member) ...
 *         } while ((status = rlw_json_next(&r, '}', &more)) == RLW_OK && more);
 *     status = rlw_json_end(&r);
 *
 * Nothing is allocated. Texts point into the input; those with escapes need rlw_json_unescape().
 * Numbers need numbers.cpp (numbers.h).
 */
#ifndef RLWIRE_JSON_H
#define RLWIRE_JSON_H

#include "cursor.h"
#include "numbers.h"
#include "utf8.h"
#include "writer.h"

#define RLW_JSON_DEPTH_MOST 1024 /* whatever the limits say */

typedef struct rlw_json_limits {
    uint64_t depth;  /* lists and objects inside each other */
    uint64_t items;  /* of lists, and members of objects, over all levels */
    uint64_t string; /* bytes between two quotes */
} rlw_json_limits;

#define RLW_JSON_DEFAULT_LIMITS {64, 1 << 20, 16 << 20}

typedef enum rlw_json_special {
    RLW_JSON_REFUSE,  /* NaN and the infinities, which JSON does not have */
    RLW_JSON_AS_NULL, /* read so only where a number is expected */
    RLW_JSON_AS_WORDS /* NaN, Infinity, -Infinity, as Python and JavaScript call them */
} rlw_json_special;

typedef struct rlw_json_reader {
    rlw_cursor c;
    rlw_json_limits limits;
    rlw_json_special special; /* RLW_JSON_REFUSE, unless set after the beginning */
    uint64_t depth; /* lists and objects that are open */
    uint64_t items; /* so far */
} rlw_json_reader;

typedef enum rlw_json_kind {
    RLW_JSON_NULL,
    RLW_JSON_FALSE,
    RLW_JSON_TRUE,
    RLW_JSON_INTEGER, /* without point and exponent, within int64 */
    RLW_JSON_NATURAL, /* the same, beyond int64 and within uint64 */
    RLW_JSON_BIG,     /* the same, beyond both: only its text */
    RLW_JSON_REAL,
    RLW_JSON_STRING,
    RLW_JSON_LIST,
    RLW_JSON_OBJECT
} rlw_json_kind;

typedef struct rlw_json_text {
    const uint8_t *data; /* between the quotes */
    size_t size;
    uint8_t ascii;
    uint8_t escaped; /* has escapes: rlw_json_unescape() */
} rlw_json_text;

typedef struct rlw_json_value {
    rlw_json_kind kind;
    uint8_t empty;      /* a list or object that has ended already */
    const uint8_t *at;  /* its first byte */
    int64_t integer;    /* INTEGER */
    uint64_t natural;   /* NATURAL */
    double real;        /* REAL */
    rlw_json_text text; /* STRING; BIG: its digits and sign */
} rlw_json_value;

/* What was missing where RLW_BAD_JSON is reported; the fault's `allowed`. */
enum {
    RLW_JSON_WANTS_VALUE,
    RLW_JSON_WANTS_NAME,
    RLW_JSON_WANTS_COLON,
    RLW_JSON_WANTS_COMMA /* or the end of the list or object */
};

#define RLW_JSON_IS(text, word) \
    ((text).size == sizeof(word) - 1 && memcmp((text).data, word, sizeof(word) - 1) == 0)

static inline void rlw_json_reader_init(rlw_json_reader *r, const uint8_t *data, size_t size,
                                        const rlw_json_limits *limits) {
    rlw_cursor_init(&r->c, data, size);
    r->limits = *limits;
    if (r->limits.depth > RLW_JSON_DEPTH_MOST) r->limits.depth = RLW_JSON_DEPTH_MOST;
    r->special = RLW_JSON_REFUSE;
    r->depth = 0;
    r->items = 0;
}

static inline void rlw_json_space(rlw_cursor *c) {
    const uint8_t *p = c->at;
    while (p < c->end && *p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    c->at = p;
}

/* What stands at c->at is not what may stand there. */
static inline rlw_status rlw_json_wrong(rlw_cursor *c, uint64_t wanted) {
    if (c->at == c->end) return rlw_fail(c, RLW_NEED_MORE, c->at, 1, 0);
    return rlw_fail(c, RLW_BAD_JSON, c->at, *c->at, wanted);
}

/* ---- strings ---- */

#define RLW_JSON_EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/* The high bits of those of eight bytes that end or break plain text: quotes, backslashes and
 * control characters. The lowest is right; above it there may be others too many. */
static inline uint64_t rlw_json_breaks(uint64_t word) {
    uint64_t quote = word ^ RLW_JSON_EACH('"'), slash = word ^ RLW_JSON_EACH('\\');
    return (((quote - RLW_JSON_EACH(1)) & ~quote) | ((slash - RLW_JSON_EACH(1)) & ~slash) |
            ((word - RLW_JSON_EACH(0x20)) & ~word)) &
           RLW_JSON_EACH(0x80);
}

static inline int rlw_json_breaks_one(uint8_t byte) {
    return byte == '"' || byte == '\\' || byte < 0x20;
}

#define RLW_JSON_BLOCK 32 /* bytes that are looked at together, which compilers make vectors of */

/* Whether a block is all plain text; *seen gets the high bits of its bytes. */
static inline int rlw_json_is_plain(const uint8_t *p, uint8_t *seen) {
    uint8_t breaks = 0, high = 0;
    unsigned i;
    for (i = 0; i < RLW_JSON_BLOCK; i++) {
        breaks |= (uint8_t)((p[i] < 0x20) | (p[i] == '"') | (p[i] == '\\'));
        high |= p[i];
    }
    *seen |= high;
    return !breaks;
}

/* Four hexadecimal digits; above 0xFFFF where they are none. */
static inline uint32_t rlw_json_hex(const uint8_t *p) {
    uint32_t value = 0;
    unsigned i;
    for (i = 0; i < 4; i++) {
        uint8_t digit = p[i], letter = (uint8_t)(digit | 0x20);
        if ((unsigned)(digit - '0') < 10) {
            value = value << 4 | (uint32_t)(digit - '0');
        } else if ((unsigned)(letter - 'a') < 6) {
            value = value << 4 | (uint32_t)(letter - 'a' + 10);
        } else {
            return UINT32_MAX;
        }
    }
    return value;
}

/* Checks the escape at `p`, a backslash; returns its length, or 0 with the fault set. */
static inline size_t rlw_json_escape(rlw_cursor *c, const uint8_t *p) {
    size_t left = (size_t)(c->end - p);
    uint32_t unit;
    if (left < 2) {
        rlw_fail(c, RLW_NEED_MORE, p, 2, left);
        return 0;
    }
    switch (p[1]) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't': return 2;
    case 'u': break;
    default: rlw_fail(c, RLW_BAD_ESCAPE, p, p[1], 0); return 0;
    }
    if (left < 6) {
        rlw_fail(c, RLW_NEED_MORE, p, 6, left);
        return 0;
    }
    unit = rlw_json_hex(p + 2);
    if (unit > 0xFFFF) {
        rlw_fail(c, RLW_BAD_ESCAPE, p, p[1], 0);
        return 0;
    }
    if (unit < 0xD800 || unit > 0xDFFF) return 6;
    if (unit < 0xDC00) { /* the first half of a pair: the other one must follow */
        uint32_t second;
        if (left < 12 && (left < 7 || p[6] == '\\') && (left < 8 || p[7] == 'u')) {
            rlw_fail(c, RLW_NEED_MORE, p, 12, left);
            return 0;
        }
        second = left >= 12 && p[6] == '\\' && p[7] == 'u' ? rlw_json_hex(p + 8) : 0;
        if (second >= 0xDC00 && second <= 0xDFFF) return 12;
    }
    rlw_fail(c, RLW_BAD_SURROGATE, p, unit, 0);
    return 0;
}

/* Reads the string whose first quote is at c->at: checked whole, its escapes too. */
static inline rlw_status rlw_json_string(rlw_json_reader *r, rlw_json_text *text) {
    rlw_cursor *c = &r->c;
    const uint8_t *start = c->at + 1, *p = start, *end = c->end;
    uint64_t seen = 0;
    uint8_t high = 0;
    text->escaped = 0;
    for (;;) {
        size_t step;
        if (end - p >= 2 * RLW_JSON_BLOCK && !rlw_json_breaks(rlw_load_u64le(p)))
            for (; end - p >= RLW_JSON_BLOCK; p += RLW_JSON_BLOCK) {
                uint8_t block = 0;
                if (!rlw_json_is_plain(p, &block)) break;
                high |= block;
            }
        while (end - p >= 8) {
            uint64_t word = rlw_load_u64le(p), breaks = rlw_json_breaks(word);
            if (breaks) {
                unsigned at = rlw_lowest_byte(breaks);
                seen |= word & ((UINT64_C(1) << (8 * at)) - 1);
                p += at;
                goto found;
            }
            seen |= word;
            p += 8;
        }
        for (; p < end && !rlw_json_breaks_one(*p); p++) seen |= *p;
        if (p == end) return rlw_fail(c, RLW_NEED_MORE, c->at, (size_t)(end - c->at) + 1,
                                      (size_t)(end - c->at));
    found:
        if (*p == '"') break;
        if (*p != '\\') return rlw_fail(c, RLW_BAD_CHARACTER, p, *p, 0);
        step = rlw_json_escape(c, p);
        if (!step) return c->fault.status;
        text->escaped = 1;
        p += step;
    }
    text->data = start;
    text->size = (size_t)(p - start);
    text->ascii = (seen & RLW_JSON_EACH(0x80)) == 0 && high < 0x80;
    if (text->size > r->limits.string)
        return rlw_fail(c, RLW_OVER_STRING, c->at, text->size, r->limits.string);
    if (!text->ascii) {
        size_t bad = rlw_utf8_check(start, text->size);
        if (bad != text->size) return rlw_fail(c, RLW_BAD_TEXT, start + bad, bad, 0);
    }
    c->at = p + 1;
    return RLW_OK;
}

static inline uint8_t *rlw_json_put_utf8(uint8_t *to, uint32_t point) { /* 4 bytes */
    if (point < 0x80) {
        *to++ = (uint8_t)point;
        return to;
    }
    if (point < 0x800) {
        *to++ = (uint8_t)(0xC0 | point >> 6);
    } else {
        if (point < 0x10000) {
            *to++ = (uint8_t)(0xE0 | point >> 12);
        } else {
            *to++ = (uint8_t)(0xF0 | point >> 18);
            *to++ = (uint8_t)(0x80 | (point >> 12 & 0x3F));
        }
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3F));
    }
    *to++ = (uint8_t)(0x80 | (point & 0x3F));
    return to;
}

/* The UTF-8 of a text that rlw_json_string() has passed, to `to` with room for text->size bytes;
 * returns how many. A NUL may be among them. */
static inline size_t rlw_json_unescape(const rlw_json_text *text, uint8_t *to) {
    const uint8_t *p = text->data, *end = p + text->size, *next;
    uint8_t *out = to;
    for (;;) {
        size_t run;
        uint32_t unit;
        next = p < end ? (const uint8_t *)memchr(p, '\\', (size_t)(end - p)) : NULL;
        run = (size_t)((next ? next : end) - p);
        if (run) memcpy(out, p, run);
        out += run;
        if (!next) return (size_t)(out - to);
        p = next + 2;
        switch (next[1]) {
        case 'b': *out++ = '\b'; continue;
        case 'f': *out++ = '\f'; continue;
        case 'n': *out++ = '\n'; continue;
        case 'r': *out++ = '\r'; continue;
        case 't': *out++ = '\t'; continue;
        case 'u': break;
        default: *out++ = next[1]; continue;
        }
        unit = rlw_json_hex(next + 2);
        p = next + 6;
        if (unit >= 0xD800 && unit <= 0xDBFF) {
            unit = 0x10000 + ((unit - 0xD800) << 10) + (rlw_json_hex(next + 8) - 0xDC00);
            p = next + 12;
        }
        out = rlw_json_put_utf8(out, unit);
    }
}

/* ---- numbers ---- */

static inline int rlw_json_is_finite(double value) {
    return value <= DBL_MAX && value >= -DBL_MAX;
}

static inline int rlw_json_is_digit(const uint8_t *p, const uint8_t *end) {
    return p < end && (unsigned)(*p - '0') < 10;
}

/* Says what is wrong with the text at c->at, which is no number. */
static inline rlw_status rlw_json_wrong_number(rlw_cursor *c) {
    const uint8_t *p = c->at + (*c->at == '-'), *end = c->end;
    if (rlw_json_is_digit(p, end)) {
        if (*p++ == '0') {
            if (rlw_json_is_digit(p, end)) return rlw_fail(c, RLW_BAD_NUMBER, c->at, 0, 0);
        }
        while (rlw_json_is_digit(p, end)) p++;
        if (p < end && *p == '.' && rlw_json_is_digit(++p, end))
            while (rlw_json_is_digit(p, end)) p++;
        if (p < end && p[-1] != '.' && (*p | 0x20) == 'e') {
            p++;
            p += p < end && (*p == '+' || *p == '-');
        }
    }
    if (p == end) return rlw_fail(c, RLW_NEED_MORE, p, 1, 0);
    return rlw_fail(c, RLW_BAD_NUMBER, c->at, 0, 0);
}

/* The integer whose text is `at` to `after`, and `d` when scanned. */
static inline void rlw_json_integer(const rlw_decimal *d, const uint8_t *at, const uint8_t *after,
                                    rlw_json_value *v) {
    uint64_t natural = d->mantissa, bits;
    v->kind = RLW_JSON_INTEGER;
    if (d->rough && !rlw_parse_u64(d->digits, after, UINT64_MAX, &natural)) {
        v->kind = RLW_JSON_BIG;
    } else if (natural > INT64_MAX) {
        v->kind = !d->negative                      ? RLW_JSON_NATURAL
                  : natural == UINT64_C(1) << 63    ? RLW_JSON_INTEGER
                                                    : RLW_JSON_BIG;
    }
    bits = d->negative ? UINT64_C(0) - natural : natural;
    memcpy(&v->integer, &bits, sizeof bits);
    v->natural = natural;
    v->text.data = at;
    v->text.size = (size_t)(after - at);
    v->text.ascii = 1;
    v->text.escaped = 0;
}

static inline const uint8_t *rlw_json_scan(const rlw_cursor *c, rlw_decimal *d) {
    const uint8_t *after = rlw_scan_short(c->at, c->end, d);
    return after ? after : rlw_scan_decimal(c->at, c->end, RLW_GRAMMAR_JSON, d);
}

/* Reads the number that begins at c->at, with a digit or '-'. */
static inline rlw_status rlw_json_number(rlw_cursor *c, rlw_json_value *v) {
    rlw_decimal d;
    const uint8_t *after = c->at + (*c->at == '-'), *first = after;
    int64_t small = 0;
    while (after < c->end && after - first < 5 && (unsigned)(*after - '0') < 10)
        small = 10 * small + (*after++ - '0');
    if (after < c->end && *after != '.' && (*after | 0x20) != 'e' &&
        (unsigned)(*after - '0') >= 10 && after > first && (*first != '0' || after - first == 1)) {
        v->kind = RLW_JSON_INTEGER;
        v->integer = *c->at == '-' ? -small : small;
        v->natural = (uint64_t)v->integer;
        c->at = after;
        return RLW_OK;
    }
    after = rlw_json_scan(c, &d);
    if (!after) return rlw_json_wrong_number(c);
    if (d.whole) {
        rlw_json_integer(&d, c->at, after, v);
    } else {
        v->kind = RLW_JSON_REAL;
        v->real = rlw_decimal_double(&d);
        if (!rlw_json_is_finite(v->real)) return rlw_fail(c, RLW_BAD_RANGE, c->at, 0, 0);
    }
    c->at = after;
    return RLW_OK;
}

/* ---- values ---- */

static inline int rlw_json_begins_special(const rlw_json_reader *r, uint8_t byte) {
    return r->special != RLW_JSON_REFUSE && (byte == 'n' || byte == 'N' || byte == 'I');
}

/* Reads the word for a number that JSON does not have; 0 where there is none. */
static inline int rlw_json_special_value(rlw_json_reader *r, double *value) {
    rlw_cursor *c = &r->c;
    size_t left = rlw_left(c), minus = left && *c->at == '-';
    const uint8_t *p = c->at + minus;
    left -= minus;
    if (r->special == RLW_JSON_AS_NULL && !minus && left >= 4 && memcmp(p, "null", 4) == 0) {
        *value = rlw_bits_double(UINT64_C(0x7FF8) << 48);
        c->at = p + 4;
    } else if (r->special == RLW_JSON_AS_WORDS && !minus && left >= 3 && memcmp(p, "NaN", 3) == 0) {
        *value = rlw_bits_double(UINT64_C(0x7FF8) << 48);
        c->at = p + 3;
    } else if (r->special == RLW_JSON_AS_WORDS && left >= 8 && memcmp(p, "Infinity", 8) == 0) {
        *value = rlw_bits_double((uint64_t)minus << 63 | UINT64_C(0x7FF) << 52);
        c->at = p + 8;
    } else {
        return 0;
    }
    return 1;
}

static inline rlw_status rlw_json_word(rlw_cursor *c, const char *word, size_t size) {
    size_t left = rlw_left(c), i;
    if (left >= size && memcmp(c->at, word, size) == 0) {
        c->at += size;
        return RLW_OK;
    }
    for (i = 0; i < left && c->at[i] == (uint8_t)word[i]; i++) {}
    if (i == left) return rlw_fail(c, RLW_NEED_MORE, c->at, size, left);
    return rlw_fail(c, RLW_BAD_JSON, c->at + i, c->at[i], RLW_JSON_WANTS_VALUE);
}

static inline rlw_status rlw_json_count(rlw_json_reader *r, const uint8_t *at) {
    if (r->items >= r->limits.items)
        return rlw_fail(&r->c, RLW_OVER_ITEMS, at, r->items + 1, r->limits.items);
    r->items++;
    return RLW_OK;
}

/* Steps over the bracket at c->at, and over the one that follows it in an empty list or object. */
static inline rlw_status rlw_json_open(rlw_json_reader *r, uint8_t close, uint8_t *empty) {
    rlw_cursor *c = &r->c;
    const uint8_t *start = c->at;
    if (r->depth >= r->limits.depth)
        return rlw_fail(c, RLW_OVER_DEPTH, start, r->depth + 1, r->limits.depth);
    c->at++;
    rlw_json_space(c);
    *empty = c->at < c->end && *c->at == close;
    if (*empty) {
        c->at++;
        return RLW_OK;
    }
    r->depth++;
    return rlw_json_count(r, start);
}

/* Reads the next value; of a list or an object that is not empty only its opening bracket. */
static inline rlw_status rlw_json_read(rlw_json_reader *r, rlw_json_value *v) {
    rlw_cursor *c = &r->c;
    rlw_json_space(c);
    if (c->at == c->end) return rlw_json_wrong(c, RLW_JSON_WANTS_VALUE);
    v->at = c->at;
    switch (*c->at) {
    case '"':
        v->kind = RLW_JSON_STRING;
        return rlw_json_string(r, &v->text);
    case '[':
        v->kind = RLW_JSON_LIST;
        return rlw_json_open(r, ']', &v->empty);
    case '{':
        v->kind = RLW_JSON_OBJECT;
        return rlw_json_open(r, '}', &v->empty);
    case 't':
        v->kind = RLW_JSON_TRUE;
        return rlw_json_word(c, "true", 4);
    case 'f':
        v->kind = RLW_JSON_FALSE;
        return rlw_json_word(c, "false", 5);
    case 'n':
        v->kind = RLW_JSON_NULL;
        return rlw_json_word(c, "null", 4);
    case '-':
    case '0': case '1': case '2': case '3': case '4':
    case '5': case '6': case '7': case '8': case '9':
        if (rlw_json_number(c, v) == RLW_OK) return RLW_OK;
        break;
    default: rlw_json_wrong(c, RLW_JSON_WANTS_VALUE);
    }
    if (r->special == RLW_JSON_AS_WORDS && rlw_json_special_value(r, &v->real)) {
        v->kind = RLW_JSON_REAL;
        return RLW_OK;
    }
    return c->fault.status;
}

/* Reads a member's name and the colon after it. */
static inline rlw_status rlw_json_name(rlw_json_reader *r, rlw_json_text *name) {
    rlw_cursor *c = &r->c;
    rlw_status status;
    rlw_json_space(c);
    if (c->at == c->end || *c->at != '"') return rlw_json_wrong(c, RLW_JSON_WANTS_NAME);
    if ((status = rlw_json_string(r, name)) != RLW_OK) return status;
    if (c->at == c->end || *c->at != ':') {
        rlw_json_space(c);
        if (c->at == c->end || *c->at != ':') return rlw_json_wrong(c, RLW_JSON_WANTS_COLON);
    }
    c->at++;
    return RLW_OK;
}

/* After an item or a member: whether another follows. If none does, the list or object has ended.
 * `close` is ']' or '}'. */
static inline rlw_status rlw_json_next(rlw_json_reader *r, uint8_t close, int *more) {
    rlw_cursor *c = &r->c;
    *more = 0;
    rlw_json_space(c);
    if (c->at == c->end) return rlw_json_wrong(c, RLW_JSON_WANTS_COMMA);
    *more = *c->at == ',';
    if (*more) {
        c->at++;
        return rlw_json_count(r, c->at - 1);
    }
    if (*c->at != close) return rlw_json_wrong(c, RLW_JSON_WANTS_COMMA);
    c->at++;
    r->depth--;
    return RLW_OK;
}

/* Checks that nothing but space follows. */
static inline rlw_status rlw_json_end(rlw_json_reader *r) {
    rlw_json_space(&r->c);
    if (r->c.at == r->c.end) return RLW_OK;
    return rlw_fail(&r->c, RLW_TRAILING, r->c.at, rlw_left(&r->c), 0);
}

/* Reads over a value, with all that is in it; checks as much as reading it would. */
static inline rlw_status rlw_json_skip(rlw_json_reader *r) {
    uint8_t closes[RLW_JSON_DEPTH_MOST + 1];
    size_t level = 0;
    rlw_json_value v;
    rlw_json_text name;
    rlw_status status;
    int more;
    for (;;) {
        if ((status = rlw_json_read(r, &v)) != RLW_OK) return status;
        if (v.kind >= RLW_JSON_LIST && !v.empty) {
            closes[level++] = v.kind == RLW_JSON_LIST ? ']' : '}';
            more = 1;
        } else {
            more = 0;
        }
        while (!more) {
            if (!level) return RLW_OK;
            if ((status = rlw_json_next(r, closes[level - 1], &more)) != RLW_OK) return status;
            if (!more) level--;
        }
        if (closes[level - 1] == '}')
            if ((status = rlw_json_name(r, &name)) != RLW_OK) return status;
    }
}

/* ---- writing ---- */

/* What follows the backslash of a character's escape; 'u' for those without a short one. */
static inline uint8_t rlw_json_escape_of(uint8_t byte) {
    switch (byte) {
    case '"': return '"';
    case '\\': return '\\';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 'u';
    }
}

/* The bytes up to the first one that needs an escape, or all: to `to`, where eight more than `size`
 * may be stored. */
static inline size_t rlw_json_copy_plain(uint8_t *to, const uint8_t *text, size_t size) {
    size_t i = 0;
    uint8_t high = 0;
    for (; size - i >= RLW_JSON_BLOCK; i += RLW_JSON_BLOCK) {
        if (!rlw_json_is_plain(text + i, &high)) break;
        memcpy(to + i, text + i, RLW_JSON_BLOCK);
    }
    for (; size - i >= 8; i += 8) {
        uint64_t breaks = rlw_json_breaks(rlw_load_u64le(text + i));
        memcpy(to + i, text + i, 8);
        if (breaks) return i + rlw_lowest_byte(breaks);
    }
    if (size - i >= 4) {
        uint64_t word = rlw_load_u32le(text + i) | RLW_JSON_EACH(0x40) << 32;
        uint64_t breaks = rlw_json_breaks(word);
        memcpy(to + i, text + i, 4);
        if (breaks) return i + rlw_lowest_byte(breaks);
        i += 4;
    }
    for (; i < size && !rlw_json_breaks_one(text[i]); i++) to[i] = text[i];
    return i;
}

/* A string in quotes; `text` is UTF-8, which nobody checks here. */
static inline rlw_status rlw_json_put_string(rlw_writer *w, const uint8_t *text, size_t size) {
    static const char digits[] = "0123456789abcdef";
    if (rlw_reserve(w, size + 10) != RLW_OK) return RLW_NO_MEMORY;
    *w->at++ = '"';
    for (;;) {
        size_t plain = rlw_json_copy_plain(w->at, text, size);
        w->at += plain;
        if (plain == size) break;
        text += plain;
        size -= plain + 1;
        if (rlw_reserve(w, size + 15) != RLW_OK) return RLW_NO_MEMORY;
        w->at[0] = '\\';
        w->at[1] = rlw_json_escape_of(*text);
        if (w->at[1] == 'u') {
            w->at[2] = w->at[3] = '0';
            w->at[4] = (uint8_t)digits[*text >> 4];
            w->at[5] = (uint8_t)digits[*text & 15];
            w->at += 4;
        }
        w->at += 2;
        text++;
    }
    *w->at++ = '"';
    return RLW_OK;
}

#define RLW_JSON_NUMBER_ROOM (RLW_SHORTEST_ROOM + 2)

/* Whole numbers are told from integers by their ".0", as Python's json does it. */
static inline uint8_t *rlw_json_point(uint8_t *to) {
    memcpy(to, ".0", 2);
    return to + 2;
}

/* A finite number, the shortest text that reads back the same; RLW_JSON_NUMBER_ROOM bytes.
 * *rounded: whether to try a number of few decimals first, because the last one was such; 1 at
 * first. It is a matter of time alone. */
static inline uint8_t *rlw_json_put_double(uint8_t *to, double value, uint8_t *rounded) {
    uint64_t bits = rlw_double_bits(value);
    double magnitude = rlw_bits_double(bits & ~(UINT64_C(1) << 63));
    size_t size;
    *to = '-';
    to += bits >> 63;
    if (magnitude < 9007199254740992.0 && (double)(int64_t)magnitude == magnitude) /* 2**53 */
        return rlw_json_point(rlw_put_u64(to, (uint64_t)(int64_t)magnitude));
    if (*rounded) {
        uint8_t *after = rlw_put_rounded(to, magnitude);
        if (after) return after;
    }
    size = rlw_double_to_digits(to, magnitude);
    *rounded = size < 12;
    to += size;
    return magnitude >= 9007199254740992.0 && magnitude < 1e16 ? rlw_json_point(to) : to;
}

static inline uint8_t *rlw_json_put_float(uint8_t *to, float value) {
    double magnitude = value < 0 ? -(double)value : (double)value;
    to = rlw_put_float(to, value);
    return magnitude < 1e16 && (double)(int64_t)magnitude == magnitude ? rlw_json_point(to) : to;
}

#endif
