/* Mutates streams of HTTP/2 frames and feeds them to the kernels; fuzz.h tells how it is run. */
#include "fuzz.h"

static uint64_t message_count; /* gRPC messages that began in a DATA frame */

/* ---- one stream of frames ---- */

static rlw_status check_settings(const uint8_t *data, size_t size) {
    rlw_cursor c;
    unsigned id;
    uint32_t value;
    rlw_cursor_init(&c, data, size);
    while (c.at < c.end) {
        rlw_status status = rlw_h2_read_setting(&c, &id, &value);
        if (status != RLW_OK) {
            check_cursor(&c, data, size, status);
            return status;
        }
        MUST(id != RLW_H2_ENABLE_PUSH || value <= 1);
        MUST(id != RLW_H2_INITIAL_WINDOW_SIZE || value <= RLW_H2_WINDOW_MOST);
        MUST(id != RLW_H2_MAX_FRAME_SIZE || (value >= 16384 && value <= 16777215));
    }
    return RLW_OK;
}

static rlw_status check_message(const uint8_t *data, size_t size, uint64_t limit) {
    uint8_t *copy = exact(data, size);
    uint32_t length = 0;
    rlw_cursor c;
    rlw_status status;
    rlw_cursor_init(&c, copy, size);
    status = rlw_grpc_read_prefix(&c, limit, &length);
    check_cursor(&c, copy, size, status);
    if (status == RLW_OK) {
        uint8_t room[RLW_GRPC_PREFIX];
        MUST(length <= limit && c.at == copy + RLW_GRPC_PREFIX);
        rlw_grpc_write_prefix(room, length);
        MUST(memcmp(room, copy, sizeof room) == 0);
        message_count++;
    }
    release(copy);
    return status == RLW_NEED_MORE ? RLW_OK : status;
}

static rlw_status feed_stream(const uint8_t *bytes, size_t size, uint32_t most, uint32_t other,
                              uint64_t limit) {
    int64_t window = RLW_H2_WINDOW_FIRST;
    rlw_cursor c;
    rlw_cursor_init(&c, bytes, size);
    do {
        rlw_h2_head h;
        uint8_t room[RLW_H2_HEAD];
        const uint8_t *start = c.at, *payload = NULL, *behind;
        size_t count = 0;
        rlw_status status = rlw_h2_read_head(&c, most, other, &h);
        if (status != RLW_OK) {
            if (status == RLW_NEED_MORE) check_cursor(&c, bytes, size, status);
            MUST(c.at == start);
            return status;
        }
        MUST(c.at == start + RLW_H2_HEAD);
        rlw_h2_write_head(room, h.size, h.type, h.flags, h.stream);
        room[5] = (uint8_t)(room[5] | (start[5] & 0x80)); /* the reserved bit alone is lost */
        MUST(memcmp(room, start, sizeof room) == 0);
        behind = c.at + (h.size <= rlw_left(&c) ? h.size : 0);
        status = rlw_h2_take_payload(&c, &h, &payload, &count);
        if (status != RLW_OK) {
            check_cursor(&c, bytes, size, status);
            MUST(status == RLW_NEED_MORE || status == RLW_BAD_PADDING);
            return status;
        }
        MUST(c.at == behind && payload >= start + RLW_H2_HEAD && payload + count <= c.at);
        touched += add_up(payload, count);
        if (h.type == RLW_H2_SETTINGS) status = check_settings(payload, count);
        if (h.type == RLW_H2_WINDOW_UPDATE) {
            rlw_cursor inner;
            rlw_cursor_init(&inner, payload, count);
            status = rlw_h2_open_window(&inner, &window);
            MUST(window >= RLW_H2_WINDOW_FIRST && window <= RLW_H2_WINDOW_MOST);
        }
        if (h.type == RLW_H2_DATA) status = check_message(payload, count, limit);
        if (status != RLW_OK) return status;
        whole_count++;
    } while (c.at < c.end);
    return RLW_OK;
}

/* ---- mutations that know frames ---- */

static void mutate(void) {
    static const uint8_t odd_bytes[] = {0,    1,    2,    3,    4,    5,    6,    7,    8,   9,
                                        0x20, 0x28, 0x2C, 0x3F, 0x40, 0x7F, 0x80, 0xC0, 0xFF};
    size_t at = some_mark(0), byte;
    if (at + RLW_H2_HEAD > input_size) {
        mutate_bytes(odd_bytes, sizeof odd_bytes);
        return;
    }
    switch (below(8)) {
    case 0: input[at + 2] = (uint8_t)(input[at + 2] + below(9) - 4); break; /* the size */
    case 1: byte = below(3); input[at + byte] = (uint8_t)chance(); break;
    case 2: input[at + 3] = (uint8_t)below(12); break; /* the type */
    case 3: input[at + 4] ^= (uint8_t)(1u << below(8)); break;
    case 4: byte = below(4); input[at + 5 + byte] = odd_bytes[below(sizeof odd_bytes)]; break;
    case 5: /* what is first in the payload: padding, a setting, a prefix */
        if (at + RLW_H2_HEAD < input_size)
            input[at + RLW_H2_HEAD] = odd_bytes[below(sizeof odd_bytes)];
        break;
    default: mutate_bytes(odd_bytes, sizeof odd_bytes); break;
    }
}

static rlw_status feed(const uint8_t *bytes, size_t size) {
    uint32_t most = below(4) ? RLW_H2_FRAME_MOST : RLW_H2_FRAME_LEAST;
    uint32_t other = below(4) ? RLW_H2_FRAME_LEAST : (uint32_t)below(60);
    return feed_stream(bytes, size, most, other, below(4) ? 1000000 : below(200));
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    rlw_status status =
        feed_stream(bytes, size, RLW_H2_FRAME_MOST, RLW_H2_FRAME_MOST, UINT64_MAX);
    if (size == s->size) MUST(status == RLW_OK || status == RLW_BAD_WINDOW || status == RLW_BAD_COMPRESSED);
}

static void mark_sample(sample *s) {
    rlw_cursor c;
    rlw_h2_head h;
    const uint8_t *payload;
    size_t count;
    rlw_cursor_init(&c, s->data, s->size);
    while (c.at < c.end) {
        mark(s, (size_t)(c.at - s->data));
        MUST(rlw_h2_read_head(&c, RLW_H2_FRAME_MOST, RLW_H2_FRAME_MOST, &h) == RLW_OK);
        MUST(rlw_h2_take_payload(&c, &h, &payload, &count) == RLW_OK);
    }
}

FUZZ_MAIN("fuzz_http2", "messages", message_count, RLW_OK, RLW_NEED_MORE, RLW_BAD_FRAME_SIZE,
          RLW_BAD_PUSH, RLW_BAD_STREAM, RLW_BAD_PADDING, RLW_BAD_SETTING, RLW_BAD_INCREMENT,
          RLW_BAD_WINDOW, RLW_BAD_COMPRESSED, RLW_OVER_MESSAGE, RLW_OVER_FRAME)
