/* dm_env_rpc's Tensor message (dm_env_rpc.proto, version 1): from bytes and to bytes.
 *
 * Reading: rlw_tensor_read() finds the payload and checks the fields around it, rlw_tensor_infer()
 * settles the shape, then the caller makes room and rlw_tensor_decode() fills it with numbers;
 * rlw_tensor_next() gives strings and messages one by one. Writing: rlw_put_tensor(), or the three
 * functions below it for callers with a buffer.
 */
#ifndef RLWIRE_DM_ENV_RPC_H
#define RLWIRE_DM_ENV_RPC_H

#include "protobuf.h"
#include "varint.h"
#include "writer.h"

#define RLW_TENSOR_DIMS 32
#define RLW_TENSOR_SHAPE_FIELD 15
#define RLW_TENSOR_VALUE_OFFSET 8 /* of TensorSpec.Value's field numbers from Tensor's */

/* The numbers of the enum DataType, which are those of Tensor's payload fields too. */
typedef enum rlw_tensor_kind {
    RLW_TENSOR_NONE = 0,
    RLW_TENSOR_FLOAT = 1,
    RLW_TENSOR_DOUBLE = 2,
    RLW_TENSOR_INT8 = 3,
    RLW_TENSOR_INT32 = 4,
    RLW_TENSOR_INT64 = 5,
    RLW_TENSOR_UINT8 = 6,
    RLW_TENSOR_UINT32 = 7,
    RLW_TENSOR_UINT64 = 8,
    RLW_TENSOR_BOOL = 9,
    RLW_TENSOR_STRING = 10,
    RLW_TENSOR_PROTO = 11
} rlw_tensor_kind;

/* Bytes of one element in memory; 0 for strings and messages. A boolean is one byte, 0 or 1. */
static inline uint32_t rlw_tensor_itemsize(uint32_t kind) {
    static const uint8_t sizes[] = {0, 4, 8, 1, 4, 8, 1, 4, 8, 1, 0, 0};
    return kind < sizeof sizes ? sizes[kind] : 0;
}

/* 1 where the elements on the wire are those in a little-endian host's memory. Of booleans that
 * holds as long as rlw_bools_are_plain(). */
static inline int rlw_tensor_is_memory(uint32_t kind) {
    return kind == RLW_TENSOR_FLOAT || kind == RLW_TENSOR_DOUBLE || kind == RLW_TENSOR_INT8 ||
           kind == RLW_TENSOR_UINT8 || kind == RLW_TENSOR_BOOL;
}

/* ---- from bytes ---- */

typedef struct rlw_tensor {
    uint32_t kind; /* an rlw_tensor_kind; NONE: no payload is set */
    uint32_t dims;
    int64_t shape[RLW_TENSOR_DIMS]; /* as sent, after rlw_tensor_infer() as meant */
    uint64_t count;    /* elements on the wire */
    uint64_t total;    /* elements of the shape; more than `count` when one stands for all */
    uint32_t segments; /* pieces that the elements are in: one packed array, one unpacked element */
    const uint8_t *data; /* the first piece; of strings and messages, the first item */
    size_t size;
    uint32_t field;          /* number of the payload's field */
    const uint8_t *at;       /* fields from here on are the payload's, or unknown, or the shape's */
    const uint8_t *end;
    const uint8_t *shape_at; /* for faults */
} rlw_tensor;

/* Walks over the elements of a payload, however many fields they are spread over. */
typedef struct rlw_tensor_items {
    rlw_cursor outer;
    rlw_cursor inner;
    uint32_t field;
} rlw_tensor_items;

/* The next field 1 of a payload sub-message: *found 0 at the end. A packed array, an unpacked
 * element, a string or a message: in each case `size` bytes at `data`. */
static inline rlw_status rlw_tensor_piece(rlw_cursor *c, uint32_t kind, int *found,
                                          const uint8_t **data, size_t *size) {
    uint32_t unpacked = kind == RLW_TENSOR_FLOAT    ? RLW_WIRE_FIXED32
                        : kind == RLW_TENSOR_DOUBLE ? RLW_WIRE_FIXED64
                                                    : RLW_WIRE_VARINT;
    rlw_field f = RLW_NO_FIELD;
    *found = 0;
    while (c->at < c->end) {
        const uint8_t *value;
        if (rlw_take_tag(c, &f) != RLW_OK) return c->fault.status;
        value = c->at;
        if (f.wire == RLW_WIRE_GROUP) {
            if (f.number == 1) return rlw_expect_wire(c, &f, RLW_WIRE_BYTES);
            if (rlw_skip_group(c, &f) != RLW_OK) return c->fault.status;
            continue;
        }
        if (rlw_take_field_value(c, &f) != RLW_OK) return c->fault.status;
        if (f.number != 1) continue;
        if (f.wire == RLW_WIRE_BYTES) {
            *data = f.data;
            *size = f.size;
        } else if (f.wire == unpacked && kind != RLW_TENSOR_INT8 && kind != RLW_TENSOR_UINT8 &&
                   kind < RLW_TENSOR_STRING) {
            *data = value;
            *size = (size_t)(c->at - value);
        } else {
            return rlw_expect_wire(c, &f, RLW_WIRE_BYTES);
        }
        *found = 1;
        return RLW_OK;
    }
    return RLW_OK;
}

/* Elements of one piece. */
static inline rlw_status rlw_tensor_count_piece(rlw_cursor *c, uint32_t kind, const uint8_t *data,
                                                size_t size, uint64_t *count) {
    uint32_t itemsize = rlw_tensor_itemsize(kind);
    if (itemsize == 0) {
        *count = 1;
    } else if (kind == RLW_TENSOR_FLOAT || kind == RLW_TENSOR_DOUBLE) {
        if (size % itemsize) return rlw_fail(c, RLW_BAD_PACKED, data, size, 0);
        *count = size / itemsize;
    } else if (kind == RLW_TENSOR_INT8 || kind == RLW_TENSOR_UINT8) {
        *count = size;
    } else {
        if (size && data[size - 1] >= 0x80) return rlw_fail(c, RLW_BAD_PACKED, data, size, 0);
        *count = rlw_varints_count(data, size);
    }
    return RLW_OK;
}

/* Adds one payload sub-message to what is known of the payload. */
static inline rlw_status rlw_tensor_add(rlw_cursor *c, rlw_tensor *t, const uint8_t *data,
                                        size_t size) {
    int found, single = t->kind == RLW_TENSOR_INT8 || t->kind == RLW_TENSOR_UINT8;
    rlw_cursor inner;
    rlw_cursor_init(&inner, data, size);
    for (;;) {
        const uint8_t *piece = NULL;
        size_t piece_size = 0;
        uint64_t count = 0;
        if (rlw_tensor_piece(&inner, t->kind, &found, &piece, &piece_size) != RLW_OK) break;
        if (!found) return RLW_OK;
        if (rlw_tensor_count_piece(&inner, t->kind, piece, piece_size, &count) != RLW_OK) break;
        if (single) { /* not a repeated field: the last one counts */
            t->segments = 0;
            t->count = 0;
        } else if (count == 0) {
            continue;
        }
        if (t->segments < UINT32_MAX) t->segments++;
        if (t->segments == 1) {
            t->data = piece;
            t->size = piece_size;
        }
        t->count += count;
    }
    c->fault = inner.fault;
    return c->fault.status;
}

static inline rlw_status rlw_tensor_add_shape(rlw_cursor *c, rlw_tensor *t, const rlw_field *f,
                                              uint32_t dims_limit) {
    rlw_cursor inner;
    uint64_t dim = f->value;
    if (!t->shape_at) t->shape_at = f->at;
    if (f->wire != RLW_WIRE_VARINT) {
        if (rlw_expect_wire(c, f, RLW_WIRE_BYTES) != RLW_OK) return c->fault.status;
        rlw_cursor_init(&inner, f->data, f->size);
    } else {
        rlw_cursor_init(&inner, NULL, 0);
    }
    while (f->wire == RLW_WIRE_VARINT || inner.at < inner.end) {
        uint32_t low;
        int32_t value;
        if (f->wire != RLW_WIRE_VARINT && rlw_take_varint(&inner, &dim) != RLW_OK) {
            c->fault = inner.fault;
            return c->fault.status;
        }
        if (t->dims >= dims_limit)
            return rlw_fail(c, RLW_OVER_DIMS, f->at, (uint64_t)t->dims + 1, dims_limit);
        low = (uint32_t)dim; /* protobuf: an int32 is the low 32 bits */
        memcpy(&value, &low, 4);
        t->shape[t->dims++] = value;
        if (f->wire == RLW_WIRE_VARINT) break;
    }
    return RLW_OK;
}

static inline void rlw_tensor_items_init(rlw_tensor_items *items, const rlw_tensor *t) {
    rlw_cursor_init(&items->outer, t->at, (size_t)(t->end - t->at));
    rlw_cursor_init(&items->inner, NULL, 0);
    items->field = t->field;
}

/* The next piece of a payload that has been read; 0 when there is none, or none any more because
 * the memory has changed. */
static inline int rlw_tensor_next_piece(rlw_tensor_items *items, uint32_t kind,
                                        const uint8_t **data, size_t *size) {
    rlw_field f = RLW_NO_FIELD;
    int found;
    for (;;) {
        if (rlw_tensor_piece(&items->inner, kind, &found, data, size) != RLW_OK) return 0;
        if (found) return 1;
        do {
            if (items->outer.at >= items->outer.end) return 0;
            if (rlw_take_field(&items->outer, &f) != RLW_OK) return 0;
        } while (f.number != items->field || f.wire != RLW_WIRE_BYTES);
        rlw_cursor_init(&items->inner, f.data, f.size);
    }
}

static inline void rlw_tensor_clear(rlw_tensor *t, const rlw_cursor *c) {
    t->kind = RLW_TENSOR_NONE;
    t->dims = 0;
    t->count = 0;
    t->total = 0;
    t->segments = 0;
    t->data = NULL;
    t->size = 0;
    t->field = 0;
    t->at = c->at;
    t->end = c->end;
    t->shape_at = NULL;
}

/* A message with a payload of the fields `offset` + 1 to `offset` + `kinds`. */
static inline rlw_status rlw_tensor_read_fields(rlw_cursor *c, rlw_tensor *t, uint32_t offset,
                                                uint32_t kinds, uint32_t shape_field,
                                                uint32_t dims_limit) {
    rlw_field f = RLW_NO_FIELD;
    rlw_tensor_clear(t, c);
    if (dims_limit > RLW_TENSOR_DIMS) dims_limit = RLW_TENSOR_DIMS;
    while (c->at < c->end) {
        if (rlw_take_field(c, &f) != RLW_OK) return c->fault.status;
        if (f.number - offset - 1 < kinds) {
            if (rlw_expect_wire(c, &f, RLW_WIRE_BYTES) != RLW_OK) return c->fault.status;
            if (f.number != t->field) { /* a oneof: another member clears the one before */
                t->kind = f.number - offset;
                t->field = f.number;
                t->at = f.at;
                t->count = 0;
                t->segments = 0;
                t->size = 0;
            }
            if (rlw_tensor_add(c, t, f.data, f.size) != RLW_OK) return c->fault.status;
        } else if (f.number == shape_field) {
            if (rlw_tensor_add_shape(c, t, &f, dims_limit) != RLW_OK) return c->fault.status;
        }
    }
    return RLW_OK;
}

/* A Tensor that fills the cursor. Of the payload, varints are checked by rlw_tensor_decode() only,
 * and text is the caller's to check. */
static inline rlw_status rlw_tensor_read(rlw_cursor *c, uint32_t dims_limit, rlw_tensor *t) {
    return rlw_tensor_read_fields(c, t, 0, RLW_TENSOR_PROTO, RLW_TENSOR_SHAPE_FIELD, dims_limit);
}

/* A TensorSpec.Value: numbers without a shape. */
static inline rlw_status rlw_tensor_read_value(rlw_cursor *c, rlw_tensor *t) {
    return rlw_tensor_read_fields(c, t, RLW_TENSOR_VALUE_OFFSET, RLW_TENSOR_UINT64, 0, 0);
}

/* Settles shape and total by the reference's rules: no dimensions mean one element; one element
 * fills any shape, of which each dimension below 1 counts as 1; otherwise one dimension may be
 * negative and is what the number of elements leaves for it. */
static inline rlw_status rlw_tensor_infer(rlw_cursor *c, rlw_tensor *t) {
    const uint64_t most = (uint64_t)INT64_MAX / 8; /* so that sizes in bytes have 63 bits too */
    const uint8_t *at = t->shape_at ? t->shape_at : t->at;
    uint64_t product = 1;
    uint32_t i, unknown = RLW_TENSOR_DIMS;
    int empty = 0;
    if (t->kind == RLW_TENSOR_NONE) return rlw_fail(c, RLW_BAD_PAYLOAD, t->at, 0, 0);
    for (i = 0; i < t->dims; i++) {
        if (t->count == 1 && t->shape[i] < 1) t->shape[i] = 1;
        if (t->shape[i] < 0) {
            if (unknown < RLW_TENSOR_DIMS) return rlw_fail(c, RLW_BAD_UNKNOWN, at, 0, 0);
            unknown = i;
        } else if (t->shape[i] == 0) {
            empty = 1;
        } else {
            if ((uint64_t)t->shape[i] > most / product) return rlw_fail(c, RLW_BAD_SHAPE, at, 0, 0);
            product *= (uint64_t)t->shape[i];
        }
    }
    if (empty) {
        /* An unknown dimension times zero is undefined. */
        if (t->count || unknown < RLW_TENSOR_DIMS)
            return rlw_fail(c, RLW_BAD_ELEMENTS, at, t->count, 0);
        product = 0;
    } else if (unknown < RLW_TENSOR_DIMS) {
        if (t->count % product) return rlw_fail(c, RLW_BAD_ELEMENTS, at, t->count, product);
        t->shape[unknown] = (int64_t)(t->count / product);
        product = t->count;
    } else if (product != t->count && !(t->count == 1 && t->dims)) {
        return rlw_fail(c, RLW_BAD_ELEMENTS, at, t->count, product);
    }
    t->total = product;
    return RLW_OK;
}

/* The next string or message. */
static inline int rlw_tensor_next(rlw_tensor_items *items, const uint8_t **data, size_t *size) {
    return rlw_tensor_next_piece(items, RLW_TENSOR_STRING, data, size);
}

/* The `count` elements of one piece to `out`. */
static inline rlw_status rlw_tensor_decode_piece(rlw_cursor *c, uint32_t kind,
                                                 const uint8_t *data, size_t size, void *out,
                                                 size_t count) {
    const uint8_t *end;
    switch (kind) {
    case RLW_TENSOR_INT32:
    case RLW_TENSOR_UINT32:
        end = rlw_varints_unpack_u32(data, size, (uint32_t *)out, count);
        break;
    case RLW_TENSOR_INT64:
    case RLW_TENSOR_UINT64:
        end = rlw_varints_unpack_u64(data, size, (uint64_t *)out, count);
        break;
    case RLW_TENSOR_BOOL:
        end = rlw_varints_unpack_bool(data, size, (uint8_t *)out, count);
        break;
    default:
        if (!rlw_host_is_little() && kind == RLW_TENSOR_FLOAT) {
            size_t i;
            for (i = 0; i < count; i++) {
                uint32_t bits = rlw_load_u32le(data + 4 * i);
                memcpy((uint8_t *)out + 4 * i, &bits, 4);
            }
        } else if (!rlw_host_is_little() && kind == RLW_TENSOR_DOUBLE) {
            size_t i;
            for (i = 0; i < count; i++) {
                uint64_t bits = rlw_load_u64le(data + 8 * i);
                memcpy((uint8_t *)out + 8 * i, &bits, 8);
            }
        } else if (size) {
            memcpy(out, data, size);
        }
        return RLW_OK;
    }
    if (end == data + size) return RLW_OK;
    return rlw_fail(c, RLW_BAD_VARINT, end ? end : data, 0, 0);
}

/* All `count` elements of a payload of numbers to `out`, in the host's order; `out` is aligned for
 * them. The cursor takes the fault. */
static inline rlw_status rlw_tensor_decode(rlw_cursor *c, const rlw_tensor *t, void *out) {
    uint32_t itemsize = rlw_tensor_itemsize(t->kind);
    uint64_t done = 0;
    rlw_tensor_items items;
    const uint8_t *data = NULL;
    size_t size = 0;
    if (t->segments == 1 || t->count == 0)
        return rlw_tensor_decode_piece(c, t->kind, t->data, t->count ? t->size : 0, out,
                                       (size_t)t->count);
    rlw_tensor_items_init(&items, t);
    while (rlw_tensor_next_piece(&items, t->kind, &data, &size)) {
        uint64_t count = 0;
        if (rlw_tensor_count_piece(c, t->kind, data, size, &count) != RLW_OK)
            return c->fault.status;
        if (count > t->count - done) break; /* the memory has changed */
        if (rlw_tensor_decode_piece(c, t->kind, data, size, (uint8_t *)out + itemsize * done,
                                    (size_t)count) != RLW_OK)
            return c->fault.status;
        done += count;
    }
    return done == t->count ? RLW_OK : rlw_fail(c, RLW_BAD_ELEMENTS, t->at, done, t->count);
}

/* A google.protobuf.Any; its text is the caller's to check. */
typedef struct rlw_any {
    const uint8_t *url;
    size_t url_size;
    const uint8_t *value;
    size_t value_size;
} rlw_any;

static inline rlw_status rlw_any_read(rlw_cursor *c, rlw_any *out) {
    rlw_field f = RLW_NO_FIELD;
    out->url = out->value = c->at;
    out->url_size = out->value_size = 0;
    while (c->at < c->end) {
        if (rlw_take_field(c, &f) != RLW_OK) return c->fault.status;
        if (f.number > 2) continue;
        if (rlw_expect_wire(c, &f, RLW_WIRE_BYTES) != RLW_OK) return c->fault.status;
        if (f.number == 1) {
            out->url = f.data;
            out->url_size = f.size;
        } else {
            out->value = f.data;
            out->value_size = f.size;
        }
    }
    return RLW_OK;
}

/* ---- to bytes ---- */

#define RLW_ALL_EQUAL(TYPE) \
    do { \
        const TYPE *v = (const TYPE *)values; \
        TYPE first = v[0]; \
        size_t done, i; \
        for (done = 0; done < count; done += 1024) { \
            size_t some = count - done < 1024 ? count - done : 1024; \
            int other = 0; \
            for (i = 0; i < some; i++) other |= v[done + i] != first; \
            if (other) return 0; \
        } \
        return 1; \
    } while (0)

/* 1 if all `count` numbers, at least one, are equal: -0.0 equals 0.0, and NaN nothing. Looks at
 * some 1024 more than it must. */
static inline int rlw_tensor_all_equal(uint32_t kind, const void *values, size_t count) {
    if (kind == RLW_TENSOR_FLOAT) RLW_ALL_EQUAL(float);
    if (kind == RLW_TENSOR_DOUBLE) RLW_ALL_EQUAL(double);
    switch (rlw_tensor_itemsize(kind)) {
    case 8: RLW_ALL_EQUAL(uint64_t);
    case 4: RLW_ALL_EQUAL(uint32_t);
    default: RLW_ALL_EQUAL(uint8_t);
    }
}
#undef RLW_ALL_EQUAL

typedef struct rlw_tensor_sizes {
    uint64_t data;    /* the elements; of strings and messages, with their tags */
    uint64_t payload; /* the sub-message that holds them */
    uint64_t shape;   /* the packed dimensions */
    uint64_t whole;
} rlw_tensor_sizes;

/* Bytes of `count` numbers on the wire. */
static inline uint64_t rlw_tensor_data_size(uint32_t kind, const void *values, size_t count) {
    switch (kind) {
    case RLW_TENSOR_INT32: return rlw_varints_size_i32((const int32_t *)values, count);
    case RLW_TENSOR_UINT32: return rlw_varints_size_u32((const uint32_t *)values, count);
    case RLW_TENSOR_INT64:
    case RLW_TENSOR_UINT64: return rlw_varints_size_u64((const uint64_t *)values, count);
    default: return (uint64_t)rlw_tensor_itemsize(kind) * count;
    }
}

/* 0 when a dimension is not an int32, which is what the wire has for it. */
static inline int rlw_tensor_measure(rlw_tensor_sizes *out, uint32_t field, uint32_t kind,
                                     uint64_t data_size, const int64_t *shape, uint32_t dims) {
    uint32_t i;
    out->data = data_size;
    out->payload = data_size;
    if (data_size && kind < RLW_TENSOR_STRING)
        out->payload += 1 + rlw_varint_size(data_size);
    out->shape = 0;
    for (i = 0; i < dims; i++) {
        if (shape[i] < INT32_MIN || shape[i] > INT32_MAX) return 0;
        out->shape += rlw_varint_size((uint64_t)shape[i]);
    }
    out->whole = rlw_varint_size((uint64_t)field << 3) + rlw_varint_size(out->payload);
    out->whole += out->payload;
    if (dims) out->whole += 1 + rlw_varint_size(out->shape) + out->shape;
    return 1;
}

/* What stands before the elements. */
static inline uint8_t *rlw_tensor_put_head(uint8_t *to, uint32_t field, uint32_t kind,
                                           const rlw_tensor_sizes *sizes) {
    to = rlw_store_varint(to, (uint64_t)field << 3 | RLW_WIRE_BYTES);
    to = rlw_store_varint(to, sizes->payload);
    if (sizes->data && kind < RLW_TENSOR_STRING) {
        *to++ = 1 << 3 | RLW_WIRE_BYTES;
        to = rlw_store_varint(to, sizes->data);
    }
    return to;
}

/* The elements, sizes->data bytes: never more, and never fewer, even if the values have changed
 * since they were measured. Strings and messages are bytes already. */
static inline uint8_t *rlw_tensor_put_data(uint8_t *to, uint32_t kind, const void *values,
                                           size_t count, const rlw_tensor_sizes *sizes) {
    uint8_t *end = to + sizes->data, *at;
    switch (kind) {
    case RLW_TENSOR_INT32:
        at = rlw_varints_pack_i32(to, end, (const int32_t *)values, count);
        break;
    case RLW_TENSOR_UINT32:
        at = rlw_varints_pack_u32(to, end, (const uint32_t *)values, count);
        break;
    case RLW_TENSOR_INT64:
    case RLW_TENSOR_UINT64:
        at = rlw_varints_pack_u64(to, end, (const uint64_t *)values, count);
        break;
    case RLW_TENSOR_FLOAT:
    case RLW_TENSOR_DOUBLE:
        if (!rlw_host_is_little()) {
            size_t i;
            for (i = 0; i < count; i++) {
                uint32_t bits;
                uint64_t long_bits;
                if (kind == RLW_TENSOR_FLOAT) {
                    memcpy(&bits, (const uint8_t *)values + 4 * i, 4);
                    rlw_store_u32le(to + 4 * i, bits);
                } else {
                    memcpy(&long_bits, (const uint8_t *)values + 8 * i, 8);
                    rlw_store_u64le(to + 8 * i, long_bits);
                }
            }
            return end;
        } /* fall through */
    default:
        if (sizes->data) memcpy(to, values, sizes->data);
        return end;
    }
    if (at < end) memset(at, 0, (size_t)(end - at));
    return end;
}

/* What stands after the elements. */
static inline uint8_t *rlw_tensor_put_tail(uint8_t *to, const int64_t *shape, uint32_t dims,
                                           const rlw_tensor_sizes *sizes) {
    uint32_t i;
    if (!dims) return to;
    *to++ = RLW_TENSOR_SHAPE_FIELD << 3 | RLW_WIRE_BYTES;
    to = rlw_store_varint(to, sizes->shape);
    for (i = 0; i < dims; i++) to = rlw_store_varint(to, (uint64_t)shape[i]);
    return to;
}

/* A Tensor of numbers, row-major: `values` is aligned, in the host's order and has `count`
 * elements, as many as the shape, or one for all of them. */
static inline rlw_status rlw_put_tensor(rlw_writer *w, uint32_t kind, const void *values,
                                        size_t count, const int64_t *shape, uint32_t dims) {
    rlw_tensor_sizes sizes;
    uint64_t product = 1;
    uint32_t i;
    if (!rlw_tensor_itemsize(kind)) return RLW_BAD_TYPE;
    if (dims > RLW_TENSOR_DIMS) return RLW_OVER_DIMS;
    for (i = 0; i < dims; i++) {
        if (shape[i] < 0 || shape[i] > INT32_MAX) return RLW_BAD_SHAPE;
        if (product && (uint64_t)shape[i] > UINT64_MAX / product) return RLW_BAD_SHAPE;
        product *= (uint64_t)shape[i];
    }
    if (count != product && count != 1) return RLW_BAD_ELEMENTS;
    if (!rlw_tensor_measure(&sizes, kind, kind, rlw_tensor_data_size(kind, values, count), shape,
                            dims))
        return RLW_BAD_SHAPE;
    if (rlw_reserve(w, (size_t)sizes.whole) != RLW_OK) return RLW_NO_MEMORY;
    w->at = rlw_tensor_put_head(w->at, kind, kind, &sizes);
    w->at = rlw_tensor_put_data(w->at, kind, values, count, &sizes);
    w->at = rlw_tensor_put_tail(w->at, shape, dims, &sizes);
    return RLW_OK;
}

#endif
