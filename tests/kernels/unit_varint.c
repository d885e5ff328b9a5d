/* Both ways that are behind varint.h: varint_portable.h and varint_x86.h. What is longer than need
 * be, wider than 32 bits, or booleans, fuzz_dm_env_rpc.c reads in all ways. */
#include "harness.h"

#define MOST 700 /* values of one array: blocks of each kernel, and what they leave over */

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

typedef uint64_t size_fn(const uint64_t *, size_t);
typedef uint8_t *pack_fn(uint8_t *, const uint8_t *, const uint64_t *, size_t);
typedef size_t count_fn(const uint8_t *, size_t);
typedef const uint8_t *unpack_fn(const uint8_t *, const uint8_t *, uint64_t *, const uint64_t *);

typedef uint64_t size32_fn(const uint32_t *, size_t);
typedef uint8_t *pack32_fn(uint8_t *, const uint8_t *, const uint32_t *, size_t);
typedef const uint8_t *unpack32_fn(const uint8_t *, const uint8_t *, uint32_t *, const uint32_t *);
typedef uint64_t sizei_fn(const int32_t *, size_t);
typedef uint8_t *packi_fn(uint8_t *, const uint8_t *, const int32_t *, size_t);

typedef struct way {
    size_fn *size;
    pack_fn *pack;
    count_fn *count;
    unpack_fn *unpack;
    size32_fn *size32;
    pack32_fn *pack32;
    unpack32_fn *unpack32;
    sizei_fn *sizei;
    packi_fn *packi;
} way;

#define WAY(name) \
    { \
        rlw_varints_size_u64_##name, rlw_varints_pack_u64_##name, rlw_varints_count_##name, \
            rlw_varints_unpack_u64_##name, rlw_varints_size_u32_##name, \
            rlw_varints_pack_u32_##name, rlw_varints_unpack_u32_##name, \
            rlw_varints_size_i32_##name, rlw_varints_pack_i32_##name \
    }

static size_t ways(const way **out) {
    static const way all[] = {
        WAY(portable),
#ifdef RLW_VARINT_X86
        WAY(x86),
#endif
    };
    *out = all;
#ifdef RLW_VARINT_X86
    if (!rlw_x86_is_fast()) return 1;
#endif
    return sizeof all / sizeof *all;
}

/* Memory of exactly `count` elements, zeros; calloc aligns it. */
static void *room(size_t count, size_t itemsize) {
    void *block = calloc(count + (count == 0), itemsize);
    if (!block) exit(2);
    return block;
}

/* Writes and reads the values of one type as the slow functions do. */
#define ONE_ARRAY(name, type, unsigned_type, wide_type, size_of, pack_to, unpack_to) \
    static void name(const way *w, const uint64_t *source, size_t count) { \
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
        EQUAL(w->size_of(values, count), size); \
        CHECK(w->pack_to(bytes, bytes + size, values, count) == bytes + size); \
        CHECK(memcmp(bytes, slow_bytes, size) == 0); \
        EQUAL(w->count(wire, size), count); \
        CHECK(w->unpack_to(wire, wire + size, back, back + count) == wire + size); \
        CHECK(memcmp(back, values, sizeof(type) * count) == 0); \
        release(wire); \
        free(bytes); \
        free(back); \
        free(values); \
    }

ONE_ARRAY(one_array, uint64_t, uint64_t, uint64_t, size, pack, unpack)
ONE_ARRAY(one_array_of_32_bits, uint32_t, uint32_t, uint64_t, size32, pack32, unpack32)
ONE_ARRAY(one_array_of_signs, int32_t, uint32_t, int64_t, sizei, packi, unpack32)

CASE(arrays_of_every_mix_and_many_lengths) {
    static uint64_t values[MOST];
    const way *all;
    size_t n = ways(&all), k, count, i;
    int mix;
    chance_state = 1;
    for (mix = 0; mix < MIXES; mix++)
        for (count = 0; count <= MOST; count += count < 150 ? 1 : 61)
            for (k = 0; k < n; k++) {
                for (i = 0; i < count; i++) values[i] = value_of(mix);
                one_array(&all[k], values, count);
                one_array_of_32_bits(&all[k], values, count);
                one_array_of_signs(&all[k], values, count);
            }
}

CASE(too_little_room_is_never_passed) {
    static uint64_t values[MOST];
    const way *all;
    size_t n = ways(&all), k, i, left;
    int mix;
    chance_state = 2;
    for (mix = 0; mix < MIXES; mix++)
        for (k = 0; k < n; k++) {
            size_t size;
            for (i = 0; i < 100; i++) values[i] = value_of(mix);
            size = (size_t)all[k].size(values, 100);
            for (left = 0; left < size; left += 1 + left / 16) {
                uint8_t *bytes = (uint8_t *)room(left, 1);
                uint8_t *end = all[k].pack(bytes, bytes + left, values, 100);
                CHECK(end >= bytes && end <= bytes + left && left - (size_t)(end - bytes) < 10);
                free(bytes);
            }
        }
}

CASE(counts_that_do_not_fit) {
    const way *all;
    size_t n = ways(&all), k, i;
    uint64_t out[200];
    uint8_t *bytes;
    uint64_t values[150];
    uint8_t slow_bytes[1500];
    size_t size;
    chance_state = 3;
    for (i = 0; i < 150; i++) values[i] = value_of(2);
    size = pack_slowly(slow_bytes, values, 150);
    bytes = exact(slow_bytes, size);
    for (k = 0; k < n; k++) {
        CHECK(all[k].unpack(bytes, bytes + size, out, out + 151) == NULL);
        CHECK(all[k].unpack(bytes, bytes + size, out, out + 149) != bytes + size);
        CHECK(all[k].unpack(bytes, bytes + size, out, out) == bytes);
        CHECK(all[k].unpack(bytes, bytes, out, out) == bytes);
        CHECK(all[k].unpack(bytes, bytes, out, out + 1) == NULL);
    }
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
    const way *all;
    size_t n = ways(&all), k, which, before, i;
    int mix;
    chance_state = 4;
    for (which = 0; which < sizeof wrong / sizeof *wrong; which++)
        for (mix = 0; mix < MIXES; mix++)
            for (before = 0; before < 140; before += 3)
                for (k = 0; k < n; k++) {
                    uint8_t whole[10 * 240 + 12], *bytes;
                    uint64_t out[300], values[240];
                    uint32_t out32[300];
                    size_t at, size;
                    for (i = 0; i < 240; i++) values[i] = value_of(mix);
                    at = pack_slowly(whole, values, before);
                    memcpy(whole + at, wrong[which].bytes, wrong[which].size);
                    size = at + wrong[which].size;
                    if (wrong[which].size > 9)
                        size += pack_slowly(whole + size, values + before, 100);
                    bytes = exact(whole, size);
                    CHECK(all[k].unpack(bytes, bytes + size, out, out + 300) == bytes + at);
                    CHECK(all[k].unpack32(bytes, bytes + size, out32, out32 + 300) == bytes + at);
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
