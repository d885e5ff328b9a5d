// What numbers.h leaves over. Most of it needs no library: the double nearest to a decimal of up to
// 19 digits, the shortest digits of a float. For longer decimals and for "%.*f" there is C++17's
// <charconv>, which is exact, needs no locale and no memory. Where the library does not say that it
// has floating point there (libc++, for years), or with RLW_NO_CHARCONV, C's strtod and snprintf do
// the same, slower; they follow the process's locale, so nobody may call setlocale() meanwhile.
#include "numbers.h"
#include "powers_of_ten.h"

#include <charconv>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

// 10**q, cut to 128 bits and a unit more where it was cut.
struct Power {
    std::uint64_t high, low;
};

Power ten_to(int q) {
    const std::uint64_t *power = rlw_powers_of_ten[q - RLW_TEN_LEAST];
    return {power[0], power[1] + (q < 0 || q > 55)};
}

unsigned leading_zeros(std::uint64_t value) {
#if defined(__GNUC__)
    return static_cast<unsigned>(__builtin_clzll(value));
#else
    unsigned count = 0;
    for (; !(value >> 63); value <<= 1) count++;
    return count;
#endif
}

// The double nearest to w * 10**q, as its bits, by Eisel and Lemire: the first 128 bits of the
// product tell it, always (Mushtak and Lemire, "Fast number parsing without fallback", 2023).
std::uint64_t nearest_double(std::uint64_t w, int q) {
    const std::uint64_t infinite = UINT64_C(0x7FF) << 52;
    if (!w || q < -342) return 0;
    if (q > 308) return infinite;
    const unsigned zeros = leading_zeros(w);
    w <<= zeros;
    const std::uint64_t *cut = rlw_powers_of_ten[q - RLW_TEN_LEAST];
    std::uint64_t high, more, low = rlw_multiply(w, cut[0], &high);
    if ((high & 0x1FF) == 0x1FF) { // what is below may carry into the 55 bits that count
        rlw_multiply(w, cut[1] + (q < 0 && q >= -27), &more);
        low += more;
        high += low < more;
    }
    const unsigned upper = static_cast<unsigned>(high >> 63), shift = upper + 9;
    std::uint64_t mantissa = high >> shift;
    int exponent = ((217706 * q) >> 16) + 1086 + static_cast<int>(upper) - static_cast<int>(zeros);
    if (exponent <= 0) { // subnormal
        if (exponent <= -63) return 0;
        mantissa >>= 1 - exponent;
        mantissa += mantissa & 1;
        return mantissa >> 1; // 2**52 is the first normal one
    }
    if (low <= 1 && q >= -4 && q <= 23 && (mantissa & 3) == 1 && mantissa << shift == high)
        mantissa &= ~UINT64_C(1); // exactly between two: the even one
    mantissa += mantissa & 1;
    mantissa >>= 1;
    if (mantissa >> 53) {
        mantissa >>= 1;
        exponent++;
    }
    if (exponent >= 0x7FF) return infinite;
    return static_cast<std::uint64_t>(exponent) << 52 | (mantissa & ((UINT64_C(1) << 52) - 1));
}

// digits * 10**power
struct Decimal {
    std::uint64_t digits;
    int power;
};

// floor(g * c / 2**128), its last bit set where something was cut.
std::uint64_t round_to_odd(const Power &g, std::uint64_t c) {
    std::uint64_t below, high, low = rlw_multiply(g.high, c, &high);
    rlw_multiply(g.low, c, &below);
    low += below;
    high += low < below;
    return high | (low > 1);
}

// The shortest digits that read back as c * 2**q, of those the nearest: Giulietti's Schubfach.
// `closer`: the float below is half as far away as the one above.
Decimal shortest(std::uint64_t c, int q, bool closer) {
    const int k = (q * 1262611 - (closer ? 524031 : 0)) >> 22; // floor(log10(2**q)), of 3/4 of it
    const int h = q + ((-k * 1741647) >> 19) + 1;
    const Power g = ten_to(-k);
    const std::uint64_t odd = c & 1;
    const std::uint64_t lower = round_to_odd(g, (4 * c - 2 + closer) << h) + odd;
    const std::uint64_t middle = round_to_odd(g, (4 * c) << h);
    const std::uint64_t upper = round_to_odd(g, (4 * c + 2) << h) - odd;
    const std::uint64_t s = middle / 4;
    if (s >= 10) {
        const std::uint64_t tens = s / 10;
        const bool below = lower <= 40 * tens, above = 40 * tens + 40 <= upper;
        if (below != above) return {tens + above, k + 1};
    }
    const bool below = lower <= 4 * s, above = 4 * s + 4 <= upper;
    if (below != above) return {s + above, k};
    return {s + (middle > 4 * s + 2 || (middle == 4 * s + 2 && (s & 1))), k};
}

Decimal shortest(double value) {
    const std::uint64_t bits = rlw_double_bits(value), fraction = bits & ((UINT64_C(1) << 52) - 1);
    const int exponent = static_cast<int>(bits >> 52 & 0x7FF);
    if (!exponent) return shortest(fraction, -1074, false);
    return shortest(fraction | UINT64_C(1) << 52, exponent - 1075, !fraction && exponent > 1);
}

Decimal shortest(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint32_t fraction = bits & 0x7FFFFF;
    const int exponent = static_cast<int>(bits >> 23 & 0xFF);
    if (!exponent) return shortest(fraction, -149, false);
    return shortest(fraction | 0x800000u, exponent - 150, !fraction && exponent > 1);
}

// A finite number that is not 0, with a point or an exponent; with a point, from 1e-4 to 1e16.
template <class Real> std::size_t write(std::uint8_t *to, Real value, int exponent) {
    Decimal d = shortest(value);
    std::uint8_t *end = to;
    while (d.digits % 10 == 0) {
        d.digits /= 10;
        d.power++;
    }
    const unsigned count = rlw_count_digits(d.digits);
    const int first = d.power + static_cast<int>(count) - 1; // the first digit's power of ten
    const unsigned size = static_cast<unsigned>(first < 0 ? -first : first);
    if (exponent) {
        rlw_store_digits(end + 1 + count, d.digits, count);
        *end = end[1];
        end[1] = '.';
        end += count > 1 ? count + 1 : 1;
        *end++ = 'e';
        *end++ = first < 0 ? '-' : '+';
        if (size < 10) *end++ = '0';
        end = rlw_put_u64(end, size);
    } else if (first < 0) { // at most "0.000" before the digits
        std::memcpy(end, "0.000000", 8);
        end += size + 1 + count;
        rlw_store_digits(end, d.digits, count);
    } else if (d.power >= 0) {
        end += count;
        rlw_store_digits(end, d.digits, count);
        for (; d.power; d.power--) *end++ = '0';
    } else {
        rlw_store_digits(end + 1 + count, d.digits, count);
        for (unsigned i = 0; i <= size; i++) end[i] = end[i + 1];
        end[size + 1] = '.';
        end += count + 1;
    }
    return static_cast<std::size_t>(end - to);
}

} // namespace

extern "C" {

double rlw_scaled_to_double(std::uint64_t mantissa, std::int32_t exponent) {
    return rlw_bits_double(nearest_double(mantissa, exponent));
}

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
