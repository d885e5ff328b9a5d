/* perlert.h: each message both ways, the draft's examples, and each way to be wrong. */
#include "harness.h"

static const rlw_perlert_limits LIMITS = RLW_PERLERT_DEFAULT_LIMITS;

typedef struct outcome {
    rlw_status status;
    rlw_perlert_field field;
    size_t at; /* of the fault */
    rlw_perlert_message m;
} outcome;

typedef rlw_status (*reader)(rlw_cursor *c, const rlw_perlert_limits *limits,
                             rlw_perlert_message *m);

static uint8_t *last; /* what the texts of the last outcome point into */

static outcome read_with(reader read, const char *text, size_t size,
                         const rlw_perlert_limits *limits) {
    outcome o;
    rlw_cursor c;
    if (last) release(last);
    last = exact(text, size);
    rlw_cursor_init(&c, last, size);
    o.status = read(&c, limits, &o.m);
    o.field = o.m.field;
    o.at = (size_t)(c.fault.at - last);
    EQUAL(c.fault.status, o.status);
    CHECK(c.at >= last && c.at <= last + size);
    return o;
}

static outcome client(const char *text) {
    return read_with(rlw_perlert_read_client, text, strlen(text), &LIMITS);
}

static rlw_status whole_server(rlw_cursor *c, const rlw_perlert_limits *limits,
                               rlw_perlert_message *m) {
    rlw_status status = rlw_perlert_read_server(c, limits, m);
    size_t count;
    if (status == RLW_OK && m->kind == RLW_PERLERT_LOBBY)
        status = rlw_perlert_count_slots(c, m, limits->items, &count);
    return status;
}

static outcome server(const char *text) {
    return read_with(whole_server, text, strlen(text), &LIMITS);
}

static int is(rlw_perlert_text text, const char *expected) {
    return text.size == strlen(expected) && !memcmp(text.data, expected, text.size);
}

static rlw_perlert_text text_of(const char *text) {
    rlw_perlert_text out;
    out.data = (const uint8_t *)text;
    out.size = strlen(text);
    return out;
}

static int written(rlw_perlert_message *m, const char *expected) {
    rlw_writer w;
    int same;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_perlert_write(&w, m), RLW_OK);
    same = rlw_written(&w) == strlen(expected) && !memcmp(w.start, expected, rlw_written(&w));
    rlw_writer_free(&w);
    return same;
}

/* Read and written again it is the same. */
static outcome both_ways(reader read, const char *text) {
    outcome o = read_with(read, text, strlen(text), &LIMITS);
    EQUAL(o.status, RLW_OK);
    o.m.decimals = -1;
    CHECK(is(o.m.name, "city") && o.m.number == 7);
    CHECK(written(&o.m, text));
    return o;
}

static void messages_of_clients(void) {
    outcome o = both_ways(rlw_perlert_read_client, "city:7;lobby");
    EQUAL(o.m.kind, RLW_PERLERT_LOBBY_REQUEST);
    o = both_ways(rlw_perlert_read_client, "city:7;register=agent0,patrick");
    EQUAL(o.m.kind, RLW_PERLERT_REGISTER);
    CHECK(is(o.m.key, "agent0") && is(o.m.text, "patrick"));
    o = both_ways(rlw_perlert_read_client, "city:7;ready=agent0,true");
    EQUAL(o.m.kind, RLW_PERLERT_READY);
    CHECK(is(o.m.key, "agent0") && o.m.flag);
    o = both_ways(rlw_perlert_read_client, "city:7;ready=agent0,false");
    CHECK(!o.m.flag);
    o = both_ways(rlw_perlert_read_client, "city:7;action=walk");
    EQUAL(o.m.kind, RLW_PERLERT_ACTION);
    CHECK(is(o.m.text, "walk"));
    o = both_ways(rlw_perlert_read_client, "city:7;action=5,6.78");
    CHECK(is(o.m.text, "5,6.78"));
    o = both_ways(rlw_perlert_read_client, "city:7;action=");
    CHECK(is(o.m.text, "") && o.m.ascii);
    o = both_ways(rlw_perlert_read_client, "city:7;action=\xC3\xA9");
    CHECK(!o.m.ascii);
}

static void messages_of_servers(void) {
    outcome o = both_ways(rlw_perlert_read_server, "city:7;registered=agent0");
    EQUAL(o.m.kind, RLW_PERLERT_REGISTERED);
    CHECK(is(o.m.key, "agent0"));
    o = both_ways(rlw_perlert_read_server, "city:7;message=Simulation will start...");
    EQUAL(o.m.kind, RLW_PERLERT_MESSAGE);
    o = both_ways(rlw_perlert_read_server, "city:7;message=a;b=c:d,e");
    CHECK(is(o.m.text, "a;b=c:d,e"));
    o = both_ways(rlw_perlert_read_server, "city:7;message=");
    CHECK(is(o.m.text, ""));
    o = both_ways(rlw_perlert_read_server, "city:7;start=port:32323");
    EQUAL(o.m.kind, RLW_PERLERT_START);
    EQUAL(o.m.port, 32323);
}

static void steps(void) {
    outcome o = both_ways(rlw_perlert_read_server,
                          "city:7:1590853134833:0;obs=51;reward=1;done=true");
    EQUAL(o.m.kind, RLW_PERLERT_STEP);
    EQUAL(o.m.timestamp, UINT64_C(1590853134833));
    EQUAL(o.m.step, 0);
    CHECK(is(o.m.text, "51") && o.m.reward_is_number && o.m.flag && !o.m.has_extra);
    CHECK(o.m.reward_value == 1);
    o = both_ways(rlw_perlert_read_server,
                  "city:7:1:2;obs=x:0.54,y:0.95;reward=1.5;done=false;"
                  "extra=did_jump:true,jump_length:6.84");
    CHECK(is(o.m.text, "x:0.54,y:0.95") && is(o.m.extra, "did_jump:true,jump_length:6.84"));
    CHECK(o.m.reward_value == 1.5 && !o.m.flag && o.m.has_extra);
    o = both_ways(rlw_perlert_read_server, "city:7:1:2;obs=;reward=a:b,c;done=false;extra=");
    CHECK(!o.m.reward_is_number && is(o.m.reward, "a:b,c") && o.m.has_extra);
    o = both_ways(rlw_perlert_read_server, "city:7:1:2;obs=;reward=;done=false");
    CHECK(!o.m.reward_is_number);
    o = server("city:007:9223372036854775807:09;obs=;reward=-1e5;done=true");
    EQUAL(o.status, RLW_OK);
    EQUAL(o.m.timestamp, INT64_MAX);
    CHECK(o.m.number == 7 && o.m.step == 9 && o.m.reward_value == -1e5);
    o.m.decimals = 1;
    o.m.reward_value = 0.25;
    CHECK(written(&o.m, "city:7:9223372036854775807:9;obs=;reward=0.2;done=true"));
}

static void slots(void) {
    static const char text[] = "city:7;a=open,citizen,cpu,ready;b=close,,,not_ready";
    const size_t size = sizeof text - 1;
    rlw_perlert_message m;
    rlw_perlert_slot slot;
    rlw_writer w;
    rlw_cursor c;
    size_t count = 0;
    uint8_t *input = exact(text, size);
    rlw_cursor_init(&c, input, size);
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_perlert_read_server(&c, &LIMITS, &m), RLW_OK);
    EQUAL(m.kind, RLW_PERLERT_LOBBY);
    EQUAL(rlw_perlert_count_slots(&c, &m, 2, &count), RLW_OK);
    EQUAL(count, 2);
    EQUAL(rlw_perlert_write(&w, &m), RLW_OK);
    EQUAL(rlw_perlert_next_slot(&c, &m, &slot), RLW_OK);
    CHECK(is(slot.key, "a") && slot.open && is(slot.kind, "citizen") && is(slot.tag, "cpu"));
    CHECK(slot.ready);
    EQUAL(rlw_perlert_put_slot(&w, &m, &slot), RLW_OK);
    EQUAL(rlw_perlert_next_slot(&c, &m, &slot), RLW_OK);
    CHECK(is(slot.key, "b") && !slot.open && !slot.kind.size && !slot.tag.size && !slot.ready);
    EQUAL(rlw_perlert_put_slot(&w, &m, &slot), RLW_OK);
    CHECK(c.at == c.end);
    EQUAL(rlw_written(&w), size + 1);
    CHECK(!memcmp(w.start, text, size) && w.at[-1] == ';');
    rlw_cursor_init(&c, input, size);
    EQUAL(rlw_perlert_read_server(&c, &LIMITS, &m), RLW_OK);
    EQUAL(rlw_perlert_count_slots(&c, &m, 1, &count), RLW_OVER_ITEMS);
    CHECK(c.fault.got == 2 && c.fault.allowed == 1);
    rlw_writer_free(&w);
    release(input);
    EQUAL(server("city:7;a=open,citizen,cpu,ready;").status, RLW_OK); /* MAY omit, MAY have */
}

#define WRONG(direction, text, expected_status, expected_field, expected_at) \
    do { \
        outcome o_ = direction(text); \
        EQUAL(o_.status, expected_status); \
        EQUAL(o_.field, expected_field); \
        EQUAL(o_.at, expected_at); \
    } while (0)

static void wrong_headers(void) {
    WRONG(client, "", RLW_NEED_MORE, RLW_PERLERT_AT_NAME, 0);
    WRONG(client, "city", RLW_NEED_MORE, RLW_PERLERT_AT_NAME, 0);
    WRONG(client, ":7;lobby", RLW_BAD_EMPTY, RLW_PERLERT_AT_NAME, 0);
    WRONG(client, "ci,ty:7;lobby", RLW_BAD_CHARACTER, RLW_PERLERT_AT_NAME, 2);
    WRONG(client, "ci=ty:7;lobby", RLW_BAD_CHARACTER, RLW_PERLERT_AT_NAME, 2);
    WRONG(client, "city;lobby", RLW_BAD_CHARACTER, RLW_PERLERT_AT_NAME, 4);
    WRONG(client, "city:", RLW_NEED_MORE, RLW_PERLERT_AT_NUMBER, 5);
    WRONG(client, "city:;lobby", RLW_BAD_INTEGER, RLW_PERLERT_AT_NUMBER, 5);
    WRONG(client, "city:-7;lobby", RLW_BAD_INTEGER, RLW_PERLERT_AT_NUMBER, 5);
    WRONG(client, "city:+7;lobby", RLW_BAD_INTEGER, RLW_PERLERT_AT_NUMBER, 5);
    WRONG(client, "city:9223372036854775808;lobby", RLW_BAD_INTEGER, RLW_PERLERT_AT_NUMBER, 5);
    WRONG(client, "city:7x;lobby", RLW_BAD_INTEGER, RLW_PERLERT_AT_NUMBER, 5);
    WRONG(client, "city:7:1:2;lobby", RLW_BAD_WORD, RLW_PERLERT_AT_NUMBER, 6);
    WRONG(client, "city:7", RLW_NEED_MORE, RLW_PERLERT_AT_NUMBER, 6);
    WRONG(client, "city\xFF:7;lobby", RLW_BAD_TEXT, RLW_PERLERT_AT_DATAGRAM, 4);
}

static void wrong_clients(void) {
    outcome o;
    WRONG(client, "city:7;", RLW_NEED_MORE, RLW_PERLERT_AT_BODY, 7);
    WRONG(client, "city:7;lob", RLW_NEED_MORE, RLW_PERLERT_AT_BODY, 7);
    WRONG(client, "city:7;lobbies", RLW_BAD_WORD, RLW_PERLERT_AT_BODY, 7);
    WRONG(client, "city:7;lobby;", RLW_TRAILING, RLW_PERLERT_AT_BODY, 12);
    WRONG(client, "city:7;obs=1", RLW_BAD_WORD, RLW_PERLERT_AT_BODY, 7);
    WRONG(client, "city:7;register=a", RLW_NEED_MORE, RLW_PERLERT_AT_KEY, 16);
    WRONG(client, "city:7;register=,t", RLW_BAD_EMPTY, RLW_PERLERT_AT_KEY, 16);
    WRONG(client, "city:7;register=a,t,u", RLW_BAD_CHARACTER, RLW_PERLERT_AT_TAG, 19);
    WRONG(client, "city:7;register=a,t;", RLW_BAD_CHARACTER, RLW_PERLERT_AT_TAG, 19);
    WRONG(client, "city:7;register=a:b,t", RLW_BAD_CHARACTER, RLW_PERLERT_AT_KEY, 17);
    WRONG(client, "city:7;ready=a,True", RLW_BAD_WORD, RLW_PERLERT_AT_BOOL, 15);
    WRONG(client, "city:7;ready=a,truer", RLW_BAD_WORD, RLW_PERLERT_AT_BOOL, 15);
    WRONG(client, "city:7;ready=a,", RLW_BAD_WORD, RLW_PERLERT_AT_BOOL, 15);
    WRONG(client, "city:7;ready=a,true;", RLW_TRAILING, RLW_PERLERT_AT_BOOL, 19);
    WRONG(client, "city:7;ready=,true", RLW_BAD_EMPTY, RLW_PERLERT_AT_KEY, 13);
    WRONG(client, "city:7;action=a:b", RLW_BAD_CHARACTER, RLW_PERLERT_AT_ACTION, 15);
    WRONG(client, "city:7;action=a;b", RLW_BAD_CHARACTER, RLW_PERLERT_AT_ACTION, 15);
    WRONG(client, "city:7;action=a=b", RLW_BAD_CHARACTER, RLW_PERLERT_AT_ACTION, 15);
    {
        rlw_perlert_limits tight = {11, 5};
        o = read_with(rlw_perlert_read_client, "city:7;lobby", 12, &tight);
        EQUAL(o.status, RLW_OVER_DATAGRAM);
        EQUAL(o.field, RLW_PERLERT_AT_DATAGRAM);
        tight.datagram = 12;
        EQUAL(read_with(rlw_perlert_read_client, "city:7;lobby", 12, &tight).status, RLW_OK);
    }
}

static void wrong_servers(void) {
    WRONG(server, "city:7;", RLW_NEED_MORE, RLW_PERLERT_AT_KEY, 7);
    WRONG(server, "city:7;lobby", RLW_NEED_MORE, RLW_PERLERT_AT_KEY, 7);
    WRONG(server, "city:7;=open,a,b,ready", RLW_BAD_EMPTY, RLW_PERLERT_AT_KEY, 7);
    WRONG(server, "city:7;a=opened,a,b,ready", RLW_BAD_WORD, RLW_PERLERT_AT_SLOT_STATUS, 9);
    WRONG(server, "city:7;a=open,a:,b,ready", RLW_BAD_CHARACTER, RLW_PERLERT_AT_KIND, 15);
    WRONG(server, "city:7;a=open,a,b=,ready", RLW_BAD_CHARACTER, RLW_PERLERT_AT_TAG, 17);
    WRONG(server, "city:7;a=open,a,b,Ready", RLW_BAD_WORD, RLW_PERLERT_AT_READY_STATUS, 18);
    WRONG(server, "city:7;a=open,a,b,ready,", RLW_BAD_CHARACTER, RLW_PERLERT_AT_READY_STATUS, 23);
    WRONG(server, "city:7;a=open,a,b,ready;;", RLW_BAD_CHARACTER, RLW_PERLERT_AT_KEY, 24);
    WRONG(server, "city:7;registered=", RLW_BAD_EMPTY, RLW_PERLERT_AT_KEY, 18);
    WRONG(server, "city:7;registered=a;", RLW_BAD_CHARACTER, RLW_PERLERT_AT_KEY, 19);
    /* The words win over slots of their names. */
    WRONG(server, "city:7;start=open,a,b,ready", RLW_BAD_WORD, RLW_PERLERT_AT_PORT, 7);
    WRONG(server, "city:7;registered=open,a,b,ready", RLW_BAD_CHARACTER, RLW_PERLERT_AT_KEY, 22);
    WRONG(server, "city:7;obs=open,a,b,ready", RLW_BAD_WORD, RLW_PERLERT_AT_TIMESTAMP, 6);
    WRONG(server, "city:7;start=port:", RLW_NEED_MORE, RLW_PERLERT_AT_PORT, 18);
    WRONG(server, "city:7;start=port:0", RLW_BAD_INTEGER, RLW_PERLERT_AT_PORT, 18);
    WRONG(server, "city:7;start=port:65536", RLW_BAD_INTEGER, RLW_PERLERT_AT_PORT, 18);
    WRONG(server, "city:7;start=port:5x", RLW_BAD_INTEGER, RLW_PERLERT_AT_PORT, 18);
    WRONG(server, "city:7;start=port:5;", RLW_TRAILING, RLW_PERLERT_AT_PORT, 19);
    WRONG(server, "city:7:", RLW_NEED_MORE, RLW_PERLERT_AT_TIMESTAMP, 7);
    WRONG(server, "city:7:1;obs=", RLW_BAD_WORD, RLW_PERLERT_AT_STEP_NUMBER, 8);
    WRONG(server, "city:7:1:;obs=", RLW_BAD_INTEGER, RLW_PERLERT_AT_STEP_NUMBER, 9);
    WRONG(server, "city:7:1:2:3;obs=", RLW_BAD_WORD, RLW_PERLERT_AT_OBSERVATION, 10);
    WRONG(server, "city:7:1:2;message=", RLW_BAD_WORD, RLW_PERLERT_AT_OBSERVATION, 10);
    WRONG(server, "city:7:1:2;obs=5", RLW_NEED_MORE, RLW_PERLERT_AT_OBSERVATION, 15);
    WRONG(server, "city:7:1:2;obs=a=;reward=", RLW_BAD_CHARACTER, RLW_PERLERT_AT_OBSERVATION, 16);
    WRONG(server, "city:7:1:2;obs=;extra=", RLW_BAD_WORD, RLW_PERLERT_AT_REWARD, 16);
    WRONG(server, "city:7:1:2;obs=;reward=1", RLW_NEED_MORE, RLW_PERLERT_AT_REWARD, 23);
    WRONG(server, "city:7:1:2;obs=;reward=1=;done=true", RLW_BAD_CHARACTER,
          RLW_PERLERT_AT_REWARD, 24);
    WRONG(server, "city:7:1:2;obs=;reward=1;done=yes", RLW_BAD_WORD, RLW_PERLERT_AT_BOOL, 30);
    WRONG(server, "city:7:1:2;obs=;reward=1;done=true;", RLW_NEED_MORE, RLW_PERLERT_AT_EXTRA, 34);
    WRONG(server, "city:7:1:2;obs=;reward=1;done=true;more=", RLW_BAD_WORD,
          RLW_PERLERT_AT_EXTRA, 34);
    WRONG(server, "city:7:1:2;obs=;reward=1;done=true;extra=;", RLW_BAD_CHARACTER,
          RLW_PERLERT_AT_EXTRA, 41);
}

static rlw_status refused(rlw_perlert_kind kind, const char *name, const char *key,
                          const char *text, rlw_perlert_message *m) {
    rlw_writer w;
    rlw_status status;
    memset(m, 0, sizeof *m);
    m->kind = kind;
    m->name = text_of(name);
    m->key = text_of(key);
    m->text = text_of(text);
    m->port = 5;
    m->reward_is_number = 1;
    rlw_writer_init(&w, NULL, 0);
    status = rlw_perlert_write(&w, m);
    rlw_writer_free(&w);
    return status;
}

static void what_is_not_written(void) {
    static const char all[] = ":;,=";
    static const char *const words[] = {"registered", "message", "start", "obs"};
    char word[4] = "a?b";
    rlw_perlert_message m;
    rlw_perlert_slot slot;
    rlw_writer w;
    size_t i;
    for (i = 0; i < 4; i++) {
        int comma = all[i] == ',', colon = all[i] == ':';
        word[1] = all[i];
        EQUAL(refused(RLW_PERLERT_LOBBY_REQUEST, word, "", "", &m), RLW_BAD_CHARACTER);
        EQUAL(m.field, RLW_PERLERT_AT_NAME);
        EQUAL(m.wrong_at, 1);
        CHECK(is(m.wrong, word));
        EQUAL(refused(RLW_PERLERT_REGISTER, "n", word, "t", &m), RLW_BAD_CHARACTER);
        EQUAL(m.field, RLW_PERLERT_AT_KEY);
        EQUAL(refused(RLW_PERLERT_REGISTER, "n", "k", word, &m), RLW_BAD_CHARACTER);
        EQUAL(m.field, RLW_PERLERT_AT_TAG);
        EQUAL(refused(RLW_PERLERT_READY, "n", word, "", &m), RLW_BAD_CHARACTER);
        EQUAL(refused(RLW_PERLERT_REGISTERED, "n", word, "", &m), RLW_BAD_CHARACTER);
        EQUAL(refused(RLW_PERLERT_ACTION, "n", "", word, &m), comma ? RLW_OK : RLW_BAD_CHARACTER);
        EQUAL(m.field, RLW_PERLERT_AT_ACTION);
        EQUAL(refused(RLW_PERLERT_STEP, "n", "", word, &m),
              comma || colon ? RLW_OK : RLW_BAD_CHARACTER);
        EQUAL(refused(RLW_PERLERT_MESSAGE, "n", "", word, &m), RLW_OK);
    }
    EQUAL(refused(RLW_PERLERT_LOBBY_REQUEST, "", "", "", &m), RLW_BAD_EMPTY);
    EQUAL(refused(RLW_PERLERT_REGISTER, "n", "", "", &m), RLW_BAD_EMPTY);
    EQUAL(refused(RLW_PERLERT_NONE, "n", "", "", &m), RLW_BAD_TYPE);
    memset(&slot, 0, sizeof slot);
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_perlert_put_slot(&w, &m, &slot), RLW_BAD_EMPTY);
    for (i = 0; i < 4; i++) {
        slot.key = text_of(words[i]);
        EQUAL(rlw_perlert_put_slot(&w, &m, &slot), RLW_BAD_WORD);
        EQUAL(m.field, RLW_PERLERT_AT_KEY);
    }
    slot.key = text_of("a");
    slot.kind = text_of("b:");
    EQUAL(rlw_perlert_put_slot(&w, &m, &slot), RLW_BAD_CHARACTER);
    EQUAL(m.field, RLW_PERLERT_AT_KIND);
    rlw_writer_free(&w);
    memset(&m, 0, sizeof m);
    m.kind = RLW_PERLERT_START;
    m.name = text_of("n");
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_perlert_write(&w, &m), RLW_BAD_INTEGER);
    m.port = 65536;
    EQUAL(rlw_perlert_write(&w, &m), RLW_BAD_INTEGER);
    m.number = (uint64_t)INT64_MAX + 1;
    EQUAL(rlw_perlert_write(&w, &m), RLW_BAD_INTEGER);
    EQUAL(m.field, RLW_PERLERT_AT_NUMBER);
    rlw_writer_free(&w);
}

static void every_field_has_a_name(void) {
    unsigned i;
    for (i = RLW_PERLERT_AT_DATAGRAM; i <= RLW_PERLERT_AT_EXTRA; i++)
        CHECK(strcmp(rlw_perlert_field_name((rlw_perlert_field)i), "unknown field") != 0);
}

void perlert_suite(void) {
    RUN(messages_of_clients);
    RUN(messages_of_servers);
    RUN(steps);
    RUN(slots);
    RUN(wrong_headers);
    RUN(wrong_clients);
    RUN(wrong_servers);
    RUN(what_is_not_written);
    RUN(every_field_has_a_name);
    if (last) release(last);
    last = NULL;
}
