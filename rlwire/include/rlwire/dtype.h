/* NumPy's names of plain dtypes: "float32", ">f4", "<U5", "datetime64[ns]".
 *
 * The grammar is closed: it has no object, void, structured or sub-array dtypes, so nothing that
 * it accepts can run code or hold a reference.
 */
#ifndef RLWIRE_DTYPE_H
#define RLWIRE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct rlw_dtype {
    char kind;         /* NumPy's: b i u f c S U M m */
    char order;        /* '<', '>', or '|' where byte order does not apply */
    uint32_t itemsize; /* bytes; never 0 */
} rlw_dtype;

static inline int rlw_dtype_set(rlw_dtype *out, char kind, char order, uint32_t itemsize) {
    out->kind = kind;
    out->order = itemsize == 1 || kind == 'S' ? '|' : order;
    out->itemsize = itemsize;
    return 1;
}

/* Checks a unit of datetime64: "", "[ns]" or "[25us]". */
static inline int rlw_dtype_is_unit(const char *p, size_t size) {
    static const char units[] = "|Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as|";
    size_t digits = 0, i;
    if (size == 0) return 1;
    if (size < 3 || p[0] != '[' || p[size - 1] != ']') return 0;
    p++;
    size -= 2;
    while (digits < size && p[digits] >= '0' && p[digits] <= '9') digits++;
    if (digits > 10 || (digits && p[0] == '0')) return 0; /* an int32; NumPy checks its range */
    p += digits;
    size -= digits;
    if (size < 1 || size > 2) return 0;
    for (i = 0; i + size + 2 < sizeof units; i++)
        if (units[i] == '|' && memcmp(units + i + 1, p, size) == 0 && units[i + 1 + size] == '|')
            return 1;
    return 0;
}

/* Parses names such as "float32": a word and a number of bits. */
static inline int rlw_dtype_parse_name(const char *p, size_t size, rlw_dtype *out) {
    static const struct {
        const char *word;
        uint8_t length;
        char kind;
    } words[] = {{"float", 5, 'f'}, {"int", 3, 'i'}, {"uint", 4, 'u'}, {"complex", 7, 'c'}};
    size_t w;
    if (size == 4 && memcmp(p, "bool", 4) == 0) return rlw_dtype_set(out, 'b', '|', 1);
    for (w = 0; w < sizeof words / sizeof *words; w++) {
        size_t length = words[w].length, i;
        uint32_t bits = 0, least, most;
        if (size <= length || size > length + 3 || memcmp(p, words[w].word, length) != 0) continue;
        for (i = length; i < size; i++) {
            if (p[i] < '0' || p[i] > '9') return 0;
            bits = bits * 10 + (uint32_t)(p[i] - '0');
        }
        if (p[length] == '0') return 0;
        least = words[w].kind == 'c' ? 64 : words[w].kind == 'f' ? 16 : 8;
        most = words[w].kind == 'c' ? 256 : words[w].kind == 'f' ? 128 : 64;
        if (bits < least || bits > most) return 0;
        /* Long doubles of 32-bit x86 have 96 bits, complex ones 192. */
        if ((bits & (bits - 1)) != 0 && bits != (words[w].kind == 'c' ? 192u : 96u)) return 0;
        return rlw_dtype_set(out, words[w].kind, '<', bits / 8);
    }
    if (size >= 10 && memcmp(p, "datetime64", 10) == 0 && rlw_dtype_is_unit(p + 10, size - 10))
        return rlw_dtype_set(out, 'M', '<', 8);
    if (size >= 11 && memcmp(p, "timedelta64", 11) == 0 && rlw_dtype_is_unit(p + 11, size - 11))
        return rlw_dtype_set(out, 'm', '<', 8);
    return 0;
}

/* Parses `text`; returns 1 on success. A name without a byte order is little-endian: the original
 * program packs in its host's order, and every known peer is little-endian. */
static inline int rlw_dtype_parse(const uint8_t *text, size_t size, rlw_dtype *out) {
    const char *p = (const char *)text;
    char order = '<', kind;
    uint64_t n = 0;
    size_t i;
    if (size == 0 || size > 64) return 0;
    if (p[0] >= 'a' && p[0] <= 'z' && size > 3 && p[1] >= 'a') /* not "m8[ns]" */
        return rlw_dtype_parse_name(p, size, out);
    if (p[0] == '<' || p[0] == '>' || p[0] == '|' || p[0] == '=') {
        order = p[0] == '>' ? '>' : '<';
        p++;
        size--;
    }
    if (size == 1 && p[0] == '?') return rlw_dtype_set(out, 'b', '|', 1);
    if (size < 2) return 0;
    kind = p[0];
    if ((kind == 'M' || kind == 'm') && p[1] == '8' && rlw_dtype_is_unit(p + 2, size - 2))
        return rlw_dtype_set(out, kind, order, 8);
    if (p[1] == '0') return 0;
    for (i = 1; i < size; i++) {
        if (p[i] < '0' || p[i] > '9' || n > 99999999) return 0;
        n = n * 10 + (uint64_t)(p[i] - '0');
    }
    switch (kind) {
    case 'b': return n == 1 && rlw_dtype_set(out, 'b', '|', 1);
    case 'i':
    case 'u':
        return (n == 1 || n == 2 || n == 4 || n == 8) &&
               rlw_dtype_set(out, kind, order, (uint32_t)n);
    case 'f':
        return (n == 2 || n == 4 || n == 8 || n == 12 || n == 16) &&
               rlw_dtype_set(out, kind, order, (uint32_t)n);
    case 'c':
        return (n == 8 || n == 16 || n == 24 || n == 32) &&
               rlw_dtype_set(out, kind, order, (uint32_t)n);
    case 'S': return rlw_dtype_set(out, 'S', '|', (uint32_t)n);
    case 'U': return rlw_dtype_set(out, 'U', order, (uint32_t)n * 4);
    default: return 0;
    }
}

#endif
