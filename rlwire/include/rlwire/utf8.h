/* UTF-8 checks, for a whole text and for one received in pieces. */
#ifndef RLWIRE_UTF8_H
#define RLWIRE_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns 1 if no byte has its high bit set. */
static inline int rlw_is_ascii(const uint8_t *p, size_t size) {
    uint64_t word, bits = 0;
    if (size >= 8) { /* the last word overlaps the one before it */
        const uint8_t *last = p + size - 8;
        for (; p < last; p += 8) {
            memcpy(&word, p, 8);
            bits |= word;
        }
        memcpy(&word, last, 8);
        bits |= word;
    } else if (size >= 4) {
        uint32_t first, last;
        memcpy(&first, p, 4);
        memcpy(&last, p + size - 4, 4);
        bits = first | last;
    } else if (size) {
        bits = p[0] | p[size / 2] | p[size - 1];
    }
    return (bits & UINT64_C(0x8080808080808080)) == 0;
}

/* State of a text received in pieces; all zero at its start and between characters. */
typedef struct rlw_utf8_state {
    uint8_t more; /* bytes missing from the current character */
    uint8_t low;  /* range of its next byte */
    uint8_t high;
} rlw_utf8_state;

/* Begins a character of several bytes; returns whether it may begin with this one. */
static inline int rlw_utf8_begin(rlw_utf8_state *s, uint8_t lead) {
    s->more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    s->low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    s->high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return lead >= 0xC2 && lead <= 0xF4;
}

/* Returns the index of the first byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7:
 * no overlong forms, no surrogates, nothing above U+10FFFF), or `size`. */
static inline size_t rlw_utf8_check(const uint8_t *p, size_t size) {
    rlw_utf8_state s;
    uint64_t word;
    size_t i = 0, k;
    while (i < size) {
        if (p[i] < 0x80) {
            for (i++; i + 8 <= size; i += 8) {
                memcpy(&word, p + i, 8);
                if (word & UINT64_C(0x8080808080808080)) break;
            }
            continue;
        }
        if (!rlw_utf8_begin(&s, p[i]) || size - i <= s.more) return i;
        if (p[i + 1] < s.low || p[i + 1] > s.high) return i;
        for (k = 2; k <= s.more; k++)
            if ((p[i + k] & 0xC0) != 0x80) return i;
        i += (size_t)s.more + 1;
    }
    return size;
}

/* Checks the next piece. Returns the index of the first byte that makes the text ill-formed, or
 * `size`. A text may end only while s->more is 0. */
static inline size_t rlw_utf8_feed(rlw_utf8_state *s, const uint8_t *p, size_t size) {
    size_t i = 0;
    for (;;) {
        for (; s->more; s->more--, i++) {
            if (i == size) return size;
            if (p[i] < s->low || p[i] > s->high) return i;
            s->low = 0x80;
            s->high = 0xBF;
        }
        i += rlw_utf8_check(p + i, size - i);
        if (i == size || !rlw_utf8_begin(s, p[i])) return i;
        i++;
    }
}

#endif
