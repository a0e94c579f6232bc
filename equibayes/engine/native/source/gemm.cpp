// Products of small matrices: a block of C stays in registers while k runs over the whole inner length.
#include "gemm.h"

#include <algorithm>
#include <utility>

#include "vector.h"

namespace equibayes {

// registers that blocks of C may fill; the others hold a row of B and an element of A
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int REGISTERS = 24;
#else
constexpr int REGISTERS = 12;
#endif
constexpr int WIDEST = REGISTERS == 24 ? 4 : 2;  // vectors of a row of a block
constexpr int LONGEST = 16;                      // rows of a block

struct Operands {
    long K;
    const float* A;
    long a_row, a_column;
    const float* B;
    long b_row;
    float* C;
    long c_row;
    bool add;
    const float *A2, *B2;  // of a second product, or null
};

// ROWS rows and VECTORS vectors of C; of the last vector only `lanes` lanes where PARTIAL
template <int ROWS, int VECTORS, bool PARTIAL>
static void block(const Operands& given, long lanes) {
    const Operands o = given;  // stores cannot change a copy
    vec sum[ROWS][VECTORS];
    auto read = [lanes](const float* from, int v) {
        return PARTIAL && v == VECTORS - 1 ? load(from + v * WIDTH, lanes) : load(from + v * WIDTH);
    };
    if (o.add)
        for (int m = 0; m < ROWS; ++m)
            for (int v = 0; v < VECTORS; ++v) sum[m][v] = read(o.C + m * o.c_row, v);
    else
        for (int m = 0; m < ROWS; ++m)
            for (int v = 0; v < VECTORS; ++v) sum[m][v] = zero();
    auto add_product = [&](const float* a, const float* b) {
        for (long k = 0; k < o.K; ++k, a += o.a_column, b += o.b_row) {
            vec row[VECTORS];
            for (int v = 0; v < VECTORS; ++v) row[v] = read(b, v);
            for (int m = 0; m < ROWS; ++m)
                for (int v = 0; v < VECTORS; ++v) sum[m][v] += a[m * o.a_row] * row[v];
        }
    };
    for (int product = 0; product < (o.A2 ? 2 : 1); ++product) add_product(product ? o.A2 : o.A, product ? o.B2 : o.B);
    for (int m = 0; m < ROWS; ++m)
        for (int v = 0; v < VECTORS; ++v) {
            float* to = o.C + m * o.c_row + v * WIDTH;
            if (PARTIAL && v == VECTORS - 1)
                store(to, sum[m][v], lanes);
            else
                store(to, sum[m][v]);
        }
}

using Block = void (*)(const Operands&, long);

template <int VECTORS, bool PARTIAL, int... I>
static Block block_of(long rows, std::integer_sequence<int, I...>) {
    static constexpr Block blocks[] = {block<I + 1, VECTORS, PARTIAL>...};
    return blocks[rows - 1];
}

// VECTORS vectors of all rows, in blocks of nearly the same number of rows
template <int VECTORS, bool PARTIAL>
static void panel(long M, Operands o, long lanes) {
    constexpr int MOST = std::min(LONGEST, REGISTERS / VECTORS);
    const long blocks = (M + MOST - 1) / MOST;
    for (long b = 0; b < blocks; ++b) {
        const long rows = M / blocks + (b < M % blocks);
        block_of<VECTORS, PARTIAL>(rows, std::make_integer_sequence<int, MOST>{})(o, lanes);
        o.A += rows * o.a_row;
        o.C += rows * o.c_row;
        if (o.A2) o.A2 += rows * o.a_row;
    }
}

// as many panels of VECTORS vectors as fit into N columns, from `column` on
template <int VECTORS>
static void panels(long M, long N, long& column, const Operands& o) {
    for (; column + VECTORS * WIDTH <= N; column += VECTORS * WIDTH) {
        Operands part = o;
        part.B += column;
        part.C += column;
        if (o.B2) part.B2 += column;
        panel<VECTORS, false>(M, part, WIDTH);
    }
}

#ifdef COUNT_OPERATIONS
double OPERATIONS = 0;
EXPORT double operations() { return OPERATIONS; }
#endif

void gemm(long M, long N, long K, const float* A, long a_row, long a_column, const float* B, long b_row, float* C,
          long c_row, bool add, const float* A2, const float* B2) {
    if (M <= 0) return;
    Operands o{K, A, a_row, a_column, B, b_row, C, c_row, add, A2, B2};
    long column = 0;
    panels<WIDEST>(M, N, column, o);
    panels<2>(M, N, column, o);
    panels<1>(M, N, column, o);
    if (column < N) {
        o.B += column;
        o.C += column;
        if (B2) o.B2 += column;
        panel<1, true>(M, o, N - column);
    }
}

// WIDTH × WIDTH: each round interleaves the rows of both halves
static void transpose_square(const float* W, long w_row, float* T, long t_row) {
    vec rows[WIDTH], next[WIDTH];
    for (int i = 0; i < WIDTH; ++i) rows[i] = load(W + i * w_row);
    for (int round = 1; round < WIDTH; round *= 2) {
        for (int i = 0; i < WIDTH / 2; ++i) interleave(rows[i], rows[i + WIDTH / 2], next[2 * i], next[2 * i + 1]);
        for (int i = 0; i < WIDTH; ++i) rows[i] = next[i];
    }
    for (int i = 0; i < WIDTH; ++i) store(T + i * t_row, rows[i]);
}

void transpose(const float* W, long rows, long columns, long w_row, float* T, long t_row) {
    const long whole_rows = rows / WIDTH * WIDTH, whole_columns = columns / WIDTH * WIDTH;
    for (long i = 0; i < whole_rows; i += WIDTH)
        for (long j = 0; j < whole_columns; j += WIDTH) transpose_square(W + i * w_row + j, w_row, T + j * t_row + i, t_row);
    for (long i = 0; i < rows; ++i)
        for (long j = i < whole_rows ? whole_columns : 0; j < columns; ++j) T[j * t_row + i] = W[i * w_row + j];
}

}  // namespace equibayes
