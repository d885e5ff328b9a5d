/* perlert.h as a simulator uses it, also in C++; all else is fuzz_perlert.c's. */
#include "harness.h"

CASE(a_step_is_read_and_written_as_it_was) {
    static const char datagram[] = "city:7:5:6;obs=1.5,2.5;reward=-1;done=true";
    const rlw_perlert_limits limits = {1200, 1 << 20};
    rlw_perlert_message step;
    rlw_cursor cursor;
    rlw_writer writer;
    float numbers[2] = {0, 0};
    rlw_cursor_init(&cursor, (const uint8_t *)datagram, sizeof datagram - 1);
    EQUAL(rlw_perlert_read_server(&cursor, &limits, &step), RLW_OK);
    CHECK(step.kind == RLW_PERLERT_STEP && step.reward_value == -1 && step.flag);
    rlw_cursor_init(&cursor, step.text.data, step.text.size);
    EQUAL(rlw_read_numbers(&cursor, RLW_FLOAT32, numbers, 2), RLW_OK);
    CHECK(numbers[0] == 1.5F && numbers[1] == 2.5F);
    step.decimals = -1;
    rlw_writer_init(&writer, NULL, 0);
    EQUAL(rlw_perlert_write(&writer, &step), RLW_OK);
    EQUAL(rlw_written(&writer), sizeof datagram - 1);
    CHECK(memcmp(writer.start, datagram, sizeof datagram - 1) == 0);
    rlw_writer_free(&writer);
}
