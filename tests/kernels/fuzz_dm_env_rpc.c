/* Mutates dm_env_rpc's Tensor messages and feeds them to the kernels; fuzz.h tells how it is run.
 * What must come out, protobuf says in tests/codecs/dm_env_rpc; here it is written and read again. */
#include "fuzz.h"

static uint64_t pieces_count; /* tensors in more pieces than one */

/* ---- the kernels ---- */

static void write_again(const rlw_tensor *t, const uint8_t *out) {
    static rlw_writer w; /* keeps its memory from message to message */
    size_t size = (size_t)t->count * rlw_tensor_itemsize(t->kind), i;
    uint8_t *bytes, *back;
    rlw_tensor again;
    rlw_cursor c;
    rlw_status status;
    w.at = w.start;
    status = rlw_put_tensor(&w, t->kind, out, (size_t)t->count, t->shape, t->dims);
    if (status == RLW_BAD_SHAPE) { /* an inferred dimension is larger than an int32 */
        for (i = 0; i < t->dims && t->shape[i] <= INT32_MAX; i++) continue;
        MUST(i < t->dims);
        return;
    }
    MUST(status == RLW_OK);
    bytes = exact(w.start, rlw_written(&w));
    rlw_cursor_init(&c, bytes, rlw_written(&w));
    MUST(rlw_tensor_read(&c, 32, &again) == RLW_OK && rlw_tensor_infer(&c, &again) == RLW_OK);
    MUST(again.kind == t->kind && again.count == t->count && again.dims == t->dims);
    MUST(again.segments == (t->count ? 1 : again.segments) && again.total == t->total);
    for (i = 0; i < t->dims; i++) MUST(again.shape[i] == t->shape[i]);
    back = (uint8_t *)memory(size);
    MUST(rlw_tensor_decode(&c, &again, back) == RLW_OK);
    if (size) MUST(memcmp(back, out, size) == 0);
    free(back);
    release(bytes);
}

/* Of floats, NaN is not itself, and both zeros are: those are compared in tests/codecs. */
static void compare_elements(const rlw_tensor *t, const uint8_t *out) {
    const size_t size = rlw_tensor_itemsize(t->kind);
    int same = 1;
    size_t i;
    for (i = 1; i < t->count; i++) same &= memcmp(out, out + i * size, size) == 0;
    if (t->count && t->kind > RLW_TENSOR_DOUBLE)
        MUST(rlw_tensor_all_equal(t->kind, out, (size_t)t->count) == same);
}

static rlw_status read_items(rlw_cursor *c, const rlw_tensor *t) {
    rlw_tensor_items items;
    const uint8_t *data = NULL;
    size_t size = 0, seen = 0;
    rlw_any any;
    rlw_tensor_items_init(&items, t);
    while (rlw_tensor_next(&items, &data, &size)) {
        seen++;
        touched += add_up(data, size);
        if (t->kind == RLW_TENSOR_PROTO) {
            rlw_cursor one;
            rlw_cursor_init(&one, data, size);
            if (rlw_any_read(&one, &any) != RLW_OK) {
                c->fault = one.fault;
                return c->fault.status;
            }
            MUST(any.url >= data && any.url + any.url_size <= data + size);
            MUST(any.value >= data && any.value + any.value_size <= data + size);
        } else if (rlw_utf8_check(data, size) == size) {
            size_t length = rlw_utf8_length(data, size);
            uint32_t *text = (uint32_t *)memory(4 * length);
            uint8_t *utf8 = (uint8_t *)memory(size);
            MUST(rlw_utf8_to_ucs4(data, size, text, length) == length);
            MUST(rlw_ucs4_size(text, length) == size);
            MUST(rlw_ucs4_to_utf8(utf8, utf8 + size, text, length) == utf8 + size);
            if (size) MUST(memcmp(utf8, data, size) == 0);
            free(utf8);
            free(text);
        } else {
            size_t room = below(size + 1);
            uint32_t *text = (uint32_t *)memory(4 * room);
            MUST(rlw_utf8_to_ucs4(data, size, text, room) <= room);
            free(text);
            return rlw_fail(c, RLW_BAD_TEXT, data, 0, 0);
        }
    }
    MUST(seen == t->count);
    return RLW_OK;
}

static rlw_status feed_tensor(const uint8_t *data, size_t size, uint32_t dims_limit) {
    rlw_tensor t;
    rlw_cursor c;
    rlw_status status;
    uint8_t *out;
    rlw_cursor_init(&c, data, size);
    status = rlw_tensor_read(&c, dims_limit, &t);
    check_cursor(&c, data, size, status);
    if (status != RLW_OK) return status;
    MUST(c.at == c.end && t.kind <= RLW_TENSOR_PROTO && t.dims <= dims_limit);
    status = rlw_tensor_infer(&c, &t);
    check_cursor(&c, data, size, status);
    if (status != RLW_OK) return status;
    if (t.segments > 1) pieces_count++;
    if (t.kind >= RLW_TENSOR_STRING) {
        status = read_items(&c, &t);
    } else {
        MUST(t.count <= size);
        out = (uint8_t *)memory((size_t)t.count * rlw_tensor_itemsize(t.kind));
        status = rlw_tensor_decode(&c, &t, out);
        check_cursor(&c, data, size, status);
        MUST(status == RLW_OK || status == RLW_BAD_VARINT || status == RLW_BAD_ELEMENTS);
        if (status == RLW_OK) {
            write_again(&t, out);
            compare_elements(&t, out);
        }
        free(out);
    }
    if (status == RLW_OK) whole_count++;
    return status;
}

/* Any bytes as a packed array of varints: each way of reading them gives the same, and writing
 * gives them back where they are as short as can be. */
static void feed_varints(const uint8_t *data, size_t size) {
    size_t count = rlw_varints_count(data, size), want = count + (below(8) ? 0 : below(3)), n;
    uint64_t *wide = (uint64_t *)memory(8 * want), *plain = (uint64_t *)memory(8 * want);
    uint32_t *narrow = (uint32_t *)memory(4 * want);
    uint8_t *flags = (uint8_t *)memory(want);
    const uint8_t *end = rlw_varints_unpack_u64(data, size, wide, want);
    MUST(rlw_varints_count_portable(data, size) == count);
    MUST(rlw_varints_unpack_u64_portable(data, data + size, plain, plain + want) == end);
    MUST(rlw_varints_unpack_u32(data, size, narrow, want) == end);
    MUST(rlw_varints_unpack_bool(data, size, flags, want) == end);
    MUST(end == NULL || (end >= data && end <= data + size));
    if (end == data + size) {
        rlw_cursor c;
        uint64_t value = 0, bytes;
        uint8_t *packed;
        rlw_cursor_init(&c, data, size);
        for (n = 0; n < want; n++) {
            MUST(rlw_take_varint(&c, &value) == RLW_OK && wide[n] == value && plain[n] == value);
            MUST(narrow[n] == (uint32_t)value && flags[n] == (value != 0));
        }
        bytes = rlw_varints_size_u64(wide, want);
        MUST(bytes <= size && bytes == rlw_varints_size_u64_portable(wide, want));
        packed = (uint8_t *)memory((size_t)bytes);
        MUST(rlw_varints_pack_u64(packed, packed + bytes, wide, want) == packed + bytes);
        MUST(rlw_varints_unpack_u64(packed, (size_t)bytes, plain, want) == packed + bytes);
        if (want) MUST(memcmp(plain, wide, 8 * want) == 0);
        /* Less room than they take: not one byte more. */
        n = below((size_t)bytes + 1);
        MUST(rlw_varints_pack_u32(packed, packed + n, narrow, want) <= packed + n);
        MUST(rlw_varints_pack_i32(packed, packed + n, (const int32_t *)narrow, want) <= packed + n);
        free(packed);
    }
    free(flags);
    free(narrow);
    free(plain);
    free(wide);
}

/* ---- mutations that know protobuf ---- */

static uint64_t odd_number(void) {
    static const uint64_t odd[] = {
        0,          1,          2,          127,         128,        255,        300,
        16383,      16384,      65535,      65536,       1u << 20,   0x7FFFFFFF, 0x80000000,
        0xFFFFFFFF, UINT64_C(1) << 32, UINT64_C(1) << 40, UINT64_C(0x7FFFFFFFFFFFFFFF),
        UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX - 1, UINT64_C(0xFFFFFFFF80000000),
    };
    return odd[below(sizeof odd / sizeof *odd)];
}

static void put_number(size_t at, size_t cut, uint64_t value) {
    uint8_t bytes[RLW_VARINT_ROOM + 1];
    size_t size = (size_t)(rlw_store_varint(bytes, value) - bytes);
    if (!below(16) && size < RLW_VARINT_ROOM) { /* longer than it need be */
        bytes[size - 1] |= 0x80;
        bytes[size++] = 0;
    }
    replace(at, cut, bytes, size);
}

static void edit_number(size_t at) {
    size_t cut = 0;
    uint64_t value = 0;
    rlw_cursor c;
    if (at < input_size) {
        rlw_cursor_init(&c, input + at, input_size - at);
        if (rlw_take_varint(&c, &value) == RLW_OK) cut = (size_t)(c.at - input) - at;
    }
    put_number(at, cut, below(2) ? value + below(5) - 2 : odd_number());
}

static void add_field(size_t at) {
    uint32_t number = below(4) ? 1 + (uint32_t)below(16) : (uint32_t)odd_number() >> 3;
    uint32_t wire = (uint32_t)below(6);
    uint8_t bytes[8] = {0};
    size_t size = below(9);
    put_number(at, 0, (uint64_t)number << 3 | wire);
    at += rlw_varint_size((uint64_t)number << 3);
    if (wire == RLW_WIRE_VARINT) put_number(at, 0, odd_number());
    if (wire == RLW_WIRE_FIXED64) replace(at, 0, bytes, 8);
    if (wire == RLW_WIRE_FIXED32) replace(at, 0, bytes, 4);
    if (wire == RLW_WIRE_GROUP) put_number(at, 0, (uint64_t)number << 3 | RLW_WIRE_END_GROUP);
    if (wire == RLW_WIRE_BYTES) {
        put_number(at, 0, size);
        replace(at + 1, 0, bytes, size);
    }
}

static void open_groups(size_t at) {
    static const uint8_t open[2] = {0x83, 0x01}; /* of field 16 */
    size_t levels = 1 + below(below(8) ? 6 : 150);
    while (levels--) replace(at, 0, open, 2);
}

static void put_shape(void) { /* another one, after the one that is there */
    uint8_t bytes[64 * RLW_VARINT_ROOM];
    uint8_t *to = bytes;
    size_t dims = below(below(8) ? 4 : 40);
    while (dims--) to = rlw_store_varint(to, below(2) ? below(6) : odd_number());
    put_number(input_size, 0, RLW_TENSOR_SHAPE_FIELD << 3 | RLW_WIRE_BYTES);
    put_number(input_size, 0, (uint64_t)(to - bytes));
    replace(input_size, 0, bytes, (size_t)(to - bytes));
}

static void mutate(void) {
    static const uint8_t odd_bytes[] = {0,    1,    2,    3,    5,    0x08, 0x0A, 0x0B, 0x0C, 0x0D,
                                        0x12, 0x22, 0x4A, 0x52, 0x5A, 0x78, 0x7A, 0x7F, 0x80, 0x81,
                                        0xC0, 0xED, 0xF4, 0xFF};
    size_t mark = some_mark(0), at = below(2) ? mark : below(input_size + 1);
    uint8_t byte;
    switch (below(12)) {
    case 0:
    case 1: edit_number(mark); break;
    case 2: edit_number(at); break;
    case 3: add_field(at); break;
    case 4: add_field(input_size); break;
    case 5: open_groups(at); break;
    case 6: put_shape(); break;
    case 7: /* a oneof: the same elements as another type */
        byte = (uint8_t)((1 + below(11)) << 3 | RLW_WIRE_BYTES);
        replace(0, 1, &byte, 1);
        break;
    default: mutate_bytes(odd_bytes, sizeof odd_bytes); break;
    }
}

static rlw_status feed(const uint8_t *bytes, size_t size) {
    size_t begin = below(size + 1);
    feed_varints(bytes + begin, size - begin);
    return feed_tensor(bytes, size, below(4) ? 32 : (uint32_t)below(4));
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    rlw_status status = feed_tensor(bytes, size, 32);
    feed_varints(bytes, size);
    if (size == s->size) MUST(status == RLW_OK);
}

static void mark_sample(sample *s) {
    rlw_cursor c;
    rlw_field f;
    rlw_cursor_init(&c, s->data, s->size);
    while (c.at < c.end) {
        mark(s, (size_t)(c.at - s->data));
        mark(s, (size_t)(c.at - s->data) + 1);
        MUST(rlw_take_field(&c, &f) == RLW_OK);
        if (f.wire != RLW_WIRE_BYTES) continue;
        mark(s, (size_t)(f.data - s->data));
        mark(s, (size_t)(f.data - s->data) + 1);
        mark(s, (size_t)(f.data - s->data) + 2);
    }
}

FUZZ_MAIN("fuzz_dm_env_rpc", "in_pieces", pieces_count, RLW_OK, RLW_NEED_MORE, RLW_BAD_TEXT,
          RLW_BAD_SHAPE, RLW_BAD_VARINT, RLW_BAD_TAG, RLW_BAD_PACKED, RLW_BAD_PAYLOAD,
          RLW_BAD_UNKNOWN, RLW_BAD_ELEMENTS, RLW_OVER_DEPTH, RLW_OVER_DIMS)
