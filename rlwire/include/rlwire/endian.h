/* Little-endian and big-endian loads and stores, for any alignment and any host.
 *
 * Compilers turn each of them into one or two instructions.
 */
#ifndef RLWIRE_ENDIAN_H
#define RLWIRE_ENDIAN_H

#include <stdint.h>
#include <string.h>

/* Convert between a number and its bits. */
static inline uint64_t rlw_double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double rlw_bits_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t rlw_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float rlw_bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t rlw_load_u32le(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t rlw_load_u64le(const uint8_t *p) {
    return (uint64_t)rlw_load_u32le(p) | (uint64_t)rlw_load_u32le(p + 4) << 32;
}

/* Converts two's complement of `bits` bits, without an implementation-defined conversion. */
static inline int64_t rlw_sign_extend(uint64_t value, unsigned bits) {
    uint64_t sign = UINT64_C(1) << (bits - 1);
    int64_t out;
    value = (value ^ sign) - sign;
    memcpy(&out, &value, sizeof out);
    return out;
}

static inline double rlw_load_f64le(const uint8_t *p) {
    return rlw_bits_double(rlw_load_u64le(p));
}

static inline void rlw_store_u32le(uint8_t *p, uint32_t value) {
    p[0] = (uint8_t)value;
    p[1] = (uint8_t)(value >> 8);
    p[2] = (uint8_t)(value >> 16);
    p[3] = (uint8_t)(value >> 24);
}

static inline void rlw_store_u64le(uint8_t *p, uint64_t value) {
    rlw_store_u32le(p, (uint32_t)value);
    rlw_store_u32le(p + 4, (uint32_t)(value >> 32));
}

static inline uint16_t rlw_load_u16be(const uint8_t *p) {
    return (uint16_t)((unsigned)p[0] << 8 | p[1]);
}

static inline uint32_t rlw_load_u32be(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static inline uint64_t rlw_load_u64be(const uint8_t *p) {
    return (uint64_t)rlw_load_u32be(p) << 32 | rlw_load_u32be(p + 4);
}

static inline void rlw_store_u16be(uint8_t *p, uint16_t value) {
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

static inline void rlw_store_u32be(uint8_t *p, uint32_t value) {
    p[0] = (uint8_t)(value >> 24);
    p[1] = (uint8_t)(value >> 16);
    p[2] = (uint8_t)(value >> 8);
    p[3] = (uint8_t)value;
}

static inline void rlw_store_u64be(uint8_t *p, uint64_t value) {
    rlw_store_u32be(p, (uint32_t)(value >> 32));
    rlw_store_u32be(p + 4, (uint32_t)value);
}

static inline float rlw_load_f32be(const uint8_t *p) {
    return rlw_bits_float(rlw_load_u32be(p));
}

static inline double rlw_load_f64be(const uint8_t *p) {
    return rlw_bits_double(rlw_load_u64be(p));
}

/* Returns 1 on a little-endian host; optimizing compilers make it a constant. */
static inline int rlw_host_is_little(void) {
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first == 1;
}

/* Copies numbers of 1, 2, 4 or 8 bytes from the host's byte order to little-endian, or back. */
static inline void rlw_copy_little(void *to, const void *from, size_t size, size_t itemsize) {
    size_t i;
    if (rlw_host_is_little() || itemsize < 2) {
        if (size) memcpy(to, from, size);
        return;
    }
    for (i = 0; i < size; i++) ((uint8_t *)to)[i] = ((const uint8_t *)from)[i ^ (itemsize - 1)];
}

#endif
