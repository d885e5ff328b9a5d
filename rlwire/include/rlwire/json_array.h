/* Arrays of numbers in JSON: nested lists straight into typed memory and back.
 *
 *     rlw_json_shape shape;
 *     status = rlw_json_measure(&r, 32, 0, &shape);   at '[', which stays: dimensions and count
 *     ... room for shape.count numbers ...
 *     kind = RLW_INT64;
 *     status = rlw_json_fill(&r, &shape, RLW_JSON_ANY, &kind, room);
 */
#ifndef RLWIRE_JSON_ARRAY_H
#define RLWIRE_JSON_ARRAY_H

#include "json.h"
#include "number_list.h"

#define RLW_JSON_DIMS_MOST 32

typedef struct rlw_json_shape {
    unsigned dims;
    size_t count; /* of numbers: the product of the dimensions */
    int64_t shape[RLW_JSON_DIMS_MOST];
} rlw_json_shape;

typedef enum rlw_json_wanted {
    RLW_JSON_ANY,  /* eight bytes each: int64 or uint64 where all numbers are integers, or double */
    RLW_JSON_GIVEN /* the kind that the caller names */
} rlw_json_wanted;

/* ---- reading ---- */

static inline size_t rlw_json_count_commas(const uint8_t *p, size_t size) {
    size_t count = 0, i, block;
    while (size) { /* a byte counts up to 255: compilers make vectors of bytes of this */
        uint8_t some = 0;
        block = size < 240 ? size : 240;
        for (i = 0; i < block; i++) some = (uint8_t)(some + (p[i] == ','));
        count += some;
        p += block;
        size -= block;
    }
    return count;
}

/* The high bits of those of eight bytes that are zero, and of no others. */
static inline uint64_t rlw_json_zero_bytes(uint64_t word) {
    uint64_t low = ~RLW_JSON_EACH(0x80);
    return ~(((word & low) + low) | word | low);
}

/* The first ']' from `p` on, or NULL; *commas gets how many commas are before it. */
static inline const uint8_t *rlw_json_row_end(const uint8_t *p, const uint8_t *end,
                                              size_t *commas) {
    const uint8_t *stop;
    uint64_t sums = 0; /* of each byte of the words: few enough for a byte */
    unsigned i;
    *commas = 0;
    for (i = 0; i < 12 && end - p >= 8; i++, p += 8) { /* short rows: without calls */
        uint64_t word = rlw_load_u64le(p);
        uint64_t found = rlw_json_zero_bytes(word ^ RLW_JSON_EACH(']'));
        uint64_t is_comma = rlw_json_zero_bytes(word ^ RLW_JSON_EACH(',')) >> 7;
        if (found) {
            unsigned at = rlw_lowest_byte(found);
            sums += is_comma & ((UINT64_C(1) << (8 * at)) - 1);
            *commas = (size_t)(sums * RLW_JSON_EACH(1) >> 56);
            return p + at;
        }
        sums += is_comma;
    }
    *commas = (size_t)(sums * RLW_JSON_EACH(1) >> 56);
    stop = p < end ? (const uint8_t *)memchr(p, ']', (size_t)(end - p)) : NULL;
    if (stop) *commas += rlw_json_count_commas(p, (size_t)(stop - p));
    return stop;
}

static inline int rlw_json_begins_number(uint8_t byte) {
    return byte == '-' || (unsigned)(byte - '0') < 10;
}

/* Finds out the shape of the list at c->at, which stays. Only brackets and commas are looked at:
 * rlw_json_fill() checks the rest. RLW_BAD_RAGGED where lists of one level differ in length or
 * depth, RLW_BAD_NUMBER where a list begins with something else than numbers or `words`: true,
 * false. */
static inline rlw_status rlw_json_measure(rlw_json_reader *r, unsigned most_dims, int words,
                                          rlw_json_shape *s) {
    rlw_cursor c = r->c;
    int64_t counts[RLW_JSON_DIMS_MOST];
    unsigned level = 0, i;
    if (most_dims > RLW_JSON_DIMS_MOST) most_dims = RLW_JSON_DIMS_MOST;
    s->dims = 0; /* until the first row is found */
    s->count = 0;
    for (i = 0; i < RLW_JSON_DIMS_MOST; i++) s->shape[i] = -1;
    for (;;) {
        rlw_json_space(&c);
        if (c.at == c.end) return rlw_fail(&r->c, RLW_NEED_MORE, c.at, 1, 0);
        if (*c.at == '[' && (!s->dims || level < s->dims)) {
            if (level == most_dims)
                return rlw_fail(&r->c, RLW_OVER_DIMS, c.at, most_dims + 1u, most_dims);
            counts[level++] = 0;
            c.at++;
            continue;
        }
        if (!level) return rlw_fail(&r->c, RLW_BAD_JSON, c.at, *c.at, RLW_JSON_WANTS_VALUE);
        if (s->dims && level != s->dims) return rlw_fail(&r->c, RLW_BAD_RAGGED, c.at, 0, 0);
        if (*c.at != ']') { /* a row */
            const uint8_t *stop;
            size_t commas;
            if (*c.at == '[') return rlw_fail(&r->c, RLW_BAD_RAGGED, c.at, 0, 0);
            if (!rlw_json_begins_number(*c.at) && !(words && (*c.at == 't' || *c.at == 'f')) &&
                !rlw_json_begins_special(r, *c.at))
                return rlw_fail(&r->c, RLW_BAD_NUMBER, c.at, 0, 0);
            stop = rlw_json_row_end(c.at, c.end, &commas);
            if (!stop) return rlw_fail(&r->c, RLW_NEED_MORE, c.end, 1, 0);
            counts[level - 1] = 1 + (int64_t)commas;
            c.at = stop;
        }
        s->dims = level;
        for (;;) { /* at ']' */
            level--;
            if (s->shape[level] >= 0 && s->shape[level] != counts[level])
                return rlw_fail(&r->c, RLW_BAD_RAGGED, c.at, 0, 0);
            s->shape[level] = counts[level];
            c.at++;
            if (!level) {
                s->count = 1;
                for (i = 0; i < s->dims; i++) s->count *= (size_t)s->shape[i];
                return RLW_OK;
            }
            counts[level - 1]++;
            rlw_json_space(&c);
            if (c.at == c.end) return rlw_fail(&r->c, RLW_NEED_MORE, c.at, 1, 0);
            if (*c.at == ',') break;
            if (*c.at != ']')
                return rlw_fail(&r->c, RLW_BAD_JSON, c.at, *c.at, RLW_JSON_WANTS_COMMA);
        }
        c.at++;
        rlw_json_space(&c);
        if (c.at == c.end) return rlw_fail(&r->c, RLW_NEED_MORE, c.at, 1, 0);
        if (*c.at != '[') return rlw_fail(&r->c, RLW_BAD_RAGGED, c.at, 0, 0);
    }
}

static inline int64_t rlw_json_load_i64(const uint8_t *at) {
    int64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Makes doubles of `count` integers, in place. */
static inline void rlw_json_to_doubles(uint8_t *numbers, size_t count, rlw_number kind) {
    size_t i;
    for (i = 0; i < count; i++, numbers += 8) {
        int64_t integer = rlw_json_load_i64(numbers);
        double value = kind == RLW_INT64 ? (double)integer : (double)(uint64_t)integer;
        memcpy(numbers, &value, sizeof value);
    }
}

static inline int rlw_json_any_negative(const uint8_t *numbers, size_t count) {
    size_t i;
    for (i = 0; i < count; i++)
        if (rlw_json_load_i64(numbers + 8 * i) < 0) return 1;
    return 0;
}

/* One number into eight bytes, as the `index`th of `numbers`. *kind, of those before, changes to
 * one that fits all. */
static inline rlw_status rlw_json_fill_any(rlw_cursor *c, rlw_number *kind, uint8_t *numbers,
                                           size_t index) {
    rlw_decimal d;
    rlw_json_value v;
    uint8_t *to = numbers + 8 * index;
    const uint8_t *after = rlw_json_scan(c, &d);
    if (!after) return rlw_json_wrong_number(c);
    if (!d.whole) {
        v.real = rlw_decimal_double(&d);
        if (!rlw_json_is_finite(v.real)) return rlw_fail(c, RLW_BAD_RANGE, c->at, 0, 0);
        if (*kind != RLW_FLOAT64) rlw_json_to_doubles(numbers, index, *kind);
        *kind = RLW_FLOAT64;
        memcpy(to, &v.real, sizeof v.real);
    } else {
        rlw_json_integer(&d, c->at, after, &v);
        if (v.kind == RLW_JSON_BIG) return rlw_fail(c, RLW_BAD_RANGE, c->at, 0, 0);
        if (*kind == RLW_INT64 && v.kind == RLW_JSON_NATURAL) {
            if (rlw_json_any_negative(numbers, index)) {
                rlw_json_to_doubles(numbers, index, *kind);
                *kind = RLW_FLOAT64;
            } else {
                *kind = RLW_UINT64;
            }
        } else if (*kind == RLW_UINT64 && v.kind == RLW_JSON_INTEGER && v.integer < 0) {
            rlw_json_to_doubles(numbers, index, *kind);
            *kind = RLW_FLOAT64;
        }
        if (*kind == RLW_FLOAT64)
            v.real = v.kind == RLW_JSON_NATURAL ? (double)v.natural : (double)v.integer;
        if (*kind == RLW_FLOAT64) memcpy(to, &v.real, sizeof v.real);
        else memcpy(to, &v.integer, sizeof v.integer); /* of a uint64, the same bits */
    }
    c->at = after;
    return RLW_OK;
}

/* One number of a given kind. Reals are rounded; integers must be integers within their range. */
static inline rlw_status rlw_json_fill_given(rlw_cursor *c, rlw_number kind, uint8_t *to) {
    const uint8_t *at = c->at;
    if (kind >= RLW_FLOAT16) {
        rlw_decimal d;
        const uint8_t *after = rlw_json_scan(c, &d);
        double value;
        if (!after) return rlw_json_wrong_number(c);
        value = rlw_decimal_real(kind, &d);
        if (!rlw_json_is_finite(value) ||
            (kind == RLW_FLOAT16 && (value >= 65520 || value <= -65520))) /* the first infinite one */
            return rlw_fail(c, RLW_BAD_RANGE, at, 0, 0);
        rlw_store_real(kind, value, to);
        c->at = after;
    } else if (kind == RLW_BOOL) {
        rlw_status status;
        *to = *at == 't';
        if (*at != 't' && *at != 'f') return rlw_fail(c, RLW_BAD_WORD, at, 0, 0);
        status = *to ? rlw_json_word(c, "true", 4) : rlw_json_word(c, "false", 5);
        if (status != RLW_OK) return status;
    } else {
        rlw_decimal d;
        rlw_json_value v;
        const uint8_t *after = rlw_json_scan(c, &d);
        int fits;
        if (!after) return rlw_json_wrong_number(c);
        if (!d.whole) return rlw_fail(c, RLW_BAD_INTEGER, at, 0, 0);
        rlw_json_integer(&d, at, after, &v);
        fits = v.kind == RLW_JSON_INTEGER && v.integer < 0
                   ? v.integer >= rlw_number_least(kind)
                   : v.kind != RLW_JSON_BIG && v.natural <= rlw_number_most(kind);
        if (!fits) return rlw_fail(c, RLW_BAD_RANGE, at, 0, 0);
        c->at = after;
        rlw_store_integer(kind, (uint64_t)v.integer, to);
    }
    return RLW_OK;
}

/* What was no number may be a word for one, where words are asked for. */
static inline rlw_status rlw_json_fill_special(rlw_json_reader *r, rlw_json_wanted wanted,
                                               rlw_number *kind, uint8_t *numbers, size_t index) {
    double value;
    if ((wanted == RLW_JSON_GIVEN && *kind < RLW_FLOAT16) || !rlw_json_special_value(r, &value))
        return r->c.fault.status;
    if (wanted == RLW_JSON_ANY) {
        if (*kind != RLW_FLOAT64) rlw_json_to_doubles(numbers, index, *kind);
        *kind = RLW_FLOAT64;
    }
    rlw_store_real(*kind, value, numbers + index * rlw_number_size(*kind));
    return RLW_OK;
}

/* Reads the number at c->at, where space may stand before it, as the `index`th of `numbers`. */
static inline rlw_status rlw_json_fill_one(rlw_json_reader *r, rlw_json_wanted wanted,
                                           rlw_number *kind, uint8_t *numbers, size_t index) {
    rlw_cursor *c = &r->c;
    rlw_status status;
    if (c->at < c->end && *c->at <= ' ') rlw_json_space(c);
    if (c->at < c->end && rlw_json_begins_number(*c->at)) {
        status = wanted == RLW_JSON_ANY
                     ? rlw_json_fill_any(c, kind, numbers, index)
                     : rlw_json_fill_given(c, *kind, numbers + index * rlw_number_size(*kind));
    } else if (c->at < c->end && wanted == RLW_JSON_GIVEN && *kind == RLW_BOOL) {
        status = rlw_json_fill_given(c, *kind, numbers + index);
    } else if (c->at < c->end && *c->at == '[') {
        status = rlw_fail(c, RLW_BAD_RAGGED, c->at, 0, 0);
    } else {
        status = rlw_json_wrong(c, RLW_JSON_WANTS_VALUE);
    }
    if (status == RLW_OK || r->special == RLW_JSON_REFUSE) return status;
    return rlw_json_fill_special(r, wanted, kind, numbers, index);
}

/* Reads the list that rlw_json_measure() has measured, or, without dimensions, one number: into
 * `numbers`, row by row; c->at then follows it. With RLW_JSON_ANY *kind tells what they have
 * become. */
static inline rlw_status rlw_json_fill(rlw_json_reader *r, const rlw_json_shape *s,
                                       rlw_json_wanted wanted, rlw_number *kind, void *numbers) {
    rlw_cursor *c = &r->c;
    uint8_t *to = (uint8_t *)numbers;
    int64_t done[RLW_JSON_DIMS_MOST];
    size_t index = 0, row;
    unsigned level = 0;
    rlw_status status;
    if (wanted == RLW_JSON_ANY) *kind = s->count ? RLW_INT64 : RLW_FLOAT64;
    if (!s->count) return rlw_json_skip(r); /* only brackets, which have been counted */
    if (!s->dims) return rlw_json_fill_one(r, wanted, kind, to, 0);
    for (;;) {
        for (; level < s->dims; level++) {
            rlw_json_space(c);
            if (c->at == c->end || *c->at != '[') return rlw_json_wrong(c, RLW_JSON_WANTS_VALUE);
            c->at++;
            done[level] = 0;
        }
        for (row = (size_t)s->shape[level - 1]; row; row--, index++) {
            if ((status = rlw_json_fill_one(r, wanted, kind, to, index)) != RLW_OK) return status;
            if (c->at < c->end && *c->at <= ' ') rlw_json_space(c);
            if (c->at == c->end || *c->at != (row > 1 ? ',' : ']'))
                return rlw_json_wrong(c, RLW_JSON_WANTS_COMMA);
            c->at++;
        }
        for (;;) { /* a list of `level` has ended */
            if (!--level) return RLW_OK;
            rlw_json_space(c);
            if (c->at == c->end || *c->at != (++done[level - 1] < s->shape[level - 1] ? ',' : ']'))
                return rlw_json_wrong(c, RLW_JSON_WANTS_COMMA);
            if (*c->at++ == ',') break;
        }
    }
}

/* ---- writing ---- */

/* NaN or an infinity, 9 bytes; NULL where they are refused. */
static inline uint8_t *rlw_json_put_special(uint8_t *to, double value, rlw_json_special special) {
    static const char words[][10] = {"null", "NaN", "Infinity", "-Infinity"};
    static const uint8_t sizes[] = {4, 3, 8, 9};
    unsigned which = special == RLW_JSON_AS_NULL ? 0 : value != value ? 1 : value > 0 ? 2 : 3;
    if (special == RLW_JSON_REFUSE) return NULL;
    memcpy(to, words[which], sizes[which]);
    return to + sizes[which];
}

/* One number, RLW_JSON_NUMBER_ROOM bytes; NULL where it is refused. */
static inline uint8_t *rlw_json_put_number(uint8_t *to, rlw_number kind, const uint8_t *at,
                                           rlw_json_special special) {
    double value;
    uint8_t rounded = 1;
    if (kind == RLW_FLOAT64) {
        memcpy(&value, at, sizeof value);
        if (rlw_json_is_finite(value)) return rlw_json_put_double(to, value, &rounded);
    } else if (kind == RLW_FLOAT32) {
        float single;
        memcpy(&single, at, sizeof single);
        value = (double)single;
        if (rlw_json_is_finite(value)) return rlw_json_put_float(to, single);
    } else if (kind == RLW_FLOAT16) {
        uint16_t half;
        memcpy(&half, at, sizeof half);
        value = rlw_half_to_double(half);
        if (rlw_json_is_finite(value)) {
            to = rlw_put_half(to, half);
            return (double)(int32_t)value == value ? rlw_json_point(to) : to;
        }
    } else {
        return rlw_put_number(to, kind, at, -1, 0);
    }
    return rlw_json_put_special(to, value, special);
}

#define RLW_JSON_AT_ONCE 32 /* numbers of a row that room is made for at once */

/* A loop for each kind, so that the kind is asked once. */
#define RLW_JSON_EACH_NUMBER(type, put) \
    for (; count; count--, at += step) { \
        type value; \
        memcpy(&value, at, sizeof value); \
        to = put; \
        *to++ = ','; \
    } \
    break

/* `count` numbers that lie `step` bytes apart, a comma after each; (RLW_JSON_NUMBER_ROOM + 1) bytes
 * for each. Stops before one that is refused: *left tells how many are not written. */
static inline uint8_t *rlw_json_put_row(uint8_t *to, rlw_number kind, const uint8_t *at,
                                        size_t count, int64_t step, rlw_json_special special,
                                        size_t *left) {
    size_t rest;
    switch (kind) {
    case RLW_INT8: RLW_JSON_EACH_NUMBER(int8_t, rlw_put_i64(to, value));
    case RLW_INT16: RLW_JSON_EACH_NUMBER(int16_t, rlw_put_i64(to, value));
    case RLW_INT32: RLW_JSON_EACH_NUMBER(int32_t, rlw_put_i64(to, value));
    case RLW_INT64: RLW_JSON_EACH_NUMBER(int64_t, rlw_put_i64(to, value));
    case RLW_UINT8: RLW_JSON_EACH_NUMBER(uint8_t, rlw_put_below_1000(to, value));
    case RLW_UINT16: RLW_JSON_EACH_NUMBER(uint16_t, rlw_put_u64(to, value));
    case RLW_UINT32: RLW_JSON_EACH_NUMBER(uint32_t, rlw_put_u64(to, value));
    case RLW_UINT64: RLW_JSON_EACH_NUMBER(uint64_t, rlw_put_u64(to, value));
    case RLW_FLOAT32:
    case RLW_FLOAT64:
        rest = count;
        to = kind == RLW_FLOAT32 ? rlw_put_float_row(to, at, count, step, &rest)
                                 : rlw_put_double_row(to, at, count, step, &rest);
        at += (int64_t)(count - rest) * step;
        count = rest;
        break;
    default: break;
    }
    for (; count; count--, at += step) { /* others, and from one that may be refused on */
        uint8_t *after = rlw_json_put_number(to, kind, at, special);
        if (!after) break;
        *after = ',';
        to = after + 1;
    }
    *left = count;
    return to;
}

#undef RLW_JSON_EACH_NUMBER

/* Numbers of an array of any layout, as nested lists; without dimensions, one number. `strides`
 * are bytes. Of RLW_NOT_FINITE, *at is the row-major index of the number refused. */
static inline rlw_status rlw_json_put_array(rlw_writer *w, rlw_number kind, const void *data,
                                            unsigned dims, const int64_t *shape,
                                            const int64_t *strides, rlw_json_special special,
                                            size_t *at) {
    const uint8_t *p = (const uint8_t *)data;
    int64_t done[RLW_JSON_DIMS_MOST], i, inner, step;
    unsigned level = 0;
    *at = 0;
    if (!dims) {
        uint8_t *after;
        if (rlw_reserve(w, RLW_JSON_NUMBER_ROOM) != RLW_OK) return RLW_NO_MEMORY;
        after = rlw_json_put_number(w->at, kind, p, special);
        if (!after) return RLW_NOT_FINITE;
        w->at = after;
        return RLW_OK;
    }
    inner = shape[dims - 1];
    step = strides[dims - 1];
    for (;;) {
        int64_t some = inner < RLW_JSON_AT_ONCE ? inner : RLW_JSON_AT_ONCE;
        if (rlw_reserve(w, 2 * dims + 2 + (size_t)some * (RLW_JSON_NUMBER_ROOM + 1)) != RLW_OK)
            return RLW_NO_MEMORY;
        for (; level < dims; level++) {
            *w->at++ = '[';
            done[level] = 0;
            if (!shape[level]) { /* its lists are not there at all */
                level++;
                break;
            }
        }
        if (level == dims && inner) {
            for (i = 0;;) {
                size_t left = 0;
                w->at = rlw_json_put_row(w->at, kind, p + i * step, (size_t)some, step, special,
                                         &left);
                *at += (size_t)some - left;
                if (left) return RLW_NOT_FINITE;
                i += some;
                if (i == inner) break;
                some = inner - i < RLW_JSON_AT_ONCE ? inner - i : RLW_JSON_AT_ONCE;
                if (rlw_reserve(w, 2 * dims + 2 + (size_t)some * (RLW_JSON_NUMBER_ROOM + 1)) !=
                    RLW_OK)
                    return RLW_NO_MEMORY;
            }
            w->at--; /* the last comma */
        }
        for (;;) { /* there is room for two bytes of each level */
            *w->at++ = ']';
            if (!--level) return RLW_OK;
            p += strides[level - 1];
            if (++done[level - 1] < shape[level - 1]) {
                *w->at++ = ',';
                break;
            }
            p -= strides[level - 1] * shape[level - 1];
        }
    }
}

#endif
