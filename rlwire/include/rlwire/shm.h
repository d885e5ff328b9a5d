/* A byte stream between two processes of one user, over two rings in shared memory. Linux only
 * (RLW_HAS_SHM), C11 or C++17; see docs/protocols/shm.md. Functions return a negative errno on errors.
 *
 * Needs _GNU_SOURCE, and defines it if no system header was included before.
 */
#ifndef RLWIRE_SHM_H
#define RLWIRE_SHM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#ifndef __linux__
#define RLW_HAS_SHM 0
#else
#define RLW_HAS_SHM 1

#include "shm_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef F_ADD_SEALS
#error "define _GNU_SOURCE before the first system header, or include rlwire/shm.h before it"
#endif

#define RLW_SHM_MAGIC 0x4D53574Cu /* "LWSM", as bytes in the host's order */
#define RLW_SHM_VERSION 1
#define RLW_SHM_RING 1048576
#define RLW_SHM_SLICE 0.1
#define RLW_SHM_VAIN 5
#define RLW_SHM_LOST 255u
#define RLW_SHM_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* The handshake on the socket: the client's requested sizes, then the server's granted sizes with the
 * descriptors as ancillary data, or an errno. */
typedef struct rlw_shm_words {
    uint32_t magic;
    uint32_t version;
    uint32_t to_server; /* bytes of a ring */
    uint32_t to_client;
    uint32_t error; /* the server's errno, or 0 */
    uint32_t unused[3];
} rlw_shm_words;

/* One end. */
typedef struct rlw_shm {
    rlw_ring in, out;
    int file;         /* the unix socket */
    uint32_t deaf;    /* this end receives no more; any thread may set it */
    uint32_t dead;    /* the socket has reported that the peer is gone */
    uint32_t vain;    /* consecutive busy-waits without success */
    uint32_t skips;   /* waits left without busy-waiting */
    uint32_t chance;  /* random state for `skips` */
} rlw_shm;

static inline double rlw_shm_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Creates sealed anonymous memory for a ring of `size` bytes; returns its descriptor. */
static inline int rlw_shm_make(uint32_t size) {
    int file = -1, error;
    if (!rlw_ring_can_be(size)) return -EINVAL;
#ifdef MFD_NOEXEC_SEAL
    file = memfd_create("rlwire ring", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
#endif
    if (file < 0) file = memfd_create("rlwire ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return -errno;
    if (ftruncate(file, (off_t)size + RLW_RING_DATA) || fcntl(file, F_ADD_SEALS, RLW_SHM_SEALS)) {
        error = errno;
        close(file);
        return -error;
    }
    return file;
}

/* Maps a ring of `size` bytes. Returns -EPERM if its size is not sealed, -EPROTO if it differs. */
static inline int rlw_shm_map(int file, uint32_t size, void **memory) {
    struct stat found;
    int seals = fcntl(file, F_GET_SEALS);
    if (!rlw_ring_can_be(size)) return -EPROTO;
    if (seals < 0) return errno == EINVAL ? -EPERM : -errno;
    if ((seals & RLW_SHM_SEALS) != RLW_SHM_SEALS) return -EPERM;
    if (fstat(file, &found)) return -errno;
    if (found.st_size != (off_t)size + RLW_RING_DATA) return -EPROTO;
    *memory = mmap(NULL, (size_t)size + RLW_RING_DATA, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return *memory == MAP_FAILED ? -errno : 0;
}

/* Opens one end of two rings. The caller may close their descriptors afterwards. */
static inline int rlw_shm_open(rlw_shm *shm, int file, int in, uint32_t in_size, int out,
                               uint32_t out_size) {
    void *memory;
    int error = rlw_shm_map(in, in_size, &memory);
    memset(shm, 0, sizeof *shm);
    shm->file = file;
    if (error) return error;
    rlw_ring_open(&shm->in, memory, in_size);
    error = rlw_shm_map(out, out_size, &memory);
    if (error) {
        munmap(shm->in.words, (size_t)in_size + RLW_RING_DATA);
        shm->in.words = NULL;
        return error;
    }
    rlw_ring_open(&shm->out, memory, out_size);
    return 0;
}

/* ---- wake-ups and waiting -------------------------------------------------------------------- */

#ifdef SYS_futex_time64 /* 32-bit processors: SYS_futex expects a timeout of two 32-bit numbers */
#define RLW_SHM_WAIT (sizeof(time_t) > 4 ? SYS_futex_time64 : SYS_futex)
#else
#define RLW_SHM_WAIT SYS_futex
#endif

static inline void rlw_shm_futex_wake(uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Wakes the peer if it waits. `side` is the peer's, `word` our position, the futex it sleeps on. */
static inline void rlw_shm_wake(rlw_shm *shm, rlw_ring_side *side, uint32_t *word) {
    if (rlw_shared_load(&side->waits) == RLW_RING_AWAKE) return;
    if (rlw_shared_swap(&side->waits, RLW_RING_AWAKE) == RLW_RING_POLLS)
        (void)!send(shm->file, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* full: already readable */
    else
        rlw_shm_futex_wake(word);
}

/* Reads the wake-ups from the socket, and notes if the peer is gone. */
static inline void rlw_shm_hush(rlw_shm *shm) {
    char rung[256];
    struct pollfd ends;
    ssize_t got = -1;
    int i;
    for (i = 0; i < 16; i++) {
        got = recv(shm->file, rung, sizeof rung, MSG_DONTWAIT);
        if (got < (ssize_t)sizeof rung) break;
    }
    if (got > 0) return;
    ends.fd = shm->file;
    ends.events = ends.revents = 0;
    if (got == 0 && !rlw_shared_load(&shm->deaf)) /* else this side has shut it down */
        rlw_shared_store(&shm->dead, 1);
    else if (poll(&ends, 1, 0) > 0)
        rlw_shared_store(&shm->dead, 1);
}

/* Sleeps until the peer moves in `ring`, or until `until`. Returns 0, -EAGAIN, or -EINTR.
 *
 * Sleeps on the peer's position for RLW_SHM_SLICE, which wakes soonest. Then it polls the socket, which
 * also reports the peer's death. `naps` counts the sleeps. */
static inline int rlw_shm_sleep(rlw_shm *shm, rlw_ring *ring, rlw_ring_side *mine,
                                rlw_ring_side *side, double until, int *naps) {
    struct timespec slice;
    struct pollfd rings;
    int polls = (*naps)++ > 0 && !rlw_shared_load(&shm->deaf), failed = 0, error, late;
    double left = until < 0 ? 3600.0 : until - rlw_shm_now();
    if (left <= 0) return -EAGAIN;
    late = until >= 0 && (polls || left <= RLW_SHM_SLICE);
    if (polls) {
        if (left > 3600.0) left = 3600.0;
        rlw_shared_store(&mine->waits, RLW_RING_POLLS);
        rings.fd = shm->file;
        rings.events = POLLIN;
        rings.revents = 0;
        failed = rlw_shared_load(&side->at) == ring->theirs
                     ? poll(&rings, 1, (int)(left * 1e3) + 1) : 1;
        error = failed < 0 ? errno : failed ? 0 : ETIMEDOUT;
    } else {
        if (left > RLW_SHM_SLICE) left = RLW_SHM_SLICE;
        slice.tv_sec = 0;
        slice.tv_nsec = (long)(left * 1e9);
        rlw_shared_store(&mine->waits, RLW_RING_SLEEPS);
        if (syscall(RLW_SHM_WAIT, &side->at, FUTEX_WAIT, ring->theirs, &slice, NULL, 0)) failed = 1;
        error = failed ? errno : 0;
    }
    rlw_shared_store(&mine->waits, RLW_RING_AWAKE);
    if (error == EINTR) return -EINTR;
    if (polls || error == ETIMEDOUT) rlw_shm_hush(shm);
    return error == ETIMEDOUT && late && !rlw_shared_load(&shm->dead) ? -EAGAIN : 0;
}

/* Busy-waits for `spin` seconds. Returns whether the peer has moved, or this end is deaf.
 *
 * A yield may cost a whole time slice. So after failures it busy-waits in only one of about 16 waits, or
 * one of about 128 after a lost time slice, chosen at random, until it succeeds again. */
static inline int rlw_shm_spin(rlw_shm *shm, rlw_ring *ring, rlw_ring_side *side, double spin) {
    double until = 0, late;
    unsigned asked;
    int found = 0;
    if (shm->skips) {
        shm->skips--;
        return 0;
    }
    for (;;) {
        if (rlw_shared_load(&shm->deaf)) return 1;
        for (asked = 0; asked < 64; asked++) {
            if ((found = rlw_shared_load(&side->at) != ring->theirs)) break;
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
#endif
        }
        if (until == 0) {
            if (found) break;
            until = rlw_shm_now() + spin;
        } else if ((late = rlw_shm_now() - until) > 0) {
            shm->chance = shm->chance * 1664525u + (uint32_t)(uintptr_t)shm + 1013904223u;
            shm->skips = shm->chance >> 16 & (late > spin ? RLW_SHM_LOST : (1u << shm->vain) - 1);
            if (shm->vain < RLW_SHM_VAIN) shm->vain++;
            return found;
        } else if (found) {
            break;
        }
        sched_yield();
    }
    shm->vain = 0;
    return 1;
}

static inline double rlw_shm_until(double seconds) {
    return seconds < 0 ? -1 : rlw_shm_now() + seconds;
}

/* ---- socket operations ----------------------------------------------------------------------- */

/* Receives at least one byte, or with `all`, `size` bytes unless the timeout or the stream's end comes
 * first. Returns the number of bytes, 0 at the end. -EAGAIN: timeout; -EINTR: a signal; -EPROTO: invalid
 * shared words; -ECONNRESET: the peer died.
 *
 *     spin     seconds of busy-waiting before the thread sleeps
 *     seconds  timeout; 0: do not wait, negative: no timeout
 */
static inline int64_t rlw_shm_recv(rlw_shm *shm, void *data, size_t size, int all, double spin,
                                   double seconds) {
    rlw_ring *ring = &shm->in;
    rlw_ring_side *mine = &ring->words->reader, *side = &ring->words->writer;
    double until = -2;
    size_t have = 0;
    int64_t got;
    uint32_t dead;
    int error, naps = 0;
    for (;;) {
        dead = rlw_shared_load(&shm->dead); /* earlier bytes can still be read */
        got = rlw_ring_read(ring, (uint8_t *)data + have, size - have);
        if (got < 0) return -EPROTO;
        if (got > 0) {
            rlw_shm_wake(shm, side, &mine->at);
            have += (size_t)got;
            if (!all || have == size) return (int64_t)have;
            continue;
        }
        if (ring->gone || rlw_shared_load(&shm->deaf)) return (int64_t)have;
        if (dead) return have ? (int64_t)have : -ECONNRESET;
        if (seconds == 0) return have ? (int64_t)have : -EAGAIN;
        if (spin > 0 && rlw_shm_spin(shm, ring, side, spin)) continue;
        if (until == -2) until = rlw_shm_until(seconds);
        error = rlw_shm_sleep(shm, ring, mine, side, until, &naps);
        if (error) return have ? (int64_t)have : error;
    }
}

/* Sends buffers, and wakes the peer at the end or when the ring is full. Returns the bytes sent, fewer
 * after a timeout. -EAGAIN: none sent; -EINTR, -EPROTO as above; -EPIPE: the peer has stopped reading. */
static inline int64_t rlw_shm_sendv(rlw_shm *shm, const struct iovec *parts, int count,
                                    double seconds) {
    rlw_ring *ring = &shm->out;
    rlw_ring_side *mine = &ring->words->writer, *side = &ring->words->reader;
    double until = -2;
    size_t offset = 0;
    int64_t sent, done = 0;
    int error, woken = 1, naps = 0;
    while (count > 0) {
        if (ring->gone || rlw_shared_load(&shm->dead)) return done ? done : -EPIPE;
        sent = rlw_ring_write(ring, (const uint8_t *)parts->iov_base + offset,
                              parts->iov_len - offset);
        if (sent < 0) return -EPROTO;
        offset += (size_t)sent;
        done += sent;
        if (sent) woken = naps = 0;
        if (offset == parts->iov_len) {
            parts++;
            count--;
            offset = 0;
            continue;
        }
        if (!woken) {
            woken = 1;
            rlw_shm_wake(shm, side, &mine->at);
            continue;
        }
        if (seconds == 0) return done ? done : -EAGAIN;
        if (until == -2) until = rlw_shm_until(seconds);
        error = rlw_shm_sleep(shm, ring, mine, side, until, &naps);
        if (error) return done ? done : error;
    }
    if (!woken) rlw_shm_wake(shm, side, &mine->at);
    return done;
}

/* Sends one buffer, like rlw_shm_sendv(). */
static inline int64_t rlw_shm_send(rlw_shm *shm, const void *data, size_t size, double seconds) {
    struct iovec part;
    part.iov_base = (void *)(uintptr_t)data;
    part.iov_len = size;
    return rlw_shm_sendv(shm, &part, 1, seconds);
}

/* Returns whether a read would return at once, including the end or an error. */
static inline int rlw_shm_readable(rlw_shm *shm) {
    return rlw_ring_ready(&shm->in) != 0 || shm->in.gone ||
           rlw_shared_load(&shm->deaf) || rlw_shared_load(&shm->dead);
}

/* Returns whether a write would send at once, or fail. */
static inline int rlw_shm_writable(rlw_shm *shm) {
    return rlw_ring_room(&shm->out) != 0 || shm->out.gone ||
           rlw_shared_load(&shm->dead);
}

/* Clears the socket, and requests that it becomes readable with data. Returns rlw_shm_readable(). */
static inline int rlw_shm_poll_in(rlw_shm *shm) {
    rlw_shm_hush(shm);
    rlw_shared_store(&shm->in.words->reader.waits, RLW_RING_POLLS);
    return rlw_shm_readable(shm);
}

/* Does the same for writing, without clearing the socket. */
static inline int rlw_shm_poll_out(rlw_shm *shm) {
    rlw_shared_store(&shm->out.words->writer.waits, RLW_RING_POLLS);
    return rlw_shm_writable(shm);
}

/* Ends the stream to the peer. */
static inline void rlw_shm_end(rlw_shm *shm) {
    rlw_ring_leave(&shm->out, &shm->out.words->writer);
    rlw_shm_wake(shm, &shm->out.words->reader, &shm->out.words->writer.at);
}

/* Stops receiving. A receive in another thread returns. */
static inline void rlw_shm_stop(rlw_shm *shm) {
    rlw_shared_store(&shm->deaf, 1);
    shutdown(shm->file, SHUT_RD);
    rlw_shm_futex_wake(&shm->in.words->writer.at);
}

/* Unmaps the memory without a message to the peer, in a forked child. */
static inline void rlw_shm_forget(rlw_shm *shm) {
    if (!shm->in.words) return;
    munmap(shm->in.words, (size_t)shm->in.size + RLW_RING_DATA);
    munmap(shm->out.words, (size_t)shm->out.size + RLW_RING_DATA);
    shm->in.words = shm->out.words = NULL;
}

/* Closes both directions and unmaps the memory; the caller closes the socket. */
static inline void rlw_shm_close(rlw_shm *shm) {
    if (!shm->in.words) return;
    rlw_shm_end(shm);
    rlw_ring_leave(&shm->in, &shm->in.words->reader);
    rlw_shm_wake(shm, &shm->in.words->writer, &shm->in.words->reader.at);
    rlw_shm_forget(shm);
}

/* ---- handshake ------------------------------------------------------------------------------- */

/* Returns -EACCES if the peer of a unix socket is a process of another user. */
static inline int rlw_shm_check_user(int file) {
    struct ucred other;
    socklen_t size = sizeof other;
    if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &other, &size)) return -errno;
    return other.uid == geteuid() ? 0 : -EACCES;
}

/* Checks the peer's words. Returns 0, the peer's errno, or -EPROTO. */
static inline int rlw_shm_check_words(const rlw_shm_words *words) {
    if (words->magic != RLW_SHM_MAGIC || words->version != RLW_SHM_VERSION) return -EPROTO;
    if (words->error) return words->error < 4096 ? -(int)words->error : -EPROTO;
    return rlw_ring_can_be(words->to_server) && rlw_ring_can_be(words->to_client) ? 0 : -EPROTO;
}

/* Requests rings of `ring` bytes from a server at a connected unix socket; 0 means RLW_SHM_RING. */
static inline int rlw_shm_ask(int file, uint32_t ring) {
    rlw_shm_words words;
    int error = rlw_shm_check_user(file);
    if (error) return error;
    memset(&words, 0, sizeof words);
    words.magic = RLW_SHM_MAGIC;
    words.version = RLW_SHM_VERSION;
    words.to_server = words.to_client = ring ? ring : RLW_SHM_RING;
    return send(file, &words, sizeof words, MSG_NOSIGNAL) == (ssize_t)sizeof words ? 0 : -EPIPE;
}

/* Receives the server's reply, and opens the client's end. */
static inline int rlw_shm_meet(rlw_shm *shm, int file) {
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } beside;
    rlw_shm_words words;
    struct iovec bytes;
    struct msghdr message;
    struct cmsghdr *found;
    int files[2] = {-1, -1}, count = 0, error;
    ssize_t got;
    memset(&message, 0, sizeof message);
    bytes.iov_base = &words;
    bytes.iov_len = sizeof words;
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = &beside;
    message.msg_controllen = sizeof beside;
    got = recvmsg(file, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    if (got < 0) return -errno;
    if (got == 0) return -ECONNRESET;
    found = CMSG_FIRSTHDR(&message);
    if (found && found->cmsg_level == SOL_SOCKET && found->cmsg_type == SCM_RIGHTS) {
        count = (int)((found->cmsg_len - CMSG_LEN(0)) / sizeof(int)); /* the union has room for 2 */
        memcpy(files, CMSG_DATA(found), (size_t)count * sizeof(int));
    }
    error = got == (ssize_t)sizeof words ? rlw_shm_check_words(&words) : -EPROTO;
    if (!error && count != 2) error = -EPROTO;
    if (!error) error = rlw_shm_open(shm, file, files[1], words.to_client, files[0], words.to_server);
    if (files[0] >= 0) close(files[0]);
    if (files[1] >= 0) close(files[1]);
    return error;
}

/* Connects to a server at a connected, blocking unix socket: rlw_shm_ask() and rlw_shm_meet(). */
static inline int rlw_shm_connect(rlw_shm *shm, int file, uint32_t ring) {
    int error = rlw_shm_ask(file, ring);
    return error ? error : rlw_shm_meet(shm, file);
}

/* Sends a server's `words`, and two descriptors unless the words hold an error. */
static inline int rlw_shm_reply(int file, const rlw_shm_words *words, const int *files) {
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } beside;
    rlw_shm_words said = *words;
    struct iovec bytes;
    struct msghdr message;
    memset(&message, 0, sizeof message);
    memset(&beside, 0, sizeof beside);
    bytes.iov_base = &said;
    bytes.iov_len = sizeof said;
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (!words->error) {
        message.msg_control = &beside;
        message.msg_controllen = sizeof beside;
        beside.head.cmsg_level = SOL_SOCKET;
        beside.head.cmsg_type = SCM_RIGHTS;
        beside.head.cmsg_len = CMSG_LEN(2 * sizeof(int));
        memcpy(CMSG_DATA(&beside.head), files, 2 * sizeof(int));
    }
    return sendmsg(file, &message, MSG_NOSIGNAL) == (ssize_t)sizeof said ? 0 : -EPIPE;
}

/* Returns the granted size of a ring. */
static inline uint32_t rlw_shm_grant(uint32_t asked, uint32_t most) {
    uint32_t size = RLW_RING_LEAST;
    while (size < asked && size < most) size *= 2;
    return size;
}

/* Replies to a client's request at a unix socket, and opens the server's end. A ring has at most `most`
 * bytes, which must be a valid size. */
static inline int rlw_shm_answer(rlw_shm *shm, int file, const rlw_shm_words *asked, uint32_t most) {
    rlw_shm_words words = *asked;
    int files[2] = {-1, -1}, error = rlw_shm_check_user(file);
    if (!error && (words.magic != RLW_SHM_MAGIC || words.version != RLW_SHM_VERSION))
        error = -EPROTO;
    words.magic = RLW_SHM_MAGIC;
    words.version = RLW_SHM_VERSION;
    words.to_server = rlw_shm_grant(words.to_server, most);
    words.to_client = rlw_shm_grant(words.to_client, most);
    if (!error && (files[0] = rlw_shm_make(words.to_server)) < 0) error = files[0];
    if (!error && (files[1] = rlw_shm_make(words.to_client)) < 0) error = files[1];
    if (!error) error = rlw_shm_open(shm, file, files[0], words.to_server, files[1], words.to_client);
    words.error = (uint32_t)-error;
    if (error)
        (void)rlw_shm_reply(file, &words, files);
    else if ((error = rlw_shm_reply(file, &words, files)) != 0)
        rlw_shm_close(shm);
    if (files[0] >= 0) close(files[0]);
    if (files[1] >= 0) close(files[1]);
    return error;
}

/* Receives a client's request at an accepted, blocking unix socket, and calls rlw_shm_answer(). */
static inline int rlw_shm_accept(rlw_shm *shm, int file, uint32_t most) {
    rlw_shm_words words;
    ssize_t got = recv(file, &words, sizeof words, MSG_WAITALL);
    if (got < 0) return -errno;
    if (got != (ssize_t)sizeof words) return -EPROTO;
    return rlw_shm_answer(shm, file, &words, most ? most : RLW_SHM_RING);
}

#endif /* __linux__ */
#endif
