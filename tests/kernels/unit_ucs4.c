/* ucs4.h */
#include "harness.h"

static void every_character_there_and_back(void) {
    uint32_t c;
    for (c = 0; c <= 0x110010; c++) {
        uint8_t room[4] = {0};
        uint32_t back = 0;
        size_t size = rlw_ucs4_size(&c, 1);
        if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
            EQUAL(size, RLW_NOT_UNICODE);
            CHECK(rlw_ucs4_to_utf8(room, room + 4, &c, 1) == room);
            continue;
        }
        EQUAL(size, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        CHECK(rlw_ucs4_to_utf8(room, room + size, &c, 1) == room + size);
        EQUAL(rlw_utf8_check(room, size), size);
        EQUAL(rlw_utf8_length(room, size), 1);
        EQUAL(rlw_utf8_to_ucs4(room, size, &back, 1), 1);
        EQUAL(back, c);
    }
}

static const uint32_t text[] = {'a', 0, 0xF6, 0x65E5, 0x1D11E, 'b', 0, 0};
static const char utf8[] = "a\0\xc3\xb6\xe6\x97\xa5\xf0\x9d\x84\x9e" "b";

static void nuls_at_the_end_are_padding(void) {
    EQUAL(rlw_ucs4_trim(text, 8), 6);
    EQUAL(rlw_ucs4_trim(text, 2), 1);
    EQUAL(rlw_ucs4_trim(text + 6, 2), 0);
    EQUAL(rlw_ucs4_trim(text, 0), 0);
}

static void a_text_fits_exactly_or_stops(void) {
    size_t size = sizeof utf8 - 1, room;
    EQUAL(rlw_ucs4_size(text, 6), size);
    for (room = 0; room <= size; room++) {
        uint8_t *out = (uint8_t *)malloc(room + (room == 0)), *end;
        if (!out) exit(2);
        end = rlw_ucs4_to_utf8(out, out + room, text, 6);
        CHECK(end <= out + room && (end == out + room || room - (size_t)(end - out) < 4));
        CHECK(memcmp(out, utf8, (size_t)(end - out)) == 0);
        CHECK((room == size) == (end == out + size));
        free(out);
    }
}

static void any_bytes_stay_inside(void) {
    uint8_t *wire = exact(utf8, sizeof utf8 - 1);
    size_t size, room;
    EQUAL(rlw_utf8_length(wire, sizeof utf8 - 1), 6);
    for (size = 0; size < sizeof utf8; size++)
        for (room = 0; room < 8; room++) {
            uint8_t *cut = exact(utf8, size); /* which may end inside a character */
            uint32_t *out = (uint32_t *)malloc(4 * room + (room == 0));
            if (!out) exit(2);
            CHECK(rlw_utf8_to_ucs4(cut, size, out, room) <= room);
            CHECK(!room || !size || out[0] == 'a');
            free(out);
            release(cut);
        }
    release(wire);
}

void ucs4_suite(void) {
    RUN(every_character_there_and_back);
    RUN(nuls_at_the_end_are_padding);
    RUN(a_text_fits_exactly_or_stops);
    RUN(any_bytes_stay_inside);
}
