/* What the unit tests and the fuzz drivers share: chance, the same for the same seed, and inputs in
 * memory of exactly their size, so that AddressSanitizer sees a read of one byte more.
 */
#ifndef CHANCE_H
#define CHANCE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rlwire/rlwire.h>

static uint64_t chance_state;

static inline uint64_t chance(void) { /* splitmix64 */
    uint64_t z = (chance_state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline size_t below(size_t n) { return n ? (size_t)(chance() % n) : 0; }

static inline void *memory(size_t size) {
    void *block = malloc(size);
    if (!block && size) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return block;
}

/* A copy that ends where its heap block ends; release() it. AddressSanitizer gives malloc(0) a byte
 * that may be read, so a few bytes stand before it. */
#define BEFORE 8

static inline uint8_t *exact(const void *data, size_t size) {
    uint8_t *block;
    if (size > PTRDIFF_MAX - BEFORE) abort(); /* the sum does not overflow */
    block = (uint8_t *)memory(BEFORE + size);
    if (size) memcpy(block + BEFORE, data, size);
    return block + BEFORE;
}

static inline void release(uint8_t *copy) { free(copy - BEFORE); }

#endif
