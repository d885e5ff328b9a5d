// What numbers.h leaves to a library: C++17's <charconv>, which is exact, needs no locale and no
// memory. Where the library does not say that it has floating point there (libc++, for years), or
// with RLW_NO_CHARCONV, C's strtod and snprintf do the same, slower; they follow the process's
// locale, so nobody may call setlocale() meanwhile.
#include "numbers.h"

#include <charconv>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#if defined(__cpp_lib_to_chars) && !defined(RLW_NO_CHARCONV)
#define RLW_CHARCONV 1
#else
#define RLW_CHARCONV 0
#endif

namespace {

double read_with_locale(const char *text, double) { return std::strtod(text, nullptr); }
float read_with_locale(const char *text, float) { return std::strtof(text, nullptr); }

template <class Real> Real read_slowly(const char *text, std::size_t size) {
    std::string copy(text, size);
    const std::size_t point = copy.find('.');
    if (point != std::string::npos) copy.replace(point, 1, std::localeconv()->decimal_point);
    return read_with_locale(copy.c_str(), Real());
}

template <class Real> Real read(const std::uint8_t *data, std::size_t size) {
    const char *text = reinterpret_cast<const char *>(data);
#if RLW_CHARCONV
    Real value;
    // What is out of range, or subnormal to some libraries, has no value here.
    if (std::from_chars(text, text + size, value).ec == std::errc()) return value;
#endif
    return read_slowly<Real>(text, size);
}

#if RLW_CHARCONV

template <class Real> std::size_t write(std::uint8_t *to, Real value, int exponent) {
    char *text = reinterpret_cast<char *>(to);
    const auto format = exponent ? std::chars_format::scientific : std::chars_format::fixed;
    return static_cast<std::size_t>(
        std::to_chars(text, text + RLW_SHORTEST_ROOM, value, format).ptr - text);
}

#else

// Decimal digits d.ddd and the power of ten of the first one.
struct Digits {
    char text[32];
    int count;
    int power;
};

Digits digits_of(double value, int count) {
    Digits d;
    char text[64];
    std::snprintf(text, sizeof text, "%.*e", count - 1, value);
    d.count = 0;
    const char *p = text;
    for (; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') d.text[d.count++] = *p; // not the locale's point
    d.power = static_cast<int>(std::strtol(p + 1, nullptr, 10));
    return d;
}

template <class Real> bool is(const Digits &d, Real value) {
    const std::string text =
        std::string(d.text, static_cast<std::size_t>(d.count)) + "e" +
        std::to_string(d.power + 1 - d.count);
    return read_slowly<Real>(text.data(), text.size()) == value;
}

void next_up(Digits &d) {
    int i = d.count - 1;
    while (i >= 0 && d.text[i] == '9') d.text[i--] = '0';
    if (i >= 0) {
        d.text[i]++;
    } else {
        d.text[0] = '1';
        d.power++;
    }
}

template <class Real> std::size_t write(std::uint8_t *to, Real value, int exponent) {
    Digits d;
    // The nearest of so many digits; or, above a power of two, where the floats below lie closer
    // together, the one after it.
    for (int count = 1;; count++) {
        d = digits_of(value, count);
        if (count == std::numeric_limits<Real>::max_digits10 || is(d, value)) break;
        next_up(d);
        if (is(d, value)) break;
    }
    while (d.count > 1 && d.text[d.count - 1] == '0') d.count--;
    std::string text(d.text, static_cast<std::size_t>(d.count));
    if (exponent) {
        char tail[16];
        std::snprintf(tail, sizeof tail, "e%+03d", d.power);
        if (d.count > 1) text.insert(1, ".");
        text += tail;
    } else if (d.power < 0) {
        text.insert(0, "0." + std::string(static_cast<std::size_t>(-d.power - 1), '0'));
    } else if (d.count <= d.power + 1) {
        text.append(static_cast<std::size_t>(d.power + 1 - d.count), '0');
    } else {
        text.insert(static_cast<std::size_t>(d.power + 1), ".");
    }
    std::memcpy(to, text.data(), text.size());
    return text.size();
}

#endif

} // namespace

extern "C" {

double rlw_digits_to_double(const std::uint8_t *text, std::size_t size) {
    return read<double>(text, size);
}

float rlw_digits_to_float(const std::uint8_t *text, std::size_t size) {
    return read<float>(text, size);
}

std::size_t rlw_double_to_digits(std::uint8_t *to, double value, int exponent) {
    return write(to, value, exponent);
}

std::size_t rlw_float_to_digits(std::uint8_t *to, float value, int exponent) {
    return write(to, value, exponent);
}

std::size_t rlw_double_to_fixed(std::uint8_t *to, std::size_t room, double value, int decimals) {
    char *text = reinterpret_cast<char *>(to);
#if RLW_CHARCONV
    return static_cast<std::size_t>(
        std::to_chars(text, text + room, value, std::chars_format::fixed, decimals).ptr - text);
#else
    char with_locale[RLW_FIXED_ROOM + 16];
    std::snprintf(with_locale, sizeof with_locale, "%.*f", decimals, value);
    std::string copy(with_locale);
    const std::string point = std::localeconv()->decimal_point;
    const std::size_t at = copy.find(point);
    if (decimals && at != std::string::npos) copy.replace(at, point.size(), ".");
    std::memcpy(text, copy.data(), copy.size() < room ? copy.size() : room);
    return copy.size();
#endif
}

} // extern "C"
