/* Numbers to decimal text and back: exact, rounded to nearest, and the same in every locale.
 *
 * Programs that use this header also compile numbers.cpp, which has what needs C++17's <charconv>:
 *
 *     c++ -std=c++17 -O2 -I FOLDER -c FOLDER/rlwire/numbers.cpp
 */
#ifndef RLWIRE_NUMBERS_H
#define RLWIRE_NUMBERS_H

#include <float.h>
#include <stddef.h>

#include "endian.h"

/* ---- numbers.cpp ---- */

#ifdef __cplusplus
extern "C" {
#endif
/* Returns the number nearest to `text`: digits with a point or an exponent, without a sign.
 * Infinity if it is too large. */
double rlw_digits_to_double(const uint8_t *text, size_t size);
float rlw_digits_to_float(const uint8_t *text, size_t size);
/* Writes the shortest digits that read back as the same finite number, not below 0. From 0.0001 to
 * below 1e16 they have no exponent. `to` has RLW_SHORTEST_ROOM bytes. Returns the bytes written. */
size_t rlw_double_to_digits(uint8_t *to, double value);
size_t rlw_float_to_digits(uint8_t *to, float value);
/* Writes a finite number like printf's "%.*f"; returns the bytes written. */
size_t rlw_double_to_fixed(uint8_t *to, size_t room, double value, int decimals);
#ifdef __cplusplus
}
#endif

#define RLW_SHORTEST_ROOM 40  /* bytes of room for a number's shortest text, which has up to 25 */
#define RLW_DECIMALS_MOST 100 /* most decimals of rlw_put_fixed */
#define RLW_FIXED_ROOM (1 + 309 + 1 + RLW_DECIMALS_MOST)

/* ---- from text ---- */

typedef struct rlw_decimal {
    const uint8_t *digits; /* after the sign; they have a point or an exponent, or neither */
    size_t size;           /* bytes from `digits` to the number's end */
    uint8_t negative;
    uint8_t infinite; /* inf or infinity */
    uint8_t nan;
} rlw_decimal;

static inline const uint8_t *rlw_scan_digits(const uint8_t *p, const uint8_t *end) {
    while (p < end && (unsigned)(*p - '0') < 10) p++;
    return p;
}

/* Compares `p` with `word`, which is in lower case, ignoring the case of `p`. */
static inline int rlw_same_word(const uint8_t *p, const char *word, size_t size) {
    size_t i;
    for (i = 0; i < size; i++)
        if ((p[i] | 0x20) != (uint8_t)word[i]) return 0;
    return 1;
}

static inline const uint8_t *rlw_scan_special(const uint8_t *p, const uint8_t *end,
                                              rlw_decimal *d) {
    size_t left = (size_t)(end - p);
    if (left >= 8 && rlw_same_word(p, "infinity", 8)) {
        d->infinite = 1;
        return p + 8;
    }
    if (left >= 3 && rlw_same_word(p, "inf", 3)) {
        d->infinite = 1;
        return p + 3;
    }
    if (left >= 3 && rlw_same_word(p, "nan", 3)) {
        d->nan = 1;
        return p + 3;
    }
    return NULL;
}

/* Reads the longest number at `p` that Python's float() accepts, without spaces and underscores.
 * Returns the byte after it, or NULL if there is none. */
static inline const uint8_t *rlw_scan_decimal(const uint8_t *p, const uint8_t *end,
                                              rlw_decimal *d) {
    const uint8_t *first, *last;
    d->negative = p < end && *p == '-';
    d->infinite = d->nan = 0;
    if (p < end && (*p == '-' || *p == '+')) p++;
    d->digits = first = p;
    last = rlw_scan_digits(p, end);
    if (last < end && *last == '.') {
        const uint8_t *point = last;
        last = rlw_scan_digits(point + 1, end);
        if (last - first == 1) return NULL;
    } else if (last == first) {
        d->size = 0;
        return rlw_scan_special(first, end, d);
    }
    if (last < end && (*last | 0x20) == 'e') {
        p = last + 1;
        if (p < end && (*p == '-' || *p == '+')) p++;
        if (rlw_scan_digits(p, end) > p) last = rlw_scan_digits(p, end);
    }
    d->size = (size_t)(last - first);
    return last;
}

/* Returns the double nearest to the decimal. */
static inline double rlw_decimal_double(const rlw_decimal *d) {
    double value;
    if (d->nan | d->infinite)
        value = rlw_bits_double(d->nan ? UINT64_C(0x7FF8) << 48 : UINT64_C(0x7FF) << 52);
    else
        value = rlw_digits_to_double(d->digits, d->size);
    return d->negative ? -value : value;
}

/* Returns the float nearest to the decimal. */
static inline float rlw_decimal_float(const rlw_decimal *d) {
    float value;
    if (d->nan | d->infinite) return (float)rlw_decimal_double(d);
    value = rlw_digits_to_float(d->digits, d->size);
    return d->negative ? -value : value;
}

/* Reads one double; returns the byte after it, or NULL if there is none. */
static inline const uint8_t *rlw_parse_double(const uint8_t *p, const uint8_t *end, double *out) {
    rlw_decimal d;
    p = rlw_scan_decimal(p, end, &d);
    if (p) *out = rlw_decimal_double(&d);
    return p;
}

/* Reads a run of digits; returns NULL if there is none or the value exceeds `most`. */
static inline const uint8_t *rlw_parse_u64(const uint8_t *p, const uint8_t *end, uint64_t most,
                                           uint64_t *out) {
    const uint8_t *after = rlw_scan_digits(p, end);
    uint64_t value = 0;
    if (after == p) return NULL;
    for (; p < after; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (value > UINT64_MAX / 10 || 10 * value > UINT64_MAX - digit) return NULL;
        value = 10 * value + digit;
    }
    if (value > most) return NULL;
    *out = value;
    return p;
}

/* Reads an optional sign and digits; returns NULL if the value is outside least..most. */
static inline const uint8_t *rlw_parse_i64(const uint8_t *p, const uint8_t *end, int64_t least,
                                           int64_t most, int64_t *out) {
    uint64_t value;
    int negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) p++;
    p = rlw_parse_u64(p, end, (uint64_t)INT64_MAX + (negative ? 1u : 0u), &value);
    if (!p) return NULL;
    if (negative) value = UINT64_C(0) - value;
    memcpy(out, &value, sizeof value);
    return *out < least || *out > most ? NULL : p;
}

/* ---- to text: `to` must have room; functions return the byte after the text ---- */

static inline uint8_t *rlw_put_u64(uint8_t *to, uint64_t value) { /* 20 bytes */
    uint8_t digits[20], *first = digits + sizeof digits;
    do {
        *--first = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value);
    memcpy(to, first, (size_t)(digits + sizeof digits - first));
    return to + (digits + sizeof digits - first);
}

static inline uint8_t *rlw_put_i64(uint8_t *to, int64_t value) { /* 20 bytes */
    uint64_t bits = (uint64_t)value;
    *to = '-';
    return rlw_put_u64(to + (value < 0), value < 0 ? UINT64_C(0) - bits : bits);
}

/* Removes trailing zeros of a text with a point, and the point if nothing follows it. */
static inline uint8_t *rlw_trim(uint8_t *end) {
    while (end[-1] == '0') end--;
    return end[-1] == '.' ? end - 1 : end;
}

static inline uint8_t *rlw_put_special(uint8_t *to, uint64_t bits) {
    if (bits << 12) {
        memcpy(to, "nan", 3);
        return to + 3;
    }
    *to = '-';
    to += bits >> 63;
    memcpy(to, "inf", 3);
    return to + 3;
}

/* Writes what "%.*f" prints (the exact binary value, half to even) without trailing zeros; also
 * "nan", "inf" and "-inf". At most RLW_DECIMALS_MOST decimals and RLW_FIXED_ROOM bytes. */
static inline uint8_t *rlw_put_fixed(uint8_t *to, double value, unsigned decimals) {
    size_t size;
    if (!(value >= -DBL_MAX && value <= DBL_MAX))
        return rlw_put_special(to, rlw_double_bits(value));
    size = rlw_double_to_fixed(to, RLW_FIXED_ROOM, value, (int)decimals);
    return decimals ? rlw_trim(to + size) : to + size;
}

/* Writes the shortest text that reads back as the same number, like Python's repr() without the
 * ".0" of whole numbers. From 1e-4 to 1e16 it has no exponent. RLW_SHORTEST_ROOM bytes. */
static inline uint8_t *rlw_put_double(uint8_t *to, double value) {
    uint64_t bits = rlw_double_bits(value);
    double magnitude = rlw_bits_double(bits & ~(UINT64_C(1) << 63));
    if (!(magnitude <= DBL_MAX)) return rlw_put_special(to, bits);
    *to = '-';
    to += bits >> 63;
    return to + rlw_double_to_digits(to, magnitude);
}

/* Writes the shortest text that reads back as the same float. */
static inline uint8_t *rlw_put_float(uint8_t *to, float value) {
    uint64_t bits = rlw_double_bits(value);
    double magnitude = rlw_bits_double(bits & ~(UINT64_C(1) << 63));
    if (!(magnitude <= FLT_MAX)) return rlw_put_special(to, bits);
    *to = '-';
    to += bits >> 63;
    return to + rlw_float_to_digits(to, (float)magnitude);
}

#endif
