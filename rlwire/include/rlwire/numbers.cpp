// The rare cases of numbers.h. Decimals of more than 19 digits and "%.*f" use C++17's <charconv>.
// Without its floating point (libc++ before 20), or with RLW_NO_CHARCONV, C's strtod and snprintf do
// the same, slower and in the process's locale: do not call setlocale() at the same time.
#include "numbers.h"

#include <charconv>
#include <clocale>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>

#if (defined(__cpp_lib_to_chars) || _LIBCPP_AVAILABILITY_HAS_FROM_CHARS_FLOATING_POINT) && \
    !defined(RLW_NO_CHARCONV)
#define RLW_CHARCONV 1
#else
#define RLW_CHARCONV 0
#endif

#if defined(__GNUC__)
#define RLW_NEVER_INLINE __attribute__((noinline))
#elif defined(_MSC_VER)
#define RLW_NEVER_INLINE __declspec(noinline)
#else
#define RLW_NEVER_INLINE
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
    // Numbers out of range, and subnormal ones for some libraries, give an error.
    if (std::from_chars(text, text + size, value).ec == std::errc()) return value;
#endif
    return read_slowly<Real>(text, size);
}

// Powers of ten from 10**-342 to 10**324: the first 128 bits of each, truncated. 10**0 to 10**55 are
// exact. The table is that of Lemire, "Number parsing at a gigabyte per second" (2021), and Giulietti,
// "The Schubfach way to render doubles" (2022), which round some entries up by one unit.
const int least_power = -342, most_power = 324;

struct Power {
    std::uint64_t high, low;
};

struct Powers {
    Power of[most_power - least_power + 1];
};

struct Big { // an integer, lowest word first
    std::uint32_t word[31];
};

constexpr Power first_bits(const Big &big) {
    int top = 30;
    unsigned shift = 0;
    std::uint64_t pair[3] = {};
    while (!big.word[top]) top--;
    while (!(big.word[top] << shift >> 31)) shift++;
    for (int i = 0; i < 5 && i <= top; i++)
        pair[i / 2] |= static_cast<std::uint64_t>(big.word[top - i]) << (i % 2 ? 0 : 32);
    return {pair[0] << shift | pair[1] >> 1 >> (63 - shift),
            pair[1] << shift | pair[2] >> 1 >> (63 - shift)};
}

constexpr Powers make_powers() { // at compile time; 10**q has the leading bits of 5**q
    Powers made = {};
    Big big = {{1}};
    for (int q = 0; q <= most_power; q++) {
        made.of[q - least_power] = first_bits(big);
        std::uint64_t carry = 0;
        for (std::uint32_t &word : big.word) {
            carry += UINT64_C(5) * word;
            word = static_cast<std::uint32_t>(carry);
            carry >>= 32;
        }
    }
    big = {};
    big.word[30] = 1; // 2**960: after dividing by 5**342, more than 128 bits are left
    for (int q = -1; q >= least_power; q--) {
        std::uint64_t rest = 0;
        for (int i = 30; i >= 0; i--) {
            rest = rest << 32 | big.word[i];
            big.word[i] = static_cast<std::uint32_t>(rest / 5);
            rest %= 5;
        }
        made.of[q - least_power] = first_bits(big);
    }
    return made;
}

constexpr Powers powers = make_powers();

// 10**q, truncated to 128 bits.
const Power &cut_ten_to(int q) { return powers.of[q - least_power]; }

// The same, one unit larger if truncated.
Power ten_to(int q) {
    const Power &cut = cut_ten_to(q);
    return {cut.high, cut.low + (q < 0 || q > 55)};
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

// Returns the bits of the double nearest to w * 10**q, by Eisel and Lemire. The first 128 bits of the
// product always suffice (Mushtak and Lemire, "Fast number parsing without fallback", 2023).
std::uint64_t nearest_double(std::uint64_t w, int q) {
    const std::uint64_t infinite = UINT64_C(0x7FF) << 52;
    if (!w || q < -342) return 0;
    if (q > 308) return infinite;
    const unsigned zeros = leading_zeros(w);
    w <<= zeros;
    const Power &cut = cut_ten_to(q);
    std::uint64_t high, more, low = rlw_multiply(w, cut.high, &high);
    if ((high & 0x1FF) == 0x1FF) { // lower bits may carry into the 55 significant ones
        rlw_multiply(w, cut.low + (q < 0 && q >= -27), &more);
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
        return mantissa >> 1; // 2**52 is the first normal number
    }
    if (low <= 1 && q >= -4 && q <= 23 && (mantissa & 3) == 1 && mantissa << shift == high)
        mantissa &= ~UINT64_C(1); // exactly halfway: round to even
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

// floor(g * c / 2**128), with the last bit set if it is inexact.
std::uint64_t round_to_odd(const Power &g, std::uint64_t c) {
    std::uint64_t below, high, low = rlw_multiply(g.high, c, &high);
    rlw_multiply(g.low, c, &below);
    low += below;
    high += low < below;
    return high | (low > 1);
}

// Returns the shortest digits that read back as c * 2**q, and of those the nearest: Giulietti's
// Schubfach. `closer`: the float below is half as far away as the one above.
Decimal shortest(std::uint64_t c, int q, bool closer) {
    const int k = (q * 1262611 - (closer ? 524031 : 0)) >> 22; // floor(log10(2**q or 3/4 * 2**q))
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

// The same with one product, if that is certain. It is not for ties, one in 2**30 floats unless they
// were constructed as ties.
//
// Parts of c * 2**q, c with all its bits, in units of the power of ten just above 2**q:
struct Parts {
    std::uint64_t whole;    // less than c
    std::uint64_t fraction; // times 2**64, like `half`; both are too small by less than `error`
    std::uint64_t half;     // half the distance to the next number: 1/20 to 1/2
    std::uint64_t error;
    int power; // exponent of the unit
};

// Chooses the integer below or above if it reads back, else one more digit, whose unit is less than the
// distance to the next number. Returns false if it is nearly a tie. Which of the three applies cannot
// be predicted, so there is no branch.
bool choose(Parts &p, unsigned &digit) {
    const std::uint64_t f = p.fraction, e = p.error;
    const bool below = f < p.half, above = f + p.half < f;
    std::uint64_t tenths, rest = rlw_multiply(f, 10, &tenths);
    if (f - p.half + e <= 2 * e || f + p.half + 2 * e <= 3 * e) return false;
    if (rest - (UINT64_C(1) << 63) + 16 * e <= 32 * e) return false;
    p.whole += above;
    digit = static_cast<unsigned>(tenths + (rest >> 63)) & (0u - !(below | above));
    return true;
}

// Returns the unit, and the shift that puts the binary point four bits after the product's start.
int unit_above(int q, unsigned &shift) {
    const int power = ((q * 1262611) >> 22) + 1;
    shift = static_cast<unsigned>(q + ((-power * 1741647) >> 19) + 5); // 1 to 4
    return power;
}

Parts parts_of(std::uint64_t c, int q) { // 53 bits
    unsigned shift;
    const int power = unit_above(q, shift);
    const Power &g = cut_ten_to(-power);
    std::uint64_t high, below, low = rlw_multiply(c << shift, g.high, &high);
    rlw_multiply(c << shift, g.low, &below);
    low += below;
    high += low < below;
    return {high >> 4, high << 60 | low >> 4, g.high >> (5 - shift), 2, power};
}

Parts parts_of(std::uint32_t c, int q) { // 24 bits
    unsigned shift;
    const int power = unit_above(q, shift);
    const std::uint64_t g = cut_ten_to(-power).high;
    std::uint64_t high;
    const std::uint64_t low = rlw_multiply(static_cast<std::uint64_t>(c) << shift, g, &high);
    return {high >> 4, high << 60 | low >> 4, g >> (5 - shift), 1 << 25, power};
}

// Writes digits without trailing zeros; `first` is the first digit's power of ten. Reads up to 34 bytes
// and writes up to RLW_SHORTEST_ROOM.
std::size_t put_digits(std::uint8_t *to, const std::uint8_t *digits, const std::uint8_t *end,
                       int first) {
    while (end[-1] == '0') end--;
    const int count = static_cast<int>(end - digits);
    if (first < -4 || first > 15) {
        std::uint8_t *at = to + count + (count > 1);
        to[0] = digits[0];
        to[1] = '.';
        std::memcpy(to + 2, digits + 1, 16);
        *at++ = 'e';
        *at++ = first < 0 ? '-' : '+';
        const unsigned power = static_cast<unsigned>(first < 0 ? -first : first);
        if (power < 10) *at++ = '0';
        return static_cast<std::size_t>(rlw_put_below_10000(at, power) - to);
    }
    if (first < 0) {
        std::memcpy(to, "0.000", 5);
        std::memcpy(to + 1 - first, digits, 17);
        return static_cast<std::size_t>(1 - first + count);
    }
    std::memcpy(to, digits, 17);
    if (count <= first + 1) {
        std::memset(to + count, '0', static_cast<std::size_t>(first + 1 - count));
        return static_cast<std::size_t>(first + 1);
    }
    std::memcpy(to + first + 2, digits + first + 1, 16);
    to[first + 1] = '.';
    return static_cast<std::size_t>(count + 1);
}

std::uint64_t bits_of(double value) { return rlw_double_bits(value); }
std::uint32_t bits_of(float value) { return rlw_float_bits(value); }

// Fields of a number above 0: the fraction, its bits, the exponent, and the bias for its last bit.
template <class Real> struct Fields {
    using Bits = decltype(bits_of(Real()));
    static const int size = std::numeric_limits<Real>::digits - 1;
    static const int bias = size + std::numeric_limits<Real>::max_exponent - 1;
    static const Bits hidden = static_cast<Bits>(1) << size;
    Bits fraction;
    int exponent;
    explicit Fields(Real value)
        : fraction(bits_of(value) & (hidden - 1)),
          exponent(static_cast<int>(bits_of(value) >> size)) {}
};

template <class Real> RLW_NEVER_INLINE std::size_t write_slowly(std::uint8_t *to, Real value) {
    const Fields<Real> of(value);
    std::uint8_t digits[34] = {};
    const Decimal d = of.exponent ? shortest(of.fraction | of.hidden, of.exponent - of.bias,
                                             !of.fraction && of.exponent > 1)
                                  : shortest(of.fraction, 1 - of.bias, false);
    const std::uint8_t *end = rlw_put_u64(digits, d.digits);
    return put_digits(to, digits, end, d.power + static_cast<int>(end - digits) - 1);
}

template <class Real> inline std::size_t to_digits(std::uint8_t *to, Real value) {
    const Fields<Real> of(value);
    if (!of.exponent || !of.fraction) return write_slowly(to, value);
    Parts parts = parts_of(of.fraction | of.hidden, of.exponent - of.bias);
    unsigned last;
    if (!choose(parts, last)) return write_slowly(to, value);
    const int size = sizeof(Real) * 2; // digits of `whole`; the first two may be zeros
    std::uint8_t digits[34] = {}, *from = digits;
    rlw_store_eight(digits + size - 8, static_cast<std::uint32_t>(parts.whole % 100000000));
    if (size > 8) rlw_store_eight(digits, static_cast<std::uint32_t>(parts.whole / 100000000));
    digits[size] = static_cast<std::uint8_t>('0' + last);
    while (*from == '0') from++;
    return put_digits(to, from, digits + size + 1,
                      parts.power + size - 1 - static_cast<int>(from - digits));
}

} // namespace

extern "C" {

std::size_t rlw_double_to_digits(std::uint8_t *to, double value) { return to_digits(to, value); }
std::size_t rlw_float_to_digits(std::uint8_t *to, float value) { return to_digits(to, value); }

double rlw_scaled_to_double(std::uint64_t mantissa, std::int32_t exponent) {
    return rlw_bits_double(nearest_double(mantissa, exponent));
}

double rlw_digits_to_double(const std::uint8_t *text, std::size_t size) {
    return read<double>(text, size);
}

float rlw_digits_to_float(const std::uint8_t *text, std::size_t size) {
    return read<float>(text, size);
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
