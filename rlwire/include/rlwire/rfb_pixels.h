/* RFB's pixels: formats (RFC 6143, section 7.4), rows of them into rows of a screen, and runs and
 * fills of one colour. Nothing here checks a place: rfb.h does. */
#ifndef RLWIRE_RFB_PIXELS_H
#define RLWIRE_RFB_PIXELS_H

#include <stddef.h>

#include "endian.h"
#include "rfb_pixels_x86.h"

typedef struct rlw_rfb_format { /* section 7.4; red, green, blue */
    uint8_t bits;               /* 8, 16 or 32 */
    uint8_t depth;
    uint8_t big_endian;
    uint8_t shift[3];
    uint16_t max[3]; /* 2**n - 1 each */
} rlw_rfb_format;

/* How pixels lie in the bytes of one encoding: PIXEL, ZRLE's CPIXEL, Tight's TPIXEL. */
typedef struct rlw_rfb_layout {
    uint8_t size;  /* bytes of a pixel */
    uint8_t whole; /* a byte for each colour, at at[0], at[1], at[2] */
    uint8_t at[3];
    uint8_t lift; /* bits by which the value is below that of a PIXEL */
} rlw_rfb_layout;

typedef struct rlw_rfb_layouts { /* what rlw_rfb_prepare() makes of a format */
    rlw_rfb_format format;
    rlw_rfb_layout pixel, cpixel, tpixel;
    uint8_t scaled[3][256]; /* of a colour whose max is below 256, what it is of 255 */
} rlw_rfb_layouts;

typedef struct rlw_rfb_screen {
    uint8_t *pixels;
    size_t stride; /* bytes from row to row */
    uint32_t width, height;
    unsigned channels; /* 3 or 4 */
} rlw_rfb_screen;

typedef struct rlw_rfb_rgba {
    uint8_t of[4]; /* red, green, blue, 255 */
} rlw_rfb_rgba;

static inline uint8_t rlw_rfb_to_255(uint32_t value, uint32_t max) {
    return (uint8_t)((value * 255u + max / 2) / max);
}

/* `format` is of true colour with 8, 16 or 32 bits: each colour's highest value is one less than a
 * power of two, and within bits of its own. */
static inline void rlw_rfb_prepare(rlw_rfb_layouts *p, const rlw_rfb_format *format) {
    const rlw_rfb_format *f = &p->format;
    uint32_t used = 0;
    int i, all = 1;
    p->format = *format;
    p->pixel.size = (uint8_t)(f->bits / 8);
    p->pixel.lift = 0;
    for (i = 0; i < 3; i++) {
        uint32_t v;
        used |= (uint32_t)f->max[i] << f->shift[i];
        all &= f->max[i] == 255;
        p->pixel.at[i] = (uint8_t)(f->big_endian ? p->pixel.size - 1 - f->shift[i] / 8
                                                 : f->shift[i] / 8);
        for (v = 0; v < 256; v++)
            p->scaled[i][v] = f->max[i] < 256 && v <= f->max[i] ? rlw_rfb_to_255(v, f->max[i]) : 0;
    }
    p->pixel.whole = (uint8_t)(all && f->shift[0] % 8 == 0 && f->shift[1] % 8 == 0 &&
                               f->shift[2] % 8 == 0);
    p->cpixel = p->tpixel = p->pixel;
    if (f->bits == 32 && f->depth <= 24 && (!(used >> 24) || !(used & 255))) { /* 7.7.5 */
        int high = used >> 24 != 0;
        p->cpixel.size = 3;
        p->cpixel.lift = high ? 8 : 0;
        if ((high != 0) != (f->big_endian != 0)) /* the byte that is left out stands first */
            for (i = 0; i < 3; i++) p->cpixel.at[i]--;
    }
    if (f->bits == 32 && f->depth == 24 && all) {
        p->tpixel.size = 3;
        p->tpixel.whole = 1;
        for (i = 0; i < 3; i++) p->tpixel.at[i] = (uint8_t)i;
    }
}

/* The value of a pixel that is not whole, as the format's shifts ask for it. */
static inline uint32_t rlw_rfb_value(const rlw_rfb_layouts *p, const rlw_rfb_layout *l,
                                     const uint8_t *from) {
    uint32_t v = 0;
    unsigned i;
    if (p->format.big_endian)
        for (i = 0; i < l->size; i++) v = v << 8 | from[i];
    else
        for (i = l->size; i-- > 0;) v = v << 8 | from[i];
    return v << l->lift;
}

static inline uint8_t rlw_rfb_component(const rlw_rfb_layouts *p, int i, uint32_t value) {
    const rlw_rfb_format *f = &p->format;
    uint32_t v = value >> f->shift[i] & f->max[i];
    return f->max[i] < 256 ? p->scaled[i][v] : rlw_rfb_to_255(v, f->max[i]);
}

/* Kept out of rlw_rfb_colour_at, which then is inlined. */
static inline rlw_rfb_rgba rlw_rfb_mixed_at(const rlw_rfb_layouts *p, const rlw_rfb_layout *l,
                                            const uint8_t *from) {
    uint32_t v = rlw_rfb_value(p, l, from);
    rlw_rfb_rgba c;
    c.of[0] = rlw_rfb_component(p, 0, v);
    c.of[1] = rlw_rfb_component(p, 1, v);
    c.of[2] = rlw_rfb_component(p, 2, v);
    c.of[3] = 255;
    return c;
}

static inline rlw_rfb_rgba rlw_rfb_colour_at(const rlw_rfb_layouts *p, const rlw_rfb_layout *l,
                                             const uint8_t *from) {
    rlw_rfb_rgba c;
    if (!l->whole) return rlw_rfb_mixed_at(p, l, from);
    c.of[0] = from[l->at[0]];
    c.of[1] = from[l->at[1]];
    c.of[2] = from[l->at[2]];
    c.of[3] = 255;
    return c;
}

static inline uint8_t *rlw_rfb_spot(const rlw_rfb_screen *s, uint32_t x, uint32_t y) {
    return s->pixels + (size_t)y * s->stride + (size_t)x * s->channels;
}

/* 4 bytes a pixel to 3, four pixels at a time. `drop` is 8 where the unused byte stands first. */
static inline void rlw_rfb_three_portable(uint8_t *to, const uint8_t *from, size_t count, int swap,
                                         unsigned drop) {
    size_t i;
    for (i = 0; i + 4 <= count; i += 4, from += 16, to += 12) {
        uint32_t w[4];
        int k;
        for (k = 0; k < 4; k++) {
            uint32_t v = rlw_load_u32le(from + 4 * k) >> drop & 0xFFFFFF;
            w[k] = swap ? (v & 0xFF) << 16 | (v & 0xFF00) | v >> 16 : v;
        }
        rlw_store_u32le(to, w[0] | w[1] << 24);
        rlw_store_u32le(to + 4, w[1] >> 8 | w[2] << 16);
        rlw_store_u32le(to + 8, w[2] >> 16 | w[3] << 8);
    }
    for (; i < count; i++, from += 4, to += 3) {
        const uint8_t *p = from + drop / 8;
        to[0] = p[swap ? 2 : 0];
        to[1] = p[1];
        to[2] = p[swap ? 0 : 2];
    }
}

static inline void rlw_rfb_three(uint8_t *to, const uint8_t *from, size_t count, int swap,
                                unsigned drop) {
#ifdef RLW_RFB_X86
    if (rlw_rfb_has_ssse3()) {
        const unsigned low = drop / 8, high = low + 2;
        size_t done = rlw_rfb_three_ssse3(to, from, count, swap ? high : low, swap ? low : high);
        to += 3 * done;
        from += 4 * done;
        count -= done;
    }
#endif
    rlw_rfb_three_portable(to, from, count, swap, drop);
}

/* Whether rlw_rfb_three() is for it. */
static inline int rlw_rfb_is_three(const rlw_rfb_layout *l) {
    unsigned r = l->at[0], g = l->at[1], b = l->at[2], low = r < b ? r : b;
    return l->whole && l->size == 4 && g == low + 1 && r + b == 2 * low + 2;
}

/* A row of pixels as they lie in `from`. */
static inline void rlw_rfb_row(const rlw_rfb_layouts *p, const rlw_rfb_layout *l, unsigned channels,
                               uint8_t *to, const uint8_t *from, size_t count) {
    size_t i;
    if (l->whole) {
        unsigned r = l->at[0], g = l->at[1], b = l->at[2], size = l->size;
        if (channels == 3) {
            if (size == 3 && r == 0 && g == 1 && b == 2) {
                memcpy(to, from, 3 * count);
            } else if (rlw_rfb_is_three(l)) {
                rlw_rfb_three(to, from, count, r > b, 8 * (r < b ? r : b));
            } else {
                for (i = 0; i < count; i++, to += 3, from += size) {
                    to[0] = from[r];
                    to[1] = from[g];
                    to[2] = from[b];
                }
            }
        } else {
            for (i = 0; i < count; i++, to += 4, from += size) {
                to[0] = from[r];
                to[1] = from[g];
                to[2] = from[b];
                to[3] = 255;
            }
        }
        return;
    }
    for (i = 0; i < count; i++, to += channels, from += l->size) {
        rlw_rfb_rgba c = rlw_rfb_colour_at(p, l, from);
        memcpy(to, c.of, 3);
        if (channels == 4) to[3] = 255;
    }
}

/* Rows that begin `from_stride` bytes from each other, to a place on the screen. */
static inline void rlw_rfb_rows(const rlw_rfb_layouts *p, const rlw_rfb_layout *l,
                                const rlw_rfb_screen *s, uint32_t x, uint32_t y,
                                const uint8_t *from, size_t from_stride, uint32_t width,
                                uint32_t height) {
    uint8_t *to = rlw_rfb_spot(s, x, y);
#ifdef RLW_RFB_X86
    if (s->channels == 3 && rlw_rfb_is_three(l) && rlw_rfb_has_vbmi()) {
        rlw_rfb_three_vbmi(to, s->stride, from, from_stride, width, height, l->at[0], l->at[2]);
        return;
    }
#endif
    for (; height; height--, from += from_stride, to += s->stride)
        rlw_rfb_row(p, l, s->channels, to, from, width);
}

static inline uint64_t rlw_rfb_bits(rlw_rfb_rgba colour) { /* red is the lowest byte of three */
    return (uint64_t)colour.of[0] | (uint64_t)colour.of[1] << 8 | (uint64_t)colour.of[2] << 16;
}

/* 16 times the same pixel of three bytes: any part of it goes where that part goes. */
static inline void rlw_rfb_sixteen(uint8_t to[48], rlw_rfb_rgba colour) {
    uint64_t c = rlw_rfb_bits(colour);
    uint64_t first = c | c << 24 | c << 48, second = c >> 16 | c << 8 | c << 32 | c << 56;
    uint64_t third = c >> 8 | c << 16 | c << 40;
    rlw_store_u64le(to, first);
    rlw_store_u64le(to + 8, second);
    rlw_store_u64le(to + 16, third);
    rlw_store_u64le(to + 24, first);
    rlw_store_u64le(to + 32, second);
    rlw_store_u64le(to + 40, third);
}

/* 6 to 48 bytes, in pieces of fixed sizes that may overlap. */
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

/* The same pixel, many times. */
static inline void rlw_rfb_run(unsigned channels, uint8_t *to, rlw_rfb_rgba colour, size_t count) {
    if (channels == 4) {
        for (; count; count--, to += 4) memcpy(to, colour.of, 4);
    } else if (count < 6) {
        for (; count > 1; count--, to += 3) memcpy(to, colour.of, 4); /* one byte too many */
        if (count) memcpy(to, colour.of, 3);
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

/* A small rectangle with three channels, 1 to 16 pixels wide, as Hextile has thousands of. */
static inline void rlw_rfb_patch(uint8_t *to, size_t stride, uint32_t width, uint32_t height,
                                 rlw_rfb_rgba colour) {
    const uint64_t c = rlw_rfb_bits(colour), two = c | c << 24, first = two | c << 48;
    uint8_t many[48];
    switch (width) {
    case 1:
        for (; height; height--, to += stride) memcpy(to, colour.of, 3);
        return;
    case 2:
        for (; height; height--, to += stride) {
            rlw_store_u32le(to, (uint32_t)two);
            rlw_store_u32le(to + 2, (uint32_t)(two >> 16));
        }
        return;
    case 3:
        for (; height; height--, to += stride) {
            rlw_store_u64le(to, first);
            to[8] = colour.of[2];
        }
        return;
    case 4:
        for (; height; height--, to += stride) {
            rlw_store_u64le(to, first);
            rlw_store_u32le(to + 8, (uint32_t)(c >> 16 | c << 8));
        }
        return;
    default: break;
    }
    rlw_rfb_sixteen(many, colour);
    for (; height; height--, to += stride) rlw_rfb_copy_few(to, many, 3 * (size_t)width);
}

static inline void rlw_rfb_fill(const rlw_rfb_screen *s, uint32_t x, uint32_t y, uint32_t width,
                                uint32_t height, rlw_rfb_rgba colour) {
    uint8_t *first, *to;
    uint32_t i;
    if (!width || !height) return;
    first = to = rlw_rfb_spot(s, x, y);
    if (width <= 16 && s->channels == 3) {
        rlw_rfb_patch(to, s->stride, width, height, colour);
        return;
    }
    rlw_rfb_run(s->channels, to, colour, width);
    for (i = 1; i < height; i++) {
        to += s->stride;
        memcpy(to, first, (size_t)width * s->channels);
    }
}

/* One pixel; a fourth byte only where there are four. */
static inline void rlw_rfb_dot(unsigned channels, uint8_t *to, rlw_rfb_rgba colour) {
    memcpy(to, colour.of, 3);
    if (channels == 4) to[3] = 255;
}

#endif
