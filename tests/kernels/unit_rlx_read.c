/* rlx.h, reading: one value at a time, whole messages, limits, and the hint for aligning.
 *
 * The inputs are spelled out byte by byte, so that a mistake in the writer cannot hide one here.
 */
#include "harness.h"

static const rlw_rlx_limits defaults = RLW_RLX_DEFAULT_LIMITS;

typedef struct reading {
    rlw_rlx_reader reader;
    rlw_rlx_value value;
    rlw_status status;
    uint8_t *input;
    size_t fault_at, at; /* indices */
} reading;

/* Reads one value out of memory of exactly its size; done() frees that. */
static reading read_limited(const char *bytes, size_t size, const rlw_rlx_limits *limits) {
    reading t;
    memset(&t.value, 0xEE, sizeof t.value);
    t.input = exact(bytes, size);
    rlw_rlx_reader_init(&t.reader, t.input, size, limits);
    t.status = rlw_rlx_read(&t.reader, &t.value);
    t.fault_at = (size_t)(t.reader.c.fault.at - t.input);
    t.at = (size_t)(t.reader.c.at - t.input);
    CHECK(t.at <= size && t.fault_at <= size);
    EQUAL(t.reader.c.fault.status, t.status);
    if (t.status != RLW_OK || size == 0) return t;
    CHECK(t.value.at == t.input);
    return t;
}

static void done(reading *t) { release(t->input); }

#define READ(text) read_limited(text, sizeof text - 1, &defaults)
#define FAILS(text, expected, index, got_, allowed_) \
    do { \
        reading t_ = READ(text); \
        EQUAL(t_.status, expected); \
        EQUAL(t_.fault_at, index); \
        EQUAL(t_.reader.c.fault.got, got_); \
        EQUAL(t_.reader.c.fault.allowed, allowed_); \
        done(&t_); \
    } while (0)

static void numbers(void) {
    reading t = READ("\2\xfe\xff\xff\xff");
    EQUAL(t.status, RLW_OK);
    EQUAL(t.value.type, RLW_RLX_INT4);
    CHECK(t.value.as.integer == -2);
    EQUAL(t.at, 5);
    done(&t);
    t = READ("\2\0\0\0\x80");
    CHECK(t.status == RLW_OK && t.value.as.integer == INT32_MIN);
    done(&t);
    t = READ("\x09\xfe\xff\xff\xff");
    CHECK(t.status == RLW_OK && t.value.type == RLW_RLX_UINT4);
    CHECK(t.value.as.integer == INT64_C(4294967294));
    done(&t);
    t = READ("\x0a\0\0\0\0\0\0\0\x80");
    CHECK(t.status == RLW_OK && t.value.type == RLW_RLX_INT64);
    CHECK(t.value.as.integer == INT64_MIN);
    done(&t);
    t = READ("\4\0\0\0\0\0\0\xd0\xbf");
    CHECK(t.status == RLW_OK && t.value.type == RLW_RLX_DOUBLE);
    CHECK(!(t.value.as.real < -0.25) && !(t.value.as.real > -0.25));
    done(&t);
}

static void nothing_and_booleans(void) {
    reading t = READ("\0");
    CHECK(t.status == RLW_OK && t.value.type == RLW_RLX_NONE && t.at == 1);
    done(&t);
    t = READ("\1");
    CHECK(t.status == RLW_OK && t.value.type == RLW_RLX_NULL && t.at == 1);
    done(&t);
    t = READ("\5\0");
    CHECK(t.status == RLW_OK && t.value.type == RLW_RLX_BOOLEAN && t.value.as.boolean == 0);
    done(&t);
    t = READ("\5\1");
    CHECK(t.status == RLW_OK && t.value.as.boolean == 1);
    done(&t);
}

static void a_boolean_is_0_or_1(void) {
    unsigned byte;
    for (byte = 2; byte < 256; byte++) {
        char text[2] = {5, 0};
        reading t;
        text[1] = (char)byte;
        t = read_limited(text, 2, &defaults);
        EQUAL(t.status, RLW_BAD_BOOLEAN);
        EQUAL(t.fault_at, 1);
        EQUAL(t.reader.c.fault.got, byte);
        done(&t);
    }
}

static void types_above_11_are_unknown(void) {
    unsigned byte;
    for (byte = 12; byte < 256; byte++) {
        uint8_t text[9] = {0};
        reading t;
        text[0] = (uint8_t)byte;
        t = read_limited((const char *)text, 9, &defaults);
        EQUAL(t.status, RLW_BAD_TYPE);
        EQUAL(t.fault_at, 0);
        EQUAL(t.reader.c.fault.got, byte);
        done(&t);
    }
}

static void texts(void) {
    reading t = READ("\3\5\0\0\0hello");
    CHECK(t.status == RLW_OK && t.value.type == RLW_RLX_STRING && t.value.as.text.size == 5);
    CHECK(t.status == RLW_OK && memcmp(t.value.as.text.data, "hello", 5) == 0);
    done(&t);
    t = READ("\3\0\0\0\0");
    CHECK(t.status == RLW_OK && t.value.as.text.size == 0 && t.at == 5);
    done(&t);
    FAILS("\3\6\0\0\0hello", RLW_NEED_MORE, 5, 6, 5);
    FAILS("\3\1\0\0\1x", RLW_OVER_STRING, 1, 0x1000001, 1 << 24);
    FAILS("\3\xff\xff\xff\xffx", RLW_OVER_STRING, 1, UINT32_MAX, 1 << 24);
}

static void counts(void) {
    reading t = READ("\x08\3\0\0\0\1\1\1");
    CHECK(t.status == RLW_OK && t.value.type == RLW_RLX_LIST && t.value.as.count == 3);
    EQUAL(t.at, 5); /* the items are the caller's to read */
    EQUAL(t.reader.items, 3);
    done(&t);
    t = READ("\x0b\1\0\0\0\0\0\0\0\1");
    CHECK(t.status == RLW_OK && t.value.type == RLW_RLX_DICT && t.value.as.count == 1);
    done(&t);
    t = READ("\x08\0\0\0\0");
    CHECK(t.status == RLW_OK && t.value.as.count == 0);
    done(&t);
    FAILS("\x08\4\0\0\0\1\1\1", RLW_BAD_COUNT, 1, 4, 3);
    FAILS("\x08\xff\xff\xff\xff\1\1\1", RLW_BAD_COUNT, 1, UINT32_MAX, 3);
    FAILS("\x0b\2\0\0\0\0\0\0\0\1\0\0\0\0", RLW_BAD_COUNT, 1, 2, 1);
    FAILS("\x0b\xff\xff\xff\x7f", RLW_BAD_COUNT, 1, INT32_MAX, 0);
}

#define F4 "\7\0\0\0float32"

static void arrays(void) {
    static const char two[] = "\7" F4 "\2\0\0\0\1\0\0\0\2\0\0\0\x08\0\0\0abcdefgh";
    reading t = READ(two);
    EQUAL(t.status, RLW_OK);
    EQUAL(t.value.type, RLW_RLX_NDARRAY);
    EQUAL(t.value.as.array.dims, 2);
    EQUAL(t.value.as.array.dtype.kind, 'f');
    EQUAL(t.value.as.array.dtype.itemsize, 4);
    EQUAL(t.value.as.array.name.size, 7);
    EQUAL(t.value.as.array.size, 8);
    if (t.status == RLW_OK) {
        EQUAL(rlw_load_u32le(t.value.as.array.shape), 1);
        EQUAL(rlw_load_u32le(t.value.as.array.shape + 4), 2);
        CHECK(memcmp(t.value.as.array.data, "abcdefgh", 8) == 0);
        CHECK(t.reader.c.at == t.reader.c.end);
    }
    done(&t);
    t = READ("\7" F4 "\0\0\0\0\4\0\0\0abcd"); /* no dimensions: one item */
    CHECK(t.status == RLW_OK && t.value.as.array.size == 4);
    done(&t);
    t = READ("\7" F4 "\2\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0");
    CHECK(t.status == RLW_OK && t.value.as.array.size == 0);
    done(&t);
    t = READ("\7\2\0\0\0U3\1\0\0\0\2\0\0\0\x18\0\0\0abcdefghijklmnopqrstuvwx");
    CHECK(t.status == RLW_OK && t.value.as.array.dtype.itemsize == 12);
    done(&t);
}

static void arrays_that_lie(void) {
    FAILS("\7" F4 "\1\0\0\0\2\0\0\0\7\0\0\0abcdefgh", RLW_BAD_SIZE, 20, 7, 8);
    FAILS("\7" F4 "\1\0\0\0\2\0\0\0\x09\0\0\0abcdefgh", RLW_BAD_SIZE, 20, 9, 8);
    FAILS("\7" F4 "\1\0\0\0\0\0\0\0\4\0\0\0abcd", RLW_BAD_SIZE, 20, 4, 0);
    FAILS("\7" F4 "\1\0\0\0\2\0\0\0\x08\0\0\0abcdefg", RLW_NEED_MORE, 24, 8, 7);
    FAILS("\7\1\0\0\0O\1\0\0\0\1\0\0\0\x08\0\0\0abcdefgh", RLW_BAD_DTYPE, 5, 1, 0);
    FAILS("\7\2\0\0\0V8\1\0\0\0\1\0\0\0\x08\0\0\0abcdefgh", RLW_BAD_DTYPE, 5, 2, 0);
    FAILS("\7\7\0\0\0<f4,<f4\1\0\0\0\1\0\0\0\x08\0\0\0abcdefgh", RLW_BAD_DTYPE, 5, 7, 0);
    FAILS("\7\0\0\0\0\1\0\0\0\1\0\0\0\x08\0\0\0abcdefgh", RLW_BAD_DTYPE, 5, 0, 0);
    FAILS("\7" F4 "\x21\0\0\0\1\0\0\0", RLW_OVER_DIMS, 12, 33, 32);
    FAILS("\7" F4 "\xff\xff\xff\xff\1\0\0\0", RLW_OVER_DIMS, 12, UINT32_MAX, 32);
    FAILS("\7" F4 "\2\0\0\0\1\0\0\0", RLW_NEED_MORE, 16, 8, 4);
}

static void products_that_overflow(void) {
    /* 4 * (2**32 - 1)**2 is above 2**63; so is 4 * 2**31 * 2**31, which is 0 modulo 2**64. */
    FAILS("\7" F4 "\2\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\4\0\0\0abcd", RLW_BAD_SHAPE, 16, 0, 0);
    FAILS("\7" F4 "\2\0\0\0\0\0\0\x80\0\0\0\x80\0\0\0\0", RLW_BAD_SHAPE, 16, 0, 0);
    /* A zero elsewhere does not excuse it, before or after. */
    FAILS("\7" F4 "\3\0\0\0\0\0\0\0\0\0\0\x80\0\0\0\x80\0\0\0\0", RLW_BAD_SHAPE, 16, 0, 0);
    FAILS("\7" F4 "\3\0\0\0\0\0\0\x80\0\0\0\x80\0\0\0\0\0\0\0\0", RLW_BAD_SHAPE, 16, 0, 0);
    /* 2**31 * 2**30 * 4 = 2**63 is one too many; int8 makes it 2**61 and a lie. */
    FAILS("\7" F4 "\2\0\0\0\0\0\0\x80\0\0\0\x40\0\0\0\0", RLW_BAD_SHAPE, 16, 0, 0);
    FAILS("\7\4\0\0\0int8\2\0\0\0\0\0\0\x80\0\0\0\x40\0\0\0\0", RLW_BAD_SIZE, 21, 0,
          UINT64_C(1) << 61);
    /* 2**32 bytes do not fit the size field, which would say 0. */
    FAILS("\7\4\0\0\0int8\2\0\0\0\0\0\1\0\0\0\1\0\0\0\0\0", RLW_BAD_SIZE, 21, 0,
          UINT64_C(1) << 32);
}

static void arrays_of_the_readme(void) {
    static const char text[] = "\7\1\0\0\0\2\0\0\0\4\0\0\0abcd";
    uint8_t *input = exact(text, sizeof text - 1);
    rlw_rlx_reader r;
    rlw_rlx_value v;
    rlw_rlx_reader_init(&r, input, sizeof text - 1, &defaults);
    r.readme = 1;
    CHECK(rlw_dtype_parse((const uint8_t *)">i2", 3, &r.dtype) == 1);
    EQUAL(rlw_rlx_read(&r, &v), RLW_OK);
    EQUAL(v.as.array.name.size, 0);
    EQUAL(v.as.array.dtype.order, '>');
    EQUAL(v.as.array.size, 4);
    CHECK(r.c.at == r.c.end);
    rlw_rlx_reader_init(&r, input, sizeof text - 1, &defaults); /* float32 unless told */
    r.readme = 1;
    EQUAL(rlw_rlx_read(&r, &v), RLW_BAD_SIZE);
    EQUAL(r.c.fault.allowed, 8);
    release(input);
}

static void images(void) {
    reading t = READ("\6\3\0\0\0RGB\2\0\0\0\1\0\0\0\6\0\0\0abcdef");
    EQUAL(t.status, RLW_OK);
    EQUAL(t.value.type, RLW_RLX_IMAGE);
    EQUAL(t.value.as.image.width, 2);
    EQUAL(t.value.as.image.height, 1);
    EQUAL(t.value.as.image.size, 6);
    CHECK(t.status == RLW_OK && strcmp(t.value.as.image.mode->name, "RGB") == 0);
    done(&t);
    t = READ("\6\1\0\0\0" "1\x09\0\0\0\2\0\0\0\4\0\0\0abcd");
    CHECK(t.status == RLW_OK && t.value.as.image.size == 4);
    done(&t);
    t = READ("\6\1\0\0\0L\0\0\0\0\0\0\0\0\0\0\0\0");
    CHECK(t.status == RLW_OK && t.value.as.image.size == 0);
    done(&t);
    FAILS("\6\3\0\0\0RGB\2\0\0\0\1\0\0\0\5\0\0\0abcdef", RLW_BAD_SIZE, 16, 5, 6);
    FAILS("\6\3\0\0\0RGB\2\0\0\0\1\0\0\0\6\0\0\0abcde", RLW_NEED_MORE, 20, 6, 5);
    FAILS("\6\3\0\0\0XYZ\2\0\0\0\1\0\0\0\6\0\0\0abcdef", RLW_BAD_MODE, 5, 3, 0);
    FAILS("\6\2\0\0\0L\0\2\0\0\0\1\0\0\0\2\0\0\0ab", RLW_BAD_MODE, 5, 2, 0);
    FAILS("\6\1\0\0\0L\xff\xff\xff\xff\xff\xff\xff\xff\1\0\0\0a", RLW_OVER_PIXELS, 6,
          UINT64_C(18446744065119617025), 1 << 26);
    FAILS("\6\1\0\0\0L\1\0\0\4\1\0\0\0\1\0\0\0a", RLW_OVER_PIXELS, 6, (1 << 26) + 1, 1 << 26);
}

#define KEY(c) "\1\0\0\0" c
static const char whole[] =
    "\1\0\0\0" KEY("a") "\2\1\0\0\0" KEY("b") "\x08\3\0\0\0\0\1\5\1" KEY("c") "\3\2\0\0\0\xc3\xa9"
    KEY("d") "\x0b\2\0\0\0" KEY("x") "\x09\1\0\0\0" "\0\0\0\0" "\x0a\1\2\3\4\5\6\7\x08"
    KEY("e") "\7" F4 "\1\0\0\0\1\0\0\0\4\0\0\0abcd"
    KEY("f") "\6\1\0\0\0L\2\0\0\0\1\0\0\0\2\0\0\0ab" KEY("g") "\4\0\0\0\0\0\0\xf0\x3f";

static rlw_status skim(const void *bytes, size_t size, const rlw_rlx_limits *limits,
                       rlw_rlx_reader *out) {
    uint8_t *input = exact(bytes, size);
    rlw_rlx_reader r;
    rlw_status status;
    rlw_rlx_reader_init(&r, input, size, limits);
    status = rlw_rlx_skim(&r);
    EQUAL(r.c.fault.status, status);
    CHECK(r.c.at >= input && r.c.at <= input + size);
    CHECK(r.c.fault.at >= input && r.c.fault.at <= input + size);
    if (status == RLW_OK) CHECK(r.c.at == r.c.end);
    r.c.at = r.c.end = r.c.fault.at = NULL; /* the input goes; its counts stay */
    if (out) *out = r;
    release(input);
    return status;
}

static void a_whole_message(void) {
    rlw_rlx_reader r;
    EQUAL(skim(whole, sizeof whole - 1, &defaults, &r), RLW_OK);
    EQUAL(r.items, 7 + 3 + 2);
    EQUAL(skim("\1\0\0\0", 4, &defaults, &r), RLW_OK); /* an empty dictionary */
    EQUAL(r.items, 0);
}

static void every_strict_prefix_fails_or_is_a_shorter_message(void) {
    static const size_t ends[] = {4, 14, 28, 40, 73, 106, 131};
    size_t size, end = 0;
    for (size = 0; size < sizeof whole - 1; size++) {
        rlw_status status = skim(whole, size, &defaults, NULL);
        while (end < sizeof ends / sizeof *ends && ends[end] < size) end++;
        if (end < sizeof ends / sizeof *ends && ends[end] == size)
            EQUAL(status, RLW_OK); /* between two entries; only the frame tells */
        else
            CHECK(status == RLW_NEED_MORE || status == RLW_BAD_COUNT);
    }
}

static void every_version_but_1(void) {
    static const uint32_t versions[] = {0, 2, 256, 0x01000000, UINT32_MAX};
    size_t i;
    for (i = 0; i < sizeof versions / sizeof *versions; i++) {
        uint8_t text[4];
        rlw_rlx_reader r;
        rlw_store_u32le(text, versions[i]);
        EQUAL(skim(text, 4, &defaults, &r), RLW_BAD_VERSION);
        EQUAL(r.c.fault.got, versions[i]);
        EQUAL(r.c.fault.allowed, 1);
    }
    EQUAL(skim("\1\0\0", 3, &defaults, NULL), RLW_NEED_MORE);
    EQUAL(skim(NULL, 0, &defaults, NULL), RLW_NEED_MORE);
}

#define SKIM(text) skim(text, sizeof text - 1, &defaults, NULL)

static void text_that_is_not_utf8(void) {
    EQUAL(SKIM("\1\0\0\0" KEY("\xff") "\1"), RLW_BAD_TEXT);
    EQUAL(SKIM("\1\0\0\0" KEY("a") "\3\2\0\0\0\xc0\x80"), RLW_BAD_TEXT);
    EQUAL(SKIM("\1\0\0\0" KEY("a") "\3\3\0\0\0\xed\xa0\x80"), RLW_BAD_TEXT);
    EQUAL(SKIM("\1\0\0\0" KEY("a") "\x0b\1\0\0\0" KEY("\x80") "\1"), RLW_BAD_TEXT);
    EQUAL(SKIM("\1\0\0\0" KEY("a") "\x08\1\0\0\0\3\1\0\0\0\xe9"), RLW_BAD_TEXT);
    EQUAL(SKIM("\1\0\0\0" KEY("a") "\3\2\0\0\0\xc3\xa9"), RLW_OK);
}

static void bytes_that_follow(void) {
    EQUAL(SKIM("\1\0\0\0" KEY("a") "\1" "x"), RLW_NEED_MORE); /* taken for a key */
    EQUAL(SKIM("\1\0\0\0" KEY("a") "\1" "\0\0\0\0" "\x0c"), RLW_BAD_TYPE);
    EQUAL(SKIM("\1\0\0\0" KEY("a")), RLW_NEED_MORE); /* a key without a value */
}

/* "a" -> list in list in list ..., `levels` of them, the innermost empty. */
static rlw_status nested(uint32_t levels, uint8_t type, const rlw_rlx_limits *limits) {
    size_t each = type == RLW_RLX_DICT ? 9 : 5, i;
    uint8_t *text = (uint8_t *)calloc(9 + levels * each, 1);
    uint8_t *p = text;
    rlw_status status;
    if (!text) exit(2);
    memcpy(p, "\1\0\0\0" KEY("a"), 9);
    p += 9;
    for (i = 0; i < levels; i++) {
        *p = type;
        rlw_store_u32le(p + 1, i + 1 < levels);
        p += 5;
        if (i + 1 < levels) p += each - 5; /* an empty key */
    }
    status = skim(text, (size_t)(p - text), limits, NULL);
    free(text);
    return status;
}

static void nesting_has_an_end(void) {
    rlw_rlx_limits limits = defaults;
    EQUAL(nested(64, RLW_RLX_LIST, &limits), RLW_OK);
    EQUAL(nested(65, RLW_RLX_LIST, &limits), RLW_OVER_DEPTH);
    EQUAL(nested(64, RLW_RLX_DICT, &limits), RLW_OK);
    EQUAL(nested(65, RLW_RLX_DICT, &limits), RLW_OVER_DEPTH);
    EQUAL(nested(100000, RLW_RLX_LIST, &limits), RLW_OVER_DEPTH);
    limits.depth = 1;
    EQUAL(nested(1, RLW_RLX_LIST, &limits), RLW_OK);
    EQUAL(nested(2, RLW_RLX_LIST, &limits), RLW_OVER_DEPTH);
    limits.depth = 500;
    EQUAL(nested(500, RLW_RLX_DICT, &limits), RLW_OK);
    EQUAL(nested(501, RLW_RLX_DICT, &limits), RLW_OVER_DEPTH);
}

static void items_are_counted_over_all_levels(void) {
    rlw_rlx_limits limits = defaults;
    rlw_rlx_reader r;
    limits.items = 12; /* as many as there are */
    EQUAL(skim(whole, sizeof whole - 1, &limits, &r), RLW_OK);
    limits.items = 11;
    EQUAL(skim(whole, sizeof whole - 1, &limits, &r), RLW_OVER_ITEMS);
    limits.items = 2;
    EQUAL(skim("\1\0\0\0" KEY("a") "\x08\2\0\0\0\1\1", 16, &limits, &r), RLW_OVER_ITEMS);
    EQUAL(r.c.fault.got, 3);
    EQUAL(r.c.fault.allowed, 2);
}

static void each_limit_is_met_exactly(void) {
    rlw_rlx_limits limits = defaults;
    reading t;
    limits.string = 5;
    t = read_limited("\3\5\0\0\0hello", 10, &limits);
    EQUAL(t.status, RLW_OK);
    done(&t);
    limits.string = 4;
    t = read_limited("\3\5\0\0\0hello", 10, &limits);
    EQUAL(t.status, RLW_OVER_STRING);
    EQUAL(t.fault_at, 1);
    done(&t);
    limits = defaults;
    limits.pixels = 6;
    t = read_limited("\6\1\0\0\0L\3\0\0\0\2\0\0\0\6\0\0\0abcdef", 24, &limits);
    EQUAL(t.status, RLW_OK);
    done(&t);
    limits.pixels = 5;
    t = read_limited("\6\1\0\0\0L\3\0\0\0\2\0\0\0\6\0\0\0abcdef", 24, &limits);
    EQUAL(t.status, RLW_OVER_PIXELS);
    done(&t);
    limits = defaults;
    limits.dims = 1;
    t = read_limited("\7\2\0\0\0u1\1\0\0\0\1\0\0\0\1\0\0\0a", 20, &limits);
    EQUAL(t.status, RLW_OK);
    done(&t);
    limits.dims = 0;
    t = read_limited("\7\2\0\0\0u1\1\0\0\0\1\0\0\0\1\0\0\0a", 20, &limits);
    EQUAL(t.status, RLW_OVER_DIMS);
    done(&t);
}

static size_t find(const void *bytes, size_t size, size_t least) {
    uint8_t *input = exact(bytes, size);
    size_t found = rlw_rlx_find_data(input, input, size, least, &defaults);
    release(input);
    return found;
}

#define HEAD "\1\0\0\0" KEY("r") "\4\0\0\0\0\0\0\xf0\x3f"
#define BIG "\7" F4 "\2\0\0\0\x10\0\0\0\x20\0\0\0\0\x08\0\0" /* 16 x 32 float32: 2048 bytes */

static void finding_data_that_has_not_come(void) {
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

static void finding_data_that_has_come(void) {
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

void rlx_read_suite(void) {
    RUN(numbers);
    RUN(nothing_and_booleans);
    RUN(a_boolean_is_0_or_1);
    RUN(types_above_11_are_unknown);
    RUN(texts);
    RUN(counts);
    RUN(arrays);
    RUN(arrays_that_lie);
    RUN(products_that_overflow);
    RUN(arrays_of_the_readme);
    RUN(images);
    RUN(a_whole_message);
    RUN(every_strict_prefix_fails_or_is_a_shorter_message);
    RUN(every_version_but_1);
    RUN(text_that_is_not_utf8);
    RUN(bytes_that_follow);
    RUN(nesting_has_an_end);
    RUN(items_are_counted_over_all_levels);
    RUN(each_limit_is_met_exactly);
    RUN(finding_data_that_has_not_come);
    RUN(finding_data_that_has_come);
}
