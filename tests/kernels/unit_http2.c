/* http2.h against RFC 9113, and gRPC's prefix. */
#include "harness.h"

#define MOST RLW_H2_FRAME_MOST

/* Reads a head from memory of exactly its size. */
static rlw_status read_head(const void *data, size_t size, uint32_t most, uint32_t other,
                            rlw_h2_head *out, rlw_fault *fault) {
    uint8_t *input = exact(data, size);
    rlw_cursor c;
    rlw_status status;
    rlw_cursor_init(&c, input, size);
    status = rlw_h2_read_head(&c, most, other, out);
    EQUAL(c.at - input, status == RLW_OK ? RLW_H2_HEAD : 0);
    *fault = c.fault;
    fault->at = NULL;
    release(input);
    return status;
}

static rlw_status check(uint32_t size, unsigned type, unsigned flags, uint32_t stream,
                        rlw_fault *fault) {
    uint8_t head[RLW_H2_HEAD];
    rlw_h2_head out;
    EQUAL(rlw_h2_write_head(head, size, type, flags, stream) - head, RLW_H2_HEAD);
    return read_head(head, sizeof head, MOST, MOST, &out, fault);
}

static void what_is_written_is_read(void) {
    static const uint32_t sizes[] = {8, 255, 256, 65535, 65536, RLW_H2_FRAME_MOST};
    size_t i, size;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t head[RLW_H2_HEAD];
        rlw_h2_head out;
        rlw_fault fault;
        rlw_h2_write_head(head, sizes[i], RLW_H2_DATA, 0xF7, 0x7FFFFFFF - (uint32_t)i);
        EQUAL(read_head(head, sizeof head, MOST, 0, &out, &fault), RLW_OK);
        CHECK(out.size == sizes[i] && out.type == RLW_H2_DATA && out.flags == 0xF7);
        EQUAL(out.stream, 0x7FFFFFFF - (uint32_t)i);
        head[5] |= 0x80; /* the reserved bit is ignored: section 4.1 */
        EQUAL(read_head(head, sizeof head, MOST, 0, &out, &fault), RLW_OK);
        EQUAL(out.stream, 0x7FFFFFFF - (uint32_t)i);
        for (size = 0; size < RLW_H2_HEAD; size++) {
            EQUAL(read_head(head, size, MOST, 0, &out, &fault), RLW_NEED_MORE);
            CHECK(fault.got == RLW_H2_HEAD && fault.allowed == size);
        }
    }
}

static void every_type_has_its_stream(void) {
    rlw_fault fault;
    unsigned type;
    for (type = 0; type < 256; type++) {
        uint32_t size = type == RLW_H2_PRIORITY                                     ? 5
                        : type == RLW_H2_RST_STREAM || type == RLW_H2_WINDOW_UPDATE ? 4
                        : type == RLW_H2_PING || type == RLW_H2_GOAWAY              ? 8
                                                                                    : 0;
        int with = type == RLW_H2_SETTINGS || type == RLW_H2_PING || type == RLW_H2_GOAWAY;
        int without = type < 4 || type == RLW_H2_CONTINUATION;
        if (type == RLW_H2_PUSH_PROMISE) {
            EQUAL(check(4, type, 0, 2, &fault), RLW_BAD_PUSH);
            EQUAL(fault.got, RLW_H2_PUSH_PROMISE);
            continue;
        }
        EQUAL(check(size, type, 0, 1, &fault), with ? RLW_BAD_STREAM : RLW_OK);
        EQUAL(check(size, type, 0, 0, &fault), without ? RLW_BAD_STREAM : RLW_OK);
        if (without) EQUAL(fault.got, 0);
    }
}

static void sizes(void) {
    static const uint8_t fixed[][2] = {{RLW_H2_PRIORITY, 5}, {RLW_H2_RST_STREAM, 4},
                                       {RLW_H2_PING, 8},     {RLW_H2_WINDOW_UPDATE, 4}};
    rlw_fault fault;
    rlw_h2_head out;
    uint32_t size;
    size_t i;
    for (i = 0; i < sizeof fixed / sizeof *fixed; i++)
        for (size = 0; size < 20; size++) {
            EQUAL(check(size, fixed[i][0], 0, fixed[i][0] != RLW_H2_PING, &fault),
                  size == fixed[i][1] ? RLW_OK : RLW_BAD_FRAME_SIZE);
            if (size != fixed[i][1]) CHECK(fault.got == size && fault.allowed == fixed[i][1]);
        }
    for (size = 0; size < 20; size++) {
        EQUAL(check(size, RLW_H2_SETTINGS, 0, 0, &fault), size % 6 ? RLW_BAD_FRAME_SIZE : RLW_OK);
        EQUAL(check(size, RLW_H2_SETTINGS, RLW_H2_ACK, 0, &fault), size ? RLW_BAD_FRAME_SIZE : RLW_OK);
        EQUAL(check(size, RLW_H2_GOAWAY, 0, 0, &fault), size < 8 ? RLW_BAD_FRAME_SIZE : RLW_OK);
        EQUAL(check(size, RLW_H2_DATA, RLW_H2_PADDED, 1, &fault), size ? RLW_OK : RLW_BAD_FRAME_SIZE);
        EQUAL(check(size, RLW_H2_HEADERS, RLW_H2_PRIORITIZED, 1, &fault),
              size < 5 ? RLW_BAD_FRAME_SIZE : RLW_OK);
        EQUAL(check(size, RLW_H2_HEADERS, RLW_H2_PRIORITIZED | RLW_H2_PADDED, 1, &fault),
              size < 6 ? RLW_BAD_FRAME_SIZE : RLW_OK);
    }
    EQUAL(read_head("\x00\x40\x01\x00\x00\0\0\0\x01", 9, 0x4000, 0x4000, &out, &fault),
          RLW_BAD_FRAME_SIZE);
    CHECK(fault.got == 0x4001 && fault.allowed == 0x4000);
    EQUAL(read_head("\x00\x40\x01\x00\x00\0\0\0\x01", 9, 0x4001, 0, &out, &fault), RLW_OK);
    EQUAL(read_head("\x00\x40\x02\x04\x00\0\0\0\x00", 9, MOST, 0x4000, &out, &fault),
          RLW_OVER_FRAME);
    CHECK(fault.got == 0x4002 && fault.allowed == 0x4000 && out.type == RLW_H2_SETTINGS);
    EQUAL(read_head("\x00\x40\x02\x0a\x00\0\0\0\x00", 9, MOST, 0x4000, &out, &fault), RLW_OK);
    EQUAL(read_head("\x00\x40\x02\x0a\x00\0\0\0\x00", 9, 0x4001, 0x4000, &out, &fault),
          RLW_BAD_FRAME_SIZE);
}

static void faults_and_codes(void) { /* sections 5.4 and 7 */
    rlw_h2_head head = {5, 1, RLW_H2_WINDOW_UPDATE, 0};
    unsigned code;
    CHECK(rlw_h2_stream_only(&head, RLW_BAD_INCREMENT) && rlw_h2_stream_only(&head, RLW_BAD_WINDOW));
    CHECK(!rlw_h2_stream_only(&head, RLW_BAD_FRAME_SIZE));
    head.type = RLW_H2_PRIORITY;
    CHECK(!rlw_h2_stream_only(&head, RLW_BAD_FRAME_SIZE)); /* of 5 bytes: it is over the limit */
    head.size = 4;
    CHECK(rlw_h2_stream_only(&head, RLW_BAD_FRAME_SIZE));
    head.stream = 0;
    CHECK(!rlw_h2_stream_only(&head, RLW_BAD_FRAME_SIZE));
    EQUAL(rlw_h2_code_of(RLW_OK), RLW_H2_NO_ERROR);
    EQUAL(rlw_h2_code_of(RLW_BAD_FRAME_SIZE), RLW_H2_FRAME_SIZE_ERROR);
    EQUAL(rlw_h2_code_of(RLW_BAD_WINDOW), RLW_H2_FLOW_CONTROL_ERROR);
    EQUAL(rlw_h2_code_of(RLW_OVER_FRAME), RLW_H2_ENHANCE_YOUR_CALM);
    EQUAL(rlw_h2_code_of(RLW_BAD_STREAM), RLW_H2_PROTOCOL_ERROR);
    for (code = 0; code < 300; code++) {
        EQUAL(rlw_h2_code_name(code) != NULL, code <= RLW_H2_HTTP_1_1_REQUIRED);
        EQUAL(rlw_h2_type_name(code) != NULL, code <= RLW_H2_CONTINUATION);
    }
    CHECK(strcmp(rlw_h2_code_name(11), "ENHANCE_YOUR_CALM") == 0);
    CHECK(strcmp(rlw_h2_type_name(5), "PUSH_PROMISE") == 0);
}

static void prefixes(void) {
    uint8_t room[RLW_GRPC_PREFIX], *input;
    uint32_t size = 9;
    size_t i;
    unsigned first;
    rlw_cursor c;
    EQUAL(rlw_grpc_write_prefix(room, 0x01020304) - room, RLW_GRPC_PREFIX);
    CHECK(memcmp(room, "\0\x01\x02\x03\x04", 5) == 0);
    for (i = 0; i <= sizeof room; i++) {
        input = exact(room, i);
        rlw_cursor_init(&c, input, i);
        EQUAL(rlw_grpc_read_prefix(&c, 0x01020304, &size),
              i == sizeof room ? RLW_OK : RLW_NEED_MORE);
        EQUAL(size, i == sizeof room ? 0x01020304 : 0);
        rlw_cursor_init(&c, input, i);
        if (i == sizeof room)
            EQUAL(rlw_grpc_read_prefix(&c, 0x01020303, &size), RLW_OVER_MESSAGE);
        release(input);
    }
    for (first = 1; first < 256; first++) {
        room[0] = (uint8_t)first;
        rlw_cursor_init(&c, room, sizeof room);
        EQUAL(rlw_grpc_read_prefix(&c, UINT64_MAX, &size), RLW_BAD_COMPRESSED);
        EQUAL(c.fault.got, first);
    }
}

void http2_suite(void) {
    RUN(what_is_written_is_read);
    RUN(every_type_has_its_stream);
    RUN(sizes);
    RUN(faults_and_codes);
    RUN(prefixes);
}
