/* Packed arrays of varints on any host, eight bytes at a time; also for the rest of x86 arrays. */
#ifndef RLWIRE_VARINT_PORTABLE_H
#define RLWIRE_VARINT_PORTABLE_H

#include <stddef.h>

#include "endian.h"

#if defined(_MSC_VER) && !defined(__clang__) && (defined(_M_X64) || defined(_M_ARM64))
#include <intrin.h>
#endif

#define RLW_STOP_BITS UINT64_C(0x8080808080808080) /* set in all bytes of a varint but the last */
#define RLW_DATA_BITS UINT64_C(0x7F7F7F7F7F7F7F7F)

/* Returns the index of the lowest bit of x > 0. */
static inline unsigned rlw_lowest_bit(uint64_t x) {
#if defined(__GNUC__) || defined(__clang__)
    return (unsigned)__builtin_ctzll(x);
#elif defined(_MSC_VER) && (defined(_M_X64) || defined(_M_ARM64))
    unsigned long index;
    _BitScanForward64(&index, x);
    return (unsigned)index;
#else
    unsigned index = 0;
    for (; !(x & 0xFF); x >>= 8) index += 8;
    for (; !(x & 1); x >>= 1) index++;
    return index;
#endif
}

/* Returns the bytes of one varint: a sum of comparisons, so that loops over values do not branch. */
static inline unsigned rlw_varint_size_of(uint64_t v) {
    return 1u + (v >= UINT64_C(1) << 7) + (v >= UINT64_C(1) << 14) + (v >= UINT64_C(1) << 21) +
           (v >= UINT64_C(1) << 28) + (v >= UINT64_C(1) << 35) + (v >= UINT64_C(1) << 42) +
           (v >= UINT64_C(1) << 49) + (v >= UINT64_C(1) << 56) + (v >= UINT64_C(1) << 63);
}

/* Spreads the low 56 bits of v, seven to a byte. */
static inline uint64_t rlw_spread_bits(uint64_t v) {
    v = (v & UINT64_C(0x000000000FFFFFFF)) | (v & UINT64_C(0x00FFFFFFF0000000)) << 4;
    v = (v & UINT64_C(0x00003FFF00003FFF)) | (v & UINT64_C(0x0FFFC0000FFFC000)) << 2;
    return (v & UINT64_C(0x007F007F007F007F)) | (v & UINT64_C(0x3F803F803F803F80)) << 1;
}

/* Reverses rlw_spread_bits(); ignores the top bit of each byte. */
static inline uint64_t rlw_gather_bits(uint64_t w) {
    w = (w & UINT64_C(0x007F007F007F007F)) | (w & UINT64_C(0x7F007F007F007F00)) >> 1;
    w = (w & UINT64_C(0x00003FFF00003FFF)) | (w & UINT64_C(0x3FFF00003FFF0000)) >> 2;
    return (w & UINT64_C(0x000000000FFFFFFF)) | (w & UINT64_C(0x0FFFFFFF00000000)) >> 4;
}

/* ---- sizes ---- */

static inline uint64_t rlw_varints_size_i32_portable(const int32_t *values, size_t count) {
    uint64_t size = 0;
    size_t i;
    /* Negative numbers are encoded as 64-bit ones, in ten bytes. */
    for (i = 0; i < count; i++) size += rlw_varint_size_of((uint64_t)(int64_t)values[i]);
    return size;
}

static inline uint64_t rlw_varints_size_u32_portable(const uint32_t *values, size_t count) {
    uint64_t size = 0;
    size_t i;
    for (i = 0; i < count; i++) {
        uint32_t v = values[i];
        size += 1u + (v >= 1u << 7) + (v >= 1u << 14) + (v >= 1u << 21) + (v >= 1u << 28);
    }
    return size;
}

static inline uint64_t rlw_varints_size_u64_portable(const uint64_t *values, size_t count) {
    uint64_t size = 0;
    size_t i;
    for (i = 0; i < count; i++) size += rlw_varint_size_of(values[i]);
    return size;
}

/* ---- to bytes: up to `end`, since another thread may change values after measuring ---- */

static inline uint8_t *rlw_varint_put(uint8_t *to, const uint8_t *end, uint64_t v) {
    if (end - to >= 10) {
        if (v < UINT64_C(1) << 14) {
            unsigned two = v >= 0x80;
            to[0] = (uint8_t)(v | (uint64_t)two << 7);
            to[1] = (uint8_t)(v >> 7);
            return to + 1 + two;
        } else {
            unsigned size = rlw_varint_size_of(v), low = size < 9 ? size - 1 : 8;
            uint64_t high = v >> 56;
            uint64_t more = RLW_STOP_BITS & (UINT64_MAX >> (64 - 8 * low));
            rlw_store_u64le(to, rlw_spread_bits(v) | more);
            if (size > 8) {
                to[8] = (uint8_t)(high | (uint64_t)(size == 10) << 7);
                to[9] = 1;
            }
            return to + size;
        }
    }
    if ((size_t)(end - to) < rlw_varint_size_of(v)) return NULL;
    for (; v >= 0x80; v >>= 7) *to++ = (uint8_t)(v | 0x80);
    *to++ = (uint8_t)v;
    return to;
}

#define RLW_PACK_PORTABLE(NAME, TYPE, WIDE) \
    static inline uint8_t *NAME(uint8_t *to, const uint8_t *end, const TYPE *values, \
                                size_t count) { \
        size_t i; \
        for (i = 0; i < count; i++) { \
            uint8_t *next = rlw_varint_put(to, end, (uint64_t)(WIDE)values[i]); \
            if (!next) break; \
            to = next; \
        } \
        return to; \
    }
RLW_PACK_PORTABLE(rlw_varints_pack_i32_portable, int32_t, int64_t)
RLW_PACK_PORTABLE(rlw_varints_pack_u32_portable, uint32_t, uint32_t)
RLW_PACK_PORTABLE(rlw_varints_pack_u64_portable, uint64_t, uint64_t)
#undef RLW_PACK_PORTABLE

/* ---- from bytes ---- */

static inline size_t rlw_varints_count_portable(const uint8_t *data, size_t size) {
    size_t count = 0, i;
    for (i = 0; i < size; i++) count += data[i] < 0x80;
    return count;
}

/* Reads one varint; returns NULL if it exceeds 64 bits or the bytes end inside it. */
static inline const uint8_t *rlw_varint_get(const uint8_t *p, const uint8_t *end, uint64_t *out) {
    uint64_t value = 0;
    unsigned shift = 0;
    if (end - p >= 10 && !(~rlw_load_u64le(p) & RLW_STOP_BITS)) { /* more than eight bytes */
        value = rlw_gather_bits(rlw_load_u64le(p));
        shift = 56;
        p += 8;
    }
    for (; p < end && shift < 70; shift += 7) {
        uint8_t byte = *p++;
        if (shift == 63 && byte > 1) return NULL;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out = value;
            return p;
        }
    }
    return NULL;
}

/* Do what rlw_varints_unpack_u32() and its kin in varint.h do. */
#define RLW_UNPACK_PORTABLE(NAME, TYPE) \
    static inline const uint8_t *NAME(const uint8_t *p, const uint8_t *end, TYPE *out, \
                                      const TYPE *out_end) { \
        while (end - p >= 8 && out_end - out >= 8) { \
            uint64_t w = rlw_load_u64le(p), stops = ~w & RLW_STOP_BITS; \
            unsigned k; \
            if (stops == RLW_STOP_BITS) { \
                for (k = 0; k < 8; k++) out[k] = p[k]; \
                out += 8; \
                p += 8; \
            } else if (stops == UINT64_C(0x8000800080008000)) { \
                for (k = 0; k < 4; k++) \
                    out[k] = (TYPE)(p[2 * k] & 0x7F) | (TYPE)((TYPE)p[2 * k + 1] << 7); \
                out += 4; \
                p += 8; \
            } else if (stops) { \
                do { /* each varint that ends in this word */ \
                    unsigned top = rlw_lowest_bit(stops); \
                    *out++ = (TYPE)rlw_gather_bits(w & (UINT64_MAX >> (63 - top))); \
                    w = w >> top >> 1; \
                    stops = stops >> top >> 1; \
                    p += top / 8 + 1; \
                } while (stops); \
            } else { \
                uint64_t value; \
                const uint8_t *next = rlw_varint_get(p, end, &value); \
                if (!next) return p; \
                *out++ = (TYPE)value; \
                p = next; \
            } \
        } \
        while (p < end) { \
            uint64_t value; \
            const uint8_t *next = rlw_varint_get(p, end, &value); \
            if (!next || out == out_end) return p; \
            *out++ = (TYPE)value; \
            p = next; \
        } \
        return out == out_end ? p : NULL; \
    }
/* 32-bit values keep the low 32 bits of the varint, as protobuf requires. */
RLW_UNPACK_PORTABLE(rlw_varints_unpack_u32_portable, uint32_t)
RLW_UNPACK_PORTABLE(rlw_varints_unpack_u64_portable, uint64_t)
#undef RLW_UNPACK_PORTABLE

/* Booleans are varints too: any value but 0 is true. */
static inline const uint8_t *rlw_varints_unpack_bool_portable(const uint8_t *p, const uint8_t *end,
                                                              uint8_t *out,
                                                              const uint8_t *out_end) {
    while (p < end) {
        uint64_t value;
        const uint8_t *next = rlw_varint_get(p, end, &value);
        if (!next || out == out_end) return p;
        *out++ = value != 0;
        p = next;
    }
    return out == out_end ? p : NULL;
}

#endif
