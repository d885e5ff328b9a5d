/* websocket.h against RFC 6455, and the incremental half of utf8.h. */
#include "harness.h"

#define MOST (UINT64_C(1) << 40)

/* Reads a header from memory of exactly its size. */
static rlw_status read_header(const void *data, size_t size, int masked, uint64_t limit,
                              rlw_ws_header *out, rlw_fault *fault, size_t *used) {
    uint8_t *input = exact(data, size);
    rlw_cursor c;
    rlw_status status;
    rlw_cursor_init(&c, input, size);
    status = rlw_ws_read_header(&c, masked, limit, out);
    *used = (size_t)(c.at - input);
    *fault = c.fault;
    fault->at = NULL;
    release(input);
    return status;
}

static void every_first_byte(void) {
    unsigned first;
    for (first = 0; first < 256; first++) {
        uint8_t bytes[2];
        unsigned opcode = first & 15;
        rlw_ws_header h;
        rlw_fault fault;
        size_t used;
        rlw_status expected = RLW_OK;
        bytes[0] = (uint8_t)first;
        bytes[1] = 0;
        if (first & 0x70)
            expected = RLW_BAD_RESERVED;
        else if ((opcode > 2 && opcode < 8) || opcode > 10)
            expected = RLW_BAD_OPCODE;
        else if (opcode >= 8 && first < 128)
            expected = RLW_BAD_CONTROL;
        EQUAL(read_header(bytes, 2, 0, MOST, &h, &fault, &used), expected);
        EQUAL(used, expected == RLW_OK ? 2 : 0);
        /* What is wrong with the first byte is said without the second. */
        EQUAL(read_header(bytes, 1, 0, MOST, &h, &fault, &used),
              expected == RLW_OK ? RLW_NEED_MORE : expected);
    }
}

static void masks_must_be_as_the_side_demands(void) {
    rlw_ws_header h;
    rlw_fault fault;
    size_t used;
    EQUAL(read_header("\x82\x00", 2, 1, MOST, &h, &fault, &used), RLW_BAD_MASK);
    CHECK(fault.got == 0 && fault.allowed == 1);
    EQUAL(read_header("\x82\x80", 2, 0, MOST, &h, &fault, &used), RLW_BAD_MASK);
    CHECK(fault.got == 1 && fault.allowed == 0);
}

static void lengths(void) {
    rlw_ws_header h;
    rlw_fault fault;
    size_t used;
    EQUAL(read_header("\x82\x7E\x00\x7D", 4, 0, MOST, &h, &fault, &used), RLW_BAD_LENGTH);
    EQUAL(read_header("\x82\x7E\x00\x7E", 4, 0, MOST, &h, &fault, &used), RLW_OK);
    EQUAL(read_header("\x82\x7F\0\0\0\0\0\0\xFF\xFF", 10, 0, MOST, &h, &fault, &used),
          RLW_BAD_LENGTH);
    EQUAL(read_header("\x82\x7F\x80\0\0\0\0\0\0\0", 10, 0, MOST, &h, &fault, &used),
          RLW_BAD_LENGTH);
    EQUAL(read_header("\x82\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 10, 0, UINT64_MAX, &h, &fault,
                      &used), RLW_BAD_LENGTH);
    EQUAL(fault.got, UINT64_MAX);
    EQUAL(read_header("\x82\x7F\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 10, 0, MOST, &h, &fault, &used),
          RLW_OVER_MESSAGE);
    CHECK(fault.got == UINT64_C(0x7FFFFFFFFFFFFFFF) && fault.allowed == MOST);
    /* A limit is told before the mask has come, and counts for data only. */
    EQUAL(read_header("\x82\xE5", 2, 1, 100, &h, &fault, &used), RLW_OVER_MESSAGE);
    EQUAL(read_header("\x82\xE4", 2, 1, 100, &h, &fault, &used), RLW_NEED_MORE);
    CHECK(fault.got == 6 && fault.allowed == 2);
    EQUAL(read_header("\x89\x65", 2, 0, 100, &h, &fault, &used), RLW_OK);
    EQUAL(read_header("\x89\x7D", 2, 0, 0, &h, &fault, &used), RLW_OK);
    EQUAL(read_header("\x89\x7E", 2, 0, MOST, &h, &fault, &used), RLW_BAD_CONTROL);
    EQUAL(read_header("\x88\x7F", 2, 0, MOST, &h, &fault, &used), RLW_BAD_CONTROL);
}

static void what_is_written_is_read(void) {
    static const uint64_t sizes[] = {0,     1,     125,   126,   127,  65535,
                                     65536, 65537, 1u << 31, UINT64_C(0x7FFFFFFFFFFFFFFF)};
    static const uint8_t key[4] = {1, 2, 3, 4};
    size_t i, masked, size;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (masked = 0; masked < 2; masked++) {
            size_t head = rlw_ws_header_size(sizes[i], (int)masked), used;
            uint8_t *room = exact("...............", head), *end;
            rlw_ws_header h;
            rlw_fault fault;
            end = rlw_ws_write_header(room, 1, RLW_WS_BINARY, sizes[i], masked ? key : NULL);
            EQUAL(end - room, head);
            EQUAL(read_header(room, head, (int)masked, UINT64_MAX >> 1, &h, &fault, &used), RLW_OK);
            CHECK(h.size == sizes[i] && h.masked == masked && used == head && h.fin);
            CHECK(memcmp(h.key, masked ? key : (const uint8_t *)"\0\0\0\0", 4) == 0);
            for (size = 0; size < head; size++) {
                EQUAL(read_header(room, size, (int)masked, UINT64_MAX >> 1, &h, &fault, &used),
                      RLW_NEED_MORE);
                CHECK(fault.got > fault.allowed && fault.allowed == size && used == 0);
            }
            release(room);
        }
}

static void masks_at_every_size_and_phase(void) {
    static const uint8_t key[4] = {0x12, 0x00, 0xff, 0x80};
    size_t size, phase, i;
    for (size = 0; size <= 40; size++)
        for (phase = 0; phase < 9; phase++) {
            uint8_t data[40], *there, *copy;
            for (i = 0; i < size; i++) data[i] = (uint8_t)(i * 37 + 5);
            there = exact(data, size);
            copy = exact(data, size);
            rlw_ws_mask(there, size, key, phase);
            rlw_ws_mask_copy(copy, data, size, key, phase);
            for (i = 0; i < size; i++) CHECK(there[i] == (data[i] ^ key[(phase + i) % 4]));
            CHECK(memcmp(there, copy, size) == 0);
            release(there);
            release(copy);
        }
}

/* Larger ones are masked from a cache line's border on. */
static void masks_at_every_place_in_a_cache_line(void) {
    static const uint8_t key[4] = {0x12, 0x00, 0xff, 0x80};
    enum { MOST_BYTES = 420 };
    static uint8_t data[MOST_BYTES];
    uint8_t *there = malloc(MOST_BYTES + 66), *copy = malloc(MOST_BYTES + 66);
    size_t place, size, phase, i;
    CHECK(there != NULL && copy != NULL);
    for (i = 0; i < MOST_BYTES; i++) data[i] = (uint8_t)(i * 37 + 5);
    for (place = 0; place < 65; place++)
        for (size = 250; size <= MOST_BYTES; size += 17)
            for (phase = 0; phase < 4; phase++) {
                memset(copy, 0xA5, MOST_BYTES + 66);
                memset(there, 0xA5, MOST_BYTES + 66);
                memcpy(there + place, data, size);
                rlw_ws_mask(there + place, size, key, phase);
                rlw_ws_mask_copy(copy + place, data, size, key, phase);
                for (i = 0; i < size; i++)
                    CHECK(there[place + i] == (data[i] ^ key[(phase + i) % 4]));
                CHECK(memcmp(there, copy, MOST_BYTES + 66) == 0);
                CHECK(place == 0 || copy[place - 1] == 0xA5);
                CHECK(copy[place + size] == 0xA5);
            }
    free(there);
    free(copy);
}

static void every_code_point_in_pieces(void) { /* it agrees with the whole check, cut anywhere */
    uint32_t code, wrong = 0;
    for (code = 0x80; code < 0x120000; code += code < 0x11000 ? 1 : 61) {
        uint8_t b[4] = {0, 0, 0, 0}, *input;
        size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4, cut, i;
        for (i = 1; i < 4 && i < size; i++)
            b[i] = (uint8_t)(0x80 | (code >> (6 * (size - 1 - i)) & 0x3F));
        b[0] = (uint8_t)((size == 2 ? 0xC0u : size == 3 ? 0xE0u : 0xF0u) |
                         code >> (6 * (size - 1)));
        input = exact(b, size);
        for (cut = 0; cut <= size; cut++) {
            rlw_utf8_state state = {0, 0, 0};
            int good = rlw_utf8_feed(&state, input, cut) == cut &&
                       rlw_utf8_feed(&state, input + cut, size - cut) == size - cut && !state.more;
            if (good != (rlw_utf8_check(input, size) == size)) wrong++;
        }
        release(input);
    }
    EQUAL(wrong, 0);
}

void websocket_suite(void) {
    RUN(every_first_byte);
    RUN(masks_must_be_as_the_side_demands);
    RUN(lengths);
    RUN(what_is_written_is_read);
    RUN(masks_at_every_size_and_phase);
    RUN(masks_at_every_place_in_a_cache_line);
    RUN(every_code_point_in_pieces);
}
