/* RFB (VNC) for a server: the changed tiles of a frame, and rectangles of it as Raw and Tight.
 *
 * Frames are rows of R, G, B bytes without gaps. Callbacks deflate and write JPEG. Each piece of
 * deflated data refers to nothing before it, so viewers with the same settings share its bytes.
 */
#ifndef RLWIRE_RFB_ENCODE_H
#define RLWIRE_RFB_ENCODE_H

#include "rfb.h"
#include "writer.h"

#define RLW_RFB_TIGHT_AREA 65536 /* pixels of a Tight rectangle, for viewers with fixed buffers */

/* A viewer's pixel format. A PIXEL is the bitwise or of its parts, stored lowest byte first. The
 * tables have their bytes swapped for big-endian formats. */
typedef struct rlw_rfb_pixels {
    uint8_t size; /* bytes of a PIXEL: 1, 2 or 4 */
    uint8_t rgb;  /* whether Tight's TPIXEL is the bytes R, G, B */
    uint32_t red[256], green[256], blue[256];
} rlw_rfb_pixels;

static inline void rlw_rfb_scale(uint32_t *parts, unsigned size, int big_endian, uint32_t max,
                                 unsigned shift) {
    unsigned i, bits = 8 * size;
    for (i = 0; i < 256; i++) {
        uint32_t value = shift < bits ? (i * max + 127) / 255 << shift : 0;
        if (big_endian && size == 2) value = (value >> 8 & 0xFF) | (value & 0xFF) << 8;
        if (big_endian && size == 4)
            value = value >> 24 | (value >> 8 & 0xFF00) | (value & 0xFF00) << 8 | value << 24;
        parts[i] = value;
    }
}

/* Returns 0 unless the format is true colour in 8, 16 or 32 bits. */
static inline int rlw_rfb_pixels_init(rlw_rfb_pixels *p, unsigned bits, unsigned depth,
                                      int big_endian, const uint16_t max[3],
                                      const uint8_t shift[3]) {
    unsigned i;
    if (bits != 8 && bits != 16 && bits != 32) return 0;
    p->size = (uint8_t)(bits / 8);
    for (i = 0; i < 3; i++)
        if (shift[i] >= bits || (uint64_t)max[i] << shift[i] >> bits) return 0;
    rlw_rfb_scale(p->red, p->size, big_endian, max[0], shift[0]);
    rlw_rfb_scale(p->green, p->size, big_endian, max[1], shift[1]);
    rlw_rfb_scale(p->blue, p->size, big_endian, max[2], shift[2]);
    p->rgb = bits == 32 && depth == 24 && max[0] == 255 && max[1] == 255 && max[2] == 255;
    return 1;
}

static inline uint32_t rlw_rfb_pixel(const rlw_rfb_pixels *p, uint32_t colour) {
    return p->red[colour & 0xFF] | p->green[colour >> 8 & 0xFF] | p->blue[colour >> 16 & 0xFF];
}

static inline uint8_t *rlw_rfb_store(uint8_t *to, uint32_t pixel, unsigned size) {
    unsigned i;
    for (i = 0; i < size; i++) to[i] = (uint8_t)(pixel >> 8 * i);
    return to + size;
}

static inline uint8_t *rlw_rfb_store_tight(const rlw_rfb_pixels *p, uint8_t *to, uint32_t colour) {
    return p->rgb ? rlw_rfb_store(to, colour, 3)
                  : rlw_rfb_store(to, rlw_rfb_pixel(p, colour), p->size);
}

static inline uint8_t *rlw_rfb_store_row(const rlw_rfb_pixels *p, uint8_t *to, const uint8_t *rgb,
                                         size_t count) {
    const uint8_t *end = rgb + 3 * count;
    if (p->size == 4)
        for (; rgb != end; rgb += 3, to += 4)
            rlw_store_u32le(to, p->red[rgb[0]] | p->green[rgb[1]] | p->blue[rgb[2]]);
    else
        for (; rgb != end; rgb += 3) {
            uint32_t pixel = p->red[rgb[0]] | p->green[rgb[1]] | p->blue[rgb[2]];
            *to++ = (uint8_t)pixel;
            if (p->size == 2) *to++ = (uint8_t)(pixel >> 8);
        }
    return to;
}

/* ---- what changed ----------------------------------------------------------------------------- */

typedef struct rlw_rfb_rect {
    uint16_t x, y, width, height;
} rlw_rfb_rect;

/* Sets a byte of `marks` for each tile in which two frames differ, row by row; returns how many.
 * The caller zeroes `marks`. */
static inline size_t rlw_rfb_changed(const uint8_t *before, const uint8_t *after, size_t width,
                                     size_t height, size_t tile, uint8_t *marks) {
    size_t stride = 3 * width, across = (width + tile - 1) / tile, found = 0, y, i;
    for (y = 0; y < height; y++, before += stride, after += stride) {
        uint8_t *row = marks + y / tile * across;
        if (memcmp(before, after, stride) == 0) continue;
        for (i = 0; i < across; i++) {
            size_t at = 3 * tile * i, size = 3 * tile < stride - at ? 3 * tile : stride - at;
            if (!row[i] && memcmp(before + at, after + at, size) != 0) {
                row[i] = 1;
                found++;
            }
        }
    }
    return found;
}

/* Joins marked tiles: runs in a row of tiles, and runs of equal width below each other. `out` has
 * room for one rectangle per marked tile. Returns the number of rectangles. */
static inline size_t rlw_rfb_gather(const uint8_t *marks, size_t width, size_t height, size_t tile,
                                    rlw_rfb_rect *out) {
    size_t across = (width + tile - 1) / tile, down = (height + tile - 1) / tile;
    size_t count = 0, above = 0, x, y, from, i;
    for (y = 0; y < down; y++, marks += across) {
        size_t top = y * tile, bottom = top + tile < height ? top + tile : height;
        size_t first = count; /* of this row; rectangles from `above` on may end at the row's top */
        for (x = 0; x < across;) {
            size_t left, right;
            if (!marks[x]) {
                x++;
                continue;
            }
            for (from = x; x < across && marks[x];) x++;
            left = from * tile;
            right = x * tile < width ? x * tile : width;
            for (i = above; i < first; i++)
                if (out[i].x == left && out[i].width == right - left &&
                    (size_t)out[i].y + out[i].height == top)
                    break;
            if (i < first) {
                out[i].height = (uint16_t)(bottom - out[i].y);
                continue;
            }
            out[count].x = (uint16_t)left;
            out[count].y = (uint16_t)top;
            out[count].width = (uint16_t)(right - left);
            out[count].height = (uint16_t)(bottom - top);
            count++;
        }
        while (above < count && (size_t)out[above].y + out[above].height < bottom) above++;
    }
    return count;
}

/* ---- palettes --------------------------------------------------------------------------------- */

#define RLW_RFB_SLOTS 1024

typedef struct rlw_rfb_palette {
    uint32_t colours[256];
    unsigned count;
    uint32_t keys[RLW_RFB_SLOTS]; /* a colour with one more bit above it; 0 for an empty slot */
    uint8_t places[RLW_RFB_SLOTS];
} rlw_rfb_palette;

static inline int rlw_rfb_place(rlw_rfb_palette *p, uint32_t colour, unsigned most) {
    uint32_t key = colour | 0x1000000u, slot = (key * 0x9E3779B1u) >> 22;
    while (p->keys[slot] != key) {
        if (!p->keys[slot]) {
            if (p->count == most) return -1;
            p->keys[slot] = key;
            p->places[slot] = (uint8_t)p->count;
            p->colours[p->count++] = colour;
            break;
        }
        slot = (slot + 1) % RLW_RFB_SLOTS;
    }
    return p->places[slot];
}

static inline int rlw_rfb_same24(const uint8_t *one, const uint8_t *other) {
    uint64_t a[3], b[3];
    memcpy(a, one, 24);
    memcpy(b, other, 24);
    return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]));
}

/* Writes each pixel's palette index, one byte each. Colours get indices in order of appearance. `out`
 * has room for 8 more bytes. Returns 0 as soon as there are more than `most` <= 256 colours. */
static inline int rlw_rfb_index(rlw_rfb_palette *p, const uint8_t *rgb, size_t stride, size_t width,
                                size_t height, unsigned most, uint8_t *out) {
    size_t x, y;
    memset(p->keys, 0, sizeof p->keys);
    p->count = 0;
    for (y = 0; y < height; y++, rgb += stride) {
        const uint8_t *at = rgb;
        uint32_t last;
        int place;
        if (y && memcmp(rgb - stride, rgb, 3 * width) == 0) { /* games repeat rows */
            memcpy(out, out - width, width);
            out += width;
            continue;
        }
        for (x = 0, last = ~rlw_rfb_colour(at), place = 0; x < width;) {
            uint32_t colour = rlw_rfb_colour(at);
            size_t run = x;
            if (colour != last) {
                if ((place = rlw_rfb_place(p, colour, most)) < 0) return 0;
                last = colour;
            }
            /* Equal to the three bytes before: the same colour. */
            for (x++, at += 3; x + 8 <= width && rlw_rfb_same24(at - 3, at);) x += 8, at += 24;
            for (; x < width && rlw_rfb_colour(at) == colour; x++) at += 3;
            run = x - run;
            rlw_store_u64le(out, (uint64_t)place * 0x0101010101010101u);
            if (run > 8) memset(out + 8, place, run - 8);
            out += run;
        }
    }
    return 1;
}

/* Packs one row of indices, one bit each, the first one highest. */
static inline uint8_t *rlw_rfb_pack(uint8_t *to, const uint8_t *indices, size_t width) {
    unsigned filled = 0, byte = 0;
    size_t x;
    for (x = 0; x < width; x++) {
        byte = byte << 1 | indices[x];
        if (++filled == 8) {
            *to++ = (uint8_t)byte;
            byte = filled = 0;
        }
    }
    if (filled) *to++ = (uint8_t)(byte << (8 - filled));
    return to;
}

/* ---- rectangles ------------------------------------------------------------------------------- */

/* Compresses bytes as raw deflate, flushed to a byte boundary (zlib's Z_FULL_FLUSH): not the last block,
 * and without references to earlier data. Returns RLW_OK or RLW_NO_MEMORY. */
typedef rlw_status (*rlw_rfb_deflate)(void *self, const uint8_t *data, size_t size, rlw_writer *out);

/* Writes an area of a frame as a JPEG file. Returns RLW_OK or RLW_NO_MEMORY. */
typedef rlw_status (*rlw_rfb_jpeg)(void *self, const uint8_t *rgb, size_t stride, size_t width,
                                   size_t height, rlw_writer *out);

/* Zero it, then call rlw_rfb_pixels_init(). */
typedef struct rlw_rfb_encoder {
    rlw_rfb_pixels pixels;
    rlw_rfb_deflate deflate;
    rlw_rfb_jpeg jpeg; /* NULL for exact pixels */
    void *self;        /* argument of the callbacks */
    rlw_writer plain;  /* input of `deflate` */
    rlw_rfb_palette palette;
    uint8_t indices[RLW_RFB_TIGHT_AREA + 8];
} rlw_rfb_encoder;

static inline rlw_status rlw_rfb_put_head(rlw_writer *w, size_t x, size_t y, size_t width,
                                          size_t height, int32_t encoding) {
    if (rlw_reserve(w, RLW_RFB_HEAD) != RLW_OK) return RLW_NO_MEMORY;
    rlw_store_u16be(w->at, (uint16_t)x);
    rlw_store_u16be(w->at + 2, (uint16_t)y);
    rlw_store_u16be(w->at + 4, (uint16_t)width);
    rlw_store_u16be(w->at + 6, (uint16_t)height);
    rlw_store_u32be(w->at + 8, (uint32_t)encoding);
    w->at += RLW_RFB_HEAD;
    return RLW_OK;
}

/* Writes Raw: `rgb` is the rectangle's first pixel, `stride` the bytes of a row of the frame. */
static inline rlw_status rlw_rfb_put_raw(rlw_rfb_encoder *e, rlw_writer *w, const uint8_t *rgb,
                                         size_t stride, size_t width, size_t height) {
    size_t y;
    if (rlw_reserve(w, width * height * e->pixels.size) != RLW_OK) return RLW_NO_MEMORY;
    for (y = 0; y < height; y++, rgb += stride)
        w->at = rlw_rfb_store_row(&e->pixels, w->at, rgb, width);
    return RLW_OK;
}

/* Writes Tight's compact length over the 3 bytes at `at`, and closes the gap to the data behind. */
static inline void rlw_rfb_compact_length(rlw_writer *w, size_t at) {
    size_t length = rlw_written(w) - at - 3, bytes = length < 1 << 7 ? 1 : length < 1 << 14 ? 2 : 3;
    uint8_t *to = w->start + at;
    if (bytes < 3) memmove(to + bytes, to + 3, length);
    w->at -= 3 - bytes;
    to[0] = (uint8_t)((length & 0x7F) | (bytes > 1 ? 0x80 : 0));
    if (bytes > 1) to[1] = (uint8_t)((length >> 7 & 0x7F) | (bytes > 2 ? 0x80 : 0));
    if (bytes > 2) to[2] = (uint8_t)(length >> 14);
}

/* Writes Tight's data: plain if short, else deflated in a stream that the control byte resets. */
static inline rlw_status rlw_rfb_put_tight_data(rlw_rfb_encoder *e, rlw_writer *w,
                                                const uint8_t *data, size_t size) {
    size_t at;
    if (size < RLW_RFB_TIGHT_PLAIN) return rlw_put(w, data, size);
    if (rlw_reserve(w, 5) != RLW_OK) return RLW_NO_MEMORY;
    at = rlw_written(w);
    rlw_store_u16be(w->at + 3, 0x7801);
    w->at += 5;
    if (e->deflate(e->self, data, size, w) != RLW_OK) return RLW_NO_MEMORY;
    if (rlw_written(w) - at - 3 >= 1 << 22) return RLW_NO_MEMORY; /* impossible for so few pixels */
    rlw_rfb_compact_length(w, at);
    return RLW_OK;
}

/* Writes one Tight rectangle of at most RLW_RFB_TIGHT_WIDEST and RLW_RFB_TIGHT_AREA. */
static inline rlw_status rlw_rfb_put_tight(rlw_rfb_encoder *e, rlw_writer *w, const uint8_t *rgb,
                                           size_t stride, size_t width, size_t height) {
    enum { FILL = 0x80, JPEG = 0x90, FILTER = 0x40, PALETTE = 1 };
    const rlw_rfb_pixels *p = &e->pixels;
    rlw_rfb_palette *palette = &e->palette;
    rlw_writer *plain = &e->plain;
    size_t area = width * height, most = area / 4, y;
    unsigned i;
    /* A palette costs bytes; JPEG is better for pictures of many colours. */
    if (most > (e->jpeg ? 96u : 256u)) most = e->jpeg ? 96 : 256;
    if (most < 2) most = 2;
    plain->at = plain->start;
    if (rlw_reserve(plain, area * 4) != RLW_OK) return RLW_NO_MEMORY;
    if (rlw_reserve(w, 3 + 256 * 4) != RLW_OK) return RLW_NO_MEMORY;
    if (rlw_rfb_index(palette, rgb, stride, width, height, (unsigned)most, e->indices)) {
        if (palette->count == 1) {
            *w->at++ = FILL;
            w->at = rlw_rfb_store_tight(p, w->at, palette->colours[0]);
            return RLW_OK;
        }
        /* Streams as in other servers: 1 for two colours, 2 for palettes, 0 otherwise. */
        *w->at++ = (uint8_t)(palette->count == 2 ? FILTER | 0x10 | 2 : FILTER | 0x20 | 4);
        *w->at++ = PALETTE;
        *w->at++ = (uint8_t)(palette->count - 1);
        for (i = 0; i < palette->count; i++)
            w->at = rlw_rfb_store_tight(p, w->at, palette->colours[i]);
        if (palette->count > 2) return rlw_rfb_put_tight_data(e, w, e->indices, area);
        for (y = 0; y < height; y++)
            plain->at = rlw_rfb_pack(plain->at, e->indices + y * width, width);
    } else if (e->jpeg && p->rgb && area >= 256) {
        size_t at;
        *w->at++ = JPEG;
        at = rlw_written(w);
        w->at += 3;
        if (e->jpeg(e->self, rgb, stride, width, height, w) != RLW_OK) return RLW_NO_MEMORY;
        if (rlw_written(w) - at - 3 >= 1 << 22) return RLW_NO_MEMORY;
        rlw_rfb_compact_length(w, at);
        return RLW_OK;
    } else {
        *w->at++ = 1;
        for (y = 0; y < height; y++, rgb += stride) {
            if (p->rgb) {
                memcpy(plain->at, rgb, 3 * width);
                plain->at += 3 * width;
            } else {
                plain->at = rlw_rfb_store_row(p, plain->at, rgb, width);
            }
        }
    }
    return rlw_rfb_put_tight_data(e, w, plain->start, rlw_written(plain));
}

/* Writes one rectangle of a frame, or several of Tight for a large one. Adds their number to `*count`.
 * The rectangle must lie within the frame, whose sides are below 65536. */
static inline rlw_status rlw_rfb_put_rect(rlw_rfb_encoder *e, rlw_writer *w, const uint8_t *frame,
                                          size_t frame_width, const rlw_rfb_rect *r,
                                          int32_t encoding, size_t *count) {
    size_t stride = 3 * frame_width, width = r->width, height = r->height, x, y;
    size_t wide = width, high = height;
    rlw_status status = RLW_OK;
    if (!width || !height) return RLW_OK;
    if (encoding == RLW_RFB_TIGHT) {
        if (wide > RLW_RFB_TIGHT_WIDEST) wide = RLW_RFB_TIGHT_WIDEST;
        if (high > RLW_RFB_TIGHT_AREA / wide) high = RLW_RFB_TIGHT_AREA / wide;
    }
    for (y = 0; y < height && status == RLW_OK; y += high)
        for (x = 0; x < width && status == RLW_OK; x += wide) {
            size_t w1 = width - x < wide ? width - x : wide;
            size_t h1 = height - y < high ? height - y : high;
            const uint8_t *rgb = frame + (r->y + y) * stride + 3 * (r->x + x);
            ++*count;
            if (rlw_rfb_put_head(w, r->x + x, r->y + y, w1, h1, encoding) != RLW_OK)
                return RLW_NO_MEMORY;
            status = encoding == RLW_RFB_TIGHT ? rlw_rfb_put_tight(e, w, rgb, stride, w1, h1)
                                   : rlw_rfb_put_raw(e, w, rgb, stride, w1, h1);
        }
    return status;
}

#endif
