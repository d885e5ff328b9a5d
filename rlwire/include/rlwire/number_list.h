/* Lists of numbers as text, "0.54,-1,1e-05", from arrays and back. */
#ifndef RLWIRE_NUMBER_LIST_H
#define RLWIRE_NUMBER_LIST_H

#include "cursor.h"
#include "numbers.h"
#include "writer.h"

typedef enum rlw_number {
    RLW_BOOL, /* a byte; "true" or "false" */
    RLW_INT8,
    RLW_INT16,
    RLW_INT32,
    RLW_INT64,
    RLW_UINT8,
    RLW_UINT16,
    RLW_UINT32,
    RLW_UINT64,
    RLW_FLOAT16,
    RLW_FLOAT32,
    RLW_FLOAT64
} rlw_number;

#define RLW_NUMBER_LOAD(type, name) \
    type name; \
    memcpy(&name, at, sizeof name)

/* One number; RLW_FIXED_ROOM bytes. `decimals` below 0: the shortest text that reads back. */
static inline uint8_t *rlw_put_number(uint8_t *to, rlw_number kind, const void *at, int decimals,
                                      int trim) {
    switch (kind) {
    case RLW_BOOL: {
        RLW_NUMBER_LOAD(uint8_t, value);
        memcpy(to, value ? "true" : "false", 5);
        return to + (value ? 4 : 5);
    }
    case RLW_INT8: { RLW_NUMBER_LOAD(int8_t, value); return rlw_put_i64(to, value); }
    case RLW_INT16: { RLW_NUMBER_LOAD(int16_t, value); return rlw_put_i64(to, value); }
    case RLW_INT32: { RLW_NUMBER_LOAD(int32_t, value); return rlw_put_i64(to, value); }
    case RLW_INT64: { RLW_NUMBER_LOAD(int64_t, value); return rlw_put_i64(to, value); }
    case RLW_UINT8: { RLW_NUMBER_LOAD(uint8_t, value); return rlw_put_u64(to, value); }
    case RLW_UINT16: { RLW_NUMBER_LOAD(uint16_t, value); return rlw_put_u64(to, value); }
    case RLW_UINT32: { RLW_NUMBER_LOAD(uint32_t, value); return rlw_put_u64(to, value); }
    case RLW_UINT64: { RLW_NUMBER_LOAD(uint64_t, value); return rlw_put_u64(to, value); }
    case RLW_FLOAT16: {
        RLW_NUMBER_LOAD(uint16_t, value);
        if (decimals < 0) return rlw_put_half(to, value);
        return rlw_put_fixed(to, rlw_half_to_double(value), (unsigned)decimals, trim);
    }
    case RLW_FLOAT32: {
        RLW_NUMBER_LOAD(float, value);
        if (decimals < 0) return rlw_put_float(to, value);
        return rlw_put_fixed(to, value, (unsigned)decimals, trim);
    }
    case RLW_FLOAT64: {
        RLW_NUMBER_LOAD(double, value);
        if (decimals < 0) return rlw_put_double(to, value);
        return rlw_put_fixed(to, value, (unsigned)decimals, trim);
    }
    }
    return to;
}

#undef RLW_NUMBER_LOAD

/* Bytes of one number in memory. */
static inline size_t rlw_number_size(rlw_number kind) {
    static const uint8_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8};
    return sizes[kind];
}

/* `count` numbers with commas between them. */
static inline rlw_status rlw_put_numbers(rlw_writer *w, rlw_number kind, const void *values,
                                         size_t count, int decimals, int trim) {
    const uint8_t *at = (const uint8_t *)values;
    size_t size = rlw_number_size(kind), i;
    for (i = 0; i < count; i++, at += size) {
        if (rlw_reserve(w, RLW_FIXED_ROOM + 1) != RLW_OK) return RLW_NO_MEMORY;
        *w->at = ',';
        w->at = rlw_put_number(w->at + (i != 0), kind, at, decimals, trim);
    }
    return RLW_OK;
}

/* How many numbers a text that is not empty has. */
static inline size_t rlw_count_numbers(const uint8_t *text, size_t size) {
    size_t count = size != 0, i;
    for (i = 0; i < size; i++) count += text[i] == ',';
    return count;
}

/* Reads one number, which ends at `end` or at a comma; NULL if it is none. A half is the nearest
 * one to the nearest double, as NumPy makes it. */
static inline const uint8_t *rlw_read_number(const uint8_t *p, const uint8_t *end,
                                             rlw_number kind, void *out) {
    static const int64_t least[] = {INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN};
    static const int64_t most[] = {INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX};
    static const uint64_t most_unsigned[] = {UINT8_MAX, UINT16_MAX, UINT32_MAX, UINT64_MAX};
    switch (kind) {
    case RLW_FLOAT64: {
        double value = 0;
        p = rlw_parse_double(p, end, RLW_GRAMMAR_FLOAT, &value);
        memcpy(out, &value, 8);
        break;
    }
    case RLW_FLOAT32: {
        float value = 0;
        p = rlw_parse_float(p, end, RLW_GRAMMAR_FLOAT, &value);
        memcpy(out, &value, 4);
        break;
    }
    case RLW_FLOAT16: {
        double value = 0;
        uint16_t half;
        p = rlw_parse_double(p, end, RLW_GRAMMAR_FLOAT, &value);
        half = rlw_double_to_half(value);
        memcpy(out, &half, 2);
        break;
    }
    case RLW_INT8:
    case RLW_INT16:
    case RLW_INT32:
    case RLW_INT64: {
        int64_t value = 0;
        p = rlw_parse_i64(p, end, least[kind - RLW_INT8], most[kind - RLW_INT8], &value);
        if (kind == RLW_INT8) { int8_t v = (int8_t)value; memcpy(out, &v, 1); }
        if (kind == RLW_INT16) { int16_t v = (int16_t)value; memcpy(out, &v, 2); }
        if (kind == RLW_INT32) { int32_t v = (int32_t)value; memcpy(out, &v, 4); }
        if (kind == RLW_INT64) memcpy(out, &value, 8);
        break;
    }
    case RLW_UINT8:
    case RLW_UINT16:
    case RLW_UINT32:
    case RLW_UINT64: {
        uint64_t value = 0, largest = most_unsigned[kind - RLW_UINT8];
        if (p < end && *p == '-') largest = 0;
        if (p < end && (*p == '-' || *p == '+')) p++;
        p = rlw_parse_u64(p, end, largest, &value);
        if (kind == RLW_UINT8) { uint8_t v = (uint8_t)value; memcpy(out, &v, 1); }
        if (kind == RLW_UINT16) { uint16_t v = (uint16_t)value; memcpy(out, &v, 2); }
        if (kind == RLW_UINT32) { uint32_t v = (uint32_t)value; memcpy(out, &v, 4); }
        if (kind == RLW_UINT64) memcpy(out, &value, 8);
        break;
    }
    case RLW_BOOL: {
        uint8_t value = end - p >= 4 && memcmp(p, "true", 4) == 0;
        if (!value && !(end - p >= 5 && memcmp(p, "false", 5) == 0)) return NULL;
        memcpy(out, &value, 1);
        p += value ? 4 : 5;
        break;
    }
    }
    return p && (p == end || *p == ',') ? p : NULL;
}

/* Reads exactly `count` numbers up to the end; c->at is then there. */
static inline rlw_status rlw_read_numbers(rlw_cursor *c, rlw_number kind, void *values,
                                          size_t count) {
    uint8_t *out = (uint8_t *)values;
    size_t size = rlw_number_size(kind), i;
    for (i = 0; i < count; i++, out += size) {
        const uint8_t *after = rlw_read_number(c->at, c->end, kind, out);
        if (!after)
            return rlw_fail(c, kind < RLW_FLOAT16 ? RLW_BAD_INTEGER : RLW_BAD_NUMBER, c->at, 0, 0);
        if (i + 1 < count && after == c->end) return rlw_fail(c, RLW_NEED_MORE, after, 1, 0);
        c->at = after + (i + 1 < count);
    }
    if (c->at < c->end) return rlw_fail(c, RLW_TRAILING, c->at, rlw_left(c), 0);
    return RLW_OK;
}

#endif
