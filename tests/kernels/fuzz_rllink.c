/* Mutates frames of RLlink and feeds them to the kernels; fuzz.h tells how it is run. */
#include "fuzz.h"

static uint64_t tensor_count;

static rlw_status feed_tensors(const rlw_rllink_message *m, const rlw_msgpack_limits *limits) {
    rlw_rllink_tensors tensors;
    rlw_rllink_tensor t;
    rlw_status status;
    const uint8_t *end = m->state.at + m->state_size;
    int found;
    rlw_rllink_tensors_init(&tensors, m, limits);
    for (;;) {
        status = rlw_rllink_next_tensor(&tensors, &t, &found);
        /* All bytes have been looked at before; what is left is what an array must be. */
        MUST(status == RLW_OK || status == RLW_BAD_SHAPE || status == RLW_BAD_SIZE ||
             status == RLW_BAD_DIMENSION || status == RLW_BAD_PICKLE || status == RLW_OVER_DIMS ||
             (status == RLW_OVER_DEPTH && tensors.level == RLW_RLLINK_DEEPEST));
        if (status != RLW_OK || !found) return status;
        tensor_count++;
        MUST(t.count == 0 || (t.data >= m->state.at &&
                              t.count <= (uint64_t)(end - t.data) / t.dtype.itemsize));
        touched += add_up(t.data, (size_t)t.count * t.dtype.itemsize);
        MUST(t.name.kind != RLW_MSGPACK_BINARY || t.name.data + t.name.size <= end);
        if (t.count) {
            float *out = (float *)memory((size_t)t.count * sizeof *out);
            int is_float = t.dtype.kind == 'f' && (t.dtype.itemsize == 4 || t.dtype.itemsize == 8);
            MUST(rlw_rllink_floats(&t, out, t.count) == is_float);
            MUST(!rlw_rllink_floats(&t, out, t.count - 1));
            free(out);
        }
    }
}

static rlw_status feed_body(const uint8_t *body, size_t size, const rlw_msgpack_limits *limits) {
    rlw_rllink_message m;
    rlw_msgpack_reader whole;
    rlw_cursor c;
    uint8_t *alone = exact(body, size);
    rlw_status status = rlw_rllink_read(&c, alone, size, limits, &m), scanned;
    check_cursor(&c, alone, size, status);
    rlw_msgpack_reader_init(&whole, alone, size, limits);
    scanned = rlw_msgpack_skip(&whole, 0);
    /* A message is one whole value; and what is no whole value is no message. */
    if (status == RLW_OK || status == RLW_BAD_WORD) MUST(scanned == RLW_OK);
    if (status == RLW_OK) {
        MUST(whole.c.at == alone + size && m.kind <= RLW_RLLINK_SET_STATE);
        if (m.config.kind != RLW_MSGPACK_NIL)
            touched += add_up(m.config.data, (size_t)m.config.size);
        MUST(m.steps.kind == RLW_MSGPACK_NIL || m.steps.integer > 0);
        MUST(m.number >= 0 && m.state_size <= size);
        whole_count++;
        status = feed_tensors(&m, limits);
    }
    release(alone);
    return status;
}

static rlw_status feed_stream(const uint8_t *bytes, size_t size, uint64_t most,
                              const rlw_msgpack_limits *limits) {
    rlw_cursor c;
    rlw_cursor_init(&c, bytes, size);
    do {
        const uint8_t *body = NULL, *start = c.at;
        size_t length = 0;
        rlw_status status = rlw_rllink_read_frame(&c, most, &body, &length);
        if (status != RLW_OK) {
            check_cursor(&c, bytes, size, status);
            MUST(c.at == start);
            return status;
        }
        MUST(body == start + RLW_RLLINK_HEAD && c.at == body + length && length <= most);
        status = feed_body(body, length, limits);
        if (status != RLW_OK) return status;
    } while (c.at < c.end);
    return RLW_OK;
}

/* Eight digits that fit what stands behind them, so that mutations reach it. */
static void mend_length(void) {
    size_t length = input_size - RLW_RLLINK_HEAD;
    int i;
    if (input_size <= RLW_RLLINK_HEAD) return;
    for (i = RLW_RLLINK_HEAD - 1; i >= 0; i--, length /= 10)
        input[i] = (uint8_t)('0' + length % 10);
}

static void mutate(void) {
    static const uint8_t odd_bytes[] = {0x00, 0x7F, 0x80, 0x81, 0x8F, 0x90, 0x91, 0x9F, 0xA0, 0xBF,
                                        0xC0, 0xC1, 0xC3, 0xC4, 0xC6, 0xCB, 0xCF, 0xD9, 0xDD, 0xDF,
                                        '0',  '9',  '/',  ':',  'O',  '<',  '>',  0xFF};
    size_t at = some_mark(0);
    switch (below(9)) {
    case 0: /* a digit of the length */
        at = below(RLW_RLLINK_HEAD);
        if (at < input_size) input[at] = (uint8_t)('0' + below(11));
        if (below(8) == 0) replace(0, RLW_RLLINK_HEAD, (const uint8_t *)"00000000", 8);
        break;
    case 1:
    case 2: /* a type byte, with a count or size in it */
        if (at < input_size) input[at] = odd_bytes[below(sizeof odd_bytes)];
        break;
    case 3: /* a count, a size, a small number */
        if (at < input_size) input[at] = (uint8_t)(input[at] + below(3) - 1);
        break;
    case 4: /* a byte of a text or a number */
        at = some_mark(1 + below(4));
        if (at < input_size) input[at] = odd_bytes[below(sizeof odd_bytes)];
        break;
    case 5: /* levels more */
        for (size_t levels = 1 + below(below(4) ? 2 : 30); levels; levels--)
            replace(at, 0, (const uint8_t *)"\x81\xA1" "x", 3);
        break;
    case 6: /* another dtype, a negative number */
        if (at < input_size && input[at] == 0xA3) replace(at, 4, (const uint8_t *)"\xA2|O", 3);
        else if (at < input_size && input[at] < 0x80) input[at] = 0xFF;
        break;
    default: mutate_bytes(odd_bytes, sizeof odd_bytes); break;
    }
    if (below(8)) mend_length();
}

static rlw_status feed(const uint8_t *bytes, size_t size) {
    static const rlw_msgpack_limits usual = RLW_RLLINK_DEFAULT_LIMITS;
    rlw_msgpack_limits limits = usual;
    switch (below(16)) {
    case 0: limits.depth = below(6); break;
    case 1: limits.items = below(60); break;
    case 2: limits.string = below(30); break;
    case 3: limits.binary = below(60); break;
    case 4: limits.dims = below(3); break;
    }
    return feed_stream(bytes, size, below(16) ? RLW_RLLINK_MOST : below(200), &limits);
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    static const rlw_msgpack_limits limits = RLW_RLLINK_DEFAULT_LIMITS;
    rlw_status status = feed_stream(bytes, size, RLW_RLLINK_MOST, &limits);
    MUST(status == (size == s->size ? RLW_OK : RLW_NEED_MORE));
    if (size > RLW_RLLINK_HEAD && size < s->size) { /* the same, as if it ended there */
        status = feed_body(bytes + RLW_RLLINK_HEAD, size - RLW_RLLINK_HEAD, &limits);
        MUST(status == RLW_NEED_MORE || status == RLW_BAD_COUNT);
    }
}

static void mark_sample(sample *s) {
    static const rlw_msgpack_limits limits = RLW_RLLINK_DEFAULT_LIMITS;
    rlw_msgpack_reader r;
    rlw_msgpack_value v;
    rlw_msgpack_reader_init(&r, s->data + RLW_RLLINK_HEAD, s->size - RLW_RLLINK_HEAD, &limits);
    while (r.c.at < r.c.end) {
        mark(s, (size_t)(r.c.at - s->data));
        MUST(rlw_msgpack_read(&r, &v) == RLW_OK);
    }
}

FUZZ_MAIN("fuzz_rllink", "tensors", tensor_count, RLW_OK, RLW_NEED_MORE, RLW_BAD_TYPE,
          RLW_BAD_COUNT, RLW_BAD_SHAPE, RLW_BAD_SIZE, RLW_BAD_WIRE, RLW_BAD_EMPTY,
          RLW_BAD_CHARACTER, RLW_BAD_WORD, RLW_BAD_INTEGER, RLW_BAD_DIMENSION, RLW_BAD_PICKLE,
          RLW_TRAILING, RLW_OVER_MESSAGE, RLW_OVER_DEPTH, RLW_OVER_ITEMS, RLW_OVER_DIMS,
          RLW_OVER_STRING, RLW_OVER_FRAME)
