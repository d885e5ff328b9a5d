/* What of a frame is what stood elsewhere in the frame before, as where a picture scrolls: for
 * CopyRect of RFB (RFC 6143, section 7.7.2). Frames are rows of R, G, B bytes, one after another.
 *
 * Up and down rows are compared by hashes of a part of them, left and right columns; the shift that
 * most of a few probes tell is then seen to byte by byte, so a hash that lies does no harm.
 */
#ifndef RLWIRE_RFB_MOVE_H
#define RLWIRE_RFB_MOVE_H

#include "endian.h"
#include "rfb_encode.h"

#define RLW_RFB_PROBES 32 /* lines of the new frame that are looked for in the old one */
#define RLW_RFB_VOTES 8   /* of them that must agree on how far they have moved */
#define RLW_RFB_PLACES 4  /* where a line may have stood before; one that is anywhere tells nothing */
#define RLW_RFB_SAMPLE 64 /* rows of which a column's hash is made, and the most pixels of a row's */

typedef struct rlw_rfb_move {
    rlw_rfb_rect to;
    uint16_t from_x, from_y;
} rlw_rfb_move;

static inline uint32_t rlw_rfb_mix(uint32_t hash, const uint8_t *rgb) {
    return (hash ^ ((uint32_t)rgb[0] | (uint32_t)rgb[1] << 8 | (uint32_t)rgb[2] << 16)) * 0x9E3779B1u;
}

/* Hashes of an area's rows, of some pixels in their middle half. */
static inline void rlw_rfb_hash_rows(const uint8_t *frame, size_t width, const rlw_rfb_rect *area,
                                     uint32_t *hashes) {
    size_t count = area->width < RLW_RFB_SAMPLE ? area->width : RLW_RFB_SAMPLE, i, y;
    size_t step = area->width / 2 / count ? area->width / 2 / count : 1;
    const uint8_t *row =
        frame + 3 * (width * area->y + area->x + (size_t)(area->width - count * step) / 2);
    for (y = 0; y < area->height; y++, row += 3 * width) {
        uint32_t hash = 0;
        for (i = 0; i < count; i++) hash = rlw_rfb_mix(hash, row + 3 * step * i);
        hashes[y] = hash;
    }
}

/* Hashes of an area's columns, of some rows in its middle half. */
static inline void rlw_rfb_hash_columns(const uint8_t *frame, size_t width,
                                        const rlw_rfb_rect *area, uint32_t *hashes) {
    size_t count = area->height < RLW_RFB_SAMPLE ? area->height : RLW_RFB_SAMPLE, x, i;
    size_t step = area->height / 2 / count ? area->height / 2 / count : 1;
    const uint8_t *row =
        frame + 3 * (width * (area->y + (size_t)(area->height - count * step) / 2) + area->x);
    memset(hashes, 0, area->width * sizeof *hashes);
    for (i = 0; i < count; i++, row += 3 * width * step)
        for (x = 0; x < area->width; x++) hashes[x] = rlw_rfb_mix(hashes[x], row + 3 * x);
}

/* How far lines have moved by most probes, 0 if too few agree. A line is told by its hash and the
 * next one's: a single one may be like its neighbour. `votes` has room for 2 * count. */
static inline ptrdiff_t rlw_rfb_shift(uint32_t *before, uint32_t *after, size_t count,
                                      uint16_t *votes) {
    size_t probe, best = 0, i;
    for (i = 0; i + 1 < count; i++) {
        before[i] = before[i] * 31 + before[i + 1];
        after[i] = after[i] * 31 + after[i + 1];
    }
    memset(votes, 0, 2 * count * sizeof *votes);
    for (probe = 0; probe < RLW_RFB_PROBES; probe++) {
        size_t at = (2 * probe + 1) * count / (2 * RLW_RFB_PROBES), found = 0;
        size_t where[RLW_RFB_PLACES];
        /* A line that stands as it stood, or that is like its neighbour, tells nothing. */
        if (after[at] == before[at] || (at && after[at] == after[at - 1])) continue;
        for (i = 0; i < count && found <= RLW_RFB_PLACES; i++)
            if (before[i] == after[at] && found++ < RLW_RFB_PLACES) where[found - 1] = i;
        if (found <= RLW_RFB_PLACES)
            for (i = 0; i < found; i++) votes[count + at - where[i]]++;
    }
    for (i = 1; i < 2 * count; i++)
        if (votes[i] > votes[best]) best = i;
    return votes[best] < RLW_RFB_VOTES ? 0 : (ptrdiff_t)best - (ptrdiff_t)count;
}

/* Whether some pixels stood so many bytes before where they stand now. */
static inline int rlw_rfb_came(const uint8_t *before, const uint8_t *after, size_t at, size_t count,
                               ptrdiff_t back) {
    return memcmp(after + 3 * at, before + ((ptrdiff_t)(3 * at) - back), 3 * count) == 0;
}

/* The largest rectangle of some within an area that has moved so far; returns its pixels, 0 for
 * none. Its columns are those that match in a row of the area, its rows all that match in them. */
static inline size_t rlw_rfb_extent(const uint8_t *before, const uint8_t *after, size_t width,
                                    const rlw_rfb_rect *area, ptrdiff_t dx, ptrdiff_t dy,
                                    rlw_rfb_move *move) {
    size_t left = area->x + (size_t)(dx > 0 ? dx : 0), top = area->y + (size_t)(dy > 0 ? dy : 0);
    size_t right = area->x + area->width - (size_t)(dx < 0 ? -dx : 0);
    size_t bottom = area->y + area->height - (size_t)(dy < 0 ? -dy : 0);
    ptrdiff_t back = 3 * (dy * (ptrdiff_t)width + dx);
    size_t most = 0, k, y;
    if (left >= right || top >= bottom) return 0;
    for (k = 1; k < 8; k++) {
        size_t row = width * (top + (bottom - top) * k / 8), from = (left + right) / 2, to = from;
        size_t first = bottom; /* of a run of rows that match; there is none at the bottom */
        while (from > left && rlw_rfb_came(before, after, row + from - 1, 1, back)) from--;
        while (to < right && rlw_rfb_came(before, after, row + to, 1, back)) to++;
        if ((to - from) * 4 < right - left) continue;
        for (y = top; y <= bottom; y++) {
            if (y < bottom && rlw_rfb_came(before, after, width * y + from, to - from, back)) {
                if (first == bottom) first = y;
                continue;
            }
            if (first < bottom && (y - first) * (to - from) > most) {
                most = (y - first) * (to - from);
                move->to.x = (uint16_t)from;
                move->to.y = (uint16_t)first;
                move->to.width = (uint16_t)(to - from);
                move->to.height = (uint16_t)(y - first);
                move->from_x = (uint16_t)((ptrdiff_t)from - dx);
                move->from_y = (uint16_t)((ptrdiff_t)first - dy);
            }
            first = bottom;
        }
    }
    return most;
}

/* Finds a rectangle of an area that stood elsewhere in it before, as high or as far to the left.
 * `work` has room for 4 numbers for each pixel of the area's longer side. Returns its pixels, 0 for
 * none. */
static inline size_t rlw_rfb_moved(const uint8_t *before, const uint8_t *after, size_t width,
                                   const rlw_rfb_rect *area, uint32_t *work, rlw_rfb_move *move) {
    size_t longest = area->width > area->height ? area->width : area->height;
    uint32_t *old = work, *now = work + longest;
    uint16_t *votes = (uint16_t *)(work + 2 * longest);
    ptrdiff_t shift;
    rlw_rfb_hash_rows(before, width, area, old);
    rlw_rfb_hash_rows(after, width, area, now);
    shift = rlw_rfb_shift(old, now, area->height, votes);
    if (shift != 0) return rlw_rfb_extent(before, after, width, area, 0, shift, move);
    rlw_rfb_hash_columns(before, width, area, old);
    rlw_rfb_hash_columns(after, width, area, now);
    shift = rlw_rfb_shift(old, now, area->width, votes);
    if (shift != 0) return rlw_rfb_extent(before, after, width, area, shift, 0, move);
    return 0;
}

#endif
