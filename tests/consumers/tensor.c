/* dm_env_rpc's tensors from C: reads a Tensor message of int32s from standard input, prints its
 * shape on standard error, and writes a Tensor of its values doubled to standard output.
 *
 * By hand, with the folder that `python3 -c 'import rlwire; print(rlwire.get_include())'` prints:
 *     cc -std=c11 -I FOLDER tensor.c -o tensor && ./tensor < message > doubled
 */
#include <rlwire/rlwire.h>

#include <stdio.h>
#include <stdlib.h>

enum { ROOM = 1 << 20 }; /* bytes of the longest message, and of the most values */

static int fail(const rlw_cursor *c, const uint8_t *start) {
    fprintf(stderr, "byte %zu: %s\n", (size_t)(c->fault.at - start),
            rlw_status_text(c->fault.status));
    return 1;
}

int main(void) {
    static uint8_t message[ROOM];
    rlw_cursor c;
    rlw_tensor tensor;
    rlw_writer writer;
    rlw_status status;
    int32_t *values;
    uint64_t i;
    uint32_t dim;
    rlw_cursor_init(&c, message, fread(message, 1, sizeof message, stdin));
    if (rlw_tensor_read(&c, RLW_TENSOR_DIMS, &tensor) != RLW_OK) return fail(&c, message);
    if (rlw_tensor_infer(&c, &tensor) != RLW_OK) return fail(&c, message);
    if (tensor.kind != RLW_TENSOR_INT32 || tensor.count > ROOM / sizeof *values) {
        fprintf(stderr, "expected at most %zu int32s\n", ROOM / sizeof *values);
        return 1;
    }
    for (dim = 0; dim < tensor.dims; dim++) fprintf(stderr, "%d ", (int)tensor.shape[dim]);
    values = (int32_t *)malloc((size_t)tensor.count * sizeof *values + 1);
    if (!values) return 1;
    if (rlw_tensor_decode(&c, &tensor, values) != RLW_OK) return fail(&c, message);
    for (i = 0; i < tensor.count; i++) values[i] *= 2;
    /* A count of 1 stands for all elements, going out as coming in. */
    rlw_writer_init(&writer, NULL, 0);
    status = rlw_put_tensor(&writer, RLW_TENSOR_INT32, values, (size_t)tensor.count, tensor.shape,
                            tensor.dims);
    if (status != RLW_OK) {
        fprintf(stderr, "%s\n", rlw_status_text(status));
        return 1;
    }
    fwrite(writer.start, 1, rlw_written(&writer), stdout);
    rlw_writer_free(&writer);
    free(values);
    return 0;
}
