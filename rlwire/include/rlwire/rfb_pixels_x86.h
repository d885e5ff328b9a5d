/* RFB's rows of pixels by byte shuffles, with SSSE3 and with AVX-512's VBMI. rfb_pixels.h and rfb.h
 * choose them at run time.
 *
 * Defines RLW_RFB_X86 if the compiler supports them, else nothing. Functions access only the pixels
 * that they are given.
 */
#ifndef RLWIRE_RFB_PIXELS_X86_H
#define RLWIRE_RFB_PIXELS_X86_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__) && !defined(RLW_NO_SIMD)
#define RLW_RFB_X86 1

#include <immintrin.h>

#define RLW_SSSE3 __attribute__((target("ssse3")))
#define RLW_VBMI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define RLW_VBMI_INLINE RLW_VBMI static inline __attribute__((always_inline))

static inline int rlw_rfb_has_ssse3(void) { return __builtin_cpu_supports("ssse3") != 0; }

static inline int rlw_rfb_has_vbmi(void) {
    return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

/* ---- 4 bytes per pixel to their first 3 ---- */

/* Returns how many pixels were converted: all but the last few. Of each 16 bytes stored, 12 are
 * valid; the other four belong to the next two pixels of the row, which overwrite them. */
RLW_SSSE3 static inline size_t rlw_rfb_three_ssse3(uint8_t *to, const uint8_t *from, size_t count) {
    const __m128i order = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    size_t left = count;
    for (; left >= 18; left -= 16, from += 64, to += 48) {
        int k;
        for (k = 0; k < 4; k++)
            _mm_storeu_si128((__m128i *)(to + 12 * k),
                             _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(from + 16 * k)),
                                              order));
    }
    for (; left >= 6; left -= 4, from += 16, to += 12)
        _mm_storeu_si128((__m128i *)to,
                         _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)from), order));
    return count - left;
}

RLW_VBMI_INLINE __mmask64 rlw_rfb_first(uint64_t bytes) {
    return bytes >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << bytes) - 1;
}

/* Converts whole rows. */
RLW_VBMI static inline void rlw_rfb_three_vbmi(uint8_t *to, size_t stride, const uint8_t *from,
                                               size_t from_stride, size_t width, size_t height) {
    static const uint8_t places[64] = {
        0,  1,  2,  4,  5,  6,  8,  9,  10, 12, 13, 14, 16, 17, 18, 20, 21, 22, 24, 25, 26, 28,
        29, 30, 32, 33, 34, 36, 37, 38, 40, 41, 42, 44, 45, 46, 48, 49, 50, 52, 53, 54, 56, 57,
        58, 60, 61, 62,
    };
    const __m512i order = _mm512_loadu_si512(places);
    const __mmask64 some = rlw_rfb_first(4 * (width % 16)), rest = rlw_rfb_first(3 * (width % 16));
    for (; height; height--, from += from_stride, to += stride) {
        size_t i;
        for (i = 0; i + 16 <= width; i += 16)
            _mm512_mask_storeu_epi8(
                to + 3 * i, rlw_rfb_first(48),
                _mm512_permutexvar_epi8(order, _mm512_loadu_si512(from + 4 * i)));
        if (some)
            _mm512_mask_storeu_epi8(
                to + 3 * i, rest,
                _mm512_permutexvar_epi8(order, _mm512_maskz_loadu_epi8(some, from + 4 * i)));
    }
}

/* ---- indices to pixels of three bytes, 64 at a time ---- */

typedef struct rlw_rfb_shuffles { /* constants for unpacking, look-up and interleaving */
    __m512i gather, shifts, mask, limit, order[3], table[3][4];
} rlw_rfb_shuffles;

RLW_VBMI_INLINE void rlw_rfb_prepare_vbmi(rlw_rfb_shuffles *s, unsigned bits,
                                          const uint32_t *values, unsigned colours) {
    /* The pixel of each byte of three vectors, plus 64 for green. */
    static const uint8_t order[192] = {
        0, 64, 0, 1, 65, 1, 2, 66, 2, 3, 67, 3, 4, 68, 4, 5, 69, 5, 6, 70, 6, 7, 71, 7, 8, 72, 8,
        9, 73, 9, 10, 74, 10, 11, 75, 11, 12, 76, 12, 13, 77, 13, 14, 78, 14, 15, 79, 15, 16, 80,
        16, 17, 81, 17, 18, 82, 18, 19, 83, 19, 20, 84, 20, 21, 85, 21, 22, 86, 22, 23, 87, 23, 24,
        88, 24, 25, 89, 25, 26, 90, 26, 27, 91, 27, 28, 92, 28, 29, 93, 29, 30, 94, 30, 31, 95, 31,
        32, 96, 32, 33, 97, 33, 34, 98, 34, 35, 99, 35, 36, 100, 36, 37, 101, 37, 38, 102, 38, 39,
        103, 39, 40, 104, 40, 41, 105, 41, 42, 106, 42, 43, 107, 43, 44, 108, 44, 45, 109, 45, 46,
        110, 46, 47, 111, 47, 48, 112, 48, 49, 113, 49, 50, 114, 50, 51, 115, 51, 52, 116, 52, 53,
        117, 53, 54, 118, 54, 55, 119, 55, 56, 120, 56, 57, 121, 57, 58, 122, 58, 59, 123, 59, 60,
        124, 60, 61, 125, 61, 62, 126, 62, 63, 127, 63,
    };
    /* The first bit of each of eight pixels, in a word's lowest 8 * bits bits. */
    const uint64_t begins = bits == 1   ? UINT64_C(0x0001020304050607)
                            : bits == 2 ? UINT64_C(0x080A0C0E00020406)
                                        : UINT64_C(0x181C1014080C0004);
    const uint64_t step = UINT64_C(0x0101010101010101) * bits;
    uint8_t bytes[3][256];
    unsigned i, k;
    s->gather = _mm512_add_epi8(
        _mm512_set1_epi64(0x0706050403020100),
        _mm512_setr_epi64(0, (long long)step, (long long)(2 * step), (long long)(3 * step),
                          (long long)(4 * step), (long long)(5 * step), (long long)(6 * step),
                          (long long)(7 * step)));
    s->shifts = _mm512_set1_epi64((long long)begins);
    s->mask = _mm512_set1_epi8((char)((1u << bits) - 1));
    s->limit = _mm512_set1_epi8((char)(colours - 1));
    for (k = 0; k < 3; k++) s->order[k] = _mm512_loadu_si512(order + 64 * k);
    if (colours <= 16) {
        __m512i v = _mm512_maskz_loadu_epi32((__mmask16)rlw_rfb_first(colours), values);
        for (k = 0; k < 3; k++, v = _mm512_srli_epi32(v, 8))
            s->table[k][0] = _mm512_zextsi128_si512(_mm512_cvtepi32_epi8(v));
        return;
    }
    for (i = 0; i < (colours + 63) / 64 * 64; i += 16) {
        unsigned some = i >= colours ? 0 : colours - i < 16 ? colours - i : 16;
        __m512i v = _mm512_maskz_loadu_epi32((__mmask16)rlw_rfb_first(some), values + i);
        for (k = 0; k < 3; k++, v = _mm512_srli_epi32(v, 8))
            _mm_storeu_si128((__m128i *)(bytes[k] + i), _mm512_cvtepi32_epi8(v));
    }
    for (k = 0; k < 3; k++)
        for (i = 0; i < (colours + 63) / 64; i++)
            s->table[k][i] = _mm512_loadu_si512(bytes[k] + 64 * i);
    if (i == 3)
        for (k = 0; k < 3; k++) s->table[k][3] = _mm512_setzero_si512();
}

/* Looks up one colour component of 64 pixels, in `tables` tables of 64 entries. */
RLW_VBMI_INLINE __m512i rlw_rfb_look_up(const __m512i *table, const unsigned tables, __m512i v) {
    __m512i low, high;
    if (tables == 1) return _mm512_permutexvar_epi8(v, table[0]);
    low = _mm512_permutex2var_epi8(table[0], v, table[1]);
    if (tables == 2) return low;
    high = _mm512_permutex2var_epi8(table[2], v, table[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), low, high);
}

/* Paints up to 64 pixels; returns a mask of those whose index has no colour. */
RLW_VBMI_INLINE __mmask64 rlw_rfb_64_vbmi(const rlw_rfb_shuffles *s, uint8_t *to,
                                          const uint8_t *from, unsigned count, const unsigned bits,
                                          const unsigned tables) {
    __m512i v = _mm512_maskz_loadu_epi8(rlw_rfb_first((count * bits + 7) / 8), from), of[3];
    int k;
    if (bits != 8)
        v = _mm512_and_si512(_mm512_multishift_epi64_epi8(
                                 s->shifts, _mm512_permutexvar_epi8(s->gather, v)),
                             s->mask);
    for (k = 0; k < 3; k++) of[k] = rlw_rfb_look_up(s->table[k], tables, v);
    for (k = 0; k < 3; k++) {
        const __mmask64 blue = k == 0   ? UINT64_C(0x4924924924924924)
                               : k == 1 ? UINT64_C(0x2492492492492492)
                                        : UINT64_C(0x9249249249249249);
        __m512i out = _mm512_permutex2var_epi8(of[0], s->order[k], of[1]);
        out = _mm512_mask_permutexvar_epi8(out, blue, s->order[k], of[2]);
        if (count == 64)
            _mm512_storeu_si512(to + 64 * k, out);
        else if (3 * count > 64u * (unsigned)k)
            _mm512_mask_storeu_epi8(to + 64 * k, rlw_rfb_first(3 * count - 64 * (unsigned)k), out);
    }
    return _mm512_mask_cmpgt_epu8_mask(rlw_rfb_first(count), v, s->limit);
}

RLW_VBMI_INLINE uint32_t rlw_rfb_rows_vbmi(const rlw_rfb_shuffles *s, uint8_t *to, size_t stride,
                                           const uint8_t *from, uint32_t width, uint32_t height,
                                           const unsigned bits, const unsigned tables) {
    const size_t row = ((size_t)width * bits + 7) / 8;
    uint32_t y, x;
    for (y = 0; y < height; y++, from += row, to += stride) {
        __mmask64 without = 0;
        for (x = 0; x + 64 <= width; x += 64)
            without |= rlw_rfb_64_vbmi(s, to + 3 * (size_t)x, from + (size_t)x * bits / 8, 64, bits,
                                       tables);
        if (x < width)
            without |= rlw_rfb_64_vbmi(s, to + 3 * (size_t)x, from + (size_t)x * bits / 8,
                                       width - x, bits, tables);
        if (without) return y;
    }
    return height;
}

/* Paints rows of indices of 1, 2, 4 or 8 bits. `values` has the colours, red in the lowest byte.
 * Returns how many rows had valid indices only. */
RLW_VBMI static inline uint32_t rlw_rfb_indices_vbmi(uint8_t *to, size_t stride,
                                                     const uint8_t *from, uint32_t width,
                                                     uint32_t height, unsigned bits,
                                                     const uint32_t *values, unsigned colours) {
    rlw_rfb_shuffles s;
    rlw_rfb_prepare_vbmi(&s, bits, values, colours);
    switch (bits) {
    case 1: return rlw_rfb_rows_vbmi(&s, to, stride, from, width, height, 1, 1);
    case 2: return rlw_rfb_rows_vbmi(&s, to, stride, from, width, height, 2, 1);
    case 4: return rlw_rfb_rows_vbmi(&s, to, stride, from, width, height, 4, 1);
    default: break;
    }
    if (colours <= 64) return rlw_rfb_rows_vbmi(&s, to, stride, from, width, height, 8, 1);
    if (colours <= 128) return rlw_rfb_rows_vbmi(&s, to, stride, from, width, height, 8, 2);
    return rlw_rfb_rows_vbmi(&s, to, stride, from, width, height, 8, 4);
}

/* ---- Hextile's tiles ---- */

/* Paints subrectangles into a tile, `step` bytes each: a colour if there is room for one, then two bytes
 * of position. Returns whether any is outside of width and height. */
RLW_VBMI static inline unsigned rlw_rfb_subrects_vbmi(uint32_t tile[32][32], const uint8_t *at,
                                                      unsigned count, unsigned step,
                                                      uint32_t colour, unsigned width,
                                                      unsigned height) {
    unsigned outside = 0;
    for (; count; count--, at += step) {
        const uint8_t *place = at + step - 2;
        const unsigned left = place[0] >> 4, top = place[0] & 15u;
        const unsigned more = place[1] >> 4, high = place[1] & 15u;
        const __mmask16 mask = (__mmask16)((2u << more) - 1);
        uint32_t *to = &tile[top][left];
        __m512i v;
        unsigned i;
        if (step > 2) memcpy(&colour, at, 4);
        outside |= (left + more >= width) | (top + high >= height);
        v = _mm512_set1_epi32((int)colour);
        _mm512_mask_storeu_epi32(to, mask, v);
        for (i = 1; i <= high; i++) _mm512_mask_storeu_epi32(to + 32 * i, mask, v);
    }
    return outside;
}
#endif

#endif
