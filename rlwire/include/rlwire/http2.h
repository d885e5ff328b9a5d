/* HTTP/2 frames (RFC 9113): head, padding, settings, flow control; and gRPC's message prefix. */
#ifndef RLWIRE_HTTP2_H
#define RLWIRE_HTTP2_H

#include "cursor.h"

/* Frame types, section 6. Others are ignored (section 4.1). */
enum {
    RLW_H2_DATA, RLW_H2_HEADERS, RLW_H2_PRIORITY, RLW_H2_RST_STREAM, RLW_H2_SETTINGS,
    RLW_H2_PUSH_PROMISE, RLW_H2_PING, RLW_H2_GOAWAY, RLW_H2_WINDOW_UPDATE, RLW_H2_CONTINUATION
};

/* Flags. END_STREAM applies to DATA and HEADERS, ACK to SETTINGS and PING. */
enum {
    RLW_H2_END_STREAM = 0x1,
    RLW_H2_ACK = 0x1,
    RLW_H2_END_HEADERS = 0x4,
    RLW_H2_PADDED = 0x8,
    RLW_H2_PRIORITIZED = 0x20
};

/* Settings whose values have a range, section 6.5.2. */
enum { RLW_H2_ENABLE_PUSH = 2, RLW_H2_INITIAL_WINDOW_SIZE = 4, RLW_H2_MAX_FRAME_SIZE = 5 };

/* Error codes of faults in one frame, section 7. */
enum {
    RLW_H2_NO_ERROR = 0,
    RLW_H2_PROTOCOL_ERROR = 1,
    RLW_H2_FLOW_CONTROL_ERROR = 3,
    RLW_H2_FRAME_SIZE_ERROR = 6,
    RLW_H2_ENHANCE_YOUR_CALM = 11
};

#define RLW_H2_HEAD 9                 /* bytes of a frame's head */
#define RLW_H2_FRAME_LEAST 16384u     /* range of SETTINGS_MAX_FRAME_SIZE, section 6.5.2 */
#define RLW_H2_FRAME_MOST 16777215u
#define RLW_H2_WINDOW_MOST 0x7FFFFFFF /* section 6.9.1 */
#define RLW_H2_WINDOW_FIRST 65535     /* section 6.9.2 */
#define RLW_GRPC_PREFIX 5             /* bytes before a gRPC message: compression flag, length */
#define RLW_GRPC_MOST 0xFFFFFFFFu     /* the maximum of that length */

typedef struct rlw_h2_head {
    uint32_t size;   /* bytes of payload */
    uint32_t stream; /* without the reserved bit */
    uint8_t type;
    uint8_t flags;
} rlw_h2_head;

/* Checks a frame's size and stream for its type. Returns RLW_OK, RLW_BAD_STREAM, RLW_BAD_PUSH, or
 * RLW_BAD_FRAME_SIZE with the valid size in `allowed`. */
static inline rlw_status rlw_h2_check_head(const rlw_h2_head *h, uint64_t *allowed) {
    uint32_t least = 0;
    switch (h->type) {
    case RLW_H2_DATA:
    case RLW_H2_HEADERS:
        if (h->flags & RLW_H2_PADDED) least = 1;
        if (h->type == RLW_H2_HEADERS && h->flags & RLW_H2_PRIORITIZED) least += 5;
        *allowed = least;
        return !h->stream ? RLW_BAD_STREAM : h->size < least ? RLW_BAD_FRAME_SIZE : RLW_OK;
    case RLW_H2_CONTINUATION: return h->stream ? RLW_OK : RLW_BAD_STREAM;
    case RLW_H2_PRIORITY:
        *allowed = 5;
        return !h->stream ? RLW_BAD_STREAM : h->size != 5 ? RLW_BAD_FRAME_SIZE : RLW_OK;
    case RLW_H2_RST_STREAM:
        *allowed = 4;
        return !h->stream ? RLW_BAD_STREAM : h->size != 4 ? RLW_BAD_FRAME_SIZE : RLW_OK;
    case RLW_H2_WINDOW_UPDATE:
        *allowed = 4;
        return h->size != 4 ? RLW_BAD_FRAME_SIZE : RLW_OK;
    case RLW_H2_SETTINGS:
        *allowed = h->flags & RLW_H2_ACK ? 0 : h->size - h->size % 6;
        return h->stream ? RLW_BAD_STREAM : h->size != *allowed ? RLW_BAD_FRAME_SIZE : RLW_OK;
    case RLW_H2_PING:
        *allowed = 8;
        return h->stream ? RLW_BAD_STREAM : h->size != 8 ? RLW_BAD_FRAME_SIZE : RLW_OK;
    case RLW_H2_GOAWAY:
        *allowed = 8;
        return h->stream ? RLW_BAD_STREAM : h->size < 8 ? RLW_BAD_FRAME_SIZE : RLW_OK;
    case RLW_H2_PUSH_PROMISE: return RLW_BAD_PUSH; /* section 8.4: never enabled */
    default: return RLW_OK;
    }
}

/* Reads the head at c->at, and advances past it on RLW_OK.
 *
 *     most   the largest frame, as announced (SETTINGS_MAX_FRAME_SIZE)
 *     other  the largest payload of a known type other than DATA (section 10.5)
 *
 * Sets `out` for every status but RLW_NEED_MORE. */
static inline rlw_status rlw_h2_read_head(rlw_cursor *c, uint32_t most, uint32_t other,
                                          rlw_h2_head *out) {
    const uint8_t *p = c->at;
    uint64_t allowed = 0;
    rlw_status status;
    if (rlw_left(c) < RLW_H2_HEAD) {
        out->size = out->stream = 0; /* against warnings: unused without RLW_OK */
        out->type = out->flags = 0;
        return rlw_fail(c, RLW_NEED_MORE, p, RLW_H2_HEAD, rlw_left(c));
    }
    out->size = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | (uint32_t)p[2];
    out->type = p[3];
    out->flags = p[4];
    out->stream = rlw_load_u32be(p + 5) & 0x7FFFFFFFu;
    if (out->size > most) return rlw_fail(c, RLW_BAD_FRAME_SIZE, p, out->size, most);
    if (out->type != RLW_H2_DATA && out->type <= RLW_H2_CONTINUATION && out->size > other)
        return rlw_fail(c, RLW_OVER_FRAME, p, out->size, other);
    status = rlw_h2_check_head(out, &allowed);
    if (status != RLW_OK)
        return rlw_fail(c, status, p,
                        status == RLW_BAD_FRAME_SIZE   ? out->size
                        : status == RLW_BAD_PUSH ? out->type
                                                 : out->stream,
                        allowed);
    c->at = p + RLW_H2_HEAD;
    return RLW_OK;
}

/* Writes a head of RLW_H2_HEAD bytes; `size` <= RLW_H2_FRAME_MOST. Returns the position after it. */
static inline uint8_t *rlw_h2_write_head(uint8_t *to, uint32_t size, unsigned type, unsigned flags,
                                         uint32_t stream) {
    to[0] = (uint8_t)(size >> 16);
    to[1] = (uint8_t)(size >> 8);
    to[2] = (uint8_t)size;
    to[3] = (uint8_t)type;
    to[4] = (uint8_t)flags;
    rlw_store_u32be(to + 5, stream);
    return to + RLW_H2_HEAD;
}

/* Reads the payload of the frame whose head was read, without padding and priority. */
static inline rlw_status rlw_h2_take_payload(rlw_cursor *c, const rlw_h2_head *h,
                                             const uint8_t **data, size_t *size) {
    const uint8_t *p = c->at;
    size_t left = h->size, skip = 0, padding = 0;
    if (rlw_left(c) < left) return rlw_fail(c, RLW_NEED_MORE, p, left, rlw_left(c));
    if (h->type == RLW_H2_DATA || h->type == RLW_H2_HEADERS) {
        if (h->flags & RLW_H2_PADDED) {
            padding = p[0]; /* rlw_h2_check_head has checked its presence */
            skip = 1;
        }
        if (h->type == RLW_H2_HEADERS && h->flags & RLW_H2_PRIORITIZED) skip += 5;
        if (skip + padding > left)
            return rlw_fail(c, RLW_BAD_PADDING, p, padding, left - skip);
    }
    *data = p + skip;
    *size = left - skip - padding;
    c->at = p + left;
    return RLW_OK;
}

/* Reads one setting, and checks its value (section 6.5.2). */
static inline rlw_status rlw_h2_read_setting(rlw_cursor *c, unsigned *id, uint32_t *value) {
    const uint8_t *p = c->at;
    if (rlw_left(c) < 6) return rlw_fail(c, RLW_NEED_MORE, p, 6, rlw_left(c));
    *id = (unsigned)p[0] << 8 | p[1];
    *value = rlw_load_u32be(p + 2);
    if (*id == RLW_H2_ENABLE_PUSH && *value > 1) return rlw_fail(c, RLW_BAD_SETTING, p, *value, 1);
    if (*id == RLW_H2_INITIAL_WINDOW_SIZE && *value > RLW_H2_WINDOW_MOST)
        return rlw_fail(c, RLW_BAD_WINDOW, p, *value, RLW_H2_WINDOW_MOST);
    if (*id == RLW_H2_MAX_FRAME_SIZE &&
        (*value < RLW_H2_FRAME_LEAST || *value > RLW_H2_FRAME_MOST))
        return rlw_fail(c, RLW_BAD_SETTING, p, *value,
                        *value < RLW_H2_FRAME_LEAST ? RLW_H2_FRAME_LEAST : RLW_H2_FRAME_MOST);
    c->at = p + 6;
    return RLW_OK;
}

/* Increases `*window` by the WINDOW_UPDATE payload at c->at, four bytes (section 6.9). */
static inline rlw_status rlw_h2_open_window(rlw_cursor *c, int64_t *window) {
    const uint8_t *p = c->at;
    uint32_t more;
    if (rlw_left(c) < 4) return rlw_fail(c, RLW_NEED_MORE, p, 4, rlw_left(c));
    more = rlw_load_u32be(p) & 0x7FFFFFFFu;
    if (!more) return rlw_fail(c, RLW_BAD_INCREMENT, p, 0, 1);
    if (*window + (int64_t)more > RLW_H2_WINDOW_MOST)
        return rlw_fail(c, RLW_BAD_WINDOW, p, (uint64_t)(*window + (int64_t)more),
                        RLW_H2_WINDOW_MOST);
    *window += (int64_t)more;
    c->at = p + 4;
    return RLW_OK;
}

/* Returns 1 if a fault in a frame is a stream error, 0 for a connection error (section 5.4). */
static inline int rlw_h2_stream_only(const rlw_h2_head *h, rlw_status status) {
    if (!h->stream) return 0;
    if (h->type == RLW_H2_PRIORITY) return status == RLW_BAD_FRAME_SIZE && h->size != 5;
    return h->type == RLW_H2_WINDOW_UPDATE &&
           (status == RLW_BAD_INCREMENT || status == RLW_BAD_WINDOW);
}

/* Returns the error code of section 7 for a status. */
static inline unsigned rlw_h2_code_of(rlw_status status) {
    switch (status) {
    case RLW_OK: return RLW_H2_NO_ERROR;
    case RLW_BAD_FRAME_SIZE: return RLW_H2_FRAME_SIZE_ERROR;
    case RLW_BAD_WINDOW: return RLW_H2_FLOW_CONTROL_ERROR;
    case RLW_OVER_FRAME: return RLW_H2_ENHANCE_YOUR_CALM;
    default: return RLW_H2_PROTOCOL_ERROR;
    }
}

/* Writes the prefix of a gRPC message, RLW_GRPC_PREFIX bytes. Returns the position after it. */
static inline uint8_t *rlw_grpc_write_prefix(uint8_t *to, uint32_t size) {
    *to = 0; /* not compressed */
    rlw_store_u32be(to + 1, size);
    return to + RLW_GRPC_PREFIX;
}

/* Reads the prefix of a gRPC message. Sets `*size` for every status but RLW_NEED_MORE. */
static inline rlw_status rlw_grpc_read_prefix(rlw_cursor *c, uint64_t limit, uint32_t *size) {
    const uint8_t *p = c->at;
    *size = 0;
    if (rlw_left(c) < RLW_GRPC_PREFIX)
        return rlw_fail(c, RLW_NEED_MORE, p, RLW_GRPC_PREFIX, rlw_left(c));
    *size = rlw_load_u32be(p + 1);
    if (p[0]) return rlw_fail(c, RLW_BAD_COMPRESSED, p, p[0], 0);
    if (*size > limit) return rlw_fail(c, RLW_OVER_MESSAGE, p + 1, *size, limit);
    c->at = p + RLW_GRPC_PREFIX;
    return RLW_OK;
}

#endif
