/* Mutates msgpack messages and feeds them to the kernels; fuzz.h tells how it is run.
 *
 * By hand, in this folder:
 *     python3 corpus_msgpack.py corpus.bin
 *     cc -std=c11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
 *         -I../../rlwire/include fuzz_msgpack.c -o fuzz_msgpack && ./fuzz_msgpack corpus.bin 9999
 */
#include "fuzz.h"

static uint64_t array_count; /* maps that were arrays or scalars */

/* ---- the specification once more, as a table of its formats ---- */

typedef struct format {
    unsigned first, last; /* type bytes */
    char kind;            /* n b i u f s(tring) y(bytes) a m x(ext) */
    unsigned number;      /* bytes of the number behind the type byte; 0: it is in the type byte */
    unsigned fixed;       /* of a fixext, its bytes */
} format;

static const format formats[] = {
    {0x00, 0x7F, 'u', 0, 0}, {0x80, 0x8F, 'm', 0, 0}, {0x90, 0x9F, 'a', 0, 0},
    {0xA0, 0xBF, 's', 0, 0}, {0xC0, 0xC0, 'n', 0, 0}, {0xC2, 0xC3, 'b', 0, 0},
    {0xC4, 0xC4, 'y', 1, 0}, {0xC5, 0xC5, 'y', 2, 0}, {0xC6, 0xC6, 'y', 4, 0},
    {0xC7, 0xC7, 'x', 1, 0}, {0xC8, 0xC8, 'x', 2, 0}, {0xC9, 0xC9, 'x', 4, 0},
    {0xCA, 0xCA, 'f', 4, 0}, {0xCB, 0xCB, 'f', 8, 0}, {0xCC, 0xCC, 'u', 1, 0},
    {0xCD, 0xCD, 'u', 2, 0}, {0xCE, 0xCE, 'u', 4, 0}, {0xCF, 0xCF, 'u', 8, 0},
    {0xD0, 0xD0, 'i', 1, 0}, {0xD1, 0xD1, 'i', 2, 0}, {0xD2, 0xD2, 'i', 4, 0},
    {0xD3, 0xD3, 'i', 8, 0}, {0xD4, 0xD4, 'x', 0, 1}, {0xD5, 0xD5, 'x', 0, 2},
    {0xD6, 0xD6, 'x', 0, 4}, {0xD7, 0xD7, 'x', 0, 8}, {0xD8, 0xD8, 'x', 0, 16},
    {0xD9, 0xD9, 's', 1, 0}, {0xDA, 0xDA, 's', 2, 0}, {0xDB, 0xDB, 's', 4, 0},
    {0xDC, 0xDC, 'a', 2, 0}, {0xDD, 0xDD, 'a', 4, 0}, {0xDE, 0xDE, 'm', 2, 0},
    {0xDF, 0xDF, 'm', 4, 0}, {0xE0, 0xFF, 'i', 0, 0},
};

typedef struct expected {
    rlw_status status;
    char kind;
    uint64_t number; /* two's complement; of a float its bits */
    const uint8_t *data;
    int code;
    size_t used;
} expected;

static expected read_expected(const uint8_t *p, size_t left, const rlw_msgpack_limits *limits,
                              uint64_t items, int partial) {
    expected e;
    size_t f, i, at = 1;
    uint64_t most;
    memset(&e, 0, sizeof e);
    e.status = RLW_NEED_MORE;
    if (left == 0) return e;
    for (f = 0; f < sizeof formats / sizeof *formats; f++)
        if (p[0] >= formats[f].first && p[0] <= formats[f].last) break;
    e.status = RLW_BAD_TYPE;
    if (f == sizeof formats / sizeof *formats) return e;
    e.kind = formats[f].kind;
    e.status = RLW_NEED_MORE;
    if (formats[f].number) {
        if (left < 1 + formats[f].number) return e;
        for (i = 0; i < formats[f].number; i++) e.number = e.number * 256 + p[at++];
        if (e.kind == 'i' && p[1] >= 128)
            for (i = formats[f].number; i < 8; i++) e.number |= UINT64_C(255) << (8 * i);
    } else {
        e.number = formats[f].fixed ? formats[f].fixed : (uint64_t)(p[0] - formats[f].first);
        if (e.kind == 'i') e.number = (uint64_t)0 - (uint64_t)(256 - p[0]);
    }
    if (e.kind == 'x') {
        if (left < at + 1) return e;
        e.code = p[at] < 128 ? p[at] : p[at] - 256;
        at++;
        /* the kernel wants all of a fixext to be there before it compares with the limit */
        if (formats[f].fixed && left - at < e.number) return e;
    }
    if (e.kind == 's' || e.kind == 'y' || e.kind == 'x') {
        most = e.kind == 's' ? limits->string : e.kind == 'y' ? limits->binary : limits->ext;
        e.status = e.kind == 's' ? RLW_OVER_STRING : RLW_OVER_MESSAGE;
        if (e.number > most) return e;
        e.status = RLW_NEED_MORE;
        if (e.number > left - at) return e;
        e.data = p + at;
        at += (size_t)e.number;
    }
    if (e.kind == 'a' || e.kind == 'm') {
        e.status = RLW_OVER_ITEMS;
        if (e.number > (e.kind == 'a' ? limits->array : limits->map)) return e;
        e.status = RLW_BAD_COUNT;
        if (!partial && e.number * (e.kind == 'm' ? 2 : 1) > left - at) return e;
        e.status = RLW_OVER_ITEMS;
        if (items + e.number > limits->items) return e;
    }
    e.status = RLW_OK;
    e.used = at;
    return e;
}

static void compare(const rlw_msgpack_value *v, const expected *e, const uint8_t *at) {
    uint64_t bits = 0;
    uint32_t half;
    float single;
    MUST(v->at == at);
    switch (v->kind) {
    case RLW_MSGPACK_NIL: MUST(e->kind == 'n'); break;
    case RLW_MSGPACK_BOOLEAN: MUST(e->kind == 'b' && (uint64_t)v->integer == e->number); break;
    case RLW_MSGPACK_INTEGER:
        memcpy(&bits, &v->integer, 8);
        MUST((e->kind == 'i' || (e->kind == 'u' && e->number >> 63 == 0)) && bits == e->number);
        break;
    case RLW_MSGPACK_UNSIGNED:
        MUST(e->kind == 'u' && e->number >> 63 == 1 && v->size == e->number);
        break;
    case RLW_MSGPACK_FLOAT32:
        half = (uint32_t)e->number;
        memcpy(&single, &half, 4);
        MUST(e->kind == 'f' && e->used == 5);
        MUST(v->real == (double)single || (v->real != v->real && single != single));
        break;
    case RLW_MSGPACK_FLOAT64:
        memcpy(&bits, &v->real, 8);
        MUST(e->kind == 'f' && e->used == 9 && bits == e->number);
        break;
    case RLW_MSGPACK_STRING:
        MUST(e->kind == 's' && v->data == e->data && v->size == e->number);
        touched += add_up(v->data, (size_t)v->size);
        break;
    case RLW_MSGPACK_BINARY:
        MUST(e->kind == 'y' && v->data == e->data && v->size == e->number);
        touched += add_up(v->data, (size_t)v->size);
        break;
    case RLW_MSGPACK_EXT:
        MUST(e->kind == 'x' && v->data == e->data && v->size == e->number && v->code == e->code);
        touched += add_up(v->data, (size_t)v->size);
        break;
    case RLW_MSGPACK_ARRAY: MUST(e->kind == 'a' && v->size == e->number); break;
    case RLW_MSGPACK_MAP: MUST(e->kind == 'm' && v->size == e->number); break;
    }
}

/* ---- what is written is the shortest form, and reads as the same ---- */

static void write_again(const rlw_msgpack_value *v, size_t used) {
    uint8_t room[32];
    rlw_writer w;
    rlw_msgpack_reader r;
    rlw_msgpack_value again;
    rlw_msgpack_limits none;
    uint8_t *copy;
    int64_t seconds = 0;
    uint32_t nanoseconds = 0;
    size_t size;
    memset(&none, 0xFF, sizeof none);
    rlw_writer_init(&w, room, sizeof room);
    switch (v->kind) {
    case RLW_MSGPACK_NIL: rlw_msgpack_put_nil(&w); break;
    case RLW_MSGPACK_BOOLEAN: rlw_msgpack_put_boolean(&w, (int)v->integer); break;
    case RLW_MSGPACK_INTEGER: rlw_msgpack_put_integer(&w, v->integer); break;
    case RLW_MSGPACK_UNSIGNED: rlw_msgpack_put_unsigned(&w, v->size); break;
    case RLW_MSGPACK_FLOAT32: rlw_msgpack_put_float32(&w, (float)v->real); break;
    case RLW_MSGPACK_FLOAT64: rlw_msgpack_put_float64(&w, v->real); break;
    case RLW_MSGPACK_STRING:
        rlw_msgpack_put_string(&w, (const char *)v->data, (uint32_t)v->size);
        break;
    case RLW_MSGPACK_BINARY: rlw_msgpack_put_binary(&w, v->data, (uint32_t)v->size); break;
    case RLW_MSGPACK_EXT:
        if (v->code == RLW_MSGPACK_TIMESTAMP &&
            rlw_msgpack_timestamp(v->data, v->size, &seconds, &nanoseconds)) {
            rlw_msgpack_put_timestamp(&w, seconds, nanoseconds);
        } else {
            rlw_msgpack_put_ext_head(&w, v->code, (uint32_t)v->size, (size_t)v->size);
            if (v->size) memcpy(w.at, v->data, (size_t)v->size);
            w.at += v->size;
        }
        break;
    case RLW_MSGPACK_ARRAY: rlw_msgpack_put_array_head(&w, (uint32_t)v->size); break;
    case RLW_MSGPACK_MAP: rlw_msgpack_put_map_head(&w, (uint32_t)v->size); break;
    }
    size = rlw_written(&w);
    MUST(size <= used);
    copy = exact(w.start, size);
    rlw_msgpack_reader_init(&r, copy, size, &none);
    r.partial = 1;
    MUST(rlw_msgpack_read(&r, &again) == RLW_OK && r.c.at == r.c.end && again.kind == v->kind);
    if (v->kind == RLW_MSGPACK_INTEGER) MUST(again.integer == v->integer);
    if (v->kind >= RLW_MSGPACK_ARRAY || v->kind == RLW_MSGPACK_UNSIGNED) MUST(again.size ==
          v->size);
    if (v->kind == RLW_MSGPACK_STRING || v->kind == RLW_MSGPACK_BINARY)
        MUST(again.size == v->size && memcmp(again.data, v->data, (size_t)v->size) == 0);
    if (v->kind == RLW_MSGPACK_EXT) {
        int64_t s = 0;
        uint32_t n = 0;
        MUST(again.code == v->code);
        if (v->code == RLW_MSGPACK_TIMESTAMP && rlw_msgpack_timestamp(v->data, v->size, &s, &n)) {
            MUST(rlw_msgpack_timestamp(again.data, again.size, &seconds, &nanoseconds));
            MUST(s == seconds && n == nanoseconds);
        } else {
            MUST(again.size == v->size && memcmp(again.data, v->data, (size_t)v->size) == 0);
        }
    }
    release(copy);
    rlw_writer_free(&w);
}

/* ---- marked maps: which, found by looking up each field from the map's beginning ---- */

/* The value of the last entry with that name; 0 when there is none or the map cannot be read. */
static int look_up(rlw_msgpack_reader r, uint64_t count, const char *name, rlw_msgpack_value *out) {
    rlw_msgpack_value key, v;
    int found = 0;
    while (count--) {
        if (rlw_msgpack_read(&r, &key) != RLW_OK || !rlw_msgpack_is_bytes(&key)) return 0;
        v.at = r.c.at;
        if (rlw_msgpack_skip(&r, 0) != RLW_OK) return 0;
        if (key.size == strlen(name) && memcmp(key.data, name, strlen(name)) == 0) {
            rlw_msgpack_reader back = r;
            back.c.at = v.at;
            back.items = 0;
            if (rlw_msgpack_read(&back, out) != RLW_OK) return 0;
            found = 1;
        }
    }
    return found;
}

static void check_marked(const rlw_msgpack_reader *before, const rlw_msgpack_value *map,
                         const rlw_msgpack_reader *after, const rlw_msgpack_marked *m,
                         rlw_status status) {
    rlw_msgpack_reader wide = *before;
    rlw_msgpack_value v;
    int nd, ndarray, scalar, complex_number;
    uint64_t total = 1;
    uint32_t i;
    memset(&wide.limits, 0xFF, sizeof wide.limits);
    wide.items = 0;
    nd = look_up(wide, map->size, "nd", &v) && v.kind == RLW_MSGPACK_BOOLEAN;
    ndarray = look_up(wide, map->size, "__ndarray__", &v) && v.kind == RLW_MSGPACK_BOOLEAN;
    scalar = look_up(wide, map->size, "__npgeneric__", &v) && v.kind == RLW_MSGPACK_BOOLEAN;
    complex_number = look_up(wide, map->size, "complex", &v) && v.kind == RLW_MSGPACK_BOOLEAN;
    if (status != RLW_OK) {
        MUST(m->mark != RLW_MSGPACK_UNMARKED);
        return;
    }
    if (m->mark == RLW_MSGPACK_UNMARKED) {
        MUST(after->c.at == before->c.at && after->items == before->items);
        return;
    }
    array_count++;
    MUST(nd + ndarray + scalar + complex_number == 1);
    MUST(map->size <= 8);
    { /* it stands behind the map */
        rlw_msgpack_reader r = wide;
        for (i = 0; i < 2 * map->size; i++) MUST(rlw_msgpack_skip(&r, 0) == RLW_OK);
        MUST(r.c.at == after->c.at);
    }
    MUST(look_up(wide, map->size, "data", &v) && v.at == m->field[RLW_MSGPACK_FIELD_DATA].at);
    if (m->mark == RLW_MSGPACK_NP_GENERIC) MUST(scalar && v.kind < RLW_MSGPACK_ARRAY);
    else MUST(rlw_msgpack_is_bytes(&v) && v.size == m->field[RLW_MSGPACK_FIELD_DATA].size);
    if (m->mark == RLW_MSGPACK_COMPLEX) {
        MUST(complex_number);
        return;
    }
    if (m->mark == RLW_MSGPACK_ND) {
        rlw_msgpack_value shape;
        rlw_msgpack_reader r = wide;
        MUST(nd || ndarray);
        MUST(look_up(wide, map->size, "shape", &shape) && shape.kind == RLW_MSGPACK_ARRAY);
        MUST(shape.size == m->dims && m->dims <= before->limits.dims);
        r.c.at = shape.at;
        MUST(rlw_msgpack_read(&r, &shape) == RLW_OK);
        for (i = 0; i < m->dims; i++) {
            rlw_msgpack_value d;
            MUST(rlw_msgpack_read(&r, &d) == RLW_OK && d.integer >= 0);
            MUST((uint64_t)d.integer == m->shape[i]);
            total *= m->shape[i]; /* may wrap only where another factor is 0 */
        }
        if (m->dtype.itemsize) MUST(v.size == total * m->dtype.itemsize);
    } else if (m->mark == RLW_MSGPACK_ND_SCALAR && m->dtype.itemsize) {
        MUST(nd && v.size == m->dtype.itemsize);
    }
}

/* ---- one message ---- */

static rlw_status feed_value(rlw_msgpack_reader *r, uint64_t depth) {
    rlw_msgpack_reader before = *r;
    rlw_msgpack_value v;
    rlw_msgpack_marked m;
    expected e = read_expected(r->c.at, rlw_left(&r->c), &r->limits, r->items, 0);
    rlw_status status = rlw_msgpack_read(r, &v);
    uint64_t i;
    MUST(status == e.status);
    if (status != RLW_OK) {
        MUST(r->c.at == before.c.at);
        return status;
    }
    MUST(r->c.at == before.c.at + e.used);
    compare(&v, &e, before.c.at);
    write_again(&v, e.used);
    if (v.kind < RLW_MSGPACK_ARRAY) return RLW_OK;
    if (depth >= r->limits.depth)
        return rlw_fail(&r->c, RLW_OVER_DEPTH, v.at, depth + 1, r->limits.depth);
    if (v.kind == RLW_MSGPACK_MAP) {
        before = *r;
        status = rlw_msgpack_read_marked(r, &v, depth + 1, &m);
        check_marked(&before, &v, r, &m, status);
        if (status != RLW_OK || m.mark != RLW_MSGPACK_UNMARKED) return status;
    }
    for (i = 0; i < (v.kind == RLW_MSGPACK_MAP ? 2 * v.size : v.size); i++) {
        status = feed_value(r, depth + 1);
        if (status != RLW_OK) return status;
    }
    return RLW_OK;
}

/* Passing over a value in one go, and in pieces that lie elsewhere each time. */
static void feed_scan(const uint8_t *bytes, size_t size, const rlw_msgpack_limits *limits) {
    rlw_msgpack_reader whole;
    rlw_msgpack_scan scan;
    rlw_status status, last;
    size_t have = 0, end;
    rlw_msgpack_reader_init(&whole, bytes, size, limits);
    whole.partial = 1;
    rlw_msgpack_scan_init(&scan);
    status = rlw_msgpack_scan_value(&whole, &scan);
    end = (size_t)(whole.c.at - bytes);
    MUST(status == RLW_OK ? end == scan.done && end > 0 : end == 0);
    rlw_msgpack_scan_init(&scan);
    do {
        rlw_msgpack_reader r;
        uint8_t *part;
        have += below(below(3) ? 5 : size + 2);
        if (have > size) have = size;
        part = exact(bytes, have);
        rlw_msgpack_reader_init(&r, part, have, limits);
        r.partial = 1;
        last = rlw_msgpack_scan_value(&r, &scan);
        if (last == RLW_OK) MUST((size_t)(r.c.at - part) == end);
        release(part);
    } while (last == RLW_NEED_MORE && have < size);
    MUST(last == status);
}

static rlw_status feed_message(const uint8_t *bytes, size_t size, const rlw_msgpack_limits
      *limits) {
    rlw_msgpack_reader r, skipped;
    rlw_status status, passed;
    feed_scan(bytes, size, limits);
    rlw_msgpack_reader_init(&skipped, bytes, size, limits);
    passed = rlw_msgpack_skip(&skipped, 0);
    rlw_msgpack_reader_init(&r, bytes, size, limits);
    status = feed_value(&r, 0);
    check_cursor(&r.c, bytes, size, status == RLW_OK ? r.c.fault.status : status);
    if (status == RLW_OK) {
        /* Both end at the same place; only within an array's fields the limits may differ. */
        if (passed == RLW_OK) MUST(skipped.c.at == r.c.at && skipped.items == r.items);
        whole_count++;
        if (r.c.at != r.c.end)
            return rlw_fail(&r.c, RLW_TRAILING, r.c.at, rlw_left(&r.c), 0);
    } else if (status < RLW_BAD_DTYPE && status != RLW_OK) {
        MUST(passed != RLW_OK);
    }
    return status;
}

/* ---- mutations that know values ---- */

static void edit_value(size_t at) {
    static const uint8_t heads[][9] = {
        {0xDD, 0xFF, 0xFF, 0xFF, 0xFF}, {0xDF, 0x80, 0, 0, 0},    {0xC6, 0xFF, 0xFF, 0xFF, 0xFF},
        {0xDB, 0, 1, 0, 0},             {0xC9, 0xFF, 0, 0, 0, 1}, {0xCF, 0x80, 0, 0, 0, 0, 0, 0, 1},
        {0xD3, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0},               {0xD8, 1},
        {0xD7, 0xFF, 0xFF, 0xFF},       {0xDC, 0, 3},             {0xDE, 0, 2},
    };
    static const uint8_t sizes[] = {5, 5, 5, 5, 6, 9, 9, 2, 4, 3, 3};
    size_t i = below(sizeof sizes);
    if (at < input_size) replace(at, 1 + below(2), heads[i], sizes[i]);
}

static void mutate(const sample *from) {
    static const uint8_t odd_bytes[] = {0,    1,    0x7F, 0x80, 0x81, 0x85, 0x8F, 0x90, 0x9F, 0xA0,
                                        0xBF, 0xC0, 0xC1, 0xC2, 0xC3, 0xC4, 0xCA, 0xCF, 0xD4, 0xD8,
                                        0xD9, 0xDC, 0xDF, 0xE0, 0xFF, '|',  'O',  '<',  '>',  'V'};
    size_t at = some_mark(from, 0);
    switch (below(8)) {
    case 0: edit_value(at); break;
    case 1: /* a count, a size, a small number */
        if (at < input_size) input[at] = (uint8_t)(input[at] + below(3) - 1);
        break;
    case 2: /* a byte of a text or a number */
        at = some_mark(from, 1 + below(4));
        if (at < input_size) input[at] = odd_bytes[below(sizeof odd_bytes)];
        break;
    case 3: /* one level more */
        if (at < input_size) replace(at, 0, (const uint8_t *)"\x91", 1);
        break;
    default: mutate_bytes(odd_bytes, sizeof odd_bytes); break;
    }
}

static rlw_msgpack_limits some_limits(void) {
    rlw_msgpack_limits limits;
    memset(&limits, 0xFF, sizeof limits);
    limits.depth = 64;
    limits.dims = RLW_MSGPACK_DIMS;
    limits.items = UINT64_C(1) << 40;
    switch (below(16)) {
    case 0: limits.depth = below(4); break;
    case 1: limits.items = below(30); break;
    case 2: limits.string = below(40); break;
    case 3: limits.binary = limits.ext = below(40); break;
    case 4: limits.array = limits.map = below(20); break;
    case 5: limits.dims = below(3); break;
    }
    return limits;
}

static rlw_status feed_one(const sample *from) {
    size_t edits = below(16) ? 1 + below(4) : 0;
    rlw_msgpack_limits limits = some_limits();
    rlw_status status;
    uint8_t *bytes;
    begin_with(from);
    while (edits--) mutate(from);
    bytes = take_input();
    status = feed_message(bytes, input_size, &limits);
    release(bytes);
    return status;
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    rlw_msgpack_limits limits;
    rlw_status status;
    memset(&limits, 0xFF, sizeof limits);
    limits.depth = 64;
    limits.items = UINT64_C(1) << 40;
    status = feed_message(bytes, size, &limits);
    if (size == s->size) MUST(status == RLW_OK || status == RLW_BAD_PICKLE);
    else MUST(status == RLW_NEED_MORE || status == RLW_BAD_COUNT);
    array_count = 0;
}

static void mark_sample(sample *s) {
    rlw_msgpack_reader r;
    rlw_msgpack_limits limits;
    rlw_msgpack_value v;
    memset(&limits, 0xFF, sizeof limits);
    rlw_msgpack_reader_init(&r, s->data, s->size, &limits);
    while (r.c.at < r.c.end) {
        mark(s, (size_t)(r.c.at - s->data));
        MUST(rlw_msgpack_read(&r, &v) == RLW_OK);
    }
}

int main(int argc, char **argv) {
    static const rlw_status reaches[] = {
        RLW_OK,            RLW_NEED_MORE,  RLW_BAD_TYPE,     RLW_BAD_COUNT,   RLW_BAD_SHAPE,
        RLW_BAD_SIZE,      RLW_BAD_DIMENSION, RLW_BAD_PICKLE, RLW_TRAILING,   RLW_OVER_MESSAGE,
        RLW_OVER_DEPTH,    RLW_OVER_ITEMS, RLW_OVER_DIMS,    RLW_OVER_STRING,
    };
    static const fuzz_driver driver = {
        "fuzz_msgpack", mark_sample, feed_prefix, feed_one, reaches,
        sizeof reaches / sizeof *reaches, "arrays", &array_count,
    };
    return fuzz_main(argc, argv, &driver);
}
