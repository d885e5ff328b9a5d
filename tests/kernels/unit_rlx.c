/* rlx.h where Python does not come: integers of any size, writers without room, the hint for
 * aligning, and images too large for 64 bits. Values and faults are tested in tests/codecs/rlx.
 */
#include "harness.h"

static const rlw_rlx_limits defaults = RLW_RLX_DEFAULT_LIMITS;

static void holds(rlw_writer *w, const char *bytes, size_t size, int line) {
    (void)harness_check(rlw_written(w) == size && memcmp(w->start, bytes, size) == 0, __FILE__,
                        line, "the writer holds these bytes");
    rlw_writer_free(w);
}

#define HOLDS(w, bytes) holds(w, bytes, sizeof bytes - 1, __LINE__)

CASE(integers_take_the_type_that_holds_them) {
    rlw_writer w;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_rlx_put_integer(&w, INT32_MAX), RLW_OK);
    HOLDS(&w, "\2\xff\xff\xff\x7f");
    EQUAL(rlw_rlx_put_integer(&w, INT32_MIN), RLW_OK);
    HOLDS(&w, "\2\0\0\0\x80");
    EQUAL(rlw_rlx_put_integer(&w, (int64_t)INT32_MAX + 1), RLW_OK);
    HOLDS(&w, "\x0a\0\0\0\x80\0\0\0\0");
    EQUAL(rlw_rlx_put_integer(&w, (int64_t)INT32_MIN - 1), RLW_OK);
    HOLDS(&w, "\x0a\xff\xff\xff\x7f\xff\xff\xff\xff");
}

/* A byte that no enumerator has must never become one: in C++ that is undefined. */
CASE(unknown_type_bytes_are_rejected) {
    rlw_rlx_reader reader;
    rlw_rlx_value value;
    unsigned type;
    for (type = 0; type < 256; type++) {
        uint8_t bytes[9] = {0};
        bytes[0] = (uint8_t)type;
        rlw_rlx_reader_init(&reader, bytes, sizeof bytes, &defaults);
        EQUAL(rlw_rlx_read(&reader, &value) == RLW_BAD_TYPE, type > RLW_RLX_DICT);
    }
}

/* One entry of each kind. */
static rlw_status put_all(rlw_writer *w) {
    static const uint32_t shape[1] = {3};
    rlw_status status = RLW_OK;
#define PUT(call) \
    do { \
        if ((status = (call)) != RLW_OK) return status; \
    } while (0)
    PUT(rlw_rlx_put_text(w, "a", 1));
    PUT(rlw_rlx_put_string(w, "text", 4));
    PUT(rlw_rlx_put_text(w, "b", 1));
    PUT(rlw_rlx_put_list(w, 2));
    PUT(rlw_rlx_put_integer(w, INT64_MAX));
    PUT(rlw_rlx_put_double(w, 0.5));
    PUT(rlw_rlx_put_text(w, "c", 1));
    PUT(rlw_rlx_put_dict(w, 1));
    PUT(rlw_rlx_put_text(w, "d", 1));
    PUT(rlw_rlx_put_null(w));
    PUT(rlw_rlx_put_text(w, "e", 1));
    PUT(rlw_rlx_put_array_head(w, "uint8", 5, 1, shape, 3));
    PUT(rlw_put(w, "xyz", 3));
    PUT(rlw_rlx_put_text(w, "f", 1));
    PUT(rlw_rlx_put_image_head(w, "L", 1, 3, 1, 3));
    PUT(rlw_put(w, "xyz", 3));
#undef PUT
    return status;
}

CASE(a_frame_is_read_back_whatever_room_it_began_with) {
    size_t room_size;
    for (room_size = 0; room_size < 200; room_size++) {
        uint8_t *room = (uint8_t *)malloc(room_size ? room_size : 1);
        const uint8_t *frame = NULL, *body = NULL;
        size_t size = 0, body_size = 0;
        rlw_writer w;
        rlw_cursor c;
        if (!room) exit(2);
        rlw_writer_init(&w, room, room_size);
        EQUAL(rlw_rlx_begin(&w), RLW_OK);
        EQUAL(put_all(&w), RLW_OK);
        EQUAL(rlw_rlx_end(&w, &frame, &size), RLW_OK);
        CHECK(frame >= w.start && frame + size == w.at);
        CHECK(memcmp(frame, "118:\1\0\0\0", 8) == 0);
        rlw_cursor_init(&c, frame, size);
        EQUAL(rlw_netstring_read(&c, 1000, &body, &body_size), RLW_OK);
        CHECK(c.at == c.end);
        CHECK(body_size == 118);
        rlw_writer_free(&w);
        free(room);
    }
}

#define KEY(c) "\1\0\0\0" c
#define F4 "\7\0\0\0float32"
#define HEAD "\1\0\0\0" KEY("r") "\4\0\0\0\0\0\0\xf0\x3f" KEY("s")
#define BIG "\7" F4 "\2\0\0\0\x10\0\0\0\x20\0\0\0\0\x08\0\0" /* 16 x 32 float32: 2048 bytes */
#define BYTES(text) text, sizeof(text) - 1

/* Where it is found at other sizes, tests/codecs/rlx/test_decoder.py shows. */
CASE(finding_data_that_has_not_come) {
    static const struct {
        const char *bytes;
        size_t size, least;
        int found; /* at the end of what has come */
    } cases[] = {
        {BYTES(HEAD BIG), 2048, 1},
        {BYTES(HEAD BIG), 2049, 0},
        {BYTES(HEAD "\x08\2\0\0\0\1" BIG), 1024, 1},
        {BYTES(HEAD "\x0b\1\0\0\0" KEY("t") BIG), 1024, 1},
        {BYTES(HEAD "\6\1\0\0\0L\x40\0\0\0\x20\0\0\0\0\x08\0\0"), 1024, 1},
        {BYTES(HEAD "\3\0\x08\0\0 some text"), 1024, 0},
        {BYTES(HEAD "\x08\2\0\0\0\x08\1\0\0\0\1" BIG), 1024, 0}, /* no more than a hint */
        {BYTES(HEAD "\7" F4 "\1\0\0\0\x10\0\0\0\0\x08\0\0"), 1024, 0}, /* not its size */
        {BYTES(HEAD "\7\xff\0\0\0float32"), 200, 0}, /* its name is what has not come */
        {BYTES("\2\0\0\0"), 0, 0},
        {NULL, 0, 0, 0},
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size = cases[i].size;
        uint8_t *input = exact(cases[i].bytes, size);
        EQUAL(rlw_rlx_find_data(input, input, size, cases[i].least, &defaults),
              cases[i].found ? size : 0);
        release(input);
    }
}

CASE(sizes_of_images_do_not_overflow) {
    const rlw_image_mode *rgba = rlw_image_mode_find((const uint8_t *)"RGBA", 4);
    const rlw_image_mode *bits = rlw_image_mode_find((const uint8_t *)"1", 1);
    const rlw_image_mode *grey = rlw_image_mode_find((const uint8_t *)"L", 1);
    CHECK(rgba && bits && grey);
    if (!rgba || !bits || !grey) return;
    EQUAL(rlw_image_bytes(rgba, UINT32_MAX, 0), 0);
    EQUAL(rlw_image_bytes(rgba, 0, UINT32_MAX), 0);
    EQUAL(rlw_image_bytes(rgba, UINT32_MAX, 1), 4 * (uint64_t)UINT32_MAX);
    EQUAL(rlw_image_bytes(grey, UINT32_MAX, UINT32_MAX), UINT64_C(18446744065119617025));
    EQUAL(rlw_image_bytes(rgba, UINT32_MAX, UINT32_MAX), UINT64_MAX);
    EQUAL(rlw_image_bytes(bits, UINT32_MAX, UINT32_MAX), UINT64_C(536870912) * UINT32_MAX);
}
