// RLX from C++17: one message written, framed, read back and printed.
//
// By hand, with the folder that `python3 -c 'import rlwire; print(rlwire.get_include())'` prints:
//     c++ -std=c++17 -I FOLDER codec.cpp -o codec && ./codec
#include <rlwire/rlwire.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

void check(rlw_status status) {
    if (status != RLW_OK) throw std::runtime_error(rlw_status_text(status));
}

// Writes one message after another into memory that it keeps.
class Message {
public:
    Message() { rlw_writer_init(&writer_, nullptr, 0); }
    ~Message() { rlw_writer_free(&writer_); }
    Message(const Message &) = delete;
    Message &operator=(const Message &) = delete;

    Message &begin() {
        check(rlw_rlx_begin(&writer_));
        return *this;
    }
    Message &put(std::string_view key, std::string_view value) {
        put_key(key);
        check(rlw_rlx_put_string(&writer_, value.data(), static_cast<uint32_t>(value.size())));
        return *this;
    }
    Message &put(std::string_view key, double value) {
        put_key(key);
        check(rlw_rlx_put_double(&writer_, value));
        return *this;
    }
    Message &put(std::string_view key, bool value) {
        put_key(key);
        check(rlw_rlx_put_boolean(&writer_, value));
        return *this;
    }
    Message &put(std::string_view key, const std::vector<float> &values) {
        const auto count = static_cast<uint32_t>(values.size());
        put_key(key);
        check(rlw_rlx_put_array_head(&writer_, "float32", 7, 1, &count, 4 * count));
        for (float value : values) {
            uint32_t bits;
            std::memcpy(&bits, &value, sizeof bits);
            check(rlw_put_u32le(&writer_, bits));
        }
        return *this;
    }
    // The whole frame; it lies in this object until the next begin().
    std::string_view end() {
        const uint8_t *frame = nullptr;
        std::size_t size = 0;
        check(rlw_rlx_end(&writer_, &frame, &size));
        return {reinterpret_cast<const char *>(frame), size};
    }

private:
    void put_key(std::string_view key) {
        check(rlw_rlx_put_text(&writer_, key.data(), static_cast<uint32_t>(key.size())));
    }
    rlw_writer writer_;
};

std::string show(rlw_rlx_reader &reader) {
    rlw_rlx_value value;
    check(rlw_rlx_read(&reader, &value));
    switch (value.type) {
    case RLW_RLX_STRING:
        return {reinterpret_cast<const char *>(value.as.text.data), value.as.text.size};
    case RLW_RLX_DOUBLE: return std::to_string(value.as.real);
    case RLW_RLX_BOOLEAN: return value.as.boolean ? "true" : "false";
    case RLW_RLX_NDARRAY: {
        std::string text;
        for (std::size_t i = 0; i < value.as.array.size; i += 4) {
            const uint32_t bits = rlw_load_u32le(value.as.array.data + i);
            float number;
            std::memcpy(&number, &bits, sizeof number);
            text += (i ? " " : "") + std::to_string(number);
        }
        return text;
    }
    default: return "type " + std::to_string(static_cast<int>(value.type));
    }
}

void print(std::string_view frame) {
    const rlw_rlx_limits limits = RLW_RLX_DEFAULT_LIMITS;
    const uint8_t *body = nullptr;
    std::size_t size = 0;
    rlw_cursor cursor;
    rlw_cursor_init(&cursor, reinterpret_cast<const uint8_t *>(frame.data()), frame.size());
    check(rlw_netstring_read(&cursor, 1'000'000, &body, &size));
    rlw_rlx_reader reader;
    rlw_rlx_reader_init(&reader, body, size, &limits);
    check(rlw_rlx_read_version(&reader));
    while (rlw_left(&reader.c)) {
        rlw_text key{};
        check(rlw_rlx_read_text(&reader, &key));
        const std::string value = show(reader);
        std::printf("%.*s: %s\n", static_cast<int>(key.size),
                    reinterpret_cast<const char *>(key.data), value.c_str());
    }
}

}  // namespace

// With an argument, the frame itself goes to stdout instead.
int main(int argc, char **) {
    try {
        Message message;
        const std::string_view frame = message.begin()
                                           .put("command", std::string_view("update"))
                                           .put("reward", 1.5)
                                           .put("state", std::vector<float>{0.25f, -2.0f, 3.0f})
                                           .put("terminal", false)
                                           .end();
        if (argc > 1)
            std::fwrite(frame.data(), 1, frame.size(), stdout);
        else
            print(frame);
    } catch (const std::exception &problem) {
        std::fprintf(stderr, "codec: %s\n", problem.what());
        return 1;
    }
    return 0;
}
