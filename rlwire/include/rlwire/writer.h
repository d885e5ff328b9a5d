/* A growable buffer. It can start in the caller's memory (such as a stack array) and moves to the
 * heap when that is full. rlw_writer_free() frees the heap memory.
 */
#ifndef RLWIRE_WRITER_H
#define RLWIRE_WRITER_H

#include <stddef.h>
#include <stdlib.h>

#include "endian.h"
#include "status.h"

typedef struct rlw_writer {
    uint8_t *start;
    uint8_t *at;
    uint8_t *end;
    int on_heap;
} rlw_writer;

/* `room` may be NULL with size 0. */
static inline void rlw_writer_init(rlw_writer *w, uint8_t *room, size_t size) {
    w->start = room;
    w->at = room;
    w->end = size ? room + size : room;
    w->on_heap = 0;
}

static inline void rlw_writer_free(rlw_writer *w) {
    if (w->on_heap) free(w->start);
    rlw_writer_init(w, NULL, 0);
}

static inline size_t rlw_written(const rlw_writer *w) {
    return w->start ? (size_t)(w->at - w->start) : 0;
}

/* Kept out of the fast path of rlw_reserve. */
static inline rlw_status rlw_writer_grow(rlw_writer *w, size_t size) {
    size_t used = rlw_written(w);
    size_t capacity = w->start ? (size_t)(w->end - w->start) : 0;
    uint8_t *grown;
    if (size > SIZE_MAX / 4 || used > SIZE_MAX / 4) return RLW_NO_MEMORY;
    capacity = 2 * capacity > used + size ? 2 * capacity : used + size + 256;
    grown = (uint8_t *)(w->on_heap ? realloc(w->start, capacity) : malloc(capacity));
    if (!grown) return RLW_NO_MEMORY;
    if (!w->on_heap && used) memcpy(grown, w->start, used);
    w->start = grown;
    w->at = grown + used;
    w->end = grown + capacity;
    w->on_heap = 1;
    return RLW_OK;
}

/* Ensures that `size` bytes can be stored at w->at. */
static inline rlw_status rlw_reserve(rlw_writer *w, size_t size) {
    if ((size_t)(w->end - w->at) >= size) return RLW_OK;
    return rlw_writer_grow(w, size);
}

static inline rlw_status rlw_put(rlw_writer *w, const void *data, size_t size) {
    if (rlw_reserve(w, size) != RLW_OK) return RLW_NO_MEMORY;
    if (size) memcpy(w->at, data, size);
    w->at += size;
    return RLW_OK;
}

static inline rlw_status rlw_put_u32le(rlw_writer *w, uint32_t value) {
    if (rlw_reserve(w, 4) != RLW_OK) return RLW_NO_MEMORY;
    rlw_store_u32le(w->at, value);
    w->at += 4;
    return RLW_OK;
}

#endif
