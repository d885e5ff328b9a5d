/* rlx.h, writing: the bytes of each value, begin and end, and writers without room. */
#include "harness.h"

static const rlw_rlx_limits defaults = RLW_RLX_DEFAULT_LIMITS;

static void holds(rlw_writer *w, const char *bytes, size_t size, int line) {
    (void)harness_check(rlw_written(w) == size && memcmp(w->start, bytes, size) == 0, __FILE__,
                        line, "the writer holds these bytes");
    rlw_writer_free(w);
}

#define HOLDS(w, bytes) holds(w, bytes, sizeof bytes - 1, __LINE__)

static void numbers(void) {
    rlw_writer w;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_rlx_put_version(&w), RLW_OK);
    HOLDS(&w, "\1\0\0\0");
    EQUAL(rlw_rlx_put_int4(&w, -2), RLW_OK);
    HOLDS(&w, "\2\xfe\xff\xff\xff");
    EQUAL(rlw_rlx_put_uint4(&w, 4294967294u), RLW_OK);
    HOLDS(&w, "\x09\xfe\xff\xff\xff");
    EQUAL(rlw_rlx_put_int64(&w, INT64_MIN), RLW_OK);
    HOLDS(&w, "\x0a\0\0\0\0\0\0\0\x80");
    EQUAL(rlw_rlx_put_double(&w, -0.25), RLW_OK);
    HOLDS(&w, "\4\0\0\0\0\0\0\xd0\xbf");
}

static void integers_take_the_type_that_holds_them(void) {
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

static void texts_and_small_values(void) {
    rlw_writer w;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_rlx_put_null(&w), RLW_OK);
    HOLDS(&w, "\1");
    EQUAL(rlw_rlx_put_type(&w, RLW_RLX_NONE), RLW_OK);
    HOLDS(&w, "\0");
    EQUAL(rlw_rlx_put_boolean(&w, 0), RLW_OK);
    HOLDS(&w, "\5\0");
    EQUAL(rlw_rlx_put_boolean(&w, 256), RLW_OK); /* what C calls true */
    HOLDS(&w, "\5\1");
    EQUAL(rlw_rlx_put_string(&w, "hello", 5), RLW_OK);
    HOLDS(&w, "\3\5\0\0\0hello");
    EQUAL(rlw_rlx_put_text(&w, NULL, 0), RLW_OK);
    HOLDS(&w, "\0\0\0\0");
    EQUAL(rlw_rlx_put_list(&w, 258), RLW_OK);
    HOLDS(&w, "\x08\2\1\0\0");
    EQUAL(rlw_rlx_put_dict(&w, 1), RLW_OK);
    HOLDS(&w, "\x0b\1\0\0\0");
}

static void heads_of_arrays_and_images(void) {
    static const uint32_t shape[2] = {1, 258};
    rlw_writer w;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_rlx_put_array_head(&w, "float32", 7, 2, shape, 1032), RLW_OK);
    HOLDS(&w, "\7\7\0\0\0float32\2\0\0\0\1\0\0\0\2\1\0\0\x08\4\0\0");
    EQUAL(rlw_rlx_put_array_head(&w, "u1", 2, 0, NULL, 1), RLW_OK);
    HOLDS(&w, "\7\2\0\0\0u1\0\0\0\0\1\0\0\0");
    EQUAL(rlw_rlx_put_array_head(&w, NULL, 0, 1, shape, 4), RLW_OK); /* the readme's */
    HOLDS(&w, "\7\1\0\0\0\1\0\0\0\4\0\0\0");
    EQUAL(rlw_rlx_put_image_head(&w, "RGB", 3, 2, 1, 6), RLW_OK);
    HOLDS(&w, "\6\3\0\0\0RGB\2\0\0\0\1\0\0\0\6\0\0\0");
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

static void a_frame_is_read_back_whatever_room_it_began_with(void) {
    size_t room_size;
    for (room_size = 0; room_size < 200; room_size++) {
        uint8_t *room = (uint8_t *)malloc(room_size ? room_size : 1);
        const uint8_t *frame = NULL, *body = NULL;
        size_t size = 0, body_size = 0;
        rlw_writer w;
        rlw_cursor c;
        rlw_rlx_reader r;
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
        rlw_rlx_reader_init(&r, body, body_size, &defaults);
        EQUAL(rlw_rlx_skim(&r), RLW_OK);
        EQUAL(r.items, 8);
        rlw_writer_free(&w);
        free(room);
    }
}

static void a_writer_serves_many_messages(void) {
    rlw_writer w;
    unsigned i;
    const uint8_t *start = NULL;
    rlw_writer_init(&w, NULL, 0);
    for (i = 0; i < 100; i++) {
        const uint8_t *frame = NULL;
        size_t size = 0;
        EQUAL(rlw_rlx_begin(&w), RLW_OK);
        if (i % 2) EQUAL(put_all(&w), RLW_OK);
        EQUAL(rlw_rlx_end(&w, &frame, &size), RLW_OK);
        EQUAL(size, i % 2 ? 123 : 7);
        CHECK(memcmp(frame, i % 2 ? "118:" : "4:\1\0\0\0,", i % 2 ? 4 : 7) == 0);
        if (i == 0) start = w.start;
        CHECK(w.start == start); /* it keeps its memory */
    }
    rlw_writer_free(&w);
}

void rlx_write_suite(void) {
    RUN(numbers);
    RUN(integers_take_the_type_that_holds_them);
    RUN(texts_and_small_values);
    RUN(heads_of_arrays_and_images);
    RUN(a_frame_is_read_back_whatever_room_it_began_with);
    RUN(a_writer_serves_many_messages);
}
