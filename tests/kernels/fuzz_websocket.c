/* Mutates streams of WebSocket frames and feeds them to the kernels; fuzz.h tells how it is run. */
#include "fuzz.h"

static uint64_t masked_count; /* payloads that were unmasked */

/* ---- one stream ---- */

static int is_text(const uint8_t *data, size_t size) { /* whole, and in pieces: they must agree */
    rlw_utf8_state state = {0, 0, 0};
    size_t bad = rlw_utf8_check(data, size), at = 0, piece, good;
    int whole = bad == size, pieces = 1;
    MUST(!rlw_is_ascii(data, size) || whole);
    while (at < size) {
        uint8_t *part;
        piece = 1 + below(below(4) ? 12 : size - at);
        if (piece > size - at) piece = size - at;
        part = exact(data + at, piece);
        good = rlw_utf8_feed(&state, part, piece);
        release(part);
        MUST(good <= piece);
        if (good < piece) {
            pieces = 0;
            MUST(at + good >= bad && at + good <= bad + 3); /* inside the character at fault */
            break;
        }
        at += piece;
    }
    MUST((pieces && state.more == 0) == whole);
    return whole;
}

static void check_payload(const rlw_ws_header *h, const uint8_t *payload, rlw_status *status) {
    size_t size = (size_t)h->size, at = 0, i;
    uint8_t *copy = exact(payload, size), *other = exact(payload, size);
    uint8_t *third = exact(payload, size);
    rlw_ws_mask(copy, size, h->key, 0);
    rlw_ws_mask_copy(other, payload, size, h->key, 0);
    for (i = 0; i < size; i++) MUST(copy[i] == (payload[i] ^ h->key[i % 4]));
    MUST(size == 0 || memcmp(copy, other, size) == 0);
    while (at < size) { /* in pieces, each beginning where the key stands */
        size_t piece = 1 + below(size - at);
        rlw_ws_mask(third + at, piece, h->key, at);
        at += piece;
    }
    MUST(size == 0 || memcmp(copy, third, size) == 0);
    if (h->masked) masked_count++;
    touched += add_up(copy, size);
    if (h->opcode == RLW_WS_TEXT && h->fin && !is_text(copy, size)) *status = RLW_BAD_TEXT;
    if (h->opcode == RLW_WS_CLOSE && size >= 2)
        touched += (uint64_t)rlw_ws_is_close_code((unsigned)copy[0] << 8 | copy[1]);
    release(copy);
    release(other);
    release(third);
}

static rlw_status feed_stream(const uint8_t *bytes, size_t size, int masked, uint64_t limit) {
    rlw_cursor c;
    rlw_cursor_init(&c, bytes, size);
    do {
        rlw_ws_header h;
        const uint8_t *start = c.at, *payload;
        size_t head;
        rlw_status status = rlw_ws_read_header(&c, masked, limit, &h);
        if (status != RLW_OK) {
            check_cursor(&c, bytes, size, status);
            MUST(c.at == start);
            return status;
        }
        head = (size_t)(c.at - start);
        MUST(h.masked == masked && (h.opcode > 7 || h.size <= limit));
        { /* what is written is what was read: there is only one way */
            uint8_t *room = (uint8_t *)memory(head);
            MUST(rlw_ws_header_size(h.size, h.masked) == head);
            MUST(rlw_ws_write_header(room, h.fin, h.opcode, h.size, h.masked ? h.key : NULL) ==
                 room + head);
            MUST(memcmp(room, start, head) == 0);
            free(room);
        }
        status = rlw_take(&c, h.size, &payload);
        if (status != RLW_OK) {
            check_cursor(&c, bytes, size, status);
            return status;
        }
        check_payload(&h, payload, &status);
        if (status != RLW_OK) return status;
        whole_count++;
    } while (c.at < c.end);
    return RLW_OK;
}

/* ---- mutations that know frames ---- */

static void edit_length(size_t at) {
    static const uint64_t odd[] = {0, 1, 125, 126, 127, 128, 65535, 65536, 65537,
                                   UINT64_C(0x7FFFFFFFFFFFFFFF), UINT64_C(0x8000000000000000),
                                   UINT64_C(0xFFFFFFFFFFFFFFFF), UINT64_C(0x100000000)};
    uint64_t size = odd[below(sizeof odd / sizeof *odd)];
    uint8_t bytes[9];
    size_t i;
    if (at + 2 > input_size) return;
    switch (below(3)) {
    case 0: input[at + 1] = (uint8_t)((input[at + 1] & 0x80) | (size & 0x7F)); break;
    case 1: /* in two bytes */
        bytes[0] = (uint8_t)((input[at + 1] & 0x80) | 126);
        bytes[1] = (uint8_t)(size >> 8);
        bytes[2] = (uint8_t)size;
        replace(at + 1, 1, bytes, 3);
        break;
    default: /* in eight */
        bytes[0] = (uint8_t)((input[at + 1] & 0x80) | 127);
        for (i = 0; i < 8; i++) bytes[1 + i] = (uint8_t)(size >> (56 - 8 * i));
        replace(at + 1, 1, bytes, 9);
        break;
    }
}

static void mutate(void) {
    static const uint8_t odd_bytes[] = {0,    1,    2,    0x7D, 0x7E, 0x7F, 0x80, 0x81, 0x82, 0x88,
                                        0x89, 0x8A, 0xC0, 0xC1, 0xED, 0xF4, 0xFD, 0xFE, 0xFF, 0x03};
    size_t at = some_mark(0);
    switch (below(8)) {
    case 0:
    case 1: edit_length(at); break;
    case 2: /* the first byte */
        if (at < input_size) input[at] ^= (uint8_t)(1u << below(8));
        break;
    case 3: /* the second, with the mask bit */
        if (at + 1 < input_size) input[at + 1] ^= (uint8_t)(1u << below(8));
        break;
    default: mutate_bytes(odd_bytes, sizeof odd_bytes); break;
    }
}

static int is_masked(const sample *s) { return s->size > 1 && s->data[1] >> 7; }

static rlw_status feed(const uint8_t *bytes, size_t size) {
    int masked = below(16) ? is_masked(origin) : !is_masked(origin);
    return feed_stream(bytes, size, masked, below(4) ? UINT64_C(1) << 40 : below(400));
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    rlw_status status = feed_stream(bytes, size, is_masked(s), UINT64_C(1) << 40);
    if (size == s->size) MUST(status == RLW_OK);
    MUST(status == RLW_OK || status == RLW_NEED_MORE); /* OK: it ends between two frames */
}

static void mark_sample(sample *s) {
    rlw_cursor c;
    rlw_ws_header h;
    const uint8_t *payload;
    rlw_cursor_init(&c, s->data, s->size);
    while (c.at < c.end) {
        mark(s, (size_t)(c.at - s->data));
        MUST(rlw_ws_read_header(&c, is_masked(s), UINT64_C(1) << 40, &h) == RLW_OK);
        MUST(rlw_take(&c, h.size, &payload) == RLW_OK);
    }
}

FUZZ_MAIN("fuzz_websocket", "masked", masked_count, RLW_OK, RLW_NEED_MORE, RLW_BAD_TEXT,
          RLW_BAD_RESERVED, RLW_BAD_OPCODE, RLW_BAD_CONTROL, RLW_BAD_LENGTH, RLW_BAD_MASK,
          RLW_OVER_MESSAGE)
