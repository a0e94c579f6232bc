// An order of atoms in which neighbours are mostly close, so that the features of neighbours stay in the cache.
//
// Atoms are placed along a Hilbert curve: J. Skilling, AIP Conf. Proc. 707, 381 (2004).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace equibayes {

constexpr int CURVE_BITS = 10;  // of each coordinate on the curve

// the number of a cell along the curve, from its three coordinates
inline uint32_t along_curve(uint32_t x[3]) {
    for (uint32_t q = 1u << (CURVE_BITS - 1); q > 1; q >>= 1)
        for (int i = 0; i < 3; ++i) {
            const uint32_t low = q - 1, swapped = (x[0] ^ x[i]) & low;
            if (x[i] & q)
                x[0] ^= low;
            else
                x[0] ^= swapped, x[i] ^= swapped;
        }
    x[1] ^= x[0], x[2] ^= x[1];
    uint32_t turned = 0;
    for (uint32_t q = 1u << (CURVE_BITS - 1); q > 1; q >>= 1)
        if (x[2] & q) turned ^= q - 1;
    uint32_t number = 0;
    for (int bit = CURVE_BITS - 1; bit >= 0; --bit)
        for (int i = 0; i < 3; ++i) number = 2 * number + ((x[i] ^ turned) >> bit & 1);
    return number;
}

// Positions [N, 3] from the vectors to D neighbours of each atom: each connected part is unrolled from its first atom,
// across periodic boundaries, so that nothing depends on how often atoms have crossed them.  part [N]: numbers of parts
inline std::vector<float> unrolled(long N, long D, const int64_t* sender, const int64_t* reverse, const double* vector,
                                   std::vector<int>& part) {
    std::vector<float> at(3 * N, 0.0f);
    std::vector<int> waiting;
    part.assign(N, -1);
    int parts = 0;
    for (long start = 0; start < N; ++start) {
        if (part[start] >= 0) continue;
        part[start] = parts;
        waiting.assign(1, start);
        for (size_t next = 0; next < waiting.size(); ++next) {
            const long n = waiting[next];
            for (long e = n * D; e < (n + 1) * D; ++e) {
                const long other = sender[e];
                if (reverse[e] == e || part[other] >= 0) continue;
                part[other] = parts;
                for (int axis = 0; axis < 3; ++axis) at[3 * other + axis] = at[3 * n + axis] + (float)vector[3 * e + axis];
                waiting.push_back(other);
            }
        }
        ++parts;
    }
    return at;
}

// The place of each atom along the curve [N].
inline std::vector<uint64_t> places_along_curve(long N, long D, const int64_t* sender, const int64_t* reverse,
                                                const double* vector) {
    std::vector<int> part;
    const std::vector<float> at = unrolled(N, D, sender, reverse, vector, part);
    float low[3], high[3], extent = 1;
    for (int axis = 0; axis < 3; ++axis) {
        low[axis] = high[axis] = 0;
        for (long n = 0; n < N; ++n) {
            low[axis] = std::min(low[axis], at[3 * n + axis]);
            high[axis] = std::max(high[axis], at[3 * n + axis]);
        }
        extent = std::max(extent, high[axis] - low[axis]);
    }
    std::vector<uint64_t> found(N);
    for (long n = 0; n < N; ++n) {
        uint32_t cell[3];
        for (int axis = 0; axis < 3; ++axis)
            cell[axis] = uint32_t((at[3 * n + axis] - low[axis]) / extent * ((1 << CURVE_BITS) - 1));
        found[n] = uint64_t(part[n]) << 32 | along_curve(cell);
    }
    return found;
}

}  // namespace equibayes
