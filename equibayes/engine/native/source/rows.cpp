// How single labels change with the weights, ∂F/∂θ, ∂E/∂θ and ∂S/∂θ, for one weight set.
#include "frames.h"
#include "readout.h"
#include "threads.h"

namespace equibayes {

// What rows are made of.  A row has `width` floats: out[column[p]] += factor[p] · gradient[place[p]] for p < count.
// Labels of a frame: 3n force components, the energy, and, if `stress`, six components of the stress with √2 before yz,
// xz and xy.  first [F]: the number of the first label of each frame;  row [labels]: the row of each, or −1: none.
struct RowsView {
    int64_t frames, count, width, stress, threads;
    const int64_t *numbers, *first, *row;
    const int32_t *place, *column;
    const float* factor;
    float* out;                 // [R, width], zeros
    double *value, *log_sigma;  // [R]
};

namespace {

constexpr int SIX[6][2] = {{0, 0}, {1, 1}, {2, 2}, {1, 2}, {0, 2}, {0, 1}};

struct Work {
    Minibatch minibatch;
    Passes<float> passes;
    Readout readout;
    Deviation heads[HEAD_COUNT];
    Buffer<float> forces, direction, energy_bar, deviations, gradient;
    Buffer<double> energies;
    float strain[9];
};
Pool<Work> pool;

// ln of the mean of exp(values), times n for the virial
double log_sum(const float* values, long N, bool mean) {
    double top = values[0], total = 0;
    for (long n = 0; n < N; ++n) top = std::max(top, (double)values[n]);
    for (long n = 0; n < N; ++n) total += std::exp(values[n] - top);
    return top + std::log(total) - (mean ? std::log((double)N) : 0);
}

// Predictions, and with them what all rows of the frame need.
void predict(Work& work, const Frame& frame, const float* weights, const float* back) {
    work.minibatch.gather({&frame});
    const Graph& graph = work.minibatch.graph;
    const long N = graph.atoms;
    Passes<float>& passes = work.passes;
    passes.graph = &graph;
    passes.unit = work.minibatch.unit, passes.harmonics = work.minibatch.harmonics;
    passes.weights = weights, passes.back = back;
    passes.begin(4);
    passes.value();
    const float* features = passes.features[0];
    work.deviations.size(HEAD_COUNT * N);
    for (int head = 0; head < HEAD_COUNT; ++head)
        work.heads[head].forward(HEADS[head], weights, features, N, work.deviations + head * N);
    work.readout.energies(graph, features, weights, work.energies.size(N));
    work.readout.adjoint(graph, weights, passes.features[1]);
    passes.adjoint();
    passes.forces(work.forces.size(3 * N));
}

// The gradient of −direction·∂F + energy·∂E + strain·∂virial, as a row.
void add_row(Work& work, const RowsView& rows, float energy, long row) {
    float* const out = rows.out + row * rows.width;
    const Graph& graph = work.minibatch.graph;
    const long N = graph.atoms;
    Passes<float>& passes = work.passes;
    float *gradient = work.gradient.size(WEIGHT_COUNT), *bar = work.energy_bar.size(N);
    for (const Range& range : SUMMED) memset(gradient + range.from, 0, 4 * (range.to - range.from));
    std::fill(bar, bar + N, energy);
    passes.tangent(work.direction, work.minibatch.structure, work.strain);
    float* const tilde = passes.features[3];
    work.readout.tilde(graph, passes.features[0], passes.features[2], bar, passes.weights, gradient, tilde);
    passes.adjoint_tangent(gradient);
    for (long p = 0; p < rows.count; ++p) out[rows.column[p]] += rows.factor[p] * gradient[rows.place[p]];
}

void forces(Work& work, const Frame& frame, const RowsView& rows, long first) {
    for (int a = 0; a < frame.atoms; ++a) {
        const int n = work.minibatch.row(0, frame, a);
        for (int i = 0; i < 3; ++i) {
            const long row = rows.row[first + 3 * frame.order[a] + i];
            if (row < 0) continue;
            rows.value[row] = work.forces[3 * n + i];
            rows.log_sigma[row] = work.deviations[n];
            work.direction[3 * n + i] = -1;
            add_row(work, rows, 0, row);
            work.direction[3 * n + i] = 0;
        }
    }
}

void energy(Work& work, const RowsView& rows, long N, long row) {
    if (row < 0) return;
    rows.value[row] = std::accumulate((double*)work.energies, work.energies + N, 0.0);
    rows.log_sigma[row] = log_sum(work.deviations + N, N, true);
    add_row(work, rows, 1, row);
}

void stress(Work& work, const Frame& frame, const RowsView& rows, long first) {
    double virial[9];
    work.minibatch.virial(0, work.passes.pull, virial);
    const double log_sigma = log_sum(work.deviations + 2 * frame.atoms, frame.atoms, false) - std::log(frame.volume);
    for (int c = 0; c < 6; ++c) {
        const long row = rows.row[first + c];
        if (row < 0) continue;
        const int i = SIX[c][0], j = SIX[c][1];
        const double norm = i == j ? 1 : std::sqrt(2.0);
        rows.value[row] = norm * virial[3 * i + j] / frame.volume;
        rows.log_sigma[row] = log_sigma;
        work.strain[3 * i + j] += 0.5 * norm / frame.volume, work.strain[3 * j + i] += 0.5 * norm / frame.volume;
        add_row(work, rows, 0, row);
        work.strain[3 * i + j] = work.strain[3 * j + i] = 0;
    }
}

}  // namespace

// weights [WEIGHT_COUNT]
EXPORT void rows_run(const Data* data, const RowsView* rows, const float* weights) {
    set_threads(int(rows->threads));
    Buffer<float> back;
    back.zeros(BACK_COUNT);
    transpose_weights(weights, back);
    parallel(rows->frames, [&](long f) {
        Pool<Work>::Borrowed borrowed(pool);
        Work& work = *borrowed;
        const Frame frame(*data, rows->numbers[f]);
        const long N = frame.atoms, first = rows->first[f];
        predict(work, frame, weights, back);
        work.direction.zeros(3 * N);
        std::fill(work.strain, work.strain + 9, 0.0f);
        forces(work, frame, *rows, first);
        energy(work, *rows, N, rows->row[first + 3 * N]);
        if (HEAD_COUNT > 2 && rows->stress) stress(work, frame, *rows, first + 3 * N + 1);
    });
}

}  // namespace equibayes
