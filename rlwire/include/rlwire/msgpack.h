/* MessagePack: every type of the specification, read and written one value at a time.
 *
 * Source: msgpack's spec.md. For an array or map, reading returns the count, checked against the
 * bytes left. msgpack_array.h has ndarrays.
 */
#ifndef RLWIRE_MSGPACK_H
#define RLWIRE_MSGPACK_H

#include "cursor.h"
#include "writer.h"

/* ---- reading ---- */

typedef enum rlw_msgpack_kind {
    RLW_MSGPACK_NIL,
    RLW_MSGPACK_BOOLEAN,  /* integer: 0 or 1 */
    RLW_MSGPACK_INTEGER,  /* integer */
    RLW_MSGPACK_UNSIGNED, /* size: an integer of 2**63 or more */
    RLW_MSGPACK_FLOAT32,  /* real */
    RLW_MSGPACK_FLOAT64,  /* real */
    RLW_MSGPACK_STRING,   /* data, size; not checked for UTF-8 */
    RLW_MSGPACK_BINARY,   /* data, size */
    RLW_MSGPACK_EXT,      /* data, size, code */
    RLW_MSGPACK_ARRAY,    /* size: number of values that follow */
    RLW_MSGPACK_MAP       /* size: number of entries that follow, each a key and a value */
} rlw_msgpack_kind;

typedef struct rlw_msgpack_value {
    rlw_msgpack_kind kind;
    int8_t code;
    const uint8_t *at; /* its type byte */
    int64_t integer;
    double real;
    const uint8_t *data;
    uint64_t size;
} rlw_msgpack_value;

/* Maxima; all ones for no limit. `depth` counts nested arrays and maps, `items` values and entries
 * on all levels. The others apply to one value. */
typedef struct rlw_msgpack_limits {
    uint64_t depth;
    uint64_t items;
    uint64_t string;
    uint64_t binary;
    uint64_t ext;
    uint64_t array;
    uint64_t map;
    uint64_t dims;
} rlw_msgpack_limits;

typedef struct rlw_msgpack_reader {
    rlw_cursor c;
    rlw_msgpack_limits limits;
    uint64_t items;
} rlw_msgpack_reader;

static inline void rlw_msgpack_reader_init(rlw_msgpack_reader *r, const uint8_t *data, size_t size,
                                           const rlw_msgpack_limits *limits) {
    rlw_cursor_init(&r->c, data, size);
    r->limits = *limits;
    r->items = 0;
}

/* Reads a string, binary or extension whose bytes start at `p`. */
static inline rlw_status rlw_msgpack_bytes(rlw_msgpack_reader *r, rlw_msgpack_value *v,
                                           rlw_msgpack_kind kind, const uint8_t *p, uint64_t size,
                                           uint64_t limit) {
    if (size > limit)
        return rlw_fail(&r->c, kind == RLW_MSGPACK_STRING ? RLW_OVER_STRING : RLW_OVER_MESSAGE,
                        v->at, size, limit);
    if (size > (uint64_t)(r->c.end - p))
        return rlw_fail(&r->c, RLW_NEED_MORE, v->at, size, (uint64_t)(r->c.end - p));
    v->kind = kind;
    v->data = p;
    v->size = size;
    r->c.at = p + size;
    return RLW_OK;
}

/* Reads the count of an array or map whose first value starts at `p`. */
static inline rlw_status rlw_msgpack_count(rlw_msgpack_reader *r, rlw_msgpack_value *v,
                                           rlw_msgpack_kind kind, const uint8_t *p, uint64_t count,
                                           uint64_t limit) {
    uint64_t fit = (uint64_t)(r->c.end - p) / (kind == RLW_MSGPACK_MAP ? 2 : 1);
    if (count > limit) return rlw_fail(&r->c, RLW_OVER_ITEMS, v->at, count, limit);
    if (count > fit) return rlw_fail(&r->c, RLW_BAD_COUNT, v->at, count, fit);
    if (count > r->limits.items - r->items)
        return rlw_fail(&r->c, RLW_OVER_ITEMS, v->at, r->items + count, r->limits.items);
    r->items += count;
    v->kind = kind;
    v->size = count;
    r->c.at = p;
    return RLW_OK;
}

static inline rlw_status rlw_msgpack_integer(rlw_msgpack_reader *r, rlw_msgpack_value *v,
                                             int64_t value, size_t size) {
    v->kind = RLW_MSGPACK_INTEGER;
    v->integer = value;
    r->c.at += size;
    return RLW_OK;
}

/* Reads a value with a type byte from 0xc0 to 0xdf. */
static inline rlw_status rlw_msgpack_read_other(rlw_msgpack_reader *r, rlw_msgpack_value *v) {
    /* Bytes between the type byte and the value's data; fixext includes the data. */
    static const uint8_t heads[32] = {0, 0, 0, 0, 1, 2, 4, 2, 3, 5, 4, 8, 1, 2, 4, 8,
                                      1, 2, 4, 8, 2, 3, 5, 9, 17, 1, 2, 4, 2, 4, 2, 4};
    const uint8_t *p = r->c.at + 1;
    unsigned type = r->c.at[0];
    size_t head = heads[type & 31];
    uint64_t whole;
    if (rlw_left(&r->c) <= head)
        return rlw_fail(&r->c, RLW_NEED_MORE, r->c.at, head + 1, rlw_left(&r->c));
    switch (type) {
    case 0xC0:
        v->kind = RLW_MSGPACK_NIL;
        r->c.at = p;
        return RLW_OK;
    case 0xC2:
    case 0xC3:
        v->kind = RLW_MSGPACK_BOOLEAN;
        v->integer = type & 1;
        r->c.at = p;
        return RLW_OK;
    case 0xC4:
        return rlw_msgpack_bytes(r, v, RLW_MSGPACK_BINARY, p + 1, p[0], r->limits.binary);
    case 0xC5:
        return rlw_msgpack_bytes(r, v, RLW_MSGPACK_BINARY, p + 2, rlw_load_u16be(p),
                                 r->limits.binary);
    case 0xC6:
        return rlw_msgpack_bytes(r, v, RLW_MSGPACK_BINARY, p + 4, rlw_load_u32be(p),
                                 r->limits.binary);
    case 0xC7:
        v->code = (int8_t)rlw_sign_extend(p[1], 8);
        return rlw_msgpack_bytes(r, v, RLW_MSGPACK_EXT, p + 2, p[0], r->limits.ext);
    case 0xC8:
        v->code = (int8_t)rlw_sign_extend(p[2], 8);
        return rlw_msgpack_bytes(r, v, RLW_MSGPACK_EXT, p + 3, rlw_load_u16be(p), r->limits.ext);
    case 0xC9:
        v->code = (int8_t)rlw_sign_extend(p[4], 8);
        return rlw_msgpack_bytes(r, v, RLW_MSGPACK_EXT, p + 5, rlw_load_u32be(p), r->limits.ext);
    case 0xCA:
        v->kind = RLW_MSGPACK_FLOAT32;
        v->real = rlw_load_f32be(p);
        r->c.at = p + 4;
        return RLW_OK;
    case 0xCB:
        v->kind = RLW_MSGPACK_FLOAT64;
        v->real = rlw_load_f64be(p);
        r->c.at = p + 8;
        return RLW_OK;
    case 0xCC: return rlw_msgpack_integer(r, v, p[0], 2);
    case 0xCD: return rlw_msgpack_integer(r, v, rlw_load_u16be(p), 3);
    case 0xCE: return rlw_msgpack_integer(r, v, rlw_load_u32be(p), 5);
    case 0xCF:
        whole = rlw_load_u64be(p);
        if (whole <= INT64_MAX) return rlw_msgpack_integer(r, v, (int64_t)whole, 9);
        v->kind = RLW_MSGPACK_UNSIGNED;
        v->size = whole;
        r->c.at = p + 8;
        return RLW_OK;
    case 0xD0: return rlw_msgpack_integer(r, v, rlw_sign_extend(p[0], 8), 2);
    case 0xD1: return rlw_msgpack_integer(r, v, rlw_sign_extend(rlw_load_u16be(p), 16), 3);
    case 0xD2: return rlw_msgpack_integer(r, v, rlw_sign_extend(rlw_load_u32be(p), 32), 5);
    case 0xD3: return rlw_msgpack_integer(r, v, rlw_sign_extend(rlw_load_u64be(p), 64), 9);
    case 0xD4:
    case 0xD5:
    case 0xD6:
    case 0xD7:
    case 0xD8:
        v->code = (int8_t)rlw_sign_extend(p[0], 8);
        return rlw_msgpack_bytes(r, v, RLW_MSGPACK_EXT, p + 1, UINT64_C(1) << (type - 0xD4),
                                 r->limits.ext);
    case 0xD9:
        return rlw_msgpack_bytes(r, v, RLW_MSGPACK_STRING, p + 1, p[0], r->limits.string);
    case 0xDA:
        return rlw_msgpack_bytes(r, v, RLW_MSGPACK_STRING, p + 2, rlw_load_u16be(p),
                                 r->limits.string);
    case 0xDB:
        return rlw_msgpack_bytes(r, v, RLW_MSGPACK_STRING, p + 4, rlw_load_u32be(p),
                                 r->limits.string);
    case 0xDC:
        return rlw_msgpack_count(r, v, RLW_MSGPACK_ARRAY, p + 2, rlw_load_u16be(p),
                                 r->limits.array);
    case 0xDD:
        return rlw_msgpack_count(r, v, RLW_MSGPACK_ARRAY, p + 4, rlw_load_u32be(p),
                                 r->limits.array);
    case 0xDE:
        return rlw_msgpack_count(r, v, RLW_MSGPACK_MAP, p + 2, rlw_load_u16be(p), r->limits.map);
    case 0xDF:
        return rlw_msgpack_count(r, v, RLW_MSGPACK_MAP, p + 4, rlw_load_u32be(p), r->limits.map);
    default: /* 0xc1 is "never used" */
        return rlw_fail(&r->c, RLW_BAD_TYPE, r->c.at, type, 0);
    }
}

/* Reads the next value; for an array or map only its count. The cursor moves only on success. */
static inline rlw_status rlw_msgpack_read(rlw_msgpack_reader *r, rlw_msgpack_value *v) {
    unsigned type;
    v->at = r->c.at;
    if (r->c.at == r->c.end) return rlw_fail(&r->c, RLW_NEED_MORE, r->c.at, 1, 0);
    type = r->c.at[0];
    if (type < 0x80) return rlw_msgpack_integer(r, v, type, 1);
    if (type >= 0xE0) return rlw_msgpack_integer(r, v, (int)type - 0x100, 1);
    if (type >= 0xC0) return rlw_msgpack_read_other(r, v);
    if (type >= 0xA0)
        return rlw_msgpack_bytes(r, v, RLW_MSGPACK_STRING, r->c.at + 1, type & 31,
                                 r->limits.string);
    if (type >= 0x90)
        return rlw_msgpack_count(r, v, RLW_MSGPACK_ARRAY, r->c.at + 1, type & 15,
                                 r->limits.array);
    return rlw_msgpack_count(r, v, RLW_MSGPACK_MAP, r->c.at + 1, type & 15, r->limits.map);
}

enum { RLW_MSGPACK_DEEPEST = 512 }; /* the most nested arrays and maps, whatever the limit is */

/* Skips one complete value. `depth` is the number of arrays and maps around it. */
static inline rlw_status rlw_msgpack_skip(rlw_msgpack_reader *r, uint64_t depth) {
    const uint8_t *start = r->c.at;
    uint64_t left[RLW_MSGPACK_DEEPEST + 1]; /* values missing at each level; 0 is the whole */
    uint64_t deepest = r->limits.depth > depth ? r->limits.depth - depth : 0;
    uint32_t level = 0; /* open arrays and maps */
    rlw_msgpack_value v;
    rlw_status status;
    if (deepest > RLW_MSGPACK_DEEPEST) deepest = RLW_MSGPACK_DEEPEST;
    left[0] = 1;
    for (;;) {
        while (left[level] == 0)
            if (level-- == 0) return RLW_OK;
        status = rlw_msgpack_read(r, &v);
        if (status == RLW_OK && v.kind >= RLW_MSGPACK_ARRAY && level >= deepest)
            status = rlw_fail(&r->c, RLW_OVER_DEPTH, v.at, level + UINT64_C(1), deepest);
        if (status != RLW_OK) {
            r->c.at = start;
            return status;
        }
        left[level]--;
        if (v.kind >= RLW_MSGPACK_ARRAY)
            left[++level] = v.kind == RLW_MSGPACK_MAP ? 2 * v.size : v.size;
    }
}

/* ---- the timestamp extension, code -1 ---- */

enum { RLW_MSGPACK_TIMESTAMP = -1 };

/* Decodes 32, 64 or 96 bits to seconds since 1970 and nanoseconds < 10**9. Returns 1 on success. */
static inline int rlw_msgpack_timestamp(const uint8_t *data, uint64_t size, int64_t *seconds,
                                        uint32_t *nanoseconds) {
    uint64_t word;
    if (size == 4) {
        *seconds = rlw_load_u32be(data);
        *nanoseconds = 0;
    } else if (size == 8) {
        word = rlw_load_u64be(data);
        *seconds = (int64_t)(word & UINT64_C(0x3FFFFFFFF));
        *nanoseconds = (uint32_t)(word >> 34);
    } else if (size == 12) {
        *nanoseconds = rlw_load_u32be(data);
        *seconds = rlw_sign_extend(rlw_load_u64be(data + 4), 64);
    } else {
        return 0;
    }
    return *nanoseconds <= 999999999u;
}

/* ---- writing: the shortest form of each value; one check for room per value ---- */

static inline rlw_status rlw_msgpack_put_byte(rlw_writer *w, unsigned type) {
    if (rlw_reserve(w, 1) != RLW_OK) return RLW_NO_MEMORY;
    *w->at++ = (uint8_t)type;
    return RLW_OK;
}

static inline rlw_status rlw_msgpack_put_nil(rlw_writer *w) {
    return rlw_msgpack_put_byte(w, 0xC0);
}

static inline rlw_status rlw_msgpack_put_boolean(rlw_writer *w, int value) {
    return rlw_msgpack_put_byte(w, value ? 0xC3 : 0xC2);
}

/* The unchecked functions, `rlw_msgpack_store_...`, return the position after the value. */
enum { RLW_MSGPACK_HEAD_MOST = 9 }; /* most bytes of a number, or of any head */

/* Stores a type byte and a number of `size` bytes, a constant. */
static inline uint8_t *rlw_msgpack_store(uint8_t *p, unsigned type, unsigned size, uint64_t value) {
    *p++ = (uint8_t)type;
    switch (size) {
    case 1: *p = (uint8_t)value; break;
    case 2: rlw_store_u16be(p, (uint16_t)value); break;
    case 4: rlw_store_u32be(p, (uint32_t)value); break;
    case 8: rlw_store_u64be(p, value); break;
    default: break;
    }
    return p + size;
}

static inline uint8_t *rlw_msgpack_store_unsigned(uint8_t *p, uint64_t value) {
    if (value < 0x80) return rlw_msgpack_store(p, (unsigned)value, 0, 0);
    if (value <= 0xFF) return rlw_msgpack_store(p, 0xCC, 1, value);
    if (value <= 0xFFFF) return rlw_msgpack_store(p, 0xCD, 2, value);
    if (value <= 0xFFFFFFFF) return rlw_msgpack_store(p, 0xCE, 4, value);
    return rlw_msgpack_store(p, 0xCF, 8, value);
}

static inline uint8_t *rlw_msgpack_store_integer(uint8_t *p, int64_t value) {
    uint64_t bits = (uint64_t)value;
    if (value >= 0) return rlw_msgpack_store_unsigned(p, bits);
    if (value >= -32) return rlw_msgpack_store(p, (uint8_t)bits, 0, 0);
    if (value >= -128) return rlw_msgpack_store(p, 0xD0, 1, bits);
    if (value >= -32768) return rlw_msgpack_store(p, 0xD1, 2, bits);
    if (value >= -INT64_C(2147483648)) return rlw_msgpack_store(p, 0xD2, 4, bits);
    return rlw_msgpack_store(p, 0xD3, 8, bits);
}

/* Writes a one-byte head, or a type byte and a size. `one`, `eight`: 0 if there is no such form. */
static inline uint8_t *rlw_msgpack_store_head(uint8_t *p, unsigned one, uint32_t most,
                                              unsigned eight, unsigned sixteen,
                                              unsigned thirty_two, uint32_t size) {
    if (one && size <= most) return rlw_msgpack_store(p, one | size, 0, 0);
    if (eight && size <= 0xFF) return rlw_msgpack_store(p, eight, 1, size);
    if (size <= 0xFFFF) return rlw_msgpack_store(p, sixteen, 2, size);
    return rlw_msgpack_store(p, thirty_two, 4, size);
}

static inline rlw_status rlw_msgpack_put_unsigned(rlw_writer *w, uint64_t value) {
    if (rlw_reserve(w, RLW_MSGPACK_HEAD_MOST) != RLW_OK) return RLW_NO_MEMORY;
    w->at = rlw_msgpack_store_unsigned(w->at, value);
    return RLW_OK;
}

static inline rlw_status rlw_msgpack_put_integer(rlw_writer *w, int64_t value) {
    if (rlw_reserve(w, RLW_MSGPACK_HEAD_MOST) != RLW_OK) return RLW_NO_MEMORY;
    w->at = rlw_msgpack_store_integer(w->at, value);
    return RLW_OK;
}

static inline rlw_status rlw_msgpack_put_float32(rlw_writer *w, float value) {
    if (rlw_reserve(w, 5) != RLW_OK) return RLW_NO_MEMORY;
    w->at = rlw_msgpack_store(w->at, 0xCA, 4, rlw_float_bits(value));
    return RLW_OK;
}

static inline rlw_status rlw_msgpack_put_float64(rlw_writer *w, double value) {
    if (rlw_reserve(w, 9) != RLW_OK) return RLW_NO_MEMORY;
    w->at = rlw_msgpack_store(w->at, 0xCB, 8, rlw_double_bits(value));
    return RLW_OK;
}

/* Write the heads of strings and binaries, with room for `more` bytes behind them. */
static inline rlw_status rlw_msgpack_put_string_head(rlw_writer *w, uint32_t size, size_t more) {
    if (rlw_reserve(w, RLW_MSGPACK_HEAD_MOST + more) != RLW_OK) return RLW_NO_MEMORY;
    w->at = rlw_msgpack_store_head(w->at, 0xA0, 31, 0xD9, 0xDA, 0xDB, size);
    return RLW_OK;
}

static inline rlw_status rlw_msgpack_put_binary_head(rlw_writer *w, uint32_t size, size_t more) {
    if (rlw_reserve(w, RLW_MSGPACK_HEAD_MOST + more) != RLW_OK) return RLW_NO_MEMORY;
    w->at = rlw_msgpack_store_head(w->at, 0, 0, 0xC4, 0xC5, 0xC6, size);
    return RLW_OK;
}

static inline rlw_status rlw_msgpack_put_array_head(rlw_writer *w, uint32_t count) {
    if (rlw_reserve(w, RLW_MSGPACK_HEAD_MOST) != RLW_OK) return RLW_NO_MEMORY;
    w->at = rlw_msgpack_store_head(w->at, 0x90, 15, 0, 0xDC, 0xDD, count);
    return RLW_OK;
}

static inline rlw_status rlw_msgpack_put_map_head(rlw_writer *w, uint32_t count) {
    if (rlw_reserve(w, RLW_MSGPACK_HEAD_MOST) != RLW_OK) return RLW_NO_MEMORY;
    w->at = rlw_msgpack_store_head(w->at, 0x80, 15, 0, 0xDE, 0xDF, count);
    return RLW_OK;
}

static inline rlw_status rlw_msgpack_put_string(rlw_writer *w, const char *text, uint32_t size) {
    if (rlw_msgpack_put_string_head(w, size, size) != RLW_OK) return RLW_NO_MEMORY;
    if (size) memcpy(w->at, text, size);
    w->at += size;
    return RLW_OK;
}

static inline rlw_status rlw_msgpack_put_binary(rlw_writer *w, const void *data, uint32_t size) {
    if (rlw_msgpack_put_binary_head(w, size, size) != RLW_OK) return RLW_NO_MEMORY;
    if (size) memcpy(w->at, data, size);
    w->at += size;
    return RLW_OK;
}

static inline rlw_status rlw_msgpack_put_ext_head(rlw_writer *w, int8_t code, uint32_t size,
                                                  size_t more) {
    if (rlw_reserve(w, RLW_MSGPACK_HEAD_MOST + more) != RLW_OK) return RLW_NO_MEMORY;
    switch (size) {
    case 1: *w->at++ = 0xD4; break;
    case 2: *w->at++ = 0xD5; break;
    case 4: *w->at++ = 0xD6; break;
    case 8: *w->at++ = 0xD7; break;
    case 16: *w->at++ = 0xD8; break;
    default: w->at = rlw_msgpack_store_head(w->at, 0, 0, 0xC7, 0xC8, 0xC9, size);
    }
    *w->at++ = (uint8_t)code;
    return RLW_OK;
}

/* `nanoseconds` must be below 10**9. */
static inline rlw_status rlw_msgpack_put_timestamp(rlw_writer *w, int64_t seconds,
                                                   uint32_t nanoseconds) {
    uint32_t size = 12;
    if (seconds >= 0 && seconds < INT64_C(0x400000000))
        size = nanoseconds == 0 && seconds <= INT64_C(0xFFFFFFFF) ? 4 : 8;
    if (rlw_msgpack_put_ext_head(w, RLW_MSGPACK_TIMESTAMP, size, size) != RLW_OK)
        return RLW_NO_MEMORY;
    if (size == 4) {
        rlw_store_u32be(w->at, (uint32_t)seconds);
    } else if (size == 8) {
        rlw_store_u64be(w->at, (uint64_t)nanoseconds << 34 | (uint64_t)seconds);
    } else {
        rlw_store_u32be(w->at, nanoseconds);
        rlw_store_u64be(w->at + 4, (uint64_t)seconds);
    }
    w->at += size;
    return RLW_OK;
}

#endif
