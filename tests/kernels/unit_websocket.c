/* websocket.h where whole words are masked, and the incremental half of utf8.h. Headers are read a
 * second time by fuzz_websocket.c. */
#include "harness.h"

static void masks_at_every_size_and_phase(void) {
    static const uint8_t key[4] = {0x12, 0x00, 0xff, 0x80};
    size_t size, phase, i;
    for (size = 0; size <= 40; size++)
        for (phase = 0; phase < 9; phase++) {
            uint8_t data[40], *there, *copy;
            for (i = 0; i < size; i++) data[i] = (uint8_t)(i * 37 + 5);
            there = exact(data, size);
            copy = exact(data, size);
            rlw_ws_mask(there, size, key, phase);
            rlw_ws_mask_copy(copy, data, size, key, phase);
            for (i = 0; i < size; i++) CHECK(there[i] == (data[i] ^ key[(phase + i) % 4]));
            CHECK(memcmp(there, copy, size) == 0);
            release(there);
            release(copy);
        }
}

/* Larger ones are masked from a cache line's border on. */
static void masks_at_every_place_in_a_cache_line(void) {
    static const uint8_t key[4] = {0x12, 0x00, 0xff, 0x80};
    enum { MOST_BYTES = 420 };
    static uint8_t data[MOST_BYTES];
    uint8_t *there = malloc(MOST_BYTES + 66), *copy = malloc(MOST_BYTES + 66);
    size_t place, size, phase, i;
    CHECK(there != NULL && copy != NULL);
    for (i = 0; i < MOST_BYTES; i++) data[i] = (uint8_t)(i * 37 + 5);
    for (place = 0; place < 65; place++)
        for (size = 250; size <= MOST_BYTES; size += 17)
            for (phase = 0; phase < 4; phase++) {
                memset(copy, 0xA5, MOST_BYTES + 66);
                memset(there, 0xA5, MOST_BYTES + 66);
                memcpy(there + place, data, size);
                rlw_ws_mask(there + place, size, key, phase);
                rlw_ws_mask_copy(copy + place, data, size, key, phase);
                for (i = 0; i < size; i++)
                    CHECK(there[place + i] == (data[i] ^ key[(phase + i) % 4]));
                CHECK(memcmp(there, copy, MOST_BYTES + 66) == 0);
                CHECK(place == 0 || copy[place - 1] == 0xA5);
                CHECK(copy[place + size] == 0xA5);
            }
    free(there);
    free(copy);
}

static void every_code_point_in_pieces(void) { /* it agrees with the whole check, cut anywhere */
    uint32_t code, wrong = 0;
    for (code = 0x80; code < 0x120000; code += code < 0x11000 ? 1 : 61) {
        uint8_t b[4] = {0, 0, 0, 0}, *input;
        size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4, cut, i;
        for (i = 1; i < 4 && i < size; i++)
            b[i] = (uint8_t)(0x80 | (code >> (6 * (size - 1 - i)) & 0x3F));
        b[0] = (uint8_t)((size == 2 ? 0xC0u : size == 3 ? 0xE0u : 0xF0u) |
                         code >> (6 * (size - 1)));
        input = exact(b, size);
        for (cut = 0; cut <= size; cut++) {
            rlw_utf8_state state = {0, 0, 0};
            int good = rlw_utf8_feed(&state, input, cut) == cut &&
                       rlw_utf8_feed(&state, input + cut, size - cut) == size - cut && !state.more;
            if (good != (rlw_utf8_check(input, size) == size)) wrong++;
        }
        release(input);
    }
    EQUAL(wrong, 0);
}

void websocket_suite(void) {
    RUN(masks_at_every_size_and_phase);
    RUN(masks_at_every_place_in_a_cache_line);
    RUN(every_code_point_in_pieces);
}
