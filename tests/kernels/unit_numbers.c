/* numbers.h and number_list.h: parts of what is read, and how what is written looks. That it is the
 * nearest number, both ways, fuzz_numbers.c compares with the C library; lists are tested in
 * tests/codecs/perlert. */
#include "harness.h"

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

/* Numbers that are not finite, and where the text's form changes: the rest is fuzz_numbers.c's. */
CASE(forms_of_numbers) {
    static const struct {
        double value;
        const char *fixed, *text, *single; /* of 3 decimals, of a double, of a float */
    } cases[] = {
        {0.0, "0", "0", "0"},
        {-0.0, "-0", "-0", "-0"},
        {-0.0001, "-0", "-0.0001", "-0.0001"},
        {1e-5, "0", "1e-05", "1e-05"},
        {16777216, "16777216", "16777216", "16777216"},
        {9999999999999998.0, "9999999999999998", "9999999999999998", "1e+16"},
        {1e16, "10000000000000000", "1e+16", "1e+16"},
        {(double)INFINITY, "inf", "inf", "inf"},
        {-(double)INFINITY, "-inf", "-inf", "-inf"},
        {(double)NAN, "nan", "nan", "nan"},
    };
    uint8_t room[RLW_FIXED_ROOM];
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        double value = cases[i].value;
        CHECK(writes(room, rlw_put_fixed(room, value, 3), cases[i].fixed));
        CHECK(writes(room, rlw_put_double(room, value), cases[i].text));
        CHECK(writes(room, rlw_put_float(room, (float)value), cases[i].single));
    }
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
    CHECK(writes(room, rlw_put_u64(room, UINT64_MAX), "18446744073709551615"));
    for (digits = 1; digits <= 20; digits++) {
        EQUAL(rlw_count_digits(power), digits);
        EQUAL(rlw_count_digits(power - 1), digits > 1 ? digits - 1 : 1);
        power *= 10;
    }
}

static rlw_status integers_of(const char *text, size_t count, size_t *at) {
    int8_t out[3];
    size_t size = strlen(text);
    uint8_t *input = exact(text, size);
    rlw_cursor c;
    rlw_status status;
    rlw_cursor_init(&c, input, size);
    status = rlw_read_numbers(&c, RLW_INT8, out, count);
    *at = (size_t)(c.fault.at - input);
    release(input);
    return status;
}

CASE(lists_of_another_count) {
    size_t at;
    EQUAL(rlw_count_numbers(bytes(""), 0), 0);
    EQUAL(integers_of("", 0, &at), RLW_OK);
    EQUAL(integers_of("1,2", 1, &at), RLW_TRAILING);
    EQUAL(at, 1);
    EQUAL(integers_of("1,2", 3, &at), RLW_NEED_MORE);
    EQUAL(at, 3);
}
