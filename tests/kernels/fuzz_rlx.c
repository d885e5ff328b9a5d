/* Mutates RLX messages and feeds them to the kernels; fuzz.h tells how it is run. */
#define FUZZ_BEGIN begin
#include "fuzz.h"

#define DEEPEST 500

static uint64_t found_count;

/* Whether the input is a frame, and the bytes before its message. */
static int framed;
static size_t shift;

/* ---- mutations that know RLX ---- */

static uint32_t odd_number(void) {
    static const uint32_t odd[] = {
        0,          1,          2,          3,          4,          5,          11,
        12,         31,         32,         33,         63,         64,         65,
        127,        128,        255,        256,        65535,      65536,      1u << 20,
        1048577,    1u << 24,   16777217,   1u << 26,   67108865,   1u << 30,   0x3FFFFFFF,
        0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFC, 0xFFFFFFFE, 0xFFFFFFFF, 1000000001,
    };
    return odd[below(sizeof odd / sizeof *odd)];
}

static void edit_number(size_t at) {
    uint8_t bytes[4];
    uint32_t old, value;
    if (at + 4 > input_size) return;
    old = rlw_load_u32le(input + at);
    switch (below(4)) {
    case 0: value = (uint32_t)(input_size - at - 4) + (uint32_t)below(5) - 2; break;
    case 1: value = old + (uint32_t)below(5) - 2; break;
    case 2: value = old << below(32); break;
    default: value = odd_number(); break;
    }
    rlw_store_u32le(bytes, value);
    replace(at, 4, bytes, 4);
}

static void nest(size_t at) { /* lists in lists in lists, or dictionaries */
    uint8_t bytes[9] = {8, 1, 0, 0, 0, 0, 0, 0, 0};
    size_t each = 5, levels = 1 + below(below(8) ? 6 : 600);
    if (below(2)) {
        bytes[0] = 11;
        each = 9;
    }
    while (levels--) replace(at, 0, bytes, each);
}

static void edit_prefix(void) { /* of a frame */
    static const char *const odd[] = {"0",  "00", "-", "+", " ", ":", "", "1000000000000",
                                      "18446744073709551616", "1000000001", "9", "x", ","};
    const char *text = odd[below(sizeof odd / sizeof *odd)];
    size_t at = below(5), cut = below(3); /* compilers differ in the order of arguments */
    replace(at, cut, (const uint8_t *)text, strlen(text));
}

static void mutate(void) {
    static const uint8_t odd_bytes[] = {0,   1,   2,    3,    4,    5,    6,   7,  8,  9,
                                        10,  11,  12,   0x7F, 0x80, 0xC0, 0xED, 0xF4, 0xFF, ',',
                                        ':', '<', '>', '|',  'O',  'V',  'U'};
    size_t at = below(input_size + 1), mark = some_mark(shift);
    uint8_t byte;
    switch (below(framed ? 13 : 12)) {
    case 0:
    case 1: edit_number(mark); break;
    case 2: edit_number(at); break;
    case 3: /* another type for the same bytes */
        byte = (uint8_t)below(13);
        replace(mark, 1, &byte, 1);
        break;
    case 4: nest(origin->mark_count && below(4) ? mark : at); break;
    case 12: edit_prefix(); break;
    default: mutate_bytes(odd_bytes, sizeof odd_bytes); break;
    }
}

/* ---- an independent walk: no recursion, every byte of data touched, written out again ---- */

typedef struct level {
    uint32_t left;
    int keyed;
} level;

typedef struct walk {
    rlw_status status;
    size_t first_data; /* offset of the first array or image of `least` bytes; 0: none */
    uint32_t deepest;
} walk;

static rlw_status put_value(rlw_writer *w, const rlw_rlx_value *v) {
    uint32_t shape[32], i;
    switch (v->type) {
    case RLW_RLX_NONE:
    case RLW_RLX_NULL: return rlw_rlx_put_type(w, v->type);
    case RLW_RLX_INT4: return rlw_rlx_put_int4(w, (int32_t)v->as.integer);
    case RLW_RLX_UINT4: return rlw_rlx_put_u32_as(w, v->type, (uint32_t)v->as.integer);
    case RLW_RLX_INT64: return rlw_rlx_put_int64(w, v->as.integer);
    case RLW_RLX_DOUBLE: return rlw_rlx_put_double(w, v->as.real);
    case RLW_RLX_BOOLEAN: return rlw_rlx_put_boolean(w, v->as.boolean);
    case RLW_RLX_STRING:
        return rlw_rlx_put_string(w, v->as.text.data, (uint32_t)v->as.text.size);
    case RLW_RLX_LIST: return rlw_rlx_put_list(w, v->as.count);
    case RLW_RLX_DICT: return rlw_rlx_put_dict(w, v->as.count);
    case RLW_RLX_NDARRAY:
        for (i = 0; i < v->as.array.dims; i++) shape[i] = rlw_load_u32le(v->as.array.shape + 4 * i);
        if (rlw_rlx_put_array_head(w, v->as.array.name.data,
                                   (uint32_t)v->as.array.name.size, v->as.array.dims, shape,
                                   (uint32_t)v->as.array.size) != RLW_OK)
            return RLW_NO_MEMORY;
        return rlw_put(w, v->as.array.data, v->as.array.size);
    case RLW_RLX_IMAGE:
        if (rlw_rlx_put_image_head(w, v->as.image.name.data, (uint32_t)v->as.image.name.size,
                                   v->as.image.width, v->as.image.height,
                                   (uint32_t)v->as.image.size) != RLW_OK)
            return RLW_NO_MEMORY;
        return rlw_put(w, v->as.image.data, v->as.image.size);
    }
    return RLW_NO_MEMORY;
}

static void convert_image(const rlw_rlx_image *image) {
    size_t pixels = (size_t)image->width * image->height;
    if (pixels > ROOM * 8) return; /* rows of no width may be many */
    if (image->mode->itemsize == 0) {
        uint8_t *out = (uint8_t *)memory(pixels);
        rlw_unpack_bits(image->data, image->width, image->height, out);
        MUST(add_up(out, pixels) <= pixels);
        free(out);
    } else if (image->mode->scaled) {
        float *out = (float *)memory(image->size * sizeof(float));
        size_t i;
        rlw_unit_floats(image->data, image->size, out);
        for (i = 0; i < image->size; i++) MUST(out[i] >= 0.0f && out[i] <= 1.0f);
        free(out);
    }
}

static void walk_over(rlw_rlx_reader *r, const uint8_t *start, size_t least, rlw_writer *w,
                      walk *out) {
    static level levels[DEEPEST + 1];
    uint32_t depth = 0;
    rlw_rlx_value v;
    rlw_text key;
    memset(out, 0, sizeof *out);
    if ((out->status = rlw_rlx_read_version(r)) != RLW_OK) return;
    for (;;) {
        const uint8_t *at = r->c.at;
        if (depth && levels[depth].left == 0) {
            depth--;
            continue;
        }
        if (depth == 0 && at == r->c.end) return;
        if (depth == 0 || levels[depth].keyed) {
            if ((out->status = rlw_rlx_read_text(r, &key)) != RLW_OK) return;
            if (depth == 0 && (out->status = rlw_rlx_count(r, at, 1)) != RLW_OK) return;
            touched += add_up(key.data, key.size);
            if (rlw_utf8_check(key.data, key.size) != key.size) {
                out->status = RLW_BAD_TEXT;
                return;
            }
            if (rlw_rlx_put_text(w, key.data, (uint32_t)key.size) != RLW_OK) exit(2);
        }
        if (depth) levels[depth].left--;
        at = r->c.at;
        if ((out->status = rlw_rlx_read(r, &v)) != RLW_OK) return;
        MUST(v.at == at && r->c.at > at && r->c.at <= r->c.end);
        if (put_value(w, &v) != RLW_OK) exit(2);
        if (v.type == RLW_RLX_STRING) {
            size_t bad = rlw_utf8_check(v.as.text.data, v.as.text.size);
            MUST(v.as.text.size <= r->limits.string);
            MUST(!rlw_is_ascii(v.as.text.data, v.as.text.size) || bad == v.as.text.size);
            if (bad != v.as.text.size) {
                out->status = RLW_BAD_TEXT;
                return;
            }
        } else if (v.type == RLW_RLX_NDARRAY) {
            MUST(v.as.array.dims <= r->limits.dims);
            MUST(v.as.array.data + v.as.array.size == r->c.at);
            MUST(v.as.array.size % v.as.array.dtype.itemsize == 0);
            touched += add_up(v.as.array.data, v.as.array.size);
            if (!out->first_data && v.as.array.size >= least)
                out->first_data = (size_t)(v.as.array.data - start);
        } else if (v.type == RLW_RLX_IMAGE) {
            MUST((uint64_t)v.as.image.width * v.as.image.height <= r->limits.pixels);
            MUST(v.as.image.data + v.as.image.size == r->c.at);
            convert_image(&v.as.image);
            touched += add_up(v.as.image.data, v.as.image.size);
            if (!out->first_data && v.as.image.size >= least)
                out->first_data = (size_t)(v.as.image.data - start);
        } else if (v.type == RLW_RLX_LIST || v.type == RLW_RLX_DICT) {
            if (depth >= r->limits.depth) {
                out->status = RLW_OVER_DEPTH;
                return;
            }
            depth++;
            MUST(depth <= r->limits.depth);
            MUST(r->items <= r->limits.items);
            if (depth > out->deepest) out->deepest = depth;
            levels[depth].left = v.as.count;
            levels[depth].keyed = v.type == RLW_RLX_DICT;
        }
    }
}

/* ---- feeding ---- */

/* A message without its frame, at `data` of exactly `size` bytes. */
static rlw_status feed_message(const uint8_t *data, size_t size, const rlw_rlx_limits *limits) {
    static rlw_writer w; /* keeps its memory from message to message */
    size_t least = below(8) ? below(40) : 4096, found;
    rlw_rlx_reader reader;
    rlw_status status;
    walk walked;

    rlw_rlx_reader_init(&reader, data, size, limits);
    if (rlw_rlx_begin(&w) != RLW_OK) exit(2);
    walk_over(&reader, data, least, &w, &walked);
    status = walked.status;
    if (status != RLW_BAD_TEXT && status != RLW_OVER_DEPTH)
        check_cursor(&reader.c, data, size, status);

    found = rlw_rlx_find_data(data, data, size, least, limits);
    MUST(found <= size);
    if (found) found_count++;

    if (status == RLW_OK) {
        const uint8_t *frame = NULL, *body = NULL;
        size_t frame_size = 0, body_size = 0;
        rlw_cursor c;
        MUST(reader.c.at == reader.c.end);
        MUST(reader.items <= limits->items && walked.deepest <= limits->depth);
        MUST(found == 0 || found == walked.first_data);
        /* Written again it is the same. */
        if (rlw_rlx_end(&w, &frame, &frame_size) != RLW_OK) exit(2);
        rlw_cursor_init(&c, frame, frame_size);
        MUST(rlw_netstring_read(&c, frame_size, &body, &body_size) == RLW_OK);
        MUST(c.at == c.end && body_size == size && memcmp(body, data, size) == 0);
        whole_count++;
    }
    return status;
}

/* Bytes as they come from a peer. */
static rlw_status feed_frame(const uint8_t *data, size_t size, const rlw_rlx_limits *limits) {
    static const uint64_t message_limits[] = {1000000000, 64, UINT64_MAX};
    uint64_t limit = message_limits[below(3)], announced = 0;
    const uint8_t *body = NULL;
    size_t body_size = 0;
    rlw_status status;
    rlw_cursor c;
    rlw_cursor_init(&c, data, size);
    status = rlw_netstring_prefix(&c, limit, &announced);
    check_cursor(&c, data, size, status);
    if (status == RLW_OK) {
        MUST(announced <= limit && c.at[-1] == ':');
        /* What a connection does with the beginning of a frame. */
        MUST(rlw_rlx_find_data(data, c.at, rlw_left(&c), below(40), limits) <= size);
    }
    rlw_cursor_init(&c, data, size);
    status = rlw_netstring_read(&c, limit, &body, &body_size);
    check_cursor(&c, data, size, status);
    if (status != RLW_OK) {
        MUST(c.at == data);
        return status;
    }
    MUST(body > data && body + body_size + 1 == c.at && c.at[-1] == ',');
    if (c.at != c.end) { /* the next frame's bytes: not the kernels' business, but the codec's */
        return rlw_fail(&c, RLW_TRAILING, c.at, rlw_left(&c), 0);
    }
    {
        uint8_t *alone = exact(body, body_size);
        status = feed_message(alone, body_size, limits);
        release(alone);
    }
    return status;
}

static void feed_dtype(void) {
    static const char *const names[] = {"float32", ">f8", "bool", "|S5", "<U12", "datetime64[ns]",
                                        "<m8[25us]", "complex128", "uint8", "<f4,<f4", "V8", "O"};
    const char *name = names[below(sizeof names / sizeof *names)];
    size_t edits = below(3);
    uint8_t *text;
    rlw_dtype d;
    input_size = strlen(name);
    memcpy(input, name, input_size);
    while (edits--) {
        static const char letters[] = "0123456789<>|=biufcSUmM[]OV,( s";
        uint8_t byte = (uint8_t)letters[below(sizeof letters)];
        size_t at = below(input_size + 1), cut = below(3);
        replace(at, cut, &byte, below(2));
    }
    text = exact(input, input_size);
    current = text;
    current_size = input_size;
    if (rlw_dtype_parse(text, input_size, &d)) {
        MUST(d.itemsize > 0);
        MUST(d.kind != 0 && strchr("biufcSUmM", d.kind) != NULL);
        MUST(d.order != 0 && strchr("<>|", d.order) != NULL);
        MUST(!memchr(text, 'O', input_size) && !memchr(text, 'V', input_size));
        MUST(!memchr(text, ',', input_size) && !memchr(text, '(', input_size));
    }
    release(text);
}

static void choose_limits(rlw_rlx_limits *limits) {
    static const rlw_rlx_limits defaults = RLW_RLX_DEFAULT_LIMITS;
    *limits = defaults;
    if (below(2)) return;
    if (below(2)) limits->items = below(20);
    if (below(2)) limits->string = below(20);
    if (below(2)) limits->pixels = below(40);
    if (below(2)) limits->depth = (uint32_t)below(5);
    if (below(2)) limits->dims = (uint32_t)below(4);
    if (!below(8)) limits->depth = DEEPEST;
}

static void begin(void) {
    begin_with_origin();
    framed = below(4) == 0;
    shift = 0;
    if (framed) {
        uint8_t room[RLW_NETSTRING_ROOM];
        uint8_t *prefix = rlw_netstring_prefix_before(room + sizeof room, input_size);
        shift = (size_t)(room + sizeof room - prefix);
        replace(0, 0, prefix, shift);
        replace(input_size, 0, (const uint8_t *)",", 1);
    }
}

static rlw_status feed(const uint8_t *bytes, size_t size) {
    rlw_rlx_limits limits;
    if (below(16) == 0) feed_dtype();
    current = bytes;
    current_size = size;
    choose_limits(&limits);
    return framed ? feed_frame(bytes, size, &limits) : feed_message(bytes, size, &limits);
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    static const rlw_rlx_limits limits = RLW_RLX_DEFAULT_LIMITS;
    rlw_status status = feed_message(bytes, size, &limits);
    if (size == s->size) MUST(status == RLW_OK);
    /* OK: it ends between two entries, which only a frame can tell. */
    MUST(status == RLW_OK || status == RLW_NEED_MORE || status == RLW_BAD_COUNT);
}

/* ---- the corpus ---- */

static void mark_value(sample *s, rlw_rlx_reader *r) {
    rlw_rlx_value v;
    rlw_text key;
    uint32_t i;
    size_t at = (size_t)(r->c.at - s->data);
    MUST(rlw_rlx_read(r, &v) == RLW_OK);
    mark(s, at);
    mark(s, at + 1);
    if (v.type == RLW_RLX_NDARRAY) {
        for (i = 0; i <= v.as.array.dims + 1; i++) /* dims, shape, size */
            mark(s, (size_t)(v.as.array.shape - s->data) - 4 + 4 * i);
    } else if (v.type == RLW_RLX_IMAGE) {
        for (i = 1; i <= 3; i++) mark(s, (size_t)(v.as.image.data - s->data) - 4 * i);
    } else if (v.type == RLW_RLX_LIST || v.type == RLW_RLX_DICT) {
        for (i = 0; i < v.as.count; i++) {
            if (v.type == RLW_RLX_DICT) {
                mark(s, (size_t)(r->c.at - s->data));
                MUST(rlw_rlx_read_text(r, &key) == RLW_OK);
            }
            mark_value(s, r);
        }
    }
}

static void mark_sample(sample *s) {
    static const rlw_rlx_limits limits = RLW_RLX_DEFAULT_LIMITS;
    rlw_rlx_reader r;
    rlw_text key;
    rlw_rlx_reader_init(&r, s->data, s->size, &limits);
    MUST(rlw_rlx_read_version(&r) == RLW_OK);
    while (r.c.at < r.c.end) {
        mark(s, (size_t)(r.c.at - s->data));
        MUST(rlw_rlx_read_text(&r, &key) == RLW_OK);
        mark_value(s, &r);
    }
}

FUZZ_MAIN("fuzz_rlx", "data_found", found_count, RLW_OK, RLW_NEED_MORE, RLW_BAD_VERSION, RLW_BAD_TYPE,
          RLW_BAD_COUNT, RLW_BAD_BOOLEAN, RLW_BAD_TEXT, RLW_BAD_DTYPE, RLW_BAD_MODE,
          RLW_BAD_SHAPE, RLW_BAD_SIZE, RLW_BAD_PREFIX, RLW_BAD_END, RLW_TRAILING,
          RLW_OVER_MESSAGE, RLW_OVER_DEPTH, RLW_OVER_ITEMS, RLW_OVER_DIMS, RLW_OVER_STRING,
          RLW_OVER_PIXELS)
