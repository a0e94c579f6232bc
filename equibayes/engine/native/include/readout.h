// Energies and deviations of atoms from their last features, and where the passes 1 and 3 begin.
#pragma once
#include <cmath>

#include "passes.h"

namespace equibayes {

// One of the two deviation networks, features → 32 → 16 → 1, for all atoms of a graph.
class Deviation {
  public:
    // ln σ of every atom; `keep`: also what `backward` needs
    void forward(const Head& head, const float* weights, const float* features, long N, float* out) {
        const long h1 = HIDDEN_1 * N, h2 = HIDDEN_2 * N;
        a0 = space.size(2 * h1 + 2 * h2 + h1 + h2), f0 = a0 + h1, a1 = f0 + h1, f1 = a1 + h2, k0 = f1 + h2, k1 = k0 + h1;
        layer(weights + head.weight[0], weights + head.bias[0], features, N, FEATURES, HIDDEN_1, a0, f0);
        layer(weights + head.weight[1], weights + head.bias[1], a0, N, HIDDEN_1, HIDDEN_2, a1, f1);
        const float* w = weights + head.weight[2];
        for (long n = 0; n < N; ++n) {
            vec sum = zero();
            for (int c = 0; c < HIDDEN_2; c += WIDTH) sum += load(a1 + n * HIDDEN_2 + c) * load(w + c);
            out[n] = hsum(sum) + weights[head.bias[2]] + LOG_UNIT;
        }
    }

    // from ∂L/∂ln σ [N] to the gradient of the weights; adds to x̃ of the features
    void backward(const Head& head, const float* weights, const float* back, const float* features, long N,
                  const float* tilde, float* gradient, float* features_tilde) {
        const float* w = weights + head.weight[2];
        float *out_w = gradient + head.weight[2], *out_b1 = gradient + head.bias[1], *out_b0 = gradient + head.bias[0];
        float total = 0;
        for (long n = 0; n < N; ++n) {
            total += tilde[n];
            for (int c = 0; c < HIDDEN_2; c += WIDTH) {
                const vec k = tilde[n] * load(w + c) * load(f1 + n * HIDDEN_2 + c);
                store(k1 + n * HIDDEN_2 + c, k);
                store(out_w + c, load(out_w + c) + tilde[n] * load(a1 + n * HIDDEN_2 + c));
                store(out_b1 + c, load(out_b1 + c) + k);
            }
        }
        gradient[head.bias[2]] = total;
        gemm(HIDDEN_1, HIDDEN_2, N, a0, 1, HIDDEN_1, k1, HIDDEN_2, gradient + head.weight[1], HIDDEN_2, false);
        gemm(N, HIDDEN_1, HIDDEN_2, k1, HIDDEN_2, 1, back + head.back[1], HIDDEN_1, k0, HIDDEN_1, false);
        for (long n = 0; n < N; ++n)
            for (int c = 0; c < HIDDEN_1; c += WIDTH) {
                const vec k = load(k0 + n * HIDDEN_1 + c) * load(f0 + n * HIDDEN_1 + c);
                store(k0 + n * HIDDEN_1 + c, k);
                store(out_b0 + c, load(out_b0 + c) + k);
            }
        gemm(FEATURES, HIDDEN_1, N, features, 1, FEATURES, k0, HIDDEN_1, gradient + head.weight[0], HIDDEN_1, false);
        gemm(N, FEATURES, HIDDEN_1, k0, HIDDEN_1, 1, back + head.back[0], FEATURES, features_tilde, FEATURES, true);
    }

  private:
    Buffer<float> space;
    float *a0 = nullptr, *f0 = nullptr, *a1 = nullptr, *f1 = nullptr;  // both hidden layers and their slopes
    float *k0 = nullptr, *k1 = nullptr;                                // ∂L by their inputs

    // a = silu(x W + b) and its slope f
    static void layer(const float* w, const float* bias, const float* x, long N, int inner, int columns, float* a,
                      float* f) {
        for (long n = 0; n < N; ++n) memcpy(a + n * columns, bias, 4 * columns);
        gemm(N, columns, inner, x, inner, 1, w, columns, a, columns, true);
        for (long i = 0; i < N * columns; i += WIDTH) {
            const vec h = load(a + i), s = sigmoid(h);
            store(f + i, s * (1 + h * (1 - s)));
            store(a + i, h * s);
        }
    }
};

// The energy of an atom of type t is scale[t]·(x·w + b[t]).
struct Readout {
    const float* mask = nullptr;  // [N, FEATURES]: factors of the features, or null
    Buffer<float> masked;

    // the features that readout and heads see
    const float* seen(const float* features, long N) {
        if (!mask) return features;
        float* out = masked.size(N * FEATURES);
        for (long i = 0; i < N * FEATURES; i += WIDTH) store(out + i, load(features + i) * load(mask + i));
        return out;
    }

    void energies(const Graph& graph, const float* seen, const float* weights, double* out) const {
        const float* w = weights + READOUT;
        for (long n = 0; n < graph.atoms; ++n) {
            double sum[8] = {0};
            for (int c = 0; c < FEATURES; ++c) sum[c % 8] += (double)seen[n * FEATURES + c] * (double)w[c];
            double energy = ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
            const int type = graph.species[n];
            if (SHIFT >= 0) energy += weights[SHIFT + type];
            out[n] = energy * ENERGY_SCALE[type];
        }
    }

    // x̄ = scale·w, where the adjoint pass begins
    void adjoint(const Graph& graph, const float* weights, float* out) const {
        for (long n = 0; n < graph.atoms; ++n)
            for (int c = 0; c < FEATURES; c += WIDTH) {
                const long i = n * FEATURES + c;
                const vec x = (float)ENERGY_SCALE[graph.species[n]] * load(weights + READOUT + c);
                store(out + i, mask ? x * load(mask + i) : x);
            }
    }

    // x̃ = scale·∂L/∂E w, where version 3 begins, and the gradients w̃ = Σ scale (ẋ + ∂L/∂E x), b̃ = Σ scale ∂L/∂E
    void tilde(const Graph& graph, const float* seen, const float* moved, const float* energy_bar, const float* weights,
               float* gradient, float* out) const {
        for (long n = 0; n < graph.atoms; ++n) {
            const int type = graph.species[n];
            const float scale = (float)ENERGY_SCALE[type], e = scale * energy_bar[n];
            if (SHIFT >= 0) gradient[SHIFT + type] += e;
            for (int c = 0; c < FEATURES; c += WIDTH) {
                const long i = n * FEATURES + c;
                vec x = load(moved + i);
                if (mask) x = x * load(mask + i);
                float* const w = gradient + READOUT + c;
                store(w, load(w) + scale * x + e * load(seen + i));
                store(out + i, e * load(weights + READOUT + c));
            }
        }
    }

    // multiply by the mask, the adjoint of `seen`
    void back(float* x, long N) const {
        if (!mask) return;
        for (long i = 0; i < N * FEATURES; i += WIDTH) store(x + i, load(x + i) * load(mask + i));
    }
};

// The transposed matrices of a weight set, [BACK] floats.
inline void transpose_weights(const float* weights, float* back) {
    parallel_if_long(sizeof BACK_MATRICES / sizeof BACK_MATRICES[0], [&](long i) {
        const BackMatrix& m = BACK_MATRICES[i];
        for (int b = 0; b < m.blocks; ++b) {
            const long own = (long)b * m.rows * m.columns;
            transpose(weights + m.place + own, m.rows, m.columns, m.columns, back + m.back + own, m.rows);
        }
    });
}

}  // namespace equibayes
