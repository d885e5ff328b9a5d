/* PERLERT from C: reads a rollout step from standard input, and writes the step after it, with the
 * numbers of its observation doubled and the reward rounded to two decimals, to standard output.
 * A lobby's slots are printed on standard error instead.
 *
 * By hand, with the folder that `python3 -c 'import rlwire; print(rlwire.get_include())'` prints:
 *     c++ -std=c++17 -O2 -I FOLDER -c FOLDER/rlwire/numbers.cpp
 *     cc -std=c11 -O2 -I FOLDER -c perlert.c
 *     c++ perlert.o numbers.o -o perlert && ./perlert < datagram
 */
#include <rlwire/rlwire.h>

#include <stdio.h>

enum { MOST = 65507, MOST_NUMBERS = (MOST + 1) / 2 };

static int tell(const rlw_cursor *c, const uint8_t *start, const rlw_perlert_message *m) {
    fprintf(stderr, "byte %zu, %s: %s\n", (size_t)(c->fault.at - start),
            rlw_perlert_field_name(m->field), rlw_status_text(c->fault.status));
    return 1;
}

static int print_slots(rlw_cursor *c, const uint8_t *start, rlw_perlert_message *m) {
    rlw_perlert_slot slot;
    while (c->at < c->end) {
        if (rlw_perlert_next_slot(c, m, &slot) != RLW_OK) return tell(c, start, m);
        fprintf(stderr, "%.*s: %s, %.*s, %s\n", (int)slot.key.size, (const char *)slot.key.data,
                slot.open ? "free" : "taken", (int)slot.tag.size, (const char *)slot.tag.data,
                slot.ready ? "ready" : "not ready");
    }
    return 0;
}

int main(void) {
    static uint8_t datagram[MOST + 1];
    static double numbers[MOST_NUMBERS];
    const rlw_perlert_limits limits = {MOST, 1000};
    rlw_perlert_message m;
    rlw_writer w;
    rlw_cursor c, list;
    rlw_status status;
    size_t count, i;
    rlw_cursor_init(&c, datagram, fread(datagram, 1, sizeof datagram, stdin));
    if (rlw_perlert_read_server(&c, &limits, &m) != RLW_OK) return tell(&c, datagram, &m);
    if (m.kind == RLW_PERLERT_LOBBY) return print_slots(&c, datagram, &m);
    if (m.kind != RLW_PERLERT_STEP) return 2;
    count = rlw_count_numbers(m.text.data, m.text.size);
    rlw_cursor_init(&list, m.text.data, m.text.size);
    m.field = RLW_PERLERT_AT_OBSERVATION;
    if (rlw_read_numbers(&list, RLW_FLOAT64, numbers, count) != RLW_OK)
        return tell(&list, datagram, &m);
    for (i = 0; i < count; i++) numbers[i] *= 2;
    m.step++;
    m.decimals = 2;
    rlw_writer_init(&w, NULL, 0);
    status = rlw_perlert_put_header(&w, &m);
    if (status == RLW_OK) status = rlw_perlert_put_step_head(&w, &m);
    if (status == RLW_OK) status = rlw_put_numbers(&w, RLW_FLOAT64, numbers, count, -1);
    if (status == RLW_OK) status = rlw_perlert_put_step_tail(&w, &m);
    if (status == RLW_OK) fwrite(w.start, 1, rlw_written(&w), stdout);
    rlw_writer_free(&w);
    return status != RLW_OK;
}
