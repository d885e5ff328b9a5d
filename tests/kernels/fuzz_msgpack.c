/* Mutates msgpack messages and feeds them to the kernels; fuzz.h tells how it is run. */
#include "fuzz.h"

static uint64_t array_count; /* maps that were arrays or scalars */

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
    if (v->kind >= RLW_MSGPACK_ARRAY && v->size) { /* its values are missing */
        MUST(rlw_msgpack_read(&r, &again) == RLW_BAD_COUNT && r.c.fault.got == v->size);
        release(copy);
        rlw_writer_free(&w);
        return;
    }
    MUST(rlw_msgpack_read(&r, &again) == RLW_OK && r.c.at == r.c.end && again.kind == v->kind);
    if (v->kind == RLW_MSGPACK_INTEGER) MUST(again.integer == v->integer);
    if (v->kind == RLW_MSGPACK_UNSIGNED) MUST(again.size == v->size);
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
    rlw_status status = rlw_msgpack_read(r, &v);
    uint64_t i;
    if (status != RLW_OK) {
        MUST(r->c.at == before.c.at);
        return status;
    }
    MUST(v.at == before.c.at && r->c.at > v.at && r->c.at <= r->c.end);
    if (v.kind == RLW_MSGPACK_STRING || v.kind == RLW_MSGPACK_BINARY || v.kind == RLW_MSGPACK_EXT)
        touched += add_up(v.data, (size_t)v.size);
    write_again(&v, (size_t)(r->c.at - v.at));
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

static rlw_status feed_message(const uint8_t *bytes, size_t size, const rlw_msgpack_limits
      *limits) {
    rlw_msgpack_reader r, skipped;
    rlw_status status, passed;
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

static void mutate(void) {
    static const uint8_t odd_bytes[] = {0,    1,    0x7F, 0x80, 0x81, 0x85, 0x8F, 0x90, 0x9F, 0xA0,
                                        0xBF, 0xC0, 0xC1, 0xC2, 0xC3, 0xC4, 0xCA, 0xCF, 0xD4, 0xD8,
                                        0xD9, 0xDC, 0xDF, 0xE0, 0xFF, '|',  'O',  '<',  '>',  'V'};
    size_t at = some_mark(0);
    switch (below(8)) {
    case 0: edit_value(at); break;
    case 1: /* a count, a size, a small number */
        if (at < input_size) input[at] = (uint8_t)(input[at] + below(3) - 1);
        break;
    case 2: /* a byte of a text or a number */
        at = some_mark(1 + below(4));
        if (at < input_size) input[at] = odd_bytes[below(sizeof odd_bytes)];
        break;
    case 3: /* one level more */
        if (at < input_size) replace(at, 0, (const uint8_t *)"\x91", 1);
        break;
    default: mutate_bytes(odd_bytes, sizeof odd_bytes); break;
    }
}

static rlw_msgpack_limits wide_limits(void) {
    rlw_msgpack_limits limits;
    memset(&limits, 0xFF, sizeof limits);
    limits.depth = 64;
    limits.dims = RLW_MSGPACK_DIMS;
    limits.items = UINT64_C(1) << 40;
    return limits;
}

static rlw_status feed(const uint8_t *bytes, size_t size) {
    rlw_msgpack_limits limits = wide_limits();
    switch (below(16)) {
    case 0: limits.depth = below(4); break;
    case 1: limits.items = below(30); break;
    case 2: limits.string = below(40); break;
    case 3: limits.binary = limits.ext = below(40); break;
    case 4: limits.array = limits.map = below(20); break;
    case 5: limits.dims = below(3); break;
    }
    return feed_message(bytes, size, &limits);
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    const rlw_msgpack_limits limits = wide_limits();
    rlw_status status = feed_message(bytes, size, &limits);
    if (size == s->size) MUST(status == RLW_OK || status == RLW_BAD_PICKLE);
    else MUST(status == RLW_NEED_MORE || status == RLW_BAD_COUNT);
}

static void mark_sample(sample *s) {
    const rlw_msgpack_limits limits = wide_limits();
    rlw_msgpack_reader r;
    rlw_msgpack_value v;
    rlw_msgpack_reader_init(&r, s->data, s->size, &limits);
    while (r.c.at < r.c.end) {
        mark(s, (size_t)(r.c.at - s->data));
        MUST(rlw_msgpack_read(&r, &v) == RLW_OK);
    }
}

FUZZ_MAIN("fuzz_msgpack", "arrays", array_count, RLW_OK, RLW_NEED_MORE, RLW_BAD_TYPE,
          RLW_BAD_COUNT, RLW_BAD_SHAPE, RLW_BAD_SIZE, RLW_BAD_DIMENSION, RLW_BAD_PICKLE,
          RLW_TRAILING, RLW_OVER_MESSAGE, RLW_OVER_DEPTH, RLW_OVER_ITEMS, RLW_OVER_DIMS,
          RLW_OVER_STRING)
