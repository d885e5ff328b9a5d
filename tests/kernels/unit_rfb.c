/* rfb.h and rfb_pixels.h where vectors of the processor are used, at every length. The encodings at
 * large are compared with a slow reference in tests/codecs/rfb. */
#include "harness.h"

static const rlw_rfb_format rgbx = {32, 24, 0, {0, 8, 16}, {255, 255, 255}};

static uint8_t pixels[2 * 140 * 4];

/* Each row ends where its block ends, so that one byte too many is seen. */
static void rows_of_every_length(void) {
    static const uint8_t shifts[][3] = {{0, 8, 16}, {16, 8, 0}, {8, 16, 24}, {24, 16, 8}, {8, 0, 16}};
    size_t count, k, i;
    unsigned wrong = 0, channels;
    for (k = 0; k < sizeof shifts / sizeof *shifts; k++)
        for (channels = 3; channels <= 4; channels++)
            for (count = 0; count < 140; count++) {
                rlw_rfb_format f = rgbx;
                rlw_rfb_layouts p;
                uint8_t wire[4 * 140], *from, *to;
                memcpy(f.shift, shifts[k], 3);
                rlw_rfb_prepare(&p, &f);
                for (i = 0; i < 4 * count; i++) wire[i] = (uint8_t)(i * 37 + 11);
                from = exact(wire, 4 * count);
                to = exact(wire, channels * count);
                if (count & 1) {
                    rlw_rfb_row(&p, &p.pixel, channels, to, from, count);
                } else {
                    rlw_rfb_screen s = {to, channels * (count / 2), (uint32_t)count / 2, 2, 0};
                    s.channels = channels;
                    rlw_rfb_rows(&p, &p.pixel, &s, 0, 0, from, 2 * count, (uint32_t)count / 2, 2);
                }
                for (i = 0; i < count; i++) {
                    int c;
                    for (c = 0; c < 3; c++)
                        if (to[i * channels + (size_t)c] != from[4 * i + shifts[k][c] / 8u]) wrong++;
                    if (channels == 4 && to[4 * i + 3] != 255) wrong++;
                }
                release(from);
                release(to);
            }
    EQUAL(wrong, 0);
}

#ifdef RLW_RFB_X86
/* What processors with something better do not come to. */
static void rows_by_ssse3(void) {
    size_t count, done, i;
    unsigned wrong = 0, way;
    if (!rlw_rfb_has_ssse3()) return;
    for (way = 0; way < 4; way++)
        for (count = 0; count < 70; count++) {
            const unsigned low = way / 2, red = low + (way & 1 ? 2 : 0), blue = 2 * low + 2 - red;
            uint8_t wire[4 * 70], *from, *to;
            for (i = 0; i < 4 * count; i++) wire[i] = (uint8_t)(i * 37 + 11);
            from = exact(wire, 4 * count);
            to = exact(wire, 3 * count);
            done = rlw_rfb_three_ssse3(to, from, count, red, blue);
            if (done > count || count - done > 5) wrong++;
            for (i = 0; i < done; i++)
                if (to[3 * i] != from[4 * i + red] || to[3 * i + 1] != from[4 * i + low + 1] ||
                    to[3 * i + 2] != from[4 * i + blue])
                    wrong++;
            release(from);
            release(to);
        }
    EQUAL(wrong, 0);
}
#endif

/* Rows and screen end where their blocks end; an index without a colour is seen wherever it is. */
static void indices_of_every_length(void) {
    static const unsigned cases[][2] = {{1, 1}, {1, 2}, {2, 3}, {2, 4}, {4, 5}, {4, 16}, {8, 3},
                                        {8, 64}, {8, 65}, {8, 128}, {8, 129}, {8, 255}, {8, 256}};
    static uint8_t wire[2 * 140];
    rlw_rfb_rgba palette[256];
    uint32_t width, x, y;
    unsigned wrong = 0, channels, i;
    size_t k;
    for (i = 0; i < 256; i++) {
        const rlw_rfb_rgba colour = {{(uint8_t)i, (uint8_t)(i * 7 + 1), (uint8_t)(255 - i), 255}};
        palette[i] = colour;
    }
    for (k = 0; k < sizeof cases / sizeof *cases; k++)
        for (width = 1; width <= 140; width++)
            for (channels = 3; channels <= 4; channels++) {
                const unsigned bits = cases[k][0], colours = cases[k][1];
                const size_t row = (width * bits + 7) / 8, size = (size_t)width * 2 * channels;
                uint8_t *from, *to = exact(pixels, size);
                rlw_rfb_screen s = {to, width * channels, width, 2, channels};
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
                        if (memcmp(rlw_rfb_spot(&s, x, y), palette[(x * 5 + y * 3 + 1) % colours].of,
                                   channels) != 0)
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
static void subrectangles(void) {
    static rlw_rfb_hextile h;
    static uint32_t expected[32][32];
    rlw_rfb_layouts p;
    unsigned round, wrong = 0, i, x, y;
    uint32_t chance = 1;
    rlw_rfb_prepare(&p, &rgbx);
    h.raw = 1;
    h.layout = p.pixel;
    h.front = 0x01020304;
    for (round = 0; round < 2000; round++) {
        const unsigned step = round & 1 ? 6 : 2, count = round % 256;
        const unsigned width = 1 + round * 7 % 16, height = 1 + round * 3 % 16;
        const int small = round % 3 != 0;
        uint8_t wire[6 * 256], *at;
        unsigned outside = 0;
        for (i = 0; i < step * count; i++) {
            chance = chance * 1664525 + 1013904223;
            wire[i] = (uint8_t)(chance >> 24);
        }
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
        if (!rlw_rfb_subrects(&h, &p, at, count, step, width, height) != !outside) wrong++;
        if (memcmp(h.tile, expected, sizeof expected) != 0) wrong++;
        release(at);
    }
    EQUAL(wrong, 0);
}

void rfb_suite(void) {
    RUN(rows_of_every_length);
#ifdef RLW_RFB_X86
    RUN(rows_by_ssse3);
#endif
    RUN(indices_of_every_length);
    RUN(subrectangles);
}
