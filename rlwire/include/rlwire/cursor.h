/* A bounds-checked reader. The cursor advances only on success. */
#ifndef RLWIRE_CURSOR_H
#define RLWIRE_CURSOR_H

#include <stddef.h>

#include "endian.h"
#include "status.h"

typedef struct rlw_cursor {
    const uint8_t *at;
    const uint8_t *end;
    rlw_fault fault; /* set whenever a kernel returns anything but RLW_OK */
} rlw_cursor;

/* `data` may be NULL with size 0. */
static inline void rlw_cursor_init(rlw_cursor *c, const uint8_t *data, size_t size) {
    c->at = data;
    c->end = size ? data + size : data;
    c->fault.status = RLW_OK;
    c->fault.at = data;
    c->fault.got = 0;
    c->fault.allowed = 0;
}

static inline size_t rlw_left(const rlw_cursor *c) { return (size_t)(c->end - c->at); }

static inline rlw_status rlw_fail(rlw_cursor *c, rlw_status status, const uint8_t *at,
                                  uint64_t got, uint64_t allowed) {
    c->fault.status = status;
    c->fault.at = at;
    c->fault.got = got;
    c->fault.allowed = allowed;
    return status;
}

/* Reads `size` bytes. Lengths stay unsigned, and are compared before the cursor moves. */
static inline rlw_status rlw_take(rlw_cursor *c, uint64_t size, const uint8_t **out) {
    if (size > rlw_left(c)) return rlw_fail(c, RLW_NEED_MORE, c->at, size, rlw_left(c));
    *out = c->at;
    c->at += size;
    return RLW_OK;
}

static inline rlw_status rlw_take_u8(rlw_cursor *c, uint8_t *out) {
    if (c->at == c->end) return rlw_fail(c, RLW_NEED_MORE, c->at, 1, 0);
    *out = *c->at++;
    return RLW_OK;
}

static inline rlw_status rlw_take_u32le(rlw_cursor *c, uint32_t *out) {
    if (rlw_left(c) < 4) return rlw_fail(c, RLW_NEED_MORE, c->at, 4, rlw_left(c));
    *out = rlw_load_u32le(c->at);
    c->at += 4;
    return RLW_OK;
}

#endif
