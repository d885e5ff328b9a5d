/* Runs all unit tests of the kernels and ends with "N passed, 0 failed".
 *
 * By hand, in this folder:
 *     c++ -std=c++17 -c ../../rlwire/include/rlwire/numbers.cpp
 *     cc -std=c11 -Wall -Wextra -I../../rlwire/include -c unit*.c
 *     c++ unit*.o numbers.o -o units && ./units
 */
#include "harness.h"

#define SHOWN 5 /* failed checks of one case */

static unsigned long checks, failed_checks; /* so far, */
static unsigned long failed_before;         /* and when the running case began */
static unsigned long passed, failed;        /* cases */

int harness_check(int good, const char *file, int line, const char *text) {
    checks++;
    if (good) return 1;
    if (++failed_checks - failed_before <= SHOWN)
        fprintf(stderr, "%s:%d: not so: %s\n", file, line, text);
    return 0;
}

void harness_equal(uint64_t got, uint64_t expected, const char *file, int line,
                     const char *text) {
    if (!harness_check(got == expected, file, line, text) &&
        failed_checks - failed_before <= SHOWN)
        fprintf(stderr, "    got %llu, expected %llu\n", (unsigned long long)got,
                (unsigned long long)expected);
}

static void run_case(const char *name, void (*run)(void)) {
    unsigned long checks_before = checks;
    failed_before = failed_checks;
    run();
    if (checks == checks_before) {
        fprintf(stderr, "%s: checked nothing\n", name);
        failed_checks++;
    }
    if (failed_checks == failed_before) {
        passed++;
    } else {
        failed++;
        fprintf(stderr, "FAILED %s\n", name);
    }
}

#define CASES_MOST 100

static struct {
    const char *name;
    void (*run)(void);
} cases[CASES_MOST];
static size_t case_count;

void harness_add(const char *name, void (*run)(void)) {
    if (case_count == CASES_MOST) abort();
    cases[case_count].name = name;
    cases[case_count++].run = run;
}

int main(void) {
    size_t i;
    for (i = 0; i < case_count; i++) run_case(cases[i].name, cases[i].run);
    printf("%lu passed, %lu failed\n", passed, failed);
    return failed != 0;
}
