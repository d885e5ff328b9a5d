/* Mutates JSON texts for the kernels of json.h and json_array.h; fuzz.h tells how it is run. A slow
 * second reader, written from RFC 8259 byte by byte, says what is JSON, what it means, and which
 * lists make an array; strtod and strtoull say what its numbers are.
 *
 * By hand, in this folder:
 *     python3 corpus_json.py corpus.bin
 *     c++ -std=c++17 -g -O1 -c ../../rlwire/include/rlwire/numbers.cpp
 *     cc -std=c11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
 *         -I../../rlwire/include -c fuzz_json.c
 *     c++ -fsanitize=address,undefined fuzz_json.o numbers.o -o fuzz && ./fuzz corpus.bin 1000000
 */
#include "fuzz.h"

#include <errno.h>
#include <math.h>

static uint64_t array_count; /* texts that make an array */

static const rlw_json_limits limits = {24, 300, 200};

/* ---- the second reader ---- */

#define SLOW_DEPTH 60

typedef struct slow_shape {
    int good; /* a number, or lists of numbers that make an array */
    unsigned dims;
    size_t shape[SLOW_DEPTH + 1];
} slow_shape;

typedef struct slow_number {
    const uint8_t *at;
    size_t size;
} slow_number;

static const uint8_t *slow_at, *slow_end;
static uint64_t slow_sum;             /* of all that was read, in its order */
static slow_number slow_numbers[ROOM];
static size_t slow_number_count;
static int slow_depth, slow_overflow; /* a number is infinite as a double */

/* A number's text, until the next one is asked for. */
static const char *text_of(const uint8_t *at, size_t size) {
    static char text[ROOM + 1];
    memcpy(text, at, size);
    text[size] = 0;
    return text;
}

static void add_to(uint64_t *sum, uint64_t value) {
    *sum = (*sum ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    *sum ^= *sum >> 29;
}

static void slow_space(void) {
    while (slow_at < slow_end && strchr(" \t\r\n", *slow_at) && *slow_at) slow_at++;
}

static int slow_byte(uint8_t byte) {
    if (slow_at == slow_end || *slow_at != byte) return 0;
    slow_at++;
    return 1;
}

static int slow_hex(uint32_t *out) {
    unsigned i;
    *out = 0;
    for (i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *found;
        if (slow_at == slow_end || !*slow_at) return 0;
        found = strchr(digits, *slow_at++);
        if (!found) return 0;
        *out = *out * 16 + (uint32_t)((found - digits) % 16);
    }
    return 1;
}

/* One code point of UTF-8. */
static int slow_point(uint32_t *out) {
    uint8_t lead = *slow_at++;
    int more = lead < 0x80 ? 0 : lead < 0xC0 ? -1 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    uint32_t point = more == 3 ? lead & 15u : more == 2 ? lead & 15u : more == 1 ? lead & 31u : lead;
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    int i;
    if (more < 0 || lead >= 0xF8) return 0;
    for (i = 0; i < more; i++) {
        if (slow_at == slow_end || (*slow_at & 0xC0) != 0x80) return 0;
        point = point << 6 | (*slow_at++ & 0x3F);
    }
    *out = point;
    return point >= least[more] && point <= 0x10FFFF && !(point >= 0xD800 && point <= 0xDFFF);
}

static int slow_string(void) {
    uint32_t point, second;
    if (!slow_byte('"')) return 0;
    add_to(&slow_sum, 's');
    for (;;) {
        if (slow_at == slow_end || *slow_at < 0x20) return 0;
        if (slow_byte('"')) break;
        if (slow_byte('\\')) {
            static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
            const char *found;
            if (slow_at == slow_end) return 0;
            if (slow_byte('u')) {
                if (!slow_hex(&point)) return 0;
                if (point >= 0xDC00 && point <= 0xDFFF) return 0;
                if (point >= 0xD800 && point <= 0xDBFF) {
                    if (!slow_byte('\\') || !slow_byte('u') || !slow_hex(&second)) return 0;
                    if (second < 0xDC00 || second > 0xDFFF) return 0;
                    point = 0x10000 + (point - 0xD800) * 0x400 + (second - 0xDC00);
                }
            } else {
                if (!*slow_at || !(found = strchr(letters, *slow_at))) return 0;
                point = (uint8_t)means[found - letters];
                slow_at++;
            }
        } else if (!slow_point(&point)) {
            return 0;
        }
        add_to(&slow_sum, point);
    }
    add_to(&slow_sum, 'S');
    return 1;
}

static uint64_t number_sum(const uint8_t *at, size_t size) {
    uint64_t sum = size;
    for (; size; size--) add_to(&sum, *at++);
    return sum;
}

static int slow_digits(void) {
    const uint8_t *first = slow_at;
    while (slow_at < slow_end && *slow_at >= '0' && *slow_at <= '9') slow_at++;
    return slow_at > first;
}

static int slow_read_number(void) {
    const uint8_t *first = slow_at;
    slow_number *n = &slow_numbers[slow_number_count++];
    const char *text;
    slow_byte('-');
    if (!slow_byte('0') && !slow_digits()) return 0;
    if (slow_byte('.') && !slow_digits()) return 0;
    if (slow_at < slow_end && (*slow_at == 'e' || *slow_at == 'E')) {
        slow_at++;
        if (!slow_byte('+')) slow_byte('-');
        if (!slow_digits()) return 0;
    }
    n->at = first;
    n->size = (size_t)(slow_at - first);
    text = text_of(first, n->size);
    if (strpbrk(text, ".eE") && isinf(strtod(text, NULL))) slow_overflow = 1;
    add_to(&slow_sum, number_sum(first, n->size));
    return 1;
}

static int slow_word(const char *word) {
    for (; *word; word++)
        if (!slow_byte((uint8_t)*word)) return 0;
    add_to(&slow_sum, (uint8_t)word[-2]);
    return 1;
}

static int slow_value(slow_shape *shape);

static int slow_list(slow_shape *shape) {
    slow_shape item;
    size_t count = 0;
    int good = 0;
    add_to(&slow_sum, '[');
    shape->good = 1;
    shape->dims = 1;
    slow_space();
    if (slow_byte(']')) {
        good = 1;
    } else {
        for (;;) {
            if (!slow_value(&item)) break;
            if (!count) {
                shape->good = item.good;
                shape->dims = item.dims + 1;
                memcpy(shape->shape + 1, item.shape, item.dims * sizeof *item.shape);
            } else if (!item.good || item.dims + 1 != shape->dims ||
                       memcmp(shape->shape + 1, item.shape, item.dims * sizeof *item.shape)) {
                shape->good = 0;
            }
            count++;
            slow_space();
            if (slow_byte(',')) continue;
            good = slow_byte(']');
            break;
        }
    }
    shape->shape[0] = count;
    add_to(&slow_sum, ']');
    return good;
}

static int slow_object(slow_shape *shape) {
    add_to(&slow_sum, '{');
    slow_space();
    if (!slow_byte('}')) {
        for (;;) {
            slow_space();
            if (!slow_string()) return 0;
            slow_space();
            if (!slow_byte(':') || !slow_value(shape)) return 0;
            slow_space();
            if (slow_byte(',')) continue;
            if (!slow_byte('}')) return 0;
            break;
        }
    }
    add_to(&slow_sum, '}');
    shape->good = 0;
    return 1;
}

static int slow_value(slow_shape *shape) {
    int good;
    slow_space();
    if (slow_at == slow_end || slow_depth > SLOW_DEPTH) return 0;
    shape->good = 0;
    shape->dims = 0;
    slow_depth++;
    switch (*slow_at) {
    case '"': good = slow_string(); break;
    case 't': good = slow_word("true"); break;
    case 'f': good = slow_word("false"); break;
    case 'n': good = slow_word("null"); break;
    case '[': slow_at++; good = slow_list(shape); break;
    case '{': slow_at++; good = slow_object(shape); break;
    default:
        shape->good = 1;
        good = slow_read_number();
    }
    slow_depth--;
    return good;
}

static int slow_text(const uint8_t *data, size_t size, slow_shape *shape) {
    slow_at = data;
    slow_end = data + size;
    slow_sum = 0;
    slow_number_count = 0;
    slow_depth = slow_overflow = 0;
    if (!slow_value(shape)) return 0;
    slow_space();
    return slow_at == slow_end;
}

/* ---- the kernels, and what they must agree on ---- */

static const uint8_t *fast_start;

/* What the text means is read from its UTF-8, after it was written and read once more. */
static void fast_string(const rlw_json_text *text, uint64_t *sum) {
    uint8_t *plain = exact(text->data, text->size); /* room of exactly the size allowed */
    size_t size = text->size, i;
    rlw_json_reader again;
    rlw_json_text back;
    rlw_writer w;
    if (text->escaped) size = rlw_json_unescape(text, plain);
    MUST(size <= text->size && (text->escaped || memcmp(plain, text->data, size) == 0));
    MUST(rlw_utf8_check(plain, size) == size);
    if (!text->escaped) MUST(text->ascii == rlw_is_ascii(plain, size));
    rlw_writer_init(&w, NULL, 0);
    MUST(rlw_json_put_string(&w, plain, size) == RLW_OK);
    rlw_json_reader_init(&again, w.start, rlw_written(&w), &limits);
    again.limits.string = UINT64_MAX;
    MUST(rlw_json_string(&again, &back) == RLW_OK && again.c.at == again.c.end);
    if (back.escaped) {
        uint8_t *other = (uint8_t *)memory(back.size);
        MUST(rlw_json_unescape(&back, other) == size && memcmp(other, plain, size) == 0);
        free(other);
    } else {
        MUST(back.size == size && (!size || memcmp(back.data, plain, size) == 0));
    }
    rlw_writer_free(&w);
    add_to(sum, 's');
    slow_at = plain;
    slow_end = plain + size;
    for (i = 0; slow_at < slow_end; i++) {
        uint32_t point = 0;
        MUST(slow_point(&point));
        add_to(sum, point);
    }
    add_to(sum, 'S');
    release(plain);
}

static void check_number(const rlw_json_value *v, size_t size) {
    const char *text = text_of(v->at, size);
    int whole, beyond;
    uint64_t magnitude;
    whole = !strpbrk(text, ".eE");
    if (!whole) {
        double value = strtod(text, NULL);
        MUST(v->kind == RLW_JSON_REAL && memcmp(&value, &v->real, sizeof value) == 0);
        return;
    }
    errno = 0;
    magnitude = strtoull(text + (*text == '-'), NULL, 10);
    beyond = errno != 0;
    if (*text == '-' ? !beyond && magnitude <= UINT64_C(1) << 63 : !beyond && magnitude <= INT64_MAX)
        MUST(v->kind == RLW_JSON_INTEGER && v->integer == strtoll(text, NULL, 10));
    else if (*text != '-' && !beyond)
        MUST(v->kind == RLW_JSON_NATURAL && v->natural == magnitude);
    else
        MUST(v->kind == RLW_JSON_BIG && v->text.data == v->at && v->text.size == size);
}

static rlw_status fast_value(rlw_json_reader *r, uint64_t *sum) {
    rlw_json_value v;
    rlw_json_text name;
    rlw_status status = rlw_json_read(r, &v);
    int more;
    if (status != RLW_OK) return status;
    MUST(v.at >= fast_start && v.at < r->c.at);
    switch (v.kind) {
    case RLW_JSON_NULL: add_to(sum, 'l'); break;
    case RLW_JSON_TRUE: add_to(sum, 'u'); break;
    case RLW_JSON_FALSE: add_to(sum, 's'); break;
    case RLW_JSON_STRING: fast_string(&v.text, sum); break;
    case RLW_JSON_LIST:
    case RLW_JSON_OBJECT:
        add_to(sum, v.kind == RLW_JSON_LIST ? '[' : '{');
        for (more = !v.empty; more;) {
            if (v.kind == RLW_JSON_OBJECT) {
                if ((status = rlw_json_name(r, &name)) != RLW_OK) return status;
                fast_string(&name, sum);
            }
            if ((status = fast_value(r, sum)) != RLW_OK) return status;
            status = rlw_json_next(r, v.kind == RLW_JSON_LIST ? ']' : '}', &more);
            if (status != RLW_OK) return status;
        }
        add_to(sum, v.kind == RLW_JSON_LIST ? ']' : '}');
        break;
    default:
        check_number(&v, (size_t)(r->c.at - v.at));
        add_to(sum, number_sum(v.at, (size_t)(r->c.at - v.at)));
    }
    return RLW_OK;
}

static double as_double(rlw_number kind, const uint8_t *at) {
    int64_t integer;
    uint64_t natural;
    double real;
    memcpy(&integer, at, 8);
    memcpy(&natural, at, 8);
    memcpy(&real, at, 8);
    return kind == RLW_INT64 ? (double)integer : kind == RLW_UINT64 ? (double)natural : real;
}

/* An array, written and read again as its own kind, is the same. */
static void write_array(const rlw_json_shape *s, rlw_number kind, const uint8_t *numbers) {
    size_t size = rlw_number_size(kind), at = 0, k;
    int64_t strides[RLW_JSON_DIMS_MOST], stride = (int64_t)size;
    uint8_t *again = (uint8_t *)memory(s->count * size);
    rlw_json_reader r;
    rlw_json_shape other;
    rlw_writer w;
    for (k = s->dims; k-- > 0; stride *= s->shape[k]) strides[k] = stride;
    rlw_writer_init(&w, NULL, 0);
    MUST(rlw_json_put_array(&w, kind, numbers, s->dims, s->shape, strides, RLW_JSON_REFUSE, &at) ==
         RLW_OK);
    MUST(at == s->count);
    rlw_json_reader_init(&r, w.start, rlw_written(&w), &limits);
    r.limits.depth = r.limits.items = UINT64_MAX;
    MUST(rlw_json_measure(&r, 32, 0, &other) == RLW_OK && other.dims == s->dims);
    MUST(memcmp(other.shape, s->shape, s->dims * sizeof *s->shape) == 0);
    MUST(rlw_json_fill(&r, &other, RLW_JSON_GIVEN, &kind, again) == RLW_OK);
    MUST(r.c.at == r.c.end && (!s->count || memcmp(again, numbers, s->count * size) == 0));
    rlw_writer_free(&w);
    free(again);
}

/* Whether a text that the second reader has read makes an array, and which. */
static void read_array(const uint8_t *bytes, size_t size, const slow_shape *slow) {
    rlw_json_reader r;
    rlw_json_shape s;
    rlw_number kind = RLW_INT64;
    rlw_status status;
    uint8_t *numbers;
    size_t i;
    int big = 0;
    rlw_json_reader_init(&r, bytes, size, &limits);
    r.limits.depth = r.limits.items = UINT64_MAX;
    status = rlw_json_measure(&r, 32, 0, &s);
    MUST(r.c.at == bytes);
    if (status == RLW_OK) {
        MUST(s.dims >= 1 && s.dims <= 32 && s.count <= size);
        numbers = (uint8_t *)memory(8 * s.count);
        status = rlw_json_fill(&r, &s, RLW_JSON_ANY, &kind, numbers);
        MUST(r.c.at >= bytes && r.c.at <= bytes + size);
        if (status == RLW_OK && slow) {
            MUST(slow->good && s.count == slow_number_count && s.dims == slow->dims);
            for (i = 0; i < s.dims; i++) MUST(s.shape[i] == (int64_t)slow->shape[i]);
            for (i = 0; i < s.count; i++) {
                const char *text = text_of(slow_numbers[i].at, slow_numbers[i].size);
                MUST(as_double(kind, numbers + 8 * i) == strtod(text, NULL));
            }
            write_array(&s, kind, numbers);
            array_count++;
        }
        free(numbers);
        if (status == RLW_OK) { /* as some other kind: no access outside */
            rlw_number given = (rlw_number)below(RLW_FLOAT64 + 1);
            numbers = (uint8_t *)memory(rlw_number_size(given) * s.count);
            r.c.at = bytes;
            if (rlw_json_fill(&r, &s, RLW_JSON_GIVEN, &given, numbers) == RLW_OK)
                write_array(&s, given, numbers);
            free(numbers);
        }
    }
    if (!slow || status == RLW_OK) return;
    for (i = 0; i < slow_number_count; i++) { /* integers of more than 64 bits make none */
        const char *text = text_of(slow_numbers[i].at, slow_numbers[i].size);
        if (strpbrk(text, ".eE")) continue;
        errno = 0;
        if (*text == '-') (void)!strtoll(text, NULL, 10);
        else (void)!strtoull(text, NULL, 10);
        big |= errno != 0;
    }
    MUST(!slow->good || !slow->dims || slow->dims > 32 || slow_overflow || big);
}

static rlw_status read_text(const uint8_t *bytes, size_t size) {
    static slow_shape shape;
    rlw_json_reader r, skipping;
    rlw_status status, skipped;
    uint64_t sum = 0, expected;
    int good = slow_text(bytes, size, &shape), overflow = slow_overflow;
    expected = slow_sum;
    read_array(bytes, size, good ? &shape : NULL);
    fast_start = bytes;
    rlw_json_reader_init(&r, bytes, size, &limits);
    status = fast_value(&r, &sum);
    if (status == RLW_OK) status = rlw_json_end(&r);
    check_cursor(&r.c, bytes, size, status);
    rlw_json_reader_init(&skipping, bytes, size, &limits);
    skipped = rlw_json_skip(&skipping);
    if (skipped == RLW_OK) skipped = rlw_json_end(&skipping);
    MUST(skipped == status && skipping.c.fault.at == r.c.fault.at);
    MUST(skipping.items == r.items && skipping.depth == r.depth);
    if (status == RLW_OK) {
        MUST(good && !overflow && sum == expected && !r.depth);
        whole_count++;
    } else {
        MUST(!good || overflow || status >= RLW_OVER_MESSAGE);
    }
    return status;
}

static rlw_status feed_one(const sample *from) {
    static const uint8_t odd_bytes[] = {'[', ']', '{', '}', ',', ':', '"', '\\', 'u', 'd', '8',
                                        '-', '.', 'e', '0', '1', '9', 't',  'n', ' ', 0x00, 0x1F,
                                        0x7F, 0x80, 0xBF, 0xC0, 0xE2, 0xED, 0xF4, 0xFF};
    size_t edits = below(8) ? 1 + below(3) : 0;
    rlw_status status;
    uint8_t *bytes;
    begin_with(from);
    while (edits--) mutate_bytes(odd_bytes, sizeof odd_bytes);
    if (input_size > 3000) input_size = 3000;
    bytes = take_input();
    status = read_text(bytes, input_size);
    release(bytes);
    return status;
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    (void)s;
    read_text(bytes, size);
}

static void mark_sample(sample *s) {
    size_t i;
    for (i = 0; i < s->size; i++)
        if (strchr("[]{}\"\\,:", s->data[i]) && s->data[i]) mark(s, i);
}

int main(int argc, char **argv) {
    static const rlw_status reaches[] = {
        RLW_OK,         RLW_NEED_MORE,     RLW_BAD_TEXT,  RLW_BAD_CHARACTER, RLW_BAD_NUMBER,
        RLW_BAD_JSON,   RLW_BAD_ESCAPE,    RLW_BAD_SURROGATE, RLW_BAD_RANGE, RLW_TRAILING,
        RLW_OVER_DEPTH, RLW_OVER_ITEMS,    RLW_OVER_STRING,
    };
    static const fuzz_driver driver = {
        "fuzz_json", mark_sample, feed_prefix, feed_one,
        reaches,     sizeof reaches / sizeof *reaches,
        "arrays",    &array_count,
    };
    return fuzz_main(argc, argv, &driver);
}
