/* Packed arrays of varints with AVX2 and BMI2; defines RLW_VARINT_X86 if the compiler supports them.
 * PDEP deposits the low bits of a word at the bits of a mask, PEXT extracts them from there. */
#ifndef RLWIRE_VARINT_X86_H
#define RLWIRE_VARINT_X86_H

#include "varint_portable.h"

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__) && !defined(RLW_NO_SIMD)
#define RLW_VARINT_X86 1

#include <cpuid.h>
#include <immintrin.h>

#define RLW_X86 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#define RLW_X86_INLINE RLW_X86 static inline __attribute__((always_inline))

/* AMD processors before Zen 3 have PDEP and PEXT in microcode, slower than the portable code. */
static inline int rlw_x86_find_out(void) {
    unsigned a, b, c, d, family;
    int amd;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") ||
        !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("popcnt"))
        return 0;
    if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(c & 1u << 5)) return 0; /* LZCNT */
    if (!__get_cpuid(0, &a, &b, &c, &d)) return 0;
    amd = b == 0x68747541 || b == 0x6F677948; /* "Auth"enticAMD, "Hygo"nGenuine */
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    family = (a >> 8 & 15) + (a >> 20 & 255);
    return !(amd && family < 0x19);
}

static inline int rlw_x86_is_fast(void) {
    static int known; /* 0: unknown, 1: no, 2: yes; CPUID is slow on virtual machines */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!answer) {
        answer = 1 + rlw_x86_find_out();
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer == 2;
}

RLW_X86_INLINE uint64_t rlw_load_word(const uint8_t *p) { /* x86 is little-endian */
    uint64_t w;
    memcpy(&w, p, 8);
    return w;
}

RLW_X86_INLINE __m256i rlw_load_256(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

RLW_X86_INLINE uint64_t rlw_sum_of_u32(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(s);
}

/* ---- sizes ---- */

/* Counts bytes beyond the first of each of 32 values; lanes of the sum stay far below 32 bits. */
RLW_X86_INLINE uint64_t rlw_size_32_values(const uint32_t *values, int is_signed) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i v[4], all, less = zero, negative = zero;
    int k;
    for (k = 0; k < 4; k++) v[k] = rlw_load_256(values + 8 * k);
    all = _mm256_or_si256(_mm256_or_si256(v[0], v[1]), _mm256_or_si256(v[2], v[3]));
    if (_mm256_testz_si256(all, _mm256_set1_epi32(~0x3FFF))) {
        const __m256i most = _mm256_set1_epi32(0x7F);
        for (k = 0; k < 4; k++) less = _mm256_sub_epi32(less, _mm256_cmpgt_epi32(v[k], most));
        return rlw_sum_of_u32(less);
    }
    for (k = 0; k < 4; k++) {
        less = _mm256_sub_epi32(less, _mm256_cmpeq_epi32(_mm256_srli_epi32(v[k], 7), zero));
        less = _mm256_sub_epi32(less, _mm256_cmpeq_epi32(_mm256_srli_epi32(v[k], 14), zero));
        less = _mm256_sub_epi32(less, _mm256_cmpeq_epi32(_mm256_srli_epi32(v[k], 21), zero));
        less = _mm256_sub_epi32(less, _mm256_cmpeq_epi32(_mm256_srli_epi32(v[k], 28), zero));
        if (is_signed) negative = _mm256_add_epi32(negative, _mm256_srli_epi32(v[k], 31));
    }
    return 4 * 32 - rlw_sum_of_u32(less) + 5 * rlw_sum_of_u32(negative);
}

RLW_X86 static inline uint64_t rlw_varints_size_i32_x86(const int32_t *values, size_t count) {
    uint64_t size = count - count % 32;
    size_t i;
    for (i = 0; count - i >= 32; i += 32)
        size += rlw_size_32_values((const uint32_t *)(values + i), 1);
    return size + rlw_varints_size_i32_portable(values + i, count - i);
}

RLW_X86 static inline uint64_t rlw_varints_size_u32_x86(const uint32_t *values, size_t count) {
    uint64_t size = count - count % 32;
    size_t i;
    for (i = 0; count - i >= 32; i += 32) size += rlw_size_32_values(values + i, 0);
    return size + rlw_varints_size_u32_portable(values + i, count - i);
}

/* 37/256 is close enough to 1/7 for all 64 bits. */
RLW_X86_INLINE unsigned rlw_varint_size_x86(uint64_t v) {
    return ((63u - (unsigned)_lzcnt_u64(v | 1)) * 37u >> 8) + 1;
}

RLW_X86 static inline uint64_t rlw_varints_size_u64_x86(const uint64_t *values, size_t count) {
    const __m256i most = _mm256_set1_epi64x(0x7F), high = _mm256_set1_epi64x(~INT64_C(0x3FFF));
    uint64_t size = 0;
    size_t i, k;
    for (i = 0; count - i >= 16; i += 16) {
        __m256i v[4], all, more;
        for (k = 0; k < 4; k++) v[k] = rlw_load_256(values + i + 4 * k);
        all = _mm256_or_si256(_mm256_or_si256(v[0], v[1]), _mm256_or_si256(v[2], v[3]));
        if (_mm256_testz_si256(all, high)) { /* the upper half of each lane stays 0 */
            more = _mm256_setzero_si256();
            for (k = 0; k < 4; k++) more = _mm256_sub_epi64(more, _mm256_cmpgt_epi64(v[k], most));
            size += 16 + rlw_sum_of_u32(more);
        } else {
            for (k = 0; k < 16; k++) size += rlw_varint_size_x86(values[i + k]);
        }
    }
    for (; i < count; i++) size += rlw_varint_size_x86(values[i]);
    return size;
}

/* ---- to bytes ---- */

#define RLW_PACK_ROOM 96 /* bytes that eight values and later stores may write */

/* Packs eight values below 2**14, in 16 bits each. */
RLW_X86_INLINE uint8_t *rlw_pack_two_bytes(uint8_t *to, __m128i x) {
    const __m128i two = _mm_cmpgt_epi16(x, _mm_set1_epi16(0x7F));
    const __m128i low = _mm_set1_epi16(0x7F);
    __m128i y = _mm_or_si128(_mm_and_si128(x, low),
                             _mm_andnot_si128(_mm_set1_epi16(0xFF), _mm_slli_epi16(x, 1)));
    unsigned longer = (unsigned)_mm_movemask_epi8(two);
    y = _mm_or_si128(y, _mm_and_si128(two, _mm_set1_epi16(0x80)));
    if (longer == 0xFFFF) {
        _mm_storeu_si128((__m128i *)to, y);
        return to + 16;
    } else if (longer == 0) {
        _mm_storel_epi64((__m128i *)to, _mm_packus_epi16(y, y));
        return to + 8;
    } else {
        __m128i keep = _mm_or_si128(two, _mm_set1_epi16(0xFF));
        uint64_t first = _pext_u64((uint64_t)_mm_cvtsi128_si64(y),
                                   (uint64_t)_mm_cvtsi128_si64(keep));
        uint64_t second = _pext_u64((uint64_t)_mm_extract_epi64(y, 1),
                                    (uint64_t)_mm_extract_epi64(keep, 1));
        memcpy(to, &first, 8);
        to += 4 + _mm_popcnt_u32(longer & 0xFF) / 2;
        memcpy(to, &second, 8);
        return to + 4 + _mm_popcnt_u32(longer >> 8) / 2;
    }
}

/* Packs one value; stores 8 bytes, or 10 if `long_` says that it may exceed 56 bits. */
RLW_X86_INLINE uint8_t *rlw_pack_one(uint8_t *to, uint64_t v, int long_) {
    unsigned size = rlw_varint_size_x86(v);
    uint64_t word = _pdep_u64(v, RLW_DATA_BITS) | _bzhi_u64(RLW_STOP_BITS, 8 * size - 8);
    memcpy(to, &word, 8);
    if (long_) {
        uint32_t high = (uint32_t)(v >> 56);
        uint16_t last = (uint16_t)(high | (high & 0x80) << 1);
        memcpy(to + 8, &last, 2);
    }
    return to + size;
}

#define RLW_PACK_32_X86(NAME, REST, TYPE, WIDE, IS_SIGNED) \
    RLW_X86 static inline uint8_t *NAME(uint8_t *to, const uint8_t *end, const TYPE *values, \
                                        size_t count) { \
        int k; \
        while (count >= 8 && end - to >= RLW_PACK_ROOM) { \
            __m256i v = rlw_load_256(values); \
            if (_mm256_testz_si256(v, _mm256_set1_epi32(~0x3FFF))) { \
                to = rlw_pack_two_bytes(to, _mm_packus_epi32(_mm256_castsi256_si128(v), \
                                                             _mm256_extracti128_si256(v, 1))); \
            } else if (IS_SIGNED && _mm256_movemask_ps(_mm256_castsi256_ps(v))) { \
                for (k = 0; k < 8; k++) to = rlw_pack_one(to, (uint64_t)(WIDE)values[k], 1); \
            } else { \
                for (k = 0; k < 8; k++) to = rlw_pack_one(to, (uint64_t)(WIDE)values[k], 0); \
            } \
            values += 8; \
            count -= 8; \
        } \
        return REST(to, end, values, count); \
    }
RLW_PACK_32_X86(rlw_varints_pack_i32_x86, rlw_varints_pack_i32_portable, int32_t, int64_t, 1)
RLW_PACK_32_X86(rlw_varints_pack_u32_x86, rlw_varints_pack_u32_portable, uint32_t, uint32_t, 0)
#undef RLW_PACK_32_X86

RLW_X86 static inline uint8_t *rlw_varints_pack_u64_x86(uint8_t *to, const uint8_t *end,
                                                        const uint64_t *values, size_t count) {
    const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    int k;
    while (count >= 8 && end - to >= RLW_PACK_ROOM) {
        __m256i first = rlw_load_256(values), second = rlw_load_256(values + 4);
        __m256i all = _mm256_or_si256(first, second);
        if (_mm256_testz_si256(all, _mm256_set1_epi64x(~INT64_C(0x3FFF)))) {
            first = _mm256_permutevar8x32_epi32(first, even);
            second = _mm256_permutevar8x32_epi32(second, even);
            to = rlw_pack_two_bytes(to, _mm_packus_epi32(_mm256_castsi256_si128(first),
                                                         _mm256_castsi256_si128(second)));
        } else if (_mm256_testz_si256(all, _mm256_set1_epi64x(~INT64_C(0xFFFFFFFFFFFFFF)))) {
            for (k = 0; k < 8; k++) to = rlw_pack_one(to, values[k], 0);
        } else {
            for (k = 0; k < 8; k++) to = rlw_pack_one(to, values[k], 1);
        }
        values += 8;
        count -= 8;
    }
    return rlw_varints_pack_u64_portable(to, end, values, count);
}

/* ---- from bytes ---- */

RLW_X86 static inline size_t rlw_varints_count_x86(const uint8_t *data, size_t size) {
    size_t more = 0, i;
    for (i = 0; size - i >= 32; i += 32)
        more += (size_t)_mm_popcnt_u32((unsigned)_mm256_movemask_epi8(rlw_load_256(data + i)));
    return i - more + rlw_varints_count_portable(data + i, size - i);
}

RLW_X86_INLINE void rlw_store_8x16_as_u32(uint32_t *out, __m128i v) {
    _mm256_storeu_si256((__m256i *)out, _mm256_cvtepu16_epi32(v));
}

RLW_X86_INLINE void rlw_store_8x16_as_u64(uint64_t *out, __m128i v) {
    _mm256_storeu_si256((__m256i *)out, _mm256_cvtepu16_epi64(v));
    _mm256_storeu_si256((__m256i *)(out + 4), _mm256_cvtepu16_epi64(_mm_srli_si128(v, 8)));
}

RLW_X86_INLINE void rlw_store_4x16_as_u32(uint32_t *out, uint64_t v) {
    _mm_storeu_si128((__m128i *)out, _mm_cvtepu16_epi32(_mm_cvtsi64_si128((int64_t)v)));
}

RLW_X86_INLINE void rlw_store_4x16_as_u64(uint64_t *out, uint64_t v) {
    _mm256_storeu_si256((__m256i *)out, _mm256_cvtepu16_epi64(_mm_cvtsi64_si128((int64_t)v)));
}

/* Converts sixteen varints of two bytes each to 16 bits each. */
RLW_X86_INLINE __m256i rlw_join_two_bytes(__m256i bytes) {
    return _mm256_maddubs_epi16(_mm256_set1_epi16((short)0x8001), /* low byte + 128 * high byte */
                                _mm256_and_si256(bytes, _mm256_set1_epi8(0x7F)));
}

/* Checks a block that starts with a varint: -1 if one exceeds ten bytes or 64 bits, 1 if one has more
 * than eight bytes, else 0. */
RLW_X86_INLINE int rlw_long_varints(__m256i low, __m256i high, uint64_t more) {
    const __m256i one = _mm256_set1_epi8(1);
    uint64_t runs = more & more >> 1, above;
    runs &= runs >> 2;
    runs &= runs >> 4; /* starts of eight bytes in a row that do not end a varint */
    if (!runs) return 0;
    above = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(low, one)) |
            (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(high, one)) << 32;
    /* The tenth byte of a varint must end it and be 0 or 1. */
    return (runs & more >> 8) << 9 & (above | more) ? -1 : 1;
}

/* Returns the low eight bytes of a varint of `size` bytes. */
RLW_X86_INLINE uint64_t rlw_unpack_one(const uint8_t *p, unsigned size, int is_wide) {
    uint64_t data = is_wide ? RLW_DATA_BITS : RLW_DATA_BITS >> 24;
    return _pext_u64(rlw_load_word(p), _bzhi_u64(data, 8 * size));
}

/* Work on blocks of 64 bytes. `more` has a bit for each byte that does not end a varint. */
#define RLW_UNPACK_X86(NAME, REST, TYPE, STORE_8, STORE_4, IS_WIDE) \
    /* Reads varints that end at the bits of `stops`. Four at a time: later stores overwrite what \
     * was read past the last. */ \
    RLW_X86_INLINE void NAME##_block(const uint8_t *p, uint64_t stops, TYPE *out) { \
        const uint8_t *block = p; \
        int k, j, count = (int)_mm_popcnt_u64(stops); \
        for (k = 0; k < count; k += 4) { \
            for (j = k; j < k + 4; j++) { \
                const uint8_t *next = block + _tzcnt_u64(stops) + 1; \
                out[j] = (TYPE)rlw_unpack_one(p, (unsigned)(next - p), IS_WIDE); \
                stops = _blsr_u64(stops); \
                p = next; \
            } \
        } \
    } \
    /* Does the same if some have more than eight bytes. */ \
    RLW_X86_INLINE void NAME##_long_block(const uint8_t *p, uint64_t stops, TYPE *out) { \
        const uint8_t *block = p; \
        do { \
            const uint8_t *next = block + _tzcnt_u64(stops) + 1; \
            unsigned size = (unsigned)(next - p); \
            uint64_t v = rlw_unpack_one(p, size, IS_WIDE); \
            if (size > 8) /* seven bits of the ninth byte, and one of the tenth if any */ \
                v |= _pext_u64(rlw_load_word(p + 8), _bzhi_u64(0x17F, 8 * size - 64)) << 56; \
            *out++ = (TYPE)v; \
            stops = _blsr_u64(stops); \
            p = next; \
        } while (stops); \
    } \
    RLW_X86 static inline const uint8_t *NAME(const uint8_t *p, const uint8_t *end, TYPE *out, \
                                              const TYPE *out_end) { \
        while (end - p >= 64 + 16 && out_end - out >= 64) { \
            __m256i low = rlw_load_256(p), high = rlw_load_256(p + 32); \
            uint64_t more = (uint32_t)_mm256_movemask_epi8(low) | \
                            (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32; \
            int k; \
            if ((uint32_t)more == 0x55555555) { \
                __m256i v = rlw_join_two_bytes(low); \
                STORE_8(out, _mm256_castsi256_si128(v)); \
                STORE_8(out + 8, _mm256_extracti128_si256(v, 1)); \
                out += 16; \
                p += 32; \
                if (more >> 32 != 0x55555555) continue; \
                v = rlw_join_two_bytes(high); \
                STORE_8(out, _mm256_castsi256_si128(v)); \
                STORE_8(out + 8, _mm256_extracti128_si256(v, 1)); \
                out += 16; \
                p += 32; \
            } else if (more == 0) { \
                for (k = 0; k < 64; k += 8) \
                    STORE_8(out + k, \
                            _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(p + k)))); \
                out += 64; \
                p += 64; \
            } else if ((more & more >> 1) == 0) { \
                /* One or two bytes each; the bits of `twos` tell which, in order. */ \
                uint64_t stops = ~more, starts = stops << 1 | 1; \
                uint64_t twos = _pext_u64(more, starts); \
                for (k = (int)_mm_popcnt_u64(stops) / 4; k; k--) { \
                    uint64_t four = _pdep_u64(twos, UINT64_C(0x0080008000800080)); \
                    uint64_t bits = _pext_u64(rlw_load_word(p), RLW_DATA_BITS); \
                    STORE_4(out, _pdep_u64(bits, UINT64_C(0x007F007F007F007F) | four * 0x7F)); \
                    p += 4 + _mm_popcnt_u32((unsigned)twos & 15); \
                    twos >>= 4; \
                    out += 4; \
                } \
            } else { \
                int long_ = rlw_long_varints(low, high, more); \
                if (long_ < 0) break; /* invalid: the portable code finds which */ \
                if (IS_WIDE && long_) \
                    NAME##_long_block(p, ~more, out); \
                else \
                    NAME##_block(p, ~more, out); \
                p += 64 - _lzcnt_u64(~more); \
                out += _mm_popcnt_u64(~more); \
            } \
        } \
        return REST(p, end, out, out_end); \
    }
RLW_UNPACK_X86(rlw_varints_unpack_u32_x86, rlw_varints_unpack_u32_portable, uint32_t,
               rlw_store_8x16_as_u32, rlw_store_4x16_as_u32, 0)
RLW_UNPACK_X86(rlw_varints_unpack_u64_x86, rlw_varints_unpack_u64_portable, uint64_t,
               rlw_store_8x16_as_u64, rlw_store_4x16_as_u64, 1)
#undef RLW_UNPACK_X86

#undef RLW_X86
#undef RLW_X86_INLINE

#endif
#endif
