/* What the unit tests of the kernels are written with: a check that counts and tells, a case that
 * names itself, and inputs in memory of exactly their size, so that AddressSanitizer sees a read
 * of one byte more.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rlwire/rlwire.h>

typedef struct harness_counts {
    unsigned long checks; /* so far */
    unsigned long failed_checks;
    unsigned long failed_before; /* checks, when the running case began */
    unsigned long passed; /* cases */
    unsigned long failed;
} harness_counts;

#define HARNESS_SHOWN 5 /* failed checks of one case */

extern harness_counts harness;

static inline int harness_check(int good, const char *file, int line, const char *text) {
    harness.checks++;
    if (good) return 1;
    if (++harness.failed_checks - harness.failed_before <= HARNESS_SHOWN)
        fprintf(stderr, "%s:%d: not so: %s\n", file, line, text);
    return 0;
}

static inline void harness_equal(uint64_t got, uint64_t expected, const char *file, int line,
                                 const char *text) {
    if (!harness_check(got == expected, file, line, text) &&
        harness.failed_checks - harness.failed_before <= HARNESS_SHOWN)
        fprintf(stderr, "    got %llu, expected %llu\n", (unsigned long long)got,
                (unsigned long long)expected);
}

#define CHECK(condition) (void)harness_check((condition) ? 1 : 0, __FILE__, __LINE__, #condition)
#define EQUAL(got, expected) \
    harness_equal((uint64_t)(got), (uint64_t)(expected), __FILE__, __LINE__, #got " == " #expected)

/* Runs one case; it passes when it checked something and all of it was so. */
static inline void harness_run(const char *name, void (*run)(void)) {
    unsigned long checks = harness.checks;
    harness.failed_before = harness.failed_checks;
    run();
    if (harness.checks == checks) {
        fprintf(stderr, "%s: checked nothing\n", name);
        harness.failed_checks++;
    }
    if (harness.failed_checks == harness.failed_before) {
        harness.passed++;
    } else {
        harness.failed++;
        fprintf(stderr, "FAILED %s\n", name);
    }
}

#define RUN(name) harness_run(#name, name)

/* A copy of `data` that ends where its heap block ends. AddressSanitizer gives malloc(0) a byte
 * that may be read, so a few bytes stand before it. */
#define BEFORE 8

static inline uint8_t *exact(const void *data, size_t size) {
    uint8_t *block = (uint8_t *)malloc(BEFORE + size);
    if (!block) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    if (size) memcpy(block + BEFORE, data, size);
    return block + BEFORE;
}

static inline void release(uint8_t *copy) { free(copy - BEFORE); }

/* The suites, one for each header. */
void cursor_suite(void);
void writer_suite(void);
void netstring_suite(void);
void utf8_suite(void);
void dtype_suite(void);
void image_suite(void);
void rlx_read_suite(void);
void rlx_write_suite(void);

#endif
