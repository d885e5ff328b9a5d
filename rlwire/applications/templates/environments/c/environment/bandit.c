/* Four one-armed bandits in C, which ask an RLX server which arm to pull; no Python in it.
 *
 *     bandit HOST PORT EPISODES STEPS EXPLOIT
 *
 * build.py compiles and starts it. rlwire's headers write and read messages, sockets are POSIX's.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rlwire/rlwire.h>

#define ARMS 4

static const double chances[ARMS] = {0.4, 0.5, 0.6, 0.8};

static int server;
static rlw_writer writer; /* keeps its memory from message to message */
static uint8_t inbox[65536];

static void fail(const char *what, const char *why) {
    fprintf(stderr, "bandit: %s: %s\n", what, why);
    exit(1);
}

static void check(rlw_status status) {
    if (status != RLW_OK) fail("RLX", rlw_status_text(status));
}

/* ---- the connection ---- */

static void connect_to(const char *host, const char *port) {
    struct addrinfo hints, *found = NULL, *a;
    const int on = 1;
    int problem;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    problem = getaddrinfo(host, port, &hints, &found);
    if (problem) fail(host, gai_strerror(problem));
    server = -1;
    for (a = found; a && server < 0; a = a->ai_next) {
        server = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        if (server >= 0 && connect(server, a->ai_addr, a->ai_addrlen) != 0) {
            close(server);
            server = -1;
        }
    }
    freeaddrinfo(found);
    if (server < 0) fail(host, strerror(errno));
    /* Without it each small message may wait for the acknowledgement of the last one. */
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    rlw_writer_init(&writer, NULL, 0);
}

static void put_name(const char *name) {
    check(rlw_rlx_put_text(&writer, name, (uint32_t)strlen(name)));
}

static void put_string(const char *text) {
    check(rlw_rlx_put_string(&writer, text, (uint32_t)strlen(text)));
}

/* Begins a message with its first entry. */
static void begin(const char *command) {
    check(rlw_rlx_begin(&writer));
    put_name("command");
    put_string(command);
}

static int is(rlw_text text, const char *word) {
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

/* Sends the message, and returns `data` of the reply, which has to be the one that is expected. */
static rlw_rlx_value ask(const char *expected) {
    static const rlw_rlx_limits limits = RLW_RLX_DEFAULT_LIMITS;
    const uint8_t *bytes = NULL, *body = NULL;
    size_t size = 0, have = 0;
    int answered = 0;
    rlw_status status;
    rlw_text key;
    rlw_rlx_reader reader;
    rlw_rlx_value value, data;

    check(rlw_rlx_end(&writer, &bytes, &size));
    while (size) {
        ssize_t sent = send(server, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) fail("send", strerror(errno));
        if (sent > 0) bytes += sent, size -= (size_t)sent;
    }
    for (;;) {
        rlw_cursor cursor;
        ssize_t got;
        rlw_cursor_init(&cursor, inbox, have);
        status = rlw_netstring_read(&cursor, sizeof inbox - 20, &body, &size);
        if (status == RLW_OK) break;
        if (status != RLW_NEED_MORE) check(status);
        got = recv(server, inbox + have, sizeof inbox - have, 0);
        if (got < 0 && errno != EINTR) fail("recv", strerror(errno));
        if (got == 0) fail("recv", "the server closed the connection");
        if (got > 0) have += (size_t)got;
    }
    data.type = RLW_RLX_NONE;
    rlw_rlx_reader_init(&reader, body, size, &limits);
    check(rlw_rlx_read_version(&reader));
    while (reader.c.at < reader.c.end) {
        check(rlw_rlx_read_text(&reader, &key));
        check(rlw_rlx_read(&reader, &value));
        if (value.type == RLW_RLX_LIST || value.type == RLW_RLX_DICT)
            fail("the reply", "one number is an action, not a list");
        if (is(key, "response") && value.type == RLW_RLX_STRING)
            answered = is(value.as.text, expected);
        if (is(key, "message") && value.type == RLW_RLX_STRING)
            fprintf(stderr, "bandit: %.*s\n", (int)value.as.text.size, (const char *)value.as.text.data);
        if (is(key, "data")) data = value;
    }
    if (!answered) fail("the reply is not", expected);
    return data;
}

/* Tells what the last arm paid, if there was one, and returns the next. */
static int update(const double *reward) {
    rlw_rlx_value action;
    begin("update");
    put_name("reward");
    check(reward ? rlw_rlx_put_double(&writer, *reward) : rlw_rlx_put_null(&writer));
    put_name("state");
    check(rlw_rlx_put_list(&writer, 0));
    put_name("terminal");
    check(rlw_rlx_put_boolean(&writer, 0));
    action = ask("action");
    if ((action.type != RLW_RLX_INT4 && action.type != RLW_RLX_INT64) || action.as.integer < 0 ||
        action.as.integer >= ARMS)
        fail("the action", "expected an integer from 0 to 3");
    return (int)action.as.integer;
}

static void report(const char *name, double y) {
    begin("update_metrics");
    put_name("data");
    check(rlw_rlx_put_list(&writer, 1));
    check(rlw_rlx_put_dict(&writer, 4));
    put_name("method");
    put_string("scalar");
    put_name("name");
    put_string(name);
    put_name("y");
    check(rlw_rlx_put_double(&writer, y));
    put_name("x");
    check(rlw_rlx_put_null(&writer));
    ask("done");
}

/* ---- the environment ---- */

static double pull(int arm) {
    return (double)random() / 2147483648.0 < chances[arm] ? 1.0 : -1.0;
}

int main(int argc, char **argv) {
    long episode, episodes, step, steps;
    if (argc != 6) {
        fprintf(stderr, "usage: bandit HOST PORT EPISODES STEPS EXPLOIT\n");
        return 2;
    }
    episodes = strtol(argv[3], NULL, 10);
    steps = strtol(argv[4], NULL, 10);
    srandom((unsigned)time(NULL) ^ (unsigned)getpid());
    connect_to(argv[1], argv[2]);
    begin("init");
    put_name("exploit");
    check(rlw_rlx_put_boolean(&writer, strcmp(argv[5], "1") == 0));
    ask("ready");
    for (episode = 0; episode < episodes; episode++) {
        double total = 0.0;
        int arm = update(NULL);
        for (step = 0; step < steps; step++) {
            double reward = pull(arm);
            total += reward;
            arm = update(&reward);
        }
        report("episode_reward", total / (double)steps);
        printf("episode %ld: %.2f a pull, the last of arm %d\n", episode, total / (double)steps, arm);
        fflush(stdout);
    }
    rlw_writer_free(&writer);
    close(server);
    return 0;
}
