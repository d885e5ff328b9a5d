/* Packed arrays of varints on any host, eight small values at a time; also for the rest of x86 arrays. */
#ifndef RLWIRE_VARINT_PORTABLE_H
#define RLWIRE_VARINT_PORTABLE_H

#include "endian.h"
#include "protobuf.h"

#define RLW_STOP_BITS UINT64_C(0x8080808080808080) /* set in all bytes of a varint but the last */
#define RLW_DATA_BITS UINT64_C(0x7F7F7F7F7F7F7F7F)

/* ---- to bytes: up to `end`, since another thread may change values after measuring ---- */

#define RLW_PACK_PORTABLE(NAME, TYPE, WIDE) \
    static inline uint64_t rlw_varints_size_##NAME##_portable(const TYPE *values, size_t count) { \
        uint64_t size = 0; \
        size_t i; \
        for (i = 0; i < count; i++) size += rlw_varint_size((uint64_t)(WIDE)values[i]); \
        return size; \
    } \
    static inline uint8_t *rlw_varints_pack_##NAME##_portable( \
        uint8_t *to, const uint8_t *end, const TYPE *values, size_t count) { \
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
RLW_PACK_PORTABLE(i32, int32_t, int64_t)
RLW_PACK_PORTABLE(u32, uint32_t, uint32_t)
RLW_PACK_PORTABLE(u64, uint64_t, uint64_t)
#undef RLW_PACK_PORTABLE

/* ---- from bytes ---- */

static inline size_t rlw_varints_count_portable(const uint8_t *data, size_t size) {
    size_t count = 0, i;
    for (i = 0; i < size; i++) count += data[i] < 0x80;
    return count;
}

/* Do what rlw_varints_unpack_u32() and its kin in varint.h do. 32-bit values keep the low 32 bits of the
 * varint, as protobuf requires. Booleans are varints too: any value but 0 is true. */
#define RLW_UNPACK_PORTABLE(NAME, TYPE, VALUE) \
    static inline const uint8_t *rlw_varints_unpack_##NAME##_portable( \
        const uint8_t *p, const uint8_t *end, TYPE *out, const TYPE *out_end) { \
        while (p < end) { \
            uint64_t v; \
            const uint8_t *next; \
            if (end - p >= 8 && out_end - out >= 8 && !(rlw_load_u64le(p) & RLW_STOP_BITS)) { \
                for (next = p + 8; p < next; p++) { \
                    v = *p; \
                    *out++ = (TYPE)(VALUE); \
                } \
                continue; \
            } \
            next = rlw_varint_get(p, end, &v); \
            if (!next || out == out_end) return p; \
            *out++ = (TYPE)(VALUE); \
            p = next; \
        } \
        return out == out_end ? p : NULL; \
    }
RLW_UNPACK_PORTABLE(u32, uint32_t, v)
RLW_UNPACK_PORTABLE(u64, uint64_t, v)
RLW_UNPACK_PORTABLE(bool, uint8_t, v != 0)
#undef RLW_UNPACK_PORTABLE

#endif
