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

/* Returns the index of the first byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7:
 * no overlong forms, no surrogates, nothing above U+10FFFF), or `size`. */
static inline size_t rlw_utf8_check(const uint8_t *p, size_t size) {
    size_t i = 0;
    while (i < size) {
        uint8_t lead = p[i], low = 0x80, high = 0xBF;
        size_t more, k;
        if (lead < 0x80) {
            i++;
            continue;
        }
        if (lead >= 0xC2 && lead <= 0xDF) {
            more = 1;
        } else if (lead >= 0xE0 && lead <= 0xEF) {
            more = 2;
            if (lead == 0xE0) low = 0xA0;
            if (lead == 0xED) high = 0x9F;
        } else if (lead >= 0xF0 && lead <= 0xF4) {
            more = 3;
            if (lead == 0xF0) low = 0x90;
            if (lead == 0xF4) high = 0x8F;
        } else {
            return i;
        }
        if (size - i <= more) return i;
        if (p[i + 1] < low || p[i + 1] > high) return i;
        for (k = 2; k <= more; k++)
            if (p[i + k] < 0x80 || p[i + k] > 0xBF) return i;
        i += more + 1;
    }
    return size;
}

/* State of a text received in pieces; all zero at its start and between characters. */
typedef struct rlw_utf8_state {
    uint8_t more; /* bytes missing from the current character */
    uint8_t low;  /* range of its next byte */
    uint8_t high;
} rlw_utf8_state;

/* Checks the next piece. Returns the index of the first byte that makes the text ill-formed, or
 * `size`. A text may end only while s->more is 0. */
static inline size_t rlw_utf8_feed(rlw_utf8_state *s, const uint8_t *p, size_t size) {
    uint64_t word;
    size_t i = 0;
    while (i < size) {
        uint8_t byte = p[i];
        if (s->more) {
            if (byte < s->low || byte > s->high) return i;
            s->more--;
            s->low = 0x80;
            s->high = 0xBF;
            i++;
            continue;
        }
        if (byte < 0x80) {
            for (i++; i + 8 <= size; i += 8) {
                memcpy(&word, p + i, 8);
                if (word & UINT64_C(0x8080808080808080)) break;
            }
            continue;
        }
        s->low = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
        s->high = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
        if (byte < 0xC2 || byte > 0xF4) return i;
        s->more = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
        i++;
    }
    return size;
}

#endif
