/* endian.h, status.h and cursor.h. */
#include "harness.h"

static const uint8_t bytes[8] = {0x01, 0x02, 0x03, 0x84, 0xff, 0xff, 0xff, 0xff};

static void loads_are_little_endian_at_any_alignment(void) {
    size_t shift;
    for (shift = 0; shift < 8; shift++) {
        uint8_t *room = (uint8_t *)malloc(shift + 8);
        if (!room) exit(2);
        memcpy(room + shift, bytes, 8);
        EQUAL(rlw_load_u32le(room + shift), 0x84030201u);
        EQUAL(rlw_load_u64le(room + shift), UINT64_C(0xffffffff84030201));
        CHECK(rlw_load_i32le(room + shift) == -0x7bfcfdff);
        CHECK(rlw_load_i32le(room + shift + 4) == -1);
        CHECK(rlw_load_i64le(room + shift) == -INT64_C(0x7bfcfdff));
        free(room);
    }
}

static void stores_are_what_loads_read(void) {
    static const double reals[] = {0.0, -0.0, 1.0, -1.5, 1e308, 5e-324, 0.1};
    uint8_t room[8];
    size_t i;
    rlw_store_u32le(room, 0x84030201u);
    CHECK(memcmp(room, bytes, 4) == 0);
    rlw_store_u64le(room, UINT64_C(0xffffffff84030201));
    CHECK(memcmp(room, bytes, 8) == 0);
    for (i = 0; i < sizeof reals / sizeof *reals; i++) {
        double back;
        rlw_store_f64le(room, reals[i]);
        back = rlw_load_f64le(room);
        CHECK(memcmp(&back, &reals[i], sizeof back) == 0);
    }
    rlw_store_f64le(room, 1.0);
    CHECK(memcmp(room, "\0\0\0\0\0\0\xf0\x3f", 8) == 0);
    CHECK(rlw_host_is_little() == 0 || rlw_host_is_little() == 1);
}

static void the_extremes_of_signed_numbers_survive(void) {
    uint8_t room[8];
    rlw_store_u32le(room, 0x80000000u);
    CHECK(rlw_load_i32le(room) == INT32_MIN);
    rlw_store_u64le(room, UINT64_C(0x8000000000000000));
    CHECK(rlw_load_i64le(room) == INT64_MIN);
    rlw_store_u64le(room, UINT64_C(0x7fffffffffffffff));
    CHECK(rlw_load_i64le(room) == INT64_MAX);
}

static void a_cursor_over_nothing(void) {
    rlw_cursor c;
    const uint8_t *taken = bytes;
    uint8_t byte = 7;
    uint32_t word = 7;
    rlw_cursor_init(&c, NULL, 0);
    EQUAL(rlw_left(&c), 0);
    EQUAL(c.fault.status, RLW_OK);
    EQUAL(rlw_take_u8(&c, &byte), RLW_NEED_MORE);
    EQUAL(rlw_take_u32le(&c, &word), RLW_NEED_MORE);
    EQUAL(rlw_take(&c, 1, &taken), RLW_NEED_MORE);
    EQUAL(c.fault.got, 1);
    EQUAL(c.fault.allowed, 0);
    EQUAL(byte, 7);
    EQUAL(word, 7);
    CHECK(taken == bytes);
}

static void taking_moves_only_on_success(void) {
    uint8_t *room = exact(bytes, 7);
    const uint8_t *taken = NULL;
    rlw_cursor c;
    uint32_t word = 0;
    uint8_t byte = 0;
    rlw_cursor_init(&c, room, 7);
    EQUAL(rlw_take(&c, 0, &taken), RLW_OK);
    CHECK(taken == room && c.at == room);
    EQUAL(rlw_take_u32le(&c, &word), RLW_OK);
    EQUAL(word, 0x84030201u);
    EQUAL(rlw_left(&c), 3);
    EQUAL(rlw_take_u32le(&c, &word), RLW_NEED_MORE);
    EQUAL(c.fault.status, RLW_NEED_MORE);
    EQUAL(c.fault.got, 4);
    EQUAL(c.fault.allowed, 3);
    CHECK(c.fault.at == room + 4 && c.at == room + 4);
    EQUAL(rlw_take_u8(&c, &byte), RLW_OK);
    EQUAL(byte, 0xff);
    EQUAL(rlw_take(&c, 3, &taken), RLW_NEED_MORE);
    EQUAL(rlw_take(&c, 2, &taken), RLW_OK);
    CHECK(taken == room + 5 && c.at == c.end);
    release(room);
}

static void a_huge_size_is_compared_before_anything_moves(void) {
    static const uint64_t sizes[] = {9, UINT32_MAX, UINT64_C(1) << 32, (uint64_t)INT64_MAX,
                                     UINT64_C(1) << 63, UINT64_MAX};
    rlw_cursor c;
    const uint8_t *taken = NULL;
    size_t i;
    rlw_cursor_init(&c, bytes, 8);
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        EQUAL(rlw_take(&c, sizes[i], &taken), RLW_NEED_MORE);
        EQUAL(c.fault.got, sizes[i]);
        EQUAL(c.fault.allowed, 8);
        CHECK(c.at == bytes && taken == NULL);
    }
}

static void every_status_has_a_text_of_its_own(void) {
    int a, b;
    for (a = RLW_OK; a <= RLW_NO_MEMORY; a++) {
        const char *text = rlw_status_text((rlw_status)a);
        CHECK(strlen(text) > 5);
        CHECK(strcmp(text, "unknown status") != 0);
        for (b = RLW_OK; b < a; b++) CHECK(strcmp(text, rlw_status_text((rlw_status)b)) != 0);
    }
}

static void failing_says_what_it_is_told(void) {
    rlw_cursor c;
    rlw_cursor_init(&c, bytes, 8);
    EQUAL(rlw_fail(&c, RLW_TRAILING, bytes + 3, 5, 6), RLW_TRAILING);
    EQUAL(c.fault.status, RLW_TRAILING);
    CHECK(c.fault.at == bytes + 3 && c.at == bytes);
    EQUAL(c.fault.got, 5);
    EQUAL(c.fault.allowed, 6);
}

void cursor_suite(void) {
    RUN(loads_are_little_endian_at_any_alignment);
    RUN(stores_are_what_loads_read);
    RUN(the_extremes_of_signed_numbers_survive);
    RUN(a_cursor_over_nothing);
    RUN(taking_moves_only_on_success);
    RUN(a_huge_size_is_compared_before_anything_moves);
    RUN(every_status_has_a_text_of_its_own);
    RUN(failing_says_what_it_is_told);
}
