/* WebSocket frames (RFC 6455): headers and masks. */
#ifndef RLWIRE_WEBSOCKET_H
#define RLWIRE_WEBSOCKET_H

#include "cursor.h"

/* Opcodes, section 5.2; control frames have 8 and above. */
enum {
    RLW_WS_CONTINUATION = 0,
    RLW_WS_TEXT = 1,
    RLW_WS_BINARY = 2,
    RLW_WS_CLOSE = 8,
    RLW_WS_PING = 9,
    RLW_WS_PONG = 10
};

#define RLW_WS_HEADER_MOST 14
#define RLW_WS_CONTROL_MOST 125

typedef struct rlw_ws_header {
    uint64_t size; /* bytes of payload */
    uint8_t opcode;
    uint8_t fin;
    uint8_t masked;
    uint8_t key[4]; /* zero if not masked */
} rlw_ws_header;

/* Reads the header at c->at and advances past it on RLW_OK. Checks every rule as soon as its byte has
 * arrived, so an invalid frame is rejected without waiting for the rest.
 *
 *     masked  1 if the frame must be masked (from clients), 0 if it must not
 *     limit   most bytes of payload in a data frame, below 2**63; control frames have their own
 */
static inline rlw_status rlw_ws_read_header(rlw_cursor *c, int masked, uint64_t limit,
                                            rlw_ws_header *out) {
    const uint8_t *p = c->at;
    size_t left = rlw_left(c), need = 2, wide, i;
    uint64_t size;
    out->size = 0; /* against warnings: it is read after RLW_OK only */
    if (left == 0) return rlw_fail(c, RLW_NEED_MORE, p, 2, 0);
    if (p[0] & 0x70) return rlw_fail(c, RLW_BAD_RESERVED, p, p[0], 0);
    out->opcode = p[0] & 0x0F;
    out->fin = p[0] >> 7;
    if ((out->opcode & 0x07) > 2) return rlw_fail(c, RLW_BAD_OPCODE, p, out->opcode, 0);
    if (out->opcode >= RLW_WS_CLOSE && !out->fin)
        return rlw_fail(c, RLW_BAD_CONTROL, p, out->opcode, 0);
    if (left == 1) return rlw_fail(c, RLW_NEED_MORE, p, 2, 1);
    out->masked = p[1] >> 7;
    if (out->masked != (masked ? 1 : 0))
        return rlw_fail(c, RLW_BAD_MASK, p + 1, out->masked, masked ? 1 : 0);
    size = p[1] & 0x7F;
    if (out->opcode >= RLW_WS_CLOSE && size > RLW_WS_CONTROL_MOST)
        return rlw_fail(c, RLW_BAD_CONTROL, p + 1, out->opcode, 0);
    wide = size < 126 ? 0 : size == 126 ? 2 : 8;
    need += wide;
    if (wide && left >= need) {
        for (size = 0, i = 2; i < need; i++) size = size << 8 | p[i];
        if (size <= (wide == 2 ? 125u : 0xFFFFu) || size >> 63)
            return rlw_fail(c, RLW_BAD_LENGTH, p + 1, size, 0);
    }
    if (left >= need && size > limit && out->opcode < RLW_WS_CLOSE)
        return rlw_fail(c, RLW_OVER_MESSAGE, p + 1, size, limit);
    if (out->masked) need += 4;
    if (left < need) return rlw_fail(c, RLW_NEED_MORE, p, need, left);
    if (out->masked)
        memcpy(out->key, p + need - 4, 4);
    else
        memset(out->key, 0, 4);
    out->size = size;
    c->at = p + need;
    return RLW_OK;
}

/* Returns the header's bytes for a frame with `size` bytes of payload. */
static inline size_t rlw_ws_header_size(uint64_t size, int masked) {
    return (size < 126 ? 2u : size <= 0xFFFF ? 4u : 10u) + (masked ? 4u : 0u);
}

/* Writes a header of rlw_ws_header_size() bytes; `key` is NULL for a frame without a mask. Returns the
 * position after it. */
static inline uint8_t *rlw_ws_write_header(uint8_t *to, int fin, unsigned opcode, uint64_t size,
                                           const uint8_t *key) {
    unsigned bit = key ? 0x80u : 0u, wide, shift;
    *to++ = (uint8_t)((fin ? 0x80u : 0u) | (opcode & 0x0F));
    if (size < 126) {
        *to++ = (uint8_t)(bit | (unsigned)size);
        wide = 0;
    } else {
        wide = size <= 0xFFFF ? 16 : 64;
        *to++ = (uint8_t)(bit | (wide == 16 ? 126u : 127u));
    }
    for (shift = wide; shift; shift -= 8) *to++ = (uint8_t)(size >> (shift - 8));
    if (key) {
        memcpy(to, key, 4);
        to += 4;
    }
    return to;
}

#if defined(__GNUC__) || defined(__clang__)
typedef uint64_t rlw_ws_vector __attribute__((vector_size(32))); /* two where registers have 16 bytes */
#define RLW_WS_INLINE static inline __attribute__((always_inline))
#else
typedef uint64_t rlw_ws_vector;
#define RLW_WS_INLINE static inline
#endif

/* Masks whole vectors of up to `size` bytes; returns their bytes. */
RLW_WS_INLINE size_t rlw_ws_mask_vectors(uint8_t *to, const uint8_t *from, size_t size,
                                         const uint8_t *key) {
    rlw_ws_vector wide, v;
    size_t i;
    for (i = 0; i < sizeof wide; i += 4) memcpy((uint8_t *)&wide + i, key, 4);
    for (i = 0; i + sizeof v <= size; i += sizeof v) {
        memcpy(&v, from + i, sizeof v);
        v ^= wide;
        memcpy(to + i, &v, sizeof v);
    }
    return i;
}

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__) && !defined(RLW_NO_SIMD)
#define RLW_AVX2 __attribute__((target("avx2")))
#define RLW_WS_HAS_AVX2 __builtin_cpu_supports("avx2")
#else
#define RLW_AVX2
#define RLW_WS_HAS_AVX2 0
#endif
RLW_AVX2 static inline size_t rlw_ws_mask_avx2(uint8_t *to, const uint8_t *from, size_t size,
                                               const uint8_t *key) {
    return rlw_ws_mask_vectors(to, from, size, key);
}

/* Copies `size` bytes and masks or unmasks them. `to` is `from`, or the buffers do not overlap. `phase`
 * is the number of payload bytes before these. Large payloads, which begin right after their header, are
 * stored from a 64-byte boundary on: stores that cross cache lines take twice as long. */
static inline void rlw_ws_mask_copy(uint8_t *to, const uint8_t *from, size_t size,
                                    const uint8_t *key, size_t phase) {
    int large = size >= 256;
    size_t i = 0, k, head = large ? (64 - (size_t)((uintptr_t)to & 63)) & 63 : 0;
    uint8_t turned[4];
    for (; i < head; i++) to[i] = (uint8_t)(from[i] ^ key[(phase + i) & 3]);
    for (k = 0; k < 4; k++) turned[k] = key[(phase + i + k) & 3];
    i += large && RLW_WS_HAS_AVX2 ? rlw_ws_mask_avx2(to + i, from + i, size - i, turned)
                                  : rlw_ws_mask_vectors(to + i, from + i, size - i, turned);
    for (; i < size; i++) to[i] = (uint8_t)(from[i] ^ key[(phase + i) & 3]);
}

/* Masks or unmasks `size` bytes in place. */
static inline void rlw_ws_mask(uint8_t *data, size_t size, const uint8_t *key, size_t phase) {
    rlw_ws_mask_copy(data, data, size, key, phase);
}

/* Returns whether a close frame may carry this code (section 7.4, and the registry of codes). */
static inline int rlw_ws_is_close_code(unsigned code) {
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

#endif
