/* RFB (VNC) for a viewer: sizes of rectangles, and painting them (pixels: rfb_pixels.h).
 *
 * All pixel encodings of RFC 6143, section 7.7, except the obsolete ones, and Tight of rfbproto.rst.
 * The caller inflates and reads JPEG: rlw_rfb_paint_tight() and rlw_rfb_paint_zrle_tiles() take
 * inflated bytes. Nothing allocates. Every rectangle is checked against the screen before it is
 * painted, and every byte before it is read.
 */
#ifndef RLWIRE_RFB_H
#define RLWIRE_RFB_H

#include "cursor.h"
#include "rfb_pixels.h"

enum {
    RLW_RFB_RAW = 0,
    RLW_RFB_COPY_RECT = 1,
    RLW_RFB_RRE = 2,
    RLW_RFB_HEXTILE = 5,
    RLW_RFB_TIGHT = 7,
    RLW_RFB_ZRLE = 16,
    RLW_RFB_DESKTOP_SIZE = -223,
    RLW_RFB_LAST_RECT = -224
};

#define RLW_RFB_HEAD 12           /* bytes of a rectangle's head */
#define RLW_RFB_TIGHT_WIDEST 2048 /* pixels; the widest rectangle of Tight */
#define RLW_RFB_TIGHT_PLAIN 12    /* bytes; Tight does not compress fewer */
#define RLW_RFB_PIXEL 4           /* bytes */
#define RLW_RFB_PACKED 3          /* bytes of ZRLE's CPIXEL, Tight's TPIXEL, a screen's pixel */

/* ---- the size of a rectangle ---- */

typedef struct rlw_rfb_rectangle {
    uint32_t x, y, width, height;
    int32_t encoding;
} rlw_rfb_rectangle;

/* Progress of rlw_rfb_measure(), where the next call continues. */
typedef struct rlw_rfb_progress {
    size_t at;     /* bytes of the rectangle read so far */
    uint32_t tile; /* Hextile: the next tile */
} rlw_rfb_progress;

static inline rlw_status rlw_rfb_read_head(rlw_cursor *c, rlw_rfb_rectangle *out) {
    const uint8_t *p;
    uint32_t bits;
    RLW_TRY(rlw_take(c, RLW_RFB_HEAD, &p));
    out->x = rlw_load_u16be(p);
    out->y = rlw_load_u16be(p + 2);
    out->width = rlw_load_u16be(p + 4);
    out->height = rlw_load_u16be(p + 6);
    bits = rlw_load_u32be(p + 8);
    memcpy(&out->encoding, &bits, 4);
    return RLW_OK;
}

static inline int rlw_rfb_paints(int32_t encoding) {
    return encoding == RLW_RFB_RAW || encoding == RLW_RFB_COPY_RECT || encoding == RLW_RFB_RRE ||
           encoding == RLW_RFB_HEXTILE || encoding == RLW_RFB_TIGHT || encoding == RLW_RFB_ZRLE;
}

/* Checks that a rectangle is within the screen. `head` is the start of the rectangle's head. */
static inline rlw_status rlw_rfb_check_place(rlw_cursor *c, const uint8_t *head,
                                             const rlw_rfb_screen *s,
                                             const rlw_rfb_rectangle *r) {
    if ((uint64_t)r->x + r->width > s->width)
        return rlw_fail(c, RLW_BAD_PLACE, head, r->x + r->width, s->width);
    if ((uint64_t)r->y + r->height > s->height)
        return rlw_fail(c, RLW_BAD_PLACE, head + 2, r->y + r->height, s->height);
    return RLW_OK;
}

/* Returns how many pixels painting the rectangle writes; for RRE, also those of subrectangles. The
 * other encodings paint each pixel once, or need bytes for it. The cursor is behind the head. */
static inline uint64_t rlw_rfb_work(const rlw_cursor *c, const rlw_rfb_rectangle *r) {
    uint64_t pixels = (uint64_t)r->width * r->height;
    rlw_cursor ahead = *c;
    const uint8_t *at;
    uint32_t count;
    if (r->encoding != RLW_RFB_RRE || rlw_take(&ahead, 4 + RLW_RFB_PIXEL, &at) != RLW_OK)
        return pixels;
    count = rlw_load_u32be(at);
    if (rlw_take(&ahead, (uint64_t)count * (RLW_RFB_PIXEL + 8), &at) != RLW_OK) return pixels;
    for (at += 4 + RLW_RFB_PIXEL; count; count--, at += RLW_RFB_PIXEL + 8)
        pixels += (uint64_t)rlw_load_u16be(at) * rlw_load_u16be(at + 2);
    return pixels;
}

/* Reads Tight's compact length: seven bits in the first two bytes, eight in the third. */
static inline rlw_status rlw_rfb_take_compact(rlw_cursor *c, uint32_t *out) {
    uint8_t byte;
    unsigned i;
    *out = 0;
    for (i = 0; i < 3; i++) {
        RLW_TRY(rlw_take_u8(c, &byte));
        *out |= (uint32_t)(i < 2 ? byte & 0x7F : byte) << 7 * i;
        if (i < 2 && !(byte & 0x80)) break;
    }
    return RLW_OK;
}

enum { RLW_RFB_FILL = 8, RLW_RFB_JPEG = 9, RLW_RFB_BASIC = 0 };
enum { RLW_RFB_COPY = 0, RLW_RFB_PALETTE = 1, RLW_RFB_GRADIENT = 2 };

typedef struct rlw_rfb_tight {
    uint8_t resets; /* one bit for each of the four streams to reset */
    uint8_t kind;   /* RLW_RFB_FILL, RLW_RFB_JPEG or RLW_RFB_BASIC */
    uint8_t stream; /* this and the following fields: RLW_RFB_BASIC */
    uint8_t filter;
    uint8_t packed;   /* whether `data` is compressed */
    uint16_t colours; /* in the palette at `palette` */
    uint64_t need;    /* bytes of `data` after inflating */
    const uint8_t *palette;
    const uint8_t *data; /* or the colour of RLW_RFB_FILL, the file of RLW_RFB_JPEG */
    size_t size;         /* bytes of data on the wire */
} rlw_rfb_tight;

/* Reads a Tight rectangle after its head. */
static inline rlw_status rlw_rfb_read_tight(rlw_cursor *c, const rlw_rfb_rectangle *r,
                                            rlw_rfb_tight *t) {
    const uint8_t *control = c->at;
    uint32_t length = 0;
    uint8_t byte;
    memset(t, 0, sizeof *t);
    RLW_TRY(rlw_take_u8(c, &byte));
    t->resets = byte & 15;
    if (byte >> 4 > RLW_RFB_JPEG) return rlw_fail(c, RLW_BAD_SUBENCODING, control, byte, 0);
    if (byte >> 4 == RLW_RFB_FILL) {
        t->kind = RLW_RFB_FILL;
        t->size = RLW_RFB_PACKED;
        return rlw_take(c, RLW_RFB_PACKED, &t->data);
    }
    if (r->width > RLW_RFB_TIGHT_WIDEST)
        return rlw_fail(c, RLW_BAD_PLACE, control, r->width, RLW_RFB_TIGHT_WIDEST);
    if (byte >> 4 == RLW_RFB_JPEG) {
        t->kind = RLW_RFB_JPEG;
        RLW_TRY(rlw_rfb_take_compact(c, &length));
        t->size = length;
        return rlw_take(c, length, &t->data);
    }
    t->stream = byte >> 4 & 3;
    if (byte & 0x40) {
        const uint8_t *at = c->at;
        RLW_TRY(rlw_take_u8(c, &t->filter));
        if (t->filter > RLW_RFB_GRADIENT)
            return rlw_fail(c, RLW_BAD_SUBENCODING, at, t->filter, 0);
    }
    t->need = (uint64_t)r->width * r->height * RLW_RFB_PACKED;
    if (t->filter == RLW_RFB_PALETTE) {
        RLW_TRY(rlw_take_u8(c, &byte));
        t->colours = (uint16_t)(byte + 1);
        t->need = t->colours <= 2 ? (uint64_t)((r->width + 7) / 8) * r->height
                                  : (uint64_t)r->width * r->height;
        RLW_TRY(rlw_take(c, (uint64_t)t->colours * RLW_RFB_PACKED, &t->palette));
    }
    if (t->need >= RLW_RFB_TIGHT_PLAIN) {
        t->packed = 1;
        RLW_TRY(rlw_rfb_take_compact(c, &length));
    } else {
        length = (uint32_t)t->need;
    }
    t->size = length; /* set last: rlw_rfb_measure() reads it as "the size is known" */
    return rlw_take(c, t->size, &t->data);
}

static inline rlw_status rlw_rfb_measure_hextile(rlw_cursor *c, const rlw_rfb_rectangle *r,
                                                 rlw_rfb_progress *progress) {
    const uint8_t *start = c->at;
    uint32_t across = (r->width + 15) / 16, down = (r->height + 15) / 16;
    if (progress->at > rlw_left(c))
        return rlw_fail(c, RLW_NEED_MORE, start, progress->at, rlw_left(c));
    c->at += progress->at;
    for (; progress->tile < across * down; progress->tile++) {
        uint32_t row = progress->tile / across, column = progress->tile % across;
        uint32_t width = r->width - 16 * column, height = r->height - 16 * row;
        const uint8_t *tile = c->at, *skipped;
        uint32_t pixels;
        uint8_t mask, count;
        RLW_TRY(rlw_take_u8(c, &mask));
        if (mask & 0xE0) return rlw_fail(c, RLW_BAD_SUBENCODING, tile, mask, 0);
        width = width < 16 ? width : 16;
        height = height < 16 ? height : 16;
        pixels = mask & 1 ? width * height : (mask >> 1 & 1u) + (mask >> 2 & 1u);
        RLW_TRY(rlw_take(c, RLW_RFB_PIXEL * pixels, &skipped));
        if ((mask & 9) == 8) {
            RLW_TRY(rlw_take_u8(c, &count));
            RLW_TRY(rlw_take(c, count * (mask & 16 ? RLW_RFB_PIXEL + 2u : 2u), &skipped));
        }
        progress->at = (size_t)(c->at - start);
    }
    return RLW_OK;
}

static inline rlw_status rlw_rfb_measure_at(rlw_cursor *c, const rlw_rfb_screen *s,
                                            rlw_rfb_progress *progress, uint64_t *size) {
    const uint8_t *start = c->at, *at;
    rlw_rfb_rectangle r;
    rlw_rfb_tight tight;
    rlw_status status;
    uint32_t count;
    *size = RLW_RFB_HEAD;
    RLW_TRY(rlw_rfb_read_head(c, &r));
    if (rlw_rfb_paints(r.encoding)) RLW_TRY(rlw_rfb_check_place(c, start, s, &r));
    switch (r.encoding) {
    case RLW_RFB_RAW: *size += (uint64_t)r.width * r.height * RLW_RFB_PIXEL; break;
    case RLW_RFB_COPY_RECT: *size += 4; break;
    case RLW_RFB_DESKTOP_SIZE:
    case RLW_RFB_LAST_RECT: break;
    case RLW_RFB_RRE:
    case RLW_RFB_ZRLE:
        RLW_TRY(rlw_take(c, 4, &at));
        count = rlw_load_u32be(at);
        *size += 4;
        *size += r.encoding == RLW_RFB_ZRLE ? count
                                            : RLW_RFB_PIXEL + (uint64_t)count * (RLW_RFB_PIXEL + 8);
        break;
    case RLW_RFB_TIGHT:
        status = rlw_rfb_read_tight(c, &r, &tight);
        if (status != RLW_OK && !(status == RLW_NEED_MORE && tight.size)) return status;
        *size = (uint64_t)(c->at - start) + (status == RLW_OK ? 0 : tight.size);
        break;
    case RLW_RFB_HEXTILE:
        status = rlw_rfb_measure_hextile(c, &r, progress);
        *size += progress->at;
        return status;
    default: return rlw_fail(c, RLW_BAD_ENCODING, start + 8, rlw_load_u32be(start + 8), 0);
    }
    return RLW_OK;
}

/* Stores the size of the rectangle at c->at in `*size`, including its head.
 *
 * Returns RLW_NEED_MORE while the size is unknown. The caller then keeps `progress` for the next call,
 * and zeroes it for another rectangle. The cursor does not move. The size may be known before all
 * bytes have arrived. Rectangles that cannot be painted are rejected at once. */
static inline rlw_status rlw_rfb_measure(rlw_cursor *c, const rlw_rfb_screen *s,
                                         rlw_rfb_progress *progress, uint64_t *size) {
    const uint8_t *start = c->at;
    rlw_status status = rlw_rfb_measure_at(c, s, progress, size);
    c->at = start;
    return status;
}

/* ---- painting ----
 *
 * The caller has checked the rectangle with rlw_rfb_check_place(), and the cursor is behind the head.
 * After an error, pixels that were painted before it stay. */

static inline rlw_status rlw_rfb_paint_rows(rlw_cursor *c, const rlw_rfb_screen *s, unsigned size,
                                            uint32_t x, uint32_t y, uint32_t width,
                                            uint32_t height) {
    const uint8_t *from;
    size_t row = (size_t)width * size;
    RLW_TRY(rlw_take(c, (uint64_t)row * height, &from));
    rlw_rfb_rows(s, x, y, from, row, size, width, height);
    return RLW_OK;
}

static inline rlw_status rlw_rfb_paint_raw(rlw_cursor *c, const rlw_rfb_screen *s,
                                           const rlw_rfb_rectangle *r) {
    return rlw_rfb_paint_rows(c, s, RLW_RFB_PIXEL, r->x, r->y, r->width, r->height);
}

static inline rlw_status rlw_rfb_paint_copy(rlw_cursor *c, const rlw_rfb_screen *s,
                                            const rlw_rfb_rectangle *r) {
    const uint8_t *at;
    uint32_t x, y, i;
    size_t row = (size_t)r->width * 3;
    RLW_TRY(rlw_take(c, 4, &at));
    x = rlw_load_u16be(at);
    y = rlw_load_u16be(at + 2);
    if (x + r->width > s->width)
        return rlw_fail(c, RLW_BAD_PLACE, at, x + r->width, s->width);
    if (y + r->height > s->height)
        return rlw_fail(c, RLW_BAD_PLACE, at + 2, y + r->height, s->height);
    for (i = 0; i < r->height; i++) { /* from the end that is read before it is overwritten */
        uint32_t k = y < r->y ? r->height - 1 - i : i;
        memmove(rlw_rfb_spot(s, r->x, r->y + k), rlw_rfb_spot(s, x, y + k), row);
    }
    return RLW_OK;
}

static inline rlw_status rlw_rfb_paint_rre(rlw_cursor *c, const rlw_rfb_screen *s,
                                           const rlw_rfb_rectangle *r) {
    const uint8_t *at;
    uint32_t count;
    RLW_TRY(rlw_take(c, 4 + RLW_RFB_PIXEL, &at));
    count = rlw_load_u32be(at);
    rlw_rfb_fill(s, r->x, r->y, r->width, r->height, rlw_rfb_colour(at + 4));
    RLW_TRY(rlw_take(c, (uint64_t)count * (RLW_RFB_PIXEL + 8), &at));
    for (; count; count--, at += RLW_RFB_PIXEL + 8) {
        const uint8_t *place = at + RLW_RFB_PIXEL;
        uint32_t x = rlw_load_u16be(place), y = rlw_load_u16be(place + 2);
        uint32_t width = rlw_load_u16be(place + 4), height = rlw_load_u16be(place + 6);
        if (x + width > r->width)
            return rlw_fail(c, RLW_BAD_PLACE, place, x + width, r->width);
        if (y + height > r->height)
            return rlw_fail(c, RLW_BAD_PLACE, place + 2, y + height, r->height);
        rlw_rfb_fill(s, r->x + x, r->y + y, width, height, rlw_rfb_colour(at));
    }
    return RLW_OK;
}

/* Colours carried from tile to tile, with their four bytes as on the wire, and a tile. It has room
 * for subrectangles that a bad server places outside of it. */
typedef struct rlw_rfb_hextile {
    uint32_t back, front, tile[32][32];
} rlw_rfb_hextile;

/* Paints subrectangles of `step` bytes into the tile; returns whether any lies outside of it. */
static inline unsigned rlw_rfb_subrects(rlw_rfb_hextile *h, const uint8_t *at, unsigned count,
                                        unsigned step, unsigned width, unsigned height) {
    unsigned outside = 0;
    uint32_t colour = h->front;
#ifdef RLW_RFB_X86
    if (rlw_rfb_has_vbmi())
        return rlw_rfb_subrects_vbmi(h->tile, at, count, step, colour, width, height);
#endif
    for (; count; count--, at += step) {
        const uint8_t *place = at + step - 2;
        const unsigned left = place[0] >> 4, top = place[0] & 15u;
        const unsigned wide = (place[1] >> 4) + 1u, high = (place[1] & 15u) + 1u;
        unsigned x, y;
        if (step > 2) memcpy(&colour, at, 4);
        outside |= (left + wide > width) | (top + high > height);
        for (y = top; y < top + high; y++)
            for (x = left; x < left + wide; x++) h->tile[y][x] = colour;
    }
    return outside;
}

static inline rlw_status rlw_rfb_hextile_tile(rlw_cursor *c, const rlw_rfb_screen *s, uint32_t x,
                                              uint32_t y, uint32_t width, uint32_t height,
                                              rlw_rfb_hextile *h) {
    const uint8_t *tile = c->at, *at;
    uint8_t mask, count;
    unsigned step, i, k;
    RLW_TRY(rlw_take_u8(c, &mask));
    if (mask & 0xE0) return rlw_fail(c, RLW_BAD_SUBENCODING, tile, mask, 0);
    if (mask & 1) return rlw_rfb_paint_rows(c, s, RLW_RFB_PIXEL, x, y, width, height);
    if (mask & 2) {
        RLW_TRY(rlw_take(c, RLW_RFB_PIXEL, &at));
        memcpy(&h->back, at, 4);
    }
    if (mask & 4) {
        RLW_TRY(rlw_take(c, RLW_RFB_PIXEL, &at));
        memcpy(&h->front, at, 4);
    }
    if (!(mask & 8)) {
        rlw_rfb_fill(s, x, y, width, height, rlw_rfb_colour((const uint8_t *)&h->back));
        return RLW_OK;
    }
    step = mask & 16 ? RLW_RFB_PIXEL + 2u : 2u;
    RLW_TRY(rlw_take_u8(c, &count));
    RLW_TRY(rlw_take(c, count * step, &at));
    for (i = 0; i < height; i++)
        for (k = 0; k < 16; k++) h->tile[i][k] = h->back;
    if (rlw_rfb_subrects(h, at, count, step, width, height)) {
        for (;; at += step) { /* find it for the fault */
            const uint8_t *place = at + step - 2;
            const unsigned right = (place[0] >> 4) + (place[1] >> 4) + 1u;
            const unsigned bottom = (place[0] & 15u) + (place[1] & 15u) + 1u;
            if (right > width) return rlw_fail(c, RLW_BAD_PLACE, place, right, width);
            if (bottom > height) return rlw_fail(c, RLW_BAD_PLACE, place, bottom, height);
        }
    }
    rlw_rfb_rows(s, x, y, (const uint8_t *)h->tile, sizeof h->tile[0], RLW_RFB_PIXEL, width, height);
    return RLW_OK;
}

static inline rlw_status rlw_rfb_paint_hextile(rlw_cursor *c, const rlw_rfb_screen *s,
                                               const rlw_rfb_rectangle *r) {
    rlw_rfb_hextile h;
    uint32_t x, y;
    h.back = h.front = 0;
    for (y = 0; y < r->height; y += 16)
        for (x = 0; x < r->width; x += 16) {
            uint32_t width = r->width - x < 16 ? r->width - x : 16;
            uint32_t height = r->height - y < 16 ? r->height - y : 16;
            RLW_TRY(rlw_rfb_hextile_tile(c, s, r->x + x, r->y + y, width, height, &h));
        }
    return RLW_OK;
}

/* Converts a row of indices of `bits` bits, the first in a byte's highest ones, to pixels of three
 * bytes; returns the highest index. It stores two pixels at once; the two extra bytes belong to the next
 * pixel, which overwrites them. Inlined, `bits` is a constant. */
static inline unsigned rlw_rfb_indexed(uint8_t *to, const uint8_t *from, uint32_t width,
                                       const unsigned bits, const uint32_t *colours) {
    const unsigned mask = (1u << bits) - 1;
    unsigned most = 0, other = 0;
    uint32_t i = 0;
    for (; i + 3 <= width; i += 2, to += 6) {
        unsigned first, second;
        if (bits == 8) {
            first = from[i];
            second = from[i + 1];
        } else {
            unsigned byte = from[i * bits / 8], shift = 8 - 2 * bits - i * bits % 8;
            first = byte >> (shift + bits) & mask;
            second = byte >> shift & mask;
        }
        most = first > most ? first : most;
        other = second > other ? second : other;
        rlw_store_u64le(to, colours[first] | (uint64_t)colours[second] << 24);
    }
    for (; i < width; i++, to += 3) {
        const unsigned byte = from[i * bits / 8];
        const unsigned last = byte >> (8 - bits - i * bits % 8) & mask;
        most = last > most ? last : most;
        rlw_rfb_dot(to, colours[last]);
    }
    return other > most ? other : most;
}

/* Paints indices of 1, 2, 4 or 8 bits; each row starts at a new byte. The palette has room for each. */
static inline rlw_status rlw_rfb_paint_indices(rlw_cursor *c, const rlw_rfb_screen *s, uint32_t x,
                                               uint32_t y, uint32_t width, uint32_t height,
                                               unsigned bits, uint32_t *palette,
                                               unsigned colours) {
    const size_t row = ((size_t)width * bits + 7) / 8;
    const uint8_t *from;
    uint8_t *line;
    unsigned i, most;
    RLW_TRY(rlw_take(c, (uint64_t)row * height, &from));
    if (!width || !height) return RLW_OK;
    line = rlw_rfb_spot(s, x, y);
#ifdef RLW_RFB_X86
    if (rlw_rfb_has_vbmi()) {
        uint32_t done =
            rlw_rfb_indices_vbmi(line, s->stride, from, width, height, bits, palette, colours);
        if (done == height) return RLW_OK;
        from += done * row; /* the loop finds which index */
        line += done * s->stride;
        height -= done;
    }
#endif
    for (i = colours; i < 1u << bits; i++) palette[i] = 0;
    for (; height; height--, from += row, line += s->stride) {
        switch (bits) {
        case 1: most = rlw_rfb_indexed(line, from, width, 1, palette); break;
        case 2: most = rlw_rfb_indexed(line, from, width, 2, palette); break;
        case 4: most = rlw_rfb_indexed(line, from, width, 4, palette); break;
        default: most = rlw_rfb_indexed(line, from, width, 8, palette);
        }
        if (most >= colours) return rlw_fail(c, RLW_BAD_PALETTE, from, most, colours);
    }
    return RLW_OK;
}

static inline rlw_status rlw_rfb_zrle_tile(rlw_cursor *c, const rlw_rfb_screen *s, uint32_t x,
                                           uint32_t y, uint32_t width, uint32_t height,
                                           uint32_t *palette) {
    const uint8_t *start = c->at, *at;
    uint32_t left = width * height, room = width, colours, i;
    uint8_t *to, kind;
    RLW_TRY(rlw_take_u8(c, &kind));
    if (kind == 0) return rlw_rfb_paint_rows(c, s, RLW_RFB_PACKED, x, y, width, height);
    if (kind == 129 || (kind > 16 && kind < 128))
        return rlw_fail(c, RLW_BAD_SUBENCODING, start, kind, 0);
    colours = kind & 127;
    RLW_TRY(rlw_take(c, (uint64_t)colours * RLW_RFB_PACKED, &at));
    for (i = 0; i < colours; i++, at += RLW_RFB_PACKED) palette[i] = rlw_rfb_colour(at);
    if (kind == 1) {
        rlw_rfb_fill(s, x, y, width, height, palette[0]);
        return RLW_OK;
    }
    if (kind < 128) {
        return rlw_rfb_paint_indices(c, s, x, y, width, height, kind == 2 ? 1 : kind <= 4 ? 2 : 4,
                                     palette, colours);
    }
    to = rlw_rfb_spot(s, x, y); /* `room` pixels are left in its row */
    while (left) {
        const uint8_t *run = c->at;
        uint32_t count = 1, colour;
        uint8_t byte, more = 255;
        if (kind == 128) {
            RLW_TRY(rlw_take(c, RLW_RFB_PACKED, &at));
            colour = rlw_rfb_colour(at);
        } else {
            RLW_TRY(rlw_take_u8(c, &byte));
            if ((byte & 127u) >= colours)
                return rlw_fail(c, RLW_BAD_PALETTE, run, byte & 127u, colours);
            colour = palette[byte & 127];
            if (!(byte & 128)) more = 0;
        }
        while (more == 255) {
            RLW_TRY(rlw_take_u8(c, &more));
            count += more;
            if (count > left) return rlw_fail(c, RLW_BAD_RUN, run, count, left);
        }
        left -= count;
        while (count >= room) {
            rlw_rfb_run(to, colour, room);
            count -= room;
            to += s->stride - (size_t)(width - room) * 3;
            room = width;
        }
        rlw_rfb_run(to, colour, count);
        to += (size_t)count * 3;
        room -= count;
    }
    return RLW_OK;
}

/* Returns the most bytes that a ZRLE rectangle of this size inflates to. */
static inline uint64_t rlw_rfb_zrle_most(uint32_t width, uint32_t height) {
    uint64_t tiles = (uint64_t)((width + 63) / 64) * ((height + 63) / 64);
    return tiles * (1 + 127u * RLW_RFB_PACKED) + (uint64_t)width * height * (RLW_RFB_PACKED + 1);
}

/* Paints a ZRLE rectangle. The cursor is on the inflated bytes, and advances past the rectangle's. */
static inline rlw_status rlw_rfb_paint_zrle_tiles(rlw_cursor *c, const rlw_rfb_screen *s,
                                                  const rlw_rfb_rectangle *r) {
    uint32_t palette[128];
    uint32_t x, y;
    for (y = 0; y < r->height; y += 64)
        for (x = 0; x < r->width; x += 64) {
            uint32_t width = r->width - x < 64 ? r->width - x : 64;
            uint32_t height = r->height - y < 64 ? r->height - y : 64;
            RLW_TRY(rlw_rfb_zrle_tile(c, s, r->x + x, r->y + y, width, height, palette));
        }
    return RLW_OK;
}

/* Paints Tight's gradient filter: differences to a prediction from the pixels to the left and above. */
static inline rlw_status rlw_rfb_paint_gradient(rlw_cursor *c, const rlw_rfb_screen *s,
                                                const rlw_rfb_rectangle *r) {
    uint8_t above[RLW_RFB_TIGHT_WIDEST][3];
    const uint8_t *from;
    uint32_t x, y;
    int i;
    RLW_TRY(rlw_take(c, (uint64_t)r->width * r->height * RLW_RFB_PACKED, &from));
    if (r->width > RLW_RFB_TIGHT_WIDEST)
        return rlw_fail(c, RLW_BAD_PLACE, from, r->width, RLW_RFB_TIGHT_WIDEST);
    memset(above, 0, sizeof above[0] * r->width);
    for (y = 0; y < r->height; y++) {
        uint8_t left[3] = {0, 0, 0}, corner[3] = {0, 0, 0};
        uint8_t *to = rlw_rfb_spot(s, r->x, r->y + y);
        for (x = 0; x < r->width; x++, from += 3, to += 3)
            for (i = 0; i < 3; i++) {
                int v = left[i] + above[x][i] - corner[i];
                v = v < 0 ? 0 : v > 255 ? 255 : v;
                corner[i] = above[x][i];
                to[i] = left[i] = above[x][i] = (uint8_t)(v + from[i]);
            }
    }
    return RLW_OK;
}

/* Paints all kinds except RLW_RFB_JPEG. The cursor is on the inflated bytes if `t->packed`, else on
 * t->data, with t->need bytes left; RLW_RFB_FILL does not read it. */
static inline rlw_status rlw_rfb_paint_tight(rlw_cursor *c, const rlw_rfb_screen *s,
                                             const rlw_rfb_rectangle *r, const rlw_rfb_tight *t) {
    uint32_t palette[256];
    unsigned i;
    if (t->kind == RLW_RFB_FILL) {
        rlw_rfb_fill(s, r->x, r->y, r->width, r->height, rlw_rfb_colour(t->data));
        return RLW_OK;
    }
    if (rlw_left(c) != t->need) return rlw_fail(c, RLW_BAD_INFLATED, c->at, rlw_left(c), t->need);
    if (t->filter == RLW_RFB_GRADIENT) return rlw_rfb_paint_gradient(c, s, r);
    if (t->filter == RLW_RFB_COPY)
        return rlw_rfb_paint_rows(c, s, RLW_RFB_PACKED, r->x, r->y, r->width, r->height);
    for (i = 0; i < t->colours; i++) palette[i] = rlw_rfb_colour(t->palette + RLW_RFB_PACKED * i);
    return rlw_rfb_paint_indices(c, s, r->x, r->y, r->width, r->height, t->colours <= 2 ? 1 : 8,
                                 palette, t->colours);
}

#endif
