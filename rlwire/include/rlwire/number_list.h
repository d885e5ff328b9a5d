/* Arrays of numbers to text such as "0.54,-1,1e-05" and back. */
#ifndef RLWIRE_NUMBER_LIST_H
#define RLWIRE_NUMBER_LIST_H

#include "cursor.h"
#include "numbers.h"
#include "writer.h"

typedef enum rlw_number {
    /* RLW_BOOL: a byte; "true" or "false" */
    RLW_BOOL, RLW_INT8, RLW_INT16, RLW_INT32, RLW_INT64, RLW_UINT8, RLW_UINT16, RLW_UINT32,
    RLW_UINT64, RLW_FLOAT32, RLW_FLOAT64
} rlw_number;

#define RLW_NUMBER_LOAD(type, name) \
    type name; \
    memcpy(&name, at, sizeof name)

/* Writes a number in RLW_FIXED_ROOM bytes; `decimals` < 0: the shortest text that reads back. */
static inline uint8_t *rlw_put_number(uint8_t *to, rlw_number kind, const void *at, int decimals) {
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
    case RLW_FLOAT32: {
        RLW_NUMBER_LOAD(float, value);
        if (decimals < 0) return rlw_put_float(to, value);
        return rlw_put_fixed(to, value, (unsigned)decimals);
    }
    case RLW_FLOAT64: {
        RLW_NUMBER_LOAD(double, value);
        if (decimals < 0) return rlw_put_double(to, value);
        return rlw_put_fixed(to, value, (unsigned)decimals);
    }
    }
    return to;
}

#undef RLW_NUMBER_LOAD

/* Returns the bytes of one number in memory. */
static inline size_t rlw_number_size(rlw_number kind) {
    static const uint8_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8};
    return sizes[kind];
}

/* The range of an integer kind. */
static inline uint64_t rlw_number_most(rlw_number kind) {
    return UINT64_MAX >> (64 - 8 * rlw_number_size(kind) + (kind <= RLW_INT64));
}

static inline int64_t rlw_number_least(rlw_number kind) {
    return kind <= RLW_INT64 ? -(int64_t)rlw_number_most(kind) - 1 : 0;
}

/* Stores an integer of this kind, given its two's complement. */
static inline void rlw_store_integer(rlw_number kind, uint64_t bits, void *out) {
    switch (rlw_number_size(kind)) {
    case 1: { uint8_t value = (uint8_t)bits; memcpy(out, &value, 1); break; }
    case 2: { uint16_t value = (uint16_t)bits; memcpy(out, &value, 2); break; }
    case 4: { uint32_t value = (uint32_t)bits; memcpy(out, &value, 4); break; }
    default: memcpy(out, &bits, 8);
    }
}

/* Writes `count` numbers with commas between them. */
static inline rlw_status rlw_put_numbers(rlw_writer *w, rlw_number kind, const void *values,
                                         size_t count, int decimals) {
    const uint8_t *at = (const uint8_t *)values;
    size_t size = rlw_number_size(kind), i;
    for (i = 0; i < count; i++, at += size) {
        if (rlw_reserve(w, RLW_FIXED_ROOM + 1) != RLW_OK) return RLW_NO_MEMORY;
        *w->at = ',';
        w->at = rlw_put_number(w->at + (i != 0), kind, at, decimals);
    }
    return RLW_OK;
}

/* Returns how many numbers a text has: one more than commas, 0 if it is empty. */
static inline size_t rlw_count_numbers(const uint8_t *text, size_t size) {
    size_t count = size != 0, i;
    for (i = 0; i < size; i++) count += text[i] == ',';
    return count;
}

/* Reads one number, which must end at `end` or a comma. Returns the position after it, or NULL. */
static inline const uint8_t *rlw_read_number(const uint8_t *p, const uint8_t *end,
                                             rlw_number kind, void *out) {
    switch (kind) {
    case RLW_FLOAT32: {
        rlw_decimal d;
        float value = 0;
        p = rlw_scan_decimal(p, end, &d);
        if (p) value = rlw_decimal_float(&d);
        memcpy(out, &value, sizeof value);
        break;
    }
    case RLW_FLOAT64: {
        double value = 0;
        p = rlw_parse_double(p, end, &value);
        memcpy(out, &value, sizeof value);
        break;
    }
    case RLW_INT8:
    case RLW_INT16:
    case RLW_INT32:
    case RLW_INT64: {
        int64_t value = 0;
        p = rlw_parse_i64(p, end, rlw_number_least(kind), (int64_t)rlw_number_most(kind), &value);
        rlw_store_integer(kind, (uint64_t)value, out);
        break;
    }
    case RLW_UINT8:
    case RLW_UINT16:
    case RLW_UINT32:
    case RLW_UINT64: {
        uint64_t value = 0, largest = rlw_number_most(kind);
        if (p < end && *p == '-') largest = 0;
        if (p < end && (*p == '-' || *p == '+')) p++;
        p = rlw_parse_u64(p, end, largest, &value);
        rlw_store_integer(kind, value, out);
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

/* Reads exactly `count` numbers, the last of which must end at c->end. */
static inline rlw_status rlw_read_numbers(rlw_cursor *c, rlw_number kind, void *values,
                                          size_t count) {
    uint8_t *out = (uint8_t *)values;
    size_t size = rlw_number_size(kind), i;
    for (i = 0; i < count; i++, out += size) {
        const uint8_t *after = rlw_read_number(c->at, c->end, kind, out);
        if (!after)
            return rlw_fail(c, kind < RLW_FLOAT32 ? RLW_BAD_INTEGER : RLW_BAD_NUMBER, c->at, 0, 0);
        if (i + 1 < count && after == c->end) return rlw_fail(c, RLW_NEED_MORE, after, 1, 0);
        c->at = after + (i + 1 < count);
    }
    if (c->at < c->end) return rlw_fail(c, RLW_TRAILING, c->at, rlw_left(c), 0);
    return RLW_OK;
}

#endif
