/* Netstrings: ASCII digits, a colon, that many bytes, a comma. */
#ifndef RLWIRE_NETSTRING_H
#define RLWIRE_NETSTRING_H

#include "cursor.h"
#include "writer.h"

#define RLW_NETSTRING_MOST ((UINT64_C(1) << 60) - 1)

/* Reads the prefix at c->at and sets `*size` to the size of the body; c->at is then the body's
 * first byte. A `limit` of 2**60 or more counts as 2**60 - 1, so that no sum of sizes overflows.
 * Returns RLW_NEED_MORE for an incomplete prefix. */
static inline rlw_status rlw_netstring_prefix(rlw_cursor *c, uint64_t limit, uint64_t *size) {
    const uint8_t *p = c->at;
    uint64_t n = 0;
    if (limit > RLW_NETSTRING_MOST) limit = RLW_NETSTRING_MOST;
    for (; p < c->end && *p != ':'; p++) {
        if (*p < '0' || *p > '9' || (n == 0 && p > c->at))
            return rlw_fail(c, RLW_BAD_PREFIX, c->at, *p, 0);
        n = n * 10 + (uint64_t)(*p - '0');
        if (n > limit) return rlw_fail(c, RLW_OVER_MESSAGE, c->at, n, limit);
    }
    if (p == c->end) return rlw_fail(c, RLW_NEED_MORE, c->at, rlw_left(c) + 1, rlw_left(c));
    if (p == c->at) return rlw_fail(c, RLW_BAD_PREFIX, c->at, ':', 0);
    c->at = p + 1;
    *size = n;
    return RLW_OK;
}

/* Reads one whole netstring. */
static inline rlw_status rlw_netstring_read(rlw_cursor *c, uint64_t limit, const uint8_t **body,
                                            size_t *size) {
    const uint8_t *start = c->at, *first;
    uint64_t n = 0;
    RLW_TRY(rlw_netstring_prefix(c, limit, &n));
    first = c->at;
    c->at = start;
    if ((uint64_t)(c->end - first) < n + 1)
        return rlw_fail(c, RLW_NEED_MORE, start, (uint64_t)(first - start) + n + 1, rlw_left(c));
    if (first[n] != ',') return rlw_fail(c, RLW_BAD_END, first + n, first[n], 0);
    *body = first;
    *size = (size_t)n;
    c->at = first + n + 1;
    return RLW_OK;
}

/* Bytes of the longest prefix: 19 digits (a size below 2**60) and the colon. */
#define RLW_NETSTRING_ROOM 20

/* Writes "<size>:" so that it ends at `end`, in at most RLW_NETSTRING_ROOM bytes. Returns its first
 * byte. */
static inline uint8_t *rlw_netstring_prefix_before(uint8_t *end, uint64_t size) {
    *--end = ':';
    do {
        *--end = (uint8_t)('0' + size % 10);
        size /= 10;
    } while (size);
    return end;
}

#endif
