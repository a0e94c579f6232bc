// Vectors that count the operations that are made with them, for benchmarks/native.py: a sum or a product is one for
// each lane, an elementary function as many as its polynomial has.
#pragma once

namespace equibayes {

extern double OPERATIONS;

struct vec {
    plain_vec v;
    vec() = default;
    vec(plain_vec v) : v(v) {}
    float& operator[](int i) { return ((float*)&v)[i]; }
    operator plain_vec() const { return v; }
};

INLINE vec counted(plain_vec x, int operations = 1) {
    OPERATIONS += operations * WIDTH;
    return x;
}

#define OPERATOR(sign)                                                             \
    INLINE vec operator sign(vec a, vec b) { return counted(a.v sign b.v); }       \
    INLINE vec operator sign(float a, vec b) { return counted(a sign b.v); }       \
    INLINE vec operator sign(vec a, float b) { return counted(a.v sign b); }       \
    INLINE vec& operator sign##=(vec& a, vec b) { return a = counted(a.v sign b.v); } \
    INLINE vec& operator sign##=(vec& a, float b) { return a = counted(a.v sign b); }
OPERATOR(+)
OPERATOR(-)
OPERATOR(*)
OPERATOR(/)
#undef OPERATOR
INLINE vec operator-(vec a) { return -a.v; }

INLINE float hsum(vec x) {
    OPERATIONS += WIDTH - 1;
    return hsum(x.v);
}
INLINE vec sqrt(vec x) { return counted(sqrt(x.v)); }
INLINE vec exp(vec x) { return counted(exp(x.v), 22); }
INLINE vec sigmoid(vec x) { return counted(sigmoid(x.v), 25); }
INLINE vec tanh(vec x) { return counted(tanh(x.v), 40); }
INLINE void sincos(vec x, vec& sine, vec& cosine) { counted(x.v, 30), sincos(x.v, sine.v, cosine.v); }
INLINE void interleave(vec a, vec b, vec& low, vec& high) { interleave(a.v, b.v, low.v, high.v); }

}  // namespace equibayes
