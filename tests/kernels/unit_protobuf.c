/* protobuf.h: varints, tags, fields, groups. */
#include "harness.h"

static rlw_status take(const void *data, size_t size, rlw_field *f, rlw_cursor *c, uint8_t **copy) {
    *copy = exact(data, size);
    rlw_cursor_init(c, *copy, size);
    return rlw_take_field(c, f);
}

static void varints_there_and_back(void) {
    unsigned bit;
    for (bit = 0; bit < 64; bit++) {
        uint64_t value = UINT64_C(1) << bit, back = 0;
        int less;
        for (less = 0; less < 2; less++, value--) {
            uint8_t room[RLW_VARINT_ROOM], *end = rlw_store_varint(room, value), *wire;
            size_t size = (size_t)(end - room), cut;
            rlw_cursor c;
            EQUAL(rlw_varint_size(value), size);
            EQUAL(size, less ? (bit + 6) / 7 + (bit == 0) : bit / 7 + 1);
            for (cut = 0; cut < size; cut++) {
                wire = exact(room, cut);
                rlw_cursor_init(&c, wire, cut);
                EQUAL(rlw_take_varint(&c, &back), RLW_NEED_MORE);
                CHECK(c.at == wire && c.fault.at == wire);
                EQUAL(c.fault.got, cut + 1);
                release(wire);
            }
            wire = exact(room, size);
            rlw_cursor_init(&c, wire, size);
            EQUAL(rlw_take_varint(&c, &back), RLW_OK);
            EQUAL(back, value);
            CHECK(c.at == c.end);
            release(wire);
        }
    }
}

static void varints_beyond_64_bits(void) {
    uint8_t bytes[11] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02, 0x00};
    uint64_t value = 7;
    rlw_cursor c;
    rlw_cursor_init(&c, bytes, 11);
    EQUAL(rlw_take_varint(&c, &value), RLW_BAD_VARINT);
    CHECK(c.at == bytes && c.fault.at == bytes && value == 7);
    bytes[9] = 0x80; /* an eleventh byte, even of nothing */
    EQUAL(rlw_take_varint(&c, &value), RLW_BAD_VARINT);
    bytes[9] = 0x01;
    EQUAL(rlw_take_varint(&c, &value), RLW_OK);
    EQUAL(value, UINT64_C(1) << 63);
}

static void fields_of_every_wire_type(void) {
    rlw_field f;
    rlw_cursor c;
    uint8_t *wire;
    EQUAL(take("\x08\x96\x01", 3, &f, &c, &wire), RLW_OK);
    CHECK(f.number == 1 && f.wire == RLW_WIRE_VARINT && f.value == 150 && f.at == wire);
    release(wire);
    EQUAL(take("\x11\1\2\3\4\5\6\7\x88", 9, &f, &c, &wire), RLW_OK);
    CHECK(f.number == 2 && f.wire == RLW_WIRE_FIXED64 && f.value == UINT64_C(0x8807060504030201));
    release(wire);
    EQUAL(take("\x1a\3abcd", 6, &f, &c, &wire), RLW_OK);
    CHECK(f.number == 3 && f.wire == RLW_WIRE_BYTES && f.size == 3 && f.data == wire + 2);
    CHECK(c.at == wire + 5);
    release(wire);
    EQUAL(take("\x25\1\2\3\x84", 5, &f, &c, &wire), RLW_OK);
    CHECK(f.number == 4 && f.wire == RLW_WIRE_FIXED32 && f.value == 0x84030201);
    release(wire);
    EQUAL(take("\x2b\x08\1\x2c", 4, &f, &c, &wire), RLW_OK); /* field 5, a group with field 1 */
    CHECK(f.number == 5 && f.wire == RLW_WIRE_GROUP && c.at == c.end);
    release(wire);
    EQUAL(take("\xf8\xff\xff\xff\x0f\1", 6, &f, &c, &wire), RLW_OK); /* the highest number */
    EQUAL(f.number, (1u << 29) - 1);
    release(wire);
}

static void every_strict_prefix_of_a_field_is_too_short(void) {
    static const struct {
        const char *bytes;
        size_t size;
    } fields[] = {{"\x08\x96\x01", 3}, {"\x11\1\2\3\4\5\6\7\x88", 9}, {"\x1a\3abc", 5},
                  {"\x25\1\2\3\x84", 5}, {"\x2b\x08\1\x33\x12\2ab\x34\x2c", 10}};
    size_t i, size;
    for (i = 0; i < sizeof fields / sizeof *fields; i++)
        for (size = 0; size < fields[i].size; size++) {
            rlw_field f;
            rlw_cursor c;
            uint8_t *wire;
            EQUAL(take(fields[i].bytes, size, &f, &c, &wire), RLW_NEED_MORE);
            CHECK(c.fault.got > c.fault.allowed && c.fault.at >= wire && c.fault.at <= wire + size);
            release(wire);
        }
}

static void tags_that_are_none(void) {
    static const char *const tags[] = {"\x02\1", "\x0e\1", "\x0f\1", "\x04\1",
                                       "\x80\x80\x80\x80\x10\1"};
    size_t i;
    for (i = 0; i < sizeof tags / sizeof *tags; i++) {
        rlw_field f;
        rlw_cursor c;
        uint8_t *wire;
        EQUAL(take(tags[i], strlen(tags[i]), &f, &c, &wire), RLW_BAD_TAG);
        CHECK(c.fault.at == wire && c.at == wire);
        release(wire);
    }
}

static void a_group_ends_as_it_began(void) {
    rlw_field f;
    rlw_cursor c;
    uint8_t *wire;
    EQUAL(take("\x0c", 1, &f, &c, &wire), RLW_BAD_TAG); /* an end without a beginning */
    release(wire);
    EQUAL(take("\x0b\x14", 2, &f, &c, &wire), RLW_BAD_TAG);
    EQUAL(c.fault.got, 2);
    CHECK(c.fault.at == wire + 1);
    release(wire);
    EQUAL(take("\x0b\x13\x0c\x14", 4, &f, &c, &wire), RLW_BAD_TAG);
    release(wire);
}

static void groups_inside_each_other(void) {
    size_t depth;
    for (depth = 1; depth <= RLW_GROUP_DEPTH + 1; depth += RLW_GROUP_DEPTH / 2) {
        uint8_t bytes[2 * RLW_GROUP_DEPTH + 2];
        rlw_field f;
        rlw_cursor c;
        uint8_t *wire;
        rlw_status status;
        memset(bytes, 0x0b, depth);
        memset(bytes + depth, 0x0c, depth);
        status = take(bytes, 2 * depth, &f, &c, &wire);
        if (depth <= RLW_GROUP_DEPTH) {
            EQUAL(status, RLW_OK);
        } else {
            EQUAL(status, RLW_OVER_DEPTH);
            EQUAL(c.fault.got, RLW_GROUP_DEPTH + 1);
        }
        release(wire);
    }
}

static void a_length_past_the_end(void) {
    static const char *const fields[] = {"\x0a\x05" "abcd", "\x0a\xff\xff\xff\xff\x0f",
                                         "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"};
    size_t i;
    for (i = 0; i < sizeof fields / sizeof *fields; i++) {
        rlw_field f;
        rlw_cursor c;
        uint8_t *wire;
        EQUAL(take(fields[i], strlen(fields[i]), &f, &c, &wire), RLW_NEED_MORE);
        CHECK(c.fault.got > c.fault.allowed);
        release(wire);
    }
}

static void a_known_field_has_its_wire_type(void) {
    rlw_field f = RLW_NO_FIELD;
    rlw_cursor c;
    rlw_cursor_init(&c, NULL, 0);
    f.wire = RLW_WIRE_FIXED32;
    EQUAL(rlw_expect_wire(&c, &f, RLW_WIRE_FIXED32), RLW_OK);
    EQUAL(rlw_expect_wire(&c, &f, RLW_WIRE_BYTES), RLW_BAD_WIRE);
    EQUAL(c.fault.got, RLW_WIRE_FIXED32);
    EQUAL(c.fault.allowed, RLW_WIRE_BYTES);
}

void protobuf_suite(void) {
    RUN(varints_there_and_back);
    RUN(varints_beyond_64_bits);
    RUN(fields_of_every_wire_type);
    RUN(every_strict_prefix_of_a_field_is_too_short);
    RUN(tags_that_are_none);
    RUN(a_group_ends_as_it_began);
    RUN(groups_inside_each_other);
    RUN(a_length_past_the_end);
    RUN(a_known_field_has_its_wire_type);
}
