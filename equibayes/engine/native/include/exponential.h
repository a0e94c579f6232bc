// exp(±S/2) of a sparse symmetric matrix S of 3 × 3 blocks, applied to columns, and its derivative by S: the power
// series, as in bayes/covariance.py.
#pragma once
#include <cmath>
#include <vector>

#include "memory.h"
#include "vector.h"

namespace equibayes {

typedef double quad __attribute__((vector_size(32)));

// Eight columns of a row: the errors of the forces and the directions of net force and torque.
struct Columns {
    quad low, high;
};
INLINE Columns operator+(Columns a, Columns b) { return {a.low + b.low, a.high + b.high}; }
INLINE Columns operator*(Columns a, Columns b) { return {a.low * b.low, a.high * b.high}; }
INLINE Columns operator*(double a, Columns b) { return {a * b.low, a * b.high}; }
INLINE void operator+=(Columns& a, Columns b) { a = a + b; }
INLINE double sum(Columns a) {
    const quad s = a.low + a.high;
    return (s[0] + s[2]) + (s[1] + s[3]);
}
INLINE double sum(double a) { return a; }

// S of one structure.  diagonal [n, 6]: xx, yy, zz, xy, xz, yz of each atom; between the ends [P, 2] of a pair, with its
// direction in unit [P, 4], α 1 + β u uᵀ with values in between [P, 2].  bound: of |S|
struct Blocks {
    long atoms, pairs;
    const double *diagonal, *between;
    const int* ends;
    const float* unit;
    double bound;
};

// y = factor S x for rows [n, 3] of columns
template <class T> void multiply(const Blocks& s, const T* x, T factor, T* y) {
    for (long n = 0; n < s.atoms; ++n) {
        const double* d = s.diagonal + 6 * n;
        const T *v = x + 3 * n;
        T* out = y + 3 * n;
        out[0] = d[0] * v[0] + d[3] * v[1] + d[4] * v[2];
        out[1] = d[3] * v[0] + d[1] * v[1] + d[5] * v[2];
        out[2] = d[4] * v[0] + d[5] * v[1] + d[2] * v[2];
    }
    for (long p = 0; p < s.pairs; ++p) {
        const double alpha = s.between[2 * p], beta = s.between[2 * p + 1];
        const double u[3] = {s.unit[4 * p], s.unit[4 * p + 1], s.unit[4 * p + 2]};
        const T *a = x + 3 * s.ends[2 * p], *b = x + 3 * s.ends[2 * p + 1];
        T *to_a = y + 3 * s.ends[2 * p], *to_b = y + 3 * s.ends[2 * p + 1];
        const T along_a = beta * (u[0] * a[0] + u[1] * a[1] + u[2] * a[2]);
        const T along_b = beta * (u[0] * b[0] + u[1] * b[1] + u[2] * b[2]);
        for (int i = 0; i < 3; ++i) {
            to_a[i] += alpha * b[i] + u[i] * along_b;
            to_b[i] += alpha * a[i] + u[i] * along_a;
        }
    }
    for (long i = 0; i < 3 * s.atoms; ++i) y[i] = factor * y[i];
}

// terms after which the rest of the series is below 1e-9
inline int terms(double bound) {
    double size = 1;
    int count = 0;
    while (size > 1e-9 || count < bound) size *= bound / ++count;
    return count;
}

template <class T> class Exponential {
    Buffer<T> series, adjoint;  // [terms + 1, 3n], [3, 3n]
    int count = 0;

  public:
    T *start, *value;  // [3n]: what exp(factor S) is applied to, set by the caller, and the result

    T* begin(const Blocks& s) {
        count = terms(s.bound / 2);
        const long size = 3 * s.atoms;
        start = series.size((count + 1) * size), adjoint.size(3 * size);
        return start;
    }

    void forward(const Blocks& s, T factor) {
        const long size = 3 * s.atoms;
        value = adjoint;
        std::copy_n(start, size, value);
        for (int k = 1; k <= count; ++k) {
            T* term = start + k * size;
            multiply(s, term - size, (1.0 / k) * factor, term);
            for (long i = 0; i < size; ++i) value[i] += term[i];
        }
    }

    // from ∂L/∂value, which takes the place of `value`, to ∂L/∂start [3n], and to the derivatives by the numbers of S,
    // which are added to by_diagonal and by_between; an element off the diagonal of a block counts once
    const T* backward(const Blocks& s, T factor, double* by_diagonal, double* by_between) {
        const long size = 3 * s.atoms;
        T *own = value + size, *next = own + size;
        std::copy_n(value, size, own);
        sums.zeros(6 * s.atoms + 2 * s.pairs);
        T* const pair_sums = sums + 6 * s.atoms;
        for (int k = count; k >= 1; --k) {
            const T* x = start + (k - 1) * size;
            const T weight = (1.0 / k) * factor;
            for (long i = 0; i < size; ++i) next[i] = weight * own[i];
            products(s, next, x, sums, pair_sums);
            multiply(s, own, weight, next);
            for (long i = 0; i < size; ++i) own[i] = value[i] + next[i];
        }
        for (long i = 0; i < 6 * s.atoms; ++i) by_diagonal[i] += sum(sums[i]);
        for (long i = 0; i < 2 * s.pairs; ++i) by_between[i] += sum(pair_sums[i]);
        return own;
    }

  private:
    Buffer<T> sums;

    static void products(const Blocks& s, const T* y, const T* x, T* of_atoms, T* of_pairs) {
        for (long n = 0; n < s.atoms; ++n) {
            const T *l = y + 3 * n, *t = x + 3 * n;
            T* out = of_atoms + 6 * n;
            out[0] += l[0] * t[0], out[1] += l[1] * t[1], out[2] += l[2] * t[2];
            out[3] += l[0] * t[1] + l[1] * t[0];
            out[4] += l[0] * t[2] + l[2] * t[0];
            out[5] += l[1] * t[2] + l[2] * t[1];
        }
        for (long p = 0; p < s.pairs; ++p) {
            const double u[3] = {s.unit[4 * p], s.unit[4 * p + 1], s.unit[4 * p + 2]};
            const long a = 3 * s.ends[2 * p], b = 3 * s.ends[2 * p + 1];
            const T *la = y + a, *lb = y + b, *ta = x + a, *tb = x + b;
            of_pairs[2 * p] += la[0] * tb[0] + la[1] * tb[1] + la[2] * tb[2] + lb[0] * ta[0] + lb[1] * ta[1] + lb[2] * ta[2];
            const T ula = u[0] * la[0] + u[1] * la[1] + u[2] * la[2], utb = u[0] * tb[0] + u[1] * tb[1] + u[2] * tb[2];
            const T ulb = u[0] * lb[0] + u[1] * lb[1] + u[2] * lb[2], uta = u[0] * ta[0] + u[1] * ta[1] + u[2] * ta[2];
            of_pairs[2 * p + 1] += ula * utb + ulb * uta;
        }
    }
};

}  // namespace equibayes
