/* What the unit tests of the kernels are written with: a check that counts and tells, and a case that
 * names itself. */
#ifndef HARNESS_H
#define HARNESS_H

#include "chance.h"

typedef struct harness_counts {
    unsigned long checks; /* so far */
    unsigned long failed_checks;
    unsigned long failed_before; /* checks, when the running case began */
    unsigned long passed; /* cases */
    unsigned long failed;
} harness_counts;

#define HARNESS_SHOWN 5 /* failed checks of one case */

extern harness_counts harness;

int harness_check(int good, const char *file, int line, const char *text);
void harness_equal(uint64_t got, uint64_t expected, const char *file, int line, const char *text);
/* Runs one case; it passes when it checked something and all of it was so. */
void harness_run(const char *name, void (*run)(void));

#define CHECK(condition) (void)harness_check((condition) ? 1 : 0, __FILE__, __LINE__, #condition)
#define EQUAL(got, expected) \
    harness_equal((uint64_t)(got), (uint64_t)(expected), __FILE__, __LINE__, #got " == " #expected)

#define RUN(name) harness_run(#name, name)

/* The suites, one for each header. */
void utf8_suite(void);
void varint_suite(void);
void dm_env_rpc_suite(void);
void numbers_suite(void);
void rfb_suite(void);
void rfb_encode_suite(void);
void rllink_suite(void);
void shm_ring_suite(void);
void rlx_suite(void);
void websocket_suite(void);

#endif
