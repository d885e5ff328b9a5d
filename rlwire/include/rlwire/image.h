/* Pillow's image modes: what one pixel takes, and the scaling that RELAAX's decoder does. */
#ifndef RLWIRE_IMAGE_H
#define RLWIRE_IMAGE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct rlw_image_mode {
    char name[8];
    uint8_t channels;
    uint8_t itemsize; /* bytes a channel; 0: one bit a pixel, rows padded to whole bytes */
    char kind;        /* NumPy's kind of a channel */
    char order;       /* '<', '>', '|' */
    uint8_t scaled;   /* RELAAX decodes it to float32 times 1/255 */
} rlw_image_mode;

/* The mode of that name, or NULL. "I;16N" is native order there; here it is little-endian. */
static inline const rlw_image_mode *rlw_image_mode_find(const uint8_t *name, size_t size) {
    static const rlw_image_mode modes[] = {
        {"RGB", 3, 1, 'u', '|', 1},    {"L", 1, 1, 'u', '|', 1},
        {"RGBA", 4, 1, 'u', '|', 1},   {"P", 1, 1, 'u', '|', 0},
        {"1", 1, 0, 'b', '|', 0},      {"CMYK", 4, 1, 'u', '|', 1},
        {"YCbCr", 3, 1, 'u', '|', 1},  {"LAB", 3, 1, 'u', '|', 1},
        {"HSV", 3, 1, 'u', '|', 1},    {"I", 1, 4, 'i', '<', 0},
        {"F", 1, 4, 'f', '<', 0},      {"LA", 2, 1, 'u', '|', 0},
        {"PA", 2, 1, 'u', '|', 0},     {"RGBX", 4, 1, 'u', '|', 0},
        {"RGBa", 4, 1, 'u', '|', 0},   {"La", 2, 1, 'u', '|', 0},
        {"I;16", 1, 2, 'u', '<', 0},   {"I;16L", 1, 2, 'u', '<', 0},
        {"I;16B", 1, 2, 'u', '>', 0},  {"I;16N", 1, 2, 'u', '<', 0},
    };
    size_t i;
    if (size == 0 || size >= sizeof modes[0].name) return NULL;
    for (i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strlen(modes[i].name) == size && memcmp(modes[i].name, name, size) == 0)
            return &modes[i];
    return NULL;
}

/* Bytes of `width` x `height` pixels. Does not overflow: each factor is below 2**32. */
static inline uint64_t rlw_image_bytes(const rlw_image_mode *mode, uint32_t width,
                                       uint32_t height) {
    uint64_t row;
    if (mode->itemsize == 0) return ((uint64_t)width + 7) / 8 * height;
    row = (uint64_t)width * (uint64_t)(mode->channels * mode->itemsize);
    if (height && row > UINT64_MAX / height) return UINT64_MAX;
    return row * height;
}

/* What numpy makes of `pixels.astype(float32) * (1.0 / 255.0)`, to the bit. */
static inline void rlw_unit_floats(const uint8_t *pixels, size_t count, float *out) {
    const float scale = (float)(1.0 / 255.0);
    size_t i;
    for (i = 0; i < count; i++) out[i] = (float)pixels[i] * scale;
}

/* One bit a pixel, most significant first, rows padded to bytes -> one byte (0, 1) a pixel. */
static inline void rlw_unpack_bits(const uint8_t *bits, uint32_t width, uint32_t height,
                                   uint8_t *out) {
    size_t stride = ((size_t)width + 7) / 8;
    uint32_t x, y;
    if (width == 0) return; /* of rows without pixels a few bytes can announce billions */
    for (y = 0; y < height; y++, bits += stride)
        for (x = 0; x < width; x++) *out++ = (uint8_t)(bits[x / 8] >> (7 - x % 8) & 1);
}

#endif
