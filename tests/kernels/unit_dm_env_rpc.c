/* dm_env_rpc.h: Tensor messages from bytes and to bytes. */
#include "harness.h"

/* A message from hexadecimal, in memory of its size. */
typedef struct message {
    uint8_t *data;
    size_t size;
    rlw_cursor c;
    rlw_tensor t;
} message;

static rlw_status open_limited(message *m, const char *hex, uint32_t dims) {
    uint8_t bytes[512];
    m->size = 0;
    for (; *hex; hex++) {
        char pair[3] = {0, 0, 0};
        if (*hex == ' ') continue;
        pair[0] = *hex++;
        pair[1] = *hex;
        bytes[m->size++] = (uint8_t)strtoul(pair, NULL, 16);
    }
    m->data = exact(bytes, m->size);
    rlw_cursor_init(&m->c, m->data, m->size);
    if (rlw_tensor_read(&m->c, dims, &m->t) != RLW_OK) return m->c.fault.status;
    return rlw_tensor_infer(&m->c, &m->t);
}

static rlw_status open_hex(message *m, const char *hex) { return open_limited(m, hex, 32); }

static void expect(const char *hex, rlw_status status, size_t offset) {
    message m;
    uint64_t out[64];
    rlw_status got = open_hex(&m, hex);
    if (got == RLW_OK && rlw_tensor_itemsize(m.t.kind)) got = rlw_tensor_decode(&m.c, &m.t, out);
    if (!harness_check(got == status, __FILE__, __LINE__, hex))
        fprintf(stderr, "    got %s\n", rlw_status_text(got));
    if (status != RLW_OK) EQUAL(m.c.fault.at - m.data, offset);
    release(m.data);
}

static void decode_u32(const char *hex, uint32_t kind, size_t count, const uint32_t *values) {
    message m;
    uint32_t out[16] = {0};
    EQUAL(open_hex(&m, hex), RLW_OK);
    EQUAL(m.t.kind, kind);
    EQUAL(m.t.count, count);
    EQUAL(rlw_tensor_decode(&m.c, &m.t, out), RLW_OK);
    CHECK(memcmp(out, values, 4 * count) == 0);
    release(m.data);
}

static void one_packed_piece(void) {
    static const char hex[] = "22 10 0a 0e 01 ac02 ffffffffffffffffff01 04 7a 02 02 02";
    static const uint32_t values[] = {1, 300, 0xFFFFFFFF, 4};
    message m;
    decode_u32(hex, RLW_TENSOR_INT32, 4, values);
    EQUAL(open_hex(&m, hex), RLW_OK);
    CHECK(m.t.dims == 2 && m.t.shape[0] == 2 && m.t.shape[1] == 2);
    CHECK(m.t.total == 4 && m.t.segments == 1 && m.t.data == m.data + 4 && m.t.size == 14);
    release(m.data);
}

static void elements_in_pieces(void) {
    static const uint32_t values[] = {1, 2, 3, 4, 5};
    /* unpacked; mixed; the payload in two fields; the shape between and in pieces */
    decode_u32("22 0a 0801 0802 0803 0804 0805 7a 01 05", RLW_TENSOR_INT32, 5, values);
    decode_u32("3a 0b 0801 0a03 020304 0a00 0805 7a 01 05", RLW_TENSOR_UINT32, 5, values);
    decode_u32("22 04 0a 02 01 02 7801 22 05 0a 03 03 04 05 7805", RLW_TENSOR_INT32, 5, values);
    decode_u32("0a 0a 0d01000000 0d02000000 0a 06 0a 04 03000000 78 03", RLW_TENSOR_FLOAT, 3,
               values);
}

static void bytes_are_not_repeated(void) {
    message m;
    uint8_t out[8] = {9};
    EQUAL(open_hex(&m, "1a 08 0a 03 616263 0a 01 64 7a 01 01"), RLW_OK);
    CHECK(m.t.kind == RLW_TENSOR_INT8 && m.t.count == 1 && m.t.segments == 1);
    EQUAL(rlw_tensor_decode(&m.c, &m.t, out), RLW_OK);
    EQUAL(out[0], 'd');
    release(m.data);
    EQUAL(open_hex(&m, "32 05 0a 03 616263 32 02 0a 00 7a 01 00"), RLW_OK); /* the last is empty */
    CHECK(m.t.kind == RLW_TENSOR_UINT8 && m.t.count == 0);
    EQUAL(rlw_tensor_decode(&m.c, &m.t, out), RLW_OK);
    release(m.data);
    EQUAL(open_hex(&m, "32 05 0a 03 616263 32 00 7a 01 03"), RLW_OK); /* the last has no field */
    EQUAL(m.t.count, 3);
    release(m.data);
    expect("32 02 08 01", RLW_BAD_WIRE, 2);
}

static void the_last_member_of_a_oneof_counts(void) {
    static const uint32_t one[] = {7};
    decode_u32("0a 06 0a 04 00000000 22 03 0a 01 07", RLW_TENSOR_INT32, 1, one);
    decode_u32("22 03 0a 01 05 0a 06 0a 04 00000000 22 03 0a 01 07", RLW_TENSOR_INT32, 1, one);
    expect("22 03 0a 01 05 4a 00", RLW_BAD_ELEMENTS, 5); /* cleared by an empty one */
    /* What is cleared must have been right all the same. */
    expect("22 0d 0a 0b 8080808080808080808000 0a 06 0a 04 00000000", RLW_BAD_VARINT, 4);
    expect("0a 05 0a 03 000000 22 03 0a 01 07", RLW_BAD_PACKED, 4);
}

static void unknown_fields_are_skipped(void) {
    static const uint32_t one[] = {7};
    decode_u32("6801 71 0102030405060708 8301 0801 8401 22 08 1201ff 0a0107 1801 62 02 ffff",
               RLW_TENSOR_INT32, 1, one);
    decode_u32("22 07 1b0801 1c 0a0107 8501 00000000", RLW_TENSOR_INT32, 1, one);
}

static void shapes_are_inferred(void) {
    static const struct {
        const char *hex;
        int64_t shape[4];
        uint64_t total;
    } cases[] = {
        /* six bytes in each, then the shape */
        {"32 08 0a 06 010203040506 7a 02 02 03", {2, 3}, 6},
        {"32 08 0a 06 010203040506 7a 0b 02 ffffffffffffffffff01", {2, 3}, 6},
        {"32 08 0a 06 010203040506 7a 0b feffffffffffffffff01 03", {2, 3}, 6},
        {"32 08 0a 06 010203040506 7a 05 ffffffff0f", {6}, 6}, /* an int32 in five bytes */
        {"32 08 0a 06 010203040506 7a 06 8680808010 01", {6, 1}, 6}, /* 2**32 + 6 */
        /* one */
        {"32 03 0a 01 07 7a 02 02 03", {2, 3}, 6},
        {"32 03 0a 01 07 7a 0c 00 ffffffffffffffffff01 05", {1, 1, 5}, 5},
        /* none */
        {"32 00 7a 02 00 05", {0, 5}, 0},
        {"32 00 7a 0b ffffffffffffffffff01 03", {0, 3}, 0},
        {"32 00 7a 01 00", {0}, 0},
    };
    size_t i;
    uint32_t k;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        message m;
        EQUAL(open_hex(&m, cases[i].hex), RLW_OK);
        EQUAL(m.t.total, cases[i].total);
        for (k = 0; k < m.t.dims; k++) EQUAL(m.t.shape[k], cases[i].shape[k]);
        release(m.data);
    }
}

static void shapes_that_do_not_fit(void) {
    expect("", RLW_BAD_PAYLOAD, 0);
    expect("7a 01 01", RLW_BAD_PAYLOAD, 0);
    expect("32 04 0a 02 0102", RLW_BAD_ELEMENTS, 0); /* a scalar of two */
    expect("32 00", RLW_BAD_ELEMENTS, 0);            /* and of none */
    expect("32 04 0a 02 0102 7a 01 03", RLW_BAD_ELEMENTS, 6);
    expect("32 04 0a 02 0102 7a 02 02 02", RLW_BAD_ELEMENTS, 6);
    expect("32 05 0a 03 010203 7a 0b 02 ffffffffffffffffff01", RLW_BAD_ELEMENTS, 7);
    expect("32 04 0a 02 0102 7a 02 02 00", RLW_BAD_ELEMENTS, 6);
    expect("32 04 0a 02 0102 7a 0b 00 ffffffffffffffffff01", RLW_BAD_ELEMENTS, 6);
    expect("32 00 7a 0b 00 ffffffffffffffffff01", RLW_BAD_ELEMENTS, 2); /* nobody can say */
    expect("32 04 0a 02 0102 7a 14 ffffffffffffffffff01 feffffffffffffffff01", RLW_BAD_UNKNOWN, 6);
    /* 2**31 - 1 in each of three dimensions: of two elements, of one, of none */
    expect("32 04 0a 02 0102 7a 0f ffffffff07 ffffffff07 ffffffff07", RLW_BAD_SHAPE, 6);
    expect("32 03 0a 01 01 7a 0f ffffffff07 ffffffff07 ffffffff07", RLW_BAD_SHAPE, 5);
    expect("32 00 7a 10 00 ffffffff07 ffffffff07 ffffffff07", RLW_BAD_SHAPE, 2);
}

static void dimensions_are_limited(void) {
    char hex[4 * 80] = "32 03 0a 01 01";
    message m;
    int i;
    EQUAL(open_limited(&m, "32 03 0a 01 01 7a 03 01 01 01", 3), RLW_OK);
    release(m.data);
    EQUAL(open_limited(&m, "32 03 0a 01 01 7a 03 01 01 01", 2), RLW_OVER_DIMS);
    CHECK(m.c.fault.got == 3 && m.c.fault.allowed == 2);
    release(m.data);
    for (i = 0; i < 32; i++) strcat(hex, " 7801");
    EQUAL(open_limited(&m, hex, 1000), RLW_OK);
    EQUAL(m.t.dims, 32);
    release(m.data);
    strcat(hex, " 7801");
    EQUAL(open_limited(&m, hex, 1000), RLW_OVER_DIMS);
    release(m.data);
}

static void wrong_wire(void) {
    expect("08 01", RLW_BAD_WIRE, 0);                /* a payload that is no message */
    expect("0b 0c", RLW_BAD_WIRE, 0);                /* nor a group */
    expect("7d 00000000", RLW_BAD_WIRE, 0);          /* the shape */
    expect("0a 02 08 01", RLW_BAD_WIRE, 2);          /* a float as a varint */
    expect("0a 02 0b 0c", RLW_BAD_WIRE, 2);
    expect("12 05 0d 00000000", RLW_BAD_WIRE, 2);    /* a double of 32 bits */
    expect("22 05 0d 00000000", RLW_BAD_WIRE, 2);    /* an int32 of 32 bits */
    expect("52 02 08 01", RLW_BAD_WIRE, 2);          /* a string as a number */
    expect("0a 05 0a 03 000000", RLW_BAD_PACKED, 4); /* three quarters of a float */
    expect("12 06 0a 04 00000000", RLW_BAD_PACKED, 4);
    expect("22 03 0a 01 80", RLW_BAD_PACKED, 4);     /* the beginning of a varint */
    expect("22 0d 0a 0b 8080808080808080808001 7a 01 01", RLW_BAD_VARINT, 4);
    expect("22 0c 0a 0a ffffffffffffffffff02", RLW_BAD_VARINT, 4);
    expect("22 0a 0a 05 01", RLW_NEED_MORE, 2);      /* a sub-message longer than what is left */
    expect("22 03 0a 05 01", RLW_NEED_MORE, 4);      /* an array longer than its message */
    expect("7a 01 80", RLW_NEED_MORE, 2);
    expect("32 03 0a 01 01 7a 0b 8080808080808080808001", RLW_BAD_VARINT, 7);
}

static void strings_and_messages_one_by_one(void) {
    static const char *const words[] = {"hello", "", "x"};
    message m;
    rlw_tensor_items items;
    const uint8_t *data = NULL;
    size_t size = 0, i;
    EQUAL(open_hex(&m, "52 09 0a05 68656c6c6f 0a00 52 03 0a01 78 7a 01 03"), RLW_OK);
    EQUAL(m.t.kind, RLW_TENSOR_STRING);
    rlw_tensor_items_init(&items, &m.t);
    for (i = 0; i < 3; i++) {
        CHECK(rlw_tensor_next(&items, &data, &size));
        CHECK(size == strlen(words[i]) && memcmp(data, words[i], size) == 0);
    }
    CHECK(!rlw_tensor_next(&items, &data, &size));
    release(m.data);
}

static void any_messages(void) {
    static const uint8_t bytes[] = "\x0a\1a\x12\2bc\x1a\1?\x0a\1d";
    uint8_t *wire = exact(bytes, sizeof bytes - 1);
    rlw_cursor c;
    rlw_any any;
    rlw_cursor_init(&c, wire, sizeof bytes - 1);
    EQUAL(rlw_any_read(&c, &any), RLW_OK);
    CHECK(any.url_size == 1 && any.url[0] == 'd' && any.value_size == 2);
    rlw_cursor_init(&c, wire, 0);
    EQUAL(rlw_any_read(&c, &any), RLW_OK);
    CHECK(any.url_size == 0 && any.value_size == 0);
    rlw_cursor_init(&c, (const uint8_t *)"\x08\1", 2);
    EQUAL(rlw_any_read(&c, &any), RLW_BAD_WIRE);
    release(wire);
}

static void values_of_a_spec(void) {
    static const uint8_t bytes[] = "\x62\3\x0a\1\7"; /* field 12: int32s */
    rlw_tensor t;
    rlw_cursor c;
    int32_t out = 0;
    rlw_cursor_init(&c, bytes, 5);
    EQUAL(rlw_tensor_read_value(&c, &t), RLW_OK);
    CHECK(t.kind == RLW_TENSOR_INT32 && t.field == 12 && t.count == 1);
    EQUAL(rlw_tensor_decode(&c, &t, &out), RLW_OK);
    EQUAL(out, 7);
    rlw_cursor_init(&c, (const uint8_t *)"\x0a\0", 2); /* field 1 is nothing here */
    EQUAL(rlw_tensor_read_value(&c, &t), RLW_OK);
    EQUAL(t.kind, RLW_TENSOR_NONE);
    rlw_cursor_init(&c, (const uint8_t *)"\x8a\1\0", 3); /* nor is field 17 */
    EQUAL(rlw_tensor_read_value(&c, &t), RLW_OK);
    EQUAL(t.kind, RLW_TENSOR_NONE);
}

static void a_payload_alone(void) {
    rlw_tensor t;
    rlw_cursor c;
    uint32_t out[3] = {0};
    rlw_cursor_init(&c, (const uint8_t *)"\x08\1\x0a\2\2\3", 6);
    EQUAL(rlw_tensor_read_payload(&c, RLW_TENSOR_UINT32, &t), RLW_OK);
    CHECK(t.count == 3 && t.segments == 2 && c.at == c.end);
    EQUAL(rlw_tensor_decode(&c, &t, out), RLW_OK);
    CHECK(out[0] == 1 && out[1] == 2 && out[2] == 3);
    rlw_cursor_init(&c, (const uint8_t *)"\x0d\1", 2);
    EQUAL(rlw_tensor_read_payload(&c, RLW_TENSOR_UINT32, &t), RLW_NEED_MORE);
}

static void written_is_read(void) {
    static const float floats[] = {1.5f, -2.0f};
    static const double doubles[] = {0.25, -1e300};
    static const uint8_t bytes[] = {1, 0};
    static const int32_t ints[] = {-5, 300};
    static const uint64_t longs[] = {UINT64_MAX, 0};
    static const struct {
        uint32_t kind;
        const void *values;
        const char *wire;
        size_t size;
    } cases[] = {
        {RLW_TENSOR_FLOAT, floats, "\x0a\x0a\x0a\x08\0\0\xc0\x3f\0\0\0\xc0\x7a\2\1\2", 16},
        {RLW_TENSOR_DOUBLE, doubles, NULL, 24},
        {RLW_TENSOR_INT8, bytes, "\x1a\4\x0a\2\1\0\x7a\2\1\2", 10},
        {RLW_TENSOR_UINT8, bytes, "\x32\4\x0a\2\1\0\x7a\2\1\2", 10},
        {RLW_TENSOR_BOOL, bytes, "\x4a\4\x0a\2\1\0\x7a\2\1\2", 10},
        {RLW_TENSOR_INT32, ints,
         "\x22\x0e\x0a\x0c\xfb\xff\xff\xff\xff\xff\xff\xff\xff\1\xac\2\x7a\2\1\2", 20},
        {RLW_TENSOR_UINT32, ints, "\x3a\x09\x0a\7\xfb\xff\xff\xff\x0f\xac\2\x7a\2\1\2", 15},
        {RLW_TENSOR_INT64, longs, NULL, 19},
        {RLW_TENSOR_UINT64, longs, NULL, 19},
    };
    static const int64_t shape[] = {1, 2};
    rlw_writer w;
    size_t i;
    rlw_writer_init(&w, NULL, 0);
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        rlw_tensor t;
        rlw_cursor c;
        uint64_t out[2];
        w.at = w.start;
        EQUAL(rlw_put_tensor(&w, cases[i].kind, cases[i].values, 2, shape, 2), RLW_OK);
        EQUAL(rlw_written(&w), cases[i].size);
        if (cases[i].wire) CHECK(memcmp(w.start, cases[i].wire, cases[i].size) == 0);
        rlw_cursor_init(&c, w.start, rlw_written(&w));
        EQUAL(rlw_tensor_read(&c, 32, &t), RLW_OK);
        EQUAL(rlw_tensor_infer(&c, &t), RLW_OK);
        CHECK(t.kind == cases[i].kind && t.count == 2 && t.dims == 2 && t.total == 2);
        EQUAL(rlw_tensor_decode(&c, &t, out), RLW_OK);
        CHECK(memcmp(out, cases[i].values, 2 * rlw_tensor_itemsize(t.kind)) == 0);
    }
    rlw_writer_free(&w);
}

static void what_cannot_be_written(void) {
    static const int64_t negative[] = {-1}, large[] = {INT64_C(1) << 31}, two[] = {2},
                         many[] = {INT32_MAX, INT32_MAX, INT32_MAX};
    uint8_t value = 1;
    rlw_writer w;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_STRING, &value, 1, NULL, 0), RLW_BAD_TYPE);
    EQUAL(rlw_put_tensor(&w, 12, &value, 1, NULL, 0), RLW_BAD_TYPE);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, negative, 1), RLW_BAD_SHAPE);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, large, 1), RLW_BAD_SHAPE);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, many, 3), RLW_BAD_SHAPE);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 0, two, 1), RLW_BAD_ELEMENTS);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, two, 33), RLW_OVER_DIMS);
    EQUAL(rlw_written(&w), 0);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, two, 1), RLW_OK); /* one for all */
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, NULL, 0), RLW_OK);
    EQUAL(rlw_written(&w), 8 + 5);
    rlw_writer_free(&w);
}

/* Whatever happens to the values between measuring and writing, the size stays. */
static void values_may_change_after_measuring(void) {
    uint32_t before[40], after[40];
    size_t i;
    for (i = 0; i < 40; i++) {
        before[i] = 300;
        after[i] = i & 1 ? UINT32_MAX : 1;
    }
    {
        rlw_tensor_sizes sizes;
        uint8_t *room, *end;
        CHECK(rlw_tensor_measure(&sizes, 7, 7, rlw_tensor_data_size(7, before, 40), NULL, 0));
        EQUAL(sizes.data, 80);
        room = (uint8_t *)malloc(80);
        if (!room) exit(2);
        end = rlw_tensor_put_data(room, RLW_TENSOR_UINT32, after, 40, &sizes);
        CHECK(end == room + 80);
        EQUAL(room[0], 1);
        for (i = 0; i < 40; i++) after[i] = 1;
        CHECK(rlw_tensor_put_data(room, RLW_TENSOR_UINT32, after, 40, &sizes) == room + 80);
        CHECK(room[39] == 1 && room[40] == 0 && room[79] == 0);
        free(room);
    }
}

static void equal_numbers_are_seen(void) {
    static const float zeros[] = {0.0f, -0.0f, 0.0f};
    float floats[3000];
    double doubles[5] = {1, 1, 1, 1, 1};
    uint64_t longs[5] = {7, 7, 7, 7, 7};
    uint8_t bytes[5] = {1, 1, 1, 1, 1};
    size_t i;
    CHECK(rlw_tensor_all_equal(RLW_TENSOR_FLOAT, zeros, 3));
    for (i = 0; i < 3000; i++) floats[i] = 2.5f;
    CHECK(rlw_tensor_all_equal(RLW_TENSOR_FLOAT, floats, 3000));
    for (i = 1; i < 3000; i += 499) {
        floats[i] = 2.0f;
        CHECK(!rlw_tensor_all_equal(RLW_TENSOR_FLOAT, floats, 3000));
        floats[i] = 2.5f;
    }
    for (i = 0; i < 3000; i++) memcpy(&floats[i], "\0\0\xc0\x7f", 4);
    CHECK(!rlw_tensor_all_equal(RLW_TENSOR_FLOAT, floats, 3000)); /* NaN is not itself */
    CHECK(rlw_tensor_all_equal(RLW_TENSOR_DOUBLE, doubles, 5));
    CHECK(rlw_tensor_all_equal(RLW_TENSOR_INT64, longs, 5));
    CHECK(rlw_tensor_all_equal(RLW_TENSOR_INT32, longs, 1));
    CHECK(!rlw_tensor_all_equal(RLW_TENSOR_INT32, longs, 2));
    CHECK(rlw_tensor_all_equal(RLW_TENSOR_BOOL, bytes, 5));
    doubles[4] = 2;
    longs[4] = 8;
    bytes[4] = 0;
    CHECK(!rlw_tensor_all_equal(RLW_TENSOR_DOUBLE, doubles, 5));
    CHECK(!rlw_tensor_all_equal(RLW_TENSOR_UINT64, longs, 5));
    CHECK(!rlw_tensor_all_equal(RLW_TENSOR_INT8, bytes, 5));
}

void dm_env_rpc_suite(void) {
    RUN(one_packed_piece);
    RUN(elements_in_pieces);
    RUN(bytes_are_not_repeated);
    RUN(the_last_member_of_a_oneof_counts);
    RUN(unknown_fields_are_skipped);
    RUN(shapes_are_inferred);
    RUN(shapes_that_do_not_fit);
    RUN(dimensions_are_limited);
    RUN(wrong_wire);
    RUN(strings_and_messages_one_by_one);
    RUN(any_messages);
    RUN(values_of_a_spec);
    RUN(a_payload_alone);
    RUN(written_is_read);
    RUN(what_cannot_be_written);
    RUN(values_may_change_after_measuring);
    RUN(equal_numbers_are_seen);
}
