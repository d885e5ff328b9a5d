/* A simulator in C that speaks RLX over TCP, with no Python in it: a cart with a pole on it, after
 * Barto, Sutton and Anderson (1983). An RLX server at the other end plays it.
 *
 * By hand, with the folder that `python3 -c 'import rlwire; print(rlwire.get_include())'` prints:
 *     cc -std=c11 -O2 -I FOLDER cartpole.c -lm -o cartpole
 *     ./cartpole localhost 7001 1000
 *
 * It ends with status 0 after that many steps, and with 1 and a line on stderr when a reply is not
 * what the protocol says. Each state goes out as a float32 array; the action comes back as 0 (push
 * left) or 1 (push right).
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <rlwire/rlwire.h>

#define LONGEST_REPLY 65536

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("cartpole: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void check(rlw_status status) {
    if (status != RLW_OK) fail("%s", rlw_status_text(status));
}

/* ---- the connection ---- */

typedef struct connection {
    int socket;
    rlw_writer writer; /* keeps its memory from message to message */
    uint8_t inbox[LONGEST_REPLY];
} connection;

static void connect_to(connection *c, const char *host, const char *port) {
    struct addrinfo hints, *found = NULL, *a;
    struct timeval patience = {10, 0};
    const int on = 1;
    int problem;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    problem = getaddrinfo(host, port, &hints, &found);
    if (problem) fail("%s port %s: %s", host, port, gai_strerror(problem));
    c->socket = -1;
    for (a = found; a && c->socket < 0; a = a->ai_next) {
        c->socket = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        if (c->socket >= 0 && connect(c->socket, a->ai_addr, a->ai_addrlen) != 0) {
            close(c->socket);
            c->socket = -1;
        }
    }
    freeaddrinfo(found);
    if (c->socket < 0) fail("%s port %s: %s", host, port, strerror(errno));
    /* Without TCP_NODELAY each small message may wait for the acknowledgement of the last one. */
    if (setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        setsockopt(c->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
        setsockopt(c->socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0)
        fail("setsockopt: %s", strerror(errno));
    rlw_writer_init(&c->writer, NULL, 0);
}

/* Begins a message with its first entry. */
static rlw_writer *command(connection *c, const char *name) {
    check(rlw_rlx_begin(&c->writer));
    check(rlw_rlx_put_text(&c->writer, "command", 7));
    check(rlw_rlx_put_string(&c->writer, name, (uint32_t)strlen(name)));
    return &c->writer;
}

static void send_message(connection *c) {
    const uint8_t *frame = NULL;
    size_t size = 0;
    check(rlw_rlx_end(&c->writer, &frame, &size));
    while (size) {
        ssize_t sent = send(c->socket, frame, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) fail("send: %s", strerror(errno));
        frame += sent;
        size -= (size_t)sent;
    }
}

/* Receives one whole reply; its body lies in the inbox. */
static void receive_reply(connection *c, const uint8_t **body, size_t *size) {
    size_t have = 0;
    for (;;) {
        rlw_cursor cursor;
        rlw_status status;
        ssize_t got;
        rlw_cursor_init(&cursor, c->inbox, have);
        /* 20: room for the prefix and the comma */
        status = rlw_netstring_read(&cursor, LONGEST_REPLY - 20, body, size);
        if (status == RLW_OK && rlw_left(&cursor)) fail("%zu bytes too many", rlw_left(&cursor));
        if (status == RLW_OK) return;
        if (status != RLW_NEED_MORE) fail("reply: %s", rlw_status_text(status));
        got = recv(c->socket, c->inbox + have, sizeof c->inbox - have, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail("recv: %s", strerror(errno));
        if (got == 0) fail("the server closed the connection");
        have += (size_t)got;
    }
}

static int is(rlw_text text, const char *word) {
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

/* Sends what is written, and checks that the reply is `expected`; gives its `data`, if any. */
static rlw_rlx_value ask(connection *c, const char *expected) {
    static const rlw_rlx_limits limits = RLW_RLX_DEFAULT_LIMITS;
    const uint8_t *body = NULL;
    size_t size = 0;
    rlw_text response = {NULL, 0}, message = {NULL, 0}, key;
    rlw_rlx_reader reader;
    rlw_rlx_value value, data;
    send_message(c);
    receive_reply(c, &body, &size);
    data.type = RLW_RLX_NONE;
    rlw_rlx_reader_init(&reader, body, size, &limits);
    check(rlw_rlx_read_version(&reader));
    while (reader.c.at < reader.c.end) {
        check(rlw_rlx_read_text(&reader, &key));
        check(rlw_rlx_read(&reader, &value));
        if (value.type == RLW_RLX_LIST || value.type == RLW_RLX_DICT)
            fail("a reply with a list, where one number is the action");
        if (is(key, "response") && value.type == RLW_RLX_STRING) response = value.as.text;
        if (is(key, "message") && value.type == RLW_RLX_STRING) message = value.as.text;
        if (is(key, "data")) data = value;
    }
    if (!is(response, expected))
        fail("expected the response %s, got %.*s %.*s", expected, (int)response.size,
             response.data ? (const char *)response.data : "", (int)message.size,
             message.data ? (const char *)message.data : "");
    return data;
}

/* ---- the environment ---- */

typedef struct cart {
    double x, x_dot, theta, theta_dot;
} cart;

static uint32_t random_state = 1;

static double uniform(void) { /* xorshift32, in [-0.05, 0.05) */
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return (double)random_state / 4294967296.0 * 0.1 - 0.05;
}

static void start(cart *s) {
    s->x = uniform();
    s->x_dot = uniform();
    s->theta = uniform();
    s->theta_dot = uniform();
}

/* One step of 20 ms; 1 when the pole has fallen or the cart has left the track. */
static int step(cart *s, int action) {
    const double gravity = 9.8, pole = 0.1, total = 1.1, length = 0.5, tau = 0.02;
    double force = action ? 10.0 : -10.0;
    double cosine = cos(s->theta), sine = sin(s->theta);
    double push = (force + pole * length * s->theta_dot * s->theta_dot * sine) / total;
    double theta_acc = (gravity * sine - cosine * push) /
                       (length * (4.0 / 3.0 - pole * cosine * cosine / total));
    double x_acc = push - pole * length * theta_acc * cosine / total;
    s->x += tau * s->x_dot;
    s->x_dot += tau * x_acc;
    s->theta += tau * s->theta_dot;
    s->theta_dot += tau * theta_acc;
    return fabs(s->x) > 2.4 || fabs(s->theta) > 12.0 * 3.14159265358979323846 / 180.0;
}

static void put_float32(rlw_writer *w, double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    check(rlw_put_u32le(w, bits));
}

/* Sends {command: update, reward, state, terminal}; returns the action. `first`: no reward yet. */
static int update(connection *c, const cart *s, int first, int terminal) {
    static const uint32_t shape[1] = {4};
    rlw_writer *w = command(c, "update");
    rlw_rlx_value data;
    check(rlw_rlx_put_text(w, "reward", 6));
    check(first ? rlw_rlx_put_null(w) : rlw_rlx_put_double(w, 1.0));
    check(rlw_rlx_put_text(w, "state", 5));
    check(rlw_rlx_put_array_head(w, "float32", 7, 1, shape, 16));
    put_float32(w, s->x);
    put_float32(w, s->x_dot);
    put_float32(w, s->theta);
    put_float32(w, s->theta_dot);
    check(rlw_rlx_put_text(w, "terminal", 8));
    check(rlw_rlx_put_boolean(w, terminal));
    data = ask(c, "action");
    if (terminal) return 0; /* nothing is left to act on */
    if (data.type != RLW_RLX_INT4 && data.type != RLW_RLX_INT64)
        fail("the action is not an integer, but of type %d", (int)data.type);
    if (data.as.integer != 0 && data.as.integer != 1)
        fail("the action is %lld, not 0 or 1", (long long)data.as.integer);
    return (int)data.as.integer;
}

int main(int argc, char **argv) {
    static connection c;
    unsigned long steps, done = 0, episodes = 0;
    cart s;
    char *end;
    if (argc != 4) {
        fprintf(stderr, "usage: cartpole HOST PORT STEPS\n");
        return 2;
    }
    steps = strtoul(argv[3], &end, 10);
    if (*end || end == argv[3]) fail("STEPS is a number, not %s", argv[3]);
    connect_to(&c, argv[1], argv[2]);

    check(rlw_rlx_put_text(command(&c, "init"), "exploit", 7));
    check(rlw_rlx_put_boolean(&c.writer, 0));
    ask(&c, "ready");
    while (done < steps) {
        int action, terminal = 0;
        start(&s);
        action = update(&c, &s, 1, 0);
        while (done < steps && !terminal) {
            terminal = step(&s, action);
            action = update(&c, &s, 0, terminal);
            done++;
        }
        if (terminal) {
            command(&c, "reset");
            ask(&c, "done");
            episodes++;
        }
    }
    rlw_writer_free(&c.writer);
    close(c.socket);
    printf("%lu steps, %lu episodes\n", done, episodes);
    return 0;
}
