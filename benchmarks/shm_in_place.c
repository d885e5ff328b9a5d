/* What would it save to read an array where it lies in the ring, without the copy out of it?
 *
 *     shm_in_place BYTES SECONDS
 *
 * A child process answers each small request with an array of so many bytes, and the parent adds
 * its words up. Three ways take turns, in blocks: "copy" is rlwire's, into a block and from there;
 * "in place" adds up what lies in the ring, which the child may still change; "sealed" is the form
 * in which it may not: memory of its own for each array, which the writer gives up and seals before
 * it is passed. All spin. Prints the median nanoseconds of each.
 */
#include <rlwire/shm.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#define BLOCK 50
#define BLOCKS 20000
#define SPIN 1.0

enum { COPY, IN_PLACE, SEALED, WAYS };
static const char *const names[WAYS] = {"copy", "in place", "sealed"};
static uint8_t *room;
static volatile uint64_t sum;

static void must(int holds, const char *what) {
    if (holds) return;
    perror(what);
    exit(1);
}

static void add(const uint8_t *data, size_t size) {
    uint64_t total = 0, word;
    size_t at;
    for (at = 0; at + 8 <= size; at += 8) {
        memcpy(&word, data + at, 8);
        total += word;
    }
    sum += total;
}

static void give_sealed(int file, size_t size) {
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } beside;
    struct iovec byte = {"", 1};
    struct msghdr message = {0};
    int memory = memfd_create("array", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *data;
    must(memory >= 0 && !ftruncate(memory, (off_t)size), "memfd_create");
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
    must(data != MAP_FAILED, "mmap");
    memcpy(data, room, size);
    munmap(data, size);
    must(!fcntl(memory, F_ADD_SEALS, RLW_SHM_SEALS | F_SEAL_WRITE), "F_ADD_SEALS");
    memset(&beside, 0, sizeof beside);
    beside.head.cmsg_level = SOL_SOCKET;
    beside.head.cmsg_type = SCM_RIGHTS;
    beside.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&beside.head), &memory, sizeof(int));
    message.msg_iov = &byte;
    message.msg_iovlen = 1;
    message.msg_control = &beside;
    message.msg_controllen = sizeof beside;
    must(sendmsg(file, &message, MSG_NOSIGNAL) == 1, "sendmsg");
    close(memory);
}

static void take_sealed(int file, size_t size) {
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } beside;
    char rung;
    struct iovec byte = {&rung, 1};
    struct msghdr message = {0};
    struct stat found;
    int memory, seals;
    void *data;
    ssize_t got;
    message.msg_iov = &byte;
    message.msg_iovlen = 1;
    message.msg_control = &beside;
    message.msg_controllen = sizeof beside;
    while ((got = recvmsg(file, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0 && errno == EAGAIN)
        sched_yield();
    must(got == 1, "recvmsg");
    memcpy(&memory, CMSG_DATA(&beside.head), sizeof(int));
    seals = fcntl(memory, F_GET_SEALS);
    must(seals >= 0 && (seals & F_SEAL_WRITE) && !fstat(memory, &found), "the seals");
    must(found.st_size == (off_t)size, "the size");
    data = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_POPULATE, memory, 0);
    must(data != MAP_FAILED, "mmap");
    close(memory);
    add(data, size);
    munmap(data, size);
}

static void take_in_place(rlw_shm *shm, size_t size) {
    rlw_ring *ring = &shm->in;
    uint32_t at = ring->mine & (ring->size - 1);
    size_t first = ring->size - at < size ? ring->size - at : size;
    int64_t ready;
    while ((ready = rlw_ring_ready(ring)) >= 0 && (size_t)ready < size)
        rlw_shm_spin(shm, ring, &ring->words->writer, SPIN);
    must(ready >= 0, "the ring");
    add(ring->data + at, first);
    add(ring->data, size - first);
    rlw_ring_advance(ring, &ring->words->reader, (uint32_t)size);
    rlw_shm_wake(shm, &ring->words->writer, &ring->words->reader.at);
}

static void answer(rlw_shm *shm, size_t size) {
    char way;
    while (rlw_shm_recv(shm, &way, 1, 0, SPIN, -1) == 1) {
        if (way == SEALED)
            give_sealed(shm->file, size);
        else
            must(rlw_shm_send(shm, room, size, -1) == (int64_t)size, "send");
    }
}

static void ask(rlw_shm *shm, size_t size, char way) {
    must(rlw_shm_send(shm, &way, 1, -1) == 1, "send");
    if (way == SEALED) {
        take_sealed(shm->file, size);
    } else if (way == IN_PLACE) {
        take_in_place(shm, size);
    } else {
        must(rlw_shm_recv(shm, room, size, 1, SPIN, -1) == (int64_t)size, "recv");
        add(room, size);
    }
}

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int count, char **words) {
    static double taken[WAYS][BLOCKS];
    size_t size = count > 1 ? strtoull(words[1], NULL, 10) : 100800;
    double until = rlw_shm_now() + (count > 2 ? atof(words[2]) : 2), begun;
    uint32_t ring = 2 * RLW_SHM_RING;
    int files[2], blocks, way, each;
    pid_t child;
    rlw_shm shm;
    must(size > 0 && size <= ring, "BYTES");
    room = malloc(size);
    must(room && !socketpair(AF_UNIX, SOCK_STREAM, 0, files), "socketpair");
    memset(room, 7, size);
    child = fork();
    must(child >= 0, "fork");
    if (!child) {
        close(files[0]);
        must(!rlw_shm_accept(&shm, files[1], ring), "accept");
        answer(&shm, size);
        _exit(0);
    }
    close(files[1]);
    must(!rlw_shm_connect(&shm, files[0], ring), "connect");
    for (blocks = 0; blocks < BLOCKS && (blocks < 2 || rlw_shm_now() < until); blocks++)
        for (way = 0; way < WAYS; way++) {
            ask(&shm, size, (char)way); /* warms up */
            begun = rlw_shm_now();
            for (each = 0; each < BLOCK; each++) ask(&shm, size, (char)way);
            taken[way][blocks] = (rlw_shm_now() - begun) / BLOCK;
        }
    rlw_shm_close(&shm);
    must(waitpid(child, NULL, 0) == child, "waitpid");
    for (way = 0; way < WAYS; way++) {
        qsort(taken[way], (size_t)blocks, sizeof(double), by_size);
        printf("%s\t%.0f\n", names[way], 1e9 * taken[way][blocks / 2]);
    }
    return 0;
}
