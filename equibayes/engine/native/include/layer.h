// What the generated description of a network consists of.
#pragma once
#include "vector.h"

namespace equibayes {

// A constant list.
template <class T> struct List {
    const T* at;
    int size;
    const T* begin() const { return at; }
    const T* end() const { return at + size; }
};

// y = x W for each component of an irrep: rows [atom, component] of `inner` and `columns` channels.
// `in` and `out` count floats an atom before the blocks of x and y; weight and back are the places of W and Wᵀ.
struct Linear {
    long in, out;
    int dim, inner, columns;
    long weight, back;
    bool shared;  // of a self-connection: linear_1 has the same x, so that both add to the adjoint of x
};

// A table of couplings of the slots of one atom, of this thread.
float* coupling_table(long size);

// to[i] += factors[i]·(sum of the lanes of x[i]), for COUNT = 2, 4, 8, 16, 32 or 64; always in the same order
template <int COUNT> INLINE void add_sums(const vec* x, const float* factors, float* to) {
    if constexpr (COUNT > WIDTH) {
        add_sums<COUNT / 2>(x, factors, to);
        add_sums<COUNT / 2>(x + COUNT / 2, factors + COUNT / 2, to + COUNT / 2);
    } else {
        // two vectors of partial sums become one, whose lanes belong to them in turn
        vec sums[COUNT];
        for (int i = 0; i < COUNT; ++i) {
            int reversed = 0;
            for (int bit = 1; bit < COUNT; bit *= 2) reversed = 2 * reversed + (i & bit ? 1 : 0);
            sums[i] = x[reversed];
        }
        for (int half = COUNT / 2; half; half /= 2)
            for (int i = 0; i < half; ++i) {
                vec low, high;
                interleave(sums[2 * i], sums[2 * i + 1], low, high);
                sums[i] = low + high;
            }
        float lanes[WIDTH];
        store(lanes, sums[0]);
        for (int i = 0; i < COUNT; ++i) {
            float sum = lanes[i];
            for (int j = i + COUNT; j < WIDTH; j += COUNT) sum += lanes[j];
            to[i] += factors[i] * sum;
        }
    }
}

// The arguments of the generated functions `collect` and `give`; the names are those of engine/generate.
struct Convolution {
    float* arena;
    const float *harmonics, *tangents, *radial;
    float *radial_out, *edge_out;
    const int *first, *senders, *codes;  // the slots of atom n are first[n] … first[n + 1] − 1
    const float* norm;
    long N, pairs, y, y_dot, out, g, g_tilde;
};
using Convolve = void (*)(const Convolution& given, long begin, long end);
using Gate = void (*)(float* x0, float* z0, long version, long N, long begin, long end);

struct Layer {
    long y, collected, z, next;  // floats an atom before these blocks; next: the features that leave the layer
    int columns;                 // radial weights of a pair
    List<Linear> before, after, connection;
    Convolve collect, collect_tangent, give, give_tangent;
    Gate gate[4];  // by version
    const long *radial, *radial_back;  // places of the weights of the radial network and of the transposed ones
};

// Places of the weights and biases of a head, and of its transposed weights.
struct Head {
    long weight[3], bias[3], back[2];
};

}  // namespace equibayes
