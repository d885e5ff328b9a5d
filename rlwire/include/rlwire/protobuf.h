/* Protocol Buffers' wire format: varints, tags, fields, groups; one field at a time.
 *
 * varint.h has bulk kernels for packed arrays of varints, dm_env_rpc.h the messages.
 * Source: "Encoding" in the documentation of Protocol Buffers.
 */
#ifndef RLWIRE_PROTOBUF_H
#define RLWIRE_PROTOBUF_H

#include "cursor.h"

typedef enum rlw_wire {
    RLW_WIRE_VARINT = 0,
    RLW_WIRE_FIXED64 = 1,
    RLW_WIRE_BYTES = 2, /* a length and that many bytes: strings, messages, packed arrays */
    RLW_WIRE_GROUP = 3,
    RLW_WIRE_END_GROUP = 4,
    RLW_WIRE_FIXED32 = 5
} rlw_wire;

#define RLW_VARINT_ROOM 10 /* bytes of the longest varint */
#define RLW_GROUP_DEPTH 100 /* nested groups; protobuf's own limit */

/* One field. For a group only `number` and `wire` are meaningful. */
typedef struct rlw_field {
    uint32_t number;
    uint32_t wire;       /* an rlw_wire, never RLW_WIRE_END_GROUP */
    const uint8_t *at;   /* the tag */
    uint64_t value;      /* VARINT, FIXED64, FIXED32 */
    const uint8_t *data; /* the content of BYTES; of a number, its bytes on the wire */
    size_t size;
} rlw_field;

#define RLW_NO_FIELD {0, 0, NULL, 0, NULL, 0}

static inline size_t rlw_varint_size(uint64_t value) {
#if defined(__GNUC__)
    return (size_t)(70 - __builtin_clzll(value | 1)) / 7;
#else
    size_t size = 1;
    while (value >>= 7) size++;
    return size;
#endif
}

/* Stores up to RLW_VARINT_ROOM bytes; returns the position after them. */
static inline uint8_t *rlw_store_varint(uint8_t *to, uint64_t value) {
    while (value >= 0x80) {
        *to++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *to++ = (uint8_t)value;
    return to;
}

/* Reads a varint of at most ten bytes, of which the tenth is 0 or 1. Returns NULL if it exceeds 64
 * bits, or the bytes end inside it. */
static inline const uint8_t *rlw_varint_get(const uint8_t *p, const uint8_t *end, uint64_t *out) {
    uint64_t value = 0;
    unsigned shift;
    for (shift = 0; p < end && shift < 70; shift += 7) {
        uint8_t byte = *p++;
        if (shift == 63 && byte > 1) return NULL;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out = value;
            return p;
        }
    }
    return NULL;
}

static inline rlw_status rlw_take_varint(rlw_cursor *c, uint64_t *out) {
    const uint8_t *p = c->at;
    if (p < c->end && *p < 0x80) { /* the common case */
        *out = *p;
        c->at = p + 1;
        return RLW_OK;
    }
    p = rlw_varint_get(p, c->end, out);
    if (!p && rlw_left(c) >= RLW_VARINT_ROOM)
        return rlw_fail(c, RLW_BAD_VARINT, c->at, c->at[RLW_VARINT_ROOM - 1], 1);
    if (!p) return rlw_fail(c, RLW_NEED_MORE, c->at, rlw_left(c) + 1, rlw_left(c));
    c->at = p;
    return RLW_OK;
}

/* Reads a tag, a varint of at most 32 bits: the field's number, then three bits of wire type. */
static inline rlw_status rlw_take_tag(rlw_cursor *c, rlw_field *f) {
    const uint8_t *at = c->at;
    uint64_t tag;
    if (rlw_take_varint(c, &tag) != RLW_OK) return c->fault.status;
    if (tag > UINT32_MAX || tag >> 3 == 0 || (tag & 7) > RLW_WIRE_FIXED32) {
        c->at = at;
        return rlw_fail(c, RLW_BAD_TAG, at, tag, 0);
    }
    f->at = at;
    f->number = (uint32_t)(tag >> 3);
    f->wire = (uint32_t)(tag & 7);
    return RLW_OK;
}

/* Reads the value after a tag that does not open a group. */
static inline rlw_status rlw_take_field_value(rlw_cursor *c, rlw_field *f) {
    uint64_t size;
    switch (f->wire) {
    case RLW_WIRE_VARINT:
        f->data = c->at;
        RLW_TRY(rlw_take_varint(c, &f->value));
        f->size = (size_t)(c->at - f->data);
        return RLW_OK;
    case RLW_WIRE_BYTES:
        RLW_TRY(rlw_take_varint(c, &size));
        RLW_TRY(rlw_take(c, size, &f->data));
        f->size = (size_t)size;
        return RLW_OK;
    case RLW_WIRE_FIXED64:
        RLW_TRY(rlw_take(c, 8, &f->data));
        f->size = 8;
        f->value = rlw_load_u64le(f->data);
        return RLW_OK;
    case RLW_WIRE_FIXED32:
        RLW_TRY(rlw_take(c, 4, &f->data));
        f->size = 4;
        f->value = rlw_load_u32le(f->data);
        return RLW_OK;
    default: return rlw_fail(c, RLW_BAD_TAG, f->at, f->wire, 0);
    }
}

/* Skips the rest of a group whose opening tag is `open`, without recursion. */
static inline rlw_status rlw_skip_group(rlw_cursor *c, const rlw_field *open) {
    uint32_t numbers[RLW_GROUP_DEPTH];
    uint32_t depth = 1;
    rlw_field f = RLW_NO_FIELD;
    numbers[0] = open->number;
    while (depth > 0) {
        if (rlw_take_tag(c, &f) != RLW_OK) return c->fault.status;
        if (f.wire == RLW_WIRE_GROUP) {
            if (depth == RLW_GROUP_DEPTH)
                return rlw_fail(c, RLW_OVER_DEPTH, f.at, depth + 1, RLW_GROUP_DEPTH);
            numbers[depth++] = f.number;
        } else if (f.wire == RLW_WIRE_END_GROUP) {
            if (f.number != numbers[--depth]) return rlw_fail(c, RLW_BAD_TAG, f.at, f.number, 0);
        } else if (rlw_take_field_value(c, &f) != RLW_OK) {
            return c->fault.status;
        }
    }
    return RLW_OK;
}

/* Reads the next field. The caller checks c->at < c->end. On a fault the cursor may have moved. */
static inline rlw_status rlw_take_field(rlw_cursor *c, rlw_field *f) {
    if (rlw_take_tag(c, f) != RLW_OK) return c->fault.status;
    if (f->wire == RLW_WIRE_GROUP) return rlw_skip_group(c, f);
    return rlw_take_field_value(c, f);
}

#endif
