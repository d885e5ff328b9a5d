/* writer.h: growth from nothing, from the caller's memory and on the heap. */
#include "harness.h"

static void put_count(rlw_writer *w, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        uint8_t byte = (uint8_t)(i * 7);
        EQUAL(rlw_put(w, &byte, 1), RLW_OK);
    }
}

static int holds_count(const rlw_writer *w, size_t count) {
    size_t i;
    if (rlw_written(w) != count) return 0;
    for (i = 0; i < count; i++)
        if (w->start[i] != (uint8_t)(i * 7)) return 0;
    return 1;
}

static void an_empty_writer_takes_nothing_and_frees_nothing(void) {
    rlw_writer w;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_written(&w), 0);
    EQUAL(rlw_put(&w, NULL, 0), RLW_OK);
    EQUAL(rlw_reserve(&w, 0), RLW_OK);
    EQUAL(w.on_heap, 0);
    rlw_writer_free(&w);
    rlw_writer_free(&w);
    EQUAL(rlw_written(&w), 0);
}

static void it_grows_from_nothing(void) {
    rlw_writer w;
    rlw_writer_init(&w, NULL, 0);
    put_count(&w, 5000);
    CHECK(holds_count(&w, 5000));
    EQUAL(w.on_heap, 1);
    CHECK(w.at <= w.end);
    rlw_writer_free(&w);
    EQUAL(w.on_heap, 0);
}

static void it_stays_on_the_callers_memory_while_that_lasts(void) {
    uint8_t *room = (uint8_t *)malloc(100);
    rlw_writer w;
    if (!room) exit(2);
    rlw_writer_init(&w, room, 100);
    put_count(&w, 100);
    EQUAL(w.on_heap, 0);
    CHECK(w.start == room && w.at == w.end);
    put_count(&w, 0);
    EQUAL(rlw_reserve(&w, 1), RLW_OK);
    EQUAL(w.on_heap, 1);
    CHECK(w.start != room);
    CHECK(holds_count(&w, 100));
    rlw_writer_free(&w);
    EQUAL(room[99], (uint8_t)(99 * 7)); /* still the caller's */
    free(room);
}

static void every_size_of_room_gives_the_same_bytes(void) {
    size_t size;
    for (size = 0; size <= 64; size++) {
        uint8_t *room = (uint8_t *)malloc(size ? size : 1);
        rlw_writer w;
        if (!room) exit(2);
        rlw_writer_init(&w, room, size);
        EQUAL(rlw_put(&w, "0123456789", 10), RLW_OK);
        EQUAL(rlw_put_u32le(&w, 0x04030201u), RLW_OK);
        EQUAL(rlw_put(&w, "abc", 3), RLW_OK);
        EQUAL(rlw_written(&w), 17);
        CHECK(memcmp(w.start, "0123456789\1\2\3\4abc", 17) == 0);
        EQUAL(w.on_heap, size < 17);
        rlw_writer_free(&w);
        free(room);
    }
}

static void growth_is_geometric(void) {
    rlw_writer w;
    unsigned moves = 0;
    size_t i, capacity = 0;
    rlw_writer_init(&w, NULL, 0);
    for (i = 0; i < 1u << 20; i++) {
        if (rlw_put(&w, "x", 1) != RLW_OK) break;
        if ((size_t)(w.end - w.start) != capacity) {
            capacity = (size_t)(w.end - w.start);
            moves++;
        }
    }
    EQUAL(rlw_written(&w), 1u << 20);
    CHECK(moves < 20);
    rlw_writer_free(&w);
}

static void a_size_that_no_memory_holds_is_refused(void) {
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2, SIZE_MAX / 4 + 1};
    uint8_t room[8];
    rlw_writer w;
    size_t i;
    rlw_writer_init(&w, room, sizeof room);
    EQUAL(rlw_put(&w, "abc", 3), RLW_OK);
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        EQUAL(rlw_reserve(&w, sizes[i]), RLW_NO_MEMORY);
        CHECK(w.start == room && rlw_written(&w) == 3 && w.on_heap == 0);
    }
    CHECK(memcmp(room, "abc", 3) == 0);
    rlw_writer_free(&w);
}

void writer_suite(void) {
    RUN(an_empty_writer_takes_nothing_and_frees_nothing);
    RUN(it_grows_from_nothing);
    RUN(it_stays_on_the_callers_memory_while_that_lasts);
    RUN(every_size_of_room_gives_the_same_bytes);
    RUN(growth_is_geometric);
    RUN(a_size_that_no_memory_holds_is_refused);
}
