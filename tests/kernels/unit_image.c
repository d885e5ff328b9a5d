/* image.h: the table of modes, sizes that do not overflow, bits and scaled bytes. */
#include "harness.h"

static const rlw_image_mode *find(const char *name, size_t size) {
    uint8_t *input = exact(name, size);
    const rlw_image_mode *mode = rlw_image_mode_find(input, size);
    release(input);
    return mode;
}

static void the_table(void) {
    static const struct {
        const char *name;
        uint64_t bytes; /* of 9 x 2 pixels */
        char kind, order;
        int scaled;
    } cases[] = {
        {"1", 4, 'b', '|', 0},      {"L", 18, 'u', '|', 1},     {"P", 18, 'u', '|', 0},
        {"RGB", 54, 'u', '|', 1},   {"RGBA", 72, 'u', '|', 1},  {"CMYK", 72, 'u', '|', 1},
        {"YCbCr", 54, 'u', '|', 1}, {"LAB", 54, 'u', '|', 1},   {"HSV", 54, 'u', '|', 1},
        {"I", 72, 'i', '<', 0},     {"F", 72, 'f', '<', 0},     {"LA", 36, 'u', '|', 0},
        {"PA", 36, 'u', '|', 0},    {"RGBX", 72, 'u', '|', 0},  {"RGBa", 72, 'u', '|', 0},
        {"La", 36, 'u', '|', 0},    {"I;16", 36, 'u', '<', 0},  {"I;16L", 36, 'u', '<', 0},
        {"I;16B", 36, 'u', '>', 0}, {"I;16N", 36, 'u', '<', 0},
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        const rlw_image_mode *mode = find(cases[i].name, strlen(cases[i].name));
        CHECK(mode != NULL);
        if (!mode) continue;
        CHECK(strcmp(mode->name, cases[i].name) == 0);
        EQUAL(rlw_image_bytes(mode, 9, 2), cases[i].bytes);
        EQUAL(mode->kind, cases[i].kind);
        EQUAL(mode->order, cases[i].order);
        EQUAL(mode->scaled, cases[i].scaled);
    }
}

static void no_other_name(void) {
    static const char *const names[] = {
        "",       "l",      "rgb",     "RG",       "RGBAA", "BGR;15",    "I;16BS", "I;16LS",
        "I;32",   "2",      "11",      "YCbC",     "YCbCrX", "YCbCr   ", " L",     "L ",
        "RGB\n",  "CMYKA",  "I;16NL",  "LABLABLA", "F;32F", "\xff",      "PALETTE",
    };
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(find(names[i], strlen(names[i])) == NULL);
    /* The table's names are padded with NULs, which are no part of them. */
    CHECK(find("L\0", 2) == NULL);
    CHECK(find("RGB\0\0", 5) == NULL);
    CHECK(find("I;16L\0\0", 7) == NULL);
    CHECK(find("\0", 1) == NULL);
    CHECK(find("\0\0\0\0\0\0\0", 7) == NULL);
    CHECK(find("L\0L", 3) == NULL);
}

static void sizes_do_not_overflow(void) {
    const rlw_image_mode *rgba = find("RGBA", 4), *bits = find("1", 1), *grey = find("L", 1);
    CHECK(rgba && bits && grey);
    if (!rgba || !bits || !grey) return;
    EQUAL(rlw_image_bytes(rgba, 0, 0), 0);
    EQUAL(rlw_image_bytes(rgba, UINT32_MAX, 0), 0);
    EQUAL(rlw_image_bytes(rgba, 0, UINT32_MAX), 0);
    EQUAL(rlw_image_bytes(rgba, UINT32_MAX, 1), 4 * (uint64_t)UINT32_MAX);
    EQUAL(rlw_image_bytes(grey, UINT32_MAX, UINT32_MAX), UINT64_C(18446744065119617025));
    EQUAL(rlw_image_bytes(rgba, UINT32_MAX, UINT32_MAX), UINT64_MAX);
    EQUAL(rlw_image_bytes(bits, UINT32_MAX, UINT32_MAX), UINT64_C(536870912) * UINT32_MAX);
    EQUAL(rlw_image_bytes(bits, 0, 5), 0);
    EQUAL(rlw_image_bytes(bits, 8, 5), 5);
    EQUAL(rlw_image_bytes(bits, 9, 5), 10);
}

static void bits_are_unpacked_row_by_row(void) {
    static const uint8_t packed[] = {0xA5, 0x80, 0x01, 0x7F}; /* 9 x 2; the padding is not zero */
    static const uint8_t pixels[] = {1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0};
    uint32_t width;
    uint8_t *in = exact(packed, sizeof packed);
    uint8_t *out = (uint8_t *)malloc(sizeof pixels);
    if (!out) exit(2);
    memset(out, 9, sizeof pixels);
    rlw_unpack_bits(in, 9, 2, out);
    CHECK(memcmp(out, pixels, sizeof pixels) == 0);
    release(in);
    free(out);
    for (width = 1; width <= 33; width++) { /* each pixel alone, in memory of exactly the size */
        size_t stride = (width + 7) / 8;
        uint32_t place;
        for (place = 0; place < 2 * width; place++) {
            uint8_t *rows = (uint8_t *)calloc(2, stride);
            uint8_t *flat = (uint8_t *)malloc(2 * (size_t)width);
            uint32_t i, sum = 0;
            if (!rows || !flat) exit(2);
            rows[place / width * stride + place % width / 8] = (uint8_t)(0x80 >> place % width % 8);
            rlw_unpack_bits(rows, width, 2, flat);
            for (i = 0; i < 2 * width; i++) sum += flat[i];
            CHECK(sum == 1 && flat[place] == 1);
            free(rows);
            free(flat);
        }
    }
    rlw_unpack_bits(NULL, 0, 0, NULL);
    rlw_unpack_bits(NULL, 0, 7, NULL);
}

static void bytes_become_unit_floats(void) {
    uint8_t pixels[256];
    float *out = (float *)malloc(sizeof(float) * 256);
    size_t i;
    if (!out) exit(2);
    for (i = 0; i < 256; i++) pixels[i] = (uint8_t)i;
    rlw_unit_floats(pixels, 256, out);
    for (i = 0; i < 256; i++) {
        float expected = (float)i * 0.003921568859368563f; /* float32(1 / 255), printed by NumPy */
        CHECK(memcmp(&out[i], &expected, sizeof expected) == 0);
    }
    CHECK(!(out[0] < 0.0f) && !(out[0] > 0.0f));
    CHECK(!(out[255] < 1.0f) && !(out[255] > 1.0f));
    free(out);
}

void image_suite(void) {
    RUN(the_table);
    RUN(no_other_name);
    RUN(sizes_do_not_overflow);
    RUN(bits_are_unpacked_row_by_row);
    RUN(bytes_become_unit_floats);
}
