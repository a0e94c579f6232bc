// What basis.h declares; equations: see sampling/basis.py.
#include "basis.h"

#include <algorithm>
#include <cmath>

#include "gemm.h"
#include "memory.h"
#include "vector.h"

namespace equibayes {

// room for so many numbers, of this thread
static float* room(long count) {
    static thread_local Buffer<float> buffer;
    return buffer.size(count);
}

void into_basis(const MassMatrix& w, const Basis& basis, float* x) {
    const long n = w.columns, r = w.row_side, c = w.column_side;
    float* half = room(r * n);
    for (long i = 0; i < w.rows; i += r) {
        gemm(r, n, r, basis.vectors + w.left + i * r, 1, r, x + i * n, n, half, n, false);
        for (long j = 0; j < n; j += c)
            gemm(r, c, c, half + j, n, 1, basis.vectors + w.right + j * c, c, x + i * n + j, n, false);
    }
}

void from_basis(const MassMatrix& w, const Basis& basis, float* x) {
    const long n = w.columns, r = w.row_side, c = w.column_side;
    float* half = room(r * n);
    for (long i = 0; i < w.rows; i += r) {
        for (long j = 0; j < n; j += c)
            gemm(r, c, c, x + i * n + j, n, 1, basis.back + w.right + j * c, c, half + j, n, false);
        gemm(r, n, r, basis.vectors + w.left + i * r, r, 1, half, n, x + i * n, n, false);
    }
}

// F ← decay F + share X
static void average(float* F, const float* X, long count, float decay, float share) {
    for (long i = 0; i < count; ++i) F[i] = F[i] * decay + share * X[i];
}

void gather(const MassMatrix& w, const Basis& basis, const float* g, float scale, float decay) {
    const long m = w.rows, n = w.columns, r = w.row_side, c = w.column_side;
    const float share = (1 - decay) * scale * scale;
    float *turned = room(r * n + std::max(r * r, c * c)), *product = turned + r * n;
    for (long i = 0; i < m; i += r) {
        transpose(g + i * n, r, n, n, turned, r);
        gemm(r, r, n, g + i * n, n, 1, turned, r, product, r, false);
        average(basis.factors + w.left + i * r, product, r * r, decay, share);
    }
    for (long j = 0; j < n; j += c) {
        gemm(c, c, m, g + j, 1, n, g + j, n, product, c, false);
        average(basis.factors + w.right + j * c, product, c * c, decay, share);
    }
}

// Gram–Schmidt on n rows, each `row` ≥ n floats long with zeros at the end, a multiple of WIDTH; twice for each, because
// once is not accurate enough
static void orthogonalise(float* rows, long n, long row, float* overlap) {
    for (long j = 0; j < n; ++j) {
        float* own = rows + j * row;
        auto product = [&](const float* other) {
            vec sum = zero();
            for (long v = 0; v < row; v += WIDTH) sum += load(own + v) * load(other + v);
            return hsum(sum);
        };
        for (int pass = 0; pass < 2; ++pass) {
            for (long i = 0; i < j; ++i) overlap[i] = product(rows + i * row);
            for (long v = 0; v < row; v += WIDTH) {
                vec rest = load(own + v);
                for (long i = 0; i < j; ++i) rest -= overlap[i] * load(rows + i * row + v);
                store(own + v, rest);
            }
        }
        const float scale = 1 / std::sqrt(product(own));
        for (long v = 0; v < row; v += WIDTH) store(own + v, load(own + v) * scale);
    }
}

// of one block
static void follow(const float* factor, float* Q, float* back, long n, float shrinkage, float epsilon) {
    const long row = padded(n);
    float *A = room(n * row * 2 + n), *turned = A + n * row, *overlap = turned + n * row;
    double trace = 0;
    for (long i = 0; i < n; ++i)
        for (long j = 0; j < row; ++j) A[i * row + j] = j < n && std::isfinite(factor[i * n + j]) ? factor[i * n + j] : 0.0f;
    for (long i = 0; i < n; ++i) trace += A[i * row + i];
    const float scale = 1 / (trace / n + double(epsilon) * epsilon);
    for (long i = 0; i < n * row; ++i) A[i] *= scale;
    for (long i = 0; i < n; ++i) A[i * row + i] += shrinkage;
    gemm(n, row, n, Q, 1, n, A, row, turned, row, false);  // (A Q)ᵀ
    orthogonalise(turned, n, row, overlap);
    transpose(turned, n, n, row, Q, n);
    for (long i = 0; i < n; ++i) memcpy(back + i * n, turned + i * row, sizeof(float) * n);
}

// f(place, side) for the blocks of both sides
template <class F>
static void for_blocks(const MassMatrix& w, F&& f) {
    for (long i = 0; i < w.rows; i += w.row_side) f(w.left + i * w.row_side, w.row_side);
    for (long j = 0; j < w.columns; j += w.column_side) f(w.right + j * w.column_side, w.column_side);
}

void refresh(const MassMatrix& w, const Basis& basis, float shrinkage, float epsilon) {
    for_blocks(w, [&](long place, long side) {
        follow(basis.factors + place, basis.vectors + place, basis.back + place, side, shrinkage, epsilon);
    });
}

void turn_back(const MassMatrix& w, const Basis& basis) {
    for_blocks(w, [&](long place, long side) {
        transpose(basis.vectors + place, side, side, side, basis.back + place, side);
    });
}

}  // namespace equibayes
