/* What the fuzz drivers share: mutations, the corpus, and the report. The same seed gives the same
 * inputs everywhere. A driver includes this once and ends with FUZZ_MAIN.
 *
 *     python3 corpus.py dm_env_rpc corpus.bin
 *     cc -std=c11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
 *         -I../../rlwire/include fuzz_dm_env_rpc.c -o fuzz && ./fuzz corpus.bin 1000000 [SEED]
 *
 * PERLERT and numbers are linked with numbers.cpp too. First every prefix of every message of the
 * corpus is read, then so many mutated ones. What must hold for any input is asserted; a breach
 * prints the input in hexadecimal and aborts.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <time.h>

#include "chance.h"

#define ROOM 16384 /* bytes of the longest input */
#define MARKS 64   /* fields of a message that mutations aim at */

typedef struct sample {
    const uint8_t *data;
    size_t size;
    size_t marks[MARKS]; /* where lengths, counts and type bytes stand */
    size_t mark_count;
} sample;

typedef struct fuzz_driver {
    const char *name;
    void (*mark_sample)(sample *s);           /* fills in marks of a good message */
    void (*feed_prefix)(const sample *s, const uint8_t *bytes, size_t size);
    void (*begin)(void);                      /* puts the origin into `input` */
    void (*mutate)(void);                     /* edits it once */
    rlw_status (*feed)(const uint8_t *bytes, size_t size);
    const rlw_status *reaches;                /* statuses that mutations must lead to */
    size_t reaches_count;
    const char *reaches_names;                /* theirs, with commas between */
    const char *other;                        /* a further outcome that must occur, */
    uint64_t *other_count;                    /* and how often it did */
} fuzz_driver;

static sample *samples;
static size_t sample_count;
static uint64_t counts[RLW_NO_MEMORY + 1];
static uint64_t whole_count;
static volatile uint64_t touched; /* so that no read is optimised away */

/* What is being fed, for the report of a breach. */
static const char *driver_name;
static const uint8_t *current;
static size_t current_size;
static uint64_t current_number, seed = 1;

static void die(const char *what, int line) {
    size_t i;
    fprintf(stderr, "%s:%d: message %llu of seed %llu: %s\n", driver_name, line,
            (unsigned long long)current_number, (unsigned long long)seed, what);
    for (i = 0; i < current_size; i++) fprintf(stderr, "%02x", current[i]);
    fprintf(stderr, "\n");
    abort();
}

#define MUST(condition) \
    do { \
        if (!(condition)) die("not so: " #condition, __LINE__); \
    } while (0)

static inline uint64_t add_up(const uint8_t *data, size_t size) {
    uint64_t sum = 0;
    while (size--) sum += *data++;
    return sum;
}

static inline void check_cursor(const rlw_cursor *c, const uint8_t *start, size_t size,
                         rlw_status status) {
    MUST(c->at >= start && c->at <= start + size && c->end == start + size);
    MUST(c->fault.status == status);
    MUST(c->fault.at >= start && c->fault.at <= start + size);
    if (status == RLW_NEED_MORE) MUST(c->fault.got > c->fault.allowed);
    if (status >= RLW_OVER_MESSAGE) MUST(c->fault.got > c->fault.allowed);
}

/* ---- mutations, all within ROOM ---- */

static uint8_t input[ROOM];
static size_t input_size;
static const sample *origin; /* the good message that it was */

static inline void begin_with_origin(void) {
    input_size = origin->size;
    memcpy(input, origin->data, origin->size);
}

static void replace(size_t at, size_t cut, const uint8_t *data, size_t size) {
    if (at > input_size) at = input_size;
    if (cut > input_size - at) cut = input_size - at;
    if (input_size - cut + size > ROOM) return;
    memmove(input + at + size, input + at + cut, input_size - at - cut);
    if (size) memcpy(input + at, data, size);
    input_size = input_size - cut + size;
}

/* A place that matters to the origin, `shift` bytes on. */
static inline size_t some_mark(size_t shift) {
    size_t mark = below(origin->mark_count);
    return origin->mark_count ? origin->marks[mark] + shift : mark;
}

/* Any format: a bit, a byte, a cut, a splice, a repetition. */
static void mutate_bytes(const uint8_t *odd_bytes, size_t odd_count) {
    const sample *other = &samples[below(sample_count)];
    size_t at = below(input_size + 1), mark;
    uint8_t byte, part[256];
    switch (below(7)) {
    case 0:
        if (at < input_size) input[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        byte = odd_bytes[below(odd_count)];
        replace(at, 1, &byte, 1);
        break;
    case 2:
        byte = (uint8_t)chance();
        replace(at, below(2), &byte, 1);
        break;
    case 3: input_size = at; break;
    case 4: /* the head of one, the tail of another */
        mark = other->mark_count ? other->marks[below(other->mark_count)] : 0;
        replace(at, input_size, other->data + mark, other->size - mark);
        break;
    case 5: { /* the same bytes twice */
        size_t size = below(sizeof part < input_size - at ? sizeof part : input_size - at + 1);
        memcpy(part, input + at, size);
        replace(below(2) ? at : below(input_size + 1), 0, part, size);
        break;
    }
    default: replace(at, below(16), NULL, 0); break;
    }
}

/* A good message, mostly after a few mutations, in memory of its size. */
static rlw_status feed_mutated(const fuzz_driver *driver) {
    size_t edits = below(16) ? 1 + below(4) : 0;
    uint8_t *bytes;
    rlw_status status;
    origin = &samples[below(sample_count)];
    driver->begin();
    while (edits--) driver->mutate();
    current = bytes = exact(input, input_size);
    current_size = input_size;
    status = driver->feed(bytes, input_size);
    release(bytes);
    return status;
}

/* ---- the corpus, the run, the report ---- */

static void mark(sample *s, size_t at) {
    if (at <= s->size && s->mark_count < MARKS) s->marks[s->mark_count++] = at;
}

static void load(const char *path, const fuzz_driver *driver) {
    FILE *file = fopen(path, "rb");
    uint8_t head[4];
    if (!file) {
        fprintf(stderr, "%s: cannot read %s\n", driver_name, path);
        exit(2);
    }
    while (fread(head, 1, 4, file) == 4) {
        size_t size = rlw_load_u32le(head);
        uint8_t *data = (uint8_t *)memory(size + 1);
        sample *s;
        if (size > ROOM / 2 || fread(data, 1, size, file) != size) {
            fprintf(stderr, "%s: %s is not what corpus.py writes\n", driver_name, path);
            exit(2);
        }
        samples = (sample *)realloc(samples, (sample_count + 1) * sizeof *samples);
        if (!samples) exit(2);
        s = &samples[sample_count++];
        s->data = current = data;
        s->size = current_size = size;
        s->mark_count = 0;
        driver->mark_sample(s);
    }
    fclose(file);
    if (!sample_count) {
        fprintf(stderr, "%s: %s is empty\n", driver_name, path);
        exit(2);
    }
}

static void feed_prefixes(const fuzz_driver *driver) {
    size_t i, size;
    for (i = 0; i < sample_count; i++)
        for (size = 0; size <= samples[i].size; size++) {
            uint8_t *bytes = exact(samples[i].data, size);
            current = bytes;
            current_size = size;
            driver->feed_prefix(&samples[i], bytes, size);
            release(bytes);
        }
}

static int fuzz_main(int argc, char **argv, const fuzz_driver *driver) {
    const char *name = driver->reaches_names;
    uint64_t total, unseen = 0, stray = 0;
    clock_t began;
    double seconds;
    size_t i, k;
    driver_name = driver->name;
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: %s CORPUS MESSAGES [SEED]\n", driver_name);
        return 2;
    }
    total = strtoull(argv[2], NULL, 10);
    if (argc == 4) seed = strtoull(argv[3], NULL, 10);
    load(argv[1], driver);
    chance_state = seed;
    began = clock();
    feed_prefixes(driver);
    whole_count = *driver->other_count = 0;
    for (current_number = 0; current_number < total; current_number++)
        counts[feed_mutated(driver)]++;
    seconds = (double)(clock() - began) / (double)CLOCKS_PER_SEC;
    printf("%s: %llu messages from %zu, seed %llu, %.1f s, %.0f/s:", driver_name,
           (unsigned long long)total, sample_count, (unsigned long long)seed, seconds,
           seconds > 0 ? (double)total / seconds : 0.0);
    for (k = 0; k < driver->reaches_count; k++) { /* RLW_OK, RLW_NEED_MORE */
        const char *begin = name + strlen("RLW_");
        size_t size = strcspn(begin, ",");
        uint64_t *count = &counts[driver->reaches[k]];
        printf(" %.*s=%llu", (int)size, begin, (unsigned long long)*count);
        if (!*count) unseen++;
        *count = 0;
        name = begin + size + strspn(begin + size, ", ");
    }
    for (i = RLW_OK; i <= RLW_NO_MEMORY; i++) {
        if (counts[i]) printf(" %s=%llu", rlw_status_text((rlw_status)i), (unsigned long long)counts[i]);
        stray += counts[i];
    }
    printf(" whole=%llu %s=%llu\n", (unsigned long long)whole_count, driver->other,
           (unsigned long long)*driver->other_count);
    if (stray) {
        fprintf(stderr, "%s: a status that has no business here\n", driver_name);
        return 1;
    }
    if (total >= 20000 && (unseen || !*driver->other_count)) {
        fprintf(stderr, "%s: the mutations no longer reach every status\n", driver_name);
        return 1;
    }
    return 0;
}

#ifndef FUZZ_BEGIN
#define FUZZ_BEGIN begin_with_origin
#endif

/* A driver's main(): its name, a further outcome that must occur and how often it did, and the
 * statuses that mutations must lead to. */
#define FUZZ_MAIN(name, other, count, ...) \
    int main(int argc, char **argv) { \
        static const rlw_status reaches[] = {__VA_ARGS__}; \
        static const fuzz_driver driver = { \
            name, mark_sample, feed_prefix, FUZZ_BEGIN, mutate, feed, reaches, sizeof reaches / sizeof *reaches, \
            #__VA_ARGS__, other, &count, \
        }; \
        return fuzz_main(argc, argv, &driver); \
    }

#endif
