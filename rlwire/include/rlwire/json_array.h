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
    size_t count = 0, i;
    for (i = 0; i < size; i++) count += p[i] == ',';
    return count;
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
            if (*c.at == '[') return rlw_fail(&r->c, RLW_BAD_RAGGED, c.at, 0, 0);
            if (!rlw_json_begins_number(*c.at) && !(words && (*c.at == 't' || *c.at == 'f')))
                return rlw_fail(&r->c, RLW_BAD_NUMBER, c.at, 0, 0);
            stop = (const uint8_t *)memchr(c.at, ']', rlw_left(&c));
            if (!stop) return rlw_fail(&r->c, RLW_NEED_MORE, c.end, 1, 0);
            counts[level - 1] = 1 + (int64_t)rlw_json_count_commas(c.at, (size_t)(stop - c.at));
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
    const uint8_t *after = rlw_scan_decimal(c->at, c->end, RLW_GRAMMAR_JSON, &d);
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
    static const int64_t least[] = {INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN};
    static const int64_t most[] = {INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX};
    static const uint64_t most_natural[] = {UINT8_MAX, UINT16_MAX, UINT32_MAX, UINT64_MAX};
    const uint8_t *at = c->at;
    if (kind >= RLW_FLOAT16) {
        rlw_decimal d;
        const uint8_t *after = rlw_scan_decimal(at, c->end, RLW_GRAMMAR_JSON, &d);
        double value;
        if (!after) return rlw_json_wrong_number(c);
        if (kind == RLW_FLOAT32) {
            float single = rlw_decimal_float(&d);
            value = (double)single;
            memcpy(to, &single, sizeof single);
        } else {
            value = rlw_decimal_double(&d);
            if (kind == RLW_FLOAT64) {
                memcpy(to, &value, sizeof value);
            } else {
                uint16_t half = rlw_double_to_half(value);
                if ((half & 0x7FFF) == 0x7C00) return rlw_fail(c, RLW_BAD_RANGE, at, 0, 0);
                memcpy(to, &half, sizeof half);
            }
        }
        if (!rlw_json_is_finite(value)) return rlw_fail(c, RLW_BAD_RANGE, at, 0, 0);
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
        const uint8_t *after = rlw_scan_decimal(at, c->end, RLW_GRAMMAR_JSON, &d);
        int fits;
        if (!after) return rlw_json_wrong_number(c);
        if (!d.whole) return rlw_fail(c, RLW_BAD_INTEGER, at, 0, 0);
        rlw_json_integer(&d, at, after, &v);
        if (kind <= RLW_INT64) {
            fits = v.kind == RLW_JSON_INTEGER && v.integer >= least[kind - RLW_INT8] &&
                   v.integer <= most[kind - RLW_INT8];
        } else {
            fits = v.kind != RLW_JSON_BIG && (v.kind == RLW_JSON_NATURAL || v.integer >= 0) &&
                   v.natural <= most_natural[kind - RLW_UINT8];
        }
        if (!fits) return rlw_fail(c, RLW_BAD_RANGE, at, 0, 0);
        c->at = after;
        switch (rlw_number_size(kind)) { /* two's complement: the low bytes are the value's */
        case 1: { uint8_t value = (uint8_t)v.integer; memcpy(to, &value, 1); break; }
        case 2: { uint16_t value = (uint16_t)v.integer; memcpy(to, &value, 2); break; }
        case 4: { uint32_t value = (uint32_t)v.integer; memcpy(to, &value, 4); break; }
        default: memcpy(to, &v.integer, 8);
        }
    }
    return RLW_OK;
}

/* Reads the list that rlw_json_measure() has measured: its numbers into `numbers`, row by row;
 * c->at then follows it. With RLW_JSON_ANY *kind tells what they have become. */
static inline rlw_status rlw_json_fill(rlw_json_reader *r, const rlw_json_shape *s,
                                       rlw_json_wanted wanted, rlw_number *kind, void *numbers) {
    rlw_cursor *c = &r->c;
    uint8_t *to = (uint8_t *)numbers;
    int64_t done[RLW_JSON_DIMS_MOST];
    size_t size, index = 0, row;
    unsigned level = 0;
    rlw_status status;
    if (wanted == RLW_JSON_ANY) *kind = s->count ? RLW_INT64 : RLW_FLOAT64;
    size = rlw_number_size(*kind);
    if (!s->count) return rlw_json_skip(r); /* only brackets, which have been counted */
    for (;;) {
        for (; level < s->dims; level++) {
            rlw_json_space(c);
            if (c->at == c->end || *c->at != '[') return rlw_json_wrong(c, RLW_JSON_WANTS_VALUE);
            c->at++;
            done[level] = 0;
        }
        for (row = (size_t)s->shape[level - 1]; row; row--, index++) {
            if (c->at < c->end && *c->at <= ' ') rlw_json_space(c);
            if (c->at == c->end) return rlw_json_wrong(c, RLW_JSON_WANTS_VALUE);
            if (wanted == RLW_JSON_ANY) {
                if (!rlw_json_begins_number(*c->at))
                    return rlw_json_wrong(c, RLW_JSON_WANTS_VALUE);
                status = rlw_json_fill_any(c, kind, to, index);
            } else {
                if (*kind != RLW_BOOL && !rlw_json_begins_number(*c->at))
                    return rlw_json_wrong(c, RLW_JSON_WANTS_VALUE);
                status = rlw_json_fill_given(c, *kind, to + size * index);
            }
            if (status != RLW_OK) return status;
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

typedef enum rlw_json_special {
    RLW_JSON_REFUSE, /* RLW_NOT_FINITE for NaN and the infinities, which JSON does not have */
    RLW_JSON_AS_NULL,
    RLW_JSON_AS_WORDS /* NaN, Infinity, -Infinity, as Python and JavaScript call them */
} rlw_json_special;

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
    if (kind == RLW_FLOAT64) {
        memcpy(&value, at, sizeof value);
        if (rlw_json_is_finite(value)) return rlw_json_put_double(to, value);
    } else if (kind == RLW_FLOAT32) {
        float single;
        memcpy(&single, at, sizeof single);
        value = (double)single;
        if (rlw_json_is_finite(value)) return rlw_json_put_float(to, single);
    } else if (kind == RLW_FLOAT16) {
        uint16_t half;
        memcpy(&half, at, sizeof half);
        value = rlw_half_to_double(half);
        if (rlw_json_is_finite(value)) return rlw_json_point(rlw_put_half(to, half), value);
    } else {
        return rlw_put_number(to, kind, at, -1, 0);
    }
    return rlw_json_put_special(to, value, special);
}

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
        if (rlw_reserve(w, dims + 2u) != RLW_OK) return RLW_NO_MEMORY;
        for (; level < dims; level++) {
            *w->at++ = '[';
            done[level] = 0;
            if (!shape[level]) { /* its lists are not there at all */
                level++;
                break;
            }
        }
        if (level == dims) {
            const uint8_t *number = p;
            for (i = 0; i < inner; i++, number += step, ++*at) {
                uint8_t *after;
                if (rlw_reserve(w, RLW_JSON_NUMBER_ROOM + 1) != RLW_OK) return RLW_NO_MEMORY;
                after = rlw_json_put_number(w->at, kind, number, special);
                if (!after) return RLW_NOT_FINITE;
                *after++ = ',';
                w->at = after;
            }
            if (inner) w->at--; /* the last comma */
        }
        for (;;) {
            if (rlw_reserve(w, 2) != RLW_OK) return RLW_NO_MEMORY;
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
