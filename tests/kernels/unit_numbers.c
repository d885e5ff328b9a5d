/* numbers.h and number_list.h: parts of what is read, and how what is written looks. That it is the
 * nearest number, both ways, fuzz_numbers.c compares with the C library. */
#include "harness.h"

#include <float.h>
#include <math.h>

static const uint8_t *bytes(const char *text) { return (const uint8_t *)text; }

/* How many bytes of the text are a number, or -1. */
static int scanned(const char *text, rlw_decimal *d) {
    size_t size = strlen(text);
    uint8_t *input = exact(text, size);
    const uint8_t *after = rlw_scan_decimal(input, input + size, d);
    int count = after ? (int)(after - input) : -1;
    if (after) CHECK(after > input && after <= input + size);
    release(input);
    return count;
}

CASE(parts_of_a_decimal) {
    rlw_decimal d;
    EQUAL(scanned("-12.5e-3", &d), 8);
    CHECK(d.negative && d.mantissa == 125 && d.exponent == -4 && !d.whole && !d.rough);
    EQUAL(d.size, 7);
    EQUAL(scanned("9999999999999999999", &d), 19);
    CHECK(!d.rough && d.whole && d.mantissa == UINT64_C(9999999999999999999));
    EQUAL(scanned("10000000000000000000", &d), 20);
    CHECK(d.rough && d.whole);
    EQUAL(scanned("0.0000000000000000000009", &d), 24);
    CHECK(!d.rough && d.mantissa == 9 && d.exponent == -22);
    EQUAL(scanned("-inf", &d), 4);
    CHECK(d.infinite && d.negative && !d.nan && !d.whole);
}

static int writes(const uint8_t *room, const uint8_t *end, const char *expected) {
    if ((size_t)(end - room) == strlen(expected) && !memcmp(room, expected, strlen(expected)))
        return 1;
    fprintf(stderr, "    got %.*s, expected %s\n", (int)(end - room), (const char *)room, expected);
    return 0;
}

#define FIXED(value, decimals, text) CHECK(writes(room, rlw_put_fixed(room, value, decimals), text))
#define SHORTEST(value, text) CHECK(writes(room, rlw_put_double(room, value), text))
#define SHORTEST_FLOAT(value, text) CHECK(writes(room, rlw_put_float(room, value), text))

CASE(fixed_decimals) {
    uint8_t room[RLW_FIXED_ROOM];
    FIXED(0.54, 4, "0.54");
    FIXED(500.0, 0, "500"); /* zeros before the point stay */
    FIXED(-0.001, 2, "-0");
    FIXED(0.0, 3, "0");
    FIXED(1844674407370955.1, 4, "1844674407370955"); /* near 2**64 when scaled */
    FIXED((double)INFINITY, 3, "inf");
    FIXED(-(double)INFINITY, 3, "-inf");
    FIXED((double)NAN, 3, "nan");
    CHECK(rlw_put_fixed(room, -DBL_MAX, RLW_DECIMALS_MOST) <= room + RLW_FIXED_ROOM);
}

CASE(shortest_doubles) {
    uint8_t room[RLW_FIXED_ROOM];
    SHORTEST(0.0, "0");
    SHORTEST(-0.0, "-0");
    SHORTEST(1.0, "1");
    SHORTEST(1e-4, "0.0001");
    SHORTEST(1e-5, "1e-05");
    SHORTEST(1e15, "1000000000000000");
    SHORTEST(9999999999999998.0, "9999999999999998");
    SHORTEST(1e16, "1e+16");
    SHORTEST(DBL_MAX, "1.7976931348623157e+308");
    SHORTEST(4.9406564584124654e-324, "5e-324");
    SHORTEST((double)NAN, "nan");
    SHORTEST((double)INFINITY, "inf");
    SHORTEST(-(double)INFINITY, "-inf");
}

CASE(shortest_floats) {
    uint8_t room[RLW_FIXED_ROOM];
    SHORTEST_FLOAT(0.1f, "0.1");
    SHORTEST_FLOAT(-0.0f, "-0");
    SHORTEST_FLOAT(0.0f, "0");
    SHORTEST_FLOAT(1.0f / 3, "0.33333334");
    SHORTEST_FLOAT(99.9999f, "99.9999");
    SHORTEST_FLOAT(1234.56f, "1234.56");
    SHORTEST_FLOAT(999999.0f, "999999");
    SHORTEST_FLOAT(16777216.0f, "16777216");
    SHORTEST_FLOAT(1e-5f, "1e-05");
    SHORTEST_FLOAT(FLT_MAX, "3.4028235e+38");
    SHORTEST_FLOAT(FLT_MIN, "1.1754944e-38");
    SHORTEST_FLOAT(ldexpf(1, -149), "1e-45");
    SHORTEST_FLOAT(-INFINITY, "-inf");
    SHORTEST_FLOAT(NAN, "nan");
}

CASE(integers) {
    uint8_t room[32];
    uint64_t natural = 0, power = 1;
    unsigned digits;
#define PARSE(text) rlw_parse_u64(bytes(text), bytes(text) + strlen(text), UINT64_MAX, &natural)
    CHECK(PARSE("18446744073709551615") && natural == UINT64_MAX);
    CHECK(!PARSE("18446744073709551616") && !PARSE("20000000000000000000"));
    CHECK(!PARSE("100000000000000000000"));
    CHECK(PARSE("00000000000000000000000000018446744073709551615") && natural == UINT64_MAX);
    CHECK(PARSE("12345678,") && natural == 12345678);
    CHECK(!PARSE("x") && !PARSE("-1"));
#undef PARSE
    CHECK(writes(room, rlw_put_i64(room, INT64_MIN), "-9223372036854775808"));
    CHECK(writes(room, rlw_put_i64(room, INT64_MAX), "9223372036854775807"));
    CHECK(writes(room, rlw_put_u64(room, UINT64_MAX), "18446744073709551615"));
    CHECK(writes(room, rlw_put_i64(room, -1), "-1"));
    for (digits = 1; digits <= 20; digits++) {
        EQUAL(rlw_count_digits(power), digits);
        EQUAL(rlw_count_digits(power - 1), digits > 1 ? digits - 1 : 1);
        power *= 10;
    }
}

CASE(products) {
    uint64_t high = 0;
    EQUAL(rlw_multiply(UINT64_MAX, UINT64_MAX, &high), 1);
    EQUAL(high, UINT64_MAX - 1);
    EQUAL(rlw_multiply(UINT64_C(0x123456789ABCDEF0), UINT64_C(0xFEDCBA9876543210), &high),
          UINT64_C(0x236D88FE5618CF00));
    EQUAL(high, UINT64_C(0x121FA00AD77D7422));
    EQUAL(rlw_multiply(0, 5, &high), 0);
    EQUAL(high, 0);
}

/* ---- lists ---- */

static rlw_status list_of(const char *text, rlw_number kind, void *out, size_t count, size_t *at) {
    size_t size = strlen(text);
    uint8_t *input = exact(text, size);
    rlw_cursor c;
    rlw_status status;
    rlw_cursor_init(&c, input, size);
    status = rlw_read_numbers(&c, kind, out, count);
    *at = (size_t)(c.fault.at - input);
    EQUAL(c.fault.status, status);
    if (status == RLW_OK) CHECK(c.at == c.end);
    release(input);
    return status;
}

CASE(lists_are_read) {
    double reals[4];
    int8_t small[4];
    uint8_t flags[4];
    size_t at;
    EQUAL(rlw_count_numbers(bytes(""), 0), 0);
    EQUAL(rlw_count_numbers(bytes("5"), 1), 1);
    EQUAL(rlw_count_numbers(bytes("5,,"), 3), 3);
    EQUAL(list_of("", RLW_FLOAT64, reals, 0, &at), RLW_OK);
    EQUAL(list_of("1,-2.5,inf", RLW_FLOAT64, reals, 3, &at), RLW_OK);
    CHECK(reals[0] == 1 && reals[1] == -2.5 && isinf(reals[2]));
    EQUAL(list_of("1,2", RLW_FLOAT64, reals, 1, &at), RLW_TRAILING);
    EQUAL(at, 1);
    EQUAL(list_of("1,2", RLW_FLOAT64, reals, 3, &at), RLW_NEED_MORE);
    EQUAL(at, 3);
    EQUAL(list_of("1,,2", RLW_FLOAT64, reals, 3, &at), RLW_BAD_NUMBER);
    EQUAL(at, 2);
    EQUAL(list_of("0,128", RLW_INT8, small, 2, &at), RLW_BAD_INTEGER);
    EQUAL(at, 2);
    EQUAL(list_of("true,false,true", RLW_BOOL, flags, 3, &at), RLW_OK);
    CHECK(flags[0] == 1 && flags[1] == 0 && flags[2] == 1);
}

CASE(lists_are_written) {
    static const float reals[] = {0.5f, -1.25f, 1e-9f};
    static const int16_t wholes[] = {INT16_MIN, 0, INT16_MAX};
    static const uint8_t flags[] = {1, 0};
    rlw_writer w;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_put_numbers(&w, RLW_FLOAT32, reals, 0, -1), RLW_OK);
    EQUAL(rlw_written(&w), 0);
    EQUAL(rlw_put_numbers(&w, RLW_FLOAT32, reals, 3, -1), RLW_OK);
    EQUAL(rlw_put(&w, ";", 1), RLW_OK);
    EQUAL(rlw_put_numbers(&w, RLW_FLOAT32, reals, 3, 1), RLW_OK);
    EQUAL(rlw_put(&w, ";", 1), RLW_OK);
    EQUAL(rlw_put_numbers(&w, RLW_INT16, wholes, 3, 2), RLW_OK);
    EQUAL(rlw_put(&w, ";", 1), RLW_OK);
    EQUAL(rlw_put_numbers(&w, RLW_BOOL, flags, 2, 2), RLW_OK);
    CHECK(writes(w.start, w.at,
                 "0.5,-1.25,1e-09;0.5,-1.2,0;-32768,0,32767;true,false"));
    rlw_writer_free(&w);
}
