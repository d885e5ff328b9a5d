/* RLX, RELAAX's exchange protocol: typed values to bytes and back.
 *
 * rlw_rlx_read() returns one value at a time. The caller reads the items of a list or dictionary
 * itself, so reading needs no memory. Writing appends to an rlw_writer.
 *
 * A message is a version (uint32, 1), then keys and typed values until its end. On a byte stream,
 * each message is a netstring (netstring.h).
 */
#ifndef RLWIRE_RLX_H
#define RLWIRE_RLX_H

#include "cursor.h"
#include "dtype.h"
#include "image.h"
#include "netstring.h"
#include "writer.h"

#define RLW_RLX_VERSION 1u

typedef enum rlw_rlx_type {
    RLW_RLX_NONE = 0,
    RLW_RLX_NULL = 1,
    RLW_RLX_INT4 = 2,
    RLW_RLX_STRING = 3,
    RLW_RLX_DOUBLE = 4,
    RLW_RLX_BOOLEAN = 5,
    RLW_RLX_IMAGE = 6,
    RLW_RLX_NDARRAY = 7,
    RLW_RLX_LIST = 8,
    RLW_RLX_UINT4 = 9,
    RLW_RLX_INT64 = 10,
    RLW_RLX_DICT = 11
} rlw_rlx_type;

/* The limits of rlwire/limits.py that a reader needs. */
typedef struct rlw_rlx_limits {
    uint64_t items;
    uint64_t string;
    uint64_t pixels;
    uint32_t depth;
    uint32_t dims; /* at most 32 */
} rlw_rlx_limits;

#define RLW_RLX_DEFAULT_LIMITS {UINT64_C(1) << 20, UINT64_C(1) << 24, UINT64_C(1) << 26, 64, 32}

typedef struct rlw_text {
    const uint8_t *data;
    size_t size;
} rlw_text;

typedef struct rlw_rlx_reader {
    rlw_cursor c;
    rlw_rlx_limits limits;
    uint64_t items; /* list items and entries announced so far */
    /* Dialect "readme", of RELAAX's README: arrays arrive without a dtype and have this one, such
     * as "float32". Set it after rlw_rlx_reader_init(), which sets none: each array names its own. */
    rlw_text dtype;
} rlw_rlx_reader;

typedef struct rlw_rlx_array {
    rlw_text name; /* the dtype's name, as received */
    rlw_dtype dtype;
    uint32_t dims;
    const uint8_t *shape; /* dims little-endian uint32 */
    const uint8_t *data;
    size_t size;
} rlw_rlx_array;

typedef struct rlw_rlx_image {
    const rlw_image_mode *mode;
    rlw_text name;
    uint32_t width, height;
    const uint8_t *data;
    size_t size;
} rlw_rlx_image;

typedef struct rlw_rlx_value {
    rlw_rlx_type type;
    const uint8_t *at; /* its type byte */
    union rlw_rlx_payload {
        int64_t integer; /* INT4, INT64, UINT4 */
        double real;
        int boolean;
        rlw_text text;
        uint32_t count; /* LIST: items that follow; DICT: entries, each a key and a value */
        rlw_rlx_array array;
        rlw_rlx_image image;
    } as;
} rlw_rlx_value;

static inline void rlw_rlx_reader_init(rlw_rlx_reader *r, const uint8_t *data, size_t size,
                                       const rlw_rlx_limits *limits) {
    rlw_cursor_init(&r->c, data, size);
    r->limits = *limits;
    r->items = 0;
    r->dtype.data = NULL;
    r->dtype.size = 0;
}

static inline rlw_status rlw_rlx_read_version(rlw_rlx_reader *r) {
    const uint8_t *at = r->c.at;
    uint32_t version = 0;
    RLW_TRY(rlw_take_u32le(&r->c, &version));
    if (version != RLW_RLX_VERSION)
        return rlw_fail(&r->c, RLW_BAD_VERSION, at, version, RLW_RLX_VERSION);
    return RLW_OK;
}

/* Reads a TYPE_STRING_UTF8 without its type byte. The caller checks that it is UTF-8. */
static inline rlw_status rlw_rlx_read_text(rlw_rlx_reader *r, rlw_text *out) {
    const uint8_t *at = r->c.at;
    uint32_t size = 0;
    RLW_TRY(rlw_take_u32le(&r->c, &size));
    if (size > r->limits.string)
        return rlw_fail(&r->c, RLW_OVER_STRING, at, size, r->limits.string);
    out->size = size;
    return rlw_take(&r->c, size, &out->data);
}

static inline rlw_status rlw_rlx_count(rlw_rlx_reader *r, const uint8_t *at, uint64_t count) {
    r->items += count; /* cannot wrap: each count is below the bytes of the message */
    if (r->items > r->limits.items)
        return rlw_fail(&r->c, RLW_OVER_ITEMS, at, r->items, r->limits.items);
    return RLW_OK;
}

static inline rlw_status rlw_rlx_read_count(rlw_rlx_reader *r, uint32_t least, uint32_t *count) {
    const uint8_t *at = r->c.at;
    RLW_TRY(rlw_take_u32le(&r->c, count));
    if (*count > rlw_left(&r->c) / least)
        return rlw_fail(&r->c, RLW_BAD_COUNT, at, *count, rlw_left(&r->c) / least);
    return rlw_rlx_count(r, at, *count);
}

static inline rlw_status rlw_rlx_read_array(rlw_rlx_reader *r, rlw_rlx_value *v) {
    const uint8_t *at = r->c.at;
    uint64_t bytes;
    uint32_t i, size = 0;
    int empty = 0;
    if (r->dtype.size) {
        v->as.array.name = r->dtype;
        if (!rlw_dtype_parse(r->dtype.data, r->dtype.size, &v->as.array.dtype))
            return rlw_fail(&r->c, RLW_BAD_DTYPE, at, 0, 0);
    } else {
        RLW_TRY(rlw_rlx_read_text(r, &v->as.array.name));
        if (!rlw_dtype_parse(v->as.array.name.data, v->as.array.name.size, &v->as.array.dtype))
            return rlw_fail(&r->c, RLW_BAD_DTYPE, at + 4, v->as.array.name.size, 0);
    }
    at = r->c.at;
    RLW_TRY(rlw_take_u32le(&r->c, &v->as.array.dims));
    if (v->as.array.dims > r->limits.dims)
        return rlw_fail(&r->c, RLW_OVER_DIMS, at, v->as.array.dims, r->limits.dims);
    at = r->c.at;
    RLW_TRY(rlw_take(&r->c, (uint64_t)v->as.array.dims * 4, &v->as.array.shape));
    bytes = v->as.array.dtype.itemsize;
    for (i = 0; i < v->as.array.dims; i++) {
        uint32_t n = rlw_load_u32le(v->as.array.shape + 4 * i);
        if (n == 0) {
            empty = 1; /* NumPy still rejects the other dimensions if their product overflows */
        } else {
            if (bytes > (uint64_t)INT64_MAX / n) return rlw_fail(&r->c, RLW_BAD_SHAPE, at, 0, 0);
            bytes *= n;
        }
    }
    if (empty) bytes = 0;
    at = r->c.at;
    RLW_TRY(rlw_take_u32le(&r->c, &size));
    if (size != bytes) return rlw_fail(&r->c, RLW_BAD_SIZE, at, size, bytes);
    v->as.array.size = size;
    return rlw_take(&r->c, size, &v->as.array.data);
}

static inline rlw_status rlw_rlx_read_image(rlw_rlx_reader *r, rlw_rlx_value *v) {
    const uint8_t *at = r->c.at;
    uint64_t bytes, pixels;
    uint32_t size = 0;
    RLW_TRY(rlw_rlx_read_text(r, &v->as.image.name));
    v->as.image.mode = rlw_image_mode_find(v->as.image.name.data, v->as.image.name.size);
    if (!v->as.image.mode)
        return rlw_fail(&r->c, RLW_BAD_MODE, at + 4, v->as.image.name.size, 0);
    at = r->c.at;
    RLW_TRY(rlw_take_u32le(&r->c, &v->as.image.width));
    RLW_TRY(rlw_take_u32le(&r->c, &v->as.image.height));
    pixels = (uint64_t)v->as.image.width * v->as.image.height;
    if (pixels > r->limits.pixels)
        return rlw_fail(&r->c, RLW_OVER_PIXELS, at, pixels, r->limits.pixels);
    at = r->c.at;
    RLW_TRY(rlw_take_u32le(&r->c, &size));
    bytes = rlw_image_bytes(v->as.image.mode, v->as.image.width, v->as.image.height);
    if (size != bytes) return rlw_fail(&r->c, RLW_BAD_SIZE, at, size, bytes);
    v->as.image.size = size;
    return rlw_take(&r->c, size, &v->as.image.data);
}

/* Reads one typed value; for a list or dictionary only the count. */
static inline rlw_status rlw_rlx_read(rlw_rlx_reader *r, rlw_rlx_value *v) {
    rlw_cursor *c = &r->c;
    const uint8_t *p;
    uint8_t byte = 0;
    v->at = c->at;
    RLW_TRY(rlw_take_u8(c, &byte));
    if (byte <= RLW_RLX_DICT) v->type = (rlw_rlx_type)byte; /* larger is undefined in C++ enums */
    switch (byte) {
    case RLW_RLX_NONE:
    case RLW_RLX_NULL: return RLW_OK;
    case RLW_RLX_INT4:
        RLW_TRY(rlw_take(c, 4, &p));
        v->as.integer = rlw_sign_extend(rlw_load_u32le(p), 32);
        return RLW_OK;
    case RLW_RLX_UINT4:
        RLW_TRY(rlw_take(c, 4, &p));
        v->as.integer = (int64_t)rlw_load_u32le(p);
        return RLW_OK;
    case RLW_RLX_INT64:
        RLW_TRY(rlw_take(c, 8, &p));
        v->as.integer = rlw_sign_extend(rlw_load_u64le(p), 64);
        return RLW_OK;
    case RLW_RLX_DOUBLE:
        RLW_TRY(rlw_take(c, 8, &p));
        v->as.real = rlw_load_f64le(p);
        return RLW_OK;
    case RLW_RLX_BOOLEAN:
        RLW_TRY(rlw_take_u8(c, &byte));
        if (byte > 1) return rlw_fail(c, RLW_BAD_BOOLEAN, c->at - 1, byte, 1);
        v->as.boolean = byte;
        return RLW_OK;
    case RLW_RLX_STRING: return rlw_rlx_read_text(r, &v->as.text);
    case RLW_RLX_NDARRAY: return rlw_rlx_read_array(r, v);
    case RLW_RLX_IMAGE: return rlw_rlx_read_image(r, v);
    /* The smallest item is a type byte; the smallest entry an empty key and a type byte. */
    case RLW_RLX_LIST: return rlw_rlx_read_count(r, 1, &v->as.count);
    case RLW_RLX_DICT: return rlw_rlx_read_count(r, 5, &v->as.count);
    default: return rlw_fail(c, RLW_BAD_TYPE, c->at - 1, byte, RLW_RLX_DICT);
    }
}

/* Returns the offset from `start` of the first array or image data of at least `least` bytes; 0 if
 * there is none. The message may be incomplete. */
static inline size_t rlw_rlx_find_data(const uint8_t *start, const uint8_t *message, size_t size,
                                       size_t least, const rlw_rlx_limits *limits) {
    rlw_rlx_reader r;
    rlw_rlx_value v;
    rlw_text key;
    uint64_t pending = 0; /* list items left at this level; precise enough for a hint */
    memset(&v, 0, sizeof v); /* GCC at -O1 warns otherwise */
    rlw_rlx_reader_init(&r, message, size, limits);
    if (rlw_rlx_read_version(&r) != RLW_OK) return 0;
    while (r.c.at < r.c.end) {
        if (pending) {
            pending--;
        } else if (rlw_rlx_read_text(&r, &key) != RLW_OK) {
            return 0;
        }
        v.type = RLW_RLX_NONE; /* if the type byte is missing */
        if (rlw_rlx_read(&r, &v) != RLW_OK) {
            /* Incomplete data stops here, after the header. */
            if (r.c.fault.status != RLW_NEED_MORE) return 0;
            if (v.type != RLW_RLX_NDARRAY && v.type != RLW_RLX_IMAGE) return 0;
            if (r.c.fault.got < least || r.c.fault.got <= 256) return 0;
            return (size_t)(r.c.at - start);
        }
        if (v.type == RLW_RLX_NDARRAY && v.as.array.size >= least)
            return (size_t)(v.as.array.data - start);
        if (v.type == RLW_RLX_IMAGE && v.as.image.size >= least)
            return (size_t)(v.as.image.data - start);
        if (v.type == RLW_RLX_LIST) {
            if (pending) return 0;
            pending = v.as.count;
        } else if (v.type == RLW_RLX_DICT) {
            if (pending) return 0; /* reads its entries like the message's */
        }
    }
    return 0;
}

/* Writing. Each function returns RLW_OK or RLW_NO_MEMORY. */

static inline rlw_status rlw_rlx_put_version(rlw_writer *w) {
    return rlw_put_u32le(w, RLW_RLX_VERSION);
}

/* Writes a string without its type byte. */
static inline rlw_status rlw_rlx_put_text(rlw_writer *w, const void *text, uint32_t size) {
    if (rlw_reserve(w, (size_t)size + 4) != RLW_OK) return RLW_NO_MEMORY;
    rlw_store_u32le(w->at, size);
    if (size) memcpy(w->at + 4, text, size);
    w->at += (size_t)size + 4;
    return RLW_OK;
}

static inline rlw_status rlw_rlx_put_type(rlw_writer *w, rlw_rlx_type type) {
    if (rlw_reserve(w, 1) != RLW_OK) return RLW_NO_MEMORY;
    *w->at++ = (uint8_t)type;
    return RLW_OK;
}

static inline rlw_status rlw_rlx_put_null(rlw_writer *w) {
    return rlw_rlx_put_type(w, RLW_RLX_NULL);
}

static inline rlw_status rlw_rlx_put_boolean(rlw_writer *w, int value) {
    if (rlw_reserve(w, 2) != RLW_OK) return RLW_NO_MEMORY;
    w->at[0] = RLW_RLX_BOOLEAN;
    w->at[1] = value != 0;
    w->at += 2;
    return RLW_OK;
}

static inline rlw_status rlw_rlx_put_u32_as(rlw_writer *w, rlw_rlx_type type,
                                            uint32_t value) {
    if (rlw_reserve(w, 5) != RLW_OK) return RLW_NO_MEMORY;
    w->at[0] = (uint8_t)type;
    rlw_store_u32le(w->at + 1, value);
    w->at += 5;
    return RLW_OK;
}

static inline rlw_status rlw_rlx_put_int4(rlw_writer *w, int32_t value) {
    return rlw_rlx_put_u32_as(w, RLW_RLX_INT4, (uint32_t)value);
}

static inline rlw_status rlw_rlx_put_u64_as(rlw_writer *w, rlw_rlx_type type, uint64_t bits) {
    if (rlw_reserve(w, 9) != RLW_OK) return RLW_NO_MEMORY;
    w->at[0] = (uint8_t)type;
    rlw_store_u64le(w->at + 1, bits);
    w->at += 9;
    return RLW_OK;
}

static inline rlw_status rlw_rlx_put_int64(rlw_writer *w, int64_t value) {
    return rlw_rlx_put_u64_as(w, RLW_RLX_INT64, (uint64_t)value);
}

/* Writes an INT4 if the value fits, else an INT64. */
static inline rlw_status rlw_rlx_put_integer(rlw_writer *w, int64_t value) {
    if (value >= INT32_MIN && value <= INT32_MAX) return rlw_rlx_put_int4(w, (int32_t)value);
    return rlw_rlx_put_int64(w, value);
}

static inline rlw_status rlw_rlx_put_double(rlw_writer *w, double value) {
    return rlw_rlx_put_u64_as(w, RLW_RLX_DOUBLE, rlw_double_bits(value));
}

static inline rlw_status rlw_rlx_put_string(rlw_writer *w, const void *text, uint32_t size) {
    if (rlw_rlx_put_type(w, RLW_RLX_STRING) != RLW_OK) return RLW_NO_MEMORY;
    return rlw_rlx_put_text(w, text, size);
}

static inline rlw_status rlw_rlx_put_list(rlw_writer *w, uint32_t count) {
    return rlw_rlx_put_u32_as(w, RLW_RLX_LIST, count);
}

/* Writes the head of `count` entries. Each is a rlw_rlx_put_text() and a value. */
static inline rlw_status rlw_rlx_put_dict(rlw_writer *w, uint32_t count) {
    return rlw_rlx_put_u32_as(w, RLW_RLX_DICT, count);
}

/* Writes an array's header. `size` bytes in row-major order must follow. Dialect "readme" has no
 * dtype: pass NULL. */
static inline rlw_status rlw_rlx_put_array_head(rlw_writer *w, const void *dtype,
                                                uint32_t dtype_size, uint32_t dims,
                                                const uint32_t *shape, uint32_t size) {
    uint32_t i;
    if (rlw_rlx_put_type(w, RLW_RLX_NDARRAY) != RLW_OK) return RLW_NO_MEMORY;
    if (dtype && rlw_rlx_put_text(w, dtype, dtype_size) != RLW_OK) return RLW_NO_MEMORY;
    if (rlw_reserve(w, 8 + 4 * (size_t)dims) != RLW_OK) return RLW_NO_MEMORY;
    rlw_store_u32le(w->at, dims);
    for (i = 0; i < dims; i++) rlw_store_u32le(w->at + 4 + 4 * i, shape[i]);
    rlw_store_u32le(w->at + 4 + 4 * (size_t)dims, size);
    w->at += 8 + 4 * (size_t)dims;
    return RLW_OK;
}

static inline rlw_status rlw_rlx_put_image_head(rlw_writer *w, const void *mode,
                                                uint32_t mode_size, uint32_t width,
                                                uint32_t height, uint32_t size) {
    if (rlw_rlx_put_type(w, RLW_RLX_IMAGE) != RLW_OK) return RLW_NO_MEMORY;
    if (rlw_rlx_put_text(w, mode, mode_size) != RLW_OK) return RLW_NO_MEMORY;
    if (rlw_put_u32le(w, width) != RLW_OK || rlw_put_u32le(w, height) != RLW_OK)
        return RLW_NO_MEMORY;
    return rlw_put_u32le(w, size);
}

/* Writes a message in a netstring: begin, put entries, end. rlw_rlx_end() returns the frame, which
 * is inside the writer and valid until the next begin. */
static inline rlw_status rlw_rlx_begin(rlw_writer *w) {
    w->at = w->start;
    if (rlw_reserve(w, RLW_NETSTRING_ROOM + 4) != RLW_OK) return RLW_NO_MEMORY;
    w->at += RLW_NETSTRING_ROOM;
    return rlw_rlx_put_version(w);
}

static inline rlw_status rlw_rlx_end(rlw_writer *w, const uint8_t **frame, size_t *size) {
    uint8_t *body;
    if (rlw_put(w, ",", 1) != RLW_OK) return RLW_NO_MEMORY;
    body = w->start + RLW_NETSTRING_ROOM;
    *frame = rlw_netstring_prefix_before(body, (uint64_t)(w->at - body) - 1);
    *size = (size_t)(w->at - *frame);
    return RLW_OK;
}

#endif
