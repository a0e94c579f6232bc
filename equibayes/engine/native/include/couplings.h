// The numbers γ, α, β of all pairs of a minibatch from the deviation network of edges, and back: bayes/covariance.py.
#pragma once
#include <cmath>

#include "frames.h"
#include "gemm.h"

namespace equibayes {

class Couplings {
  public:
    // S of the minibatch, by rows and pairs of its graph
    Buffer<double> diagonal, between;        // [N, 6], [Q, 2], as in Blocks
    Buffer<double> by_diagonal, by_between;  // derivatives of the loss by these, 0 at first

    void forward(const Minibatch& batch, const float* weights, const float* features) {
        const Graph& graph = batch.graph;
        const long N = graph.atoms, Q = graph.pairs;
        const CovarianceHead& head = COVARIANCE_HEAD;
        gemm(N, EDGE_HIDDEN, FEATURES, features, FEATURES, 1, weights + head.receiver, EDGE_HIDDEN,
             receiver.size(N * EDGE_HIDDEN), EDGE_HIDDEN, false);
        gemm(N, EDGE_HIDDEN, FEATURES, features, FEATURES, 1, weights + head.sender, EDGE_HIDDEN,
             sender.size(N * EDGE_HIDDEN), EDGE_HIDDEN, false);
        raw.size(NUMBERS * Q), hidden.size(4 * EDGE_HIDDEN * Q);
        sizes.zeros(N);
        for (long q = 0; q < Q; ++q) {
            const int a = graph.ends[2 * q], b = graph.ends[2 * q + 1];
            evaluate(weights, batch.radial + EDGE_RADIAL * q, batch.cutoff[q], a, b, hidden + 4 * EDGE_HIDDEN * q, raw + NUMBERS * q);
            const double* x = raw + NUMBERS * q;
            double other = 0;
            if (COUPLINGS > 1) other = size(x[2]) + size(x[3]);
            sizes[a] += 2.0 / 3 * size(x[0]) + other;
            sizes[b] += 2.0 / 3 * size(x[1]) + other;
        }
        factor.size(N);
        for (long n = 0; n < N; ++n) factor[n] = 1 / std::sqrt(1 + sizes[n] / COUPLING_BOUND);
        diagonal.zeros(6 * N), by_diagonal.zeros(6 * N);
        between.size(2 * Q), by_between.zeros(2 * Q);
        for (long q = 0; q < Q; ++q) {
            const int a = graph.ends[2 * q], b = graph.ends[2 * q + 1];
            const double* x = raw + NUMBERS * q;
            double tensor[6];
            traceless(batch.unit + 4 * q, tensor);
            for (int i = 0; i < 6; ++i) {
                diagonal[6 * a + i] += x[0] * factor[a] * factor[a] * tensor[i];
                diagonal[6 * b + i] += x[1] * factor[b] * factor[b] * tensor[i];
            }
            if (COUPLINGS > 1)
                for (int i = 0; i < 2; ++i) between[2 * q + i] = x[2 + i] * factor[a] * factor[b];
        }
    }

    // the norm of S among these atoms is below this
    double bound(const Minibatch& batch, int b, const Frame& frame) const {
        double most = 0;
        for (int a = 0; a < frame.atoms; ++a) {
            const int n = batch.row(b, frame, a);
            most = std::max(most, sizes[n] * factor[n] * factor[n]);
        }
        return most;
    }

    // adds to the gradient of the weights and to x̃ of the features
    void backward(const Minibatch& batch, const float* weights, const float* back, const float* features, float* gradient,
                  float* features_tilde) {
        const Graph& graph = batch.graph;
        const long N = graph.atoms, Q = graph.pairs;
        by_factor.zeros(N), by_raw.size(NUMBERS * Q);
        for (long q = 0; q < Q; ++q) unscale(batch, q);
        for (long n = 0; n < N; ++n) by_factor[n] *= -0.5 * std::pow(factor[n], 3) / COUPLING_BOUND;  // now by `sizes`
        float *to_receiver = receiver.zeros(N * EDGE_HIDDEN), *to_sender = sender.zeros(N * EDGE_HIDDEN);
        for (long q = 0; q < Q; ++q) {
            const int a = graph.ends[2 * q], b = graph.ends[2 * q + 1];
            const double* x = raw + NUMBERS * q;
            double* out = by_raw + NUMBERS * q;
            out[0] += by_factor[a] * 2.0 / 3 * slope(x[0]);
            out[1] += by_factor[b] * 2.0 / 3 * slope(x[1]);
            for (int i = 2; i < NUMBERS; ++i) out[i] += (by_factor[a] + by_factor[b]) * slope(x[i]);
            if (COUPLINGS > 1 && a == b) out[2] = out[3] = 0;
            // the hidden values of a pair are not needed any more
            float* const own = hidden + 4 * EDGE_HIDDEN * q;
            give(weights, batch.cutoff[q], a, b, own, out, own, gradient);
        }
        const CovarianceHead& head = COVARIANCE_HEAD;
        gemm(EDGE_RADIAL, EDGE_HIDDEN, Q, batch.radial, 1, EDGE_RADIAL, hidden, 4 * EDGE_HIDDEN, gradient + head.radial, EDGE_HIDDEN, true);
        gemm(FEATURES, EDGE_HIDDEN, N, features, 1, FEATURES, to_receiver, EDGE_HIDDEN, gradient + head.receiver, EDGE_HIDDEN, true);
        gemm(FEATURES, EDGE_HIDDEN, N, features, 1, FEATURES, to_sender, EDGE_HIDDEN, gradient + head.sender, EDGE_HIDDEN, true);
        gemm(N, FEATURES, EDGE_HIDDEN, to_receiver, EDGE_HIDDEN, 1, back + head.receiver_back, FEATURES, features_tilde, FEATURES, true);
        gemm(N, FEATURES, EDGE_HIDDEN, to_sender, EDGE_HIDDEN, 1, back + head.sender_back, FEATURES, features_tilde, FEATURES, true);
    }

  private:
    static constexpr int NUMBERS = COUPLINGS > 1 ? 4 : 2;  // of a pair: γ of both ends, α, β
    static constexpr double SMOOTH = 0.1;
    Buffer<float> receiver, sender, hidden;  // hidden [Q, 2, 2, EDGE_HIDDEN]: of both directions, with slopes
    Buffer<double> raw, sizes, factor, by_factor, by_raw;

    static double size(double x) { return std::sqrt(x * x + SMOOTH * SMOOTH) - SMOOTH; }
    static double slope(double x) { return x / std::sqrt(x * x + SMOOTH * SMOOTH); }

    // u uᵀ − 1/3
    static void traceless(const float* unit, double* out) {
        const double x = unit[0], y = unit[1], z = unit[2];
        out[0] = x * x - 1.0 / 3, out[1] = y * y - 1.0 / 3, out[2] = z * z - 1.0 / 3;
        out[3] = x * y, out[4] = x * z, out[5] = y * z;
    }

    void evaluate(const float* weights, const float* radial, double cutoff, int a, int b, float* hidden, double* out) {
        const CovarianceHead& head = COVARIANCE_HEAD;
        vec sums[2][COUPLINGS], both[EDGE_HIDDEN / WIDTH];
        for (int c = 0; c < EDGE_HIDDEN / WIDTH; ++c) {
            both[c] = load(weights + head.bias + c * WIDTH);
            for (int r = 0; r < EDGE_RADIAL; ++r) both[c] += radial[r] * load(weights + head.radial + r * EDGE_HIDDEN + c * WIDTH);
        }
        for (int direction = 0; direction < 2; ++direction) {
            const float *to = receiver + (direction ? b : a) * EDGE_HIDDEN, *from = sender + (direction ? a : b) * EDGE_HIDDEN;
            float* own = hidden + 2 * direction * EDGE_HIDDEN;
            for (int m = 0; m < COUPLINGS; ++m) sums[direction][m] = zero();
            for (int c = 0; c < EDGE_HIDDEN; c += WIDTH) {
                const vec x = load(to + c) + load(from + c) + both[c / WIDTH];
                const vec s = sigmoid(x), h = x * s;
                store(own + c, h), store(own + EDGE_HIDDEN + c, s * (1 + x * (1 - s)));
                for (int m = 0; m < COUPLINGS; ++m) sums[direction][m] += h * load(weights + head.out + m * EDGE_HIDDEN + c);
            }
        }
        out[0] = cutoff * hsum(sums[0][0]), out[1] = cutoff * hsum(sums[1][0]);
        for (int m = 1; m < COUPLINGS; ++m)
            out[m + 1] = a == b ? 0 : 0.5 * cutoff * (hsum(sums[0][m]) + hsum(sums[1][m]));
    }

    // from the derivatives by S to those by `raw`, as far as they do not go through the factors, and to those by these
    void unscale(const Minibatch& batch, long q) {
        const int a = batch.graph.ends[2 * q], b = batch.graph.ends[2 * q + 1];
        const double *x = raw + NUMBERS * q, f[2] = {factor[a], factor[b]};
        double *out = by_raw + NUMBERS * q, tensor[6];
        traceless(batch.unit + 4 * q, tensor);
        for (int end = 0; end < 2; ++end) {
            const int n = end ? b : a;
            double given = 0;
            for (int i = 0; i < 6; ++i) given += by_diagonal[6 * n + i] * tensor[i];
            out[end] = given * f[end] * f[end];
            by_factor[n] += given * x[end] * 2 * f[end];
        }
        for (int i = 2; i < NUMBERS; ++i) {
            const double given = by_between[2 * q + i - 2];
            out[i] = given * f[0] * f[1];
            by_factor[a] += given * x[i] * f[1];
            by_factor[b] += given * x[i] * f[0];
        }
    }

    // from the derivatives by `raw` to the weights, to what the ends gave and to what the distance gave, of_pair [EDGE_HIDDEN]
    void give(const float* weights, double cutoff, int a, int b, const float* hidden, const double* by, float* of_pair,
              float* gradient) {
        const CovarianceHead& head = COVARIANCE_HEAD;
        float *to_receiver = receiver, *to_sender = sender;
        vec both[EDGE_HIDDEN / WIDTH];
        for (vec& each : both) each = zero();
        for (int direction = 0; direction < 2; ++direction) {
            const float* own = hidden + 2 * direction * EDGE_HIDDEN;
            float share[3];
            share[0] = float(cutoff * by[direction]);
            for (int m = 1; m < COUPLINGS; ++m) share[m] = a == b ? 0.0f : float(0.5 * cutoff * by[m + 1]);
            float *to = to_receiver + (direction ? b : a) * EDGE_HIDDEN, *from = to_sender + (direction ? a : b) * EDGE_HIDDEN;
            for (int c = 0; c < EDGE_HIDDEN; c += WIDTH) {
                const vec h = load(own + c);
                vec back = zero();
                for (int m = 0; m < COUPLINGS; ++m) {
                    const long place = head.out + m * EDGE_HIDDEN + c;
                    back += share[m] * load(weights + place);
                    store(gradient + place, load(gradient + place) + share[m] * h);
                }
                back = back * load(own + EDGE_HIDDEN + c);
                store(to + c, load(to + c) + back), store(from + c, load(from + c) + back);
                both[c / WIDTH] += back;
            }
        }
        for (int c = 0; c < EDGE_HIDDEN / WIDTH; ++c) {
            store(of_pair + c * WIDTH, both[c]);
            float* const bias = gradient + head.bias + c * WIDTH;
            store(bias, load(bias) + both[c]);
        }
    }
};

}  // namespace equibayes
