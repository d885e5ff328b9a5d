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

static inline int32_t rlw_load_i32le(const uint8_t *p) {
    uint32_t bits = rlw_load_u32le(p);
    int32_t value;
    memcpy(&value, &bits, sizeof value); /* no implementation-defined conversion */
    return value;
}

static inline int64_t rlw_load_i64le(const uint8_t *p) {
    uint64_t bits = rlw_load_u64le(p);
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
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

static inline void rlw_store_f64le(uint8_t *p, double value) {
    rlw_store_u64le(p, rlw_double_bits(value));
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

#endif
