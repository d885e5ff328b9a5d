/* A ring buffer in memory that two processes share: one writes, the other reads.
 *
 * Neither trusts the other. Each keeps its own position, reads the other's once, and checks it before
 * use. Invalid words are an error and never an access outside of the ring. Copy bytes out before you
 * decode them, since the writer could change them.
 *
 * The shared words are in the first RLW_RING_DATA bytes, before the ring. shm.h has the waiting.
 */
#ifndef RLWIRE_SHM_RING_H
#define RLWIRE_SHM_RING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define RLW_RING_STREAMS 1
#else
#define RLW_RING_STREAMS 0
#endif

#define RLW_RING_DATA 4096
#define RLW_RING_LEAST 4096
#define RLW_RING_MOST 0x40000000
#define RLW_RING_PIECE 65536
#define RLW_RING_STREAMED 16384 /* bytes of a piece from which a write bypasses the cache */
#define RLW_RING_GONE 0x80000000u

/* How a side waits, which decides how the other wakes it. */
enum { RLW_RING_AWAKE = 0, RLW_RING_SLEEPS = 1, RLW_RING_POLLS = 2 };

/* One side's words, in a cache line mostly its own. `at` is the number of bytes that it has written or
 * read, modulo 2**31, plus RLW_RING_GONE once it is closed. It is one word because it is a futex. */
typedef struct rlw_ring_side {
    uint32_t at;
    uint32_t waits;
    uint32_t unused[30];
} rlw_ring_side;

typedef struct rlw_ring_words {
    rlw_ring_side writer;
    rlw_ring_side reader;
} rlw_ring_words;

/* One end of a ring, in private memory. */
typedef struct rlw_ring {
    rlw_ring_words *words;
    uint8_t *data;
    uint32_t size;   /* bytes, a power of two */
    uint32_t mine;   /* this end's position */
    uint32_t theirs; /* the peer's position, as last read and checked */
    int gone;        /* whether the peer has closed */
} rlw_ring;

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
static inline uint32_t rlw_shared_load(uint32_t *word) {
    return (uint32_t)_InterlockedOr((volatile long *)word, 0);
}
static inline void rlw_shared_store(uint32_t *word, uint32_t value) {
    (void)_InterlockedExchange((volatile long *)word, (long)value);
}
static inline uint32_t rlw_shared_swap(uint32_t *word, uint32_t value) {
    return (uint32_t)_InterlockedExchange((volatile long *)word, (long)value);
}
#else
/* Sequentially consistent. */
static inline uint32_t rlw_shared_load(uint32_t *word) {
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}
static inline void rlw_shared_store(uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}
static inline uint32_t rlw_shared_swap(uint32_t *word, uint32_t value) {
    return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
}
#endif

/* Returns whether a ring's size is valid. */
static inline int rlw_ring_can_be(uint64_t size) {
    return size >= RLW_RING_LEAST && size <= RLW_RING_MOST && (size & (size - 1)) == 0;
}

/* Opens one end of a ring in RLW_RING_DATA + `size` bytes of memory, initially zero. */
static inline void rlw_ring_open(rlw_ring *ring, void *memory, uint32_t size) {
    ring->words = (rlw_ring_words *)memory;
    ring->data = (uint8_t *)memory + RLW_RING_DATA;
    ring->size = size;
    ring->mine = ring->theirs = 0;
    ring->gone = 0;
}

/* Returns the bytes from one position to a later one. */
static inline uint32_t rlw_ring_between(uint32_t from, uint32_t to) {
    return (to - from) & (RLW_RING_GONE - 1);
}

/* Reads the peer's position; returns -1 if it has moved by more than `most`. */
static inline int rlw_ring_look(rlw_ring *ring, rlw_ring_side *side, uint32_t most) {
    uint32_t word = rlw_shared_load(&side->at);
    uint32_t at = word & (RLW_RING_GONE - 1);
    if (rlw_ring_between(ring->theirs, at) > most) return -1;
    ring->theirs = at;
    if (word & RLW_RING_GONE) ring->gone = 1;
    return 0;
}

/* For the writer: returns the bytes of free space, or -1 if the reader's position is invalid. */
static inline int64_t rlw_ring_room(rlw_ring *ring) {
    uint32_t full = rlw_ring_between(ring->theirs, ring->mine);
    if (rlw_ring_look(ring, &ring->words->reader, full)) return -1;
    return ring->size - rlw_ring_between(ring->theirs, ring->mine);
}

/* For the reader: returns the bytes to read, or -1 if the writer's position is invalid. */
static inline int64_t rlw_ring_ready(rlw_ring *ring) {
    uint32_t most = ring->size - rlw_ring_between(ring->mine, ring->theirs);
    if (rlw_ring_look(ring, &ring->words->writer, most)) return -1;
    return rlw_ring_between(ring->mine, ring->theirs);
}

/* Advances and publishes this end's position. */
static inline void rlw_ring_advance(rlw_ring *ring, rlw_ring_side *side, uint32_t count) {
    ring->mine = (ring->mine + count) & (RLW_RING_GONE - 1);
    rlw_shared_store(&side->at, ring->mine);
}

/* Copies into the ring past the cache. The reader's core holds these lines since its last read, and
 * between distant cores each line costs more to take back and to send again than memory does. */
static inline void rlw_ring_stream(uint8_t *to, const uint8_t *from, size_t size) {
#if RLW_RING_STREAMS
    size_t head = (size_t)(-(uintptr_t)to & 15), at;
    if (size >= RLW_RING_STREAMED) {
        memcpy(to, from, head);
        to += head;
        from += head;
        size -= head;
        for (at = 0; at + 64 <= size; at += 64) {
            __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(from + at));
            __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + at + 16));
            __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + at + 32));
            __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + at + 48));
            _mm_stream_si128((__m128i *)(void *)(to + at), a);
            _mm_stream_si128((__m128i *)(void *)(to + at + 16), b);
            _mm_stream_si128((__m128i *)(void *)(to + at + 32), c);
            _mm_stream_si128((__m128i *)(void *)(to + at + 48), d);
        }
        to += at;
        from += at;
        size -= at;
        _mm_sfence(); /* streamed stores come before the position's */
    }
#endif
    memcpy(to, from, size);
}

/* Writes up to `size` bytes, in pieces, so that the reader can copy at the same time. Returns the
 * bytes written, or -1 if the reader's position is invalid. */
static inline int64_t rlw_ring_write(rlw_ring *ring, const void *data, size_t size) {
    const uint8_t *from = (const uint8_t *)data;
    int64_t room = rlw_ring_room(ring), done = 0;
    if (room < 0) return -1;
    if ((uint64_t)room > size) room = (int64_t)size;
    while (done < room) {
        uint32_t at = ring->mine & (ring->size - 1), piece = ring->size - at;
        if (piece > RLW_RING_PIECE) piece = RLW_RING_PIECE;
        if (piece > room - done) piece = (uint32_t)(room - done);
        rlw_ring_stream(ring->data + at, from + done, piece);
        rlw_ring_advance(ring, &ring->words->writer, piece);
        done += piece;
    }
    return done;
}

/* Reads up to `size` bytes. Returns the bytes read, or -1 if the writer's position is invalid. */
static inline int64_t rlw_ring_read(rlw_ring *ring, void *data, size_t size) {
    uint8_t *to = (uint8_t *)data;
    int64_t ready = rlw_ring_ready(ring), done = 0;
    if (ready < 0) return -1;
    if ((uint64_t)ready > size) ready = (int64_t)size;
    while (done < ready) {
        uint32_t at = ring->mine & (ring->size - 1), piece = ring->size - at;
        if (piece > RLW_RING_PIECE) piece = RLW_RING_PIECE;
        if (piece > ready - done) piece = (uint32_t)(ready - done);
        memcpy(to + done, ring->data + at, piece);
        rlw_ring_advance(ring, &ring->words->reader, piece);
        done += piece;
    }
    return done;
}

/* Closes this side. The peer can still read what was written. */
static inline void rlw_ring_leave(rlw_ring *ring, rlw_ring_side *side) {
    rlw_shared_store(&side->at, ring->mine | RLW_RING_GONE);
}

#endif
