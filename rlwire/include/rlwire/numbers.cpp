// What numbers.h needs of C++17's <charconv>. Without its floating point (libc++ before 20), or with
// RLW_NO_CHARCONV, C's strtod and snprintf do the same, slower and in the process's locale: do not
// call setlocale() at the same time.
#include "numbers.h"

#include <charconv>
#include <clocale>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#if (defined(__cpp_lib_to_chars) || _LIBCPP_AVAILABILITY_HAS_FROM_CHARS_FLOATING_POINT) && \
    !defined(RLW_NO_CHARCONV)
#define RLW_CHARCONV 1
#else
#define RLW_CHARCONV 0
#endif

namespace {

double read_with_locale(const char *text, double) { return std::strtod(text, nullptr); }
float read_with_locale(const char *text, float) { return std::strtof(text, nullptr); }

template <class Real> Real read(const char *text, std::size_t size) {
#if RLW_CHARCONV
    Real value;
    // Numbers out of range, and subnormal ones for some libraries, give an error.
    if (std::from_chars(text, text + size, value).ec == std::errc()) return value;
#endif
    std::string copy(text, size);
    const std::size_t point = copy.find('.');
    if (point != std::string::npos) copy.replace(point, 1, std::localeconv()->decimal_point);
    return read_with_locale(copy.c_str(), Real());
}

#if !RLW_CHARCONV
// Does what snprintf does, with a point whatever the locale. `to` has `room` bytes.
std::size_t print(char *to, std::size_t room, const char *format, int decimals, double value) {
    char with_locale[RLW_FIXED_ROOM + 16];
    std::snprintf(with_locale, sizeof with_locale, format, decimals, value);
    std::string copy(with_locale);
    const std::string point = std::localeconv()->decimal_point;
    const std::size_t at = copy.find(point);
    if (decimals && at != std::string::npos) copy.replace(at, point.size(), ".");
    std::memcpy(to, copy.data(), copy.size() < room ? copy.size() : room);
    return copy.size();
}
#endif

// Writes the shortest digits as "1.25e-05"; returns the bytes written.
template <class Real> std::size_t put_scientific(char *to, Real value) {
#if RLW_CHARCONV
    char *const end = to + RLW_SHORTEST_ROOM;
    return static_cast<std::size_t>(
        std::to_chars(to, end, value, std::chars_format::scientific).ptr - to);
#else
    for (int decimals = 0;; decimals++) {
        const std::size_t size = print(to, RLW_SHORTEST_ROOM, "%.*e", decimals, value);
        if (read<Real>(to, size) == value) return size;
    }
#endif
}

template <class Real> std::size_t to_digits(std::uint8_t *to, Real value) {
    char text[RLW_SHORTEST_ROOM + 1] = {};
    const std::size_t size = put_scientific(text, value);
    const char *const e = static_cast<const char *>(std::memchr(text, 'e', size));
    const int power = std::atoi(e + 1), count = e - text > 2 ? static_cast<int>(e - text) - 1 : 1;
    if (power < -4 || power > 15) {
        std::memcpy(to, text, size);
        return size;
    }
    text[1] = text[0]; // the digits without their point
    const char *digits = text + 1;
    const std::size_t before = static_cast<std::size_t>(power < 0 ? 0 : power + 1);
    const std::size_t all = static_cast<std::size_t>(count);
    if (power < 0) {
        std::memcpy(to, "0.000", 5);
        std::memcpy(to + 1 - power, digits, all);
        return static_cast<std::size_t>(1 - power) + all;
    }
    if (all <= before) {
        std::memcpy(to, digits, all);
        std::memset(to + all, '0', before - all);
        return before;
    }
    std::memcpy(to, digits, before);
    to[before] = '.';
    std::memcpy(to + before + 1, digits + before, all - before);
    return all + 1;
}

} // namespace

extern "C" {

std::size_t rlw_double_to_digits(std::uint8_t *to, double value) { return to_digits(to, value); }
std::size_t rlw_float_to_digits(std::uint8_t *to, float value) { return to_digits(to, value); }

double rlw_digits_to_double(const std::uint8_t *text, std::size_t size) {
    return read<double>(reinterpret_cast<const char *>(text), size);
}

float rlw_digits_to_float(const std::uint8_t *text, std::size_t size) {
    return read<float>(reinterpret_cast<const char *>(text), size);
}

std::size_t rlw_double_to_fixed(std::uint8_t *to, std::size_t room, double value, int decimals) {
    char *text = reinterpret_cast<char *>(to);
#if RLW_CHARCONV
    return static_cast<std::size_t>(
        std::to_chars(text, text + room, value, std::chars_format::fixed, decimals).ptr - text);
#else
    return print(text, room, "%.*f", decimals, value);
#endif
}

} // extern "C"
