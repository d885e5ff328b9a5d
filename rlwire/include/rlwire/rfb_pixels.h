/* RFB's pixels: copies rows of them to a screen, and paints runs and fills of one colour.
 *
 * The client sets one format (RFC 6143, section 7.4): 32 bits, depth 24, in memory red, green, blue
 * and an unused byte. A PIXEL has these four bytes, ZRLE's CPIXEL and Tight's TPIXEL the first three.
 * A screen has three bytes per pixel. The caller checks that rectangles are within the screen. */
#ifndef RLWIRE_RFB_PIXELS_H
#define RLWIRE_RFB_PIXELS_H

#include <stddef.h>

#include "endian.h"
#include "rfb_pixels_x86.h"

typedef struct rlw_rfb_screen {
    uint8_t *pixels;
    size_t stride; /* bytes from row to row */
    uint32_t width, height;
} rlw_rfb_screen;

/* A colour is R | G << 8 | B << 16, the order of its bytes in memory. */
static inline uint32_t rlw_rfb_colour(const uint8_t *rgb) {
    return (uint32_t)rgb[0] | (uint32_t)rgb[1] << 8 | (uint32_t)rgb[2] << 16;
}

static inline void rlw_rfb_dot(uint8_t *to, uint32_t colour) {
    to[0] = (uint8_t)colour;
    to[1] = (uint8_t)(colour >> 8);
    to[2] = (uint8_t)(colour >> 16);
}

static inline uint8_t *rlw_rfb_spot(const rlw_rfb_screen *s, uint32_t x, uint32_t y) {
    return s->pixels + (size_t)y * s->stride + (size_t)x * 3;
}

/* Converts 4 bytes per pixel to 3, four pixels at a time. */
static inline void rlw_rfb_three(uint8_t *to, const uint8_t *from, size_t count) {
    size_t i = 0;
#ifdef RLW_RFB_X86
    if (rlw_rfb_has_ssse3()) {
        i = rlw_rfb_three_ssse3(to, from, count);
        from += 4 * i;
        to += 3 * i;
    }
#endif
    for (; i + 4 <= count; i += 4, from += 16, to += 12) {
        uint32_t w[4];
        int k;
        for (k = 0; k < 4; k++) w[k] = rlw_load_u32le(from + 4 * k) & 0xFFFFFF;
        rlw_store_u32le(to, w[0] | w[1] << 24);
        rlw_store_u32le(to + 4, w[1] >> 8 | w[2] << 16);
        rlw_store_u32le(to + 8, w[2] >> 16 | w[3] << 8);
    }
    for (; i < count; i++, from += 4, to += 3) memcpy(to, from, 3);
}

/* Copies rows of pixels of `size` bytes, 3 or 4, that are `from_stride` bytes apart. */
static inline void rlw_rfb_rows(const rlw_rfb_screen *s, uint32_t x, uint32_t y,
                                const uint8_t *from, size_t from_stride, unsigned size,
                                uint32_t width, uint32_t height) {
    uint8_t *to = rlw_rfb_spot(s, x, y);
#ifdef RLW_RFB_X86
    if (size == 4 && rlw_rfb_has_vbmi()) {
        rlw_rfb_three_vbmi(to, s->stride, from, from_stride, width, height);
        return;
    }
#endif
    for (; height; height--, from += from_stride, to += s->stride) {
        if (size == 4) rlw_rfb_three(to, from, width);
        else memcpy(to, from, 3 * (size_t)width);
    }
}

/* Stores the same pixel 16 times, in words that start anywhere within a pixel. */
static inline void rlw_rfb_sixteen(uint8_t to[48], uint64_t c) {
    uint64_t first = c | c << 24 | c << 48, second = c >> 16 | c << 8 | c << 32 | c << 56;
    uint64_t third = c >> 8 | c << 16 | c << 40;
    int i;
    for (i = 0; i < 48; i += 24) {
        rlw_store_u64le(to + i, first);
        rlw_store_u64le(to + i + 8, second);
        rlw_store_u64le(to + i + 16, third);
    }
}

/* Copies 6 to 48 bytes in fixed sizes that may overlap. */
static inline void rlw_rfb_copy_few(uint8_t *to, const uint8_t *from, size_t size) {
    if (size >= 16) {
        memcpy(to, from, 16);
        if (size > 32) memcpy(to + 16, from + 16, 16);
        memcpy(to + size - 16, from + size - 16, 16);
    } else if (size >= 8) {
        memcpy(to, from, 8);
        memcpy(to + size - 8, from + size - 8, 8);
    } else {
        memcpy(to, from, 4);
        memcpy(to + size - 4, from + size - 4, 4);
    }
}

/* Paints a run of one colour. */
static inline void rlw_rfb_run(uint8_t *to, uint32_t colour, size_t count) {
    if (count < 6) {
        for (; count > 1; count--, to += 3) rlw_store_u32le(to, colour); /* one extra byte */
        if (count) rlw_rfb_dot(to, colour);
    } else {
        uint8_t many[48];
        rlw_rfb_sixteen(many, colour);
        for (; count >= 18; count -= 16, to += 48) memcpy(to, many, 48);
        if (count > 16) {
            memcpy(to, many, 3);
            count--, to += 3;
        }
        rlw_rfb_copy_few(to, many, 3 * count);
    }
}

static inline void rlw_rfb_fill(const rlw_rfb_screen *s, uint32_t x, uint32_t y, uint32_t width,
                                uint32_t height, uint32_t colour) {
    const size_t size = (size_t)width * 3;
    uint8_t *first, *to;
    if (!width || !height) return;
    first = to = rlw_rfb_spot(s, x, y);
    rlw_rfb_run(to, colour, width);
    for (; height > 1; height--) {
        to += s->stride;
        if (size >= 6 && size <= 48) rlw_rfb_copy_few(to, first, size);
        else memcpy(to, first, size);
    }
}

#endif
