/* Packed arrays of varints. Use uint64 for int64. A negative int32 is encoded as a 64-bit number. */
#ifndef RLWIRE_VARINT_H
#define RLWIRE_VARINT_H

#include "endian.h"
#include "protobuf.h"

/* ---- to bytes, eight values at a time, because most arrays of integers have small ones ----
 *
 * Sizes are the bytes of the values as varints. Packing stores values up to `end`, since another
 * thread may change them after measuring, and returns the position after them. */

#define RLW_VARINTS_PACK(NAME, TYPE, WIDE) \
    static inline uint64_t rlw_varints_size_##NAME(const TYPE *values, size_t count) { \
        uint64_t size = 0; \
        size_t i; \
        for (i = 0; i < count; i++) size += rlw_varint_size((uint64_t)(WIDE)values[i]); \
        return size; \
    } \
    static inline uint8_t *rlw_varints_pack_##NAME(uint8_t *to, const uint8_t *end, \
                                                   const TYPE *values, size_t count) { \
        size_t i = 0, k; \
        while (i < count) { \
            size_t some = count - i < 8 ? count - i : 8; \
            uint64_t all = 0; \
            for (k = 0; k < some; k++) all |= (uint64_t)(WIDE)values[i + k]; \
            if (all < 0x80 && (size_t)(end - to) >= some) { \
                for (k = 0; k < some; k++) *to++ = (uint8_t)values[i + k]; \
            } else { \
                for (k = 0; k < some; k++) { \
                    uint64_t v = (uint64_t)(WIDE)values[i + k]; \
                    if (end - to < RLW_VARINT_ROOM && (size_t)(end - to) < rlw_varint_size(v)) \
                        return to; \
                    to = rlw_store_varint(to, v); \
                } \
            } \
            i += some; \
        } \
        return to; \
    }
RLW_VARINTS_PACK(i32, int32_t, int64_t)
RLW_VARINTS_PACK(u32, uint32_t, uint32_t)
RLW_VARINTS_PACK(u64, uint64_t, uint64_t)
#undef RLW_VARINTS_PACK

/* ---- from bytes ---- */

/* Counts the varints that end within `size` bytes. */
static inline size_t rlw_varints_count(const uint8_t *data, size_t size) {
    size_t count = 0, i;
    for (i = 0; i < size; i++) count += data[i] < 0x80;
    return count;
}

/* Reads one varint; returns NULL if it exceeds 64 bits or the bytes end inside it. */
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

/* Read exactly `count` values from exactly `size` bytes. Return data + size, or the first invalid or
 * surplus varint, or NULL for too few. They access only the two arrays, even if the bytes change.
 *
 * 32-bit values keep the low 32 bits of the varint, as protobuf requires. Of booleans, any value but 0
 * is true. */
#define RLW_VARINTS_UNPACK(NAME, TYPE, MADE) \
    static inline const uint8_t *rlw_varints_unpack_##NAME(const uint8_t *data, size_t size, \
                                                           TYPE *out, size_t count) { \
        const uint8_t *p = data, *end = data + size; \
        const TYPE *out_end = out + count; \
        while (p < end) { \
            uint64_t v; \
            const uint8_t *next; \
            if (end - p >= 8 && out_end - out >= 8 && \
                !(rlw_load_u64le(p) & UINT64_C(0x8080808080808080))) { \
                for (next = p + 8; p < next; p++) { \
                    v = *p; \
                    *out++ = (TYPE)(MADE); \
                } \
                continue; \
            } \
            next = rlw_varint_get(p, end, &v); \
            if (!next || out == out_end) return p; \
            *out++ = (TYPE)(MADE); \
            p = next; \
        } \
        return out == out_end ? p : NULL; \
    }
RLW_VARINTS_UNPACK(u32, uint32_t, v)
RLW_VARINTS_UNPACK(u64, uint64_t, v)
RLW_VARINTS_UNPACK(bool, uint8_t, v != 0)
#undef RLW_VARINTS_UNPACK

/* Returns 1 if every byte is 0 or 1: then a packed array is the same as an array of booleans. */
static inline int rlw_bools_are_plain(const uint8_t *data, size_t size) {
    size_t done, i;
    for (done = 0; done < size; done += 4096) { /* stops early without a branch per byte */
        size_t some = size - done < 4096 ? size - done : 4096;
        uint8_t bits = 0;
        for (i = 0; i < some; i++) bits |= data[done + i];
        if (bits > 1) return 0;
    }
    return 1;
}

#endif
