/* Mutates PERLERT's datagrams and feeds them to the kernels; fuzz.h tells how it is run. A slow
 * second reader, which splits as the draft describes it, says what must come out; what was read
 * is written and read again.
 *
 * By hand, in this folder:
 *     python3 corpus_perlert.py corpus.bin
 *     c++ -std=c++17 -g -O1 -c ../../rlwire/include/rlwire/numbers.cpp
 *     cc -std=c11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
 *         -I../../rlwire/include -c fuzz_perlert.c
 *     c++ -fsanitize=address,undefined fuzz_perlert.o numbers.o -o fuzz && ./fuzz corpus.bin 1000000
 */
#include "fuzz.h"

static uint64_t steps_count;

/* ---- the second reader ---- */

typedef struct slow_text {
    const char *data;
    size_t size;
} slow_text;

#define PARTS 4096

/* Splits at each `separator`; 0 when there are more parts than fit. */
static size_t slow_split(slow_text text, char separator, slow_text *parts, size_t room) {
    size_t count = 0, from = 0, i;
    for (i = 0; i <= text.size; i++)
        if (i == text.size || text.data[i] == separator) {
            if (count == room) return 0;
            parts[count].data = text.data + from;
            parts[count++].size = i - from;
            from = i + 1;
        }
    return count;
}

static int slow_is(slow_text text, const char *word) {
    return text.size == strlen(word) && !memcmp(text.data, word, text.size);
}

/* Cuts `word` off the front. */
static int slow_after(slow_text *text, const char *word) {
    size_t size = strlen(word);
    if (text->size < size || memcmp(text->data, word, size) != 0) return 0;
    text->data += size;
    text->size -= size;
    return 1;
}

static int slow_without(slow_text text, const char *refused) {
    size_t i;
    for (i = 0; i < text.size; i++)
        if (text.data[i] && strchr(refused, text.data[i])) return 0;
    return 1;
}

static int slow_name(slow_text text) { return text.size && slow_without(text, ":;,="); }

static int slow_natural(slow_text text, uint64_t most, uint64_t *out) {
    size_t i;
    *out = 0;
    for (i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return 0;
        if (*out > most / 10) return 0;
        *out = *out * 10 + (uint64_t)(text.data[i] - '0');
        if (*out > most) return 0;
    }
    return text.size > 0;
}

static int slow_bool(slow_text text) { return slow_is(text, "true") || slow_is(text, "false"); }

static int same(rlw_perlert_text ours, slow_text theirs) {
    return ours.size == theirs.size && ours.data == (const uint8_t *)theirs.data;
}

static int slow_client(slow_text body, const rlw_perlert_message *m) {
    slow_text parts[PARTS];
    if (slow_after(&body, "action=")) {
        if (!slow_without(body, ":;=")) return 0;
        return !m || (m->kind == RLW_PERLERT_ACTION && same(m->text, body));
    }
    if (slow_after(&body, "register=")) {
        if (slow_split(body, ',', parts, PARTS) != 2 || !slow_name(parts[0]) ||
            !slow_without(parts[1], ":;,="))
            return 0;
        return !m || (m->kind == RLW_PERLERT_REGISTER && same(m->key, parts[0]) &&
                      same(m->text, parts[1]));
    }
    if (slow_after(&body, "ready=")) {
        if (slow_split(body, ',', parts, PARTS) != 2 || !slow_name(parts[0]) ||
            !slow_bool(parts[1]))
            return 0;
        return !m || (m->kind == RLW_PERLERT_READY && same(m->key, parts[0]) &&
                      m->flag == slow_is(parts[1], "true"));
    }
    return slow_is(body, "lobby") && (!m || m->kind == RLW_PERLERT_LOBBY_REQUEST);
}

static int slow_slot(slow_text text) {
    slow_text halves[3], parts[5];
    return slow_split(text, '=', halves, 3) == 2 && slow_name(halves[0]) &&
           slow_split(halves[1], ',', parts, 5) == 4 &&
           (slow_is(parts[0], "open") || slow_is(parts[0], "close")) &&
           slow_without(parts[1], ":") && slow_without(parts[2], ":") &&
           (slow_is(parts[3], "ready") || slow_is(parts[3], "not_ready"));
}

static int slow_lobby(slow_text body, const rlw_perlert_message *m) {
    static slow_text slots[PARTS];
    size_t count = slow_split(body, ';', slots, PARTS), i;
    if (count > 1 && !slots[count - 1].size) count--;
    for (i = 0; i < count; i++)
        if (!slow_slot(slots[i])) return 0;
    return count && (!m || (m->kind == RLW_PERLERT_LOBBY && same(m->text, body)));
}

static int slow_server(slow_text body, const rlw_perlert_message *m) {
    uint64_t port;
    if (slow_after(&body, "message="))
        return !m || (m->kind == RLW_PERLERT_MESSAGE && same(m->text, body));
    if (slow_after(&body, "registered="))
        return slow_name(body) && (!m || (m->kind == RLW_PERLERT_REGISTERED && same(m->key, body)));
    if (slow_after(&body, "start="))
        return slow_after(&body, "port:") && slow_natural(body, 65535, &port) && port &&
               (!m || (m->kind == RLW_PERLERT_START && m->port == port));
    if (slow_after(&body, "obs=")) return 0;
    return slow_lobby(body, m);
}

static int slow_step(slow_text body, const rlw_perlert_message *m) {
    static const char *const words[] = {"obs=", "reward=", "done=", "extra="};
    slow_text fields[4];
    size_t count = slow_split(body, ';', fields, 4), i;
    if (count < 3) return 0;
    for (i = 0; i < count; i++)
        if (!slow_after(&fields[i], words[i]) || !slow_without(fields[i], "=")) return 0;
    if (!slow_bool(fields[2])) return 0;
    return !m || (m->kind == RLW_PERLERT_STEP && same(m->text, fields[0]) &&
                  same(m->reward, fields[1]) && m->flag == slow_is(fields[2], "true") &&
                  m->has_extra == (count == 4) && (count == 3 || same(m->extra, fields[3])));
}

/* Whether the bytes are a message; and, with `m`, whether that is what `m` says. */
static int slow_message(const uint8_t *bytes, size_t size, int from_server,
                        const rlw_perlert_message *m) {
    slow_text whole, parts[PARTS];
    uint64_t numbers[3];
    size_t count, i;
    whole.data = (const char *)bytes;
    whole.size = size;
    if (rlw_utf8_check(bytes, size) != size) return 0;
    for (i = 0; i < size && bytes[i] != ';'; i++) {}
    if (i == size) return 0;
    whole.size = i;
    count = slow_split(whole, ':', parts, PARTS);
    if ((count != 2 && count != 4) || !slow_name(parts[0])) return 0;
    for (i = 1; i < count; i++)
        if (!slow_natural(parts[i], INT64_MAX, &numbers[i - 1])) return 0;
    if (m && (!same(m->name, parts[0]) || m->number != numbers[0])) return 0;
    if (m && count == 4 && (m->timestamp != numbers[1] || m->step != numbers[2])) return 0;
    whole.data += whole.size + 1;
    whole.size = size - whole.size - 1;
    if (count == 4) return from_server && slow_step(whole, m);
    return from_server ? slow_server(whole, m) : slow_client(whole, m);
}

/* ---- what must hold ---- */

static rlw_status read_all(rlw_cursor *c, const rlw_perlert_limits *limits, int from_server,
                           rlw_perlert_message *m) {
    rlw_status status = from_server ? rlw_perlert_read_server(c, limits, m)
                                    : rlw_perlert_read_client(c, limits, m);
    size_t count;
    if (status == RLW_OK && m->kind == RLW_PERLERT_LOBBY)
        status = rlw_perlert_count_slots(c, m, limits->items, &count);
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

static rlw_status feed(const uint8_t *bytes, size_t size, const rlw_perlert_limits *limits,
                       int from_server) {
    rlw_perlert_message m;
    rlw_cursor c;
    rlw_status status;
    rlw_cursor_init(&c, bytes, size);
    status = read_all(&c, limits, from_server, &m);
    check_cursor(&c, bytes, size, status);
    MUST(m.field <= RLW_PERLERT_AT_EXTRA);
    if (status == RLW_OVER_DATAGRAM) {
        MUST(size > limits->datagram);
    } else if (status != RLW_OVER_ITEMS) {
        MUST((status == RLW_OK) == slow_message(bytes, size, from_server, NULL));
    }
    if (status == RLW_OK) {
        MUST(slow_message(bytes, size, from_server, &m));
        touched += add_up(m.name.data, m.name.size);
        if (m.kind == RLW_PERLERT_STEP) steps_count++;
        write_again(&m, &c, limits, from_server);
        whole_count++;
    }
    return status;
}

static const rlw_perlert_limits WIDE = {ROOM, ROOM};

static rlw_status feed_one(const sample *from) {
    static const uint8_t odd_bytes[] = {':', ';', ',', '=', ':', ';', ',', '=', '0', '9', '-', '.',
                                        ' ', 'e', 'o', 'r', 0x00, 0x7F, 0x80, 0xC3, 0xED, 0xFF};
    rlw_perlert_limits limits = WIDE;
    size_t edits = below(16) ? 1 + below(3) : 0;
    int from_server = below(2) != 0;
    rlw_status status;
    uint8_t *bytes;
    begin_with(from);
    while (edits--) mutate_bytes(odd_bytes, sizeof odd_bytes);
    if (!below(8)) limits.datagram = below(100);
    if (!below(8)) limits.items = 1 + below(2);
    bytes = take_input();
    status = feed(bytes, input_size, &limits, from_server);
    feed(bytes, input_size, &WIDE, !from_server);
    release(bytes);
    return status;
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    rlw_status client = feed(bytes, size, &WIDE, 0), server = feed(bytes, size, &WIDE, 1);
    if (size == s->size) MUST((client == RLW_OK) != (server == RLW_OK));
    steps_count = 0;
}

static void mark_sample(sample *s) { /* where fields end, and begin */
    size_t i;
    for (i = 0; i < s->size; i++)
        if (strchr(":;,=", s->data[i])) {
            mark(s, i);
            mark(s, i + 1);
        }
}

int main(int argc, char **argv) {
    static const rlw_status reaches[] = {
        RLW_OK,       RLW_NEED_MORE,   RLW_BAD_TEXT, RLW_BAD_EMPTY,  RLW_BAD_CHARACTER,
        RLW_BAD_WORD, RLW_BAD_INTEGER, RLW_TRAILING, RLW_OVER_ITEMS, RLW_OVER_DATAGRAM,
    };
    static const fuzz_driver driver = {
        "fuzz_perlert", mark_sample, feed_prefix, feed_one,
        reaches,        sizeof reaches / sizeof *reaches,
        "steps",        &steps_count,
    };
    return fuzz_main(argc, argv, &driver);
}
