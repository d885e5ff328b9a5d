/* ndarrays and NumPy scalars in MessagePack: marked maps in two dialects.
 *
 * msgpack-numpy 0.4.8: {b"nd": true, b"type": "<f4", b"kind": b"", b"shape": [..], b"data": ..}
 *                      {b"nd": false, b"type": "<f4", b"data": ..}
 *                      {b"complex": true, b"data": "(1+2j)"}
 * openpi-client 0.1.2: {b"__ndarray__": true, b"data": .., b"dtype": "<f4", b"shape": [..]}
 *                      {b"__npgeneric__": true, b"data": 1.5, b"dtype": "<f4"}
 *
 * Keys may come in any order, and keys and texts as strings or binaries. A map that lacks a field
 * of its mark is a plain map.
 */
#ifndef RLWIRE_MSGPACK_ARRAY_H
#define RLWIRE_MSGPACK_ARRAY_H

#include "dtype.h"
#include "msgpack.h"

typedef enum rlw_msgpack_mark {
    RLW_MSGPACK_UNMARKED,   /* a plain map */
    RLW_MSGPACK_ND,         /* an array */
    RLW_MSGPACK_ND_SCALAR,  /* msgpack-numpy: the element's bytes in data */
    RLW_MSGPACK_NP_GENERIC, /* openpi-client: the element as a value */
    RLW_MSGPACK_COMPLEX     /* Python's complex, as text in data */
} rlw_msgpack_mark;

enum { RLW_MSGPACK_DIMS = 32 };

typedef enum rlw_msgpack_field {
    RLW_MSGPACK_FIELD_NONE,
    RLW_MSGPACK_FIELD_ND,
    RLW_MSGPACK_FIELD_NDARRAY,
    RLW_MSGPACK_FIELD_NPGENERIC,
    RLW_MSGPACK_FIELD_COMPLEX, /* the last mark */
    RLW_MSGPACK_FIELD_TYPE,
    RLW_MSGPACK_FIELD_KIND,
    RLW_MSGPACK_FIELD_SHAPE,
    RLW_MSGPACK_FIELD_DATA,
    RLW_MSGPACK_FIELDS
} rlw_msgpack_field;

typedef struct rlw_msgpack_marked {
    rlw_msgpack_mark mark;
    int binary_keys; /* the mark's key is binary, as both packages write it */
    rlw_dtype dtype; /* itemsize 0: the type is not a plain dtype */
    uint32_t dims;
    uint64_t shape[RLW_MSGPACK_DIMS];
    /* FIELD_TYPE may be an array that describes a structured dtype. */
    rlw_msgpack_value field[RLW_MSGPACK_FIELDS];
} rlw_msgpack_marked;

static inline int rlw_msgpack_is_bytes(const rlw_msgpack_value *v) {
    return v->kind == RLW_MSGPACK_STRING || v->kind == RLW_MSGPACK_BINARY;
}

static inline rlw_msgpack_field rlw_msgpack_field_of(const uint8_t *name, uint64_t size) {
    switch (size) {
    case 2: return name[0] == 'n' && name[1] == 'd' ? RLW_MSGPACK_FIELD_ND : RLW_MSGPACK_FIELD_NONE;
    case 4:
        if (memcmp(name, "type", 4) == 0) return RLW_MSGPACK_FIELD_TYPE;
        if (memcmp(name, "kind", 4) == 0) return RLW_MSGPACK_FIELD_KIND;
        return memcmp(name, "data", 4) == 0 ? RLW_MSGPACK_FIELD_DATA : RLW_MSGPACK_FIELD_NONE;
    case 5:
        if (memcmp(name, "shape", 5) == 0) return RLW_MSGPACK_FIELD_SHAPE;
        return memcmp(name, "dtype", 5) == 0 ? RLW_MSGPACK_FIELD_TYPE : RLW_MSGPACK_FIELD_NONE;
    case 7:
        return memcmp(name, "complex", 7) == 0 ? RLW_MSGPACK_FIELD_COMPLEX : RLW_MSGPACK_FIELD_NONE;
    case 11:
        return memcmp(name, "__ndarray__", 11) == 0 ? RLW_MSGPACK_FIELD_NDARRAY
                                                    : RLW_MSGPACK_FIELD_NONE;
    case 13:
        return memcmp(name, "__npgeneric__", 13) == 0 ? RLW_MSGPACK_FIELD_NPGENERIC
                                                      : RLW_MSGPACK_FIELD_NONE;
    default: return RLW_MSGPACK_FIELD_NONE;
    }
}

/* Returns 1 if a map with this key may be marked: call rlw_msgpack_read_marked(). */
static inline int rlw_msgpack_is_mark(const rlw_msgpack_value *key) {
    rlw_msgpack_field field;
    if (!rlw_msgpack_is_bytes(key)) return 0;
    field = rlw_msgpack_field_of(key->data, key->size);
    return field != RLW_MSGPACK_FIELD_NONE && field <= RLW_MSGPACK_FIELD_COMPLEX;
}

/* Reads the dimensions from the array whose first value is at `first`. */
static inline rlw_status rlw_msgpack_read_shape(rlw_msgpack_reader *r, const uint8_t *first,
                                                rlw_msgpack_marked *out) {
    const rlw_msgpack_value *shape = &out->field[RLW_MSGPACK_FIELD_SHAPE];
    rlw_msgpack_reader of = *r;
    rlw_msgpack_value v;
    uint64_t most = RLW_MSGPACK_DIMS;
    uint32_t i;
    if (r->limits.dims < most) most = r->limits.dims;
    if (shape->size > most) return rlw_fail(&r->c, RLW_OVER_DIMS, shape->at, shape->size, most);
    of.c.at = first;
    for (i = 0; i < (uint32_t)shape->size; i++) {
        if (rlw_msgpack_read(&of, &v) != RLW_OK || v.kind != RLW_MSGPACK_INTEGER || v.integer < 0)
            return rlw_fail(&r->c, RLW_BAD_DIMENSION, v.at, i, 0);
        out->shape[i] = (uint64_t)v.integer;
    }
    out->dims = (uint32_t)shape->size;
    return RLW_OK;
}

/* Compares the data's size with the shape and an itemsize above 0. */
static inline rlw_status rlw_msgpack_check_size(rlw_cursor *c, const rlw_msgpack_marked *m,
                                                uint64_t itemsize) {
    const rlw_msgpack_value *data = &m->field[RLW_MSGPACK_FIELD_DATA];
    uint64_t total = itemsize;
    uint32_t i;
    int empty = 0;
    for (i = 0; i < m->dims; i++) {
        if (m->shape[i] == 0) {
            empty = 1;
            continue;
        }
        if (total > (uint64_t)INT64_MAX / m->shape[i])
            return rlw_fail(c, RLW_BAD_SHAPE, data->at, 0, 0);
        total *= m->shape[i];
    }
    if (empty) total = 0;
    if (data->size != total) return rlw_fail(c, RLW_BAD_SIZE, data->at, data->size, total);
    return RLW_OK;
}

static inline int rlw_msgpack_is_text(const rlw_msgpack_value *v, const char *text, size_t size) {
    return rlw_msgpack_is_bytes(v) && v->size == size && memcmp(v->data, text, size) == 0;
}

/* Skips the values of an array that is a field of a mark. It must not contain maps. */
static inline int rlw_msgpack_pass_field(rlw_msgpack_reader *r, uint64_t count, uint64_t depth) {
    uint64_t maps = r->limits.map;
    r->limits.map = 0;
    while (count && rlw_msgpack_skip(r, depth) == RLW_OK) count--;
    r->limits.map = maps;
    return count == 0;
}

/* Reads the entries. Returns 1 if they have a mark and data; the reader is then behind them. */
static inline int rlw_msgpack_read_fields(rlw_msgpack_reader *r, uint64_t count, uint64_t depth,
                                          rlw_msgpack_marked *out, unsigned *mark, unsigned *seen,
                                          const uint8_t **dimensions) {
    rlw_msgpack_value key;
    unsigned name;
    for (; count; count--) {
        if (rlw_msgpack_read(r, &key) != RLW_OK || !rlw_msgpack_is_bytes(&key)) return 0;
        name = (unsigned)rlw_msgpack_field_of(key.data, key.size);
        if (name != RLW_MSGPACK_FIELD_NONE && name <= RLW_MSGPACK_FIELD_COMPLEX) {
            if (*mark != RLW_MSGPACK_FIELD_NONE && *mark != name) return 0;
            *mark = name;
            out->binary_keys = key.kind == RLW_MSGPACK_BINARY;
        }
        if (rlw_msgpack_read(r, &out->field[name]) != RLW_OK) return 0;
        if (out->field[name].kind >= RLW_MSGPACK_ARRAY) {
            if (out->field[name].kind == RLW_MSGPACK_MAP ||
                (name != RLW_MSGPACK_FIELD_TYPE && name != RLW_MSGPACK_FIELD_SHAPE))
                return 0;
            if (name == RLW_MSGPACK_FIELD_SHAPE) *dimensions = r->c.at;
            if (!rlw_msgpack_pass_field(r, out->field[name].size, depth + 1)) return 0;
        }
        *seen |= 1u << name;
    }
    return *mark != RLW_MSGPACK_FIELD_NONE &&
           out->field[*mark].kind == RLW_MSGPACK_BOOLEAN &&
           (out->field[*mark].integer || *mark == RLW_MSGPACK_FIELD_ND) &&
           (*seen >> RLW_MSGPACK_FIELD_DATA & 1) != 0 &&
           out->field[RLW_MSGPACK_FIELD_DATA].kind < RLW_MSGPACK_ARRAY;
}

/* Checks for the mark's other fields; returns RLW_MSGPACK_UNMARKED if one is missing. */
static inline rlw_msgpack_mark rlw_msgpack_mark_of(const rlw_msgpack_marked *m, unsigned mark,
                                                   unsigned seen) {
    const rlw_msgpack_value *type = &m->field[RLW_MSGPACK_FIELD_TYPE];
    int array = mark == RLW_MSGPACK_FIELD_NDARRAY ||
                (mark == RLW_MSGPACK_FIELD_ND && m->field[mark].integer);
    if (mark != RLW_MSGPACK_FIELD_NPGENERIC &&
        !rlw_msgpack_is_bytes(&m->field[RLW_MSGPACK_FIELD_DATA]))
        return RLW_MSGPACK_UNMARKED;
    if (mark == RLW_MSGPACK_FIELD_COMPLEX) return RLW_MSGPACK_COMPLEX;
    if (!(seen >> RLW_MSGPACK_FIELD_TYPE & 1)) return RLW_MSGPACK_UNMARKED;
    if (!rlw_msgpack_is_bytes(type) &&
        !(type->kind == RLW_MSGPACK_ARRAY && array && mark == RLW_MSGPACK_FIELD_ND))
        return RLW_MSGPACK_UNMARKED;
    if (mark == RLW_MSGPACK_FIELD_NPGENERIC) return RLW_MSGPACK_NP_GENERIC;
    if (!array) return RLW_MSGPACK_ND_SCALAR;
    if (!(seen >> RLW_MSGPACK_FIELD_SHAPE & 1) ||
        m->field[RLW_MSGPACK_FIELD_SHAPE].kind != RLW_MSGPACK_ARRAY)
        return RLW_MSGPACK_UNMARKED;
    return RLW_MSGPACK_ND;
}

/* Skips `bytes` if they come next; returns whether they do. */
static inline int rlw_msgpack_pass_literal(rlw_cursor *c, const char *bytes, size_t size) {
    if (rlw_left(c) < size || memcmp(c->at, bytes, size) != 0) return 0;
    c->at += size;
    return 1;
}

static inline int rlw_msgpack_pass_type(rlw_msgpack_reader *r, rlw_msgpack_marked *out) {
    rlw_msgpack_value *type = &out->field[RLW_MSGPACK_FIELD_TYPE];
    const uint8_t *p;
    if (rlw_msgpack_read(r, type) != RLW_OK || !rlw_msgpack_is_bytes(type)) return 0;
    p = type->data;
    if (type->size == 3 && p[0] == '<' && (p[1] == 'f' || p[1] == 'i') &&
        (p[2] == '4' || p[2] == '8'))
        return rlw_dtype_set(&out->dtype, (char)p[1], '<', (uint32_t)(p[2] - '0'));
    return rlw_dtype_parse(p, (size_t)type->size, &out->dtype);
}

static inline int rlw_msgpack_pass_shape(rlw_msgpack_reader *r, rlw_msgpack_marked *out) {
    rlw_msgpack_value v;
    uint32_t i;
    if (!rlw_msgpack_pass_literal(&r->c, "\xC4\x05shape", 7) || rlw_msgpack_read(r, &v) != RLW_OK ||
        v.kind != RLW_MSGPACK_ARRAY || v.size > RLW_MSGPACK_DIMS || v.size > r->limits.dims)
        return 0;
    out->dims = (uint32_t)v.size;
    for (i = 0; i < out->dims; i++) {
        if (r->c.at < r->c.end && *r->c.at < 0x80) { /* most dimensions */
            out->shape[i] = *r->c.at++;
            continue;
        }
        if (rlw_msgpack_read(r, &v) != RLW_OK || v.kind != RLW_MSGPACK_INTEGER || v.integer < 0)
            return 0;
        out->shape[i] = (uint64_t)v.integer;
    }
    return 1;
}

/* Reads an array of a plain dtype exactly as the two packages write it; returns 0 for any other. */
static inline int rlw_msgpack_read_usual(rlw_msgpack_reader *r, const rlw_msgpack_value *map,
                                         rlw_msgpack_marked *out) {
    rlw_msgpack_value *data = &out->field[RLW_MSGPACK_FIELD_DATA];
    if (map->size == 5) {
        if (!rlw_msgpack_pass_literal(&r->c, "\xC4\x02nd\xC3\xC4\x04type", 11) ||
            !rlw_msgpack_pass_type(r, out) ||
            !rlw_msgpack_pass_literal(&r->c, "\xC4\x04kind\xC4\x00", 8) ||
            !rlw_msgpack_pass_shape(r, out) ||
            !rlw_msgpack_pass_literal(&r->c, "\xC4\x04" "data", 6) ||
            rlw_msgpack_read(r, data) != RLW_OK)
            return 0;
    } else if (map->size != 4 ||
               !rlw_msgpack_pass_literal(&r->c, "\xC4\x0B__ndarray__\xC3\xC4\x04" "data", 20) ||
               rlw_msgpack_read(r, data) != RLW_OK ||
               !rlw_msgpack_pass_literal(&r->c, "\xC4\x05" "dtype", 7) ||
               !rlw_msgpack_pass_type(r, out) || !rlw_msgpack_pass_shape(r, out)) {
        return 0;
    }
    out->mark = RLW_MSGPACK_ND;
    out->binary_keys = 1;
    return data->kind == RLW_MSGPACK_BINARY &&
           rlw_msgpack_check_size(&r->c, out, out->dtype.itemsize) == RLW_OK;
}

/* Reads the entries of a map whose head has just been read; `depth` counts the map itself.
 *
 * Advances past a marked map. For others `mark` is RLW_MSGPACK_UNMARKED and the cursor stays. Maps
 * of more than 8 entries, or with nested maps or arrays that no mark has, are unmarked, so the cost
 * is at most that of the map's own entries. */
static inline rlw_status rlw_msgpack_read_marked(rlw_msgpack_reader *r,
                                                 const rlw_msgpack_value *map, uint64_t depth,
                                                 rlw_msgpack_marked *out) {
    const rlw_msgpack_value *type = &out->field[RLW_MSGPACK_FIELD_TYPE];
    const rlw_msgpack_value *kind = &out->field[RLW_MSGPACK_FIELD_KIND];
    const uint8_t *start = r->c.at, *dimensions = NULL;
    uint64_t items = r->items;
    unsigned seen = 0, mark = RLW_MSGPACK_FIELD_NONE;
    if (rlw_msgpack_read_usual(r, map, out)) return RLW_OK;
    r->c.at = start;
    r->items = items;
    out->mark = RLW_MSGPACK_UNMARKED;
    out->binary_keys = 0;
    if (map->size >= 2 && map->size <= 8 &&
        rlw_msgpack_read_fields(r, map->size, depth, out, &mark, &seen, &dimensions))
        out->mark = rlw_msgpack_mark_of(out, mark, seen);
    if (out->mark == RLW_MSGPACK_UNMARKED) {
        r->c.at = start;
        r->items = items;
        return RLW_OK;
    }
    out->dims = 0;
    out->dtype.itemsize = 0;
    if (out->mark == RLW_MSGPACK_COMPLEX) return RLW_OK;
    /* kind "O", or type "|O" in openpi-client's form, which has no kind. */
    if (mark == RLW_MSGPACK_FIELD_ND && seen >> RLW_MSGPACK_FIELD_KIND & 1 &&
        rlw_msgpack_is_text(kind, "O", 1))
        return rlw_fail(&r->c, RLW_BAD_PICKLE, kind->at, 0, 0);
    if (rlw_msgpack_is_text(type, "|O", 2) || rlw_msgpack_is_text(type, "O", 1))
        return rlw_fail(&r->c, RLW_BAD_PICKLE, type->at, 0, 0);
    if (out->mark == RLW_MSGPACK_ND &&
        rlw_msgpack_read_shape(r, dimensions, out) != RLW_OK)
        return r->c.fault.status;
    if (!rlw_msgpack_is_bytes(type) ||
        !rlw_dtype_parse(type->data, (size_t)type->size, &out->dtype)) {
        out->dtype.itemsize = 0;
        return RLW_OK;
    }
    if (out->mark == RLW_MSGPACK_NP_GENERIC) return RLW_OK;
    return rlw_msgpack_check_size(&r->c, out, out->dtype.itemsize);
}

/* ---- writing, for plain dtypes; `type` is a name such as "<f4" ---- */

static inline uint8_t *rlw_msgpack_store_shape(uint8_t *p, uint32_t dims, const int64_t *shape) {
    uint32_t i;
    memcpy(p, "\xC4\x05shape", 7);
    p = rlw_msgpack_store_head(p + 7, 0x90, 15, 0, 0xDC, 0xDD, dims);
    for (i = 0; i < dims; i++) p = rlw_msgpack_store_integer(p, shape[i]);
    return p;
}

static inline uint8_t *rlw_msgpack_store_type(uint8_t *p, const char *type, uint32_t size) {
    p = rlw_msgpack_store_head(p, 0xA0, 31, 0xD9, 0xDA, 0xDB, size);
    memcpy(p, type, size);
    return p + size;
}

/* Writes msgpack-numpy's array, except for the `size` bytes of data that must follow. */
static inline rlw_status rlw_msgpack_put_nd(rlw_writer *w, const char *type, uint32_t type_size,
                                            uint32_t dims, const int64_t *shape, uint32_t size) {
    uint8_t *p;
    if (rlw_reserve(w, 64 + (size_t)type_size + 9 * (size_t)dims) != RLW_OK) return RLW_NO_MEMORY;
    p = w->at;
    memcpy(p, "\x85\xC4\x02nd\xC3\xC4\x04type", 12);
    p = rlw_msgpack_store_type(p + 12, type, type_size);
    memcpy(p, "\xC4\x04kind\xC4\x00", 8);
    p = rlw_msgpack_store_shape(p + 8, dims, shape);
    memcpy(p, "\xC4\x04" "data", 6);
    w->at = rlw_msgpack_store_head(p + 6, 0, 0, 0xC4, 0xC5, 0xC6, size);
    return RLW_OK;
}

/* Writes openpi-client's array up to the `size` bytes of data that must follow. */
static inline rlw_status rlw_msgpack_put_ndarray(rlw_writer *w, uint32_t size) {
    if (rlw_reserve(w, 32) != RLW_OK) return RLW_NO_MEMORY;
    memcpy(w->at, "\x84\xC4\x0B__ndarray__\xC3\xC4\x04" "data", 21);
    w->at = rlw_msgpack_store_head(w->at + 21, 0, 0, 0xC4, 0xC5, 0xC6, size);
    return RLW_OK;
}

/* Writes the rest of openpi-client's array, after its data. */
static inline rlw_status rlw_msgpack_put_ndarray_end(rlw_writer *w, const char *type,
                                                     uint32_t type_size, uint32_t dims,
                                                     const int64_t *shape) {
    uint8_t *p;
    if (rlw_reserve(w, 32 + (size_t)type_size + 9 * (size_t)dims) != RLW_OK) return RLW_NO_MEMORY;
    memcpy(w->at, "\xC4\x05" "dtype", 7);
    p = rlw_msgpack_store_type(w->at + 7, type, type_size);
    w->at = rlw_msgpack_store_shape(p, dims, shape);
    return RLW_OK;
}

#endif
