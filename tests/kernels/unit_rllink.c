/* rllink.h: frames, answers of both Ray's and rlwire's servers, weights, and what is written. */
#include "harness.h"

static const rlw_msgpack_limits limits = RLW_RLLINK_DEFAULT_LIMITS;

/* ---- frames ---- */

static rlw_status frame_of(const void *bytes, size_t size, uint64_t most, rlw_cursor *c,
                           const uint8_t **body, size_t *length) {
    uint8_t *input = exact(bytes, size);
    rlw_status status;
    rlw_cursor_init(c, input, size);
    status = rlw_rllink_read_frame(c, most, body, length);
    EQUAL(c->at - input, status == RLW_OK ? RLW_RLLINK_HEAD + *length : 0);
    CHECK(status == RLW_OK || c->fault.status == status);
    if (status == RLW_OK) CHECK(*body == input + RLW_RLLINK_HEAD);
    release(input);
    return status;
}

CASE(frames) {
    static const char ping[] = "00000011\x81\xA4type\xA4PING";
    rlw_cursor c;
    const uint8_t *body = NULL;
    size_t size = 0, cut;
    EQUAL(frame_of(ping, 19, 11, &c, &body, &size), RLW_OK);
    EQUAL(size, 11);
    EQUAL(frame_of(ping, 7, 11, &c, &body, &size), RLW_NEED_MORE);
    EQUAL(c.fault.got, 8);
    EQUAL(frame_of(ping, 19, 10, &c, &body, &size), RLW_OVER_FRAME);
    CHECK(c.fault.got == 11 && c.fault.allowed == 10);
    EQUAL(frame_of("00000000", 8, 10, &c, &body, &size), RLW_BAD_EMPTY);
    EQUAL(frame_of("99999999", 8, RLW_RLLINK_MOST, &c, &body, &size), RLW_NEED_MORE);
    EQUAL(c.fault.got, 100000007);
    for (cut = 0; cut < 8; cut++) { /* a byte that is no digit is seen when it comes */
        char wrong[9] = "00000011";
        wrong[cut] = "/:+- xA\x80"[cut];
        EQUAL(frame_of(wrong, cut + 1, 11, &c, &body, &size), RLW_BAD_CHARACTER);
        EQUAL(c.fault.got, (uint8_t)wrong[cut]);
    }
}

/* ---- messages ---- */

static rlw_rllink_message message;

static rlw_status read_body(const void *bytes, size_t size) {
    uint8_t *input = exact(bytes, size);
    rlw_cursor c;
    rlw_status status = rlw_rllink_read(&c, input, size, &limits, &message);
    CHECK(status == RLW_OK ? c.at == input + size : c.fault.status == status);
    CHECK(status == RLW_OK || (c.fault.at >= input && c.fault.at <= input + size));
    release(input); /* what the message points to is gone, and not looked at below */
    return status;
}

#define READ(text) read_body(text, sizeof(text) - 1)

CASE(every_type) {
    unsigned kind;
    for (kind = 0; kind <= RLW_RLLINK_SET_STATE; kind++) {
        const char *name = rlw_rllink_name((rlw_rllink_kind)kind);
        char body[40] = "\x81\xA4type\xA0";
        body[6] = (char)(0xA0 | strlen(name));
        memcpy(body + 7, name, strlen(name));
        EQUAL(read_body(body, 7 + strlen(name)), RLW_OK);
        EQUAL(message.kind, kind);
        CHECK(message.config.kind == RLW_MSGPACK_NIL && message.state_size == 0);
        EQUAL(read_body(body, 6 + strlen(name)), RLW_NEED_MORE);
    }
    EQUAL(READ("\x81\xA4type\xA4PINK"), RLW_BAD_WORD);
    EQUAL(READ("\x81\xA4type\xA3PIN"), RLW_BAD_WORD);
    EQUAL(READ("\x80"), RLW_BAD_WORD);
    EQUAL(READ("\x81\xA4type\x01"), RLW_BAD_WIRE);
    EQUAL(READ("\x90"), RLW_BAD_WIRE);
    EQUAL(READ("\x81\xA4type\xA4PING\xC0"), RLW_TRAILING);
    EQUAL(READ("\x81\xA4type\xC1"), RLW_BAD_TYPE);
    EQUAL(READ("\x8F\xA4type\xA4PING"), RLW_BAD_COUNT);
    EQUAL(READ("\x82\x91\x01\x92\x01\x02\xA4type\xA4PONG"), RLW_OK); /* what is not known */
    EQUAL(message.kind, RLW_RLLINK_PONG);
}

CASE(configurations) {
    EQUAL(READ("\x84\xA4type\xAASET_CONFIG\xB4" "env_steps_per_sample\xCD\x01\xF4"
               "\xAF" "force_on_policy\xC3\xA6" "config\xC4\x03\x80\x04."), RLW_OK);
    EQUAL(message.kind, RLW_RLLINK_SET_CONFIG);
    EQUAL(message.steps.integer, 500);
    EQUAL(message.on_policy.integer, 1);
    EQUAL(message.config.kind, RLW_MSGPACK_BINARY);
    EQUAL(message.config.size, 3);
    EQUAL(READ("\x82\xA4type\xAASET_CONFIG\xB4" "env_steps_per_sample\xC0"), RLW_OK);
    EQUAL(message.steps.kind, RLW_MSGPACK_NIL);
    EQUAL(READ("\x82\xA4type\xAASET_CONFIG\xB4" "env_steps_per_sample\x00"), RLW_BAD_INTEGER);
    EQUAL(READ("\x82\xA4type\xAASET_CONFIG\xB4" "env_steps_per_sample\xC3"), RLW_BAD_WIRE);
    EQUAL(READ("\x82\xA4type\xAASET_CONFIG\xAF" "force_on_policy\x01"), RLW_BAD_WIRE);
    EQUAL(READ("\x82\xA4type\xAASET_CONFIG\xA6" "config\xA3" "abc"), RLW_BAD_WIRE);
}

static void put_tensor(rlw_writer *w, const char *name, const char *type, uint32_t dims,
                       const int64_t *shape, const void *data, uint32_t size) {
    CHECK(rlw_rllink_put_text(w, name) == RLW_OK);
    CHECK(rlw_msgpack_put_nd(w, type, (uint32_t)strlen(type), dims, shape, size) == RLW_OK);
    CHECK(rlw_put(w, data, size) == RLW_OK);
}

CASE(weights) {
    static const uint8_t little[] = {0, 0, 0xC0, 0x3F, 0, 0, 0, 0xC0}; /* 1.5, -2 */
    static const uint8_t big[] = {0x3F, 0xF8, 0, 0, 0, 0, 0, 0};       /* 1.5, as a double */
    const int64_t shape[] = {2, 1}, none[] = {0, 7};
    rlw_writer w;
    rlw_cursor c;
    rlw_rllink_tensors tensors;
    rlw_rllink_tensor t;
    float numbers[2];
    int found;
    uint8_t *body;
    size_t size;
    rlw_writer_init(&w, NULL, 0);
    CHECK(rlw_rllink_put_head(&w, RLW_RLLINK_SET_STATE, 1) == RLW_OK);
    rlw_rllink_put_text(&w, "state");
    rlw_msgpack_put_map_head(&w, 3);
    rlw_rllink_put_text(&w, "weights_seq_no");
    rlw_msgpack_put_integer(&w, 7);
    rlw_rllink_put_text(&w, "rl_module");
    rlw_msgpack_put_map_head(&w, 4);
    put_tensor(&w, "a", "<f4", 2, shape, little, 8);
    rlw_rllink_put_text(&w, "inner");
    rlw_msgpack_put_map_head(&w, 1);
    put_tensor(&w, "b", ">f8", 0, shape, big, 8);
    rlw_rllink_put_text(&w, "words"); /* no array: passed over */
    rlw_msgpack_put_array_head(&w, 2);
    rlw_rllink_put_text(&w, "x");
    rlw_msgpack_put_map_head(&w, 0);
    put_tensor(&w, "empty", "<f4", 2, none, little, 0);
    rlw_rllink_put_text(&w, "last");
    rlw_msgpack_put_nil(&w);
    size = rlw_written(&w) - RLW_RLLINK_HEAD;
    body = exact(w.start + RLW_RLLINK_HEAD, size);
    EQUAL(rlw_rllink_read(&c, body, size, &limits, &message), RLW_OK);
    EQUAL(message.number, 7);
    CHECK(message.state.at + message.state_size == body + size);
    rlw_rllink_tensors_init(&tensors, &message, &limits);
    EQUAL(rlw_rllink_next_tensor(&tensors, &t, &found), RLW_OK);
    CHECK(found && rlw_rllink_is(&t.name, "a") && rlw_rllink_is(&t.module, "rl_module"));
    CHECK(t.dims == 2 && t.shape[0] == 2 && t.shape[1] == 1 && t.count == 2);
    CHECK(t.data > body && t.data + 8 < body + size);
    CHECK(rlw_rllink_floats(&t, numbers, 2) && numbers[0] == 1.5f && numbers[1] == -2.0f);
    CHECK(!rlw_rllink_floats(&t, numbers, 1));
    EQUAL(rlw_rllink_next_tensor(&tensors, &t, &found), RLW_OK);
    CHECK(found && rlw_rllink_is(&t.name, "b") && rlw_rllink_is(&t.module, "inner"));
    CHECK(t.count == 1 && rlw_rllink_floats(&t, numbers, 1) && numbers[0] == 1.5f);
    t.dtype.kind = 'i';
    CHECK(!rlw_rllink_floats(&t, numbers, 1));
    EQUAL(rlw_rllink_next_tensor(&tensors, &t, &found), RLW_OK);
    CHECK(found && rlw_rllink_is(&t.name, "empty") && t.count == 0);
    EQUAL(rlw_rllink_next_tensor(&tensors, &t, &found), RLW_OK);
    CHECK(!found);
    release(body);
    rlw_writer_free(&w);
    EQUAL(READ("\x82\xA4type\xA9SET_STATE\xA5state\x81\xAEweights_seq_no\xFF"), RLW_BAD_INTEGER);
    EQUAL(READ("\x82\xA4type\xA9SET_STATE\xA5state\x91\x01"), RLW_BAD_WIRE);
    EQUAL(READ("\x83\xA4type\xA9SET_STATE\xA5state\x80\xA5state\xC0"), RLW_OK); /* the last counts */
    EQUAL(message.state_size, 0);
    rlw_rllink_tensors_init(&tensors, &message, &limits);
    EQUAL(rlw_rllink_next_tensor(&tensors, &t, &found), RLW_OK);
    CHECK(!found);
    EQUAL(READ("\x82\xA4type\xA9SET_STATE\xAEweights_seq_no\x05"), RLW_OK); /* the document's */
    EQUAL(message.number, 5);
}

CASE(wrong_weights) {
    static const char body[] = "\x82\xA4type\xA9SET_STATE\xA5state\x81\xA1" "a\x85\xC4\x02nd\xC3"
                               "\xC4\x04type\xA3<f4\xC4\x04kind\xC4\x00\xC4\x05shape\x91\x02"
                               "\xC4\x04" "data\xC4\x04" "1234";
    rlw_rllink_tensors tensors;
    rlw_rllink_tensor t;
    rlw_cursor c;
    int found = 1, level;
    uint8_t deep[120], *at = deep;
    EQUAL(rlw_rllink_read(&c, (const uint8_t *)body, sizeof body - 1, &limits, &message), RLW_OK);
    rlw_rllink_tensors_init(&tensors, &message, &limits);
    EQUAL(rlw_rllink_next_tensor(&tensors, &t, &found), RLW_BAD_SIZE);
    CHECK(!found && tensors.r.c.fault.got == 4 && tensors.r.c.fault.allowed == 8);
    memcpy(deep, "\x82\xA4type\xA9SET_STATE\xA5state", 22);
    for (at += 22, level = 0; level < 30; level++, at += 3) memcpy(at, "\x81\xA1" "x", 3);
    *at++ = 0xC0;
    EQUAL(rlw_rllink_read(&c, deep, (size_t)(at - deep), &limits, &message), RLW_OK);
    rlw_rllink_tensors_init(&tensors, &message, &limits);
    EQUAL(rlw_rllink_next_tensor(&tensors, &t, &found), RLW_OVER_DEPTH);
}

/* ---- writing ---- */

CASE(requests) {
    rlw_writer w;
    const uint8_t *frame = NULL;
    size_t size = 0;
    rlw_writer_init(&w, NULL, 0);
    CHECK(rlw_rllink_put_request(&w, RLW_RLLINK_PING) == RLW_OK);
    CHECK(rlw_rllink_end(&w, &frame, &size) == RLW_OK);
    CHECK(size == 19 && memcmp(frame, "00000011\x81\xA4type\xA4PING", 19) == 0); /* as Ray's */
    CHECK(rlw_rllink_put_ping(&w, "abc") == RLW_OK); /* the memory is used again */
    CHECK(rlw_rllink_end(&w, &frame, &size) == RLW_OK);
    EQUAL(size, 37);
    CHECK(memcmp(frame, "00000029\x82\xA4type\xA4PING\xA6rlwire\x81\xA5token\xA3" "abc", 37) == 0);
    CHECK(rlw_rllink_put_ping(&w, NULL) == RLW_OK);
    CHECK(rlw_rllink_end(&w, &frame, &size) == RLW_OK);
    CHECK(size == 27 && frame[26] == 0x80);
    rlw_writer_free(&w);
}

CASE(episodes) {
    static const float observations[] = {1.5f, 2, 3, 4, 5, 6}, logps[] = {-0.5f, -1};
    static const int64_t actions[] = {1, 0}, pair[] = {2}, huge[] = {INT64_C(1) << 40}, bad[] = {-1};
    static const double rewards[] = {0.25, -1};
    const rlw_rllink_column output = {RLW_RLLINK_FLOAT32, logps, 0, NULL, "action_logp"};
    rlw_rllink_episode e = {"ab", 2, {RLW_RLLINK_FLOAT32, observations, 1, pair, NULL},
                            {RLW_RLLINK_INT64, actions, 0, NULL, NULL},
                            {RLW_RLLINK_FLOAT64, rewards, 0, NULL, NULL}, &output, 1, 1, 0, 7, 0.5};
    rlw_writer w;
    rlw_cursor c;
    rlw_msgpack_reader r;
    rlw_msgpack_value v;
    rlw_msgpack_marked mark;
    const uint8_t *frame = NULL, *body = NULL;
    size_t size = 0;
    unsigned arrays = 0, values = 0;
    rlw_writer_init(&w, NULL, 0);
    CHECK(rlw_rllink_put_episodes(&w, 1, 1, 2, 3) == RLW_OK);
    CHECK(rlw_rllink_put_episode(&w, &e) == RLW_OK);
    CHECK(rlw_rllink_end(&w, &frame, &size) == RLW_OK);
    rlw_cursor_init(&c, frame, size);
    EQUAL(rlw_rllink_read_frame(&c, RLW_RLLINK_MOST, &body, &size), RLW_OK);
    CHECK(c.at == c.end);
    EQUAL(rlw_rllink_read(&c, body, size, &limits, &message), RLW_OK);
    EQUAL(message.kind, RLW_RLLINK_EPISODES_AND_GET_STATE);
    EQUAL(message.number, 3);
    rlw_msgpack_reader_init(&r, body, size, &limits);
    while (r.c.at < r.c.end) { /* one array a column */
        CHECK(rlw_msgpack_read(&r, &v) == RLW_OK);
        values++;
        if (v.kind != RLW_MSGPACK_MAP) continue;
        CHECK(rlw_msgpack_read_marked(&r, &v, 1, &mark) == RLW_OK);
        if (mark.mark != RLW_MSGPACK_ND) continue;
        arrays++;
        if (arrays == 1) {
            CHECK(mark.dims == 2 && mark.shape[0] == 3 && mark.shape[1] == 2);
            CHECK(memcmp(mark.field[RLW_MSGPACK_FIELD_DATA].data, "\0\0\xC0\x3F\0\0\0\x40", 8) == 0);
        }
    }
    EQUAL(arrays, 4);
    CHECK(values > 60);
    EQUAL(rlw_rllink_put_episodes(&w, 0, 1, 2, 0), RLW_OK);
    e.observations.shape = huge;
    EQUAL(rlw_rllink_put_episode(&w, &e), RLW_OVER_FRAME);
    e.observations.shape = bad;
    EQUAL(rlw_rllink_put_episode(&w, &e), RLW_BAD_DIMENSION);
    e.observations.dims = RLW_MSGPACK_DIMS;
    EQUAL(rlw_rllink_put_episode(&w, &e), RLW_OVER_DIMS);
    e.observations.dims = 0;
    e.steps = RLW_RLLINK_MOST;
    EQUAL(rlw_rllink_put_episode(&w, &e), RLW_OVER_FRAME);
    rlw_writer_free(&w);
}
