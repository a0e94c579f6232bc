// The counter-based noise of sampling/noise.py: the same Philox words, and the same normals up to the rounding of ln,
// cos and sin.
#pragma once
#include "vector.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace equibayes {

typedef uint64_t wide __attribute__((vector_size(4 * WIDTH)));  // half as many lanes of 64 bits

// products of the lower 32 bits of every 64-bit lane
INLINE wide multiply(wide x, uint32_t m) {
#if defined(__AVX512F__) && WIDTH == 16
    return (wide)_mm512_mul_epu32((__m512i)x, _mm512_set1_epi64(m));
#elif defined(__AVX2__) && WIDTH == 8
    return (wide)_mm256_mul_epu32((__m256i)x, _mm256_set1_epi64x(m));
#elif defined(__SSE2__) && WIDTH == 4
    return (wide)_mm_mul_epu32((__m128i)x, _mm_set1_epi64x(m));
#else
    return (x & 0xffffffffu) * (uint64_t)m;
#endif
}

// the two words of the 64-bit products x m
INLINE void multiply(uvec x, uint32_t m, uvec& high, uvec& low) {
    constexpr uint64_t WORD = 0xffffffffu;
    wide even = multiply((wide)x, m), odd = multiply((wide)x >> 32, m);
    high = (uvec)((even >> 32) | (odd & ~WORD));
    low = (uvec)((even & WORD) | (odd << 32));
}

struct Words {
    uvec of[4];
};

// Philox-4x32-10 of the counters (index + lane, step, chain, stream)
INLINE Words philox(uint64_t seed, uint32_t index, uint32_t step, uint32_t chain, uint32_t stream) {
    uvec c0, c1 = uvec{} + step, c2 = uvec{} + chain, c3 = uvec{} + stream;
    for (int i = 0; i < WIDTH; ++i) c0[i] = index + i;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        uvec high0, low0, high1, low1;
        multiply(c0, 0xD2511F53u, high0, low0);
        multiply(c2, 0xCD9E8D57u, high1, low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// words of (index + lane), four for each lane, one after the other
INLINE void store_words(const Words& words, uint32_t* to) {
    for (int i = 0; i < WIDTH; ++i)
        for (int k = 0; k < 4; ++k) to[4 * i + k] = words.of[k][i];
}

// words as floats; in two halves, which is rounded once as well, where there is no such instruction
INLINE vec to_float(uvec x) {
#if defined(__AVX512F__) || defined(__aarch64__)
    return __builtin_convertvector(x, vec);
#else
    return __builtin_convertvector((ivec)(x >> 16), vec) * 65536.0f + __builtin_convertvector((ivec)(x & 0xffff), vec);
#endif
}

// 4·WIDTH standard normals of the counters (quad + lane, step, chain, stream), one after the other
INLINE void normals(uint64_t seed, uint32_t quad, uint32_t step, uint32_t chain, uint32_t stream, vec z[4]) {
    constexpr float UNIT = 2.3283064365386963e-10f, TURN = 1.4629180792671596e-09f;  // 1/2³², 2π/2³²
    const Words words = philox(seed, quad, step, chain, stream);
    vec even[2], odd[2];
    for (int pair = 0; pair < 2; ++pair) {
        vec u = (to_float(words.of[2 * pair]) + 1.0f) * UNIT;
        vec radius = sqrt(-2.0f * log(u)), sine, cosine;
        sincos(to_float(words.of[2 * pair + 1]) * TURN, sine, cosine);
        even[pair] = radius * cosine;
        odd[pair] = radius * sine;
    }
    // e0 o0 E0 O0 e1 …: even lanes from both pairs, odd ones likewise, then both
    vec evens[2], odds[2];
    interleave(even[0], even[1], evens[0], evens[1]);
    interleave(odd[0], odd[1], odds[0], odds[1]);
    interleave(evens[0], odds[0], z[0], z[1]);
    interleave(evens[1], odds[1], z[2], z[3]);
}

}  // namespace equibayes
