// What numbers.h leaves over. Most of it needs no library: the double nearest to a decimal of up to
// 19 digits, the shortest digits of a float. For longer decimals and for "%.*f" there is C++17's
// <charconv>, which is exact, needs no locale and no memory. Where the library does not say that it
// has floating point there (libc++, for years), or with RLW_NO_CHARCONV, C's strtod and snprintf do
// the same, slower; they follow the process's locale, so nobody may call setlocale() meanwhile.
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

#if defined(__x86_64__) && !defined(RLW_NO_SIMD) // which always has SSE2
#include <emmintrin.h>
#define RLW_SSE2 1
#else
#define RLW_SSE2 0
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
    // What is out of range, or subnormal to some libraries, has no value here.
    if (std::from_chars(text, text + size, value).ec == std::errc()) return value;
#endif
    return read_slowly<Real>(text, size);
}

// Powers of ten, 10**-342 to 10**324: of each the first 128 bits, the rest cut off. Those from 10**0
// to 10**55 are exact. The table of Lemire, "Number parsing at a gigabyte per second" (2021), and of
// Giulietti, "The Schubfach way to render doubles" (2022), who both take some a unit larger.
const int least_power = -342, most_power = 324;

struct Power {
    std::uint64_t high, low;
};

struct Powers {
    Power of[most_power - least_power + 1];
};

struct Big { // a whole number, the lowest word first
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

constexpr Powers make_powers() { // the compiler does it; 10**q begins as 5**q does
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
    big.word[30] = 1; // 2**960, of which 5**-342 leaves more than 128 bits
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

// 10**q, cut to 128 bits.
const Power &cut_ten_to(int q) { return powers.of[q - least_power]; }

// And a unit more where it was cut.
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

// The double nearest to w * 10**q, as its bits, by Eisel and Lemire: the first 128 bits of the
// product tell it, always (Mushtak and Lemire, "Fast number parsing without fallback", 2023).
std::uint64_t nearest_double(std::uint64_t w, int q) {
    const std::uint64_t infinite = UINT64_C(0x7FF) << 52;
    if (!w || q < -342) return 0;
    if (q > 308) return infinite;
    const unsigned zeros = leading_zeros(w);
    w <<= zeros;
    const Power &cut = cut_ten_to(q);
    std::uint64_t high, more, low = rlw_multiply(w, cut.high, &high);
    if ((high & 0x1FF) == 0x1FF) { // what is below may carry into the 55 bits that count
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

// The same in one product, where that is sure to tell: all but ties, which are one in 2**30 floats
// that are not made to be ties.
//
// Of c * 2**q, c with all its bits, in units of the power of ten just above 2**q:
struct Parts {
    std::uint64_t whole;    // less than c
    std::uint64_t fraction; // of 2**64, and so is `half`; both are too small by less than `error`
    std::uint64_t half;     // of the distance to the next number: 1/20 to 1/2
    std::uint64_t error;
    int power; // the unit
};

// The whole number below or above, where it is near enough to read back, and no digit; else one
// digit more, whose unit is less than the distance to the next number. False: nearly a tie. Which
// of the three it is nobody can predict, so there is no branch.
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

// The unit, and the shift that makes the product below begin four bits before the point.
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

// Zero bytes above the highest one that is not. (Counting bits from above is slow on some.)
unsigned zeros_above(std::uint64_t bits) {
#if defined(__GNUC__)
    return rlw_lowest_byte(__builtin_bswap64(bits));
#else
    return leading_zeros(bits) / 8;
#endif
}

// The digits of two numbers below 10**8, as rlw_eight_digits().
struct Words {
    std::uint64_t top, low;
};

#if RLW_SSE2
__m128i times(__m128i a, __m128i b) {
#if defined(__GNUC__) // which would make more shifts and additions of a known factor
    __asm__("" : "+x"(b));
#endif
    return _mm_mullo_epi16(a, b);
}
#endif

Words digits_of(std::uint32_t top, std::uint32_t low) {
#if RLW_SSE2
    const __m128i all = _mm_set_epi64x(low, top);
    __m128i high = _mm_srli_epi64(_mm_mul_epu32(all, _mm_set1_epi32(0x68DB8BAD)), 44);
    __m128i rest = _mm_sub_epi32(all, _mm_mul_epu32(high, _mm_set1_epi32(10000)));
    const __m128i fours = _mm_or_si128(high, _mm_slli_epi64(rest, 32));
    high = _mm_srli_epi16(_mm_mulhi_epu16(fours, _mm_set1_epi16(5243)), 3);
    rest = _mm_sub_epi16(fours, times(high, _mm_set1_epi16(100)));
    const __m128i pairs = _mm_or_si128(high, _mm_slli_epi32(rest, 16));
    high = _mm_mulhi_epu16(pairs, _mm_set1_epi16(6554));
    rest = _mm_sub_epi16(pairs, times(high, _mm_set1_epi16(10)));
    const __m128i ones = _mm_or_si128(high, _mm_slli_epi16(rest, 8));
    return {static_cast<std::uint64_t>(_mm_cvtsi128_si64(ones)),
            static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(ones, ones)))};
#else
    return {rlw_eight_digits(top), rlw_eight_digits(low)};
#endif
}

const std::uint64_t zeros = UINT64_C(0x3030303030303030);

// Numbers whose first digit has another power of ten get an exponent.
bool has_exponent(int power) { return power < -4 || power > 15; }

std::uint8_t *put_exponent(std::uint8_t *to, int power) {
    const unsigned size = static_cast<unsigned>(power < 0 ? -power : power);
    to[0] = 'e';
    to[1] = power < 0 ? '-' : '+';
    to[2] = '0';
    return rlw_put_below_10000(to + 2 + (size < 10), size);
}

// Byte by byte, for what is rare.
RLW_NEVER_INLINE std::size_t write_slowly(std::uint8_t *to, Decimal d) {
    std::uint8_t room[20], *end = to;
    while (d.digits % 10 == 0) {
        d.digits /= 10;
        d.power++;
    }
    const int count = static_cast<int>(rlw_put_u64(room, d.digits) - room);
    const int first = d.power + count - 1, point = has_exponent(first) ? 1 : first + 1;
    int i = point < 1 ? point - 1 : 0; // of the digits; those outside are zeros
    for (; i < count || i < point; i++) {
        if (i == point) *end++ = '.';
        *end++ = i >= 0 && i < count ? room[i] : '0';
    }
    if (has_exponent(first)) end = put_exponent(end, first);
    return static_cast<std::size_t>(end - to);
}

// Writes 16 digits, or 8, of which the first two may be zeros, and a `last` one. Which of them
// count, and where the point is, nobody can predict: whole words are stored, what is too much of
// them is written over or left, and there are few branches.
template <int words>
inline std::size_t write(std::uint8_t *to, std::uint64_t whole, unsigned last, int power) {
    const std::uint32_t head = static_cast<std::uint32_t>(words > 1 ? whole / 100000000 : whole);
    const std::uint32_t tail = static_cast<std::uint32_t>(whole - UINT64_C(100000000) * head);
    const Words w = digits_of(head, words > 1 ? tail : 0);
    const unsigned before = rlw_lowest_byte(w.top); // zeros in front
    unsigned unused =
        words > 1 && w.low ? zeros_above(w.low) : 8 * (words - 1) + zeros_above(w.top);
    unused = (unused + 1) & (0u - !last);
    int count = 8 * words + 1 - static_cast<int>(before + unused);
    const int first = power + 8 * words - 1 - static_cast<int>(before); // its power of ten
    const bool exponent = has_exponent(first);
    // Below 1, zeros after the point are digits too.
    const int more = exponent ? 0 : -first & -(first < 0);
    count += more;
    const int point = exponent ? 1 : first + more + 1;
    if (point >= count) return write_slowly(to, {whole * 10 + last, power - 1});
    // All digits a byte further than they belong, then the first eight, the point among them.
    const std::uint64_t next = words > 1 ? w.low : last;
    const std::uint64_t eight = w.top >> (8 * before) | next << 1 << (63 - 8 * before);
    const std::uint64_t begin = (eight << (8 * more)) + zeros;
    const std::uint64_t after = ~UINT64_C(0) << (8 * (point & 7));
    std::uint8_t *out = to + 1 + more;
    if (words > 1) {
        out -= before; // at most one
        rlw_store_word(out, w.top + zeros);
        rlw_store_word(out + 8, w.low + zeros);
        out[16] = static_cast<std::uint8_t>('0' + last);
    } else {
        rlw_store_word(out, eight + zeros);
        out[8 - before] = static_cast<std::uint8_t>('0' + last);
    }
    if (point > 7) { // from 1e7 to 1e16: too many for a word
        std::uint8_t digits[40];
        std::memcpy(digits, to + 1, 24);
        std::memcpy(to, digits, 16);
        std::memcpy(to + point + 1, digits + point, 8);
        to[point + 9] = digits[point + 8];
    } else {
        rlw_store_word(to, begin ^ ((begin ^ begin << 8) & after));
    }
    to[point] = '.';
    if (exponent) return static_cast<std::size_t>(put_exponent(to + count + 1, first) - to);
    return static_cast<std::size_t>(count + 1);
}

std::uint64_t bits_of(double value) { return rlw_double_bits(value); }
std::uint32_t bits_of(float value) { return rlw_float_bits(value); }

// A number above 0: its bits, those of the fraction, the exponent's field, and what that is less for
// the fraction's last bit.
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
    if (!of.exponent) return write_slowly(to, shortest(of.fraction, 1 - of.bias, false));
    return write_slowly(to, shortest(of.fraction | of.hidden, of.exponent - of.bias,
                                     !of.fraction && of.exponent > 1));
}

template <class Real> inline std::size_t to_digits(std::uint8_t *to, Real value) {
    const Fields<Real> of(value);
    if (!of.exponent || !of.fraction) return write_slowly(to, value);
    Parts parts = parts_of(of.fraction | of.hidden, of.exponent - of.bias);
    unsigned last;
    if (!choose(parts, last)) return write_slowly(to, value);
    return write<sizeof(Real) / 4>(to, parts.whole, last, parts.power);
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
