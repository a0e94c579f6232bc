// The eigenbasis of a matrix mass (sampling/basis.py): orthogonal matrices on both sides of each weight matrix, which
// consist of blocks along the diagonal.
#pragma once
#include <cstdint>

namespace equibayes {

// A weight matrix [rows, columns] from the parameter `first` on; the blocks of its factors, and of their eigenvectors, lie
// at `left` [rows/row_side, row_side, row_side] and `right` [columns/column_side, column_side, column_side].
struct MassMatrix {
    int64_t first, rows, columns, row_side, column_side, left, right;
};

// Of one chain; back: the transposed eigenvectors.
struct Basis {
    float *factors, *vectors, *back;
};

// X ← Q_Lᵀ X Q_R and X ← Q_L X Q_Rᵀ
void into_basis(const MassMatrix& matrix, const Basis& basis, float* x);
void from_basis(const MassMatrix& matrix, const Basis& basis, float* x);
// the running means of G Gᵀ and Gᵀ G, G = scale·g
void gather(const MassMatrix& matrix, const Basis& basis, const float* g, float scale, float decay);
// Q ← qr(A Q) for both sides
void refresh(const MassMatrix& matrix, const Basis& basis, float shrinkage, float epsilon);
// writes `back`
void turn_back(const MassMatrix& matrix, const Basis& basis);

}  // namespace equibayes
