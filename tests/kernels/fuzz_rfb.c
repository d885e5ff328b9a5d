/* Mutates RFB's rectangles and has them measured and painted; fuzz.h tells how it is run.
 *
 * A message is rectangles one after the other, with what is compressed as it inflates to: the caller
 * inflates. */
#include "fuzz.h"

#define WIDTH 120
#define HEIGHT 88

static uint64_t inflated_count;

/* Tight, with what is inflated as it is on the wire. */
static rlw_status paint_tight(rlw_cursor *c, const rlw_rfb_screen *s,
                              const rlw_rfb_rectangle *r) {
    rlw_rfb_tight t;
    rlw_cursor inside;
    rlw_status status = rlw_rfb_read_tight(c, r, &t);
    if (status != RLW_OK) return status;
    if (t.kind == RLW_RFB_JPEG) {
        touched += add_up(t.data, t.size);
        if ((uint64_t)r->width * r->height * 3 > t.size)
            return rlw_fail(c, RLW_BAD_JPEG, t.data, 0, 0);
        rlw_rfb_rows(s, r->x, r->y, t.data, (size_t)r->width * 3, 3, r->width, r->height);
        return RLW_OK;
    }
    if (t.packed && t.size > t.need) return rlw_fail(c, RLW_BAD_INFLATED, t.data, 0, 0);
    inflated_count += t.packed;
    rlw_cursor_init(&inside, t.data, t.size);
    status = rlw_rfb_paint_tight(&inside, s, r, &t);
    return status == RLW_OK ? RLW_OK
                            : rlw_fail(c, status, t.data, inside.fault.got, inside.fault.allowed);
}

/* Paints the whole rectangle at c->at and moves behind it; of a pseudo-encoding nothing is painted,
 * and c->at is where its payload begins. */
static rlw_status paint(rlw_cursor *c, const rlw_rfb_screen *s,
                        rlw_rfb_rectangle *r) {
    const uint8_t *head = c->at, *data;
    rlw_cursor inside;
    uint32_t size;
    rlw_status status = rlw_rfb_read_head(c, r);
    if (status != RLW_OK || !rlw_rfb_paints(r->encoding)) return status;
    if ((status = rlw_rfb_check_place(c, head, s, r)) != RLW_OK) return status;
    switch (r->encoding) {
    case RLW_RFB_RAW: return rlw_rfb_paint_raw(c, s, r);
    case RLW_RFB_COPY_RECT: return rlw_rfb_paint_copy(c, s, r);
    case RLW_RFB_RRE: return rlw_rfb_paint_rre(c, s, r);
    case RLW_RFB_HEXTILE: return rlw_rfb_paint_hextile(c, s, r);
    case RLW_RFB_TIGHT: return paint_tight(c, s, r);
    default: break;
    }
    if ((status = rlw_take(c, 4, &data)) != RLW_OK) return status;
    size = rlw_load_u32be(data);
    if ((status = rlw_take(c, size, &data)) != RLW_OK) return status;
    if (size > rlw_rfb_zrle_most(r->width, r->height))
        return rlw_fail(c, RLW_BAD_INFLATED, data, 0, 0);
    inflated_count++;
    rlw_cursor_init(&inside, data, size);
    status = rlw_rfb_paint_zrle_tiles(&inside, s, r);
    if (status == RLW_OK && inside.at != inside.end) status = RLW_TRAILING;
    return status == RLW_OK ? RLW_OK
                            : rlw_fail(c, status, data, inside.fault.got, inside.fault.allowed);
}

/* AddressSanitizer sees a byte beyond their ends. */
static uint8_t three[WIDTH * HEIGHT * 3], kept[WIDTH * HEIGHT * 3];

static void check_outside(const rlw_rfb_rectangle *r) {
    uint32_t y;
    for (y = 0; y < HEIGHT; y++) {
        size_t row = (size_t)y * WIDTH * 3, left = 3 * (size_t)r->x;
        size_t right = 3 * ((size_t)r->x + r->width);
        if (y < r->y || y >= r->y + r->height) {
            MUST(memcmp(three + row, kept + row, WIDTH * 3) == 0);
        } else {
            MUST(memcmp(three + row, kept + row, left) == 0);
            MUST(memcmp(three + row + right, kept + row + right, WIDTH * 3 - right) == 0);
        }
    }
}

static rlw_status feed(const uint8_t *bytes, size_t size) {
    rlw_rfb_screen s = {three, WIDTH * 3, WIDTH, HEIGHT};
    rlw_cursor c;
    if (size == 0) return RLW_OK;
    rlw_cursor_init(&c, bytes, size);
    memset(three, 0, WIDTH * HEIGHT * 3);
    while (c.at < c.end) {
        const uint8_t *start = c.at;
        rlw_rfb_progress progress = {0, 0}, slow = {0, 0};
        rlw_rfb_rectangle r;
        uint64_t announced = 0, later = 0;
        rlw_cursor aside;
        rlw_status measured = rlw_rfb_measure(&c, &s, &progress, &announced), status;
        MUST(c.at == start);
        if (measured == RLW_OK && announced <= rlw_left(&c)) { /* the same when it comes in pieces */
            size_t had = below(rlw_left(&c) + 1);
            rlw_cursor part;
            rlw_cursor_init(&part, start, had);
            if (rlw_rfb_measure(&part, &s, &slow, &later) != RLW_OK) {
                rlw_cursor_init(&part, start, rlw_left(&c));
                MUST(rlw_rfb_measure(&part, &s, &slow, &later) == RLW_OK);
            }
            MUST(later == announced);
        } else if (measured != RLW_OK) {
            check_cursor(&c, bytes, size, measured);
        }
        memcpy(kept, three, WIDTH * HEIGHT * 3);
        status = paint(&c, &s, &r);
        aside = c;
        if (start + RLW_RFB_HEAD <= c.end && rlw_rfb_paints(r.encoding) &&
            rlw_rfb_check_place(&aside, start, &s, &r) == RLW_OK)
            check_outside(&r);
        else
            MUST(memcmp(kept, three, WIDTH * HEIGHT * 3) == 0);
        if (status != RLW_OK) {
            check_cursor(&c, bytes, size, status);
            return status;
        }
        if (measured != RLW_OK) { /* a pseudo-encoding that is not whole, or nobody knows */
            MUST(!rlw_rfb_paints(r.encoding));
            return measured;
        }
        if (rlw_rfb_paints(r.encoding)) {
            MUST(c.at == start + announced);
            whole_count++;
        } else {
            if (announced > (uint64_t)(c.end - start)) return RLW_NEED_MORE;
            c.at = start + announced;
        }
    }
    return RLW_OK;
}

static void mutate(void) {
    static const uint8_t odd_bytes[] = {0,    1,    2,    5,    7,    16,   17,   63,   64,  127,
                                        0x80, 0x81, 0x82, 0x90, 0xA0, 0xC0, 0x40, 0x1F, 0xFF};
    size_t at = some_mark(below(24));
    if (below(3)) {
        if (at < input_size) input[at] = odd_bytes[below(sizeof odd_bytes)];
    } else {
        mutate_bytes(odd_bytes, sizeof odd_bytes);
    }
}

static void feed_prefix(const sample *s, const uint8_t *bytes, size_t size) {
    rlw_status status = feed(bytes, size);
    if (size == s->size) MUST(status == RLW_OK);
    MUST(status == RLW_OK || status == RLW_NEED_MORE);
}

static void mark_sample(sample *s) {
    rlw_rfb_screen screen = {three, WIDTH * 3, WIDTH, HEIGHT};
    rlw_cursor c;
    rlw_cursor_init(&c, s->data, s->size);
    while (c.at < c.end) {
        rlw_rfb_progress progress = {0, 0};
        uint64_t size;
        mark(s, (size_t)(c.at - s->data));
        MUST(rlw_rfb_measure(&c, &screen, &progress, &size) == RLW_OK);
        c.at += size;
    }
    MUST(c.at == c.end);
}

FUZZ_MAIN("fuzz_rfb", "inflated", inflated_count, RLW_OK, RLW_NEED_MORE, RLW_TRAILING, RLW_BAD_PLACE,
          RLW_BAD_ENCODING, RLW_BAD_SUBENCODING, RLW_BAD_PALETTE, RLW_BAD_RUN, RLW_BAD_INFLATED,
          RLW_BAD_JPEG)
