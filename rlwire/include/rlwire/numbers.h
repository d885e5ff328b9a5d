/* Numbers to decimal text and back: exact, rounded to nearest, and the same in every locale.
 *
 * Programs that use this header also compile numbers.cpp, which handles the rare cases:
 *
 *     c++ -std=c++17 -O2 -I FOLDER -c FOLDER/rlwire/numbers.cpp
 */
#ifndef RLWIRE_NUMBERS_H
#define RLWIRE_NUMBERS_H

#include <float.h>
#include <stddef.h>

#include "endian.h"

#if defined(_MSC_VER)
#include <intrin.h>
#endif

/* ---- numbers.cpp ---- */

#ifdef __cplusplus
extern "C" {
#endif
/* Returns the double nearest to mantissa * 10**exponent; infinity if it is too large. */
double rlw_scaled_to_double(uint64_t mantissa, int32_t exponent);
/* Returns the number nearest to `text`: digits with a point or an exponent, without a sign.
 * Infinity if it is too large. */
double rlw_digits_to_double(const uint8_t *text, size_t size);
float rlw_digits_to_float(const uint8_t *text, size_t size);
/* Writes the shortest digits that read back as the same finite number above 0. From 0.0001 to below
 * 1e16 they have no exponent. `to` has RLW_SHORTEST_ROOM bytes. Returns the bytes written. */
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

/* ---- shared by both directions ---- */

/* 1 if the compiler computes doubles exactly as such: not on x87, not with fast math. */
#if FLT_EVAL_METHOD == 0 && !defined(__FAST_MATH__) && !defined(_M_FP_FAST)
#define RLW_EXACT_DOUBLES 1
#else
#define RLW_EXACT_DOUBLES 0
#endif

static inline uint64_t rlw_ten_to(unsigned power) { /* at most 19 */
    static const uint64_t powers[20] = {
        UINT64_C(1), UINT64_C(10), UINT64_C(100), UINT64_C(1000), UINT64_C(10000), UINT64_C(100000),
        UINT64_C(1000000), UINT64_C(10000000), UINT64_C(100000000), UINT64_C(1000000000),
        UINT64_C(10000000000), UINT64_C(100000000000), UINT64_C(1000000000000),
        UINT64_C(10000000000000), UINT64_C(100000000000000), UINT64_C(1000000000000000),
        UINT64_C(10000000000000000), UINT64_C(100000000000000000), UINT64_C(1000000000000000000),
        UINT64_C(10000000000000000000),
    };
    return powers[power];
}

/* Returns the low half of a * b; stores the high half in *high. */
static inline uint64_t rlw_multiply(uint64_t a, uint64_t b, uint64_t *high) {
#if defined(__SIZEOF_INT128__) && !defined(RLW_NO_INT128)
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
#elif defined(_MSC_VER) && defined(_M_X64) && !defined(RLW_NO_INT128)
    return _umul128(a, b, high);
#else
    uint64_t a0 = a & 0xFFFFFFFF, a1 = a >> 32, b0 = b & 0xFFFFFFFF, b1 = b >> 32;
    uint64_t low = a0 * b0, cross = a1 * b0 + (low >> 32), other = a0 * b1 + (cross & 0xFFFFFFFF);
    *high = a1 * b1 + (cross >> 32) + (other >> 32);
    return other << 32 | (low & 0xFFFFFFFF);
#endif
}

/* ---- from text ---- */

typedef struct rlw_decimal {
    const uint8_t *digits; /* after the sign */
    size_t size;           /* bytes from `digits` to the number's end */
    uint64_t mantissa;     /* the number is mantissa * 10**exponent, unless `rough` */
    int32_t exponent;
    uint8_t negative;
    uint8_t whole;    /* has neither point nor exponent */
    uint8_t rough;    /* has too many digits for the mantissa, or none */
    uint8_t infinite; /* inf or infinity */
    uint8_t nan;
} rlw_decimal;

static inline unsigned rlw_lowest_byte(uint64_t bits) { /* index of the lowest nonzero byte */
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(bits) >> 3;
#elif defined(_MSC_VER) && (defined(_M_X64) || defined(_M_ARM64))
    unsigned long index;
    _BitScanForward64(&index, bits);
    return (unsigned)index >> 3;
#else
    unsigned index = 0;
    for (; !(bits & 0xFF); bits >>= 8) index++;
    return index;
#endif
}

/* Stores the value of the leading digits of eight bytes in *value; returns how many there are. */
static inline unsigned rlw_digits_of(uint64_t word, uint64_t *value) {
    uint64_t x = word ^ UINT64_C(0x3030303030303030); /* digits are 0..9 */
    uint64_t others = (x + UINT64_C(0x7676767676767676)) | x;
    unsigned count = 8;
    others &= UINT64_C(0x8080808080808080);
    *value = 0;
    if (others) {
        count = rlw_lowest_byte(others);
        if (!count) return 0;
        x <<= 64 - 8 * count; /* as if preceded by zeros */
    }
    x = x * 10 + (x >> 8);
    x = (x & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x000F424000000064) +
        (x >> 16 & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x0000271000000001);
    *value = x >> 32;
    return count;
}

/* Appends a run of digits to the mantissa, which may overflow; returns the byte after them. */
static inline const uint8_t *rlw_scan_digits(const uint8_t *p, const uint8_t *end,
                                             uint64_t *mantissa) {
    uint64_t m = *mantissa, value;
    while (end - p >= 8) {
        unsigned count = rlw_digits_of(rlw_load_u64le(p), &value);
        m = m * rlw_ten_to(count) + value;
        p += count;
        if (count < 8) {
            *mantissa = m;
            return p;
        }
    }
    for (; p < end && (unsigned)(*p - '0') < 10; p++) m = m * 10 + (uint64_t)(*p - '0');
    *mantissa = m;
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
    d->rough = 1;
    d->whole = 0;
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
    const uint8_t *first, *point = NULL, *last;
    size_t before, after = 0;
    d->mantissa = 0;
    d->size = 0;
    d->exponent = 0;
    d->negative = p < end && *p == '-';
    d->whole = 1;
    d->rough = d->infinite = d->nan = 0;
    if (p < end && (*p == '-' || *p == '+')) p++;
    d->digits = first = p;
    p = rlw_scan_digits(p, end, &d->mantissa);
    before = (size_t)(p - first);
    if (p < end && *p == '.') {
        point = ++p;
        p = rlw_scan_digits(p, end, &d->mantissa);
        after = (size_t)(p - point);
        d->whole = 0;
        d->exponent = after < 100000 ? -(int32_t)after : -100000; /* `rough` from 20 digits on */
    }
    if (before + after == 0) return point ? NULL : rlw_scan_special(first, end, d);
    last = p;
    if (p < end && (*p | 0x20) == 'e') {
        int32_t exponent = 0;
        int negative;
        p++;
        negative = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) p++;
        if (p < end && (unsigned)(*p - '0') < 10) {
            for (; p < end && (unsigned)(*p - '0') < 10; p++)
                if (exponent < 1000000) exponent = exponent * 10 + (*p - '0');
            d->exponent += negative ? -exponent : exponent;
            d->whole = 0;
            last = p;
        }
    }
    d->size = (size_t)(last - first);
    if (before + after > 19) { /* 19 digits fit below 2**64; leading zeros do not count */
        const uint8_t *q = first;
        while (q < last && (*q == '0' || *q == '.')) q++;
        before = 0;
        for (; q < last && (*q == '.' || (unsigned)(*q - '0') < 10); q++) before += *q != '.';
        d->rough = before > 19;
    }
    return last;
}

/* Returns the double nearest to the decimal. */
static inline double rlw_decimal_double(const rlw_decimal *d) {
    static const double powers[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    double value;
    if (RLW_EXACT_DOUBLES && !d->rough && d->mantissa < UINT64_C(1000000000000000) &&
        d->exponent >= -22 && d->exponent <= 22) {
        value = (double)(int64_t)d->mantissa; /* both exact, so one operation rounds correctly */
        value = d->exponent < 0 ? value / powers[-d->exponent] : value * powers[d->exponent];
    } else if (d->nan | d->infinite) {
        value = rlw_bits_double(d->nan ? UINT64_C(0x7FF8) << 48 : UINT64_C(0x7FF) << 52);
    } else if (!d->rough) {
        value = rlw_scaled_to_double(d->mantissa, d->exponent);
    } else {
        value = rlw_digits_to_double(d->digits, d->size);
    }
    return rlw_bits_double(rlw_double_bits(value) | (uint64_t)d->negative << 63);
}

/* Returns the float nearest to the decimal. */
static inline float rlw_decimal_float(const rlw_decimal *d) {
    double value = rlw_decimal_double(d);
    uint64_t magnitude = rlw_double_bits(value) & ~(UINT64_C(1) << 63);
    float nearest;
    /* Rounding twice is wrong only from exactly halfway between two floats. Such points have
     * other bits below FLT_MIN. */
    if (magnitude == 0 || magnitude > UINT64_C(0x47EFFFFFF0000000) ||
        (magnitude >= UINT64_C(0x3810000000000000) && (magnitude & 0x1FFFFFFF) != 0x10000000))
        return (float)value;
    nearest = rlw_digits_to_float(d->digits, d->size);
    return d->negative ? -nearest : nearest;
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
    const uint8_t *first = p;
    uint64_t value = 0;
    p = rlw_scan_digits(p, end, &value);
    if (p == first) return NULL;
    if (p - first > 19) { /* may exceed 2**64: read again with overflow checks */
        const uint8_t *q = first;
        value = 0;
        for (; q < p; q++) {
            uint64_t digit = (uint64_t)(*q - '0');
            if (value > (UINT64_MAX - digit) / 10) return NULL;
            value = value * 10 + digit;
        }
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

static inline void rlw_store_pair(uint8_t *to, unsigned value) { /* 0..99 */
    unsigned tens = value * 103 >> 10;
    to[0] = (uint8_t)('0' + tens);
    to[1] = (uint8_t)('0' + value - 10 * tens);
}

static inline unsigned rlw_count_digits(uint64_t value) {
    unsigned count;
#if defined(__GNUC__)
    count = (unsigned)(64 - __builtin_clzll(value | 1)) * 1233 >> 12; /* log10(2) */
    return count + (value >= rlw_ten_to(count) || !count);
#else
    for (count = 1; count < 20 && value >= rlw_ten_to(count); count++) {}
    return count;
#endif
}

/* Returns the eight digits of a number below 10**8 as bytes 0 to 9, the first one lowest. */
static inline uint64_t rlw_eight_digits(uint32_t value) {
    uint32_t high = value / 10000;
    uint64_t fours = high | (uint64_t)(value - 10000 * high) << 32, pairs, tens;
    pairs = (fours * 10486 >> 20) & UINT64_C(0x0000007F0000007F); /* fours / 100 */
    pairs |= (fours - 100 * pairs) << 16;
    tens = (pairs * 103 >> 10) & UINT64_C(0x000F000F000F000F); /* pairs / 10 */
    return tens | (pairs - 10 * tens) << 8;
}

/* Does what rlw_store_u64le() does, in a form that compilers make one store in loops. */
static inline void rlw_store_word(uint8_t *to, uint64_t word) {
    if (rlw_host_is_little()) memcpy(to, &word, 8);
    else rlw_store_u64le(to, word);
}

static inline void rlw_store_eight(uint8_t *to, uint32_t value) {
    rlw_store_word(to, rlw_eight_digits(value) | UINT64_C(0x3030303030303030));
}

/* Stores the last `count` digits of `value`, ending at `end`; returns the digits before them. */
static inline uint64_t rlw_store_digits(uint8_t *end, uint64_t value, unsigned count) {
    for (; count >= 8; count -= 8) {
        rlw_store_eight(end -= 8, (uint32_t)(value % 100000000));
        value /= 100000000;
    }
    for (; count >= 2; count -= 2) {
        rlw_store_pair(end -= 2, (unsigned)(value % 100));
        value /= 100;
    }
    if (count) {
        end[-1] = (uint8_t)('0' + value % 10);
        value /= 10;
    }
    return value;
}

static inline uint8_t *rlw_put_below_10000(uint8_t *to, unsigned value) {
    unsigned pair = value / 100;
    if (!pair) {
        if (value < 10) {
            *to = (uint8_t)('0' + value);
            return to + 1;
        }
    } else {
        if (pair < 10) {
            *to++ = (uint8_t)('0' + pair);
        } else {
            rlw_store_pair(to, pair);
            to += 2;
        }
        value %= 100;
    }
    rlw_store_pair(to, value);
    return to + 2;
}

static inline void rlw_store_four(uint8_t *to, unsigned value) {
    unsigned pair = value / 100;
    rlw_store_pair(to, pair);
    rlw_store_pair(to + 2, value - 100 * pair);
}

/* Writes a number below 10**8 in at most 8 bytes. */
static inline uint8_t *rlw_put_below_1e8(uint8_t *to, uint32_t value) {
    unsigned high;
    if (value < 10000) return rlw_put_below_10000(to, value);
    high = value / 10000;
    to = rlw_put_below_10000(to, high);
    rlw_store_four(to, value - 10000 * high);
    return to + 4;
}

/* Branches on the length of short numbers: those in a list have few lengths. */
static inline uint8_t *rlw_put_u64(uint8_t *to, uint64_t value) { /* 20 bytes */
    unsigned count;
    if (value < 100000000) return rlw_put_below_1e8(to, (uint32_t)value);
    count = rlw_count_digits(value);
    rlw_store_digits(to + count, value, count);
    return to + count;
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

/* Writes value / 10**decimals in at most 42 bytes. */
static inline uint8_t *rlw_put_scaled(uint8_t *to, uint64_t value, unsigned decimals) {
    unsigned count = rlw_count_digits(value);
    unsigned before;
    uint64_t rest;
    uint8_t *end;
    if (count <= decimals) count = decimals + 1;
    before = count - decimals;
    end = to + count + (decimals != 0);
    rest = rlw_store_digits(end, value, decimals);
    if (decimals) to[before] = '.';
    rlw_store_digits(to + before, rest, before);
    return decimals ? rlw_trim(end) : end;
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
    uint64_t bits = rlw_double_bits(value), mantissa = bits & ((UINT64_C(1) << 52) - 1);
    unsigned exponent = (unsigned)(bits >> 52) & 0x7FF;
    size_t size;
    if (exponent == 0x7FF) return rlw_put_special(to, bits);
    /* value = mantissa * 2**-shift. The library handles 2**52 and more. */
    if (exponent < 1075 && decimals <= 19) {
        unsigned shift = 1075 - (exponent ? exponent : 1);
        uint64_t high, low, scaled, rest, middle;
        int fits = 1;
        mantissa |= (uint64_t)(exponent != 0) << 52;
        low = rlw_multiply(mantissa, rlw_ten_to(decimals), &high);
        if (shift > 117) { /* the product is below 2**117, so less than one half */
            scaled = rest = 0;
            middle = 1;
        } else if (shift > 64) {
            scaled = high >> (shift - 64);
            rest = high & ((UINT64_C(1) << (shift - 64)) - 1);
            middle = UINT64_C(1) << (shift - 65);
            if (rest == middle && low) rest++; /* above one half */
        } else if (shift == 64) {
            scaled = high;
            rest = low;
            middle = UINT64_C(1) << 63;
        } else {
            fits = high >> shift == 0;
            scaled = high << (64 - shift) | low >> shift;
            rest = low & ((UINT64_C(1) << shift) - 1);
            middle = UINT64_C(1) << (shift - 1);
        }
        if (fits && scaled < UINT64_MAX) {
            scaled += rest > middle || (rest == middle && (scaled & 1));
            *to = '-';
            return rlw_put_scaled(to + (bits >> 63), scaled, decimals);
        }
    }
    size = rlw_double_to_fixed(to, RLW_FIXED_ROOM, value, (int)decimals);
    return decimals ? rlw_trim(to + size) : to + size;
}

/* Writes a number of up to 6 decimals and 15 digits: if they read back the same, no others do. Else
 * returns NULL, mostly without a division. */
static inline uint8_t *rlw_put_rounded(uint8_t *to, double magnitude) {
#if RLW_EXACT_DOUBLES
    if (magnitude >= 1e-4 && magnitude < 1e9) {
        double millions = magnitude * 1e6;
        uint64_t scaled = (uint64_t)(int64_t)(millions + 0.5);
        double whole = (double)(int64_t)scaled, apart = millions - whole;
        if (apart <= whole * 1e-15 && -apart <= whole * 1e-15 && whole / 1e6 == magnitude)
            return rlw_put_scaled(to, scaled, 6);
    }
#endif
    (void)to;
    (void)magnitude;
    return NULL;
}

/* Writes the shortest text that reads back as the same number, like Python's repr() without the
 * ".0" of whole numbers. From 1e-4 to 1e16 it has no exponent. RLW_SHORTEST_ROOM bytes. */
static inline uint8_t *rlw_put_double(uint8_t *to, double value) {
    uint8_t *rounded;
    uint64_t bits = rlw_double_bits(value);
    double magnitude = rlw_bits_double(bits & ~(UINT64_C(1) << 63));
    if (!(magnitude <= DBL_MAX)) return rlw_put_special(to, bits);
    *to = '-';
    to += bits >> 63;
    if (magnitude < 9007199254740992.0 && (double)(int64_t)magnitude == magnitude)
        return rlw_put_u64(to, (uint64_t)(int64_t)magnitude); /* 2**53 */
    rounded = rlw_put_rounded(to, magnitude);
    return rounded ? rounded : to + rlw_double_to_digits(to, magnitude);
}

/* Writes the shortest text that reads back as the same float. */
static inline uint8_t *rlw_put_float(uint8_t *to, float value) {
    uint64_t bits = rlw_double_bits(value);
    double magnitude = rlw_bits_double(bits & ~(UINT64_C(1) << 63));
    if (!(magnitude <= FLT_MAX)) return rlw_put_special(to, bits);
    *to = '-';
    to += bits >> 63;
    if (magnitude < 16777216 && (double)(int32_t)magnitude == magnitude)
        return rlw_put_u64(to, (uint64_t)(int32_t)magnitude); /* 2**24 */
    return to + rlw_float_to_digits(to, (float)magnitude);
}

#endif
