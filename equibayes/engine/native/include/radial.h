// The radial network of one layer for a block of pairs: its input, its weights, and where its results go.
#pragma once
#include <cmath>

#include "memory.h"
#include "pairs.h"
#include "tile.h"

namespace equibayes {

constexpr double PI = 3.14159265358979323846;

INLINE void sines(Lanes<float>::type x, Lanes<float>::type& sine, Lanes<float>::type& cosine) {
    sincos(x, sine, cosine);
}
// in double precision, for |x| up to some thousands; polynomials of the Cephes library
INLINE void sines(Lanes<double>::type x, Lanes<double>::type& sine, Lanes<double>::type& cosine) {
    typedef int64_t Integers __attribute__((vector_size(4 * WIDTH)));
    using V = Lanes<double>::type;
    constexpr double ROUND_DOUBLE = 6755399441055744.0;  // 1.5·2⁵²
    const V shifted = x * 0.63661977236758134308 + ROUND_DOUBLE, n = shifted - ROUND_DOUBLE;
    const Integers quarter = (Integers)shifted;
    V r = x - n * 1.57079625129699707031;  // x − n π/2, in three pieces of π/2
    r = r - n * 7.54978941586159635335e-8;
    r = r - n * 5.39030252995776476554e-15;
    const V z = r * r;
    V s = 1.58962301576546568060e-10 * z - 2.50507477628578072866e-8;
    s = s * z + 2.75573136213857245213e-6;
    s = s * z - 1.98412698295895385996e-4;
    s = s * z + 8.33333333332211858878e-3;
    s = s * z - 1.66666666666666307295e-1;
    s = s * z * r + r;
    V c = -1.13585365213876817300e-11 * z + 2.08757008419747316778e-9;
    c = c * z - 2.75573141792967388112e-7;
    c = c * z + 2.48015872888517045348e-5;
    c = c * z - 1.38888888888730564116e-3;
    c = c * z + 4.16666666666665929218e-2;
    c = c * z * z - 0.5 * z + 1.0;
    const Integers odd = (quarter & 1) != 0;
    const V of_sine = odd ? c : s, of_cosine = odd ? s : c;
    sine = (V)((Integers)of_sine ^ ((quarter & 2) << 62));
    cosine = (V)((Integers)of_cosine ^ (((quarter + 1) & 2) << 62));
}

// A cutoff function of r/R_MAX and its derivative.
template <class Real> struct Cutoff {
    Real value, slope;
};

// (1 − x)³ Σ_k (k+1)(k+2)/2 xᵏ and −p(p+1)(p+2)/2 xᵖ⁻¹ (1 − x)²
template <class Real> INLINE Cutoff<Real> polynomial_cutoff(Real x) {
    constexpr int P = CUTOFF_P;
    Real power = 1, cut = P * (P + 1) / 2;
    for (int i = 0; i < P - 1; ++i) cut = cut * x + Real((P - 1 - i) * (P - i) / 2), power *= x;
    const Real rest = 1 - x;
    return {cut * (rest * rest * rest), -Real(P * (P + 1) * (P + 2) / 2) * power * rest * rest};
}

// 1 up to x = on, then (1 − x²)² (1 + 2x² − 3on²)/(1 − on²)³ and 12 x (1 − x²) (on² − x²)/(1 − on²)³
template <class Real> INLINE Cutoff<Real> xplor_cutoff(Real x) {
    const Real on = Real(XPLOR_ON / R_MAX), on2 = on * on, all = 1 - on2, scale = 1 / (all * all * all);
    if (x <= on) return {1, 0};
    const Real x2 = x * x, rest = 1 - x2;
    return {rest * rest * (1 + 2 * x2 - 3 * on2) * scale, 12 * x * rest * (on2 - x2) * scale};
}

// Bessel functions times the cutoff (network/harmonics.py), their slopes, and the derivatives of both by the
// frequencies, [Q, BESSEL_ROW] each.
struct BasisRows {
    float *value = nullptr, *slope = nullptr, *value_w = nullptr, *slope_w = nullptr;
};

// They are computed in the precision of the geometry and then rounded.
template <class Real> struct Basis : BasisRows {
    using V = typename Lanes<Real>::type;
    Buffer<float> values;

    void size(long pairs, bool gradients) {
        value = values.size((gradients ? 4 : 2) * pairs * BESSEL_ROW);
        slope = value + pairs * BESSEL_ROW;
        value_w = gradients ? slope + pairs * BESSEL_ROW : nullptr;
        slope_w = gradients ? value_w + pairs * BESSEL_ROW : nullptr;
    }

    void evaluate(const Real* unit, const float* frequencies, long from, long to) {
        constexpr int L = LANES<Real>;
        const Real scale = 2 / (R_MAX * R_MAX);
        for (int first = 0; first < BESSEL_ROW; first += L) {
            V w, used;
            for (int b = 0; b < L; ++b) {
                const bool real = first + b < BESSELS;
                w[b] = real ? Real(PI) * ((Real)frequencies[first + b] + Real(first + b + 1)) : Real(0);
                used[b] = real;
            }
            for (long q = from; q < to; ++q) {
                Real x = unit[4 * q + 3] / Real(R_MAX);
                x = x < 1 ? x : 1;
                const auto [cut, cut1] = XPLOR ? xplor_cutoff(x) : polynomial_cutoff(x);
                const Real inverse = 1 / x;
                V s, c;
                sines(w * x, s, c);
                const V by_x = s * inverse, wc = w * c * inverse;
                put(value, q, first, used * (by_x * (scale * cut)));
                put(slope, q, first, used * (scale / Real(R_MAX) * ((wc - by_x * inverse) * cut + by_x * cut1)));
                if (!value_w) continue;
                put(value_w, q, first, used * (c * (scale * Real(PI) * cut)));
                put(slope_w, q, first, used * (scale / Real(R_MAX) * Real(PI) * (c * cut1 - w * s * cut)));
            }
        }
    }

  private:
    static void put(float* array, long q, int first, V x) {
        for (int b = 0; b < LANES<Real>; ++b)
            if (first + b < BESSEL_ROW) array[q * BESSEL_ROW + first + b] = (float)x[b];
    }
};

// What the generated functions radial_values, radial_hidden and radial_backward work with.
struct Radial {
    View value, slope, value_w, slope_w;  // of the Bessel functions
    Weight weight[RADIAL_DEPTH];
    Sum gradient[RADIAL_DEPTH], frequencies;
    float* out = nullptr;    // [2, Q, columns]: R and R'
    float* tilde = nullptr;  // [2, 2, Q, columns]: R̃ and R̃' of both directions of a pair

    Radial(const BasisRows& basis, const float* weights, const float* back, const Layer& layer, long pairs, long from,
           long to)
        : pairs(pairs), from(from), rows(to - from), columns(layer.columns) {
        auto view = [&](const float* values) {
            return View{values ? values + from * BESSEL_ROW : nullptr, rows, BESSEL_ROW};
        };
        value = view(basis.value), slope = view(basis.slope);
        value_w = view(basis.value_w), slope_w = view(basis.slope_w);
        for (int i = 0; i < RADIAL_DEPTH; ++i)
            weight[i] = {weights + layer.radial[i], back + layer.radial_back[i], i ? RADIAL_WIDTH : BESSELS,
                         i ? RADIAL_ROW : BESSEL_ROW, RADIAL_ROW};
        last = weights + layer.radial[RADIAL_DEPTH], last_back = back + layer.radial_back[RADIAL_DEPTH];
    }

    void add_to(float* all, const Layer& layer, float* frequency_sums) {
        for (int i = 0; i < RADIAL_DEPTH; ++i)
            gradient[i] = {all + layer.radial[i], i ? RADIAL_WIDTH : BESSELS, RADIAL_ROW};
        last_gradient = all + layer.radial[RADIAL_DEPTH];
        frequencies = {frequency_sums, 1, BESSEL_ROW};
    }

    // R = a W
    void last_layer(const Tile& a, long place = 0) {
        float* const here = out + (place + from) * columns;
        gemm(rows, columns, RADIAL_WIDTH, a.values, RADIAL_ROW, 1, last, columns, here, columns, false);
    }
    // and R' = a' W
    void last_layer(const Tile& a, const Tile& d) { last_layer(a), last_layer(d, pairs); }

    struct Both {
        Tile value, slope;
    };
    // W̃ += aᵀ R̃ + a'ᵀ R̃';  ã = R̃ Wᵀ, ã' = R̃' Wᵀ
    Both last_layer_back(const Tile& a, const Tile& d) {
        Both result{Tile(rows, RADIAL_ROW), Tile(rows, RADIAL_ROW)};
        for (int slope = 0; slope < 2; ++slope) {
            float* const here = tilde + (slope * pairs + from) * columns;
            const float* const there = here + 2 * pairs * columns;
            for (long i = 0; i < rows * columns; i += WIDTH) store(here + i, load(here + i) + load(there + i));
            float* const to = (slope ? result.slope : result.value).values;
            gemm(rows, RADIAL_ROW, columns, here, columns, 1, last_back, RADIAL_ROW, to, RADIAL_ROW, false);
        }
        const float* const value_tilde = tilde + from * columns;
        gemm(RADIAL_WIDTH, columns, rows, a.values, 1, RADIAL_ROW, value_tilde, columns, last_gradient, columns, true,
             d.values, value_tilde + pairs * columns);
        return result;
    }

  private:
    long pairs, from, rows;
    int columns;
    const float *last, *last_back;
    float* last_gradient = nullptr;
};
INLINE void store(Radial& radial, const Tile& a) { radial.last_layer(a); }

}  // namespace equibayes
