/* numbers.h and number_list.h: what is read, how it rounds, what is written; and refusals. */
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

static uint64_t bits_of(const char *text) { /* of the whole text */
    size_t size = strlen(text);
    uint8_t *input = exact(text, size);
    double value = 0;
    CHECK(rlw_parse_double(input, input + size, &value) == input + size);
    release(input);
    return rlw_double_bits(value);
}

static float float_of(const char *text) {
    rlw_decimal d;
    CHECK(scanned(text, &d) == (int)strlen(text));
    d.digits = bytes(text) + (*text == '-'); /* scanned() had a copy */
    return rlw_decimal_float(&d);
}

static void parts_of_a_decimal(void) {
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

static void doubles_are_the_nearest(void) {
    EQUAL(bits_of("0"), 0);
    EQUAL(bits_of("-0"), UINT64_C(1) << 63);
    EQUAL(bits_of("-0.0e5"), UINT64_C(1) << 63);
    EQUAL(bits_of("1"), UINT64_C(0x3FF0000000000000));
    EQUAL(bits_of("0.1"), UINT64_C(0x3FB999999999999A));
    EQUAL(bits_of("1e22"), UINT64_C(0x4480F0CF064DD592));
    EQUAL(bits_of("1e23"), UINT64_C(0x44B52D02C7E14AF6));
    EQUAL(bits_of("9007199254740992"), UINT64_C(0x4340000000000000));
    EQUAL(bits_of("9007199254740993"), UINT64_C(0x4340000000000000)); /* a tie: to even */
    EQUAL(bits_of("9007199254740993.00000000000000000000000000001"), UINT64_C(0x4340000000000001));
    EQUAL(bits_of("1.7976931348623157e308"), UINT64_C(0x7FEFFFFFFFFFFFFF));
    EQUAL(bits_of("1.7976931348623159e308"), UINT64_C(0x7FF0000000000000));
    EQUAL(bits_of("-1e999999999"), UINT64_C(0xFFF0000000000000));
    EQUAL(bits_of("0e999999999"), 0);
    EQUAL(bits_of("1e-999999999"), 0);
    EQUAL(bits_of("2.2250738585072014e-308"), UINT64_C(0x0010000000000000));
    EQUAL(bits_of("2.2250738585072011e-308"), UINT64_C(0x000FFFFFFFFFFFFF));
    EQUAL(bits_of("4.9406564584124654e-324"), 1);
    EQUAL(bits_of("2.4703282292062327e-324"), 0);
    EQUAL(bits_of("2.4703282292062328e-324"), 1);
    EQUAL(bits_of("inf"), UINT64_C(0x7FF0000000000000));
    EQUAL(bits_of("-Infinity"), UINT64_C(0xFFF0000000000000));
    EQUAL(bits_of("nan"), UINT64_C(0x7FF8000000000000));
}

static void floats_are_rounded_once(void) {
    CHECK(float_of("16777217") == 16777216.0f); /* a tie */
    CHECK(float_of("16777219") == 16777220.0f);
    CHECK(float_of("16777217.0000000000000000000001") == 16777218.0f); /* as a double: a tie */
    CHECK(float_of("-16777216.9999999999999999999999") == -16777216.0f);
    CHECK(float_of("1.40129846e-45") == ldexpf(1, -149));
    CHECK(float_of("7.006492321624085354e-46") == 0.0f); /* half of it: a tie */
    CHECK(float_of("7.006492321624085355e-46") == ldexpf(1, -149));
    CHECK(float_of("1.1754943508222875e-38") == FLT_MIN);
    CHECK(float_of("3.4028235e38") == FLT_MAX);
    CHECK(float_of("340282356779733661637539395458142568448") > FLT_MAX); /* a tie */
    CHECK(float_of("340282356779733661637539395458142568447") == FLT_MAX);
    CHECK(float_of("-1e300") < -FLT_MAX);
    CHECK(isnan(float_of("nan")));
    CHECK(signbit(float_of("-0")));
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

static void fixed_decimals(void) {
    uint8_t room[RLW_FIXED_ROOM];
    FIXED(0.54, 4, "0.54");
    FIXED(5.0, 4, "5");
    FIXED(500.0, 0, "500"); /* zeros before the point stay */
    FIXED(0.5, 0, "0");     /* ties, to even */
    FIXED(1.5, 0, "2");
    FIXED(2.5, 0, "2");
    FIXED(0.125, 2, "0.12");
    FIXED(0.375, 2, "0.38");
    FIXED(2.675, 2, "2.67"); /* in binary it is less */
    FIXED(9.9999, 3, "10");
    FIXED(-0.001, 2, "-0");
    FIXED(-0.0, 1, "-0");
    FIXED(0.0, 3, "0");
    FIXED(1e-300, 19, "0");
    FIXED(0.1, 19, "0.1000000000000000056");
    FIXED(0.1, 25, "0.1000000000000000055511151");
    FIXED(123456789.123456789, 10, "123456789.123456791");
    FIXED(ldexp(1, 51) + 0.5, 1, "2251799813685248.5");
    FIXED(ldexp(1, 53), 2, "9007199254740992");
    FIXED(1e22, 1, "10000000000000000000000");
    FIXED(1844674407370955.1, 4, "1844674407370955"); /* near 2**64 when scaled */
    FIXED(1844674407370955.25, 4, "1844674407370955.25");
    FIXED((double)INFINITY, 3, "inf");
    FIXED(-(double)INFINITY, 3, "-inf");
    FIXED((double)NAN, 3, "nan");
    CHECK(rlw_put_fixed(room, -DBL_MAX, RLW_DECIMALS_MOST) <= room + RLW_FIXED_ROOM);
}

static void shortest_doubles(void) {
    uint8_t room[RLW_FIXED_ROOM];
    SHORTEST(0.0, "0");
    SHORTEST(-0.0, "-0");
    SHORTEST(1.0, "1");
    SHORTEST(-0.1, "-0.1");
    SHORTEST(0.30000000000000004, "0.30000000000000004");
    SHORTEST(1e-4, "0.0001");
    SHORTEST(0.00012345, "0.00012345");
    SHORTEST(1e-5, "1e-05");
    SHORTEST(123456.75, "123456.75");
    SHORTEST(999999999.999999, "999999999.999999");
    SHORTEST(1e15, "1000000000000000");
    SHORTEST(9007199254740992.0, "9007199254740992");
    SHORTEST(9999999999999998.0, "9999999999999998");
    SHORTEST(1e16, "1e+16");
    SHORTEST(1.5e300, "1.5e+300");
    SHORTEST(DBL_MAX, "1.7976931348623157e+308");
    SHORTEST(DBL_MIN, "2.2250738585072014e-308");
    SHORTEST(4.9406564584124654e-324, "5e-324");
    SHORTEST(ldexp(1, -44), "5.684341886080802e-14"); /* not the nearest of 16 digits */
    SHORTEST(9.5367431640625e-07, "9.5367431640625e-07");
    SHORTEST((double)NAN, "nan");
    SHORTEST((double)INFINITY, "inf");
    SHORTEST(-(double)INFINITY, "-inf");
}

static void shortest_floats(void) {
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

static void integers(void) {
    uint8_t room[32];
    uint64_t natural = 0, power = 1;
    int64_t whole = 0;
    unsigned digits;
    static const struct { const char *text; int good; int64_t value; } signed_ones[] = {
        {"0", 1, 0}, {"-0", 1, 0}, {"+7", 1, 7}, {"007", 1, 7}, {"-128", 1, -128}, {"127", 1, 127},
        {"128", 0, 0}, {"-129", 0, 0}, {"", 0, 0}, {"-", 0, 0}, {"+", 0, 0}, {"--1", 0, 0},
        {"99999999999999999999999", 0, 0},
    };
    size_t i;
    for (i = 0; i < sizeof signed_ones / sizeof *signed_ones; i++) {
        size_t size = strlen(signed_ones[i].text);
        uint8_t *input = exact(signed_ones[i].text, size);
        const uint8_t *after = rlw_parse_i64(input, input + size, -128, 127, &whole);
        EQUAL(after != NULL, signed_ones[i].good);
        if (after) CHECK(after == input + size && whole == signed_ones[i].value);
        release(input);
    }
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

static void products(void) {
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

static void lists_are_read(void) {
    double reals[4];
    int8_t small[4];
    uint8_t flags[4], naturals[4];
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
    EQUAL(list_of("1,2,", RLW_FLOAT64, reals, 3, &at), RLW_BAD_NUMBER);
    EQUAL(at, 4);
    EQUAL(list_of("1,2 ", RLW_FLOAT64, reals, 2, &at), RLW_BAD_NUMBER);
    EQUAL(at, 2);
    EQUAL(list_of("-128,127", RLW_INT8, small, 2, &at), RLW_OK);
    CHECK(small[0] == -128 && small[1] == 127);
    EQUAL(list_of("0,128", RLW_INT8, small, 2, &at), RLW_BAD_INTEGER);
    EQUAL(at, 2);
    EQUAL(list_of("1.0", RLW_INT8, small, 1, &at), RLW_BAD_INTEGER);
    EQUAL(list_of("255,+1,-0", RLW_UINT8, naturals, 3, &at), RLW_OK);
    CHECK(naturals[0] == 255 && naturals[1] == 1 && naturals[2] == 0);
    EQUAL(list_of("-1", RLW_UINT8, naturals, 1, &at), RLW_BAD_INTEGER);
    EQUAL(list_of("true,false,true", RLW_BOOL, flags, 3, &at), RLW_OK);
    CHECK(flags[0] == 1 && flags[1] == 0 && flags[2] == 1);
    EQUAL(list_of("true,tru", RLW_BOOL, flags, 2, &at), RLW_BAD_INTEGER);
    EQUAL(list_of("True", RLW_BOOL, flags, 1, &at), RLW_BAD_INTEGER);
    EQUAL(list_of("falsehood", RLW_BOOL, flags, 1, &at), RLW_BAD_INTEGER);
}

static void lists_are_written(void) {
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

void numbers_suite(void) {
    RUN(parts_of_a_decimal);
    RUN(doubles_are_the_nearest);
    RUN(floats_are_rounded_once);
    RUN(fixed_decimals);
    RUN(shortest_doubles);
    RUN(shortest_floats);
    RUN(integers);
    RUN(products);
    RUN(lists_are_read);
    RUN(lists_are_written);
}
