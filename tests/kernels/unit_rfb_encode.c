/* rfb_encode.h: what changed, short deflate against RFC 1951, and rectangles of frames that end
 * where their memory ends. That rectangles show their frame is tests/codecs/rfb/test_encoder.py's. */
#include "harness.h"

static uint32_t chance_state = 1;

static unsigned chance(unsigned below) {
    chance_state = chance_state * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)(chance_state >> 4) * below >> 28);
}

typedef struct bit_reader {
    const uint8_t *data;
    size_t size, at; /* in bits */
} bit_reader;

static unsigned take_bits(bit_reader *r, unsigned count) {
    unsigned value = 0, i;
    for (i = 0; i < count; i++, r->at++)
        if (r->at < 8 * r->size) value |= (unsigned)(r->data[r->at / 8] >> r->at % 8 & 1) << i;
    return value;
}

static unsigned take_code(bit_reader *r, unsigned count) {
    unsigned value = 0;
    while (count--) value = value << 1 | take_bits(r, 1);
    return value;
}

/* Inflates stored blocks and those with fixed codes, up to the end of the input. Returns the size,
 * or more than `room` for what is no such stream. */
static size_t inflate_plain(const uint8_t *data, size_t size, uint8_t *out, size_t room) {
    bit_reader r;
    size_t done = 0, i;
    r.data = data;
    r.size = size;
    r.at = 0;
    while (r.at + 8 <= 8 * size) {
        unsigned kind;
        if (take_bits(&r, 1)) return room + 1; /* none says that it is the last */
        kind = take_bits(&r, 2);
        if (kind == 0) {
            unsigned length;
            r.at = (r.at + 7) / 8 * 8;
            length = take_bits(&r, 16);
            if ((take_bits(&r, 16) ^ length) != 0xFFFF || length > room - done) return room + 1;
            for (i = 0; i < length; i++) out[done++] = (uint8_t)take_bits(&r, 8);
            continue;
        }
        if (kind != 1) return room + 1;
        for (;;) {
            unsigned symbol = take_code(&r, 7), length, n, distance;
            if (symbol < 24)
                symbol += 256;
            else if ((symbol = symbol << 1 | take_bits(&r, 1)) < 0xC0)
                symbol -= 0x30;
            else if (symbol < 0xC8)
                symbol += 280 - 0xC0;
            else
                symbol = (symbol << 1 | take_bits(&r, 1)) - 0x190 + 144;
            if (symbol == 256) break;
            if (r.at > 8 * size || done == room) return room + 1;
            if (symbol < 256) {
                out[done++] = (uint8_t)symbol;
                continue;
            }
            if (symbol < 265) {
                length = symbol - 254;
            } else if (symbol == 285) {
                length = 258;
            } else { /* four lengths' codes for each number of extra bits */
                n = (symbol - 261) / 4;
                length = 3 + ((4 + (symbol - 261) % 4) << n) + take_bits(&r, n);
            }
            distance = take_code(&r, 5);
            if (distance > 3) {
                n = distance / 2 - 1;
                distance = ((2 + distance % 2) << n) + take_bits(&r, n);
            }
            distance++;
            if (distance > done || length > room - done) return room + 1;
            for (i = 0; i < length; i++, done++) out[done] = out[done - distance];
        }
    }
    return r.at == 8 * size ? done : room + 1;
}

static void every_length_and_distance(void) {
    static rlw_rfb_codes codes;
    static uint8_t plain[RLW_RFB_SHORT], back[RLW_RFB_SHORT];
    size_t length, far, i;
    rlw_rfb_codes_init(&codes);
    for (length = 3; length <= 258; length++)
        for (far = 1; far + length < RLW_RFB_SHORT; far = far * 3 / 2 + 1) {
            rlw_writer w;
            size_t size = far + length;
            for (i = 0; i < far; i++) plain[i] = (uint8_t)(i ^ i >> 8 ^ length);
            for (; i < size; i++) plain[i] = plain[i - far];
            rlw_writer_init(&w, NULL, 0);
            EQUAL(rlw_rfb_deflate_short(&codes, plain, size, &w), RLW_OK);
            EQUAL(inflate_plain(w.start, rlw_written(&w), back, sizeof back), size);
            CHECK(memcmp(back, plain, size) == 0);
            rlw_writer_free(&w);
        }
}

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

static void rectangles_of_frames(void) {
    static const uint16_t most[4][3] = {
        {255, 255, 255}, {31, 63, 31}, {7, 7, 3}, {1023, 1023, 1023}};
    static const uint8_t shift[4][3] = {{16, 8, 0}, {11, 5, 0}, {0, 3, 6}, {20, 10, 0}};
    static const uint8_t bits[4] = {32, 16, 8, 32}, depth[4] = {24, 16, 8, 30};
    rlw_rfb_encoder *e = (rlw_rfb_encoder *)calloc(1, sizeof *e);
    unsigned round, deflated = 0;
    for (round = 0; e && round < 800; round++) {
        size_t width = 1 + chance(round % 3 ? 300 : 70), height = 1 + chance(round % 3 ? 200 : 70);
        unsigned kinds = 1 + chance(round % 5 ? 300 : 3), run = 1 + chance(round % 2 ? 30 : 3), f = round % 4;
        size_t size = 3 * width * height, i, count = 0;
        uint8_t *rows = (uint8_t *)malloc(size), *frame, colour[3] = {0, 0, 0};
        rlw_rfb_rect r;
        rlw_writer w;
        int32_t encoding = round & 4 ? 7 : 0;
        if (!rows) break;
        for (i = 0; i < size; i += 3) {
            if (chance(run) == 0) {
                unsigned kind = chance(kinds);
                colour[0] = (uint8_t)(kind * 41);
                colour[1] = (uint8_t)(kind * 7);
                colour[2] = (uint8_t)(kind >> 4);
            }
            memcpy(rows + i, colour, 3);
        }
        frame = exact(rows, size);
        r.x = (uint16_t)chance((unsigned)width);
        r.y = (uint16_t)chance((unsigned)height);
        r.width = (uint16_t)(width - r.x);
        r.height = (uint16_t)(height - r.y);
        CHECK(rlw_rfb_pixels_init(&e->pixels, bits[f], depth[f], round & 8, most[f], shift[f]));
        rlw_rfb_codes_init(&e->codes);
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

void rfb_encode_suite(void) {
    RUN(every_length_and_distance);
    RUN(rectangles_of_frames);
}
