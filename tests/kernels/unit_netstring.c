/* netstring.h: prefixes good and bad, lengths that lie, and the writer's way back. */
#include "harness.h"

#define LIMIT UINT64_C(1000000000)

typedef struct outcome {
    rlw_status status;
    rlw_fault fault;
    size_t fault_at; /* fault.at as an index */
    size_t at;
    size_t size; /* of the body, on RLW_OK */
} outcome;

static outcome read_with(const char *text, size_t length, uint64_t limit) {
    uint8_t *input = exact(text, length);
    const uint8_t *body = NULL;
    rlw_cursor c;
    outcome o;
    o.size = 0;
    rlw_cursor_init(&c, input, length);
    o.status = rlw_netstring_read(&c, limit, &body, &o.size);
    o.fault = c.fault;
    o.fault_at = (size_t)(c.fault.at - input);
    o.at = (size_t)(c.at - input);
    if (o.status == RLW_OK) {
        CHECK(body >= input && body + o.size == c.at - 1);
    } else {
        EQUAL(o.at, 0); /* it advances on success only */
        EQUAL(o.fault.status, o.status);
        CHECK(o.fault_at <= length);
    }
    o.fault.at = NULL; /* fault_at says it */
    release(input);
    return o;
}

static outcome read_text(const char *text) { return read_with(text, strlen(text), LIMIT); }

static void whole_ones(void) {
    outcome o = read_text("5:hello,");
    EQUAL(o.status, RLW_OK);
    EQUAL(o.size, 5);
    EQUAL(o.at, 8);
    o = read_text("0:,");
    EQUAL(o.status, RLW_OK);
    EQUAL(o.size, 0);
    EQUAL(o.at, 3);
    o = read_text("12:hello world!,");
    EQUAL(o.status, RLW_OK);
    EQUAL(o.size, 12);
    o = read_text("3:a,b,3:cde,"); /* what follows is the next one's */
    EQUAL(o.status, RLW_OK);
    EQUAL(o.at, 6);
    o = read_with("2:\0\0,", 5, LIMIT);
    EQUAL(o.status, RLW_OK);
    EQUAL(o.size, 2);
}

static void every_strict_prefix_needs_more(void) {
    static const char text[] = "12:hello world!,";
    size_t length;
    for (length = 0; length < sizeof text - 1; length++) {
        outcome o = read_with(text, length, LIMIT);
        EQUAL(o.status, RLW_NEED_MORE);
        CHECK(o.fault.got > length);
        EQUAL(o.fault.allowed, length);
        EQUAL(o.fault_at, 0);
        if (length >= 3) EQUAL(o.fault.got, sizeof text - 1);
    }
}

static void bad_prefixes(void) {
    static const struct {
        const char *text;
        uint8_t byte;
    } cases[] = {
        {"00:,", '0'},      {"05:hello,", '5'},  {"01:a,", '1'},      {"-1:a,", '-'},
        {"+1:a,", '+'},     {" 1:a,", ' '},      {"1 :a,", ' '},      {":a,", ':'},
        {":", ':'},         {"a", 'a'},          {"1a:x,", 'a'},      {"0x1:a,", 'x'},
        {"1.0:a,", '.'},    {"1,a", ','},        {"\n1:a,", '\n'},    {"1\r:a,", '\r'},
        {"\xff", 0xff},     {"1\x80:a,", 0x80},  {"/1:a,", '/'},      {";1:a,", ';'},
        {"GET / HTTP/1.1\r\n", 'G'},             {"{\"command\":1}", '{'},
        {"000000000000:,", '0'},                 {"1e3:", 'e'},
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        outcome o = read_text(cases[i].text);
        EQUAL(o.status, RLW_BAD_PREFIX);
        EQUAL(o.fault.got, cases[i].byte);
        EQUAL(o.fault_at, 0);
    }
}

static void a_nul_is_no_digit(void) {
    outcome o = read_with("1\0:a,", 5, LIMIT);
    EQUAL(o.status, RLW_BAD_PREFIX);
    EQUAL(o.fault.got, 0);
}

static void lengths_over_the_limit(void) {
    static const char *const texts[] = {
        "1000000001:",
        "1000000000000:", /* 10^12 */
        "1000000000000",  /* ... is known to be too long before its colon comes */
        "9223372036854775807:",
        "9223372036854775808:",
        "18446744073709551615:",
        "18446744073709551616:",     /* 2^64 is not 0 */
        "18446744073709551617:a,",   /* nor 2^64 + 1 one */
        "99999999999999999999999999999999999999999999999999",
    };
    size_t i;
    for (i = 0; i < sizeof texts / sizeof *texts; i++) {
        outcome o = read_text(texts[i]);
        EQUAL(o.status, RLW_OVER_MESSAGE);
        CHECK(o.fault.got > LIMIT);
        EQUAL(o.fault.allowed, LIMIT);
        EQUAL(o.fault_at, 0);
    }
    EQUAL(read_text("1000000000:").status, RLW_NEED_MORE); /* the limit itself is allowed */
    EQUAL(read_with("5:hello,", 8, 5).status, RLW_OK);
    EQUAL(read_with("5:hello,", 8, 4).status, RLW_OVER_MESSAGE);
    EQUAL(read_with("0:,", 3, 0).status, RLW_OK);
    EQUAL(read_with("1:a,", 4, 0).status, RLW_OVER_MESSAGE);
}

static void the_greatest_limit_does_not_wrap(void) {
    const uint64_t limit = (UINT64_C(1) << 60) - 1;
    outcome o = read_with("1152921504606846975:", 20, limit);
    EQUAL(o.status, RLW_NEED_MORE);
    EQUAL(o.fault.got, 20 + limit + 1);
    EQUAL(read_with("1152921504606846976:", 20, limit).status, RLW_OVER_MESSAGE);
    EQUAL(read_with("99999999999999999999", 20, limit).status, RLW_OVER_MESSAGE);
    /* Greater ones count as the greatest. */
    o = read_with("18446744073709551616:a,", 23, UINT64_MAX);
    EQUAL(o.status, RLW_OVER_MESSAGE);
    EQUAL(o.fault.allowed, limit);
}

static void a_missing_comma(void) {
    outcome o = read_text("5:hello;");
    EQUAL(o.status, RLW_BAD_END);
    EQUAL(o.fault.got, ';');
    EQUAL(o.fault_at, 7);
    o = read_text("5:hello world,"); /* the length lies */
    EQUAL(o.status, RLW_BAD_END);
    EQUAL(o.fault.got, ' ');
    o = read_text("0::");
    EQUAL(o.status, RLW_BAD_END);
    o = read_with("1:a\0", 4, LIMIT);
    EQUAL(o.status, RLW_BAD_END);
    EQUAL(o.fault.got, 0);
}

static void a_prefix_alone(void) {
    rlw_cursor c;
    uint64_t size = 77;
    uint8_t *input = exact("123:", 4);
    rlw_cursor_init(&c, input, 4);
    EQUAL(rlw_netstring_prefix(&c, LIMIT, &size), RLW_OK);
    EQUAL(size, 123);
    CHECK(c.at == c.end);
    rlw_cursor_init(&c, input, 3);
    size = 77;
    EQUAL(rlw_netstring_prefix(&c, LIMIT, &size), RLW_NEED_MORE);
    EQUAL(size, 77);
    CHECK(c.at == input);
    release(input);
    rlw_cursor_init(&c, NULL, 0);
    EQUAL(rlw_netstring_prefix(&c, LIMIT, &size), RLW_NEED_MORE);
}

static void written_prefixes_are_read_back(void) {
    const uint64_t most = (UINT64_C(1) << 60) - 1;
    uint64_t size = 0;
    for (;;) {
        uint64_t near = size ? size - 1 : 0;
        for (; near <= size + 1 && near <= most; near++) {
            uint8_t *room = (uint8_t *)malloc(RLW_NETSTRING_ROOM);
            uint8_t *first;
            uint64_t back = ~near;
            rlw_cursor c;
            if (!room) exit(2);
            first = rlw_netstring_prefix_before(room + RLW_NETSTRING_ROOM, near);
            CHECK(first >= room);
            rlw_cursor_init(&c, first, (size_t)(room + RLW_NETSTRING_ROOM - first));
            EQUAL(rlw_netstring_prefix(&c, most, &back), RLW_OK);
            EQUAL(back, near);
            CHECK(c.at == c.end);
            free(room);
        }
        if (size > most / 10) break;
        size = size ? size * 10 : 1;
    }
    {
        uint8_t room[RLW_NETSTRING_ROOM];
        CHECK(rlw_netstring_prefix_before(room + RLW_NETSTRING_ROOM, most) == room);
        CHECK(memcmp(room, "1152921504606846975:", RLW_NETSTRING_ROOM) == 0);
    }
}

void netstring_suite(void) {
    RUN(whole_ones);
    RUN(every_strict_prefix_needs_more);
    RUN(bad_prefixes);
    RUN(a_nul_is_no_digit);
    RUN(lengths_over_the_limit);
    RUN(the_greatest_limit_does_not_wrap);
    RUN(a_missing_comma);
    RUN(a_prefix_alone);
    RUN(written_prefixes_are_read_back);
}
