/* Runs all unit tests of the kernels and ends with "N passed, 0 failed".
 *
 * By hand, in this folder:
 *     c++ -std=c++17 -c ../../rlwire/include/rlwire/numbers.cpp
 *     cc -std=c11 -Wall -Wextra -I../../rlwire/include -c unit*.c
 *     c++ unit*.o numbers.o -o units && ./units
 */
#include "harness.h"

harness_counts harness;

int harness_check(int good, const char *file, int line, const char *text) {
    harness.checks++;
    if (good) return 1;
    if (++harness.failed_checks - harness.failed_before <= HARNESS_SHOWN)
        fprintf(stderr, "%s:%d: not so: %s\n", file, line, text);
    return 0;
}

void harness_equal(uint64_t got, uint64_t expected, const char *file, int line,
                     const char *text) {
    if (!harness_check(got == expected, file, line, text) &&
        harness.failed_checks - harness.failed_before <= HARNESS_SHOWN)
        fprintf(stderr, "    got %llu, expected %llu\n", (unsigned long long)got,
                (unsigned long long)expected);
}

void harness_run(const char *name, void (*run)(void)) {
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

int main(void) {
    utf8_suite();
    varint_suite();
    dm_env_rpc_suite();
    numbers_suite();
    rfb_suite();
    rfb_encode_suite();
    rllink_suite();
    shm_ring_suite();
    rlx_suite();
    websocket_suite();
    printf("%lu passed, %lu failed\n", harness.passed, harness.failed);
    return harness.failed != 0;
}
