// Vectors of WIDTH floats, the SIMD register of the CPU that this is compiled for, and functions of them.
//
// Vector extensions of GCC and clang: + - * / and comparisons work lane by lane, also with a scalar.  The functions are
// those of the Cephes library (S. Moshier) and accurate to about one unit in the last place.
#pragma once
#include <cstdint>
#include <cstring>

#ifndef WIDTH
#error "WIDTH, the floats of a vector, must be 4, 8 or 16"
#endif
#define INLINE static inline __attribute__((always_inline))
#define EXPORT extern "C" __attribute__((visibility("default")))
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_SHUFFLE 1
#endif
#endif

namespace equibayes {

typedef float plain_vec __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t uvec __attribute__((vector_size(4 * WIDTH)));
typedef float unaligned_vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

// n, up to a multiple of WIDTH
constexpr long padded(long n) { return (n + WIDTH - 1) / WIDTH * WIDTH; }

INLINE plain_vec plain_splat(float x) { return x - plain_vec{}; }  // x − 0 keeps the sign of zero

// the sum of all lanes, always in the same order: halves are added until one number is left
INLINE float hsum(plain_vec x) {
    typedef float four __attribute__((vector_size(16)));
    four part[WIDTH / 4];
    memcpy(part, &x, sizeof x);
    for (int count = WIDTH / 4; count > 1; count /= 2)
        for (int i = 0; i < count / 2; ++i) part[i] += part[i + count / 2];
    return (part[0][0] + part[0][2]) + (part[0][1] + part[0][3]);
}

INLINE plain_vec sqrt(plain_vec x) {
    plain_vec root;
    for (int i = 0; i < WIDTH; ++i) root[i] = __builtin_sqrtf(x[i]);
    return root;
}

// x + ROUND − ROUND is x rounded to an integer, which the low bits of x + ROUND hold
constexpr float ROUND = 12582912.0f;  // 1.5·2²³

// eˣ for |x| ≤ 87, beyond which x is taken as ±87
INLINE plain_vec exp(plain_vec x) {
    x = x < -87.0f ? plain_splat(-87.0f) : x;
    x = x > 87.0f ? plain_splat(87.0f) : x;
    plain_vec shifted = x * 1.44269504088896341f + ROUND, n = shifted - ROUND;
    plain_vec r = x - n * 0.693359375f + n * 2.12194440e-4f;  // x − n ln 2
    plain_vec p = plain_splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (plain_vec)((((ivec)shifted - 0x4B400000) << 23) + 0x3f800000);  // times 2ⁿ
}

// 1/(1 + e⁻ˣ)
INLINE plain_vec sigmoid(plain_vec x) { return 1.0f / (1.0f + exp(-x)); }

INLINE plain_vec tanh(plain_vec x) {
    plain_vec size = x < 0.0f ? -x : x, square = x * x;
    plain_vec p = plain_splat(-5.70498872745e-3f);
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    plain_vec far = 1.0f - 2.0f / (exp(2.0f * size) + 1.0f);
    return size < 0.625f ? p * square * x + x : (x < 0.0f ? -far : far);
}

// ln x for normal x > 0
INLINE plain_vec log(plain_vec x) {
    ivec bits = (ivec)x, e = (bits >> 23) - 126;
    plain_vec m = (plain_vec)((bits & 0x007fffff) | 0x3f000000);  // x = m 2ᵉ, ½ ≤ m < 1
    ivec small = m < 0.707106781186547524f;           // −1 where true
    e += small;
    m = small ? m + m - 1.0f : m - 1.0f;
    plain_vec square = m * m, p = plain_splat(7.0376836292e-2f);
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    plain_vec exponent = __builtin_convertvector(e, plain_vec);
    p = p * m * square - 2.12194440e-4f * exponent - 0.5f * square;
    return m + p + 0.693359375f * exponent;
}

// sin x and cos x for |x| up to some thousands
INLINE void sincos(plain_vec x, plain_vec& sine, plain_vec& cosine) {
    plain_vec shifted = x * 0.63661977236758134f + ROUND, n = shifted - ROUND;
    ivec quarter = (ivec)shifted;
    plain_vec r = x - n * 1.5703125f;  // x − n π/2, in three pieces of π/2
    r = r - n * 4.837512969970703125e-4f;
    r = r - n * 7.54978995489188216e-8f;
    plain_vec square = r * r;
    plain_vec s = ((-1.9515295891e-4f * square + 8.3321608736e-3f) * square - 1.6666654611e-1f) * square * r + r;
    plain_vec c = (2.443315711809948e-5f * square - 1.388731625493765e-3f) * square + 4.166664568298827e-2f;
    c = c * square * square - 0.5f * square + 1.0f;
    ivec odd = (quarter & 1) != 0;
    plain_vec of_sine = odd ? c : s, of_cosine = odd ? s : c;
    sine = (plain_vec)((ivec)of_sine ^ ((quarter & 2) << 30));
    cosine = (plain_vec)((ivec)of_cosine ^ (((quarter + 1) & 2) << 30));
}

// a0 b0 a1 b1 …, in two vectors
INLINE void interleave(plain_vec a, plain_vec b, plain_vec& low, plain_vec& high) {
#if HAS_SHUFFLE && WIDTH == 16
    low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif HAS_SHUFFLE && WIDTH == 8
    low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    for (int i = 0; i < WIDTH / 2; ++i) {
        low[2 * i] = a[i], low[2 * i + 1] = b[i];
        high[2 * i] = a[WIDTH / 2 + i], high[2 * i + 1] = b[WIDTH / 2 + i];
    }
#endif
}

}  // namespace equibayes

#ifdef COUNT_OPERATIONS
#include "counted.h"
#endif

namespace equibayes {

#ifndef COUNT_OPERATIONS
typedef plain_vec vec;
#endif

INLINE vec zero() { return plain_vec{}; }
INLINE vec load(const float* from) { return (plain_vec) * (const unaligned_vec*)from; }
INLINE void store(float* to, vec x) { *(unaligned_vec*)to = (plain_vec)x; }

// the first n lanes; the others are 0 and are not stored
INLINE vec load(const float* from, long n) {
    vec x = zero();
    memcpy(&x, from, 4 * n);
    return x;
}
INLINE void store(float* to, vec x, long n) { memcpy(to, &x, 4 * n); }

INLINE vec splat(float x) { return plain_splat(x); }

}  // namespace equibayes
