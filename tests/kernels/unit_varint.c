/* varint.h, beside the documentation's own way. What is longer than need be, wider than 32 bits, or
 * booleans, fuzz_dm_env_rpc.c reads. */
#include "harness.h"

#define MOST 700 /* values of one array: blocks of eight, and what they leave over */

/* The chapter "Base 128 Varints" in protobuf's documentation, one byte after the other. */
static size_t slowly(uint8_t *to, uint64_t value) {
    size_t size = 0;
    do {
        to[size++] = (uint8_t)(value % 128 + (value > 127 ? 128 : 0));
        value /= 128;
    } while (value);
    return size;
}

/* What arrays hold: a way of choosing values for each number. */
#define MIXES 10
static uint64_t value_of(int mix) {
    uint64_t r = chance();
    switch (mix) {
    case 0: return r % 128;
    case 1: return 128 + r % (16384 - 128);
    case 2: return r & 1 ? r >> 57 : r >> 50;
    case 3: return r % 12288;
    case 4: return r >> (r % 64);
    case 5: return r;
    case 6: return (uint64_t)((int64_t)(r % 201) - 100);
    case 7: return r % 40 ? r % 100 : r;      /* a long one among short ones */
    case 8: return (UINT64_C(1) << r % 64) - (r >> 63); /* the ends of each length */
    default: return r % 40 ? r | 1ull << 63 : 1; /* and the reverse */
    }
}

static size_t pack_slowly(uint8_t *to, const uint64_t *values, size_t count) {
    size_t size = 0, i;
    for (i = 0; i < count; i++) size += slowly(to + size, values[i]);
    return size;
}

/* Memory of exactly `count` elements, zeros; calloc aligns it. */
static void *room(size_t count, size_t itemsize) {
    void *block = calloc(count + (count == 0), itemsize);
    if (!block) exit(2);
    return block;
}

/* Writes and reads the values of one type as the slow functions do. */
#define ONE_ARRAY(kind, unpack, type, unsigned_type, wide_type) \
    static void one_array_of_##kind(const uint64_t *source, size_t count) { \
        static uint8_t slow_bytes[10 * MOST]; \
        static uint64_t wide[MOST]; \
        type *values = (type *)room(count, sizeof(type)); \
        unsigned_type *back = (unsigned_type *)room(count, sizeof(type)); \
        uint8_t *bytes, *wire; \
        size_t size, i; \
        for (i = 0; i < count; i++) { \
            values[i] = (type)source[i]; \
            wide[i] = (uint64_t)(wide_type)values[i]; \
        } \
        size = pack_slowly(slow_bytes, wide, count); \
        bytes = (uint8_t *)room(size, 1); \
        wire = exact(slow_bytes, size); \
        EQUAL(rlw_varints_size_##kind(values, count), size); \
        CHECK(rlw_varints_pack_##kind(bytes, bytes + size, values, count) == bytes + size); \
        CHECK(memcmp(bytes, slow_bytes, size) == 0); \
        EQUAL(rlw_varints_count(wire, size), count); \
        CHECK(rlw_varints_unpack_##unpack(wire, size, back, count) == wire + size); \
        CHECK(memcmp(back, values, sizeof(type) * count) == 0); \
        release(wire); \
        free(bytes); \
        free(back); \
        free(values); \
    }

ONE_ARRAY(u64, u64, uint64_t, uint64_t, uint64_t)
ONE_ARRAY(u32, u32, uint32_t, uint32_t, uint64_t)
ONE_ARRAY(i32, u32, int32_t, uint32_t, int64_t)

CASE(arrays_of_every_mix_and_many_lengths) {
    static uint64_t values[MOST];
    size_t count, i;
    int mix;
    chance_state = 1;
    for (mix = 0; mix < MIXES; mix++)
        for (count = 0; count <= MOST; count += count < 150 ? 1 : 61) {
            for (i = 0; i < count; i++) values[i] = value_of(mix);
            one_array_of_u64(values, count);
            one_array_of_u32(values, count);
            one_array_of_i32(values, count);
        }
}

CASE(too_little_room_is_never_passed) {
    static uint64_t values[MOST];
    size_t i, left;
    int mix;
    chance_state = 2;
    for (mix = 0; mix < MIXES; mix++) {
        size_t size;
        for (i = 0; i < 100; i++) values[i] = value_of(mix);
        size = (size_t)rlw_varints_size_u64(values, 100);
        for (left = 0; left < size; left += 1 + left / 16) {
            uint8_t *bytes = (uint8_t *)room(left, 1);
            uint8_t *end = rlw_varints_pack_u64(bytes, bytes + left, values, 100);
            CHECK(end >= bytes && end <= bytes + left && left - (size_t)(end - bytes) < 10);
            free(bytes);
        }
    }
}

CASE(counts_that_do_not_fit) {
    size_t i;
    uint64_t out[200];
    uint8_t *bytes;
    uint64_t values[150];
    uint8_t slow_bytes[1500];
    size_t size;
    chance_state = 3;
    for (i = 0; i < 150; i++) values[i] = value_of(2);
    size = pack_slowly(slow_bytes, values, 150);
    bytes = exact(slow_bytes, size);
    CHECK(rlw_varints_unpack_u64(bytes, size, out, 151) == NULL);
    CHECK(rlw_varints_unpack_u64(bytes, size, out, 149) != bytes + size);
    CHECK(rlw_varints_unpack_u64(bytes, size, out, 0) == bytes);
    CHECK(rlw_varints_unpack_u64(bytes, 0, out, 0) == bytes);
    CHECK(rlw_varints_unpack_u64(bytes, 0, out, 1) == NULL);
    release(bytes);
}

/* A wrong varint anywhere among right ones is found, and told where it begins; at the end, too, of
 * which the last one is a part. */
CASE(wrong_varints_are_pointed_at) {
    static const struct {
        uint8_t bytes[12];
        size_t size;
    } wrong[] = {
        {{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02}, 10},
        {{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F}, 10},
        {{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 11},
        {{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01}, 12},
        {{0x80}, 1},
        {{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80}, 9},
    };
    size_t which, before, i;
    int mix;
    chance_state = 4;
    for (which = 0; which < sizeof wrong / sizeof *wrong; which++)
        for (mix = 0; mix < MIXES; mix++)
            for (before = 0; before < 140; before += 3) {
                uint8_t whole[10 * 240 + 12], *bytes;
                uint64_t out[300], values[240];
                uint32_t out32[300];
                size_t at, size;
                for (i = 0; i < 240; i++) values[i] = value_of(mix);
                at = pack_slowly(whole, values, before);
                memcpy(whole + at, wrong[which].bytes, wrong[which].size);
                size = at + wrong[which].size;
                if (wrong[which].size > 9) size += pack_slowly(whole + size, values + before, 100);
                bytes = exact(whole, size);
                CHECK(rlw_varints_unpack_u64(bytes, size, out, 300) == bytes + at);
                CHECK(rlw_varints_unpack_u32(bytes, size, out32, 300) == bytes + at);
                release(bytes);
            }
}

CASE(plain_booleans_are_told_from_others) {
    size_t size, at;
    for (size = 0; size < 10000; size += size < 20 ? 1 : 3333)
        for (at = 0; at < size; at += size < 20 ? 1 : 777) {
            uint8_t *bytes = (uint8_t *)room(size, 1);
            bytes[size / 2] = 1;
            CHECK(rlw_bools_are_plain(bytes, size));
            bytes[at] = 0x80;
            CHECK(!rlw_bools_are_plain(bytes, size));
            bytes[at] = 2;
            CHECK(!rlw_bools_are_plain(bytes, size));
            free(bytes);
        }
    CHECK(rlw_bools_are_plain(NULL, 0));
}
