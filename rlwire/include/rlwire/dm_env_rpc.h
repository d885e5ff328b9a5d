/* Decodes and encodes dm_env_rpc's Tensor message (dm_env_rpc.proto, version 1).
 *
 * Decoding: rlw_tensor_read() finds the payload and checks the fields around it.
 * rlw_tensor_infer() computes the shape. The caller then allocates, and rlw_tensor_decode() stores
 * the numbers; rlw_tensor_next() returns strings and messages one by one. Encoding:
 * rlw_put_tensor(), or rlw_tensor_put_head(), _data() and _tail() for callers with a buffer.
 */
#ifndef RLWIRE_DM_ENV_RPC_H
#define RLWIRE_DM_ENV_RPC_H

#include "protobuf.h"
#include "varint.h"
#include "writer.h"

#define RLW_TENSOR_DIMS 32
#define RLW_TENSOR_SHAPE_FIELD 15
#define RLW_TENSOR_VALUE_OFFSET 8 /* field numbers of TensorSpec.Value minus those of Tensor */

/* The enum DataType, whose values are also the numbers of Tensor's payload fields. */
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

/* Returns the bytes of an element in memory; 0 for strings and messages. A boolean is a 0 or 1. */
static inline uint32_t rlw_tensor_itemsize(uint32_t kind) {
    static const uint8_t sizes[] = {0, 4, 8, 1, 4, 8, 1, 4, 8, 1, 0, 0};
    return kind < sizeof sizes ? sizes[kind] : 0;
}

/* Returns 1 if elements have the same bytes on the wire and in a little-endian host's memory. For
 * booleans, check rlw_bools_are_plain() as well. */
static inline int rlw_tensor_is_memory(uint32_t kind) {
    return kind == RLW_TENSOR_FLOAT || kind == RLW_TENSOR_DOUBLE || kind == RLW_TENSOR_INT8 ||
           kind == RLW_TENSOR_UINT8 || kind == RLW_TENSOR_BOOL;
}

/* ---- from bytes ---- */

typedef struct rlw_tensor {
    uint32_t kind; /* an rlw_tensor_kind; NONE: no payload is set */
    uint32_t dims;
    int64_t shape[RLW_TENSOR_DIMS]; /* as sent; resolved by rlw_tensor_infer() */
    uint64_t count;    /* elements on the wire */
    uint64_t total;    /* elements of the shape; more than `count` if one element fills it */
    uint32_t segments; /* pieces with elements: one packed array, or one unpacked element each */
    const uint8_t *data; /* the first piece; for strings and messages, the first item */
    size_t size;
    uint32_t field;          /* number of the payload's field */
    const uint8_t *at;       /* payload, shape and unknown fields, up to `end` */
    const uint8_t *end;
    const uint8_t *shape_at; /* for faults */
} rlw_tensor;

/* Iterates over the elements of a payload, which may be spread over many fields. */
typedef struct rlw_tensor_items {
    rlw_cursor outer;
    rlw_cursor inner;
    uint32_t field;
} rlw_tensor_items;

/* Reads the next field 1 of a payload sub-message; *found is 0 at the end. It is a packed array, an
 * unpacked element, a string or a message, of `size` bytes at `data`. */
static inline rlw_status rlw_tensor_piece(rlw_cursor *c, uint32_t kind, int *found,
                                          const uint8_t **data, size_t *size) {
    uint32_t unpacked = kind == RLW_TENSOR_FLOAT    ? RLW_WIRE_FIXED32
                        : kind == RLW_TENSOR_DOUBLE ? RLW_WIRE_FIXED64
                                                    : RLW_WIRE_VARINT;
    rlw_field f = RLW_NO_FIELD;
    if (kind == RLW_TENSOR_INT8 || kind == RLW_TENSOR_UINT8 || kind >= RLW_TENSOR_STRING)
        unpacked = RLW_WIRE_BYTES; /* not a repeated number */
    *found = 0;
    while (c->at < c->end && !*found) {
        RLW_TRY(rlw_take_field(c, &f)); /* one of another wire type is unknown to protobuf */
        *found = f.number == 1 && (f.wire == RLW_WIRE_BYTES || f.wire == unpacked);
        *data = f.data;
        *size = f.size;
    }
    return RLW_OK;
}

/* Counts the elements of one piece. */
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

/* Adds one payload sub-message to the payload read so far. */
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
        if (single) { /* not a repeated field: the last one wins */
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
    uint64_t dim;
    if (!t->shape_at) t->shape_at = f->at;
    rlw_cursor_init(&inner, f->data, f->size);
    while (inner.at < inner.end) {
        uint32_t low;
        int32_t value;
        if (rlw_take_varint(&inner, &dim) != RLW_OK) {
            c->fault = inner.fault;
            return c->fault.status;
        }
        if (t->dims >= dims_limit)
            return rlw_fail(c, RLW_OVER_DIMS, f->at, (uint64_t)t->dims + 1, dims_limit);
        low = (uint32_t)dim; /* protobuf: an int32 is the low 32 bits */
        memcpy(&value, &low, 4);
        t->shape[t->dims++] = value;
    }
    return RLW_OK;
}

static inline void rlw_tensor_items_init(rlw_tensor_items *items, const rlw_tensor *t) {
    rlw_cursor_init(&items->outer, t->at, (size_t)(t->end - t->at));
    rlw_cursor_init(&items->inner, NULL, 0);
    items->field = t->field;
}

/* Returns the next piece of a payload that was read before; 0 at the end, or if the memory has
 * changed. */
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

/* Reads a message whose payload fields are `offset` + 1 to `offset` + `kinds`. */
static inline rlw_status rlw_tensor_read_fields(rlw_cursor *c, rlw_tensor *t, uint32_t offset,
                                                uint32_t kinds, uint32_t shape_field,
                                                uint32_t dims_limit) {
    rlw_field f = RLW_NO_FIELD;
    rlw_tensor_clear(t, c);
    if (dims_limit > RLW_TENSOR_DIMS) dims_limit = RLW_TENSOR_DIMS;
    while (c->at < c->end) {
        if (rlw_take_field(c, &f) != RLW_OK) return c->fault.status;
        if (f.number - offset - 1 < kinds && f.wire == RLW_WIRE_BYTES) {
            if (f.number != t->field) { /* a oneof: another member clears the previous one */
                t->kind = f.number - offset;
                t->field = f.number;
                t->at = f.at;
                t->count = 0;
                t->segments = 0;
                t->size = 0;
            }
            if (rlw_tensor_add(c, t, f.data, f.size) != RLW_OK) return c->fault.status;
        } else if (f.number == shape_field &&
                   (f.wire == RLW_WIRE_BYTES || f.wire == RLW_WIRE_VARINT)) {
            if (rlw_tensor_add_shape(c, t, &f, dims_limit) != RLW_OK) return c->fault.status;
        }
    }
    return RLW_OK;
}

/* Reads a Tensor that fills the cursor. rlw_tensor_decode() checks the payload's varints, and the
 * caller checks text. */
static inline rlw_status rlw_tensor_read(rlw_cursor *c, uint32_t dims_limit, rlw_tensor *t) {
    return rlw_tensor_read_fields(c, t, 0, RLW_TENSOR_PROTO, RLW_TENSOR_SHAPE_FIELD, dims_limit);
}

/* Reads a TensorSpec.Value: numbers without a shape. */
static inline rlw_status rlw_tensor_read_value(rlw_cursor *c, rlw_tensor *t) {
    return rlw_tensor_read_fields(c, t, RLW_TENSOR_VALUE_OFFSET, RLW_TENSOR_UINT64, 0, 0);
}

/* Computes shape and total by the rules of the reference implementation. No dimensions mean one
 * element. One element fills any shape, and each dimension below 1 then counts as 1. Otherwise one
 * dimension may be negative, and is inferred from the number of elements. */
static inline rlw_status rlw_tensor_infer(rlw_cursor *c, rlw_tensor *t) {
    const uint64_t most = (uint64_t)PTRDIFF_MAX / 8; /* an array of the widest type must fit */
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
    if (product > most) return rlw_fail(c, RLW_BAD_SHAPE, at, 0, 0);
    t->total = product;
    return RLW_OK;
}

/* Returns the next string or message; 0 at the end. */
static inline int rlw_tensor_next(rlw_tensor_items *items, const uint8_t **data, size_t *size) {
    return rlw_tensor_next_piece(items, RLW_TENSOR_STRING, data, size);
}

/* Decodes the `count` elements of one piece to `out`. */
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
    default: rlw_copy_little(out, data, size, rlw_tensor_itemsize(kind)); return RLW_OK;
    }
    if (end == data + size) return RLW_OK;
    return rlw_fail(c, RLW_BAD_VARINT, end ? end : data, 0, 0);
}

/* Decodes all `count` elements of a payload of numbers to `out`, in the host's byte order. `out`
 * must be aligned for them. The cursor holds the fault. */
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

/* A google.protobuf.Any. The caller checks its text. */
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
        if (f.number > 2 || f.wire != RLW_WIRE_BYTES) continue;
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

/* Returns 1 if all `count` >= 1 numbers are equal: -0.0 equals 0.0, NaN equals nothing. Reads up to
 * 1024 numbers past the first difference. */
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
    uint64_t data;    /* the elements; strings and messages with their tags */
    uint64_t payload; /* the sub-message that holds them */
    uint64_t shape;   /* the packed dimensions */
    uint64_t whole;
} rlw_tensor_sizes;

/* Returns the bytes of `count` numbers on the wire. */
static inline uint64_t rlw_tensor_data_size(uint32_t kind, const void *values, size_t count) {
    switch (kind) {
    case RLW_TENSOR_INT32: return rlw_varints_size_i32((const int32_t *)values, count);
    case RLW_TENSOR_UINT32: return rlw_varints_size_u32((const uint32_t *)values, count);
    case RLW_TENSOR_INT64:
    case RLW_TENSOR_UINT64: return rlw_varints_size_u64((const uint64_t *)values, count);
    default: return (uint64_t)rlw_tensor_itemsize(kind) * count;
    }
}

/* Computes a Tensor's sizes. Returns 0 if a dimension is not an int32, its type on the wire. */
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

/* Writes all that precedes the elements. */
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

/* Writes the elements: exactly sizes->data bytes, even if the values have changed since they were
 * measured. Strings and messages must be encoded already. */
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
    default:
        rlw_copy_little(to, values, (size_t)sizes->data, rlw_tensor_itemsize(kind));
        return end;
    }
    if (at < end) memset(at, 0, (size_t)(end - at));
    return end;
}

/* Writes all that follows the elements. */
static inline uint8_t *rlw_tensor_put_tail(uint8_t *to, const int64_t *shape, uint32_t dims,
                                           const rlw_tensor_sizes *sizes) {
    uint32_t i;
    if (!dims) return to;
    *to++ = RLW_TENSOR_SHAPE_FIELD << 3 | RLW_WIRE_BYTES;
    to = rlw_store_varint(to, sizes->shape);
    for (i = 0; i < dims; i++) to = rlw_store_varint(to, (uint64_t)shape[i]);
    return to;
}

/* Writes a Tensor of numbers, row-major. `values` is aligned, in the host's byte order, and has as
 * many elements as the shape, or one that fills it. */
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
    if (sizes.whole > PTRDIFF_MAX || rlw_reserve(w, (size_t)sizes.whole) != RLW_OK)
        return RLW_NO_MEMORY;
    w->at = rlw_tensor_put_head(w->at, kind, kind, &sizes);
    w->at = rlw_tensor_put_data(w->at, kind, values, count, &sizes);
    w->at = rlw_tensor_put_tail(w->at, shape, dims, &sizes);
    return RLW_OK;
}

#endif
