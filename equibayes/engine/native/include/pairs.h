// Reads and writes of several pairs at once: one pair in each lane of a vector.
#pragma once
#include <cmath>
#include <type_traits>

#include "vector.h"

namespace equibayes {

template <class Real> constexpr int LANES = 4 * WIDTH / sizeof(Real);

template <class Real> struct Lanes;
template <> struct Lanes<float> {
    typedef float type __attribute__((vector_size(4 * WIDTH)));
};
template <> struct Lanes<double> {
    typedef double type __attribute__((vector_size(4 * WIDTH)));
};

// An integer in each lane.
template <int L> struct Indices {
    long at[L];
};
template <int L> INLINE Indices<L> operator*(Indices<L> a, long factor) {
    for (int i = 0; i < L; ++i) a.at[i] *= factor;
    return a;
}
template <int L> INLINE Indices<L> operator+(Indices<L> a, long distance) {
    for (int i = 0; i < L; ++i) a.at[i] += distance;
    return a;
}

// An address in each lane.
template <class T, int L> struct Places {
    T* base;
    Indices<L> at;
};
template <class T, int L> INLINE Places<T, L> operator+(T* base, Indices<L> at) { return {base, at}; }
template <class T, int L> INLINE Places<T, L> operator+(Places<T, L> a, long distance) {
    return {a.base + distance, a.at};
}

// start, start + 1, … as far as they are below end; the last one in the lanes beyond
template <class Real> INLINE Indices<LANES<Real>> indices(long start, long end) {
    Indices<LANES<Real>> result;
    for (int i = 0; i < LANES<Real>; ++i) result.at[i] = start + i < end ? start + i : end - 1;
    return result;
}

// numbers become Real, integers indices
template <class Real, class T> INLINE auto read(Places<T, LANES<Real>> from) {
    if constexpr (std::is_integral_v<T>) {
        Indices<LANES<Real>> x;
        for (int i = 0; i < LANES<Real>; ++i) x.at[i] = from.base[from.at.at[i]];
        return x;
    } else {
        typename Lanes<Real>::type x;
        for (int i = 0; i < LANES<Real>; ++i) x[i] = (Real)from.base[from.at.at[i]];
        return x;
    }
}
template <class T, int L, class V> INLINE void write(Places<T, L> to, V x) {
    for (int i = 0; i < L; ++i) to.base[to.at.at[i]] = (T)x[i];
}

template <class V> INLINE auto root(V x) {
    for (unsigned i = 0; i < sizeof(x) / sizeof(x[0]); ++i) x[i] = std::sqrt(x[i]);
    return x;
}
INLINE Lanes<double>::type sqrt(Lanes<double>::type x) { return root(x); }

}  // namespace equibayes
