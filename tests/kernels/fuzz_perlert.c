/* Mutates PERLERT's datagrams and feeds them to the kernels; fuzz.h tells how it is run. What was
 * read is written and read again. */
#include "fuzz.h"

static uint64_t steps_count;

static rlw_status read_all(rlw_cursor *c, const rlw_perlert_limits *limits, int from_server,
                           rlw_perlert_message *m) {
    rlw_status status = from_server ? rlw_perlert_read_server(c, limits, m)
                                    : rlw_perlert_read_client(c, limits, m);
    const uint8_t *slots = c->at;
    rlw_perlert_slot slot;
    if (status != RLW_OK || m->kind != RLW_PERLERT_LOBBY) return status;
    do status = rlw_perlert_next_slot(c, m, &slot);
    while (status == RLW_OK && c->at < c->end);
    if (status == RLW_OK) c->at = slots;
    return status;
}

/* Writes what was read; the way back must end in the same bytes written again. */
static void write_again(const rlw_perlert_message *from, const rlw_cursor *slots,
                        const rlw_perlert_limits *limits, int from_server) {
    rlw_perlert_message m = *from, again;
    rlw_cursor c;
    rlw_writer w, v;
    rlw_perlert_slot slot;
    uint8_t *bytes;
    size_t size;
    rlw_writer_init(&w, NULL, 0);
    m.decimals = -1;
    MUST(rlw_perlert_write(&w, &m) == RLW_OK);
    if (m.kind == RLW_PERLERT_LOBBY) {
        for (c = *slots; c.at < c.end;) {
            rlw_status status;
            MUST(rlw_perlert_next_slot(&c, &m, &slot) == RLW_OK);
            status = rlw_perlert_put_slot(&w, &m, &slot);
            if (status == RLW_BAD_WORD) { /* a second slot may be called so */
                rlw_writer_free(&w);
                return;
            }
            MUST(status == RLW_OK);
        }
        w.at--;
    }
    size = rlw_written(&w);
    bytes = exact(w.start, size);
    rlw_cursor_init(&c, bytes, size);
    MUST(size > limits->datagram || read_all(&c, limits, from_server, &again) == RLW_OK);
    if (size <= limits->datagram && m.kind != RLW_PERLERT_LOBBY) {
        MUST(again.kind == m.kind && again.number == m.number && again.flag == m.flag);
        MUST(again.reward_is_number == m.reward_is_number);
        if (m.reward_is_number && m.reward_value == m.reward_value)
            MUST(again.reward_value == m.reward_value);
        again.decimals = -1;
        rlw_writer_init(&v, NULL, 0);
        MUST(rlw_perlert_write(&v, &again) == RLW_OK);
        MUST(rlw_written(&v) == size && memcmp(v.start, w.start, size) == 0);
        rlw_writer_free(&v);
    }
    release(bytes);
    rlw_writer_free(&w);
}

static rlw_status feed_side(const uint8_t *bytes, size_t size, const rlw_perlert_limits *limits,
                            int from_server) {
    rlw_perlert_message m;
    rlw_cursor c;
    rlw_status status;
    rlw_cursor_init(&c, bytes, size);
    status = read_all(&c, limits, from_server, &m);
    check_cursor(&c, bytes, size, status);
    MUST(m.field <= RLW_PERLERT_AT_EXTRA);
    if (status == RLW_OVER_DATAGRAM) MUST(size > limits->datagram);
    if (status == RLW_OK) {
        touched += add_up(m.name.data, m.name.size);
        if (m.kind == RLW_PERLERT_STEP) steps_count++;
        write_again(&m, &c, limits, from_server);
        whole_count++;
    }
    return status;
}

static const rlw_perlert_limits WIDE = {ROOM, ROOM};

static void mutate(void) {
    static const uint8_t odd_bytes[] = {':', ';', ',', '=', ':', ';', ',', '=', '0', '9', '-', '.',
                                        ' ', 'e', 'o', 'r', 0x00, 0x7F, 0x80, 0xC3, 0xED, 0xFF};
    mutate_bytes(odd_bytes, sizeof odd_bytes);
}

static rlw_status feed(const uint8_t *bytes, size_t size) {
    rlw_perlert_limits limits = WIDE;
    int from_server = below(2) != 0;
    if (!below(8)) limits.datagram = below(100);
    feed_side(bytes, size, &WIDE, !from_server);
    return feed_side(bytes, size, &limits, from_server);
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    rlw_status client = feed_side(bytes, size, &WIDE, 0);
    rlw_status server = feed_side(bytes, size, &WIDE, 1);
    if (size == s->size) MUST((client == RLW_OK) != (server == RLW_OK));
}

static void mark_sample(sample *s) { /* where fields end, and begin */
    size_t i;
    for (i = 0; i < s->size; i++)
        if (strchr(":;,=", s->data[i])) {
            mark(s, i);
            mark(s, i + 1);
        }
}

FUZZ_MAIN("fuzz_perlert", "steps", steps_count, RLW_OK, RLW_NEED_MORE, RLW_BAD_TEXT,
          RLW_BAD_EMPTY, RLW_BAD_CHARACTER, RLW_BAD_WORD, RLW_BAD_INTEGER, RLW_TRAILING,
          RLW_OVER_DATAGRAM)
