/* rfb.h and rfb_pixels.h: formats, rows at every length, fills, borders, and what is refused. The
 * encodings at large are compared with a slow reference in tests/codecs/rfb. */
#include "harness.h"

static const rlw_rfb_format rgbx = {32, 24, 0, {0, 8, 16}, {255, 255, 255}};
static const rlw_rfb_format rgb565 = {16, 16, 0, {11, 5, 0}, {31, 63, 31}};

static uint8_t pixels[64 * 64 * 4];

static rlw_rfb_screen screen_of(uint32_t width, uint32_t height, unsigned channels) {
    rlw_rfb_screen s;
    s.pixels = pixels;
    s.width = width;
    s.height = height;
    s.channels = channels;
    s.stride = width * channels;
    memset(pixels, 7, sizeof pixels);
    return s;
}

static void formats(void) {
    rlw_rfb_format f = rgbx;
    CHECK(rlw_rfb_is_format(&f));
    f.bits = 24;
    CHECK(!rlw_rfb_is_format(&f));
    f = rgbx;
    f.max[1] = 254;
    CHECK(!rlw_rfb_is_format(&f));
    f = rgbx;
    f.max[1] = 0;
    CHECK(!rlw_rfb_is_format(&f));
    f = rgbx;
    f.shift[2] = 25;
    CHECK(!rlw_rfb_is_format(&f));
    f = rgbx;
    f.shift[2] = 15;
    CHECK(!rlw_rfb_is_format(&f)); /* shares a bit with green */
    f = rgb565;
    CHECK(rlw_rfb_is_format(&f));
}

static void compact_pixels(void) { /* RFC 6143, 7.7.5: where the three bytes are */
    rlw_rfb_format f = rgbx;
    rlw_rfb_layouts p;
    int big, high, i;
    for (big = 0; big < 2; big++)
        for (high = 0; high < 2; high++) {
            uint8_t whole[4] = {0, 0, 0, 0};
            const uint8_t *compact = whole + (big != high);
            rlw_rfb_rgba c;
            f.big_endian = (uint8_t)big;
            for (i = 0; i < 3; i++) {
                int at = i + high;
                f.shift[i] = (uint8_t)(8 * at);
                whole[big ? 3 - at : at] = (uint8_t)(10 + i);
            }
            rlw_rfb_prepare(&p, &f);
            EQUAL(p.cpixel.size, 3);
            EQUAL(p.tpixel.size, 3);
            c = rlw_rfb_colour_at(&p, &p.pixel, whole);
            CHECK(c.of[0] == 10 && c.of[1] == 11 && c.of[2] == 12 && c.of[3] == 255);
            c = rlw_rfb_colour_at(&p, &p.cpixel, compact);
            CHECK(c.of[0] == 10 && c.of[1] == 11 && c.of[2] == 12);
        }
    f.depth = 32;
    rlw_rfb_prepare(&p, &f);
    CHECK(p.cpixel.size == 4 && p.tpixel.size == 4);
}

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

static void fills_of_every_size(void) {
    const rlw_rfb_rgba colour = {{1, 2, 3, 255}};
    uint32_t width, height, x, y;
    unsigned wrong = 0, channels, c;
    for (channels = 3; channels <= 4; channels++)
        for (width = 0; width <= 40; width++)
            for (height = 0; height <= 3; height++) {
                rlw_rfb_screen s = screen_of(48, 5, channels);
                rlw_rfb_fill(&s, 3, 1, width, height, colour);
                for (y = 0; y < 5; y++)
                    for (x = 0; x < 48; x++) {
                        int inside = x >= 3 && x < 3 + width && y >= 1 && y < 1 + height;
                        const uint8_t *p = rlw_rfb_spot(&s, x, y);
                        for (c = 0; c < channels; c++)
                            if (p[c] != (inside ? colour.of[c] : 7)) wrong++;
                    }
            }
    EQUAL(wrong, 0);
}

static void compact_lengths(void) {
    static const struct {
        uint8_t bytes[3];
        size_t used;
        uint32_t length;
    } cases[] = {{{0x7F, 0, 0}, 1, 127},
                 {{0x80, 0x01, 0}, 2, 128},
                 {{0xFF, 0x7F, 0}, 2, 16383},
                 {{0x80, 0x80, 0x01}, 3, 16384},
                 {{0xFF, 0xFF, 0xFF}, 3, 4194303}};
    size_t i, size;
    for (i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size = 0; size <= cases[i].used; size++) {
            uint8_t *bytes = exact(cases[i].bytes, size);
            rlw_cursor c;
            uint32_t length;
            rlw_cursor_init(&c, bytes, size);
            EQUAL(rlw_rfb_take_compact(&c, &length),
                  size < cases[i].used ? RLW_NEED_MORE : RLW_OK);
            if (size == cases[i].used) CHECK(length == cases[i].length && c.at == c.end);
            release(bytes);
        }
}

static rlw_status measured(const void *data, size_t size, const rlw_rfb_screen *s,
                           uint64_t *bytes) {
    rlw_rfb_layouts p;
    rlw_rfb_progress progress = {0, 0};
    uint8_t *copy = exact(data, size);
    rlw_cursor c;
    rlw_status status;
    rlw_rfb_prepare(&p, &rgb565);
    rlw_cursor_init(&c, copy, size);
    status = rlw_rfb_measure(&c, &p, s, &progress, bytes);
    CHECK(c.at == copy);
    release(copy);
    return status;
}

static void borders(void) {
    rlw_rfb_screen s = screen_of(64, 64, 3);
    uint64_t size;
#define HEAD(w, h, e) "\0\1\0\2\0" w "\0" h "\xff\xff\xff" e
#define PLAIN(w, h, e) "\0\1\0\2\0" w "\0" h "\0\0\0" e
    EQUAL(measured(PLAIN("\5", "\3", "\0"), 12, &s, &size), RLW_OK);
    EQUAL(size, 12 + 5 * 3 * 2);
    EQUAL(measured(PLAIN("\5", "\3", "\1"), 12, &s, &size), RLW_OK);
    EQUAL(size, 16);
    EQUAL(measured(PLAIN("\5", "\3", "\2") "\0\0\0\7", 16, &s, &size), RLW_OK);
    EQUAL(size, 16 + 2 + 7 * 10);
    EQUAL(measured(PLAIN("\5", "\3", "\x10") "\0\1\0\0", 16, &s, &size), RLW_OK);
    EQUAL(size, 16 + 65536);
    EQUAL(measured(PLAIN("\5", "\3", "\7") "\x80", 13, &s, &size), RLW_OK);
    EQUAL(size, 15);
    EQUAL(measured(PLAIN("\5", "\3", "\7") "\0\x81\1", 15, &s, &size), RLW_OK);
    EQUAL(size, 15 + 129);
    EQUAL(measured(PLAIN("\2", "\2", "\7") "\0", 13, &s, &size), RLW_OK); /* not compressed */
    EQUAL(size, 13 + 8);
    EQUAL(measured(PLAIN("\5", "\3", "\7") "\0\x81", 14, &s, &size), RLW_NEED_MORE);
    EQUAL(measured(PLAIN("\5", "\3", "\5") "\0", 13, &s, &size), RLW_OK);
    EQUAL(size, 13);
    EQUAL(measured(HEAD("\5", "\3", "\x21"), 12, &s, &size), RLW_OK); /* DesktopSize */
    EQUAL(size, 12);
    EQUAL(measured(HEAD("\5", "\3", "\x20"), 12, &s, &size), RLW_OK); /* LastRect */
    EQUAL(measured(HEAD("\x09", "\3", "\x11"), 12, &s, &size), RLW_OK); /* Cursor */
    EQUAL(size, 12 + 9 * 3 * 2 + 2 * 3);
    EQUAL(measured("\0\0\0\0\0\0\0\0\xff\xff\xfe\xcc\2\0\0\0", 16, &s, &size), RLW_OK);
    EQUAL(size, 16 + 32); /* ExtendedDesktopSize */
    EQUAL(measured(PLAIN("\5", "\3", "\x63"), 12, &s, &size), RLW_BAD_ENCODING);
    EQUAL(measured(PLAIN("\x40", "\3", "\0"), 12, &s, &size), RLW_BAD_PLACE);
    EQUAL(measured(PLAIN("\5", "\x3f", "\0"), 12, &s, &size), RLW_BAD_PLACE);
    EQUAL(measured(PLAIN("\5", "\3", "\0"), 11, &s, &size), RLW_NEED_MORE);
}

static void copies_over_themselves(void) {
    static const uint32_t places[][4] = {{0, 0, 3, 2}, {3, 2, 0, 0}, {2, 0, 0, 0},
                                         {0, 0, 2, 0}, {0, 3, 0, 0}, {0, 0, 0, 3}};
    size_t k, i;
    for (k = 0; k < sizeof places / sizeof *places; k++) {
        rlw_rfb_screen s = screen_of(16, 12, 3);
        rlw_rfb_rectangle r = {places[k][2], places[k][3], 11, 8, RLW_RFB_COPY_RECT};
        uint8_t before[16 * 12 * 3], from[4] = {0, 0, 0, 0};
        uint32_t x, y;
        unsigned wrong = 0;
        rlw_cursor c;
        for (i = 0; i < sizeof before; i++) pixels[i] = before[i] = (uint8_t)(i * 7 + i / 256);
        from[1] = (uint8_t)places[k][0];
        from[3] = (uint8_t)places[k][1];
        rlw_cursor_init(&c, from, 4);
        EQUAL(rlw_rfb_paint_copy(&c, &s, &r), RLW_OK);
        for (y = 0; y < 12; y++)
            for (x = 0; x < 16; x++) {
                int inside = x >= r.x && x < r.x + 11 && y >= r.y && y < r.y + 8;
                uint32_t sx = inside ? x - r.x + places[k][0] : x;
                uint32_t sy = inside ? y - r.y + places[k][1] : y;
                if (memcmp(rlw_rfb_spot(&s, x, y), before + 3 * (16 * sy + sx), 3) != 0) wrong++;
            }
        EQUAL(wrong, 0);
    }
}

void rfb_suite(void) {
    RUN(formats);
    RUN(compact_pixels);
    RUN(rows_of_every_length);
#ifdef RLW_RFB_X86
    RUN(rows_by_ssse3);
#endif
    RUN(indices_of_every_length);
    RUN(subrectangles);
    RUN(fills_of_every_size);
    RUN(compact_lengths);
    RUN(borders);
    RUN(copies_over_themselves);
}
