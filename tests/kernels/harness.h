/* What the unit tests of the kernels are written with: a check that counts and tells, and a case that
 * names itself. */
#ifndef HARNESS_H
#define HARNESS_H

#include "chance.h"

int harness_check(int good, const char *file, int line, const char *text);
void harness_equal(uint64_t got, uint64_t expected, const char *file, int line, const char *text);

#define CHECK(condition) (void)harness_check((condition) ? 1 : 0, __FILE__, __LINE__, #condition)
#define EQUAL(got, expected) \
    harness_equal((uint64_t)(got), (uint64_t)(expected), __FILE__, __LINE__, #got " == " #expected)

/* Defines a case, a function without parameters, which main() runs; it passes when it checked
 * something and all of it was so. */
#define CASE(name) \
    static void name(void); \
    __attribute__((constructor)) static void add_##name(void) { harness_add(#name, name); } \
    static void name(void)

void harness_add(const char *name, void (*run)(void));

#endif
