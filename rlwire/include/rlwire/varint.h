/* Packed arrays of varints, with the fastest code for the processor, chosen at run time. Use uint64
 * for int64. A negative int32 is encoded as a 64-bit number. */
#ifndef RLWIRE_VARINT_H
#define RLWIRE_VARINT_H

#include "varint_portable.h"
#include "varint_x86.h"

#ifdef RLW_VARINT_X86
#define RLW_VARINT_WAY(name, ...) \
    return rlw_x86_is_fast() ? name##_x86(__VA_ARGS__) : name##_portable(__VA_ARGS__)
#else
#define RLW_VARINT_WAY(name, ...) return name##_portable(__VA_ARGS__)
#endif

/* Return the bytes of the values as varints. */
static inline uint64_t rlw_varints_size_i32(const int32_t *values, size_t count) {
    RLW_VARINT_WAY(rlw_varints_size_i32, values, count);
}

static inline uint64_t rlw_varints_size_u32(const uint32_t *values, size_t count) {
    RLW_VARINT_WAY(rlw_varints_size_u32, values, count);
}

static inline uint64_t rlw_varints_size_u64(const uint64_t *values, size_t count) {
    RLW_VARINT_WAY(rlw_varints_size_u64, values, count);
}

/* Store values up to `end`; return the position after them. They may overwrite the bytes up to `end`. */
static inline uint8_t *rlw_varints_pack_i32(uint8_t *to, uint8_t *end, const int32_t *values,
                                            size_t count) {
    RLW_VARINT_WAY(rlw_varints_pack_i32, to, end, values, count);
}

static inline uint8_t *rlw_varints_pack_u32(uint8_t *to, uint8_t *end, const uint32_t *values,
                                            size_t count) {
    RLW_VARINT_WAY(rlw_varints_pack_u32, to, end, values, count);
}

static inline uint8_t *rlw_varints_pack_u64(uint8_t *to, uint8_t *end, const uint64_t *values,
                                            size_t count) {
    RLW_VARINT_WAY(rlw_varints_pack_u64, to, end, values, count);
}

/* Counts the varints that end within `size` bytes. */
static inline size_t rlw_varints_count(const uint8_t *data, size_t size) {
    RLW_VARINT_WAY(rlw_varints_count, data, size);
}

/* Read exactly `count` values from exactly `size` bytes. Return data + size, or the first invalid or
 * surplus varint, or NULL for too few. They access only the two arrays, even if the bytes change. */
static inline const uint8_t *rlw_varints_unpack_u32(const uint8_t *data, size_t size,
                                                    uint32_t *out, size_t count) {
    RLW_VARINT_WAY(rlw_varints_unpack_u32, data, data + size, out, out + count);
}

static inline const uint8_t *rlw_varints_unpack_u64(const uint8_t *data, size_t size,
                                                    uint64_t *out, size_t count) {
    RLW_VARINT_WAY(rlw_varints_unpack_u64, data, data + size, out, out + count);
}

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

static inline const uint8_t *rlw_varints_unpack_bool(const uint8_t *data, size_t size,
                                                     uint8_t *out, size_t count) {
    if (size == count && rlw_bools_are_plain(data, size)) {
        if (size) memcpy(out, data, size);
        return data + size;
    }
    return rlw_varints_unpack_bool_portable(data, data + size, out, out + count);
}

#undef RLW_VARINT_WAY

#endif
