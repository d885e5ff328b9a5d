/* Runs all unit tests of the kernels and ends with "N passed, 0 failed".
 *
 * By hand, in this folder:
 *     cc -std=c11 -Wall -Wextra -I../../rlwire/include unit*.c -o units && ./units
 */
#include "harness.h"

harness_counts harness;

int main(void) {
    cursor_suite();
    writer_suite();
    netstring_suite();
    utf8_suite();
    dtype_suite();
    image_suite();
    rlx_read_suite();
    rlx_write_suite();
    printf("%lu passed, %lu failed\n", harness.passed, harness.failed);
    return harness.failed != 0;
}
