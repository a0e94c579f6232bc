// Matrices of the radial network: a row for each pair of a block, a column for each neuron.
//
// Expressions such as f*e + s*(1 - s) are evaluated element by element when a Tile is made of them, without
// intermediate matrices.
#pragma once
#include "gemm.h"
#include "vector.h"

namespace equibayes {

constexpr long PAIR_BLOCK = 64;
constexpr int TILE_COLUMNS = padded(RADIAL_WIDTH > BESSELS ? RADIAL_WIDTH : BESSELS);

// Anything with values at places i, i + WIDTH, … of a matrix [rows, columns].
template <class F> struct Expression {
    long rows;
    int columns;
    F at;
};

struct Elements {  // of a matrix in memory
    const float* from;
    vec operator()(long i) const { return load(from + i); }
};

struct View {
    const float* values;
    long rows;
    int columns;
    Expression<Elements> of() const { return {rows, columns, {values}}; }
};

struct Tile {
    long rows;
    int columns;
    alignas(64) float values[PAIR_BLOCK * TILE_COLUMNS];

    Tile(long rows, int columns) : rows(rows), columns(columns) {}
    template <class F> Tile(const Expression<F>& x) : Tile(x.rows, x.columns) { set(x); }
    Tile(const Tile& x) : Tile(x.rows, x.columns) { memcpy(values, x.values, 4 * rows * columns); }
    template <class F> Tile& operator=(const Expression<F>& x) {
        set(x);
        return *this;
    }
    Tile& operator=(const Tile& x) {
        rows = x.rows, columns = x.columns;
        memcpy(values, x.values, 4 * rows * columns);
        return *this;
    }
    template <class F> void set(const Expression<F>& x) {
        for (long i = 0; i < rows * columns; i += WIDTH) store(values + i, x.at(i));
    }
    Expression<Elements> of() const { return {rows, columns, {values}}; }
};

INLINE Expression<Elements> of(const Tile& x) { return x.of(); }
INLINE Expression<Elements> of(const View& x) { return x.of(); }
template <class F> INLINE const Expression<F>& of(const Expression<F>& x) { return x; }

template <class F> INLINE Expression<F> expression(long rows, int columns, F at) { return {rows, columns, at}; }

template <class A, class B, class = decltype(of(*(A*)0)), class = decltype(of(*(B*)0))>
INLINE auto operator*(const A& a, const B& b) {
    auto x = of(a);
    auto y = of(b);
    return expression(x.rows, x.columns, [=](long i) { return x.at(i) * y.at(i); });
}
template <class A, class B, class = decltype(of(*(A*)0)), class = decltype(of(*(B*)0))>
INLINE auto operator+(const A& a, const B& b) {
    auto x = of(a);
    auto y = of(b);
    return expression(x.rows, x.columns, [=](long i) { return x.at(i) + y.at(i); });
}
template <class B, class = decltype(of(*(B*)0))> INLINE auto operator*(float a, const B& b) {
    auto y = of(b);
    return expression(y.rows, y.columns, [=](long i) { return a * y.at(i); });
}
template <class B, class = decltype(of(*(B*)0))> INLINE auto operator+(float a, const B& b) {
    auto y = of(b);
    return expression(y.rows, y.columns, [=](long i) { return a + y.at(i); });
}
template <class B, class = decltype(of(*(B*)0))> INLINE auto operator-(float a, const B& b) {
    auto y = of(b);
    return expression(y.rows, y.columns, [=](long i) { return a - y.at(i); });
}
template <class B, class = decltype(of(*(B*)0))> INLINE auto sigmoid(const B& b) {
    auto y = of(b);
    return expression(y.rows, y.columns, [=](long i) { return sigmoid(y.at(i)); });
}

// A matrix of weights, its transposed, and how many rows are not padding.
struct Weight {
    const float *values, *back;
    int used, rows, columns;
};
INLINE Weight transposed(const Weight& w) { return {w.back, w.values, w.columns, w.columns, w.rows}; }

template <class A> struct Transposed {
    const A& of;
};
INLINE Transposed<Tile> transposed(const Tile& a) { return {a}; }
INLINE Transposed<View> transposed(const View& a) { return {a}; }

template <class A> INLINE Tile dot(const A& a, const Weight& w) {
    Tile result(a.rows, w.columns);
    gemm(a.rows, w.columns, w.used, a.values, a.columns, 1, w.values, w.columns, result.values, w.columns, false);
    return result;
}

// A sum over blocks of pairs that lies in the gradient.
struct Sum {
    float* values;
    int rows, columns;
};
template <class A> INLINE void add_dot(Sum& sum, Transposed<A> a, const Tile& b) {
    gemm(sum.rows, sum.columns, b.rows, a.of.values, 1, a.of.columns, b.values, b.columns, sum.values, sum.columns, true);
}

template <class F> INLINE Tile sum_over_rows(const Expression<F>& x) {
    Tile result(1, x.columns);
    for (int c = 0; c < x.columns; c += WIDTH) {
        vec sum = zero();
        for (long row = 0; row < x.rows; ++row) sum += x.at(row * x.columns + c);
        store(result.values + c, sum);
    }
    return result;
}
INLINE Sum& operator+=(Sum& sum, const Tile& row) {
    for (int c = 0; c < row.columns; c += WIDTH) store(sum.values + c, load(sum.values + c) + load(row.values + c));
    return sum;
}

}  // namespace equibayes
