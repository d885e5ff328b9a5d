/* websocket.h where payloads are masked from a cache line's border on; the rest is fuzz_websocket.c's. */
#include "harness.h"

CASE(masks_at_every_place_in_a_cache_line) {
    static const uint8_t key[4] = {0x12, 0x00, 0xff, 0x80};
    enum { MOST_BYTES = 420 };
    static uint8_t data[MOST_BYTES];
    uint8_t *there = (uint8_t *)malloc(MOST_BYTES + 66), *copy = (uint8_t *)malloc(MOST_BYTES + 66);
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
