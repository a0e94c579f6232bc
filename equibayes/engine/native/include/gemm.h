// Products of small row-major matrices of floats.  Every sum is made in a fixed order.
#pragma once

namespace equibayes {

// C [M, N] = A [M, K] B [K, N], or C += A B where `add` is true.
// A(m, k) = A[m·a_row + k·a_column], so that a transposed A costs nothing; the columns of B and C are neighbours.
// Fast where N is a multiple of WIDTH.  A2 and B2: a second product, of the same shape, that is added to the first.
void gemm(long M, long N, long K, const float* A, long a_row, long a_column, const float* B, long b_row, float* C,
          long c_row, bool add, const float* A2 = nullptr, const float* B2 = nullptr);

// T [columns, rows] = Wᵀ
void transpose(const float* W, long rows, long columns, long w_row, float* T, long t_row);

}  // namespace equibayes
