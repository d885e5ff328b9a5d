/* msgpack.h and msgpack_array.h against the specification, byte by byte. */
#include "harness.h"

#define ALL UINT64_MAX

static const rlw_msgpack_limits unlimited = {ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL};

/* Reads the first value of memory of exactly its size. */
static rlw_status read_one(const void *data, size_t size, const rlw_msgpack_limits *limits,
                           rlw_msgpack_value *v, size_t *used, rlw_fault *fault) {
    uint8_t *input = exact(data, size);
    rlw_msgpack_reader r;
    rlw_status status;
    rlw_msgpack_reader_init(&r, input, size, limits);
    status = rlw_msgpack_read(&r, v);
    *used = (size_t)(r.c.at - input);
    *fault = r.c.fault;
    if (status != RLW_OK) EQUAL(*used, 0);
    if (status == RLW_OK && rlw_msgpack_is_bytes(v)) v->data = (const uint8_t *)data + (v->data -
          input);
    release(input);
    return status;
}

static void every_integer(void) {
    static const struct {
        int64_t value;
        const char *bytes;
        size_t size;
    } cases[] = {
        {0, "\x00", 1}, {127, "\x7f", 1}, {-1, "\xff", 1}, {-32, "\xe0", 1},
        {128, "\xcc\x80", 2}, {255, "\xcc\xff", 2}, {256, "\xcd\x01\x00", 3},
        {65535, "\xcd\xff\xff", 3}, {65536, "\xce\x00\x01\x00\x00", 5},
        {INT64_C(4294967295), "\xce\xff\xff\xff\xff", 5},
        {INT64_C(4294967296), "\xcf\x00\x00\x00\x01\x00\x00\x00\x00", 9},
        {INT64_MAX, "\xcf\x7f\xff\xff\xff\xff\xff\xff\xff", 9},
        {-33, "\xd0\xdf", 2}, {-128, "\xd0\x80", 2}, {-129, "\xd1\xff\x7f", 3},
        {-32768, "\xd1\x80\x00", 3}, {-32769, "\xd2\xff\xff\x7f\xff", 5},
        {-INT64_C(2147483648), "\xd2\x80\x00\x00\x00", 5},
        {-INT64_C(2147483649), "\xd3\xff\xff\xff\xff\x7f\xff\xff\xff", 9},
        {INT64_MIN, "\xd3\x80\x00\x00\x00\x00\x00\x00\x00", 9},
    };
    size_t i, used, cut;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        rlw_msgpack_value v;
        rlw_fault fault;
        rlw_writer w;
        EQUAL(read_one(cases[i].bytes, cases[i].size, &unlimited, &v, &used, &fault), RLW_OK);
        CHECK(v.kind == RLW_MSGPACK_INTEGER && v.integer == cases[i].value);
        EQUAL(used, cases[i].size);
        for (cut = 0; cut < cases[i].size; cut++)
            EQUAL(read_one(cases[i].bytes, cut, &unlimited, &v, &used, &fault), RLW_NEED_MORE);
        rlw_writer_init(&w, NULL, 0);
        EQUAL(rlw_msgpack_put_integer(&w, cases[i].value), RLW_OK);
        EQUAL(rlw_written(&w), cases[i].size);
        CHECK(memcmp(w.start, cases[i].bytes, cases[i].size) == 0);
        rlw_writer_free(&w);
    }
}

static void longer_integers_than_needed(void) {
    static const char *const forms[] = {"\xcc\x05", "\xcd\x00\x05", "\xce\0\0\0\x05",
          "\xcf\0\0\0\0\0\0\0\x05",
                                        "\xd0\x05", "\xd1\x00\x05", "\xd2\0\0\0\x05",
                                              "\xd3\0\0\0\0\0\0\0\x05"};
    static const size_t sizes[] = {2, 3, 5, 9, 2, 3, 5, 9};
    rlw_msgpack_value v;
    rlw_fault fault;
    size_t i, used;
    for (i = 0; i < 8; i++) {
        EQUAL(read_one(forms[i], sizes[i], &unlimited, &v, &used, &fault), RLW_OK);
        CHECK(v.kind == RLW_MSGPACK_INTEGER && v.integer == 5 && used == sizes[i]);
    }
    EQUAL(read_one("\xcf\x80\0\0\0\0\0\0\0", 9, &unlimited, &v, &used, &fault), RLW_OK);
    CHECK(v.kind == RLW_MSGPACK_UNSIGNED && v.size == UINT64_C(1) << 63);
}

static void plain_types(void) {
    rlw_msgpack_value v;
    rlw_fault fault;
    size_t used;
    EQUAL(read_one("\xc0", 1, &unlimited, &v, &used, &fault), RLW_OK);
    EQUAL(v.kind, RLW_MSGPACK_NIL);
    EQUAL(read_one("\xc2", 1, &unlimited, &v, &used, &fault), RLW_OK);
    CHECK(v.kind == RLW_MSGPACK_BOOLEAN && v.integer == 0);
    EQUAL(read_one("\xc3", 1, &unlimited, &v, &used, &fault), RLW_OK);
    CHECK(v.kind == RLW_MSGPACK_BOOLEAN && v.integer == 1);
    EQUAL(read_one("\xca\x3f\xc0\x00\x00", 5, &unlimited, &v, &used, &fault), RLW_OK);
    CHECK(v.kind == RLW_MSGPACK_FLOAT32 && v.real == 1.5);
    EQUAL(read_one("\xcb\xbf\xf8\0\0\0\0\0\0", 9, &unlimited, &v, &used, &fault), RLW_OK);
    CHECK(v.kind == RLW_MSGPACK_FLOAT64 && v.real == -1.5);
    EQUAL(read_one("\xc1", 1, &unlimited, &v, &used, &fault), RLW_BAD_TYPE);
    EQUAL(fault.got, 0xC1);
}

static void texts_and_bytes(void) {
    rlw_msgpack_limits limits = unlimited;
    rlw_msgpack_value v;
    rlw_fault fault;
    size_t used;
    EQUAL(read_one("\xa3" "abc", 4, &unlimited, &v, &used, &fault), RLW_OK);
    CHECK(v.kind == RLW_MSGPACK_STRING && v.size == 3 && used == 4 && memcmp(v.data, "abc", 3) ==
          0);
    EQUAL(read_one("\xd9\x01z", 3, &unlimited, &v, &used, &fault), RLW_OK);
    EQUAL(read_one("\xda\x00\x01z", 4, &unlimited, &v, &used, &fault), RLW_OK);
    EQUAL(read_one("\xdb\0\0\0\x01z", 6, &unlimited, &v, &used, &fault), RLW_OK);
    CHECK(v.kind == RLW_MSGPACK_STRING && v.size == 1 && v.data[0] == 'z');
    EQUAL(read_one("\xc4\x01z", 3, &unlimited, &v, &used, &fault), RLW_OK);
    EQUAL(read_one("\xc5\x00\x01z", 4, &unlimited, &v, &used, &fault), RLW_OK);
    EQUAL(read_one("\xc6\0\0\0\x01z", 6, &unlimited, &v, &used, &fault), RLW_OK);
    CHECK(v.kind == RLW_MSGPACK_BINARY && v.size == 1 && v.data[0] == 'z');
    EQUAL(read_one("\xc6\xff\xff\xff\xff", 5, &unlimited, &v, &used, &fault), RLW_NEED_MORE);
    CHECK(fault.got == UINT32_MAX && fault.allowed == 0);
    limits.string = limits.binary = limits.ext = 2;
    EQUAL(read_one("\xa3" "abc", 4, &limits, &v, &used, &fault), RLW_OVER_STRING);
    EQUAL(read_one("\xc4\x03" "abc", 5, &limits, &v, &used, &fault), RLW_OVER_MESSAGE);
    EQUAL(read_one("\xd6\x05" "abcd", 6, &limits, &v, &used, &fault), RLW_OVER_MESSAGE);
    CHECK(fault.got == 4 && fault.allowed == 2);
}

static void extensions(void) {
    static const uint32_t sizes[] = {0, 1, 2, 3, 4, 5, 8, 12, 16, 17, 255, 256, 65535, 65536};
    static const size_t heads[] = {3, 2, 2, 3, 2, 3, 2, 3, 2, 3, 3, 4, 4, 6};
    size_t i, used;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        rlw_msgpack_value v;
        rlw_fault fault;
        rlw_writer w;
        rlw_writer_init(&w, NULL, 0);
        EQUAL(rlw_msgpack_put_ext_head(&w, -7, sizes[i], sizes[i]), RLW_OK);
        EQUAL(rlw_written(&w), heads[i]);
        memset(w.at, 'e', sizes[i]);
        w.at += sizes[i];
        EQUAL(read_one(w.start, rlw_written(&w), &unlimited, &v, &used, &fault), RLW_OK);
        CHECK(v.kind == RLW_MSGPACK_EXT && v.code == -7 && v.size == sizes[i]);
        EQUAL(used, heads[i] + sizes[i]);
        rlw_writer_free(&w);
    }
}

static void counts_are_compared(void) {
    rlw_msgpack_limits limits = unlimited;
    rlw_msgpack_value v;
    rlw_fault fault;
    size_t used;
    EQUAL(read_one("\x92\x01\x02", 3, &unlimited, &v, &used, &fault), RLW_OK);
    CHECK(v.kind == RLW_MSGPACK_ARRAY && v.size == 2 && used == 1);
    EQUAL(read_one("\xdc\x00\x02\x01\x02", 5, &unlimited, &v, &used, &fault), RLW_OK);
    EQUAL(read_one("\xdd\0\0\0\x02\x01\x02", 7, &unlimited, &v, &used, &fault), RLW_OK);
    CHECK(v.kind == RLW_MSGPACK_ARRAY && v.size == 2 && used == 5);
    EQUAL(read_one("\xde\x00\x01\x01\x02", 5, &unlimited, &v, &used, &fault), RLW_OK);
    EQUAL(read_one("\xdf\0\0\0\x01\x01\x02", 7, &unlimited, &v, &used, &fault), RLW_OK);
    CHECK(v.kind == RLW_MSGPACK_MAP && v.size == 1 && used == 5);
    EQUAL(read_one("\x93\x01\x02", 3, &unlimited, &v, &used, &fault), RLW_BAD_COUNT);
    EQUAL(read_one("\x82\x01\x02\x03", 4, &unlimited, &v, &used, &fault), RLW_BAD_COUNT);
    CHECK(fault.got == 2 && fault.allowed == 1);
    EQUAL(read_one("\xdd\xff\xff\xff\xff", 5, &unlimited, &v, &used, &fault), RLW_BAD_COUNT);
    limits.items = 1;
    EQUAL(read_one("\x92\x01\x02", 3, &limits, &v, &used, &fault), RLW_OVER_ITEMS);
    limits.items = 9;
    limits.array = limits.map = 1;
    EQUAL(read_one("\x92\x01\x02", 3, &limits, &v, &used, &fault), RLW_OVER_ITEMS);
    EQUAL(read_one("\x82\x01\x02\x03\x04", 5, &limits, &v, &used, &fault), RLW_OVER_ITEMS);
    CHECK(fault.got == 2 && fault.allowed == 1);
}

static rlw_status skip(const void *data, size_t size, const rlw_msgpack_limits *limits, size_t
      *used) {
    uint8_t *input = exact(data, size);
    rlw_msgpack_reader r;
    rlw_status status;
    rlw_msgpack_reader_init(&r, input, size, limits);
    status = rlw_msgpack_skip(&r, 0);
    *used = (size_t)(r.c.at - input);
    release(input);
    return status;
}

static void whole_values(void) {
    rlw_msgpack_limits limits = unlimited;
    uint8_t deep[600];
    size_t used;
    EQUAL(skip("\x82\xa1k\x92\x01\x90\x05\xc4\x01x\x07", 11, &unlimited, &used), RLW_OK);
    EQUAL(used, 10);
    EQUAL(skip("\x92\x01\xc1", 3, &unlimited, &used), RLW_BAD_TYPE);
    EQUAL(used, 0);
    limits.depth = 2;
    EQUAL(skip("\x91\x91\x01", 3, &limits, &used), RLW_OK);
    EQUAL(skip("\x91\x91\x90", 3, &limits, &used), RLW_OVER_DEPTH);
    memset(deep, 0x91, sizeof deep);
    deep[sizeof deep - 1] = 0;
    EQUAL(skip(deep, sizeof deep, &unlimited, &used), RLW_OVER_DEPTH);
    EQUAL(skip(deep + sizeof deep - 1 - RLW_MSGPACK_DEEPEST, RLW_MSGPACK_DEEPEST + 1, &unlimited,
               &used), RLW_OK);
}

static void pieces(void) {
    static const char message[] = "\x83\xa1" "a\x93\x01\xcd\x02\x03\xc4\x03xyz\xa1"
          "b\x81\xc0\xc2\xa1" "c\xcb\0\0\0\0\0\0\0\0";
    size_t size = sizeof message - 1, step;
    for (step = 1; step <= size; step++) {
        rlw_msgpack_scan scan;
        size_t have;
        rlw_msgpack_scan_init(&scan);
        for (have = 0;; have = have + step > size ? size : have + step) {
            uint8_t *input = exact(message, have); /* elsewhere each time */
            rlw_msgpack_reader r;
            rlw_status status;
            rlw_msgpack_reader_init(&r, input, have, &unlimited);
            r.partial = 1;
            status = rlw_msgpack_scan_value(&r, &scan);
            EQUAL(status, have == size ? RLW_OK : RLW_NEED_MORE);
            EQUAL(r.c.at - input, have == size ? have : 0);
            release(input);
            if (status == RLW_OK || have == size) break;
        }
        EQUAL(scan.done, size);
    }
}

static void timestamps(void) {
    static const struct {
        int64_t seconds;
        uint32_t nanoseconds;
        uint32_t size;
    } cases[] = {{0, 0, 4}, {INT64_C(0xFFFFFFFF), 0, 4}, {INT64_C(0x100000000), 0, 8}, {1, 1, 8},
                 {INT64_C(0x3FFFFFFFF), 999999999, 8}, {INT64_C(0x400000000), 0, 12}, {-1, 5, 12},
                 {INT64_MIN, 999999999, 12}, {INT64_MAX, 0, 12}};
    size_t i, used;
    int64_t seconds = 0;
    uint32_t nanoseconds = 0;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        rlw_msgpack_value v;
        rlw_fault fault;
        rlw_writer w;
        rlw_writer_init(&w, NULL, 0);
        EQUAL(rlw_msgpack_put_timestamp(&w, cases[i].seconds, cases[i].nanoseconds), RLW_OK);
        EQUAL(read_one(w.start, rlw_written(&w), &unlimited, &v, &used, &fault), RLW_OK);
        CHECK(v.kind == RLW_MSGPACK_EXT && v.code == RLW_MSGPACK_TIMESTAMP);
        EQUAL(v.size, cases[i].size);
        CHECK(rlw_msgpack_timestamp(w.at - v.size, v.size, &seconds, &nanoseconds));
        CHECK(seconds == cases[i].seconds && nanoseconds == cases[i].nanoseconds);
        rlw_writer_free(&w);
    }
    CHECK(!rlw_msgpack_timestamp((const uint8_t *)"12345", 5, &seconds, &nanoseconds));
    CHECK(!rlw_msgpack_timestamp((const uint8_t *)"\xff\xff\xff\xff\0\0\0\0", 8, &seconds,
          &nanoseconds));
}

/* Reads a marked map from memory of exactly its size. */
static rlw_status marked(const void *data, size_t size, rlw_msgpack_marked *m, size_t *used) {
    rlw_msgpack_limits limits = unlimited;
    uint8_t *input = exact(data, size);
    rlw_msgpack_reader r;
    rlw_msgpack_value map;
    rlw_status status;
    limits.dims = 4;
    rlw_msgpack_reader_init(&r, input, size, &limits);
    EQUAL(rlw_msgpack_read(&r, &map), RLW_OK);
    status = rlw_msgpack_read_marked(&r, &map, 1, m);
    *used = (size_t)(r.c.at - input);
    release(input);
    return status;
}

#define ND "\xc4\x02nd"
#define TYPE "\xc4\x04type"
#define KIND "\xc4\x04kind"
#define SHAPE "\xc4\x05shape"
#define DATA "\xc4\x04" "data"
#define MARKED(text) marked("" text, sizeof(text) - 1, &m, &used)

static void arrays_in_any_order(void) {
    rlw_msgpack_marked m;
    size_t used;
    EQUAL(MARKED("\x85" ND "\xc3" TYPE "\xa3<f4" KIND "\xc4\x00" SHAPE "\x92\x01\x02" DATA
          "\xc4\x08" "abcdefgh"), RLW_OK);
    CHECK(m.mark == RLW_MSGPACK_ND && m.binary_keys && m.dtype.kind == 'f' && m.dtype.itemsize ==
          4);
    CHECK(m.dims == 2 && m.shape[0] == 1 && m.shape[1] == 2 &&
          m.field[RLW_MSGPACK_FIELD_DATA].size == 8);
    EQUAL(MARKED("\x84" DATA "\xc4\x02" "ab" SHAPE "\x91\x02" ND "\xc3" TYPE "\xc4\x03|u1"),
          RLW_OK);
    CHECK(m.mark == RLW_MSGPACK_ND && m.dtype.kind == 'u' && m.dims == 1);
    EQUAL(MARKED("\x84\xc4\x0b__ndarray__\xc3" DATA "\xc4\x02" "ab\xc4\x05" "dtype\xa3>i2" SHAPE
          "\x90"), RLW_OK);
    CHECK(m.mark == RLW_MSGPACK_ND && m.dtype.order == '>' && m.dims == 0);
    EQUAL(MARKED("\x84\xa2nd\xc3\xa4type\xa3|u1\xa5shape\x91\x02\xa4" "data\xa2" "ab"), RLW_OK);
    CHECK(m.mark == RLW_MSGPACK_ND && !m.binary_keys);
    EQUAL(MARKED("\x83" ND "\xc2" TYPE "\xa3<f4" DATA "\xc4\x04" "abcd"), RLW_OK);
    EQUAL(m.mark, RLW_MSGPACK_ND_SCALAR);
    EQUAL(MARKED("\x83\xc4\x0d__npgeneric__\xc3" DATA "\x05\xc4\x05" "dtype\xa3<f4"), RLW_OK);
    EQUAL(m.mark, RLW_MSGPACK_NP_GENERIC);
    EQUAL(MARKED("\x82\xc4\x07" "complex\xc3" DATA "\xa2" "1j"), RLW_OK);
    EQUAL(m.mark, RLW_MSGPACK_COMPLEX);
}

static void maps_like_any_other(void) {
    rlw_msgpack_marked m;
    size_t used;
    EQUAL(MARKED("\x81" ND "\xc3"), RLW_OK);
    CHECK(m.mark == RLW_MSGPACK_UNMARKED && used == 1);
    EQUAL(MARKED("\x83" ND "\xc3" TYPE "\xa3<f4" DATA "\xc4\x00"), RLW_OK); /* no shape */
    CHECK(m.mark == RLW_MSGPACK_UNMARKED && used == 1);
    EQUAL(MARKED("\x83" ND "\x01" TYPE "\xa3<f4" DATA "\xc4\x04" "abcd"), RLW_OK);
    EQUAL(m.mark, RLW_MSGPACK_UNMARKED);
    EQUAL(MARKED("\x84" ND "\xc2" TYPE "\xa3<f4" DATA "\xc4\x04" "abcd\xa1x\x80"), RLW_OK);
    EQUAL(m.mark, RLW_MSGPACK_UNMARKED); /* a map in it */
    EQUAL(MARKED("\x84" ND "\xc3" "\xc4\x07" "complex\xc3" TYPE "\xa3<f4" DATA "\xc4\x00"), RLW_OK);
    EQUAL(m.mark, RLW_MSGPACK_UNMARKED); /* two marks */
    EQUAL(MARKED("\x82" ND "\xc3" DATA "\xc1"), RLW_OK); /* the caller will meet that byte */
    EQUAL(m.mark, RLW_MSGPACK_UNMARKED);
}

static void arrays_that_are_wrong(void) {
    rlw_msgpack_marked m;
    size_t used;
    EQUAL(MARKED("\x84" ND "\xc3" TYPE "\xa3<f4" SHAPE "\x91\x02" DATA "\xc4\x07" "abcdefg"),
          RLW_BAD_SIZE);
    EQUAL(MARKED("\x84" ND "\xc3" TYPE "\xa3<f4" SHAPE "\x91\xff" DATA "\xc4\x00"),
          RLW_BAD_DIMENSION);
    EQUAL(MARKED("\x84" ND "\xc3" TYPE "\xa3<f4" SHAPE "\x91\xc0" DATA "\xc4\x00"),
          RLW_BAD_DIMENSION);
    EQUAL(MARKED("\x84" ND "\xc3" TYPE "\xa3<f4" SHAPE "\x95\0\0\0\0\0" DATA "\xc4\x00"),
          RLW_OVER_DIMS);
    EQUAL(MARKED("\x84" ND "\xc3" TYPE "\xa3<f4" SHAPE
          "\x92\xce\xff\xff\xff\xff\xce\xff\xff\xff\xff" DATA "\xc4\x00"), RLW_BAD_SHAPE);
    EQUAL(MARKED("\x84" ND "\xc3" TYPE "\xa3<f4" SHAPE "\x92\0\xce\xff\xff\xff\xff" DATA
          "\xc4\x00"), RLW_OK);
    EQUAL(MARKED("\x85" ND "\xc3" TYPE "\x90" KIND "\xc4\x01O" SHAPE "\x90" DATA "\xc4\x00"),
          RLW_BAD_PICKLE);
    EQUAL(MARKED("\x84" ND "\xc3" TYPE "\xa2|O" SHAPE "\x90" DATA "\xc4\x00"), RLW_BAD_PICKLE);
    EQUAL(MARKED("\x84" ND "\xc3" TYPE "\xa3xyz" SHAPE "\x90" DATA "\xc4\x00"), RLW_OK);
    CHECK(m.mark == RLW_MSGPACK_ND && m.dtype.itemsize == 0); /* the caller's business */
}

static void arrays_written(void) {
    static const int64_t shape[] = {2, 300};
    static const char type[] = "<f4";
    uint8_t room[4096];
    rlw_msgpack_marked m;
    rlw_writer w;
    size_t used, i;
    for (i = 0; i < 2; i++) {
        rlw_writer_init(&w, room, sizeof room);
        if (i == 0) {
            EQUAL(rlw_msgpack_put_nd(&w, type, 3, 2, shape, 2400), RLW_OK);
        } else {
            EQUAL(rlw_msgpack_put_ndarray(&w, 2400), RLW_OK);
        }
        CHECK(rlw_written(&w) < 100);
        memset(w.at, 0, 2400);
        w.at += 2400;
        if (i == 1) EQUAL(rlw_msgpack_put_ndarray_end(&w, type, 3, 2, shape), RLW_OK);
        EQUAL(marked(w.start, rlw_written(&w), &m, &used), RLW_OK);
        CHECK(m.mark == RLW_MSGPACK_ND && m.dims == 2 && m.shape[1] == 300 && m.dtype.itemsize ==
              4);
        EQUAL(used, rlw_written(&w));
        rlw_writer_free(&w);
    }
}

void msgpack_suite(void) {
    RUN(every_integer);
    RUN(longer_integers_than_needed);
    RUN(plain_types);
    RUN(texts_and_bytes);
    RUN(extensions);
    RUN(counts_are_compared);
    RUN(whole_values);
    RUN(pieces);
    RUN(timestamps);
    RUN(arrays_in_any_order);
    RUN(maps_like_any_other);
    RUN(arrays_that_are_wrong);
    RUN(arrays_written);
}
