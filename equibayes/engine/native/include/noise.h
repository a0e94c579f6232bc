// The counter-based noise of sampling/noise.py: the same Philox words, and the same normals up to the rounding of ln,
// cos and sin.
#pragma once
#include "vector.h"
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
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
#elif defined(__aarch64__)
    return (wide)vmull_u32(vmovn_u64((uint64x2_t)x), vdup_n_u32(m));
#else
    return (x & 0xffffffffu) * (uint64_t)m;
#endif
}

struct Words {
    uvec of[4];
};

// Four counters in the lower halves of 64-bit lanes.  What is in the upper halves is never looked at.
struct Counters {
    wide c0, c1, c2, c3;

    __attribute__((always_inline)) void round(uint32_t k0, uint32_t k1) {
        const wide p0 = multiply(c0, 0xD2511F53u), p1 = multiply(c2, 0xCD9E8D57u);
        c0 = (p1 >> 32) ^ c1 ^ (uint64_t)k0;
        c2 = (p0 >> 32) ^ c3 ^ (uint64_t)k1;
        c1 = p1, c3 = p0;
    }
};

// Philox-4x32-10 of the counters (index + lane, step, chain, stream), for even and odd lanes apart
INLINE Words philox(uint64_t seed, uint32_t index, uint32_t step, uint32_t chain, uint32_t stream) {
    static constexpr uint64_t LANES_EVEN[8] = {0, 2, 4, 6, 8, 10, 12, 14};
    wide own;
    memcpy(&own, LANES_EVEN, sizeof own);
    own += (uint64_t)index;
    const wide none = {};
    Counters even{own, none + step, none + chain, none + stream}, odd = even;
    odd.c0 += 1;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) even.round(k0, k1), odd.round(k0, k1);
    auto merged = [](wide x, wide y) { return (uvec)((x & 0xffffffffu) | (y << 32)); };
    return {{merged(even.c0, odd.c0), merged(even.c1, odd.c1), merged(even.c2, odd.c2), merged(even.c3, odd.c3)}};
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
