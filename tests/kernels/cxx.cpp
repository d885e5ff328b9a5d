// All headers as C++17: they compile without a warning, and what they write they read.
//
// By hand, in this folder:
//     c++ -std=c++17 -c ../../rlwire/include/rlwire/numbers.cpp
//     c++ -std=c++17 -Wall -Wextra -I../../rlwire/include cxx.cpp numbers.o -o cxx && ./cxx
#include <rlwire/rlwire.h>

#include <cstdio>
#include <string_view>
#include <type_traits>

static_assert(std::is_trivially_copyable_v<rlw_rlx_value>);
static_assert(std::is_standard_layout_v<rlw_rlx_reader>);

namespace {

int failed = 0;

void check(bool good, const char *what) {
    if (good) return;
    std::fprintf(stderr, "cxx.cpp: not so: %s\n", what);
    failed++;
}

rlw_status read_byte(unsigned type) {
    const uint8_t bytes[9] = {static_cast<uint8_t>(type)};
    const rlw_rlx_limits limits = RLW_RLX_DEFAULT_LIMITS;
    rlw_rlx_reader reader;
    rlw_rlx_value value;
    rlw_rlx_reader_init(&reader, bytes, sizeof bytes, &limits);
    return rlw_rlx_read(&reader, &value);
}

}  // namespace

int main() {
    rlw_writer writer;
    const uint8_t *frame = nullptr, *body = nullptr;
    std::size_t size = 0, body_size = 0;
    rlw_writer_init(&writer, nullptr, 0);
    check(rlw_rlx_begin(&writer) == RLW_OK, "begin");
    check(rlw_rlx_put_text(&writer, "command", 7) == RLW_OK, "key");
    check(rlw_rlx_put_string(&writer, "reset", 5) == RLW_OK, "string");
    check(rlw_rlx_end(&writer, &frame, &size) == RLW_OK, "end");

    rlw_cursor cursor;
    rlw_cursor_init(&cursor, frame, size);
    check(rlw_netstring_read(&cursor, 1000, &body, &body_size) == RLW_OK, "netstring");
    check(std::string_view(reinterpret_cast<const char *>(body) + 8, 7) == "command", "its key");
    check(body[15] == RLW_RLX_STRING, "its value's type");
    rlw_writer_free(&writer);

    // A byte that no enumerator has must never become one: in C++ that is undefined.
    for (unsigned type = 0; type < 256; type++)
        check((read_byte(type) == RLW_BAD_TYPE) == (type > RLW_RLX_DICT), "unknown types");

    rlw_dtype dtype;
    check(rlw_dtype_parse(reinterpret_cast<const uint8_t *>("float32"), 7, &dtype), "dtype");
    check(rlw_image_mode_find(reinterpret_cast<const uint8_t *>("RGB"), 3) != nullptr, "mode");

    const float observation[] = {1.5F, 2.5F};
    const int64_t shape[] = {2};
    rlw_tensor tensor;
    float back[2] = {};
    rlw_writer_init(&writer, nullptr, 0);
    check(rlw_put_tensor(&writer, RLW_TENSOR_FLOAT, observation, 2, shape, 1) == RLW_OK, "tensor");
    rlw_cursor_init(&cursor, writer.start, rlw_written(&writer));
    check(rlw_tensor_read(&cursor, 32, &tensor) == RLW_OK, "its fields");
    check(rlw_tensor_infer(&cursor, &tensor) == RLW_OK && tensor.total == 2, "its shape");
    check(rlw_tensor_decode(&cursor, &tensor, back) == RLW_OK && back[1] == 2.5F, "its numbers");
    rlw_writer_free(&writer);

    const std::string_view datagram = "city:7:5:6;obs=1.5,2.5;reward=-1;done=true";
    const rlw_perlert_limits perlert_limits = RLW_PERLERT_DEFAULT_LIMITS;
    rlw_perlert_message step;
    rlw_cursor_init(&cursor, reinterpret_cast<const uint8_t *>(datagram.data()), datagram.size());
    check(rlw_perlert_read_server(&cursor, &perlert_limits, &step) == RLW_OK, "step");
    check(step.kind == RLW_PERLERT_STEP && step.reward_value == -1 && step.flag, "its fields");
    rlw_cursor_init(&cursor, step.text.data, step.text.size);
    check(rlw_read_numbers(&cursor, RLW_FLOAT32, back, 2) == RLW_OK && back[1] == 2.5F, "list");
    step.decimals = -1;
    rlw_writer_init(&writer, nullptr, 0);
    check(rlw_perlert_write(&writer, &step) == RLW_OK, "step written");
    check(std::string_view(reinterpret_cast<const char *>(writer.start), rlw_written(&writer)) ==
              datagram, "as it was");
    rlw_writer_free(&writer);

    std::printf("%d passed, %d failed\n", failed ? 0 : 1, failed ? 1 : 0);
    return failed != 0;
}
