/* RFB (VNC) for a viewer: the borders of rectangles, and painting them (pixels: rfb_pixels.h).
 *
 * Every pixel encoding of RFC 6143, section 7.7, but the obsolete ones, and Tight of the
 * community's description (rfbproto.rst). What is painted is red, green, blue in a byte each, and
 * 255 as a fourth where the screen has four channels. Nothing is inflated here and no JPEG is read:
 * rlw_rfb_paint_tight() and rlw_rfb_paint_zrle_tiles() take inflated bytes. Nothing allocates.
 *
 * Every place is checked against the screen before it is painted, every byte before it is read.
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
    RLW_RFB_LAST_RECT = -224,
    RLW_RFB_CURSOR = -239,
    RLW_RFB_EXTENDED_DESKTOP_SIZE = -308
};

#define RLW_RFB_HEAD 12           /* bytes of a rectangle's head */
#define RLW_RFB_TIGHT_WIDEST 2048 /* pixels; Tight has none that are wider */
#define RLW_RFB_TIGHT_PLAIN 12    /* bytes; fewer are not compressed by Tight */

/* ---- the borders of a rectangle ---- */

typedef struct rlw_rfb_rectangle {
    uint32_t x, y, width, height;
    int32_t encoding;
} rlw_rfb_rectangle;

/* How far rlw_rfb_measure() has come, so that asking again costs nothing twice. */
typedef struct rlw_rfb_progress {
    size_t at;     /* bytes of the rectangle that are understood */
    uint32_t tile; /* of Hextile, the next one */
} rlw_rfb_progress;

static inline rlw_status rlw_rfb_read_head(rlw_cursor *c, rlw_rfb_rectangle *out) {
    const uint8_t *p;
    uint32_t bits;
    rlw_status status = rlw_take(c, RLW_RFB_HEAD, &p);
    if (status != RLW_OK) return status;
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

static inline int rlw_rfb_within(const rlw_rfb_screen *s, uint32_t x, uint32_t y, uint32_t width,
                                 uint32_t height) {
    return (uint64_t)x + width <= s->width && (uint64_t)y + height <= s->height;
}

/* Refuses what is not within the screen. `head` is where the rectangle's head stands. */
static inline rlw_status rlw_rfb_check_place(rlw_cursor *c, const uint8_t *head,
                                             const rlw_rfb_screen *s,
                                             const rlw_rfb_rectangle *r) {
    if ((uint64_t)r->x + r->width > s->width)
        return rlw_fail(c, RLW_BAD_PLACE, head, r->x + r->width, s->width);
    if ((uint64_t)r->y + r->height > s->height)
        return rlw_fail(c, RLW_BAD_PLACE, head + 2, r->y + r->height, s->height);
    return RLW_OK;
}

/* How many pixels painting takes, of the rectangle whose head is before the cursor: of RRE those of
 * each subrectangle too. In all other encodings each pixel is painted once, or costs bytes. */
static inline uint64_t rlw_rfb_work(const rlw_cursor *c, const rlw_rfb_layouts *p,
                                    const rlw_rfb_rectangle *r) {
    uint64_t pixels = (uint64_t)r->width * r->height;
    rlw_cursor ahead = *c;
    const uint8_t *at;
    uint32_t count;
    if (r->encoding != RLW_RFB_RRE || rlw_take(&ahead, 4u + p->pixel.size, &at) != RLW_OK)
        return pixels;
    count = rlw_load_u32be(at);
    if (rlw_take(&ahead, (uint64_t)count * (p->pixel.size + 8u), &at) != RLW_OK) return pixels;
    for (at += p->pixel.size + 4; count; count--, at += p->pixel.size + 8)
        pixels += (uint64_t)rlw_load_u16be(at) * rlw_load_u16be(at + 2);
    return pixels;
}

/* A length of Tight's: seven bits a byte, eight in the third and last. */
static inline rlw_status rlw_rfb_take_compact(rlw_cursor *c, uint32_t *out) {
    uint8_t byte;
    unsigned i;
    *out = 0;
    for (i = 0; i < 3; i++) {
        rlw_status status = rlw_take_u8(c, &byte);
        if (status != RLW_OK) return status;
        *out |= (uint32_t)(i < 2 ? byte & 0x7F : byte) << 7 * i;
        if (i < 2 && !(byte & 0x80)) break;
    }
    return RLW_OK;
}

enum { RLW_RFB_FILL = 8, RLW_RFB_JPEG = 9, RLW_RFB_BASIC = 0 };
enum { RLW_RFB_COPY = 0, RLW_RFB_PALETTE = 1, RLW_RFB_GRADIENT = 2 };

typedef struct rlw_rfb_tight {
    uint8_t resets; /* a bit for each of the four streams that begins anew */
    uint8_t kind;   /* RLW_RFB_FILL, RLW_RFB_JPEG or RLW_RFB_BASIC */
    uint8_t stream; /* the rest of RLW_RFB_BASIC: */
    uint8_t filter;
    uint8_t packed;        /* `data` is compressed */
    uint16_t colours;      /* of a palette, which stands at `palette` */
    uint64_t need;         /* bytes of `data`, once it is inflated */
    const uint8_t *palette;
    const uint8_t *data; /* the colour of RLW_RFB_FILL, the file of RLW_RFB_JPEG */
    size_t size;         /* bytes of data as they came */
} rlw_rfb_tight;

/* Reads what stands behind the head of a Tight rectangle. */
static inline rlw_status rlw_rfb_read_tight(rlw_cursor *c, const rlw_rfb_layouts *p,
                                            const rlw_rfb_rectangle *r, rlw_rfb_tight *t) {
    const uint8_t *control = c->at;
    uint32_t length = 0;
    unsigned colour = p->tpixel.size;
    uint8_t byte;
    rlw_status status = rlw_take_u8(c, &byte);
    memset(t, 0, sizeof *t);
    if (status != RLW_OK) return status;
    t->resets = byte & 15;
    if (byte >> 4 > RLW_RFB_JPEG) return rlw_fail(c, RLW_BAD_SUBENCODING, control, byte, 0);
    if (byte >> 4 == RLW_RFB_FILL) {
        t->kind = RLW_RFB_FILL;
        t->size = colour;
        return rlw_take(c, colour, &t->data);
    }
    if (r->width > RLW_RFB_TIGHT_WIDEST)
        return rlw_fail(c, RLW_BAD_PLACE, control, r->width, RLW_RFB_TIGHT_WIDEST);
    if (byte >> 4 == RLW_RFB_JPEG) {
        t->kind = RLW_RFB_JPEG;
        if (p->format.bits == 8) return rlw_fail(c, RLW_BAD_SUBENCODING, control, byte, 0);
        status = rlw_rfb_take_compact(c, &length);
        if (status != RLW_OK) return status;
        t->size = length;
        return rlw_take(c, length, &t->data);
    }
    t->stream = byte >> 4 & 3;
    if (byte & 0x40) {
        const uint8_t *at = c->at;
        status = rlw_take_u8(c, &t->filter);
        if (status != RLW_OK) return status;
        if (t->filter > RLW_RFB_GRADIENT || (t->filter == RLW_RFB_GRADIENT && p->format.bits == 8))
            return rlw_fail(c, RLW_BAD_SUBENCODING, at, t->filter, 0);
    }
    t->need = (uint64_t)r->width * r->height * colour;
    if (t->filter == RLW_RFB_PALETTE) {
        status = rlw_take_u8(c, &byte);
        if (status != RLW_OK) return status;
        t->colours = (uint16_t)(byte + 1);
        t->need = t->colours <= 2 ? (uint64_t)((r->width + 7) / 8) * r->height
                                  : (uint64_t)r->width * r->height;
        status = rlw_take(c, (uint64_t)t->colours * colour, &t->palette);
        if (status != RLW_OK) return status;
    }
    if (t->need >= RLW_RFB_TIGHT_PLAIN) {
        t->packed = 1;
        status = rlw_rfb_take_compact(c, &length);
        if (status != RLW_OK) return status;
    } else {
        length = (uint32_t)t->need;
    }
    t->size = length; /* not before: rlw_rfb_measure() takes it for what is known */
    return rlw_take(c, t->size, &t->data);
}

/* Where a Hextile rectangle ends; goes on at `progress`. */
static inline rlw_status rlw_rfb_measure_hextile(rlw_cursor *c, unsigned pixel,
                                                 const rlw_rfb_rectangle *r,
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
        uint64_t size = 0;
        uint8_t mask, count = 0;
        rlw_status status = rlw_take_u8(c, &mask);
        if (status == RLW_OK && mask & 0xE0)
            return rlw_fail(c, RLW_BAD_SUBENCODING, tile, mask, 0);
        if (status == RLW_OK) {
            width = width < 16 ? width : 16;
            height = height < 16 ? height : 16;
            if (mask & 1)
                size = (uint64_t)width * height * pixel;
            else
                size = (mask & 2 ? pixel : 0u) + (mask & 4 ? pixel : 0u);
            status = rlw_take(c, size, &skipped);
        }
        if (status == RLW_OK && (mask & 9) == 8) {
            status = rlw_take_u8(c, &count);
            if (status == RLW_OK)
                status = rlw_take(c, count * ((mask & 16 ? pixel : 0u) + 2u), &skipped);
        }
        if (status != RLW_OK) {
            c->at = start;
            return status;
        }
        progress->at = (size_t)(c->at - start);
    }
    return RLW_OK;
}

/* Finds the end of the rectangle that begins at c->at: its bytes, head included, in `*size`.
 *
 * RLW_NEED_MORE while they are not known; `progress` then is kept for the next time, and is zero
 * for another rectangle. The cursor does not move. For Raw and others that announce their size
 * it is known before all of them have come. What cannot be painted is refused at once.
 */
static inline rlw_status rlw_rfb_measure(rlw_cursor *c, const rlw_rfb_layouts *p,
                                         const rlw_rfb_screen *s, rlw_rfb_progress *progress,
                                         uint64_t *size) {
    const uint8_t *start = c->at, *at;
    unsigned pixel = p->pixel.size;
    rlw_rfb_rectangle r;
    rlw_rfb_tight tight;
    uint32_t count;
    rlw_status status = rlw_rfb_read_head(c, &r);
    uint64_t area = status == RLW_OK ? (uint64_t)r.width * r.height : 0;
    *size = RLW_RFB_HEAD;
    if (status == RLW_OK && rlw_rfb_paints(r.encoding))
        status = rlw_rfb_check_place(c, start, s, &r);
    if (status != RLW_OK) {
        c->at = start;
        return status;
    }
    switch (r.encoding) {
    case RLW_RFB_RAW: *size += area * pixel; break;
    case RLW_RFB_COPY_RECT: *size += 4; break;
    case RLW_RFB_CURSOR: *size += area * pixel + (uint64_t)((r.width + 7) / 8) * r.height; break;
    case RLW_RFB_DESKTOP_SIZE:
    case RLW_RFB_LAST_RECT: break;
    case RLW_RFB_EXTENDED_DESKTOP_SIZE:
        status = rlw_take(c, 4, &at);
        if (status == RLW_OK) *size += 4u + 16u * (uint32_t)at[0];
        break;
    case RLW_RFB_RRE:
    case RLW_RFB_ZRLE:
        status = rlw_take(c, 4, &at);
        if (status != RLW_OK) break;
        count = rlw_load_u32be(at);
        *size += 4;
        *size += r.encoding == RLW_RFB_ZRLE ? count : pixel + (uint64_t)count * (pixel + 8u);
        break;
    case RLW_RFB_TIGHT:
        status = rlw_rfb_read_tight(c, p, &r, &tight);
        /* The size is known as soon as the length is. */
        if (status == RLW_OK) *size += (uint64_t)(c->at - start) - RLW_RFB_HEAD;
        else if (status == RLW_NEED_MORE && tight.size) {
            *size = (uint64_t)(c->at - start) + tight.size;
            status = RLW_OK;
        }
        break;
    case RLW_RFB_HEXTILE:
        status = rlw_rfb_measure_hextile(c, pixel, &r, progress);
        *size += progress->at;
        break;
    default: status = rlw_fail(c, RLW_BAD_ENCODING, start + 8, rlw_load_u32be(start + 8), 0);
    }
    c->at = start;
    return status;
}

/* ---- painting ----
 *
 * The rectangle is within the screen: rlw_rfb_check_place(). Each takes what stands behind the head
 * from the cursor. What is painted before a fault is found stays. */

static inline rlw_status rlw_rfb_paint_rows(rlw_cursor *c, const rlw_rfb_layouts *p,
                                            const rlw_rfb_layout *l, const rlw_rfb_screen *s,
                                            uint32_t x, uint32_t y, uint32_t width,
                                            uint32_t height) {
    const uint8_t *from;
    size_t row = (size_t)width * l->size;
    rlw_status status = rlw_take(c, (uint64_t)row * height, &from);
    if (status == RLW_OK) rlw_rfb_rows(p, l, s, x, y, from, row, width, height);
    return status;
}

static inline rlw_status rlw_rfb_paint_raw(rlw_cursor *c, const rlw_rfb_layouts *p,
                                           const rlw_rfb_screen *s, const rlw_rfb_rectangle *r) {
    return rlw_rfb_paint_rows(c, p, &p->pixel, s, r->x, r->y, r->width, r->height);
}

static inline rlw_status rlw_rfb_paint_copy(rlw_cursor *c, const rlw_rfb_screen *s,
                                            const rlw_rfb_rectangle *r) {
    const uint8_t *at;
    uint32_t x, y, i;
    size_t row = (size_t)r->width * s->channels;
    rlw_status status = rlw_take(c, 4, &at);
    if (status != RLW_OK) return status;
    x = rlw_load_u16be(at);
    y = rlw_load_u16be(at + 2);
    if (x + r->width > s->width)
        return rlw_fail(c, RLW_BAD_PLACE, at, x + r->width, s->width);
    if (y + r->height > s->height)
        return rlw_fail(c, RLW_BAD_PLACE, at + 2, y + r->height, s->height);
    for (i = 0; i < r->height; i++) { /* from the end that is not overwritten before it is read */
        uint32_t k = y < r->y ? r->height - 1 - i : i;
        memmove(rlw_rfb_spot(s, r->x, r->y + k), rlw_rfb_spot(s, x, y + k), row);
    }
    return RLW_OK;
}

static inline rlw_status rlw_rfb_paint_rre(rlw_cursor *c, const rlw_rfb_layouts *p,
                                           const rlw_rfb_screen *s, const rlw_rfb_rectangle *r) {
    const rlw_rfb_layout *l = &p->pixel;
    const uint8_t *at;
    uint32_t count;
    rlw_status status = rlw_take(c, 4u + l->size, &at);
    if (status != RLW_OK) return status;
    count = rlw_load_u32be(at);
    rlw_rfb_fill(s, r->x, r->y, r->width, r->height, rlw_rfb_colour_at(p, l, at + 4));
    status = rlw_take(c, (uint64_t)count * (l->size + 8u), &at);
    if (status != RLW_OK) return status;
    for (; count; count--, at += l->size + 8) {
        const uint8_t *place = at + l->size;
        uint32_t x = rlw_load_u16be(place), y = rlw_load_u16be(place + 2);
        uint32_t width = rlw_load_u16be(place + 4), height = rlw_load_u16be(place + 6);
        if (x + width > r->width)
            return rlw_fail(c, RLW_BAD_PLACE, place, x + width, r->width);
        if (y + height > r->height)
            return rlw_fail(c, RLW_BAD_PLACE, place + 2, y + height, r->height);
        rlw_rfb_fill(s, r->x + x, r->y + y, width, height, rlw_rfb_colour_at(p, l, at));
    }
    return RLW_OK;
}

/* What is painted of a Hextile rectangle so far: colours as they come where they have four bytes, else
 * as red, green, blue, 255; and room for a tile, and for what a wrong one has beside it. */
typedef struct rlw_rfb_hextile {
    rlw_rfb_layout layout; /* of the colours here */
    int raw;
    uint32_t back, front, tile[32][32];
} rlw_rfb_hextile;

static inline uint32_t rlw_rfb_hextile_colour(const rlw_rfb_hextile *h, const rlw_rfb_layouts *p,
                                              const uint8_t *from) {
    uint32_t colour;
    if (h->raw) {
        memcpy(&colour, from, 4);
    } else {
        rlw_rfb_rgba c = rlw_rfb_colour_at(p, &p->pixel, from);
        memcpy(&colour, c.of, 4);
    }
    return colour;
}

/* Subrectangles of `step` bytes into the tile; returns whether one is not within it. */
static inline unsigned rlw_rfb_subrects(rlw_rfb_hextile *h, const rlw_rfb_layouts *p,
                                        const uint8_t *at, unsigned count, unsigned step,
                                        unsigned width, unsigned height) {
    unsigned outside = 0;
#ifdef RLW_RFB_X86
    if ((h->raw || step == 2) && rlw_rfb_has_vbmi())
        return rlw_rfb_subrects_vbmi(h->tile, at, count, step, h->front, width, height);
#endif
    for (; count; count--, at += step) {
        const uint8_t *place = at + step - 2;
        const unsigned left = place[0] >> 4, top = place[0] & 15u;
        const unsigned wide = (place[1] >> 4) + 1u, high = (place[1] & 15u) + 1u;
        const uint32_t colour = step > 2 ? rlw_rfb_hextile_colour(h, p, at) : h->front;
        unsigned x, y;
        outside |= (left + wide > width) | (top + high > height);
        for (y = top; y < top + high; y++)
            for (x = left; x < left + wide; x++) h->tile[y][x] = colour;
    }
    return outside;
}

static inline rlw_status rlw_rfb_hextile_tile(rlw_cursor *c, const rlw_rfb_layouts *p,
                                              const rlw_rfb_screen *s, uint32_t x, uint32_t y,
                                              uint32_t width, uint32_t height,
                                              rlw_rfb_hextile *h) {
    const rlw_rfb_layout *l = &p->pixel;
    const uint8_t *tile = c->at, *at;
    uint8_t mask, count;
    unsigned step, i, k;
    rlw_status status = rlw_take_u8(c, &mask);
    if (status != RLW_OK) return status;
    if (mask & 0xE0) return rlw_fail(c, RLW_BAD_SUBENCODING, tile, mask, 0);
    if (mask & 1) return rlw_rfb_paint_rows(c, p, l, s, x, y, width, height);
    if (mask & 2) {
        status = rlw_take(c, l->size, &at);
        if (status != RLW_OK) return status;
        h->back = rlw_rfb_hextile_colour(h, p, at);
    }
    if (mask & 4) {
        status = rlw_take(c, l->size, &at);
        if (status != RLW_OK) return status;
        h->front = rlw_rfb_hextile_colour(h, p, at);
    }
    if (!(mask & 8)) {
        uint8_t back[4];
        memcpy(back, &h->back, 4);
        rlw_rfb_fill(s, x, y, width, height, rlw_rfb_colour_at(p, &h->layout, back));
        return RLW_OK;
    }
    step = (mask & 16 ? l->size : 0u) + 2u;
    status = rlw_take_u8(c, &count);
    if (status == RLW_OK) status = rlw_take(c, count * step, &at);
    if (status != RLW_OK) return status;
    for (i = 0; i < height; i++)
        for (k = 0; k < 16; k++) h->tile[i][k] = h->back;
    if (rlw_rfb_subrects(h, p, at, count, step, width, height)) {
        for (;; at += step) { /* which it is */
            const uint8_t *place = at + step - 2;
            const unsigned right = (place[0] >> 4) + (place[1] >> 4) + 1u;
            const unsigned bottom = (place[0] & 15u) + (place[1] & 15u) + 1u;
            if (right > width) return rlw_fail(c, RLW_BAD_PLACE, place, right, width);
            if (bottom > height) return rlw_fail(c, RLW_BAD_PLACE, place, bottom, height);
        }
    }
    rlw_rfb_rows(p, &h->layout, s, x, y, (const uint8_t *)h->tile, sizeof h->tile[0], width, height);
    return RLW_OK;
}

static inline rlw_status rlw_rfb_paint_hextile(rlw_cursor *c, const rlw_rfb_layouts *p,
                                               const rlw_rfb_screen *s,
                                               const rlw_rfb_rectangle *r) {
    static const rlw_rfb_layout rgba = {4, 1, {0, 1, 2}, 0};
    static const uint8_t black[4] = {0, 0, 0, 255};
    rlw_rfb_hextile h;
    uint32_t x, y;
    h.raw = p->pixel.size == 4 && p->pixel.whole;
    h.layout = h.raw ? p->pixel : rgba;
    memcpy(&h.back, black, 4);
    h.front = h.back;
    for (y = 0; y < r->height; y += 16)
        for (x = 0; x < r->width; x += 16) {
            uint32_t width = r->width - x < 16 ? r->width - x : 16;
            uint32_t height = r->height - y < 16 ? r->height - y : 16;
            rlw_status status = rlw_rfb_hextile_tile(c, p, s, r->x + x, r->y + y, width, height, &h);
            if (status != RLW_OK) return status;
        }
    return RLW_OK;
}

/* Index number `i` of a row; the first has a byte's highest bits. */
static inline unsigned rlw_rfb_index_at(const uint8_t *from, uint32_t i, unsigned bits) {
    const unsigned byte = from[i * bits / 8];
    return byte >> (8 - bits - i * bits % 8) & ((1u << bits) - 1);
}

/* A row of indices of `bits` bits each to pixels of three bytes. Two are stored
 * at once with two bytes too many, which are the next pixel's. Inlined, `bits` is a constant. */
static inline void rlw_rfb_indexed(uint8_t *to, const uint8_t *from, uint32_t width,
                                   const unsigned bits, const uint32_t *colours) {
    const unsigned mask = (1u << bits) - 1;
    uint32_t i = 0, c;
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
        rlw_store_u64le(to, colours[first] | (uint64_t)colours[second] << 24);
    }
    for (; i < width; i++, to += 3) {
        c = colours[rlw_rfb_index_at(from, i, bits)];
        to[0] = (uint8_t)c;
        to[1] = (uint8_t)(c >> 8);
        to[2] = (uint8_t)(c >> 16);
    }
}

/* The highest index of a row; with whole bytes, a loop that compilers turn into vectors. */
static inline unsigned rlw_rfb_top_index(const uint8_t *from, uint32_t width, unsigned bits) {
    const uint32_t whole = width / (8 / bits);
    uint8_t most = 0, other = 0;
    uint32_t i;
    if (bits == 8 || bits == 4) {
        const unsigned shift = 8 - bits;
        for (i = 0; i < whole; i++) {
            uint8_t high = (uint8_t)(from[i] >> shift), low = (uint8_t)(from[i] & 15u);
            most = high > most ? high : most;
            other = low > other ? low : other;
        }
        if (bits == 4 && other > most) most = other;
    } else if (bits == 2) { /* only whether there is a 3 is asked: fewer colours have fewer bits */
        for (i = 0; i < whole; i++) other |= (uint8_t)(from[i] & from[i] >> 1 & 0x55);
        most = other ? 3 : 0;
    } else {
        for (i = 0; i < whole; i++) most |= from[i];
        most = most ? 1 : 0;
    }
    for (i = whole * (8 / bits); i < width; i++) {
        unsigned index = rlw_rfb_index_at(from, i, bits);
        most = index > most ? (uint8_t)index : most;
    }
    return most;
}

/* Indices of 1, 2, 4 or 8 bits, each row from a byte of its own on. */
static inline rlw_status rlw_rfb_paint_indices(rlw_cursor *c, const rlw_rfb_screen *s, uint32_t x,
                                               uint32_t y, uint32_t width, uint32_t height,
                                               unsigned bits, const rlw_rfb_rgba *palette,
                                               unsigned colours) {
    const size_t row = ((size_t)width * bits + 7) / 8;
    const uint8_t *from;
    uint32_t values[256], i;
    uint8_t *line;
    rlw_status status = rlw_take(c, (uint64_t)row * height, &from);
    if (status != RLW_OK) return status;
    if (!width || !height) return RLW_OK;
    for (i = 0; i < colours; i++) values[i] = (uint32_t)rlw_rfb_bits(palette[i]);
    line = rlw_rfb_spot(s, x, y);
#ifdef RLW_RFB_X86
    if (s->channels == 3 && rlw_rfb_has_vbmi()) {
        i = rlw_rfb_indices_vbmi(line, s->stride, from, width, height, bits, values, colours);
        if (i == height) return RLW_OK;
        from += i * row;
        return rlw_fail(c, RLW_BAD_PALETTE, from, rlw_rfb_top_index(from, width, bits), colours);
    }
#endif
    for (; height; height--, from += row, line += s->stride) {
        if (colours < 1u << bits) { /* else every index that can be written has a colour */
            unsigned most = rlw_rfb_top_index(from, width, bits);
            if (most >= colours) return rlw_fail(c, RLW_BAD_PALETTE, from, most, colours);
        }
        if (s->channels == 4) {
            uint8_t *to = line;
            for (i = 0; i < width; i++, to += 4)
                memcpy(to, palette[rlw_rfb_index_at(from, i, bits)].of, 4);
            continue;
        }
        switch (bits) {
        case 1: rlw_rfb_indexed(line, from, width, 1, values); break;
        case 2: rlw_rfb_indexed(line, from, width, 2, values); break;
        case 4: rlw_rfb_indexed(line, from, width, 4, values); break;
        default: rlw_rfb_indexed(line, from, width, 8, values); break;
        }
    }
    return RLW_OK;
}

static inline rlw_status rlw_rfb_zrle_tile(rlw_cursor *c, const rlw_rfb_layouts *p,
                                           const rlw_rfb_screen *s, uint32_t x, uint32_t y,
                                           uint32_t width, uint32_t height,
                                           rlw_rfb_rgba *palette) {
    const rlw_rfb_layout *l = &p->cpixel;
    const uint8_t *start = c->at, *at;
    uint32_t left = width * height, room = width, colours, i;
    uint8_t *to, kind;
    rlw_status status = rlw_take_u8(c, &kind);
    if (status != RLW_OK) return status;
    if (kind == 0) return rlw_rfb_paint_rows(c, p, l, s, x, y, width, height);
    if (kind == 129 || (kind > 16 && kind < 128))
        return rlw_fail(c, RLW_BAD_SUBENCODING, start, kind, 0);
    colours = kind & 127;
    status = rlw_take(c, (uint64_t)colours * l->size, &at);
    if (status != RLW_OK) return status;
    for (i = 0; i < colours; i++) palette[i] = rlw_rfb_colour_at(p, l, at + (size_t)i * l->size);
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
        uint32_t count = 1;
        rlw_rfb_rgba colour;
        uint8_t byte, more = 255;
        if (kind == 128) {
            status = rlw_take(c, l->size, &at);
            if (status != RLW_OK) return status;
            colour = rlw_rfb_colour_at(p, l, at);
        } else {
            status = rlw_take_u8(c, &byte);
            if (status != RLW_OK) return status;
            if ((byte & 127u) >= colours)
                return rlw_fail(c, RLW_BAD_PALETTE, run, byte & 127u, colours);
            colour = palette[byte & 127];
            if (!(byte & 128)) more = 0;
        }
        while (more == 255) {
            status = rlw_take_u8(c, &more);
            if (status != RLW_OK) return status;
            count += more;
            if (count > left) return rlw_fail(c, RLW_BAD_RUN, run, count, left);
        }
        left -= count;
        while (count >= room) {
            rlw_rfb_run(s->channels, to, colour, room);
            count -= room;
            to += s->stride - (size_t)(width - room) * s->channels;
            room = width;
        }
        rlw_rfb_run(s->channels, to, colour, count);
        to += (size_t)count * s->channels;
        room -= count;
    }
    return RLW_OK;
}

/* The most bytes that a ZRLE rectangle of this size inflates to. */
static inline uint64_t rlw_rfb_zrle_most(const rlw_rfb_layouts *p, uint32_t width,
                                         uint32_t height) {
    uint64_t tiles = (uint64_t)((width + 63) / 64) * ((height + 63) / 64);
    return tiles * (1 + 127u * p->cpixel.size) + (uint64_t)width * height * (p->cpixel.size + 1u);
}

/* The cursor is on the inflated bytes, and moves behind those of the rectangle. */
static inline rlw_status rlw_rfb_paint_zrle_tiles(rlw_cursor *c, const rlw_rfb_layouts *p,
                                                  const rlw_rfb_screen *s,
                                                  const rlw_rfb_rectangle *r) {
    rlw_rfb_rgba palette[128];
    uint32_t x, y;
    for (y = 0; y < r->height; y += 64)
        for (x = 0; x < r->width; x += 64) {
            uint32_t width = r->width - x < 64 ? r->width - x : 64;
            uint32_t height = r->height - y < 64 ? r->height - y : 64;
            rlw_status status = rlw_rfb_zrle_tile(c, p, s, r->x + x, r->y + y, width, height,
                                                  palette);
            if (status != RLW_OK) return status;
        }
    return RLW_OK;
}

/* Each colour is what the three pixels to the left and above let expect, plus what came. */
static inline rlw_status rlw_rfb_paint_gradient(rlw_cursor *c, const rlw_rfb_layouts *p,
                                                const rlw_rfb_screen *s,
                                                const rlw_rfb_rectangle *r) {
    const rlw_rfb_layout *l = &p->tpixel;
    const rlw_rfb_format *f = &p->format;
    uint16_t above[RLW_RFB_TIGHT_WIDEST][3];
    const uint8_t *from;
    uint32_t x, y;
    int i;
    rlw_status status = rlw_take(c, (uint64_t)r->width * r->height * l->size, &from);
    if (status != RLW_OK) return status;
    if (r->width > RLW_RFB_TIGHT_WIDEST)
        return rlw_fail(c, RLW_BAD_PLACE, from, r->width, RLW_RFB_TIGHT_WIDEST);
    memset(above, 0, sizeof above[0] * r->width);
    for (y = 0; y < r->height; y++) {
        int32_t left[3] = {0, 0, 0}, corner[3] = {0, 0, 0};
        uint8_t *to = rlw_rfb_spot(s, r->x, r->y + y);
        for (x = 0; x < r->width; x++, from += l->size, to += s->channels) {
            uint32_t value = l->whole ? 0 : rlw_rfb_value(p, l, from);
            for (i = 0; i < 3; i++) {
                int32_t max = f->max[i], up = above[x][i], v = left[i] + up - corner[i];
                uint32_t difference = l->whole ? from[l->at[i]] : value >> f->shift[i];
                v = v < 0 ? 0 : v > max ? max : v;
                v = (int32_t)(((uint32_t)v + difference) & (uint32_t)max);
                corner[i] = up;
                left[i] = v;
                above[x][i] = (uint16_t)v;
                to[i] = max < 256 ? p->scaled[i][v] : rlw_rfb_to_255((uint32_t)v, (uint32_t)max);
            }
            if (s->channels == 4) to[3] = 255;
        }
    }
    return RLW_OK;
}

/* All but RLW_RFB_JPEG. The cursor is on the inflated bytes where `t->packed`, else on t->data, and
 * they must be t->need; for RLW_RFB_FILL it is not looked at. */
static inline rlw_status rlw_rfb_paint_tight(rlw_cursor *c, const rlw_rfb_layouts *p,
                                             const rlw_rfb_screen *s, const rlw_rfb_rectangle *r,
                                             const rlw_rfb_tight *t) {
    const rlw_rfb_layout *l = &p->tpixel;
    rlw_rfb_rgba palette[256];
    unsigned i;
    if (t->kind == RLW_RFB_FILL) {
        rlw_rfb_fill(s, r->x, r->y, r->width, r->height, rlw_rfb_colour_at(p, l, t->data));
        return RLW_OK;
    }
    if (rlw_left(c) != t->need) return rlw_fail(c, RLW_BAD_INFLATED, c->at, rlw_left(c), t->need);
    if (t->filter == RLW_RFB_GRADIENT) return rlw_rfb_paint_gradient(c, p, s, r);
    if (t->filter == RLW_RFB_COPY)
        return rlw_rfb_paint_rows(c, p, l, s, r->x, r->y, r->width, r->height);
    for (i = 0; i < t->colours; i++)
        palette[i] = rlw_rfb_colour_at(p, l, t->palette + (size_t)i * l->size);
    return rlw_rfb_paint_indices(c, s, r->x, r->y, r->width, r->height, t->colours <= 2 ? 1 : 8,
                                 palette, t->colours);
}

#endif
