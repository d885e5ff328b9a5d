/* Pillow's image modes: the layout of a pixel, and the scaling that RELAAX's decoder applies. */
#ifndef RLWIRE_IMAGE_H
#define RLWIRE_IMAGE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct rlw_image_mode {
    char name[8];
    uint8_t channels;
    uint8_t itemsize; /* bytes per channel; 0: one bit per pixel, rows padded to whole bytes */
    char kind;        /* NumPy's kind for a channel */
    char order;       /* '<', '>', '|' */
    uint8_t scaled;   /* 1: RELAAX decodes it to float32 times 1/255 */
} rlw_image_mode;

/* Returns the mode with this name, or NULL. Pillow's native "I;16N" is little-endian here. */
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

/* Returns the bytes of `width` x `height` pixels, or UINT64_MAX if they overflow. */
static inline uint64_t rlw_image_bytes(const rlw_image_mode *mode, uint32_t width,
                                       uint32_t height) {
    uint64_t row;
    if (mode->itemsize == 0) return ((uint64_t)width + 7) / 8 * height;
    row = (uint64_t)width * (uint64_t)(mode->channels * mode->itemsize);
    if (height && row > UINT64_MAX / height) return UINT64_MAX;
    return row * height;
}

/* Computes NumPy's `pixels.astype(float32) * (1.0 / 255.0)`, bit for bit. */
static inline void rlw_unit_floats(const uint8_t *pixels, size_t count, float *out) {
    const float scale = (float)(1.0 / 255.0);
    size_t i;
    for (i = 0; i < count; i++) out[i] = (float)pixels[i] * scale;
}

/* Expands one bit per pixel, most significant first, rows padded to bytes, to one byte (0 or 1). */
static inline void rlw_unpack_bits(const uint8_t *bits, uint32_t width, uint32_t height,
                                   uint8_t *out) {
    size_t stride = ((size_t)width + 7) / 8;
    uint32_t x, y;
    if (width == 0) return; /* a few bytes can announce billions of rows without pixels */
    for (y = 0; y < height; y++, bits += stride)
        for (x = 0; x < width; x++) *out++ = (uint8_t)(bits[x / 8] >> (7 - x % 8) & 1);
}

#endif
