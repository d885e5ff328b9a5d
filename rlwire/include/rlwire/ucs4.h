/* UCS-4, as in NumPy's arrays of strings, to UTF-8 and back. */
#ifndef RLWIRE_UCS4_H
#define RLWIRE_UCS4_H

#include <stddef.h>
#include <stdint.h>

#define RLW_NOT_UNICODE SIZE_MAX

/* Returns the length without trailing NULs, which are padding. */
static inline size_t rlw_ucs4_trim(const uint32_t *text, size_t count) {
    while (count && text[count - 1] == 0) count--;
    return count;
}

/* Returns the bytes as UTF-8; RLW_NOT_UNICODE for a surrogate or a character above U+10FFFF. */
static inline size_t rlw_ucs4_size(const uint32_t *text, size_t count) {
    size_t size = 0, i;
    int bad = 0;
    for (i = 0; i < count; i++) {
        uint32_t c = text[i];
        size += 1u + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
        bad |= c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF);
    }
    return bad ? RLW_NOT_UNICODE : size;
}

/* Stores characters checked by rlw_ucs4_size(); returns the position after them. Stops before
 * a character that does not fit, or that has become invalid since the check. */
static inline uint8_t *rlw_ucs4_to_utf8(uint8_t *to, const uint8_t *end, const uint32_t *text,
                                        size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        uint32_t c = text[i];
        size_t room = (size_t)(end - to);
        if (c < 0x80 && room >= 1) {
            *to++ = (uint8_t)c;
        } else if (c < 0x800 && room >= 2) {
            *to++ = (uint8_t)(0xC0 | c >> 6);
            *to++ = (uint8_t)(0x80 | (c & 0x3F));
        } else if (c < 0x10000 && room >= 3 && (c < 0xD800 || c > 0xDFFF)) {
            *to++ = (uint8_t)(0xE0 | c >> 12);
            *to++ = (uint8_t)(0x80 | (c >> 6 & 0x3F));
            *to++ = (uint8_t)(0x80 | (c & 0x3F));
        } else if (c >= 0x10000 && c <= 0x10FFFF && room >= 4) {
            *to++ = (uint8_t)(0xF0 | c >> 18);
            *to++ = (uint8_t)(0x80 | (c >> 12 & 0x3F));
            *to++ = (uint8_t)(0x80 | (c >> 6 & 0x3F));
            *to++ = (uint8_t)(0x80 | (c & 0x3F));
        } else {
            break;
        }
    }
    return to;
}

/* Returns the number of characters in well-formed UTF-8. */
static inline size_t rlw_utf8_length(const uint8_t *data, size_t size) {
    size_t length = 0, i;
    for (i = 0; i < size; i++) length += (data[i] & 0xC0) != 0x80;
    return length;
}

/* Reads the next character of UTF-8 checked by rlw_utf8_check(), and advances `*p`, which is below
 * `end`. Invalid bytes give other characters, but no access out of bounds. */
static inline uint32_t rlw_utf8_next(const uint8_t **p, const uint8_t *end) {
    uint32_t c = *(*p)++;
    unsigned more = c < 0xC0 ? 0 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
    if (more) c &= 0x3Fu >> more;
    for (; more && *p < end; more--) c = c << 6 | (*(*p)++ & 0x3Fu);
    return c > 0x10FFFF ? 0xFFFD : c;
}

/* Stores at most `room` characters of such UTF-8; returns how many. */
static inline size_t rlw_utf8_to_ucs4(const uint8_t *data, size_t size, uint32_t *out,
                                      size_t room) {
    const uint8_t *end = data + size;
    size_t length = 0;
    while (data < end && length < room) out[length++] = rlw_utf8_next(&data, end);
    return length;
}

#endif
