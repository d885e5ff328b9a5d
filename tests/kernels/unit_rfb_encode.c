/* rfb_encode.h: what changed, and rectangles of frames that end where their memory ends. That rectangles
 * show their frame is tests/codecs/rfb/test_encoder.py's. */
#include "harness.h"

static unsigned some(unsigned most) { return (unsigned)below(most); }

/* Deflate without a library: stored blocks. */
static rlw_status store(void *self, const uint8_t *data, size_t size, rlw_writer *out) {
    ++*(unsigned *)self;
    while (size) {
        size_t part = size < 65535 ? size : 65535;
        uint8_t head[5];
        head[0] = 0;
        head[1] = (uint8_t)part;
        head[2] = (uint8_t)(part >> 8);
        head[3] = (uint8_t)~head[1];
        head[4] = (uint8_t)~head[2];
        if (rlw_put(out, head, 5) != RLW_OK || rlw_put(out, data, part) != RLW_OK)
            return RLW_NO_MEMORY;
        data += part;
        size -= part;
    }
    return RLW_OK;
}

static rlw_status picture(void *self, const uint8_t *rgb, size_t stride, size_t width,
                          size_t height, rlw_writer *out) {
    size_t y;
    (void)self;
    for (y = 0; y < height; y++)
        if (rlw_put(out, rgb + y * stride, 3 * width) != RLW_OK) return RLW_NO_MEMORY;
    return RLW_OK;
}

CASE(rectangles_of_frames) {
    static const uint16_t most[4][3] = {
        {255, 255, 255}, {31, 63, 31}, {7, 7, 3}, {1023, 1023, 1023}};
    static const uint8_t shift[4][3] = {{16, 8, 0}, {11, 5, 0}, {0, 3, 6}, {20, 10, 0}};
    static const uint8_t bits[4] = {32, 16, 8, 32}, depth[4] = {24, 16, 8, 30};
    rlw_rfb_encoder *e = (rlw_rfb_encoder *)calloc(1, sizeof *e);
    unsigned round, deflated = 0;
    for (round = 0; e && round < 800; round++) {
        size_t width = 1 + some(round % 3 ? 300 : 70), height = 1 + some(round % 3 ? 200 : 70);
        unsigned kinds = 1 + some(round % 5 ? 300 : 3), run = 1 + some(round % 2 ? 30 : 3), f = round % 4;
        size_t size = 3 * width * height, i, count = 0;
        uint8_t *rows = (uint8_t *)malloc(size), *frame, colour[3] = {0, 0, 0};
        rlw_rfb_rect r;
        rlw_writer w;
        int32_t encoding = round & 4 ? 7 : 0;
        if (!rows) break;
        for (i = 0; i < size; i += 3) {
            if (some(run) == 0) {
                unsigned kind = some(kinds);
                colour[0] = (uint8_t)(kind * 41);
                colour[1] = (uint8_t)(kind * 7);
                colour[2] = (uint8_t)(kind >> 4);
            }
            memcpy(rows + i, colour, 3);
        }
        frame = exact(rows, size);
        r.x = (uint16_t)some((unsigned)width);
        r.y = (uint16_t)some((unsigned)height);
        r.width = (uint16_t)(width - r.x);
        r.height = (uint16_t)(height - r.y);
        CHECK(rlw_rfb_pixels_init(&e->pixels, bits[f], depth[f], round & 8, most[f], shift[f]));
        e->deflate = store;
        e->jpeg = round & 16 ? picture : NULL;
        e->self = &deflated;
        rlw_writer_init(&w, NULL, 0);
        EQUAL(rlw_rfb_put_rect(e, &w, frame, width, &r, encoding, &count), RLW_OK);
        EQUAL(count, 1);
        CHECK(w.start[0] == 0 || r.x > 255);
        CHECK(w.start[5] == (uint8_t)r.width && w.start[11] == (uint8_t)encoding);
        if (encoding == 0)
            EQUAL(rlw_written(&w), 12 + (size_t)r.width * r.height * bits[f] / 8);
        rlw_writer_free(&w);
        release(frame);
        free(rows);
    }
    CHECK(deflated > 20); /* some were too long for the short way */
    if (e) rlw_writer_free(&e->plain);
    free(e);
}
