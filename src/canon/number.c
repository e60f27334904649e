#include "canon/number.h"

#include <math.h>
#include <stdint.h>

#include "base/check.h"
#include "canon/pow10_table.h"

__extension__ typedef unsigned __int128 uint128;

enum {
    DIGITS_KEPT = 19, /* every number of 19 digits fits 64 bits */
    /* Larger than any offset in a text of 16 MiB, so that only a written exponent reaches it. */
    EXPONENT_CLAMP = 1000000000,
    DOUBLE_DIGITS = 15, /* DBL_DIG: this many digits survive conversion to a double and back */
};

/* The value of a number's text: 0.d1d2d3... times ten to the power of point. */
struct decimal {
    uint64_t digits;   /* the first significant ones, without trailing zeros unless cut */
    int count;         /* how many those are; 0 for zero */
    bool negative;     /* a minus sign was there, also before zero */
    bool cut;          /* non-zero digits follow those in digits */
    bool clamped;      /* the exponent is beyond EXPONENT_CLAMP, its exact value not known */
    int64_t point;     /* where the point is, counted from before the first digit */
    const char *first; /* the first significant digit in the text */
    const char *end;   /* the end of the mantissa in the text */
};

static int64_t read_exponent(const char *at, const char *end, bool *ret_clamped)
{
    bool negative = *at == '-';
    at += *at == '-' || *at == '+';
    int64_t value = 0;
    for (; at < end; at++) {
        value = value * 10 + (*at - '0');
        if (value > EXPONENT_CLAMP) {
            value = EXPONENT_CLAMP;
            *ret_clamped = true;
        }
    }
    return negative ? -value : value;
}

static void strip_zeros(uint64_t *digits, int *count)
{
    while (*count > 1 && *digits % 10 == 0) {
        *digits /= 10;
        *count -= 1;
    }
}

static struct decimal scan(struct slice text)
{
    ASSERT(text.len > 0);
    const char *at = text.data;
    const char *end = text.data + text.len;
    struct decimal d = {.negative = *at == '-'};
    at += d.negative;
    bool fraction = false;
    for (; at < end && *at != 'e' && *at != 'E'; at++) {
        if (*at == '.') {
            fraction = true;
        } else if (*at == '0' && d.first == NULL) {
            d.point -= fraction;
        } else {
            d.first = d.first == NULL ? at : d.first;
            d.point += !fraction;
            if (d.count < DIGITS_KEPT) {
                d.digits = d.digits * 10 + (uint64_t)(*at - '0');
                d.count++;
            } else {
                d.cut |= *at != '0';
            }
        }
    }
    d.end = at;
    if (at < end) {
        d.point += read_exponent(at + 1, end, &d.clamped);
    }
    if (!d.cut) {
        strip_zeros(&d.digits, &d.count);
    }
    return d;
}

/* floor(log2(10^e)), right for every e of the table; 217706 / 2^16 is a little below log2(10). */
static int log2_of_pow10(int e)
{
    return (e * 217706) >> 16;
}

static uint128 pow10_bits(int e)
{
    ASSERT(e >= POW10_FIRST && e <= POW10_LAST);
    return (uint128)pow10_table[e - POW10_FIRST][0] << 64 | pow10_table[e - POW10_FIRST][1];
}

/*
 * A big natural number, for the texts where 128 bits leave two doubles to choose from. The largest
 * is a midpoint of doubles times 5^1143, below 2^2800; shifting adds less than a thousand bits.
 */
enum {
    BIG_LIMBS_MAX = 128,
    BIG_DIGITS_MAX = 800, /* no midpoint of two doubles has more than 767 significant digits */
};

struct big {
    uint32_t limbs[BIG_LIMBS_MAX]; /* least significant first */
    int count;                     /* limbs in use; the last of them is not zero */
};

static void big_mul_add(struct big *big, uint32_t factor, uint32_t addend)
{
    uint64_t carry = addend;
    for (int i = 0; i < big->count; i++) {
        carry += (uint64_t)big->limbs[i] * factor;
        big->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry > 0) {
        ASSERT(big->count < BIG_LIMBS_MAX);
        big->limbs[big->count++] = (uint32_t)carry;
    }
}

static void big_mul_pow5(struct big *big, int64_t power)
{
    for (; power >= 13; power -= 13) {
        big_mul_add(big, 1220703125, 0); /* 5^13, the largest below 2^32 */
    }
    for (; power > 0; power--) {
        big_mul_add(big, 5, 0);
    }
}

static void big_shift(struct big *big, int64_t bits)
{
    for (; bits >= 31; bits -= 31) {
        big_mul_add(big, UINT32_C(1) << 31, 0);
    }
    big_mul_add(big, UINT32_C(1) << bits, 0);
}

static int big_compare(const struct big *a, const struct big *b)
{
    if (a->count != b->count) {
        return a->count < b->count ? -1 : 1;
    }
    for (int i = a->count - 1; i >= 0; i--) {
        if (a->limbs[i] != b->limbs[i]) {
            return a->limbs[i] < b->limbs[i] ? -1 : 1;
        }
    }
    return 0;
}

/* All digits of the text up to BIG_DIGITS_MAX; a one after them stands for whatever follows. */
static int big_of_digits(const struct decimal *d, struct big *ret)
{
    int count = 0;
    bool more = false;
    *ret = (struct big){.count = 0};
    for (const char *at = d->first; at < d->end; at++) {
        if (*at == '.') {
            continue;
        }
        if (count < BIG_DIGITS_MAX) {
            big_mul_add(ret, 10, (uint32_t)(*at - '0'));
            count++;
        } else {
            more |= *at != '0';
        }
    }
    if (more) {
        big_mul_add(ret, 10, 1);
    }
    return count + more;
}

/* The sign of d - mantissa * 2^exponent, exactly, ignoring the sign of d. */
static int compare_exactly(const struct decimal *d, uint64_t mantissa, int64_t exponent)
{
    struct big a, b = {.count = 0};
    int64_t power = d->point - big_of_digits(d, &a);
    big_mul_add(&b, 1, (uint32_t)(mantissa >> 32));
    big_shift(&b, 32);
    big_mul_add(&b, 1, (uint32_t)mantissa);
    if (power >= 0) {
        big_mul_pow5(&a, power);
    } else {
        big_mul_pow5(&b, -power);
    }
    exponent -= power;
    if (exponent >= 0) {
        big_shift(&b, exponent);
    } else {
        big_shift(&a, -exponent);
    }
    return big_compare(&a, &b);
}

static int bit_length(uint128 x)
{
    uint64_t high = (uint64_t)(x >> 64);
    return high != 0 ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll((uint64_t)x | 1);
}

/* The bits of the double nearest to x * 2^exponent, ties to even; past the largest, infinity. */
static uint64_t round_to_bits(uint128 x, int exponent)
{
    int top = bit_length(x) - 1 + exponent;
    int lowest = top - 52 < -1074 ? -1074 : top - 52;
    int shift = lowest - exponent;
    ASSERT(shift > 0);
    if (shift > 127) {
        return 0;
    }
    uint128 half = (uint128)1 << (shift - 1);
    uint128 rest = x & (2 * half - 1);
    uint64_t mantissa = (uint64_t)(x >> shift);
    mantissa += rest > half || (rest == half && mantissa % 2 == 1);
    /* The leading bit of a normal mantissa, and a carry out of it, both count up the exponent. */
    const uint64_t infinity = UINT64_C(0x7ff) << 52;
    if (lowest > 971) {
        return infinity;
    }
    uint64_t bits = ((uint64_t)(lowest + 1074) << 52) + mantissa;
    return bits < infinity ? bits : infinity;
}

/*
 * The digits times a cut power of ten bound the value from below, and the error of both from above.
 * Where both bounds round to one double, that is it; else they round to neighbours, and the exact
 * comparison with the midpoint decides.
 */
static uint64_t nearest_bits(const struct decimal *d)
{
    int power = (int)(d->point - d->count);
    int spare = __builtin_clzll(d->digits);
    uint64_t digits = d->digits << spare;
    uint128 scale = pow10_bits(power);
    uint128 high = (uint128)digits * (uint64_t)(scale >> 64);
    uint128 low = (uint128)digits * (uint64_t)scale;
    /* One bit less than there is, so that adding the error cannot overflow. */
    uint128 bound = (high + (low >> 64)) >> 1;
    uint128 error = 2 + (d->cut ? (uint128)1 << (64 + spare) : 0);
    int exponent = log2_of_pow10(power) - 127 + 65 - spare;

    uint64_t below = round_to_bits(bound, exponent);
    uint64_t above = round_to_bits(bound + error, exponent);
    if (below == above) {
        return below;
    }
    ASSERT(above == below + 1);
    int biased = (int)(below >> 52);
    uint64_t mantissa = below & ((UINT64_C(1) << 52) - 1);
    mantissa |= biased > 0 ? UINT64_C(1) << 52 : 0;
    int sign = compare_exactly(d, 2 * mantissa + 1, (biased > 0 ? biased : 1) - 1075 - 1);
    return sign > 0 || (sign == 0 && below % 2 == 1) ? above : below;
}

static bool small_exact(const struct decimal *d, double *ret)
{
    static const double exact[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    int64_t power = d->point - d->count;
    if (d->cut || d->digits > UINT64_C(1) << 53 || power < -22 || power > 22) {
        return false;
    }
    /* Both operands are exact, so the one operation rounds once, as IEEE 754 has it. */
    double value = (double)d->digits;
    *ret = power < 0 ? value / exact[-power] : value * exact[power];
    return true;
}

/* The magnitude of d; infinity if it is above the largest double. */
static double magnitude(const struct decimal *d)
{
    double value;
    if (d->count == 0 || d->point <= -324) {
        return 0; /* below half the smallest double, 2.47e-324 */
    }
    if (d->point > 309) {
        return INFINITY;
    }
    if (!small_exact(d, &value)) {
        uint64_t bits = nearest_bits(d);
        memcpy(&value, &bits, sizeof value);
    }
    return value;
}

bool number_to_double(struct slice text, double *ret)
{
    struct decimal d = scan(text);
    double value = magnitude(&d);
    if (isinf(value)) {
        return false;
    }
    *ret = d.negative ? -value : value;
    return true;
}

/*
 * floor(g * x / 2^128) with the lowest bit set when anything was cut off ("round to odd"). Halves
 * and quarters of the result can then be compared as if it were exact. g is a power of ten cut and
 * counted up by one; the paper below proves that its error stays under the second bit tested here.
 */
static uint64_t multiply_to_odd(uint128 g, uint64_t x)
{
    uint128 low = (uint128)(uint64_t)g * x;
    uint128 high = (uint128)(uint64_t)(g >> 64) * x + (uint64_t)(low >> 64);
    return (uint64_t)(high >> 64) | ((uint64_t)high > 1);
}

/*
 * The shortest decimal digits * 10^power that reads back as the positive double with these bits;
 * of several as short the closest, of two as close the even one.
 *
 * The method is Schubfach (R. Giulietti, "The Schubfach way to render doubles", 2020). With 10^k
 * the largest power of ten not above the distance to the next double, the interval of values that
 * round to this double holds at least one multiple of 10^k and at most one of 10^(k+1). So only
 * four candidates exist: the multiples of 10^(k+1), and of 10^k, next below and above the value.
 */
static uint64_t shortest(uint64_t bits, int *ret_power)
{
    int biased = (int)(bits >> 52);
    uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    uint64_t c = biased > 0 ? fraction | UINT64_C(1) << 52 : fraction;
    int q = (biased > 0 ? biased : 1) - 1075;
    bool uneven = fraction == 0 && biased > 1; /* the double below is only half as far away */

    /* floor(log10(2^q)), or of 3/4 of it; verified over all q. */
    int k = uneven ? (q * 1262611 - 524031) >> 22 : (q * 1262611) >> 22;
    int h = q + log2_of_pow10(-k) + 1;
    uint128 g = pow10_bits(-k) + 1;

    /* Four times the value, and the ends of its interval, in units of 10^k. */
    uint64_t value = multiply_to_odd(g, (4 * c) << h);
    uint64_t lower = multiply_to_odd(g, (4 * c - (uneven ? 1 : 2)) << h);
    uint64_t upper = multiply_to_odd(g, (4 * c + 2) << h);
    /* The ends themselves round to the even one of two neighbours. */
    lower += c % 2;
    upper -= c % 2;

    uint64_t s = value / 4;
    uint64_t tens = s / 10;
    bool down = lower <= 40 * tens;
    bool up = 40 * tens + 40 <= upper;
    if (down != up) {
        *ret_power = k + 1;
        return tens + up;
    }
    *ret_power = k;
    down = lower <= 4 * s;
    up = 4 * s + 4 <= upper;
    if (down != up) {
        return s + up;
    }
    return s + (value > 4 * s + 2 || (value == 4 * s + 2 && s % 2 == 1));
}

static char *put_zeros(char *at, int64_t count)
{
    memset(at, '0', (size_t)count);
    return at + count;
}

static char *put_bytes(char *at, const char *from, int64_t count)
{
    memcpy(at, from, (size_t)count);
    return at + count;
}

static char *put_exponent(char *at, int64_t exponent)
{
    *at++ = 'e';
    *at++ = exponent < 0 ? '-' : '+';
    exponent = exponent < 0 ? -exponent : exponent;
    if (exponent >= 100) {
        *at++ = (char)('0' + exponent / 100);
    }
    if (exponent >= 10) {
        *at++ = (char)('0' + exponent / 10 % 10);
    }
    *at++ = (char)('0' + exponent % 10);
    return at;
}

/* ECMA-262 Number::toString(x, 10), steps 6 to 12; count is its k and point its n. */
static size_t put_ecmascript(
    char *ret_text, bool negative, uint64_t digits, int count, int64_t point)
{
    char text[DIGITS_KEPT];
    for (int i = count - 1; i >= 0; i--) {
        text[i] = (char)('0' + digits % 10);
        digits /= 10;
    }
    char *at = ret_text;
    if (negative) {
        *at++ = '-';
    }
    if (count <= point && point <= 21) {
        at = put_bytes(at, text, count);
        at = put_zeros(at, point - count);
    } else if (point > 0 && point <= 21) {
        at = put_bytes(at, text, point);
        *at++ = '.';
        at = put_bytes(at, text + point, count - point);
    } else if (point > -6 && point <= 0) {
        at = put_bytes(at, "0.", 2);
        at = put_zeros(at, -point);
        at = put_bytes(at, text, count);
    } else {
        *at++ = text[0];
        if (count > 1) {
            *at++ = '.';
            at = put_bytes(at, text + 1, count - 1);
        }
        at = put_exponent(at, point - 1);
    }
    return (size_t)(at - ret_text);
}

static int digit_count(uint64_t digits)
{
    int count = 1;
    while (digits >= 10) {
        digits /= 10;
        count++;
    }
    return count;
}

/* The digits, their count and the point of a positive double, as put_ecmascript wants them. */
static struct decimal shortest_decimal(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int power;
    struct decimal d = {.digits = shortest(bits, &power)};
    d.count = digit_count(d.digits);
    d.point = power + d.count;
    strip_zeros(&d.digits, &d.count);
    return d;
}

size_t number_put_double(char ret_text[NUMBER_TEXT_BYTES_MAX], double value)
{
    ASSERT(isfinite(value));
    if (value == 0) {
        ret_text[0] = '0';
        return 1;
    }
    struct decimal d = shortest_decimal(fabs(value));
    return put_ecmascript(ret_text, value < 0, d.digits, d.count, d.point);
}

/*
 * Amounts such as 497.50: at most 15 digits, no exponent and not below one. They lose their
 * trailing zeros and are otherwise canonical as written. Returns 0 for everything else.
 */
static size_t put_amount(char *ret_text, struct slice text)
{
    size_t sign = text.data[0] == '-';
    if (text.len > sign + DOUBLE_DIGITS + 1 || text.data[sign] == '0') {
        return 0;
    }
    size_t point = 0;
    for (size_t i = sign; i < text.len; i++) {
        if (text.data[i] == '.') {
            point = i;
        } else if (text.data[i] > '9') {
            return 0; /* an exponent */
        }
    }
    size_t size = text.len;
    while (point > 0 && text.data[size - 1] == '0') {
        size--;
    }
    size -= point > 0 && size - 1 == point;
    memcpy(ret_text, text.data, size);
    return point > 0 ? size : 0;
}

size_t number_put_canonical(
    char ret_text[NUMBER_TEXT_BYTES_MAX], struct slice text, bool *ret_lossy)
{
    *ret_lossy = false;
    size_t size = put_amount(ret_text, text);
    if (size > 0) {
        return size;
    }
    struct decimal d = scan(text);
    /* Away from the ends of the range, 15 digits survive: no other decimal as short reads as the
     * same double, so the digits written are the shortest already. */
    bool survives = !d.cut && d.count <= DOUBLE_DIGITS && d.point > -300 && d.point < 300;
    if (d.count > 0 && survives) {
        return put_ecmascript(ret_text, d.negative, d.digits, d.count, d.point);
    }
    double value = magnitude(&d);
    if (isinf(value)) {
        return 0;
    }
    if (value == 0) {
        *ret_lossy = d.count > 0;
        ret_text[0] = '0';
        return 1;
    }
    struct decimal s = shortest_decimal(value);
    *ret_lossy = d.cut || d.digits != s.digits || d.point != s.point;
    return put_ecmascript(ret_text, d.negative, s.digits, s.count, s.point);
}

/* The next significant digit, or zero after the last; skips the point. */
static char next_digit(const char **at, const char *end)
{
    if (*at < end && **at == '.') {
        *at += 1;
    }
    if (*at >= end) {
        return '0';
    }
    char digit = **at;
    *at += 1;
    return digit;
}

bool number_equal(struct slice a, struct slice b)
{
    if (slice_equal(a, b)) {
        return true;
    }
    struct decimal x = scan(a), y = scan(b);
    if (x.count == 0 || y.count == 0) {
        return x.count == y.count;
    }
    if (x.negative != y.negative || x.point != y.point || x.clamped || y.clamped) {
        return false;
    }
    const char *p = x.first, *q = y.first;
    while (p < x.end || q < y.end) {
        if (next_digit(&p, x.end) != next_digit(&q, y.end)) {
            return false;
        }
    }
    return true;
}
