/* utf8.h, against Unicode 15, table 3-7, and an encoder of our own for every code point. */
#include "harness.h"

static size_t check(const char *text, size_t size) {
    uint8_t *input = exact(text, size);
    size_t bad = rlw_utf8_check(input, size);
    release(input);
    return bad;
}

#define GOOD(text) EQUAL(check(text, sizeof text - 1), sizeof text - 1)
#define BAD_AT(text, index) EQUAL(check(text, sizeof text - 1), index)

/* The bytes of a code point by the plain rule, surrogates and too large ones included. */
static size_t spell(uint32_t code, uint8_t *out) {
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (uint8_t)(0xC0 | code >> 6);
        out[1] = (uint8_t)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (uint8_t)(0xE0 | code >> 12);
        out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | code >> 18);
    out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (code & 0x3F));
    return 4;
}

static void every_code_point_and_no_other(void) {
    uint32_t code, wrong = 0;
    for (code = 0; code < 0x200000; code++) {
        uint8_t bytes[4];
        size_t size = spell(code, bytes);
        int legal = code <= 0x10FFFF && !(code >= 0xD800 && code <= 0xDFFF);
        if (rlw_utf8_check(bytes, size) != (legal ? size : 0)) wrong++;
    }
    EQUAL(wrong, 0);
}

static void every_pair_of_bytes(void) {
    unsigned first, second, wrong = 0;
    for (first = 0; first < 256; first++)
        for (second = 0; second < 256; second++) {
            uint8_t bytes[2];
            size_t expected;
            bytes[0] = (uint8_t)first;
            bytes[1] = (uint8_t)second;
            if (first < 0x80)
                expected = second < 0x80 ? 2 : 1;
            else
                expected = first >= 0xC2 && first <= 0xDF && second >= 0x80 && second <= 0xBF ? 2 : 0;
            if (rlw_utf8_check(bytes, 2) != expected) wrong++;
        }
    EQUAL(wrong, 0);
}

static void texts(void) {
    EQUAL(rlw_utf8_check((const uint8_t *)"", 0), 0);
    GOOD("plain ASCII, longer than a word of eight bytes");
    GOOD("na\xc3\xafve \xe2\x82\xac \xf0\x9f\x8e\xae.");
    GOOD("\0\x7f");
    GOOD("\xef\xbb\xbf"); /* a byte order mark is a character like any other */
    GOOD("\xef\xbf\xbf"); /* and so is a noncharacter */
}

static void overlong_forms(void) {
    BAD_AT("\xc0\x80", 0);
    BAD_AT("\xc0\xaf", 0);
    BAD_AT("\xc1\xbf", 0);
    BAD_AT("\xe0\x80\x80", 0);
    BAD_AT("\xe0\x9f\xbf", 0);
    GOOD("\xe0\xa0\x80");
    BAD_AT("\xf0\x80\x80\x80", 0);
    BAD_AT("\xf0\x8f\xbf\xbf", 0);
    GOOD("\xf0\x90\x80\x80");
}

static void surrogates_and_what_is_too_large(void) {
    GOOD("\xed\x9f\xbf");
    BAD_AT("\xed\xa0\x80", 0);
    BAD_AT("a\xed\xbf\xbf", 1);
    BAD_AT("\xed\xa0\xbd\xed\xb8\x80", 0); /* CESU-8 */
    GOOD("\xee\x80\x80");
    GOOD("\xf4\x8f\xbf\xbf");
    BAD_AT("\xf4\x90\x80\x80", 0);
    BAD_AT("\xf5\x80\x80\x80", 0);
    BAD_AT("\xf8\x88\x80\x80\x80", 0);
    BAD_AT("\xfe", 0);
    BAD_AT("ab\xff", 2);
}

static void sequences_cut_short(void) {
    BAD_AT("\xc3", 0);
    BAD_AT("a\xe2\x82", 1);
    BAD_AT("a\xe2", 1);
    BAD_AT("abc\xf0\x9f\x8e", 3);
    BAD_AT("\xf0\x9f", 0);
    BAD_AT("\xe2\x82" "a", 0);
    BAD_AT("\xf0\x9f\x8e" "a", 0);
    BAD_AT("\x80", 0);
    BAD_AT("ok\xbf", 2);
    BAD_AT("\xc3\xa9\xa9", 2);
}

static void ascii_is_seen_at_every_place(void) {
    size_t size, place;
    for (size = 0; size <= 40; size++) {
        uint8_t *text = (uint8_t *)malloc(size + 1);
        if (!text) exit(2);
        memset(text, 'x', size + 1);
        {
            uint8_t *input = exact(text, size);
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
        free(text);
    }
}

void utf8_suite(void) {
    RUN(every_code_point_and_no_other);
    RUN(every_pair_of_bytes);
    RUN(texts);
    RUN(overlong_forms);
    RUN(surrogates_and_what_is_too_large);
    RUN(sequences_cut_short);
    RUN(ascii_is_seen_at_every_place);
}
