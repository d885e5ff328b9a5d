/* Mutates what a peer says and writes when memory is shared, and feeds it to shm.h and shm_ring.h;
 * fuzz.h tells how it is run. Linux only.
 *
 * An input is a byte that says which end is ours and what descriptors the other passes, the words
 * that it says, and then steps of six bytes: what is done, which, and a number. The two meet at real
 * sockets, with real memory. The steps are done on rings that end where their heap blocks end. As
 * long as the other wrote no nonsense, all bytes that went in come out; whatever it wrote, each call
 * ends, in a number that it may return, and leaves no descriptor behind.
 *
 * Outcomes: OK; NEED_MORE: the other fell silent at the meeting; BAD_VERSION: its words, or its
 * descriptors, were refused; BAD_TYPE: so was its memory, as unsealed; BAD_WORD: it named an error;
 * BAD_PLACE: it wrote nonsense into the shared words; BAD_END: it had gone. */
#define _GNU_SOURCE 1
#include "fuzz.h"

#include <rlwire/shm.h>

#define HEAD (1 + sizeof(rlw_shm_words))
#define STEP 6
#define SIZE 4096u
#define MOST 6000 /* bytes that a step moves */

#ifndef EMULATED
#define EMULATED 0 /* qemu-user loses descriptors that the system cuts off, and leaves them open */
#endif

enum { TWO, NONE, ONE, UNSEALED, SHORT, NO_MEMORY_AT_ALL, THREE, KINDS };
enum { READ, WRITE, THEY_READ, THEY_WRITE, SHARED_WORD, LOOK, WAIT, RING, LEAVE, STEPS };

static uint64_t moved_count;

/* ---- the meeting ---- */

static int unsealed(uint32_t size) {
    int file = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    MUST(file >= 0 && ftruncate(file, (off_t)size + RLW_RING_DATA) == 0);
    return file;
}

/* A server's words, as far as they are there, and descriptors, as a client may get them. */
static void lie(int file, const uint8_t *words, size_t size, int kind) {
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } beside;
    static const size_t passed[KINDS] = {2, 0, 1, 2, 2, 2, EMULATED ? 2 : 3};
    rlw_shm_words said;
    struct iovec bytes;
    struct msghdr message;
    size_t count = passed[kind], i;
    int files[3];
    memset(&said, 0, sizeof said);
    memcpy(&said, words, size);
    for (i = 0; i < 3; i++) {
        uint32_t wanted = i ? said.to_client : said.to_server;
        if (wanted > (1u << 24) || !rlw_ring_can_be(wanted)) wanted = SIZE;
        if (kind == SHORT) wanted = wanted == SIZE ? 2 * SIZE : SIZE;
        files[i] = kind == UNSEALED && i ? unsealed(wanted)
                   : kind == NO_MEMORY_AT_ALL ? dup(file) : rlw_shm_make(wanted);
        MUST(files[i] >= 0);
    }
    memset(&message, 0, sizeof message);
    memset(&beside, 0, sizeof beside);
    bytes.iov_base = &said;
    bytes.iov_len = size;
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (count) {
        message.msg_control = &beside;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        beside.head.cmsg_level = SOL_SOCKET;
        beside.head.cmsg_type = SCM_RIGHTS;
        beside.head.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&beside.head), files, count * sizeof(int));
    }
    if (size) MUST(sendmsg(file, &message, MSG_NOSIGNAL) == (ssize_t)size);
    for (i = 0; i < 3; i++) close(files[i]);
}

static rlw_status meet(const uint8_t *input_words, size_t size, unsigned head) {
    uint8_t words[sizeof(rlw_shm_words)] = {0}; /* in the host's order; little-endian in an input */
    rlw_shm shm;
    int ends[2], error, client = (int)(head & 1), kind = (int)((head >> 1) % KINDS);
    uint32_t said = 0, word;
    size_t i;
    memcpy(words, input_words, size);
    for (i = 0; i < sizeof words; i += 4) {
        word = rlw_load_u32le(words + i);
        memcpy(words + i, &word, 4);
    }
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    if (client) {
        lie(ends[1], words, size, kind);
        if (size == sizeof words) memcpy(&said, words + 16, 4);
    } else if (size) {
        MUST(send(ends[1], words, size, MSG_NOSIGNAL) == (ssize_t)size);
    }
    shutdown(ends[1], SHUT_WR);
    error = client ? rlw_shm_meet(&shm, ends[0]) : rlw_shm_accept(&shm, ends[0], 4 * SIZE);
    if (!error) {
        MUST(rlw_ring_can_be(shm.in.size) && rlw_ring_can_be(shm.out.size));
        MUST(client || (shm.in.size <= 4 * SIZE && shm.out.size <= 4 * SIZE));
        MUST(!client || kind == TWO || kind == THREE); /* the system cuts the third off */
        MUST(rlw_shm_send(&shm, "once", 4, 0) == 4);
        rlw_shm_close(&shm);
        MUST(shm.in.words == NULL && shm.out.words == NULL);
    } else if (client && said && said < 4096 && error == -(int)said) {
        said = 0; /* it is what the other said */
        close(ends[0]);
        close(ends[1]);
        return RLW_BAD_WORD;
    }
    close(ends[0]);
    close(ends[1]);
    switch (error) {
    case 0: return RLW_OK;
    case -ECONNRESET: return RLW_NEED_MORE;
    case -EPROTO: return RLW_BAD_VERSION;
    case -EPERM: return RLW_BAD_TYPE;
    default: die(strerror(-error), __LINE__); return RLW_OK;
    }
}

/* ---- what is done with the rings ---- */

typedef struct ends {
    rlw_shm ours;
    rlw_ring their_in, their_out;
    uint8_t wrote, read;           /* the next byte of ours, and the one that they expect */
    uint8_t they_wrote, they_read;
    int honest, gone, socket;
} ends;

static void pattern(uint8_t *data, size_t size, uint8_t next) {
    while (size--) *data++ = next++;
}

static void same_pattern(const uint8_t *data, int64_t size, uint8_t next) {
    while (size-- > 0) MUST(*data++ == next++);
}

static rlw_status outcome(const ends *e, int64_t result) {
    if (result >= 0 || result == -EAGAIN) return RLW_OK;
    if (result == -EPROTO) {
        MUST(!e->honest);
        return RLW_BAD_PLACE;
    }
    MUST(result == -ECONNRESET || result == -EPIPE);
    MUST(e->gone || !e->honest); /* it may have written that it is */
    return RLW_BAD_END;
}

static rlw_status read_some(ends *e, size_t size, int all, double seconds) {
    uint8_t *data = exact((const uint8_t *)"", 0), *room;
    int ready = rlw_shm_readable(&e->ours);
    int64_t got;
    release(data);
    room = (uint8_t *)memory(size + 1);
    got = rlw_shm_recv(&e->ours, room, size, all, seconds / 4, seconds);
    MUST(got <= (int64_t)size && (ready || got == -EAGAIN || size == 0 || seconds > 0));
    if (got > 0 && e->honest) {
        same_pattern(room, got, e->read);
        e->read = (uint8_t)(e->read + got);
    }
    if (got > 0) moved_count++;
    free(room);
    return outcome(e, got);
}

static rlw_status write_some(ends *e, size_t size, double seconds) {
    uint8_t *first = (uint8_t *)memory(size + 1);
    struct iovec parts[2];
    int64_t sent;
    pattern(first, size, e->wrote);
    parts[0].iov_base = first;
    parts[0].iov_len = size / 3;
    parts[1].iov_base = first + size / 3;
    parts[1].iov_len = size - size / 3;
    sent = rlw_shm_sendv(&e->ours, parts, 2, seconds);
    MUST(sent <= (int64_t)size);
    if (sent > 0) e->wrote = (uint8_t)(e->wrote + sent);
    free(first);
    return outcome(e, sent);
}

static void they_read(ends *e, size_t size) {
    uint8_t *room = (uint8_t *)memory(size + 1);
    int64_t got = rlw_ring_read(&e->their_in, room, size);
    MUST(got >= 0); /* we write no nonsense, whatever they do */
    if (e->honest) same_pattern(room, got, e->they_read);
    e->they_read = (uint8_t)(e->they_read + got);
    free(room);
}

static void they_write(ends *e, size_t size) {
    uint8_t *data = (uint8_t *)memory(size + 1);
    int64_t sent;
    pattern(data, size, e->they_wrote);
    sent = rlw_ring_write(&e->their_out, data, size);
    MUST(sent >= 0);
    e->they_wrote = (uint8_t)(e->they_wrote + sent);
    free(data);
}

/* One of the shared words, which any of the two could write into at any time. */
static uint32_t *shared_word(ends *e, unsigned which) {
    rlw_ring_words *words = which & 1 ? e->ours.in.words : e->ours.out.words;
    rlw_ring_side *side = which & 2 ? &words->writer : &words->reader;
    return which & 4 ? &side->waits : &side->at;
}

static rlw_status step(ends *e, const uint8_t *bytes) {
    uint32_t number = rlw_load_u32le(bytes + 2);
    size_t size = number % MOST;
    switch (bytes[0] % STEPS) {
    case READ: return read_some(e, size, bytes[1] & 1, 0);
    case WRITE: return write_some(e, size, 0);
    case WAIT: return bytes[1] & 1 ? read_some(e, size, bytes[1] & 2, 1e-5) : write_some(e, size, 1e-5);
    case THEY_READ: they_read(e, size); return RLW_OK;
    case THEY_WRITE: they_write(e, size); return RLW_OK;
    case SHARED_WORD:
        if (!(bytes[1] & 4)) e->honest = 0; /* how the other waits is nonsense of no consequence */
        rlw_shared_store(shared_word(e, bytes[1]), number);
        return RLW_OK;
    case LOOK:
        switch (bytes[1] % 4) {
        case 0: (void)rlw_shm_poll_in(&e->ours); break;
        case 1: (void)rlw_shm_poll_out(&e->ours); break;
        case 2: (void)rlw_shm_writable(&e->ours); break;
        default: (void)rlw_shm_readable(&e->ours); break;
        }
        return RLW_OK;
    case RING:
        for (size = number % 40; size && e->socket >= 0; size--)
            (void)!send(e->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        return RLW_OK;
    default:
        switch (bytes[1] % 5) {
        case 0: rlw_ring_leave(&e->their_out, &e->their_out.words->writer); break;
        case 1: rlw_ring_leave(&e->their_in, &e->their_in.words->reader); break;
        case 2:
            if (e->socket >= 0) close(e->socket);
            e->socket = -1;
            break;
        case 3: rlw_shm_end(&e->ours); break;
        default: rlw_shm_stop(&e->ours); break;
        }
        e->gone = 1;
        return RLW_OK;
    }
}

static rlw_status run(const uint8_t *steps, size_t size) {
    static const uint8_t zeros[RLW_RING_DATA + SIZE];
    uint8_t *in = exact(zeros, sizeof zeros), *out = exact(zeros, sizeof zeros);
    int sockets[2];
    rlw_status status = RLW_OK;
    ends e;
    memset(&e, 0, sizeof e);
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    e.honest = 1;
    e.ours.file = sockets[0];
    e.socket = sockets[1];
    rlw_ring_open(&e.ours.in, in, SIZE);
    rlw_ring_open(&e.ours.out, out, SIZE);
    rlw_ring_open(&e.their_in, out, SIZE);
    rlw_ring_open(&e.their_out, in, SIZE);
    for (; size >= STEP && status == RLW_OK; steps += STEP, size -= STEP) {
        /* They keep to the rules as they see them, and see what they have spoilt. */
        unsigned theirs = steps[0] % STEPS;
        if (!e.honest && (theirs == THEY_READ || theirs == THEY_WRITE)) continue;
        status = step(&e, steps);
    }
    if (e.honest && !e.gone) MUST(status == RLW_OK);
    if (e.honest && status == RLW_OK) whole_count++;
    rlw_shm_end(&e.ours);
    close(sockets[0]);
    if (e.socket >= 0) close(e.socket);
    release(in);
    release(out);
    return status;
}

/* ---- mutations ---- */

static void mutate(void) {
    static const uint8_t odd_bytes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0x10, 0x40, 0x7F, 0x80, 0xFF};
    static const uint32_t odd[] = {
        0, 1, 2, 2048, 4095, 4096, 4097, 5000, 8192, 65536, 1u << 30, 0x7FFFFFFF, 0x80000000,
        0x80000001, 0x80001000, 0xFFFFFFFF,
    };
    uint8_t bytes[STEP] = {0};
    size_t at = some_mark(0);
    switch (below(6)) {
    case 0: /* a number */
    case 1:
        rlw_store_u32le(bytes, below(2) ? odd[below(sizeof odd / sizeof *odd)]
                                        : (uint32_t)below(2 * SIZE));
        if (at >= HEAD) at += 2;
        replace(at, 4, bytes, 4);
        break;
    case 2: /* another step, before or in the place of one */
        bytes[0] = (uint8_t)(below(2) ? SHARED_WORD : below(STEPS));
        bytes[1] = (uint8_t)below(8);
        rlw_store_u32le(bytes + 2, below(4) ? (uint32_t)below(2 * SIZE)
                                            : odd[below(sizeof odd / sizeof *odd)]);
        if (at >= HEAD) replace(at, below(2) ? STEP : 0, bytes, STEP);
        break;
    case 3: /* which end, which descriptors */
        if (input_size) input[0] = (uint8_t)below(2 * KINDS);
        if (!below(16)) input_size = 1; /* and it says nothing */
        break;
    case 4:
        if (at >= HEAD && at + 1 < input_size) input[at + 1] = (uint8_t)below(8);
        break;
    default: mutate_bytes(odd_bytes, sizeof odd_bytes); break;
    }
}

static int open_files(void) {
    int file, count = 0;
    for (file = 0; file < 32; file++) count += fcntl(file, F_GETFD) >= 0;
    return count;
}

static rlw_status feed(const uint8_t *bytes, size_t size) {
    int before = open_files();
    size_t words = size > HEAD ? sizeof(rlw_shm_words) : size ? size - 1 : 0;
    rlw_status status;
    status = meet(bytes + (size ? 1 : 0), words, size ? bytes[0] : 0);
    if (status == RLW_OK && size > HEAD) status = run(bytes + HEAD, size - HEAD);
    MUST(open_files() == before);
    return status;
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    rlw_status status = feed(bytes, size);
    (void)s;
    if (size < HEAD)
        MUST(status == RLW_BAD_VERSION || status == RLW_NEED_MORE);
    else
        MUST(status == RLW_OK);
}

static void mark_sample(sample *s) {
    size_t at;
    for (at = 1; at < HEAD && at < s->size; at += 4) mark(s, at);
    for (at = HEAD; at + STEP <= s->size; at += STEP) mark(s, at);
}

FUZZ_MAIN("fuzz_shm", "moved", moved_count, RLW_OK, RLW_NEED_MORE, RLW_BAD_VERSION, RLW_BAD_TYPE,
          RLW_BAD_WORD, RLW_BAD_PLACE, RLW_BAD_END)
