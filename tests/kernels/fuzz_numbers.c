/* Mutates lists of numbers, and makes numbers by chance, for the kernels of numbers.h and
 * number_list.h; fuzz.h tells how it is run. The C library's strtod, strtof and snprintf say what
 * must come out, and a slow recogniser what is a number at all. */
#include "fuzz.h"

#include <errno.h>
#include <math.h>

static uint64_t made_count; /* numbers made by chance */

/* ---- the second reader ---- */

/* Whether the text is one number, letter by letter. */
static int slow_number(const char *text) {
    static const char *const words[] = {"inf", "infinity", "nan"};
    const char *p = text;
    int before = 0, after = 0;
    size_t i, k;
    if (*p == '-' || *p == '+') p++;
    for (i = 0; i < 3; i++) {
        for (k = 0; words[i][k] && (p[k] == words[i][k] || p[k] == words[i][k] - 32); k++) {}
        if (!words[i][k] && !p[k]) return 1;
    }
    for (; *p >= '0' && *p <= '9'; p++) before++;
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++) after++;
    if (!before && !after) return 0;
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '+' || *p == '-') p++;
        if (*p < '0' || *p > '9') return 0;
        while (*p >= '0' && *p <= '9') p++;
    }
    return !*p;
}

static int same_double(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static int same_float(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static int slow_integer(const char *text, rlw_number kind) {
    int is_signed = kind <= RLW_INT64, bits = 8 * (int)rlw_number_size(kind) - is_signed;
    const char *p = text + (*text == '-' || *text == '+');
    uint64_t magnitude;
    if (!*p || strspn(p, "0123456789") != strlen(p)) return 0;
    errno = 0;
    magnitude = strtoull(p, NULL, 10);
    if (errno) return 0;
    if (*text == '-') return magnitude <= (is_signed ? UINT64_C(1) << bits : 0);
    return bits == 64 || magnitude >> bits == 0;
}

/* The digits of a number's text that count; returns how many, at most 40. */
static size_t digits_of(const char *text, char *digits) {
    size_t count = 0;
    for (; *text && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9' && (count || *text != '0') && count < 40)
            digits[count++] = *text;
    while (count && digits[count - 1] == '0') count--;
    digits[count] = 0;
    return count;
}

static void write_fixed(double value) {
    uint8_t *room = (uint8_t *)memory(RLW_FIXED_ROOM), *end;
    char expected[RLW_FIXED_ROOM + 1];
    unsigned decimals = (unsigned)below(below(8) ? 24 : RLW_DECIMALS_MOST + 1);
    double back = 0;
    end = rlw_put_fixed(room, value, decimals);
    snprintf(expected, sizeof expected, "%.*f", (int)decimals, value);
    MUST((size_t)(end - room) <= strlen(expected));
    MUST(memcmp(room, expected, (size_t)(end - room)) == 0);
    MUST(strspn(expected + (end - room), ".0") == strlen(expected + (end - room)));
    MUST(!memchr(room, '.', (size_t)(end - room)) || (end[-1] != '0' && end[-1] != '.'));
    MUST(rlw_parse_double(room, end, &back) == end);
    MUST(same_double(back, strtod(expected, NULL)));
    free(room);
}

static void write_shortest(double value) {
    char *room = (char *)memory(RLW_SHORTEST_ROOM + 1), other[64], digits[41], others[41];
    float single = (float)value;
    size_t count;
    *rlw_put_float((uint8_t *)room, single) = 0;
    MUST(same_float(single, strtof(room, NULL)));
    *rlw_put_double((uint8_t *)room, value) = 0;
    MUST(same_double(value, strtod(room, NULL)));
    count = digits_of(room, digits);
    if (count > 1) { /* of fewer, not even the nearest is read back */
        snprintf(other, sizeof other, "%.*e", (int)count - 2, value);
        MUST(strtod(other, NULL) != value);
    }
    if (count) { /* of as many, none that is read back is nearer */
        snprintf(other, sizeof other, "%.*e", (int)count - 1, value);
        if (strtod(other, NULL) == value) {
            digits_of(other, others);
            MUST(strcmp(digits, others) == 0);
        }
    }
    free(room);
}

static int write_all_ways(double value) {
    if (!isfinite(value)) return 0;
    write_fixed(value);
    write_shortest(value);
    return 1;
}

/* What one text is, read in each way; whether it is a number of the kind. */
static int read_one(const uint8_t *bytes, size_t size, const char *text, rlw_number kind) {
    const uint8_t *end = bytes + size, *after;
    int whole = strlen(text) == size, good;
    double value = 0;
    float single = 0;
    rlw_decimal d;
    good = whole && slow_number(text);
    after = rlw_parse_double(bytes, end, &value);
    MUST(!after || (after > bytes && after <= end));
    MUST((after == end) == good);
    if (good) {
        MUST(same_double(value, strtod(text, NULL)));
        MUST(rlw_scan_decimal(bytes, end, &d) == end);
        single = rlw_decimal_float(&d);
        MUST(same_float(single, strtof(text, NULL)));
        write_all_ways(value);
    }
    if (kind >= RLW_FLOAT32) return good;
    if (kind == RLW_BOOL) return whole && (!strcmp(text, "true") || !strcmp(text, "false"));
    return whole && slow_integer(text, kind);
}

/* What has been read, written again, is the same number. */
static void check_value(rlw_number kind, const void *at, const char *text) {
    uint8_t room[RLW_FIXED_ROOM + 1];
    *rlw_put_number(room, kind, at, -1) = 0;
    switch (kind) {
    case RLW_BOOL: MUST(!strcmp((const char *)room, text)); break;
    case RLW_FLOAT64:
        MUST(same_double(strtod((const char *)room, NULL), strtod(text, NULL)));
        break;
    case RLW_FLOAT32: MUST(same_float(strtof((const char *)room, NULL), strtof(text, NULL))); break;
    case RLW_UINT64:
        MUST(strtoull((const char *)room, NULL, 10) == strtoull(text, NULL, 10));
        break;
    default: MUST(strtoll((const char *)room, NULL, 10) == strtoll(text, NULL, 10)); break;
    }
}

static rlw_status read_list(const uint8_t *bytes, size_t size) {
    rlw_number kind = below(2) ? RLW_FLOAT64 : (rlw_number)below(RLW_FLOAT64 + 1);
    size_t parts = rlw_count_numbers(bytes, size), count = parts, from = 0, i;
    uint8_t *values;
    char *text = (char *)memory(size + 1);
    rlw_cursor c;
    rlw_status status;
    int good = 1;
    if (!below(16)) count = below(parts + 2); /* one that lies */
    values = (uint8_t *)memory(count * rlw_number_size(kind));
    rlw_cursor_init(&c, bytes, size);
    status = rlw_read_numbers(&c, kind, values, count);
    check_cursor(&c, bytes, size, status);
    for (i = 0; i < parts; i++) {
        size_t end = from;
        uint8_t *part;
        while (end < size && bytes[end] != ',') end++;
        memcpy(text, bytes + from, end - from);
        text[end - from] = 0;
        part = exact(bytes + from, end - from);
        good &= read_one(part, end - from, text, kind);
        if (status == RLW_OK) check_value(kind, values + i * rlw_number_size(kind), text);
        release(part);
        from = end + 1;
    }
    MUST((status == RLW_OK) == (good && count == parts));
    free(values);
    free(text);
    return status;
}

/* ---- numbers by chance ---- */

static double some_double(void) {
    double value;
    uint64_t bits = chance();
    switch (below(6)) {
    case 0: value = rlw_bits_double(bits); break;
    case 1: value = (double)(bits % 2000001) / (double)rlw_ten_to((unsigned)below(8)); break;
    case 2: value = (double)bits / 1.8e19 * (double)rlw_ten_to((unsigned)below(12)); break;
    case 3: value = ldexp((double)(bits % 1000), (int)below(2100) - 1074); break;
    case 4: value = ldexp((double)(bits % 100000), -(int)below(24)); break; /* often a tie */
    default: value = ldexp(1.0, (int)below(2100) - 1074); break;
    }
    return below(2) ? -value : value;
}

static void mutate(void) {
    static const uint8_t odd_bytes[] = {',', ',', '.', '-', '+', 'e', 'E', '0', '0', '9', '5', '1',
                                        ' ', '_', 'n', 'i', 't', 'f', 0x00, 0x7F, 0x80, 0xB2, 0xFF};
    mutate_bytes(odd_bytes, sizeof odd_bytes);
    if (input_size > 2000) input_size = 2000;
}

static rlw_status feed(const uint8_t *bytes, size_t size) {
    rlw_status status = read_list(bytes, size);
    made_count += (uint64_t)write_all_ways(some_double());
    if (status == RLW_OK) whole_count++;
    return status;
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    (void)s;
    feed(bytes, size);
}

static void mark_sample(sample *s) {
    size_t i;
    for (i = 0; i < s->size; i++)
        if (s->data[i] == ',' || s->data[i] == '.' || s->data[i] == 'e') mark(s, i + 1);
}

FUZZ_MAIN("fuzz_numbers", "made", made_count, RLW_OK, RLW_NEED_MORE, RLW_BAD_INTEGER,
          RLW_BAD_NUMBER, RLW_TRAILING)
