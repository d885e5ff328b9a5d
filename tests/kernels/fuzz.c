/* Mutates real messages and feeds them to the kernels, each in memory of exactly its size, so that
 * AddressSanitizer sees one byte too many. The same seed gives the same inputs everywhere.
 *
 *     fuzz CORPUS MESSAGES [SEED]
 *
 * CORPUS is what corpus.py writes: messages, each after its size (uint32, little-endian). First
 * every strict prefix of every message is read, then MESSAGES mutated ones. What must hold for
 * any input is asserted; a breach prints the input in hexadecimal and aborts.
 *
 * By hand, in this folder:
 *     python3 corpus.py ../vectors/rlx.json corpus.bin
 *     cc -std=c11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
 *         -I../../rlwire/include fuzz.c -o fuzz && ./fuzz corpus.bin 1000000
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rlwire/rlwire.h>

#define ROOM 16384 /* bytes of the longest input */
#define MARKS 64   /* fields of a message that mutations aim at */
#define DEEPEST 500

typedef struct sample {
    const uint8_t *data;
    size_t size;
    size_t marks[MARKS]; /* where lengths, counts and type bytes stand */
    size_t mark_count;
} sample;

static sample *samples;
static size_t sample_count;
static uint64_t counts[RLW_NO_MEMORY + 1];
static uint64_t whole_count, found_count;
static volatile uint64_t touched; /* so that no read is optimised away */

/* What is being fed, for the report of a breach. */
static const uint8_t *current;
static size_t current_size;
static uint64_t current_number, seed = 1;

static void die(const char *what, int line) {
    size_t i;
    fprintf(stderr, "fuzz.c:%d: message %llu of seed %llu: %s\n", line,
            (unsigned long long)current_number, (unsigned long long)seed, what);
    for (i = 0; i < current_size; i++) fprintf(stderr, "%02x", current[i]);
    fprintf(stderr, "\n");
    abort();
}

#define MUST(condition) \
    do { \
        if (!(condition)) die("not so: " #condition, __LINE__); \
    } while (0)

static void *memory(size_t size) {
    void *block = malloc(size);
    if (!block && size) {
        fprintf(stderr, "fuzz: out of memory\n");
        exit(2);
    }
    return block;
}

/* A copy that ends where its heap block ends. AddressSanitizer gives malloc(0) a byte that may be
 * read, so a few bytes stand before it. */
#define BEFORE 8

static uint8_t *exact(const uint8_t *data, size_t size) {
    uint8_t *block = (uint8_t *)memory(BEFORE + size);
    if (size) memcpy(block + BEFORE, data, size);
    return block + BEFORE;
}

static void release(uint8_t *copy) { free(copy - BEFORE); }

/* ---- chance ---- */

static uint64_t chance_state;

static uint64_t chance(void) { /* splitmix64 */
    uint64_t z = (chance_state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static size_t below(size_t n) { return n ? (size_t)(chance() % n) : 0; }

/* ---- mutations, all within ROOM ---- */

static uint8_t input[ROOM];
static size_t input_size;

static void replace(size_t at, size_t cut, const uint8_t *data, size_t size) {
    if (at > input_size) at = input_size;
    if (cut > input_size - at) cut = input_size - at;
    if (input_size - cut + size > ROOM) return;
    memmove(input + at + size, input + at + cut, input_size - at - cut);
    if (size) memcpy(input + at, data, size);
    input_size = input_size - cut + size;
}

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
    replace(below(5), below(3), (const uint8_t *)text, strlen(text));
}

static void mutate(const sample *from, int framed, size_t shift) {
    static const uint8_t odd_bytes[] = {0,   1,   2,    3,    4,    5,    6,   7,  8,  9,
                                        10,  11,  12,   0x7F, 0x80, 0xC0, 0xED, 0xF4, 0xFF, ',',
                                        ':', '<', '>', '|',  'O',  'V',  'U'};
    const sample *other = &samples[below(sample_count)];
    size_t at = below(input_size + 1), mark = below(from->mark_count);
    uint8_t byte, part[256];
    if (from->mark_count) mark = from->marks[mark] + shift;
    switch (below(framed ? 13 : 12)) {
    case 0:
        if (at < input_size) input[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        byte = odd_bytes[below(sizeof odd_bytes)];
        replace(at, 1, &byte, 1);
        break;
    case 2:
        byte = (uint8_t)chance();
        replace(at, below(2), &byte, 1);
        break;
    case 3:
    case 4: edit_number(mark); break;
    case 5: edit_number(at); break;
    case 6: /* another type for the same bytes */
        byte = (uint8_t)below(13);
        replace(mark, 1, &byte, 1);
        break;
    case 7: input_size = at; break;
    case 8: /* the head of one, the tail of another */
        mark = other->mark_count ? other->marks[below(other->mark_count)] : 0;
        replace(at, input_size, other->data + mark, other->size - mark);
        break;
    case 9: { /* the same bytes twice */
        size_t size = below(sizeof part < input_size - at ? sizeof part : input_size - at + 1);
        memcpy(part, input + at, size);
        replace(below(2) ? at : below(input_size + 1), 0, part, size);
        break;
    }
    case 10: replace(at, below(16), NULL, 0); break;
    case 11: nest(from->mark_count && below(4) ? mark : at); break;
    default: edit_prefix(); break;
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

static uint64_t add_up(const uint8_t *data, size_t size) {
    uint64_t sum = 0;
    while (size--) sum += *data++;
    return sum;
}

static rlw_status put_value(rlw_writer *w, const rlw_rlx_value *v, int readme) {
    uint32_t shape[32], i;
    switch (v->type) {
    case RLW_RLX_NONE:
    case RLW_RLX_NULL: return rlw_rlx_put_type(w, v->type);
    case RLW_RLX_INT4: return rlw_rlx_put_int4(w, (int32_t)v->as.integer);
    case RLW_RLX_UINT4: return rlw_rlx_put_uint4(w, (uint32_t)v->as.integer);
    case RLW_RLX_INT64: return rlw_rlx_put_int64(w, v->as.integer);
    case RLW_RLX_DOUBLE: return rlw_rlx_put_double(w, v->as.real);
    case RLW_RLX_BOOLEAN: return rlw_rlx_put_boolean(w, v->as.boolean);
    case RLW_RLX_STRING:
        return rlw_rlx_put_string(w, v->as.text.data, (uint32_t)v->as.text.size);
    case RLW_RLX_LIST: return rlw_rlx_put_list(w, v->as.count);
    case RLW_RLX_DICT: return rlw_rlx_put_dict(w, v->as.count);
    case RLW_RLX_NDARRAY:
        for (i = 0; i < v->as.array.dims; i++) shape[i] = rlw_load_u32le(v->as.array.shape + 4 * i);
        if (rlw_rlx_put_array_head(w, readme ? NULL : v->as.array.name.data,
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
        if (put_value(w, &v, r->readme) != RLW_OK) exit(2);
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

static void check_cursor(const rlw_cursor *c, const uint8_t *start, size_t size,
                         rlw_status status) {
    MUST(c->at >= start && c->at <= start + size && c->end == start + size);
    MUST(c->fault.status == status);
    MUST(c->fault.at >= start && c->fault.at <= start + size);
    if (status == RLW_NEED_MORE) MUST(c->fault.got > c->fault.allowed);
    if (status >= RLW_OVER_MESSAGE) MUST(c->fault.got > c->fault.allowed);
}

/* A message without its frame, at `data` of exactly `size` bytes. */
static rlw_status feed_message(const uint8_t *data, size_t size, const rlw_rlx_limits *limits,
                               int readme) {
    static rlw_writer w; /* keeps its memory from message to message */
    size_t least = below(8) ? below(40) : 4096, found;
    rlw_rlx_reader skimmer, reader;
    rlw_status status;
    walk walked;

    rlw_rlx_reader_init(&skimmer, data, size, limits);
    skimmer.readme = readme;
    status = rlw_rlx_skim(&skimmer);
    check_cursor(&skimmer.c, data, size, status);

    rlw_rlx_reader_init(&reader, data, size, limits);
    reader.readme = readme;
    if (rlw_rlx_begin(&w) != RLW_OK) exit(2);
    walk_over(&reader, data, least, &w, &walked);
    MUST(walked.status == status);
    MUST(reader.c.at == skimmer.c.at && reader.items == skimmer.items);

    found = rlw_rlx_find_data(data, data, size, least, limits);
    MUST(found <= size);
    if (found) found_count++;

    if (status == RLW_OK) {
        const uint8_t *frame = NULL, *body = NULL;
        size_t frame_size = 0, body_size = 0;
        rlw_cursor c;
        MUST(skimmer.c.at == skimmer.c.end);
        MUST(skimmer.items <= limits->items && walked.deepest <= limits->depth);
        if (!readme) MUST(found == 0 || found == walked.first_data);
        /* Written again it is the same, and so it re-skims. */
        if (rlw_rlx_end(&w, &frame, &frame_size) != RLW_OK) exit(2);
        rlw_cursor_init(&c, frame, frame_size);
        MUST(rlw_netstring_read(&c, frame_size, &body, &body_size) == RLW_OK);
        MUST(c.at == c.end && body_size == size && memcmp(body, data, size) == 0);
        rlw_rlx_reader_init(&skimmer, body, body_size, limits);
        skimmer.readme = readme;
        MUST(rlw_rlx_skim(&skimmer) == RLW_OK);
        whole_count++;
    }
    return status;
}

/* Bytes as they come from a peer. */
static rlw_status feed_frame(const uint8_t *data, size_t size, const rlw_rlx_limits *limits,
                             int readme) {
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
        status = feed_message(alone, body_size, limits, readme);
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
        replace(below(input_size + 1), below(3), &byte, below(2));
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

static void feed_one(void) {
    const sample *from = &samples[below(sample_count)];
    size_t edits = below(16) ? 1 + below(4) : 0, shift = 0;
    int framed = below(4) == 0, readme = below(8) == 0;
    rlw_rlx_limits limits;
    rlw_status status;
    uint8_t *bytes;
    if (below(16) == 0) feed_dtype();
    choose_limits(&limits);
    input_size = from->size;
    memcpy(input, from->data, from->size);
    if (framed) {
        uint8_t room[RLW_NETSTRING_ROOM];
        uint8_t *prefix = rlw_netstring_prefix_before(room + sizeof room, input_size);
        shift = (size_t)(room + sizeof room - prefix);
        replace(0, 0, prefix, shift);
        replace(input_size, 0, (const uint8_t *)",", 1);
    }
    while (edits--) mutate(from, framed, shift);
    bytes = exact(input, input_size);
    current = bytes;
    current_size = input_size;
    status = framed ? feed_frame(bytes, input_size, &limits, readme)
                    : feed_message(bytes, input_size, &limits, readme);
    counts[status]++;
    release(bytes);
}

static void feed_prefixes(void) {
    static const rlw_rlx_limits limits = RLW_RLX_DEFAULT_LIMITS;
    size_t i, size;
    for (i = 0; i < sample_count; i++)
        for (size = 0; size <= samples[i].size; size++) {
            uint8_t *bytes = exact(samples[i].data, size);
            rlw_status status;
            current = bytes;
            current_size = size;
            status = feed_message(bytes, size, &limits, 0);
            if (size == samples[i].size) MUST(status == RLW_OK);
            /* OK: it ends between two entries, which only a frame can tell. */
            MUST(status == RLW_OK || status == RLW_NEED_MORE || status == RLW_BAD_COUNT);
            release(bytes);
        }
}

/* ---- the corpus ---- */

static void mark(sample *s, size_t at) {
    if (s->mark_count < MARKS) s->marks[s->mark_count++] = at;
}

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

static void load(const char *path) {
    static const rlw_rlx_limits limits = RLW_RLX_DEFAULT_LIMITS;
    FILE *file = fopen(path, "rb");
    uint8_t head[4];
    if (!file) {
        fprintf(stderr, "fuzz: cannot read %s\n", path);
        exit(2);
    }
    while (fread(head, 1, 4, file) == 4) {
        size_t size = rlw_load_u32le(head);
        uint8_t *data = (uint8_t *)memory(size);
        rlw_rlx_reader r;
        rlw_text key;
        sample *s;
        if (size < 4 || size > ROOM / 2 || fread(data, 1, size, file) != size) {
            fprintf(stderr, "fuzz: %s is not what corpus.py writes\n", path);
            exit(2);
        }
        samples = (sample *)realloc(samples, (sample_count + 1) * sizeof *samples);
        if (!samples) exit(2);
        s = &samples[sample_count++];
        s->data = current = data;
        s->size = current_size = size;
        s->mark_count = 0;
        rlw_rlx_reader_init(&r, data, size, &limits);
        MUST(rlw_rlx_read_version(&r) == RLW_OK);
        while (r.c.at < r.c.end) {
            mark(s, (size_t)(r.c.at - data));
            MUST(rlw_rlx_read_text(&r, &key) == RLW_OK);
            mark_value(s, &r);
        }
    }
    fclose(file);
    if (!sample_count) {
        fprintf(stderr, "fuzz: %s is empty\n", path);
        exit(2);
    }
}

int main(int argc, char **argv) {
    static const char *const names[] = {
        "OK",          "NEED_MORE",   "BAD_VERSION", "BAD_TYPE",   "BAD_COUNT",    "BAD_BOOLEAN",
        "BAD_TEXT",    "BAD_DTYPE",   "BAD_MODE",    "BAD_SHAPE",  "BAD_SIZE",     "BAD_PREFIX",
        "BAD_END",     "TRAILING",    "OVER_MESSAGE", "OVER_DEPTH", "OVER_ITEMS",  "OVER_DIMS",
        "OVER_STRING", "OVER_PIXELS", "NO_MEMORY",
    };
    uint64_t total, unseen = 0;
    clock_t began;
    double seconds;
    int i;
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: fuzz CORPUS MESSAGES [SEED]\n");
        return 2;
    }
    total = strtoull(argv[2], NULL, 10);
    if (argc == 4) seed = strtoull(argv[3], NULL, 10);
    load(argv[1]);
    chance_state = seed;
    began = clock();
    feed_prefixes();
    whole_count = found_count = 0;
    for (current_number = 0; current_number < total; current_number++) feed_one();
    seconds = (double)(clock() - began) / (double)CLOCKS_PER_SEC;
    printf("fuzz: %llu messages from %zu, seed %llu, %.1f s, %.0f/s:", (unsigned long long)total,
           sample_count, (unsigned long long)seed, seconds,
           seconds > 0 ? (double)total / seconds : 0.0);
    for (i = RLW_OK; i <= RLW_NO_MEMORY; i++) {
        printf(" %s=%llu", names[i], (unsigned long long)counts[i]);
        if (counts[i] == 0 && i != RLW_NO_MEMORY) unseen++;
    }
    printf(" whole=%llu data_found=%llu\n", (unsigned long long)whole_count,
           (unsigned long long)found_count);
    if (total >= 20000 && (unseen || counts[RLW_NO_MEMORY] || !found_count)) {
        fprintf(stderr, "fuzz: the mutations no longer reach every status\n");
        return 1;
    }
    return 0;
}
