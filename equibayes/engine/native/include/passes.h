// The four versions of every feature, for one weight set and one graph: see engine/generate/__init__.py.
//
// A pass is a few stages.  Within a stage each block of atoms or pairs writes only its own rows, so that blocks can be
// worked on in any order and by any thread; from one stage to the next all wait.
#pragma once
#include "gemm.h"
#include "ghosts.h"
#include "graph.h"
#include "memory.h"
#include "nearby.h"
#include "threads.h"

namespace equibayes {

// body(begin, end) for blocks of `size` out of `count` rows
template <class F> void in_blocks(long count, long size, F&& body) {
    const long blocks = (count + size - 1) / size;
    if (blocks == 1) return body(0L, count);
    parallel_if_long(blocks, [&](long b) { body(b * size, (b + 1) * size < count ? (b + 1) * size : count); });
}

template <class Real> class Passes {
  public:
    // set by the caller
    const Graph* graph = nullptr;
    const Real* unit = nullptr;         // [Q, 4]: direction and length of each pair
    const float* harmonics = nullptr;   // [Q, HARMONICS]
    const float *weights = nullptr, *back = nullptr;  // forward weights, and their matrices transposed
    bool lean = false;                  // radial weights are computed when they are needed, see nearby.h
    Ghosts* ghosts = nullptr;           // neighbours that are computed elsewhere, if there are any

    // results
    Buffer<Real> pull;   // [Q, 3]: ∂E/∂vector
    float *features[4];  // [N, FEATURES]: the last features in each version, where the readout begins and ends

    // version 0 of the block that has `place` floats an atom before it
    const float* block(long place) const { return arena + place * N; }

    void begin(int versions) {
        M = graph->atoms, N = graph->rows, Q = graph->pairs, V = N * ATOM;
        arena.size(versions * V);
        for (int v = 0; v < 4; ++v) features[v] = arena + v * V + LAST * N;
        long columns = 0, most = 0;
        for (int i = 0; i < LAYERS; ++i) {
            radial_start[i] = 2 * Q * columns;
            columns += LAYER[i].columns;
            most = LAYER[i].columns > most ? LAYER[i].columns : most;
        }
        if (!lean) radial.size(2 * Q * columns);
        if (versions > 2) radial_tilde.size(4 * Q * most);
        basis.size(Q, versions > 2);
        edge.size(2 * Q * EDGE);
        pull.size(3 * Q);
    }

    // x and y of the first layer: they do not depend on positions
    void embed(long from, long to) {
        for (long n = from; n < to; ++n)
            memcpy(arena + n * EMBEDDING_ROW, weights + EMBEDDING + graph->species[n] * EMBEDDING_ROW,
                   4 * EMBEDDING_ROW);
        linears(LAYER[0].before, 0, from, to, false);
    }

    void value() {
        in_blocks(Q, PAIR_BLOCK, [&](long from, long to) {
            basis.evaluate(unit, weights + BESSEL, from, to);
            memset(edge + 2 * from * EDGE, 0, 8 * (to - from) * EDGE);
            if (!lean)
                for (int i = 0; i < LAYERS; ++i) radial_weights(i, from, to);
        });
        in_blocks(N, ATOM_BLOCK, [&](long from, long to) { embed(from, to); });
        for (int i = 0; i < LAYERS; ++i) {
            if (ghosts && i) ghosts->fetch(LAYER[i].before, true, arena, N);
            in_blocks(M, ATOM_BLOCK, [&](long from, long to) {
                convolve(LAYER[i].collect, i, 0, from, to);
                finish(i, 0, from, to);
            });
        }
    }

    // from x̄ of the last features, which the readout has set, to ∂E/∂vector
    void adjoint() {
        backward(1, LAYERS, 1);
        in_blocks(Q, PAIR_BLOCK, [&](long from, long to) { pair_gradient<Real>(unit, edge, pull, from, to); });
    }

    // when atoms move along `direction` [N, 3] and, where stress is learned, the structures [N] that they belong to are
    // strained by `strain` [B, 3, 3]
    void tangent(const float* direction, const int* structure, const float* strain) {
        tangents.size(Q * EDGE);
        in_blocks(Q, PAIR_BLOCK, [&](long from, long to) {
            pair_tangent<Real>(unit, graph->ends, direction, structure, strain, tangents, from, to);
        });
        for (int i = 0; i < LAYERS; ++i)
            in_blocks(M, ATOM_BLOCK, [&](long from, long to) {
                LAYER[i].collect_tangent(convolution(i, 2), from, to);
                finish(i, 2, from, to);
            });
    }

    // version 3, and with it the gradient of all weights but those of readout and heads
    void adjoint_tangent(float* gradient) {
        const float* frequencies = frequency_sums.zeros(LAYERS * BESSEL_ROW);
        backward(3, LAYERS, 0, gradient);
        for (int c = 0; c < BESSELS; ++c)
            for (int i = 0; i < LAYERS; ++i) gradient[BESSEL + c] += frequencies[i * BESSEL_ROW + c];
        const float* tilde = arena + 3 * V;
        for (long n = 0; n < M; ++n)
            for (int c = 0; c < EMBEDDING_ROW; ++c)
                gradient[EMBEDDING + graph->species[n] * EMBEDDING_ROW + c] += tilde[n * EMBEDDING_ROW + c];
    }

    // [rows, 3], summed in the precision of the geometry; those of ghosts are what these atoms exert on them
    template <class T> void forces(T* out) {
        const int* first = graph->first;
        in_blocks(N, ATOM_BLOCK, [&](long from, long to) {
            for (long n = from; n < to; ++n) {
                Real sum[3] = {0, 0, 0};
                for (long slot = first[n]; slot < first[n + 1]; ++slot) {
                    const int code = graph->codes[slot], sign = 1 - 2 * (code % 2);
                    for (int i = 0; i < 3; ++i) sum[i] += sign * pull[code / 2 * 3 + i];
                }
                for (int i = 0; i < 3; ++i) out[3 * n + i] = (T)sum[i];
            }
        });
    }

  private:
    long M = 0, N = 0, Q = 0, V = 0;  // atoms, also with ghosts, pairs, floats of a version
    long radial_start[LAYERS];
    Buffer<float> arena, radial, radial_tilde, edge, tangents, frequency_sums;
    Basis<Real> basis;

    Convolution convolution(int i, int version) {
        const Layer& layer = LAYER[i];
        Convolution given;
        given.arena = arena, given.harmonics = harmonics, given.tangents = tangents;
        given.radial = radial + radial_start[i], given.radial_out = radial_tilde, given.edge_out = edge;
        given.first = graph->first, given.senders = graph->senders, given.codes = graph->codes;
        given.norm = graph->norm, given.N = N, given.pairs = Q;
        given.y = layer.y * N, given.y_dot = given.y + 2 * V;
        given.g = layer.collected * N + V, given.g_tilde = given.g + 2 * V;
        given.out = (version % 2 ? layer.y : layer.collected) * N + version * V;
        return given;
    }

    // R and R' of a layer
    void radial_weights(int i, long from, long to) {
        Radial block(basis, weights, back, LAYER[i], Q, from, to);
        block.out = radial + radial_start[i];
        radial_hidden(block);
    }

    // a convolution of versions 0 and 1 for one block of atoms
    void convolve(Convolve function, int i, int version, long from, long to) {
        Convolution given = convolution(i, version);
        if (!lean) return function(given, from, to);
        Pool<Nearby>::Borrowed borrowed(nearby_pool);
        Nearby& near = *borrowed;
        near.gather(*graph, from / ATOM_BLOCK, basis, harmonics, version);
        near.evaluate(LAYER[i], weights, back, version);
        near.give_to(given, *graph);
        if (version) given.edge_out = near.take_edges(edge);
        function(given, from, to);
        if (version) near.give_edges(*graph, graph->first[from], graph->first[to], edge);
    }

    // y = x W for rows of atoms, or with `adjoint` x̄ = ȳ Wᵀ
    void linears(const List<Linear>& list, int version, long from, long to, bool add, bool adjoint = false) {
        float* const base = arena + version * V;
        for (const Linear& l : list) {
            float* const x = base + l.in * N + from * l.dim * l.inner;
            float* const y = base + l.out * N + from * l.dim * l.columns;
            const long rows = (to - from) * l.dim;
            if (adjoint)
                gemm(rows, l.inner, l.columns, y, l.columns, 1, back + l.back, l.inner, x, l.inner, add);
            else
                gemm(rows, l.columns, l.inner, x, l.inner, 1, weights + l.weight, l.columns, y, l.columns, add);
        }
    }

    // the first of the rows with matrix t of a self-connection: rows are sorted by species
    long rows_of(int t) const { return CONNECTIONS == TYPES ? graph->range[t] : t * M; }

    // the same with weights of the species, or with those that all share
    void typed(const List<Linear>& list, int version, long from, long to, bool adjoint) {
        float* const base = arena + version * V;
        for (int t = 0; t < CONNECTIONS; ++t) {
            const long low = from > rows_of(t) ? from : rows_of(t);
            const long high = to < rows_of(t + 1) ? to : rows_of(t + 1);
            if (low >= high) continue;
            for (const Linear& l : list) {
                float* const x = base + l.in * N + low * l.dim * l.inner;
                float* const z = base + l.out * N + low * l.dim * l.columns;
                const long rows = (high - low) * l.dim, own = (long)t * l.inner * l.columns;
                if (adjoint)
                    gemm(rows, l.inner, l.columns, z, l.columns, 1, back + l.back + own, l.inner, x, l.inner, l.shared);
                else
                    gemm(rows, l.columns, l.inner, x, l.inner, 1, weights + l.weight + own, l.columns, z, l.columns,
                         true);
            }
        }
    }

    void gate(int i, int version, long from, long to) {
        LAYER[i].gate[version](arena + LAYER[i].next * N, arena + LAYER[i].z * N, V, N, from, to);
    }

    // from the sums over neighbours to y of the next layer
    void finish(int i, int version, long from, long to) {
        linears(LAYER[i].after, version, from, to, false);
        // the embedding does not move with the atoms: it has no version 2
        if (i || version == 0) typed(LAYER[i].connection, version, from, to, false);
        gate(i, version, from, to);
        if (i + 1 < LAYERS) linears(LAYER[i + 1].before, version, from, to, false);
    }

    // back through the gate, to what the sums over neighbours owe
    void start_back(int i, int version, long from, long to) {
        gate(i, version, from, to);
        linears(LAYER[i].after, version, from, to, false, true);
    }

    // versions 1 and 3; x̄ of layers below `last` is not asked for
    void backward(int version, int layers, int last, float* gradient = nullptr) {
        in_blocks(M, ATOM_BLOCK, [&](long from, long to) { start_back(layers - 1, version, from, to); });
        for (int i = layers - 1; i >= 0; --i) {
            if (ghosts) ghosts->fetch(LAYER[i].after, false, arena + version * V, N);
            in_blocks(M, ATOM_BLOCK, [&](long from, long to) {
                if (version == 1)
                    convolve(LAYER[i].give, i, 1, from, to);
                else
                    LAYER[i].give_tangent(convolution(i, version), from, to);
                if (i < last) return;
                linears(LAYER[i].before, version, from, to, false, true);
                typed(LAYER[i].connection, version, from, to, true);
                if (i) start_back(i - 1, version, from, to);
            });
            if (gradient) layer_gradient(i, gradient);
        }
    }

    // W̃ of all matrices of a layer, xᵀỹ + ẋᵀȳ each; tasks that write to different places
    void layer_gradient(int i, float* gradient) {
        const Layer& layer = LAYER[i];
        const int count = layer.before.size + layer.after.size, tasks = 1 + count + CONNECTIONS * layer.connection.size;
        auto task = [&](long number) {
            if (number == 0) return radial_gradient(i, gradient);
            if (--number < layer.before.size) return matrix_gradient(layer.before.at[number], 0, N, 0, i > 0, gradient);
            if (number < count)
                return matrix_gradient(layer.after.at[number - layer.before.size], 0, N, 0, true, gradient);
            number -= count;
            const int type = number % CONNECTIONS;
            const Linear& l = layer.connection.at[number / CONNECTIONS];
            const long own = (long)type * l.inner * l.columns;
            matrix_gradient(l, rows_of(type), rows_of(type + 1), own, i > 0, gradient);
        };
        if (N > ATOM_BLOCK)
            parallel_if_long(tasks, task);
        else
            for (int number = 0; number < tasks; ++number) task(number);
    }

    // moving: whether ẋ is not 0
    void matrix_gradient(const Linear& l, long from, long to, long own, bool moving, float* gradient) {
        const float* const x = arena + l.in * N + from * l.dim * l.inner;
        const float* const y = arena + l.out * N + from * l.dim * l.columns;
        float* const out = gradient + l.weight + own;
        const long rows = (to - from) * l.dim;
        gemm(l.inner, l.columns, rows, x, 1, l.inner, y + 3 * V, l.columns, out, l.columns, false,
             moving ? x + 2 * V : nullptr, y + V);
    }

    void radial_gradient(int i, float* gradient) {
        for (long from = 0; from < Q; from += PAIR_BLOCK) {
            Radial block(basis, weights, back, LAYER[i], Q, from, from + PAIR_BLOCK < Q ? from + PAIR_BLOCK : Q);
            block.tilde = radial_tilde;
            block.add_to(gradient, LAYER[i], frequency_sums + i * BESSEL_ROW);
            radial_backward(block);
        }
    }
};

}  // namespace equibayes
