/* shm_ring.h: bytes come out as they went in, around the end too; and busy-waiting of shm.h.
 * Impossible positions are fuzz_shm.c's. */
#include <rlwire/shm.h>

#include "harness.h"

#define SIZE 65536u /* so that writes bypass the cache, RLW_RING_STREAMED, or do not */

typedef struct ends {
    uint8_t *memory;
    rlw_ring writer, reader;
} ends;

static ends both(void) {
    static uint8_t zeros[RLW_RING_DATA + SIZE];
    ends e;
    e.memory = exact(zeros, sizeof zeros);
    rlw_ring_open(&e.writer, e.memory, SIZE);
    rlw_ring_open(&e.reader, e.memory, SIZE);
    return e;
}

CASE(sizes) {
    CHECK(rlw_ring_can_be(4096) && rlw_ring_can_be(RLW_RING_MOST));
    CHECK(!rlw_ring_can_be(0) && !rlw_ring_can_be(2048) && !rlw_ring_can_be(5000));
    CHECK(!rlw_ring_can_be(UINT64_C(0x80000000)) && !rlw_ring_can_be(UINT64_MAX));
    CHECK(offsetof(rlw_ring_words, reader) == 128 && offsetof(rlw_ring_side, waits) == 4);
}

CASE(around) {
    ends e = both();
    static uint8_t data[90000], got[90000];
    uint8_t next = 0, due = 0;
    uint64_t total = 0;
    int i;
    /* Near the end of the positions, too, which are modulo 2**31. */
    e.writer.mine = e.writer.theirs = e.reader.mine = e.reader.theirs = 0x7FFF0000u;
    e.writer.words->writer.at = e.writer.words->reader.at = 0x7FFF0000u;
    for (i = 0; i < 500; i++) {
        int64_t sent, have, k;
        uint8_t before = next;
        int64_t want = (int64_t)below(sizeof data), room = rlw_ring_room(&e.writer);
        for (k = 0; k < want; k++) data[k] = next++;
        sent = rlw_ring_write(&e.writer, data, (size_t)want);
        CHECK(sent == (want < room ? want : room));
        EQUAL(rlw_ring_room(&e.writer), room - sent);
        EQUAL(rlw_ring_ready(&e.reader), SIZE - room + sent);
        next = (uint8_t)(before + sent);
        have = rlw_ring_read(&e.reader, got, below(sizeof got));
        CHECK(have >= 0);
        EQUAL(rlw_ring_room(&e.writer), room - sent + have);
        for (k = 0; k < have; k++)
            if (got[k] != due++) break;
        EQUAL(k, have);
        total += (uint64_t)have;
    }
    CHECK(total > 100 * SIZE);
    release(e.memory);
}

CASE(who_is_gone) {
    ends e = both();
    uint8_t got[8];
    EQUAL(rlw_ring_write(&e.writer, "words", 5), 5);
    rlw_ring_leave(&e.writer, &e.writer.words->writer);
    EQUAL(rlw_ring_read(&e.reader, got, 8), 5);
    CHECK(e.reader.gone && memcmp(got, "words", 5) == 0);
    EQUAL(rlw_ring_read(&e.reader, got, 8), 0);
    rlw_ring_leave(&e.reader, &e.reader.words->reader);
    CHECK(rlw_ring_room(&e.writer) == SIZE && e.writer.gone);
    release(e.memory);
}

#if RLW_HAS_SHM
/* Who asks in vain asks seldom; who is answered asks again, each time. */
CASE(in_vain) {
    ends e = both();
    rlw_shm shm;
    rlw_ring_side *side = &e.reader.words->writer;
    int i, asked = 0;
    memset(&shm, 0, sizeof shm);
    for (i = 0; i < 20000; i++) {
        asked += !shm.skips;
        EQUAL(rlw_shm_spin(&shm, &e.reader, side, 1e-6), 0);
    }
    CHECK(asked >= 20000 / (int)(RLW_SHM_LOST + 1) && asked < 20000 / 8);
    EQUAL(rlw_ring_write(&e.writer, "words", 5), 5);
    for (i = 0; !rlw_shm_spin(&shm, &e.reader, side, 1e-6); i++) CHECK(i < (int)RLW_SHM_LOST);
    for (i = 0; i < 100; i++) EQUAL(rlw_shm_spin(&shm, &e.reader, side, 1e-6), 1);
    EQUAL(shm.vain, 0);
    shm.deaf = 1;
    e.reader.theirs = side->at;
    EQUAL(rlw_shm_spin(&shm, &e.reader, side, 3600), 1);
    release(e.memory);
}

CASE(a_sleep_lasts_until_its_deadline) {
    ends e = both();
    rlw_shm shm;
    double until = rlw_shm_now() + 0.02;
    int naps = 0;
    memset(&shm, 0, sizeof shm);
    shm.file = -1;
    EQUAL(rlw_shm_sleep(&shm, &e.reader, &e.reader.words->reader, &e.reader.words->writer, until,
                        &naps), -EAGAIN);
    CHECK(rlw_shm_now() > until - 1e-6);
    release(e.memory);
}
#endif
