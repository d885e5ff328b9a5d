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
#define HEAD "\1\0\0\0" KEY("r") "\4\0\0\0\0\0\0\xf0\x3f"
#define BIG "\7" F4 "\2\0\0\0\x10\0\0\0\x20\0\0\0\0\x08\0\0" /* 16 x 32 float32: 2048 bytes */

static size_t find(const void *bytes, size_t size, size_t least) {
    uint8_t *input = exact(bytes, size);
    size_t found = rlw_rlx_find_data(input, input, size, least, &defaults);
    release(input);
    return found;
}

/* 16 x 32 float32: 2048 bytes */
CASE(finding_data_that_has_not_come) {
    static const char direct[] = HEAD KEY("s") BIG;
    static const char listed[] = HEAD KEY("s") "\x08\2\0\0\0\1" BIG;
    static const char keyed[] = HEAD KEY("s") "\x0b\1\0\0\0" KEY("t") BIG;
    static const char image[] = HEAD KEY("s") "\6\1\0\0\0L\x40\0\0\0\x20\0\0\0\0\x08\0\0";
    static const char lying[] = HEAD KEY("s") "\7" F4 "\1\0\0\0\x10\0\0\0\0\x08\0\0";
    static const char unnamed[] = HEAD KEY("s") "\7\1\0\0\0O\1\0\0\0\0\x08\0\0\0\x08\0\0";
    static const char name[] = HEAD KEY("s") "\7\xff\0\0\0float32";
    static const char text[] = HEAD KEY("s") "\3\0\x08\0\0 some text";
    static const char lists[] = HEAD KEY("s") "\x08\2\0\0\0\x08\1\0\0\0\1" BIG;
    size_t size;
    EQUAL(find(direct, sizeof direct - 1, 1024), sizeof direct - 1);
    EQUAL(find(listed, sizeof listed - 1, 1024), sizeof listed - 1);
    EQUAL(find(keyed, sizeof keyed - 1, 1024), sizeof keyed - 1);
    EQUAL(find(image, sizeof image - 1, 1024), sizeof image - 1);
    EQUAL(find(direct, sizeof direct - 1, 2048), sizeof direct - 1);
    EQUAL(find(direct, sizeof direct - 1, 2049), 0);
    EQUAL(find(text, sizeof text - 1, 1024), 0);
    EQUAL(find(lists, sizeof lists - 1, 1024), 0); /* a hint, and no more than that */
    for (size = 0; size < sizeof direct - 1; size++) EQUAL(find(direct, size, 1024), 0);
    EQUAL(find(lying, sizeof lying - 1, 1024), 0);
    EQUAL(find(unnamed, sizeof unnamed - 1, 1024), 0);
    EQUAL(find(name, sizeof name - 1, 200), 0); /* its name is what has not come */
    EQUAL(find("\2\0\0\0", 4, 0), 0);
    EQUAL(find(NULL, 0, 0), 0);
}

CASE(finding_data_that_has_come) {
    static const char head[] = HEAD KEY("n") "\7\2\0\0\0u1\1\0\0\0\1\0\0\0\1\0\0\0a" KEY("s") BIG;
    const size_t offset = sizeof head - 1;
    uint8_t *input = (uint8_t *)calloc(offset + 2048 + 6, 1);
    if (!input) exit(2);
    memcpy(input + 5, head, offset); /* inside a frame */
    EQUAL(rlw_rlx_find_data(input, input + 5, offset + 2048, 1024, &defaults), 5 + offset);
    EQUAL(rlw_rlx_find_data(input + 5, input + 5, offset + 2048, 1, &defaults), 42);
    EQUAL(rlw_rlx_find_data(input + 5, input + 5, offset + 2048, 4096, &defaults), 0);
    free(input);
}

CASE(sizes_of_images_do_not_overflow) {
    const rlw_image_mode *rgba = rlw_image_mode_find((const uint8_t *)"RGBA", 4);
    const rlw_image_mode *bits = rlw_image_mode_find((const uint8_t *)"1", 1);
    const rlw_image_mode *grey = rlw_image_mode_find((const uint8_t *)"L", 1);
    CHECK(rgba && bits && grey);
    if (!rgba || !bits || !grey) return;
    EQUAL(rlw_image_bytes(rgba, 0, 0), 0);
    EQUAL(rlw_image_bytes(rgba, UINT32_MAX, 0), 0);
    EQUAL(rlw_image_bytes(rgba, 0, UINT32_MAX), 0);
    EQUAL(rlw_image_bytes(rgba, UINT32_MAX, 1), 4 * (uint64_t)UINT32_MAX);
    EQUAL(rlw_image_bytes(grey, UINT32_MAX, UINT32_MAX), UINT64_C(18446744065119617025));
    EQUAL(rlw_image_bytes(rgba, UINT32_MAX, UINT32_MAX), UINT64_MAX);
    EQUAL(rlw_image_bytes(bits, UINT32_MAX, UINT32_MAX), UINT64_C(536870912) * UINT32_MAX);
    EQUAL(rlw_image_bytes(bits, 0, 5), 0);
    EQUAL(rlw_image_bytes(bits, 8, 5), 5);
    EQUAL(rlw_image_bytes(bits, 9, 5), 10);
}

/* RELAAX's README: | shapes count | shape0 | ... | length | bytes |. */
CASE(arrays_without_a_dtype_have_the_readers) {
    static const uint32_t shape[2] = {1, 2};
    static const uint8_t expected[] = "\7\2\0\0\0\1\0\0\0\2\0\0\0\4\0\0\0abcd";
    const size_t size = sizeof expected - 1;
    rlw_rlx_reader r;
    rlw_rlx_value v;
    rlw_writer w;
    size_t end;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_rlx_put_array_head(&w, NULL, 0, 2, shape, 4), RLW_OK);
    EQUAL(rlw_put(&w, "abcd", 4), RLW_OK);
    HOLDS(&w, "\7\2\0\0\0\1\0\0\0\2\0\0\0\4\0\0\0abcd");
    for (end = 0; end <= size; end++) {
        uint8_t *part = (uint8_t *)malloc(end ? end : 1);
        if (end) memcpy(part, expected, end);
        rlw_rlx_reader_init(&r, part, end, &defaults);
        r.dtype.data = (const uint8_t *)"<u2";
        r.dtype.size = 3;
        EQUAL(rlw_rlx_read(&r, &v), end < size ? RLW_NEED_MORE : RLW_OK);
        if (end == size) {
            EQUAL(v.as.array.dtype.itemsize, 2);
            EQUAL(v.as.array.dims, 2);
            EQUAL(v.as.array.size, 4);
            EQUAL(v.as.array.data - part, 17);
        }
        rlw_rlx_reader_init(&r, part, end, &defaults); /* sets none */
        EQUAL(rlw_rlx_read(&r, &v), end < 7 ? RLW_NEED_MORE : RLW_BAD_DTYPE);
        free(part);
    }
    rlw_rlx_reader_init(&r, expected, size, &defaults);
    r.dtype.data = (const uint8_t *)"object";
    r.dtype.size = 6;
    EQUAL(rlw_rlx_read(&r, &v), RLW_BAD_DTYPE);
    EQUAL(r.c.fault.got, 0); /* its text is not in the buffer */
}
