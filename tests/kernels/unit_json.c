/* json.h and json_array.h: what is read, where it fails, what is written; arrays of all kinds. */
#include "harness.h"

#include <math.h>

static const rlw_json_limits limits = RLW_JSON_DEFAULT_LIMITS;

static uint8_t *input; /* of the last reader */

static void begin(rlw_json_reader *r, const char *text) {
    if (input) release(input);
    input = exact(text, strlen(text));
    rlw_json_reader_init(r, input, strlen(text), &limits);
}

/* Reads a whole text; where it fails, *at and *got tell how. */
static rlw_status whole(const char *text, size_t *at, uint64_t *got) {
    rlw_json_reader r;
    rlw_status status;
    begin(&r, text);
    status = rlw_json_skip(&r);
    if (status == RLW_OK) status = rlw_json_end(&r);
    *at = (size_t)(r.c.fault.at - input);
    *got = r.c.fault.got;
    return status;
}

static void what_is_wrong_and_where(void) {
    static const struct {
        const char *text;
        rlw_status status;
        size_t at;
    } cases[] = {
        {"", RLW_NEED_MORE, 0},
        {" \n", RLW_NEED_MORE, 2},
        {"[1,", RLW_NEED_MORE, 3},
        {"[1", RLW_NEED_MORE, 2},
        {"{\"a\"", RLW_NEED_MORE, 4},
        {"\"abc", RLW_NEED_MORE, 0},
        {"tru", RLW_NEED_MORE, 0},
        {"-", RLW_NEED_MORE, 1},
        {"1.", RLW_NEED_MORE, 2},
        {"1e", RLW_NEED_MORE, 2},
        {"1.5e-", RLW_NEED_MORE, 5},
        {"\"\\", RLW_NEED_MORE, 1},
        {"\"\\u12", RLW_NEED_MORE, 1},
        {"\"\\ud834\\u", RLW_NEED_MORE, 1},
        {"[1 2]", RLW_BAD_JSON, 3},
        {"[1,]", RLW_BAD_JSON, 3},
        {"[,1]", RLW_BAD_JSON, 1},
        {"[1}", RLW_BAD_JSON, 2},
        {"{1:2}", RLW_BAD_JSON, 1},
        {"{\"a\" 1}", RLW_BAD_JSON, 5},
        {"{\"a\":1,}", RLW_BAD_JSON, 7},
        {"trub", RLW_BAD_JSON, 3},
        {"nan", RLW_BAD_JSON, 1},
        {"'a'", RLW_BAD_JSON, 0},
        {"+1", RLW_BAD_JSON, 0},
        {".5", RLW_BAD_JSON, 0},
        {"01", RLW_BAD_NUMBER, 0},
        {"-01", RLW_BAD_NUMBER, 0},
        {"[-a]", RLW_BAD_NUMBER, 1},
        {"[1.]", RLW_BAD_NUMBER, 1},
        {"[1.e5]", RLW_BAD_NUMBER, 1},
        {"[1e+]", RLW_BAD_NUMBER, 1},
        {"[1e999]", RLW_BAD_RANGE, 1},
        {"\"a\nb\"", RLW_BAD_CHARACTER, 2},
        {"\"\\x\"", RLW_BAD_ESCAPE, 1},
        {"\"\\u12g4\"", RLW_BAD_ESCAPE, 1},
        {"\"\\ud834x\"", RLW_BAD_SURROGATE, 1},
        {"\"\\ud834\\n     \"", RLW_BAD_SURROGATE, 1},
        {"\"\\ud834\\ud834\"", RLW_BAD_SURROGATE, 1},
        {"\"\\udd1e\"", RLW_BAD_SURROGATE, 1},
        {"\"12345678\xFF\"", RLW_BAD_TEXT, 9},
        {"\"\xED\xA0\x80\"", RLW_BAD_TEXT, 1},
        {"1 2", RLW_TRAILING, 2},
        {"[]]", RLW_TRAILING, 2},
        {"\xEF\xBB\xBF[]", RLW_BAD_JSON, 0},
    };
    size_t i, at;
    uint64_t got;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        EQUAL(whole(cases[i].text, &at, &got), cases[i].status);
        if (!harness_check(at == cases[i].at, __FILE__, __LINE__, cases[i].text))
            EQUAL(at, cases[i].at);
    }
    EQUAL(whole("[1;2]", &at, &got), RLW_BAD_JSON);
    EQUAL(got, ';');
    EQUAL(whole("[1 2", &at, &got), RLW_BAD_JSON);
    EQUAL(whole(" [ 1 , { \"a\" : [ ] , \"b\" : { } } , null ] ", &at, &got), RLW_OK);
}

static void each_kind_of_value(void) {
    static const struct {
        const char *text;
        rlw_json_kind kind;
    } cases[] = {
        {"null", RLW_JSON_NULL},       {"true", RLW_JSON_TRUE},
        {"false", RLW_JSON_FALSE},     {"0", RLW_JSON_INTEGER},
        {"-0", RLW_JSON_INTEGER},      {"9223372036854775807", RLW_JSON_INTEGER},
        {"1.0", RLW_JSON_REAL},        {"-9223372036854775808", RLW_JSON_INTEGER},
        {"1e2", RLW_JSON_REAL},        {"9223372036854775808", RLW_JSON_NATURAL},
        {"-0.0", RLW_JSON_REAL},       {"18446744073709551615", RLW_JSON_NATURAL},
        {"\"\"", RLW_JSON_STRING},     {"18446744073709551616", RLW_JSON_BIG},
        {"[]", RLW_JSON_LIST},         {"-9223372036854775809", RLW_JSON_BIG},
        {"{}", RLW_JSON_OBJECT},       {"123456789012345678901234567890", RLW_JSON_BIG},
    };
    rlw_json_reader r;
    rlw_json_value v;
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(&r, cases[i].text);
        EQUAL(rlw_json_read(&r, &v), RLW_OK);
        EQUAL(v.kind, cases[i].kind);
        EQUAL(rlw_json_end(&r), RLW_OK);
        if (v.kind == RLW_JSON_BIG) EQUAL(v.text.size, strlen(cases[i].text));
    }
    begin(&r, "-9223372036854775808");
    EQUAL(rlw_json_read(&r, &v), RLW_OK);
    CHECK(v.integer == INT64_MIN);
    begin(&r, "18446744073709551615");
    EQUAL(rlw_json_read(&r, &v), RLW_OK);
    EQUAL(v.natural, UINT64_MAX);
    begin(&r, "-0.0");
    EQUAL(rlw_json_read(&r, &v), RLW_OK);
    CHECK(v.real == 0 && signbit(v.real));
    begin(&r, "1e-400");
    EQUAL(rlw_json_read(&r, &v), RLW_OK);
    CHECK(v.real == 0);
}

static void limits_hold(void) {
    rlw_json_reader r;
    rlw_json_value v;
    begin(&r, "[[[1]]]");
    r.limits.depth = 2;
    EQUAL(rlw_json_skip(&r), RLW_OVER_DEPTH);
    EQUAL(r.c.fault.at - input, 2);
    EQUAL(r.c.fault.got, 3);
    begin(&r, "[[[]],[[]],{}]"); /* beside each other, not inside */
    r.limits.depth = 3;
    EQUAL(rlw_json_skip(&r), RLW_OK);
    EQUAL(r.depth, 0);
    begin(&r, "[[[]]]"); /* an empty one counts too */
    r.limits.depth = 2;
    EQUAL(rlw_json_skip(&r), RLW_OVER_DEPTH);
    begin(&r, "[1,2,{\"a\":3}]");
    r.limits.items = 4;
    EQUAL(rlw_json_skip(&r), RLW_OK);
    EQUAL(r.items, 4);
    begin(&r, "[1,2,{\"a\":3}]");
    r.limits.items = 3;
    EQUAL(rlw_json_skip(&r), RLW_OVER_ITEMS);
    EQUAL(r.c.fault.at - input, 5);
    begin(&r, "\"four\"");
    r.limits.string = 4;
    EQUAL(rlw_json_read(&r, &v), RLW_OK);
    begin(&r, "\"fives\"");
    r.limits.string = 4;
    EQUAL(rlw_json_read(&r, &v), RLW_OVER_STRING);
    EQUAL(r.c.fault.got, 5);
}

static void deep_as_it_may_be(void) {
    static const rlw_json_limits unlimited = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    size_t deep = RLW_JSON_DEPTH_MOST + 1, i;
    char *text = (char *)malloc(2 * deep + 1);
    rlw_json_reader r;
    if (!text) exit(2);
    for (i = 0; i < deep; i++) {
        text[i] = '[';
        text[2 * deep - 1 - i] = ']';
    }
    text[2 * deep] = 0;
    begin(&r, text);
    rlw_json_reader_init(&r, input, 2 * deep, &unlimited);
    EQUAL(rlw_json_skip(&r), RLW_OVER_DEPTH);
    rlw_json_reader_init(&r, input + 1, 2 * deep - 2,
                         &unlimited);
    EQUAL(rlw_json_skip(&r), RLW_OK);
    EQUAL(rlw_json_end(&r), RLW_OK);
    free(text);
}

static void an_object_pulled(void) {
    rlw_json_reader r;
    rlw_json_value v;
    rlw_json_text name;
    int more;
    uint8_t plain[16];
    begin(&r, " {\"\\u0061\" :[7], \"w\xC3\xB6\":\"x\"} ");
    EQUAL(rlw_json_read(&r, &v), RLW_OK);
    CHECK(v.kind == RLW_JSON_OBJECT && !v.empty);
    EQUAL(v.at - input, 1);
    EQUAL(rlw_json_name(&r, &name), RLW_OK);
    CHECK(name.escaped && name.ascii && rlw_json_unescape(&name, plain) == 1 && plain[0] == 'a');
    EQUAL(rlw_json_read(&r, &v), RLW_OK);
    CHECK(v.kind == RLW_JSON_LIST && !v.empty);
    EQUAL(rlw_json_read(&r, &v), RLW_OK);
    CHECK(v.kind == RLW_JSON_INTEGER && v.integer == 7);
    EQUAL(rlw_json_next(&r, ']', &more), RLW_OK);
    CHECK(!more && r.depth == 1);
    EQUAL(rlw_json_next(&r, '}', &more), RLW_OK);
    CHECK(more);
    EQUAL(rlw_json_name(&r, &name), RLW_OK);
    CHECK(!name.escaped && !name.ascii && RLW_JSON_IS(name, "w\xC3\xB6"));
    EQUAL(rlw_json_read(&r, &v), RLW_OK);
    CHECK(v.kind == RLW_JSON_STRING && RLW_JSON_IS(v.text, "x"));
    EQUAL(rlw_json_next(&r, '}', &more), RLW_OK);
    CHECK(!more && r.depth == 0);
    EQUAL(rlw_json_end(&r), RLW_OK);
}

static void escapes_read(void) {
    static const char meant[] = "\"\\/\b\f\n\r\tA\xC3\xA9\xE2\x82\xAC\xF0\x9D\x84\x9E\x00!";
    rlw_json_reader r;
    rlw_json_value v;
    uint8_t *plain;
    begin(&r, "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\uD834\\udd1e\\u0000!\"");
    EQUAL(rlw_json_read(&r, &v), RLW_OK);
    plain = exact(v.text.data, v.text.size);
    EQUAL(rlw_json_unescape(&v.text, plain), sizeof meant - 1);
    CHECK(memcmp(plain, meant, sizeof meant - 1) == 0);
    release(plain);
}

/* What the writer holds is this; it is emptied. */
static int wrote(rlw_writer *w, const char *text) {
    int same = rlw_written(w) == strlen(text) && memcmp(w->start, text, strlen(text)) == 0;
    w->at = w->start;
    return same;
}

static void strings_written(void) {
    rlw_writer w;
    size_t size, at;
    char text[40], expected[60];
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_json_put_string(&w, (const uint8_t *)"", 0), RLW_OK);
    CHECK(wrote(&w, "\"\""));
    EQUAL(rlw_json_put_string(&w, (const uint8_t *)"\"\\/\b\f\n\r\t\x00\x1F\x7F\xC3\xA9", 13),
          RLW_OK);
    CHECK(wrote(&w, "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7F\xC3\xA9\""));
    rlw_writer_free(&w);
    for (size = 1; size < 36; size++)
        for (at = 0; at < size; at++) { /* one escape at every place */
            uint8_t *room = exact("", 0), *plain;
            memset(text, 'x', size);
            text[at] = '\n';
            memset(expected, 'x', size + 3);
            expected[0] = expected[size + 2] = '"';
            memcpy(expected + 1 + at, "\\n", 2);
            expected[size + 3] = 0;
            plain = exact(text, size);
            rlw_writer_init(&w, room, 0);
            EQUAL(rlw_json_put_string(&w, plain, size), RLW_OK);
            CHECK(wrote(&w, expected));
            rlw_writer_free(&w);
            release(plain);
            release(room);
        }
}

static void numbers_written(void) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.0, "0.0"},       {-0.0, "-0.0"},   {1.0, "1.0"},     {-3.0, "-3.0"},
        {0.1, "0.1"},       {1e15, "1000000000000000.0"},       {1e16, "1e+16"},
        {1e-4, "0.0001"},   {1e-5, "1e-05"},  {1e300, "1e+300"}, {1479493678.1937323, NULL},
        {5e-324, "5e-324"}, {9007199254740993.0, "9007199254740992.0"},
        {-1e16, "-1e+16"},  {123456.75, "123456.75"},
    };
    uint8_t room[RLW_JSON_NUMBER_ROOM];
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i].text ? cases[i].text : "1479493678.1937323";
        uint8_t rounded = (uint8_t)(i & 1); /* the text is the same either way */
        uint8_t *end = rlw_json_put_double(room, cases[i].value, &rounded);
        CHECK((size_t)(end - room) == strlen(text) && memcmp(room, text, strlen(text)) == 0);
    }
    CHECK(rlw_json_put_float(room, 16777216.0f) - room == 10);
    CHECK(memcmp(room, "16777216.0", 10) == 0);
    CHECK(rlw_json_put_float(room, 0.1f) - room == 3 && memcmp(room, "0.1", 3) == 0);
}

static rlw_status measured(const char *text, rlw_json_shape *s, size_t *at) {
    rlw_json_reader r;
    rlw_status status;
    begin(&r, text);
    status = rlw_json_measure(&r, 3, 0, s);
    *at = (size_t)(r.c.fault.at - input);
    CHECK(r.c.at == input);
    return status;
}

static void shapes(void) {
    static const struct {
        const char *text;
        rlw_status status;
        unsigned dims;
        int64_t shape[3];
        size_t at;
    } cases[] = {
        {"[]", RLW_OK, 1, {0, 0, 0}, 0},
        {"[1,2,3]", RLW_OK, 1, {3, 0, 0}, 0},
        {" [ [ 1 , 2 ] , [ 3 , 4 ] ] ", RLW_OK, 2, {2, 2, 0}, 0},
        {"[[[1],[2]]]", RLW_OK, 3, {1, 2, 1}, 0},
        {"[[],[],[]]", RLW_OK, 2, {3, 0, 0}, 0},
        {"[[[]],[[]]]", RLW_OK, 3, {2, 1, 0}, 0},
        {"[[[[1]]]]", RLW_OVER_DIMS, 0, {0, 0, 0}, 3},
        {"[[1,2],[3]]", RLW_BAD_RAGGED, 0, {0, 0, 0}, 9},
        {"[[1],2]", RLW_BAD_RAGGED, 0, {0, 0, 0}, 5},
        {"[[1],[]]", RLW_BAD_RAGGED, 0, {0, 0, 0}, 6},
        {"[[1],[[2]]]", RLW_BAD_RAGGED, 0, {0, 0, 0}, 6},
        {"[[[1]],[2]]", RLW_BAD_RAGGED, 0, {0, 0, 0}, 8},
        {"[[[]],[]]", RLW_BAD_RAGGED, 0, {0, 0, 0}, 7},
        {"[\"]\"]", RLW_BAD_NUMBER, 0, {0, 0, 0}, 1},
        {"[{}]", RLW_BAD_NUMBER, 0, {0, 0, 0}, 1},
        {"[true]", RLW_BAD_NUMBER, 0, {0, 0, 0}, 1},
        {"5", RLW_BAD_JSON, 0, {0, 0, 0}, 0},
        {"", RLW_NEED_MORE, 0, {0, 0, 0}, 0},
        {"[", RLW_NEED_MORE, 0, {0, 0, 0}, 1},
        {"[1", RLW_NEED_MORE, 0, {0, 0, 0}, 2},
        {"[[1]", RLW_NEED_MORE, 0, {0, 0, 0}, 4},
        {"[[1],", RLW_NEED_MORE, 0, {0, 0, 0}, 5},
        {"[[1]x", RLW_BAD_JSON, 0, {0, 0, 0}, 4},
    };
    rlw_json_shape s;
    size_t i, at, k;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        EQUAL(measured(cases[i].text, &s, &at), cases[i].status);
        if (cases[i].status != RLW_OK) {
            if (!harness_check(at == cases[i].at, __FILE__, __LINE__, cases[i].text))
                EQUAL(at, cases[i].at);
            continue;
        }
        EQUAL(s.dims, cases[i].dims);
        for (k = 0; k < s.dims; k++) CHECK(s.shape[k] == cases[i].shape[k]);
    }
}

/* Fills an array, which ends where its memory ends, of any kind or of one. */
static rlw_status filled(const char *text, rlw_json_wanted wanted, rlw_number *kind,
                         uint8_t **numbers, size_t *count) {
    rlw_json_reader r;
    rlw_json_shape s;
    rlw_status status;
    uint8_t *zeros;
    begin(&r, text);
    *numbers = exact("", 0);
    *count = 0;
    if ((status = rlw_json_measure(&r, 32, 1, &s)) != RLW_OK) return status;
    release(*numbers);
    zeros = (uint8_t *)calloc(s.count + 1, 8);
    if (!zeros) exit(2);
    *numbers = exact(zeros, s.count * (wanted == RLW_JSON_ANY ? 8 : rlw_number_size(*kind)));
    free(zeros);
    *count = s.count;
    status = rlw_json_fill(&r, &s, wanted, kind, *numbers);
    if (status == RLW_OK) CHECK(r.c.at == r.c.end);
    return status;
}

static void numbers_of_any_kind(void) {
    static const struct {
        const char *text;
        rlw_status status;
        rlw_number kind;
        double last;
    } cases[] = {
        {"[1,-2]", RLW_OK, RLW_INT64, -2},
        {"[-0]", RLW_OK, RLW_INT64, 0},
        {"[1,2.5]", RLW_OK, RLW_FLOAT64, 2.5},
        {"[2.5,1]", RLW_OK, RLW_FLOAT64, 1},
        {"[1,1e2]", RLW_OK, RLW_FLOAT64, 100},
        {"[1,9223372036854775808]", RLW_OK, RLW_UINT64, 9223372036854775808.0},
        {"[9223372036854775808,1]", RLW_OK, RLW_UINT64, 1},
        {"[-1,9223372036854775808]", RLW_OK, RLW_FLOAT64, 9223372036854775808.0},
        {"[9223372036854775808,-1]", RLW_OK, RLW_FLOAT64, -1},
        {"[9223372036854775808,0.5]", RLW_OK, RLW_FLOAT64, 0.5},
        {"[[1,2],[3,4.5]]", RLW_OK, RLW_FLOAT64, 4.5},
        {"[18446744073709551616]", RLW_BAD_RANGE, RLW_INT64, 0},
        {"[0.5,18446744073709551616]", RLW_BAD_RANGE, RLW_INT64, 0},
        {"[0.5,-9223372036854775809]", RLW_BAD_RANGE, RLW_INT64, 0},
        {"[1e400]", RLW_BAD_RANGE, RLW_INT64, 0},
        {"[1,-]", RLW_BAD_NUMBER, RLW_INT64, 0},
        {"[1,true]", RLW_BAD_JSON, RLW_INT64, 0},
        {"[1,]", RLW_BAD_JSON, RLW_INT64, 0},
        {"[1,\"]\"]", RLW_BAD_JSON, RLW_INT64, 0},
        {"[1,[2]]", RLW_BAD_RAGGED, RLW_INT64, 0},
        {"[1 2,3]", RLW_BAD_JSON, RLW_INT64, 0},
        {"[[1,[2],3]]", RLW_BAD_RAGGED, RLW_INT64, 0},
    };
    size_t i, count;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        rlw_number kind = RLW_BOOL;
        uint8_t *numbers;
        rlw_status status = filled(cases[i].text, RLW_JSON_ANY, &kind, &numbers, &count);
        if (!harness_check(status == cases[i].status, __FILE__, __LINE__, cases[i].text))
            EQUAL(status, cases[i].status);
        if (status == RLW_OK) {
            int64_t integer;
            uint64_t natural;
            double real;
            memcpy(&integer, numbers + 8 * (count - 1), 8);
            memcpy(&natural, numbers + 8 * (count - 1), 8);
            memcpy(&real, numbers + 8 * (count - 1), 8);
            EQUAL(kind, cases[i].kind);
            CHECK((kind == RLW_INT64    ? (double)integer
                   : kind == RLW_UINT64 ? (double)natural
                                        : real) == cases[i].last);
        }
        release(numbers);
    }
}

static void numbers_of_a_given_kind(void) {
    static const struct {
        const char *text;
        rlw_number kind;
        rlw_status status;
    } cases[] = {
        {"[-128,127]", RLW_INT8, RLW_OK},
        {"[-129]", RLW_INT8, RLW_BAD_RANGE},
        {"[128]", RLW_INT8, RLW_BAD_RANGE},
        {"[32767]", RLW_INT16, RLW_OK},
        {"[-2147483648]", RLW_INT32, RLW_OK},
        {"[-2147483649]", RLW_INT32, RLW_BAD_RANGE},
        {"[9223372036854775807]", RLW_INT64, RLW_OK},
        {"[9223372036854775808]", RLW_INT64, RLW_BAD_RANGE},
        {"[255,0]", RLW_UINT8, RLW_OK},
        {"[256]", RLW_UINT8, RLW_BAD_RANGE},
        {"[-1]", RLW_UINT8, RLW_BAD_RANGE},
        {"[65535]", RLW_UINT16, RLW_OK},
        {"[4294967295]", RLW_UINT32, RLW_OK},
        {"[18446744073709551615]", RLW_UINT64, RLW_OK},
        {"[18446744073709551616]", RLW_UINT64, RLW_BAD_RANGE},
        {"[1.0]", RLW_INT32, RLW_BAD_INTEGER},
        {"[true]", RLW_INT32, RLW_BAD_JSON},
        {"[true,false]", RLW_BOOL, RLW_OK},
        {"[1]", RLW_BOOL, RLW_BAD_WORD},
        {"[trux]", RLW_BOOL, RLW_BAD_JSON},
        {"[1,2.5]", RLW_FLOAT32, RLW_OK},
        {"[1e39]", RLW_FLOAT32, RLW_BAD_RANGE},
        {"[65504]", RLW_FLOAT16, RLW_OK},
        {"[65520]", RLW_FLOAT16, RLW_BAD_RANGE},
        {"[123456789012345678901234567890]", RLW_FLOAT64, RLW_OK},
        {"[1e400]", RLW_FLOAT64, RLW_BAD_RANGE},
        {"[01]", RLW_FLOAT64, RLW_BAD_NUMBER},
    };
    size_t i, count;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        rlw_number kind = cases[i].kind;
        uint8_t *numbers;
        rlw_status status = filled(cases[i].text, RLW_JSON_GIVEN, &kind, &numbers, &count);
        if (!harness_check(status == cases[i].status, __FILE__, __LINE__, cases[i].text))
            EQUAL(status, cases[i].status);
        release(numbers);
    }
}

static void arrays_written(void) {
    static const int16_t matrix[] = {1, 2, 3, 4, 5, 6};
    static const double odd[] = {1, HUGE_VAL, -HUGE_VAL, 0.1};
    static const int64_t shape[] = {2, 3}, rows[] = {6, 2}, turned_shape[] = {3, 2};
    static const int64_t turned[] = {2, 6}, backwards[] = {-6, -2}, none[] = {0, 3}, hollow[] = {2, 0};
    static const int64_t cube[] = {2, 0, 3}, strides[] = {8, 8, 8}, four[] = {4}, byte[] = {1};
    static const uint8_t flags[] = {1, 0};
    double nan_value = HUGE_VAL - HUGE_VAL;
    rlw_writer w;
    size_t at;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_json_put_array(&w, RLW_INT16, matrix, 2, shape, rows, RLW_JSON_REFUSE, &at), RLW_OK);
    CHECK(wrote(&w, "[[1,2,3],[4,5,6]]"));
    EQUAL(rlw_json_put_array(&w, RLW_INT16, matrix, 2, turned_shape, turned, RLW_JSON_REFUSE, &at),
          RLW_OK);
    CHECK(wrote(&w, "[[1,4],[2,5],[3,6]]"));
    EQUAL(rlw_json_put_array(&w, RLW_INT16, matrix + 5, 2, shape, backwards, RLW_JSON_REFUSE, &at),
          RLW_OK);
    CHECK(wrote(&w, "[[6,5,4],[3,2,1]]"));
    EQUAL(rlw_json_put_array(&w, RLW_INT16, matrix, 2, none, rows, RLW_JSON_REFUSE, &at), RLW_OK);
    CHECK(wrote(&w, "[]"));
    EQUAL(rlw_json_put_array(&w, RLW_INT16, matrix, 2, hollow, rows, RLW_JSON_REFUSE, &at), RLW_OK);
    CHECK(wrote(&w, "[[],[]]"));
    EQUAL(rlw_json_put_array(&w, RLW_INT16, matrix, 3, cube, strides, RLW_JSON_REFUSE, &at), RLW_OK);
    CHECK(wrote(&w, "[[],[]]"));
    EQUAL(rlw_json_put_array(&w, RLW_INT16, matrix + 2, 0, NULL, NULL, RLW_JSON_REFUSE, &at), RLW_OK);
    CHECK(wrote(&w, "3"));
    EQUAL(rlw_json_put_array(&w, RLW_BOOL, flags, 1, hollow, byte, RLW_JSON_REFUSE, &at), RLW_OK);
    CHECK(wrote(&w, "[true,false]"));
    EQUAL(rlw_json_put_array(&w, RLW_FLOAT64, odd, 1, four, strides, RLW_JSON_REFUSE, &at),
          RLW_NOT_FINITE);
    EQUAL(at, 1);
    w.at = w.start;
    EQUAL(rlw_json_put_array(&w, RLW_FLOAT64, odd, 1, four, strides, RLW_JSON_AS_NULL, &at), RLW_OK);
    CHECK(wrote(&w, "[1.0,null,null,0.1]"));
    EQUAL(rlw_json_put_array(&w, RLW_FLOAT64, odd, 1, four, strides, RLW_JSON_AS_WORDS, &at), RLW_OK);
    CHECK(wrote(&w, "[1.0,Infinity,-Infinity,0.1]"));
    EQUAL(rlw_json_put_array(&w, RLW_FLOAT64, &nan_value, 0, NULL, NULL, RLW_JSON_AS_WORDS, &at),
          RLW_OK);
    CHECK(wrote(&w, "NaN"));
    EQUAL(rlw_json_put_array(&w, RLW_FLOAT64, &nan_value, 0, NULL, NULL, RLW_JSON_REFUSE, &at),
          RLW_NOT_FINITE);
    rlw_writer_free(&w);
}

void json_suite(void) {
    RUN(what_is_wrong_and_where);
    RUN(each_kind_of_value);
    RUN(limits_hold);
    RUN(deep_as_it_may_be);
    RUN(an_object_pulled);
    RUN(escapes_read);
    RUN(strings_written);
    RUN(numbers_written);
    RUN(shapes);
    RUN(numbers_of_any_kind);
    RUN(numbers_of_a_given_kind);
    RUN(arrays_written);
    if (input) release(input);
    input = NULL;
}
