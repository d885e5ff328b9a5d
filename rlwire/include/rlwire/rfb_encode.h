/* What a server of RFB writes (RFC 6143, section 7.7, and Tight of the community's rfbproto): which
 * tiles of a frame changed, and rectangles of it as Raw and Tight.
 *
 * Frames are rows of R, G, B bytes, one after another. Deflating and JPEG are the caller's, by
 * pointer. What is written depends on nothing that was written before: each piece of deflated data
 * has no reference to an earlier one, so the same bytes serve all viewers that want the same.
 */
#ifndef RLWIRE_RFB_ENCODE_H
#define RLWIRE_RFB_ENCODE_H

#include "endian.h"
#include "status.h"
#include "writer.h"

#define RLW_RFB_HEAD 12 /* bytes before a rectangle's content */
#define RLW_RFB_TIGHT_WIDTH 2048
#define RLW_RFB_TIGHT_AREA 65536 /* pixels of one rectangle of Tight, for viewers with fixed buffers */

/* How a viewer wants its pixels. A PIXEL is the bitwise or of its parts, stored from its lowest byte
 * on: who wants big-endian ones has them swapped here. */
typedef struct rlw_rfb_pixels {
    uint8_t size; /* bytes of a PIXEL: 1, 2 or 4 */
    uint8_t rgb;  /* whether a TPIXEL, Tight's, is the bytes R, G, B */
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

/* Returns 0 for a format that is none of true colour in 8, 16 or 32 bits. */
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

/* A colour is R | G << 8 | B << 16, as its bytes lie in a frame. */
static inline uint32_t rlw_rfb_colour(const uint8_t *rgb) {
    return (uint32_t)rgb[0] | (uint32_t)rgb[1] << 8 | (uint32_t)rgb[2] << 16;
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
    else if (p->size == 2)
        for (; rgb != end; rgb += 3, to += 2) {
            uint32_t pixel = p->red[rgb[0]] | p->green[rgb[1]] | p->blue[rgb[2]];
            to[0] = (uint8_t)pixel;
            to[1] = (uint8_t)(pixel >> 8);
        }
    else
        for (; rgb != end; rgb += 3)
            *to++ = (uint8_t)(p->red[rgb[0]] | p->green[rgb[1]] | p->blue[rgb[2]]);
    return to;
}

/* ---- what changed ----------------------------------------------------------------------------- */

typedef struct rlw_rfb_rect {
    uint16_t x, y, width, height;
} rlw_rfb_rect;

/* Marks the tiles in which two frames differ: one byte each, in rows, in `marks`, which the caller
 * has made 0. Returns how many. */
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

/* Puts marked tiles together: runs in a row of tiles, and runs below each other that are as wide.
 * `out` has room for as many rectangles as there are marked tiles. Returns how many there are. */
static inline size_t rlw_rfb_gather(const uint8_t *marks, size_t width, size_t height, size_t tile,
                                    rlw_rfb_rect *out) {
    size_t across = (width + tile - 1) / tile, down = (height + tile - 1) / tile;
    size_t count = 0, above = 0, x, y, from, i;
    for (y = 0; y < down; y++, marks += across) {
        size_t top = y * tile, bottom = top + tile < height ? top + tile : height;
        size_t first = count; /* of this row; those from `above` to it may reach down to it */
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
        /* Those that no row reached for any more need not be looked at again. */
        while (above < count && (size_t)out[above].y + out[above].height < bottom) above++;
    }
    return count;
}

/* ---- palettes --------------------------------------------------------------------------------- */

#define RLW_RFB_SLOTS 1024

typedef struct rlw_rfb_palette {
    uint32_t colours[256];
    unsigned count;
    uint32_t keys[RLW_RFB_SLOTS]; /* a colour, and above it one bit; 0 where nothing is */
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

/* Writes which colour each pixel has, a byte each, and the colours in the order in which they come.
 * `out` has room for 8 bytes more. Returns 0 as soon as there are more than `most`, which is 256 or less. */
static inline int rlw_rfb_index(rlw_rfb_palette *p, const uint8_t *rgb, size_t stride, size_t width,
                                size_t height, unsigned most, uint8_t *out) {
    size_t x, y;
    memset(p->keys, 0, sizeof p->keys);
    p->count = 0;
    for (y = 0; y < height; y++, rgb += stride) {
        const uint8_t *at = rgb;
        uint32_t last;
        int place;
        if (y && memcmp(rgb - stride, rgb, 3 * width) == 0) { /* a game's pixels are large */
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
            /* As long as each byte is that of three bytes before, the colour stays. */
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

/* Packs one row of indices, a bit each, the first one highest. */
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

/* ---- short deflate ---------------------------------------------------------------------------- */

/* A library takes longer to get ready for a piece of deflate than such a piece takes here: it has one
 * block with the fixed codes (RFC 1951, 3.2.6), and matches with what stood at the last place where
 * the same three bytes were. */
#define RLW_RFB_SHORT 8192

typedef struct rlw_rfb_codes {
    uint16_t literal[256]; /* as they are written, the lowest bit first; 8 bits, from 144 on 9 */
    uint32_t length[259];  /* of a match, with its extra bits, */
    uint8_t bits[259];     /* and how many those are */
    uint8_t distance[32];  /* the 5 bits of a distance's code */
} rlw_rfb_codes;

static inline uint32_t rlw_rfb_reversed(uint32_t code, unsigned bits) {
    uint32_t reversed = 0;
    for (; bits; bits--, code >>= 1) reversed = reversed << 1 | (code & 1);
    return reversed;
}

/* The place of the highest bit of a number above 0. */
static inline unsigned rlw_rfb_highest(uint32_t number) {
    unsigned place = 0;
    while (number >>= 1) place++;
    return place;
}

static inline void rlw_rfb_codes_init(rlw_rfb_codes *c) {
    unsigned i;
    for (i = 0; i < 256; i++)
        c->literal[i] = (uint16_t)(i < 144 ? rlw_rfb_reversed(0x30 + i, 8)
                                           : rlw_rfb_reversed(0x190 + i - 144, 9));
    for (i = 3; i <= 258; i++) {
        unsigned l = i - 3, n = l < 8 ? 0 : rlw_rfb_highest(l), extra = n ? n - 2 : 0;
        unsigned code = l < 8 ? 257 + l : 253 + 4 * n + ((l >> extra) & 3);
        if (i == 258) code = 285, extra = 0, l = 0;
        c->bits[i] = (uint8_t)(code < 280 ? 7 : 8);
        c->length[i] = code < 280 ? rlw_rfb_reversed(code - 256, 7)
                                  : rlw_rfb_reversed(0xC0 + code - 280, 8);
        c->length[i] |= (l & ((1u << extra) - 1)) << c->bits[i];
        c->bits[i] = (uint8_t)(c->bits[i] + extra);
    }
    for (i = 0; i < 32; i++) c->distance[i] = (uint8_t)rlw_rfb_reversed(i, 5);
}

/* How many bytes are alike at two places, of `most` at most; there are `most` at both. */
static inline size_t rlw_rfb_alike(const uint8_t *one, const uint8_t *other, size_t most) {
    size_t length = 0;
    while (length + 8 <= most && rlw_load_u64le(one + length) == rlw_load_u64le(other + length))
        length += 8;
    while (length < most && one[length] == other[length]) length++;
    return length;
}

/* Writes up to RLW_RFB_SHORT bytes as raw deflate, as rlw_rfb_deflate does. */
static inline rlw_status rlw_rfb_deflate_short(const rlw_rfb_codes *c, const uint8_t *data,
                                               size_t size, rlw_writer *out) {
    uint16_t heads[1024]; /* one behind the last place of three bytes */
    uint64_t bits = 2;    /* not the last block; fixed codes */
    unsigned filled = 3;
    size_t i = 0;
    uint8_t *to;
    if (rlw_reserve(out, size + size / 8 + 24) != RLW_OK) return RLW_NO_MEMORY;
    to = out->at;
    memset(heads, 0, sizeof heads);
    while (i < size) {
        size_t length = 0, from = 0;
        if (size - i >= 4) {
            uint32_t three = rlw_load_u32le(data + i) & 0xFFFFFF;
            uint16_t *head = heads + (three * 0x9E3779B1u >> 22);
            from = *head;
            *head = (uint16_t)(i + 1);
            if (from-- && (rlw_load_u32le(data + from) & 0xFFFFFF) == three)
                length = 3 + rlw_rfb_alike(data + from + 3, data + i + 3,
                                           (size - i < 258 ? size - i : 258) - 3);
        }
        if (length) {
            uint32_t distance = (uint32_t)(i - from - 1);
            bits |= (uint64_t)c->length[length] << filled;
            filled += c->bits[length];
            if (distance < 4) {
                bits |= (uint64_t)c->distance[distance] << filled;
                filled += 5;
            } else {
                unsigned n = rlw_rfb_highest(distance);
                bits |= (uint64_t)c->distance[2 * n + (distance >> (n - 1) & 1)] << filled;
                bits |= (uint64_t)(distance & ((1u << (n - 1)) - 1)) << (filled + 5);
                filled += 5 + n - 1;
            }
            i += length;
        } else {
            bits |= (uint64_t)c->literal[data[i]] << filled;
            filled += data[i] < 144 ? 8 : 9;
            i++;
        }
        rlw_store_u64le(to, bits); /* 7 bits may stay, and no step adds more than 13 + 18 */
        to += filled / 8;
        bits >>= filled / 8 * 8;
        filled %= 8;
    }
    /* The block's end, seven bits of 0, and an empty stored block: three of 0, up to the byte's end,
     * and its length. */
    filled += 10;
    while (filled > 0) {
        *to++ = (uint8_t)bits;
        bits >>= 8;
        filled = filled > 8 ? filled - 8 : 0;
    }
    rlw_store_u32le(to, 0xFFFF0000u);
    out->at = to + 4;
    return RLW_OK;
}

/* ---- rectangles ------------------------------------------------------------------------------- */

/* Compresses `size` bytes as raw deflate that ends on a byte's border (zlib's Z_FULL_FLUSH), refers
 * to nothing before it, and does not say that it is the last. Returns RLW_OK or RLW_NO_MEMORY. */
typedef rlw_status (*rlw_rfb_deflate)(void *self, const uint8_t *data, size_t size, rlw_writer *out);

/* Makes a JPEG file of an area of a frame. */
typedef rlw_status (*rlw_rfb_jpeg)(void *self, const uint8_t *rgb, size_t stride, size_t width,
                                   size_t height, rlw_writer *out);

/* All 0 at first; then `pixels` and `codes` are initialised. */
typedef struct rlw_rfb_encoder {
    rlw_rfb_pixels pixels;
    rlw_rfb_deflate deflate; /* of what is longer than RLW_RFB_SHORT */
    rlw_rfb_jpeg jpeg;       /* NULL for exact pixels; for Tight only */
    void *self;              /* of both */
    rlw_writer plain;        /* what is about to be deflated */
    rlw_rfb_codes codes;
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

static inline rlw_status rlw_rfb_put_deflated(rlw_rfb_encoder *e, rlw_writer *w,
                                              const uint8_t *data, size_t size) {
    if (size <= RLW_RFB_SHORT) return rlw_rfb_deflate_short(&e->codes, data, size, w);
    return e->deflate(e->self, data, size, w);
}

/* Raw: `rgb` is the rectangle's first pixel, `stride` the bytes of a row of the frame. */
static inline rlw_status rlw_rfb_put_raw(rlw_rfb_encoder *e, rlw_writer *w, const uint8_t *rgb,
                                         size_t stride, size_t width, size_t height) {
    size_t y;
    if (rlw_reserve(w, width * height * e->pixels.size) != RLW_OK) return RLW_NO_MEMORY;
    for (y = 0; y < height; y++, rgb += stride)
        w->at = rlw_rfb_store_row(&e->pixels, w->at, rgb, width);
    return RLW_OK;
}

/* Puts Tight's compact length where `room`, 3 bytes, was left for it: what is behind moves. */
static inline void rlw_rfb_compact_length(rlw_writer *w, size_t at) {
    size_t length = rlw_written(w) - at - 3, bytes = length < 1 << 7 ? 1 : length < 1 << 14 ? 2 : 3;
    uint8_t *to = w->start + at;
    if (bytes < 3) memmove(to + bytes, to + 3, length);
    w->at -= 3 - bytes;
    to[0] = (uint8_t)((length & 0x7F) | (bytes > 1 ? 0x80 : 0));
    if (bytes > 1) to[1] = (uint8_t)((length >> 7 & 0x7F) | (bytes > 2 ? 0x80 : 0));
    if (bytes > 2) to[2] = (uint8_t)(length >> 14);
}

/* Data of a rectangle of Tight: as it is if it is short, else deflated in a stream that begins anew,
 * which its control byte says. */
static inline rlw_status rlw_rfb_put_tight_data(rlw_rfb_encoder *e, rlw_writer *w,
                                                const uint8_t *data, size_t size) {
    size_t at;
    if (size < 12) return rlw_put(w, data, size);
    if (rlw_reserve(w, 5) != RLW_OK) return RLW_NO_MEMORY;
    at = rlw_written(w);
    rlw_store_u16be(w->at + 3, 0x7801);
    w->at += 5;
    if (rlw_rfb_put_deflated(e, w, data, size) != RLW_OK) return RLW_NO_MEMORY;
    if (rlw_written(w) - at - 3 >= 1 << 22) return RLW_NO_MEMORY; /* it cannot be, of so few pixels */
    rlw_rfb_compact_length(w, at);
    return RLW_OK;
}

/* Tight: one rectangle of at most RLW_RFB_TIGHT_WIDTH and RLW_RFB_TIGHT_AREA. */
static inline rlw_status rlw_rfb_put_tight(rlw_rfb_encoder *e, rlw_writer *w, const uint8_t *rgb,
                                           size_t stride, size_t width, size_t height) {
    enum { FILL = 0x80, JPEG = 0x90, FILTER = 0x40, PALETTE = 1 };
    const rlw_rfb_pixels *p = &e->pixels;
    rlw_rfb_palette *palette = &e->palette;
    rlw_writer *plain = &e->plain;
    size_t area = width * height, most = area / 4, y;
    unsigned i;
    /* A palette has to be paid for; and beside many colours JPEG is for pictures. */
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
        /* Streams as other servers use them: 1 for two colours, 2 for palettes, 0 for the rest. */
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

/* Writes one rectangle of a frame with its head; of Tight several, where it is large. `*count` grows
 * by their number. The rectangle lies in the frame, whose sides are below 65536. */
static inline rlw_status rlw_rfb_put_rect(rlw_rfb_encoder *e, rlw_writer *w, const uint8_t *frame,
                                          size_t frame_width, const rlw_rfb_rect *r,
                                          int32_t encoding, size_t *count) {
    size_t stride = 3 * frame_width, width = r->width, height = r->height, x, y;
    size_t wide = width, high = height;
    rlw_status status = RLW_OK;
    if (!width || !height) return RLW_OK;
    if (encoding == 7) {
        if (wide > RLW_RFB_TIGHT_WIDTH) wide = RLW_RFB_TIGHT_WIDTH;
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
            status = encoding == 7 ? rlw_rfb_put_tight(e, w, rgb, stride, w1, h1)
                                   : rlw_rfb_put_raw(e, w, rgb, stride, w1, h1);
        }
    return status;
}

#endif
