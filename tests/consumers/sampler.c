/* A CartPole that samples by itself for RLlib: docs/howto/game_engine.md explains it. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rlwire/rllink.h>

static int peer;
static rlw_writer out;                 /* the frame to send; its memory is reused */
static uint8_t *inbox;                 /* the frame received */
static size_t inbox_size;
static const rlw_msgpack_limits limits = RLW_RLLINK_DEFAULT_LIMITS;

static void check(int fine, const char *what) {
    if (!fine) {
        fprintf(stderr, "sampler: %s\n", what);
        exit(1);
    }
}

static void put(rlw_status status) { check(status == RLW_OK, rlw_status_text(status)); }

static void connect_to(const char *host, const char *port) {
    struct addrinfo hints, *found = NULL, *each;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    check(getaddrinfo(host, port, &hints, &found) == 0, "unknown host");
    for (each = found; each; each = each->ai_next) { /* "localhost" may be ::1, then 127.0.0.1 */
        peer = socket(each->ai_family, each->ai_socktype, each->ai_protocol);
        if (peer >= 0 && connect(peer, each->ai_addr, each->ai_addrlen) == 0) break;
        if (peer >= 0) close(peer);
    }
    check(each != NULL, "cannot connect");
    freeaddrinfo(found);
}

static void send_it(void) {
    const uint8_t *bytes = NULL;
    size_t size = 0;
    put(rlw_rllink_end(&out, &bytes, &size));
    while (size) {
        ssize_t sent = send(peer, bytes, size, MSG_NOSIGNAL);
        check(sent > 0, "connection closed by the trainer");
        bytes += sent;
        size -= (size_t)sent;
    }
}

/* Each request but EPISODES has one reply. */
static rlw_rllink_message ask(rlw_rllink_kind expected) {
    const uint8_t *body = NULL;
    size_t have = 0, size = 0;
    rlw_rllink_message answer;
    rlw_cursor cursor;
    send_it();
    rlw_cursor_init(&cursor, inbox, 0);
    while (rlw_rllink_read_frame(&cursor, RLW_RLLINK_MOST, &body, &size) == RLW_NEED_MORE) {
        ssize_t got;
        if (cursor.fault.got > inbox_size) {
            inbox_size = (size_t)cursor.fault.got;
            inbox = (uint8_t *)realloc(inbox, inbox_size);
            check(inbox != NULL, "no memory");
        }
        got = recv(peer, inbox + have, (size_t)cursor.fault.got - have, 0);
        check(got > 0, "connection closed by the trainer");
        have += (size_t)got;
        rlw_cursor_init(&cursor, inbox, have);
    }
    put(cursor.fault.status);
    put(rlw_rllink_read(&cursor, body, size, &limits, &answer));
    check(answer.kind == expected, "unexpected reply");
    return answer;
}

/* The weights have PyTorch's names. They are views into the message, so they are copied. */
enum { LAYERS = 8, WIDTH = 1024 };

typedef struct layer {
    size_t inputs, outputs;
    float *weight; /* [outputs][inputs] */
    float *bias;   /* [outputs] */
} layer;

static layer layers[LAYERS];
static size_t layer_count;
static int64_t weights_number;

static int ends_with(const rlw_msgpack_value *name, const char *end) {
    size_t size = strlen(end);
    return name->size > size && memcmp(name->data + name->size - size, end, size) == 0;
}

static float *numbers_of(const rlw_rllink_tensor *t, float *old) {
    float *numbers = (float *)realloc(old, ((size_t)t->count + 1) * sizeof *numbers);
    check(numbers != NULL, "no memory");
    check(rlw_rllink_floats(t, numbers, t->count), "weights must be floats");
    return numbers;
}

static void take_weights(const rlw_rllink_message *answer) {
    rlw_rllink_tensors tensors;
    rlw_rllink_tensor t;
    size_t biases = 0, i;
    int found;
    check(answer->number == 0 || answer->number >= weights_number, "these weights are older");
    layer_count = 0;
    rlw_rllink_tensors_init(&tensors, answer, &limits);
    for (;;) {
        put(rlw_rllink_next_tensor(&tensors, &t, &found));
        if (!found) break;
        if (ends_with(&t.name, ".weight") && t.dims == 2) {
            check(layer_count < LAYERS && t.shape[0] <= WIDTH && t.shape[1] <= WIDTH, "too large");
            layers[layer_count].outputs = (size_t)t.shape[0];
            layers[layer_count].inputs = (size_t)t.shape[1];
            layers[layer_count].weight = numbers_of(&t, layers[layer_count].weight);
            layer_count++;
        } else if (ends_with(&t.name, ".bias") && biases < layer_count) {
            check(t.count == layers[biases].outputs, "a bias does not fit its layer");
            layers[biases].bias = numbers_of(&t, layers[biases].bias);
            biases++;
        }
    }
    check(layer_count && biases == layer_count, "expected the weights of plain layers");
    for (i = 1; i < layer_count; i++)
        check(layers[i].inputs == layers[i - 1].outputs, "layers do not fit each other");
    weights_number = answer->number;
}

/* The policy: layers with tanh between them give the logits of the actions. */
enum { OBSERVATION = 4, ACTIONS = 2 };

static double chance(void) { return rand() / (RAND_MAX + 1.0); } /* in [0, 1) */

static int64_t act(const float *observation, float *logits, float *logp) {
    float buffers[2][WIDTH];
    const float *from = observation;
    double total = 0, drawn;
    size_t l, i, k;
    int64_t action = 0;
    check(layers[0].inputs == OBSERVATION && layers[layer_count - 1].outputs == ACTIONS,
          "these weights are for another game");
    for (l = 0; l < layer_count; l++) {
        float *to = l + 1 < layer_count ? buffers[l % 2] : logits;
        for (i = 0; i < layers[l].outputs; i++) {
            float sum = layers[l].bias[i];
            for (k = 0; k < layers[l].inputs; k++)
                sum += layers[l].weight[i * layers[l].inputs + k] * from[k];
            to[i] = l + 1 < layer_count ? tanhf(sum) : sum;
        }
        from = to;
    }
    for (i = 0; i < ACTIONS; i++) total += exp(logits[i] - logits[0]);
    drawn = chance() * total;
    while (action < ACTIONS - 1 && (drawn -= exp(logits[action] - logits[0])) >= 0) action++;
    *logp = (float)(logits[action] - logits[0] - log(total));
    return action;
}

/* The game. */
static float cart[OBSERVATION]; /* where the cart is, its speed, the pole's angle, its speed */

static void start(void) {
    int i;
    for (i = 0; i < OBSERVATION; i++) cart[i] = (float)(chance() * 0.1 - 0.05);
}

static int step(int64_t action) { /* 20 ms; 1 when the pole has fallen or the track has ended */
    double force = action ? 10.0 : -10.0, angle = cart[2], speed = cart[3];
    double push = (force + 0.05 * speed * speed * sin(angle)) / 1.1;
    double turn = (9.8 * sin(angle) - cos(angle) * push) /
                  (0.5 * (4.0 / 3.0 - 0.1 * cos(angle) * cos(angle) / 1.1));
    cart[0] += (float)(0.02 * cart[1]);
    cart[1] += (float)(0.02 * (push - 0.05 * turn * cos(angle) / 1.1));
    cart[2] += (float)(0.02 * speed);
    cart[3] += (float)(0.02 * turn);
    return fabsf(cart[0]) > 2.4f || fabsf(cart[2]) > 0.2094f;
}

/* A batch has exactly so many steps. An episode that goes on continues in the next one. */
enum { LONGEST = 500, MOST_STEPS = 10000 };

static struct {
    float observations[2 * MOST_STEPS][OBSERVATION]; /* a piece has one more than steps */
    int64_t actions[MOST_STEPS];
    double rewards[MOST_STEPS];
    float logits[MOST_STEPS][ACTIONS], logps[MOST_STEPS];
    rlw_rllink_episode pieces[MOST_STEPS];
    rlw_rllink_column outputs[MOST_STEPS][2];
    char ids[MOST_STEPS][40];
    uint32_t count; /* pieces */
} batch;

static char id[40];
static int64_t episode_steps = -1; /* of the current one; -1: there is none */
static unsigned long finished;

static rlw_rllink_column column(rlw_rllink_type type, const void *data, const int64_t *shape,
                                const char *name) {
    rlw_rllink_column made = {type, data, shape ? 1u : 0u, shape, name};
    return made;
}

static void sample(uint32_t steps) {
    static const int64_t four[] = {OBSERVATION}, two[] = {ACTIONS};
    uint32_t done = 0, seen = 0;
    batch.count = 0;
    while (done < steps) { /* a piece */
        uint32_t n = batch.count++, first = done;
        rlw_rllink_episode *piece = &batch.pieces[n];
        rlw_rllink_column *output = batch.outputs[n];
        int over = 0;
        if (episode_steps < 0) {
            start();
            episode_steps = 0;
            snprintf(id, sizeof id, "%08lx%08lx%08lx", (unsigned long)(chance() * 4294967296.0),
                     (unsigned long)(chance() * 4294967296.0), finished);
        }
        memset(piece, 0, sizeof *piece);
        memcpy(batch.ids[n], id, sizeof id);
        piece->id = batch.ids[n];
        piece->started = episode_steps;
        piece->observations = column(RLW_RLLINK_FLOAT32, batch.observations[seen], four, NULL);
        piece->actions = column(RLW_RLLINK_INT64, &batch.actions[done], NULL, NULL);
        piece->rewards = column(RLW_RLLINK_FLOAT64, &batch.rewards[done], NULL, NULL);
        output[0] = column(RLW_RLLINK_FLOAT32, batch.logits[done], two, "action_dist_inputs");
        output[1] = column(RLW_RLLINK_FLOAT32, &batch.logps[done], NULL, "action_logp");
        piece->outputs = output;
        piece->output_count = 2;
        memcpy(batch.observations[seen++], cart, sizeof cart);
        while (done < steps && !over) {
            batch.actions[done] = act(cart, batch.logits[done], &batch.logps[done]);
            piece->terminated = step(batch.actions[done]);
            piece->truncated = ++episode_steps == LONGEST && !piece->terminated;
            over = piece->terminated || piece->truncated;
            memcpy(batch.observations[seen++], cart, sizeof cart);
            batch.rewards[done++] = 1.0;
        }
        piece->steps = done - first;
        if (over) {
            episode_steps = -1;
            finished++;
        }
    }
}

int main(int argc, char **argv) {
    rlw_rllink_message answer;
    long batches;
    uint32_t steps, i;
    int wait;
    check(argc == 5, "HOST PORT BATCHES STEPS");
    srand((unsigned)time(NULL) ^ ((unsigned)getpid() << 16));
    rlw_writer_init(&out, NULL, 0);
    connect_to(argv[1], argv[2]);
    put(rlw_rllink_put_ping(&out, getenv("RLLINK_TOKEN")));
    ask(RLW_RLLINK_PONG);
    put(rlw_rllink_put_request(&out, RLW_RLLINK_GET_CONFIG));
    answer = ask(RLW_RLLINK_SET_CONFIG);
    /* Ray's own server sends neither: its configuration is a pickle. */
    steps = (uint32_t)strtoul(argv[4], NULL, 10);
    if (answer.steps.kind == RLW_MSGPACK_INTEGER && answer.steps.integer <= MOST_STEPS)
        steps = (uint32_t)answer.steps.integer;
    check(steps >= 1 && steps <= MOST_STEPS, "steps of a batch must be 1 to MOST_STEPS");
    wait = answer.on_policy.kind == RLW_MSGPACK_NIL || answer.on_policy.integer;
    put(rlw_rllink_put_request(&out, RLW_RLLINK_GET_STATE));
    answer = ask(RLW_RLLINK_SET_STATE);
    take_weights(&answer);
    for (batches = atol(argv[3]); batches > 0; batches--) {
        sample(steps);
        put(rlw_rllink_put_episodes(&out, wait, batch.count, steps, weights_number));
        for (i = 0; i < batch.count; i++) put(rlw_rllink_put_episode(&out, &batch.pieces[i]));
        if (!wait) {
            send_it();
            put(rlw_rllink_put_request(&out, RLW_RLLINK_GET_STATE));
        }
        answer = ask(RLW_RLLINK_SET_STATE);
        take_weights(&answer);
    }
    rlw_writer_free(&out);
    printf("%lu episodes, weights %lld\n", finished, (long long)weights_number);
    return 0;
}
