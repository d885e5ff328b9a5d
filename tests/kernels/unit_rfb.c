/* rfb.h and rfb_pixels.h where vectors of the processor are used, at every length. The encodings at
 * large are compared with a slow reference in tests/codecs/rfb. */
#if defined(__cplusplus) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized" /* in GCC 12's own headers */
#endif
#include "harness.h"

static uint8_t pixels[2 * 140 * 3];

/* Rows end where their blocks end, so that one byte too many is seen. By rlw_rfb_three() those are
 * written that processors with something better do not come to. */
CASE(rows_of_every_length) {
    size_t count, i;
    unsigned wrong = 0;
    for (count = 0; count < 140; count++) {
        const uint32_t high = count & 1 ? 1 : 2, width = (uint32_t)count / high;
        uint8_t wire[4 * 140], *from, *to, *other;
        rlw_rfb_screen s = {NULL, 3 * width, width, high};
        for (i = 0; i < 4 * count; i++) wire[i] = (uint8_t)(i * 37 + 11);
        from = exact(wire, 4 * count);
        s.pixels = to = exact(wire, 3 * count);
        other = exact(wire, 3 * count);
        rlw_rfb_rows(&s, 0, 0, from, 4 * width, 4, width, high);
        rlw_rfb_three(other, from, count);
        for (i = 0; i < count; i++) {
            if (memcmp(to + 3 * i, from + 4 * i, 3) != 0) wrong++;
            if (memcmp(other + 3 * i, from + 4 * i, 3) != 0) wrong++;
        }
        release(from);
        release(to);
        release(other);
    }
    EQUAL(wrong, 0);
}

/* Rows and screen end where their blocks end; an index without a colour is seen wherever it is. */
CASE(indices_of_every_length) {
    static const unsigned cases[][2] = {{1, 1}, {1, 2}, {2, 3}, {2, 4}, {4, 5}, {4, 16}, {8, 3},
                                        {8, 64}, {8, 65}, {8, 128}, {8, 129}, {8, 255}, {8, 256}};
    static uint8_t wire[2 * 140];
    uint32_t palette[256], width, x, y;
    unsigned wrong = 0, i;
    size_t k;
    for (i = 0; i < 256; i++) palette[i] = i | ((i * 7 + 1) & 255) << 8 | (255 - i) << 16;
    for (k = 0; k < sizeof cases / sizeof *cases; k++)
        for (width = 1; width <= 140; width++) {
            const unsigned bits = cases[k][0], colours = cases[k][1];
            const size_t row = (width * bits + 7) / 8, size = (size_t)width * 2 * 3;
            uint8_t *from, *to = exact(pixels, size);
            rlw_rfb_screen s = {to, width * 3, width, 2};
            rlw_cursor c;
            memset(wire, 0, 2 * row);
            for (y = 0; y < 2; y++)
                for (x = 0; x < width; x++) {
                    unsigned index = (x * 5 + y * 3 + 1) % colours;
                    wire[y * row + x * bits / 8] |= (uint8_t)(index << (8 - bits - x * bits % 8));
                }
            from = exact(wire, 2 * row);
            rlw_cursor_init(&c, from, 2 * row);
            if (rlw_rfb_paint_indices(&c, &s, 0, 0, width, 2, bits, palette, colours) != RLW_OK)
                wrong++;
            for (y = 0; y < 2; y++)
                for (x = 0; x < width; x++)
                    if (rlw_rfb_colour(rlw_rfb_spot(&s, x, y)) != palette[(x * 5 + y * 3 + 1) % colours])
                        wrong++;
            if (colours < 1u << bits) {
                x = width * 7 % 13 * width / 13;
                from[row + x * bits / 8] |= (uint8_t)(((1u << bits) - 1)
                                                     << (8 - bits - x * bits % 8));
                rlw_cursor_init(&c, from, 2 * row);
                if (rlw_rfb_paint_indices(&c, &s, 0, 0, width, 2, bits, palette, colours) !=
                        RLW_BAD_PALETTE ||
                    c.fault.at != from + row || c.fault.got != (1u << bits) - 1)
                    wrong++;
            }
            release(from);
            release(to);
        }
    EQUAL(wrong, 0);
}

/* Whichever way there is, against pixel by pixel; those past the borders are told. */
CASE(subrectangles) {
    static rlw_rfb_hextile h;
    static uint32_t expected[32][32];
    unsigned round, wrong = 0, i, x, y;
    h.front = 0x01020304;
    for (round = 0; round < 2000; round++) {
        const unsigned step = round & 1 ? 6 : 2, count = round % 256;
        const unsigned width = 1 + round * 7 % 16, height = 1 + round * 3 % 16;
        const int small = round % 3 != 0;
        uint8_t wire[6 * 256], *at;
        unsigned outside = 0;
        for (i = 0; i < step * count; i++) wire[i] = (uint8_t)chance();
        memset(h.tile, 0, sizeof h.tile);
        memset(expected, 0, sizeof expected);
        for (i = 0; i < count; i++) {
            uint8_t *place = wire + i * step + step - 2;
            unsigned left, top, wide, high;
            uint32_t colour = h.front;
            if (small) {
                place[0] = (uint8_t)((place[0] >> 4) % width << 4 | (place[0] & 15u) % height);
                place[1] = (uint8_t)((place[1] >> 4) % (width - (place[0] >> 4)) << 4 |
                                     (place[1] & 15u) % (height - (place[0] & 15u)));
            }
            left = place[0] >> 4;
            top = place[0] & 15u;
            wide = (place[1] >> 4) + 1u;
            high = (place[1] & 15u) + 1u;
            if (left + wide > width || top + high > height) outside = 1;
            if (step == 6) memcpy(&colour, wire + i * step, 4);
            for (y = top; y < top + high; y++)
                for (x = left; x < left + wide; x++) expected[y][x] = colour;
        }
        at = exact(wire, step * count);
        if (!rlw_rfb_subrects(&h, at, count, step, width, height) != !outside) wrong++;
        if (memcmp(h.tile, expected, sizeof expected) != 0) wrong++;
        release(at);
    }
    EQUAL(wrong, 0);
}
