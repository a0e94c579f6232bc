// The likelihood of the forces of a frame with a covariance, and its derivatives: bayes/covariance.py.
//
// With z = error/σ and, of the errors' column and those of the rigid directions U/ε,
//     y = exp(−S/2) z,   W = exp(S/2) σ U/ε,   ln p = −½|y|² − ½|Uᵀ error/ε|² − Σ 3 ln σ + ½ ln det(1 + WᵀW) − 3/2 n ln 2π
#pragma once
#include <type_traits>

#include "couplings.h"
#include "exponential.h"

namespace equibayes {

constexpr int RIGID = 6;

// Inverse of a symmetric positive definite matrix, in its place; returns ln of its determinant.
inline double invert(double (&m)[RIGID][RIGID]) {
    double log_det = 0;
    for (int p = 0; p < RIGID; ++p) {
        const double pivot = m[p][p];
        log_det += std::log(pivot);
        m[p][p] = 1;
        for (int j = 0; j < RIGID; ++j) m[p][j] /= pivot;
        for (int i = 0; i < RIGID; ++i) {
            if (i == p) continue;
            const double by = m[i][p];
            m[i][p] = 0;
            for (int j = 0; j < RIGID; ++j) m[i][j] -= by * m[p][j];
        }
    }
    return log_det;
}

// Of a network with so many numbers of an edge.
template <int NUMBERS> class ForceNoise {
    static constexpr bool PAIRS = NUMBERS > 1;

  public:
    void forward(const Minibatch& batch, const float* weights, const float* features) { couplings.forward(batch, weights, features); }
    void backward(const Minibatch& batch, const float* weights, const float* back, const float* features, float* gradient, float* tilde) {
        couplings.backward(batch, weights, back, features, gradient, tilde);
    }

    // ln p of the errors [n, 3] of frame b with σ [n]; −scale ∂ln p by the means goes to −direction [N, 3], that by ln σ
    // to tilde [N]
    double likelihood(const Minibatch& batch, int b, const Frame& frame, const double* error, const std::vector<double>& sigma,
                      double scale, float* direction, float* tilde) {
        using Row = std::conditional_t<PAIRS, Columns, double>;
        return evaluate<Row>(batch, b, frame, blocks(batch, b, frame), error, sigma, scale, direction, tilde);
    }

  private:
    Couplings couplings;
    Exponential<std::conditional_t<PAIRS, Columns, double>> exponential;
    Buffer<double> own_diagonal, by_own, by_between;

    Blocks blocks(const Minibatch& batch, int b, const Frame& frame) {
        const long atoms = frame.atoms, pairs = PAIRS ? frame.pairs : 0, first = batch.pair_start[b];
        own_diagonal.size(6 * atoms), by_own.zeros(6 * atoms), by_between.zeros(2 * pairs);
        for (int a = 0; a < atoms; ++a)
            std::copy_n(couplings.diagonal + 6 * batch.row(b, frame, a), 6, own_diagonal + 6 * a);
        return {atoms, pairs, own_diagonal, couplings.between + 2 * first, frame.ends.data(), frame.unit.data(),
                couplings.bound(batch, b, frame)};
    }

    static void set(double& row, double error, double, const float*) { row = error; }
    static void set(Columns& row, double error, double sigma, const float* rigid) {
        row.low = quad{error, sigma * rigid[0], sigma * rigid[1], sigma * rigid[2]};
        row.high = quad{sigma * rigid[3], sigma * rigid[4], sigma * rigid[5], 0};
    }
    static double first(double row) { return row; }
    static double first(const Columns& row) { return row.low[0]; }
    static double factors(double) { return -0.5; }
    static Columns factors(Columns) { return {quad{-0.5, 0.5, 0.5, 0.5}, quad{0.5, 0.5, 0.5, 0.5}}; }
    static double sign(double) { return -1; }  // of ln σ in the exponent of what `set` begins with
    static Columns sign(Columns) { return {quad{-1, 1, 1, 1}, quad{1, 1, 1, 1}}; }

    // from y and W to the derivatives of ln p by them, in their place; returns the terms of ln p with them
    static double start_back(double* rows, long count) {
        double square = 0;
        for (long i = 0; i < count; ++i) square += rows[i] * rows[i], rows[i] = -rows[i];
        return -0.5 * square;
    }
    static double start_back(Columns* rows, long count) {
        double square = 0, inner[RIGID][RIGID] = {};
        for (int c = 0; c < RIGID; ++c) inner[c][c] = 1;
        for (long i = 0; i < count; ++i) {
            double w[8];
            memcpy(w, rows + i, sizeof w);
            square += w[0] * w[0];
            for (int c = 0; c < RIGID; ++c)
                for (int d = 0; d < RIGID; ++d) inner[c][d] += w[1 + c] * w[1 + d];
        }
        const double log_det = invert(inner);
        for (long i = 0; i < count; ++i) {
            double w[8], out[8] = {};
            memcpy(w, rows + i, sizeof w);
            out[0] = -w[0];
            for (int c = 0; c < RIGID; ++c)
                for (int d = 0; d < RIGID; ++d) out[1 + c] += inner[c][d] * w[1 + d];
            memcpy(rows + i, out, sizeof out);
        }
        return -0.5 * square + 0.5 * log_det;
    }

    // −½|Uᵀ error/ε|²: a constant, as forces that are predicted have no part along U
    static double rigid_part(const Frame& frame, const double* error) {
        double total = 0;
        for (int c = 0; c < RIGID; ++c) {
            double along = 0;
            for (long i = 0; i < 3 * frame.atoms; ++i) along += frame.rigid[RIGID * i + c] * error[i];
            total += along * along;
        }
        return -0.5 * total;
    }

    template <class T>
    double evaluate(const Minibatch& batch, int b, const Frame& frame, const Blocks& s, const double* error,
                    const std::vector<double>& sigma, double scale, float* direction, float* tilde) {
        constexpr double HALF_LOG_2PI = 0.91893853320467274178;
        const long count = 3 * s.atoms;
        const float* rigid = PAIRS ? frame.rigid.data() : nullptr;
        T* start = exponential.begin(s);
        for (long i = 0; i < count; ++i) set(start[i], error[i] / sigma[i / 3], sigma[i / 3], rigid + (PAIRS ? RIGID * i : 0));
        exponential.forward(s, factors(T{}));
        double log_p = start_back(exponential.value, count);
        const T* by_start = exponential.backward(s, factors(T{}), by_own, by_between);
        for (int a = 0; a < s.atoms; ++a) {
            const int n = batch.row(b, frame, a);
            double by_log_sigma = -3;
            for (int i = 0; i < 3; ++i) {
                const T given = by_start[3 * a + i];
                by_log_sigma += sum(sign(T{}) * given * start[3 * a + i]);
                direction[3 * n + i] = float(-scale * first(given) / sigma[a]);
            }
            tilde[n] = float(-scale * by_log_sigma);
            log_p -= 3 * std::log(sigma[a]) + 3 * HALF_LOG_2PI;
            for (int i = 0; i < 6; ++i) couplings.by_diagonal[6 * n + i] -= scale * by_own[6 * a + i];
        }
        if constexpr (PAIRS) {
            log_p += rigid_part(frame, error);
            double* by = couplings.by_between + 2 * batch.pair_start[b];
            for (long i = 0; i < 2 * s.pairs; ++i) by[i] -= scale * by_between[i];
        }
        return log_p;
    }
};

// Independent noise, which needs none of it.
template <> class ForceNoise<0> {
  public:
    void forward(const Minibatch&, const float*, const float*) {}
    void backward(const Minibatch&, const float*, const float*, const float*, float*, float*) {}
    double likelihood(const Minibatch&, int, const Frame&, const double*, const std::vector<double>&, double, float*, float*) {
        return 0;
    }
};

}  // namespace equibayes
