/* dm_env_rpc.h where Python does not come: what may change while it is written, and what C alone
 * writes. Tensors right and wrong are tested in tests/codecs/dm_env_rpc.
 */
#include "harness.h"

CASE(what_cannot_be_written) {
    static const int64_t negative[] = {-1}, large[] = {INT64_C(1) << 31}, two[] = {2},
                         many[] = {INT32_MAX, INT32_MAX, INT32_MAX};
    uint8_t value = 1;
    rlw_writer w;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_STRING, &value, 1, NULL, 0), RLW_BAD_TYPE);
    EQUAL(rlw_put_tensor(&w, 12, &value, 1, NULL, 0), RLW_BAD_TYPE);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, negative, 1), RLW_BAD_SHAPE);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, large, 1), RLW_BAD_SHAPE);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, many, 3), RLW_BAD_SHAPE);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 0, two, 1), RLW_BAD_ELEMENTS);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, two, 33), RLW_OVER_DIMS);
    EQUAL(rlw_written(&w), 0);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, two, 1), RLW_OK); /* one for all */
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_INT8, &value, 1, NULL, 0), RLW_OK);
    EQUAL(rlw_written(&w), 8 + 5);
    rlw_writer_free(&w);
}

static rlw_status infer(uint64_t count, int64_t rows, int64_t columns) {
    rlw_cursor c;
    rlw_tensor t;
    rlw_cursor_init(&c, NULL, 0);
    rlw_tensor_clear(&t, &c);
    t.kind = RLW_TENSOR_DOUBLE;
    t.count = count;
    t.shape[t.dims++] = rows;
    t.shape[t.dims++] = columns;
    return rlw_tensor_infer(&c, &t);
}

/* Arrays that no memory holds are rejected before a caller multiplies their dimensions. */
CASE(what_no_memory_holds) {
    const int64_t most = PTRDIFF_MAX / 8;
    EQUAL(infer(1, most, 1), RLW_OK);
    EQUAL(infer(1, most, 2), RLW_BAD_SHAPE);
    EQUAL(infer((uint64_t)most + 1, -1, 1), RLW_BAD_SHAPE);
}

/* Whatever happens to the values between measuring and writing, the size stays. */
CASE(values_may_change_after_measuring) {
    uint32_t before[40], after[40];
    size_t i;
    for (i = 0; i < 40; i++) {
        before[i] = 300;
        after[i] = i & 1 ? UINT32_MAX : 1;
    }
    {
        rlw_tensor_sizes sizes;
        uint8_t *room, *end;
        CHECK(rlw_tensor_measure(&sizes, 7, 7, rlw_tensor_data_size(7, before, 40), NULL, 0));
        EQUAL(sizes.data, 80);
        room = (uint8_t *)malloc(80);
        if (!room) exit(2);
        end = rlw_tensor_put_data(room, RLW_TENSOR_UINT32, after, 40, &sizes);
        CHECK(end == room + 80);
        EQUAL(room[0], 1);
        for (i = 0; i < 40; i++) after[i] = 1;
        CHECK(rlw_tensor_put_data(room, RLW_TENSOR_UINT32, after, 40, &sizes) == room + 80);
        CHECK(room[39] == 1 && room[40] == 0 && room[79] == 0);
        free(room);
    }
}

CASE(a_tensor_is_read_back) {
    static const float numbers[] = {1.5F, 2.5F};
    static const int64_t shape[] = {2};
    float back[2] = {0, 0};
    rlw_cursor c;
    rlw_tensor t;
    rlw_writer w;
    rlw_writer_init(&w, NULL, 0);
    EQUAL(rlw_put_tensor(&w, RLW_TENSOR_FLOAT, numbers, 2, shape, 1), RLW_OK);
    rlw_cursor_init(&c, w.start, rlw_written(&w));
    EQUAL(rlw_tensor_read(&c, 32, &t), RLW_OK);
    EQUAL(rlw_tensor_infer(&c, &t), RLW_OK);
    EQUAL(t.total, 2);
    EQUAL(rlw_tensor_decode(&c, &t, back), RLW_OK);
    CHECK(memcmp(back, numbers, sizeof numbers) == 0);
    rlw_writer_free(&w);
}
