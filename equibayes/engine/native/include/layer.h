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

// Sums of the lanes of x[first], x[first + step], …: lane i has partial sums of number i modulo COUNT.  Two vectors of
// partial sums become one, whose lanes belong to them in turn.
template <int COUNT> INLINE vec merged(const vec* x, int first = 0, int step = 1) {
    if constexpr (COUNT == 1) {
        return x[first];
    } else {
        const vec even = merged<COUNT / 2>(x, first, 2 * step), odd = merged<COUNT / 2>(x, first + step, 2 * step);
        vec low, high;
        interleave(even, odd, low, high);
        return low + high;
    }
}

// The sums of the lanes of COUNT vectors, a power of two; always in the same order.
template <int COUNT> struct Sums {
    float of[COUNT > WIDTH ? COUNT : WIDTH];

    Sums(const vec* x) {
        constexpr int AT_ONCE = COUNT < WIDTH ? COUNT : WIDTH;
        for (int i = 0; i < COUNT; i += AT_ONCE) store(of + i, merged<AT_ONCE>(x + i));
        for (int half = WIDTH / 2; half >= COUNT; half /= 2)
            for (int i = 0; i < half; ++i) of[i] += of[i + half];
    }
};

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

// The scalars that leave a layer: floats an atom before their block, floats of a row, and how many are not padding.
struct Scalars {
    long place;
    int row, channels;
};

// Numbers from `from` to `to` − 1 of the weights.
struct Range {
    long from, to;
};

// Places of the weights of the deviation network of edges, and of two transposed matrices.
struct CovarianceHead {
    long receiver, sender, radial, bias, out, receiver_back, sender_back;
};

// Places of the weights and biases of a head, and of its transposed weights.
struct Head {
    long weight[3], bias[3], back[2];
};

}  // namespace equibayes
