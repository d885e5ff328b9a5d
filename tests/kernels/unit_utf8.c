/* utf8.h, against table 3-7 of Unicode 15. */
#include "harness.h"

/* How many bytes are whole characters. */
static size_t slow_check(const uint8_t *text, size_t size) {
    static const uint8_t table[][5] = { /* first byte, second byte, size */
        {0x00, 0x7F, 0x00, 0x00, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
        {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
        {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    size_t at = 0, row, i;
    while (at < size) {
        for (row = 0; row < 9; row++)
            if (text[at] >= table[row][0] && text[at] <= table[row][1]) break;
        if (row == 9 || size - at < table[row][4]) return at;
        for (i = 1; i < table[row][4]; i++)
            if (text[at + i] < (i == 1 ? table[row][2] : 0x80) ||
                text[at + i] > (i == 1 ? table[row][3] : 0xBF))
                return at;
        at += table[row][4];
    }
    return at;
}

/* Up to four bytes, each of those where the table begins another row and those before; whole, and
 * in two pieces. */
CASE(every_sequence) {
    static const uint8_t edges[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0,
                                    0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF,
                                    0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFE, 0xFF};
    const size_t count = sizeof edges;
    size_t number, wrong = 0, size, cut, i;
    for (size = 0; size <= 4; size++) {
        size_t all = 1;
        for (i = 0; i < size; i++) all *= count;
        for (number = 0; number < all; number++) {
            uint8_t bytes[4] = {0}, *input;
            size_t rest = number, expected;
            for (i = 0; i < size; i++, rest /= count) bytes[i] = edges[rest % count];
            expected = slow_check(bytes, size);
            input = exact(bytes, size);
            if (rlw_utf8_check(input, size) != expected) wrong++;
            for (cut = 0; cut <= size; cut++) {
                rlw_utf8_state state = {0, 0, 0};
                int good = rlw_utf8_feed(&state, input, cut) == cut &&
                           rlw_utf8_feed(&state, input + cut, size - cut) == size - cut &&
                           !state.more;
                if (good != (expected == size)) wrong++;
            }
            release(input);
        }
    }
    EQUAL(wrong, 0);
}

CASE(ascii_is_seen_at_every_place) {
    size_t size, place;
    for (size = 0; size <= 40; size++) {
        uint8_t text[40], *input;
        memset(text, 'x', sizeof text);
        input = exact(text, size);
        CHECK(rlw_is_ascii(input, size) == 1);
        EQUAL(rlw_utf8_check(input, size), size);
        for (place = 0; place < size; place++) {
            input[place] = 0x80;
            CHECK(rlw_is_ascii(input, size) == 0);
            EQUAL(rlw_utf8_check(input, size), place);
            input[place] = 0x7f;
            CHECK(rlw_is_ascii(input, size) == 1);
        }
        release(input);
    }
}
