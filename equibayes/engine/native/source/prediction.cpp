// Predictions of K weight sets for the atoms of one graph: energies, forces, virials and deviations.
//
// Positions, vectors, lengths, harmonics, the radial basis, the readout and the sums that give forces are in double
// precision; what enters the layers is rounded.
#include <algorithm>
#include <vector>

#include "readout.h"
#include "system.h"

namespace equibayes {

namespace {

constexpr long MUCH = 1L << 25;   // bytes of features of a weight set from which memory is returned with the system
constexpr long MOST = 1L << 30;   // bytes up to which each thread has a weight set of its own; beyond that all share one

struct Work {
    Passes<double> passes;
    Readout readout;
    Deviation heads[HEAD_COUNT];
    Buffer<double> energies, forces;
    Buffer<float> deviations, mask;
};
Pool<Work> shared_pool;

// Results of K weight sets, each as the field of ModelOutput; atoms in their own order.
struct Results {
    double *energy, *forces, *virial;  // [K, B], [K, N, 3], [K, B, 3, 3]
    double *log_sigma_energy, *log_sigma_virial;  // [K, B]; the last is left alone where stress is not learned
    float *log_sigma_forces, *features;           // [K, N], [K, N, CHANNELS] or null
};

// ln of the sum or mean of exp over the atoms of each structure
void log_sum_exp(const System& system, const float* values, bool mean, double* out) {
    std::vector<double> top(system.structures, -1e300), total(system.structures);
    std::vector<long> count(system.structures);
    for (int n : system.place) {
        const int b = system.structure[n];
        if (b < system.structures) top[b] = std::max(top[b], (double)values[n]), ++count[b];
    }
    for (int n : system.place) {
        const int b = system.structure[n];
        if (b < system.structures) total[b] += std::exp(values[n] - top[b]);
    }
    for (long b = 0; b < system.structures; ++b) out[b] = top[b] + std::log(mean ? total[b] / count[b] : total[b]);
}

// ∂E/∂strain of each structure, symmetric
void sum_virial(const System& system, const double* pull, double* out) {
    const Graph& graph = system.graph;
    std::fill(out, out + 9 * system.structures, 0.0);
    for (int n : system.place)
        for (long slot = graph.first[n]; slot < graph.first[n + 1]; ++slot) {
            const int other = graph.senders[slot], code = graph.codes[slot];
            // every pair once, at its first atom
            if (system.order[other] < system.order[n] || (other == n && code % 2)) continue;
            const int b = std::min(system.structure[n], system.structure[other]);  // one of them may be a ghost
            if (b >= system.structures) continue;
            const double *v = system.near + 3 * (code / 2), *p = pull + 3 * (code / 2);
            for (int i = 0; i < 3; ++i)
                for (int j = 0; j < 3; ++j) out[9 * b + 3 * i + j] += 0.5 * (v[i] * p[j] + v[j] * p[i]);
        }
}

void predict(System& system, long k, const float* weights, const float* back, const float* mask, bool lean,
             Pool<Work>& own_memory, const Results& all) {
    Pool<Work>::Borrowed borrowed(own_memory);
    Work& work = *borrowed;
    const long N = system.graph.atoms, B = system.structures;
    Passes<double>& passes = work.passes;
    passes.graph = &system.graph;
    passes.unit = system.unit, passes.harmonics = system.harmonics;
    passes.weights = weights, passes.back = back;
    passes.lean = lean;
    passes.ghosts = system.ghosts.swap ? &system.ghosts : nullptr;
    work.readout.mask = nullptr;
    if (mask) {
        float* rows = work.mask.zeros(N * FEATURES);
        for (long n = 0; n < N; ++n) memcpy(rows + n * FEATURES, mask + system.order[n] * CHANNELS, 4 * CHANNELS);
        work.readout.mask = rows;
    }
    passes.begin(2);
    passes.value();
    const float* features = work.readout.seen(passes.features[0], N);
    float* deviations = work.deviations.size(HEAD_COUNT * N);
    for (int head = 0; head < HEAD_COUNT; ++head)
        work.heads[head].forward(HEADS[head], weights, features, N, deviations + head * N);
    double* energies = work.energies.size(N);
    work.readout.energies(system.graph, features, weights, energies);
    work.readout.adjoint(system.graph, weights, passes.features[1]);
    passes.adjoint();

    const long atoms = system.atoms;  // with ghosts
    double* energy = all.energy + k * B;
    std::fill(energy, energy + B, 0.0);
    for (long atom = 0; atom < atoms; ++atom) {
        const long n = system.place[atom];
        if (n >= N) continue;
        if (system.structure[n] < B) energy[system.structure[n]] += energies[n];
        all.log_sigma_forces[k * atoms + atom] = deviations[n];
        if (all.features) memcpy(all.features + (k * atoms + atom) * CHANNELS, features + n * FEATURES, 4 * CHANNELS);
    }
    log_sum_exp(system, deviations + N, true, all.log_sigma_energy + k * B);
    if (HEAD_COUNT > 2) log_sum_exp(system, deviations + 2 * N, false, all.log_sigma_virial + k * B);
    passes.forces((double*)work.forces.size(3 * atoms));
    for (long n = 0; n < atoms; ++n)
        std::copy_n(work.forces + 3 * n, 3, all.forces + 3 * (k * atoms + system.order[n]));
    sum_virial(system, passes.pull, all.virial + 9 * k * B);
}

}  // namespace

EXPORT int64_t back_size() { return BACK_COUNT; }

// the transposed matrices of K weight sets
EXPORT void prepare_weights(int64_t chains, const float* weights, float* back) {
    for (int64_t k = 0; k < chains; ++k) transpose_weights(weights + k * WEIGHT_COUNT, back + k * BACK_COUNT);
}

// A system, and the memory for the work on it: that of a large one is returned with it.
struct Handle {
    System system;
    Pool<Work> pool;
};

// ghost [N]: 1 for neighbours whose features are computed elsewhere; null if there are none
EXPORT void* system_new(int64_t atoms, int64_t slots, int64_t structures, const int64_t* species, const int64_t* sender,
                        const int64_t* reverse, const double* vector, const int64_t* member, const double* positions,
                        const uint8_t* ghost) {
    return new Handle{System(atoms, slots, structures, species, sender, reverse, vector, member, positions, ghost), {}};
}

EXPORT void system_free(void* handle) { delete (Handle*)handle; }

// atoms whose features others need, and ghosts, in the order in which `swap` has them
EXPORT void system_swap(void* handle, Swap swap, int64_t sent, const int64_t* send, int64_t received,
                        const int64_t* receive) {
    System& system = ((Handle*)handle)->system;
    system.ghosts.swap = swap;
    system.ghosts.sent.assign(sent, 0), system.ghosts.received.assign(received, 0);
    for (int64_t i = 0; i < sent; ++i) system.ghosts.sent[i] = system.place[send[i]];
    for (int64_t i = 0; i < received; ++i) system.ghosts.received[i] = system.place[receive[i]];
}

// at positions [N, 3], or, if null, with the vectors of the list; masks [K, N, CHANNELS] or null
// lean: radial weights of all pairs from which they are computed when they are needed, not kept
EXPORT void system_predict(void* handle, const double* positions, int64_t chains, const float* weights,
                           const float* back, const float* masks, const Results* results, int64_t lean,
                           int64_t threads) {
    set_threads(int(threads));
    System& system = ((Handle*)handle)->system;
    if (positions) system.select(positions);
    const long bytes = 2 * sizeof(float) * ATOM * system.atoms;
    const bool one_by_one = bytes * std::min(chains, threads) > MOST || system.ghosts.swap;
    const bool is_lean = 2 * system.graph.pairs * RADIAL_COLUMNS > lean;
    if (is_lean && system.graph.near_start.empty()) system.graph.find_near();
    auto one = [&](long k) {
        const float* mask = masks ? masks + k * system.atoms * CHANNELS : nullptr;
        predict(system, k, weights + k * WEIGHT_COUNT, back + k * BACK_COUNT, mask, is_lean,
                bytes > MUCH ? ((Handle*)handle)->pool : shared_pool, *results);
    };
    if (one_by_one)
        for (int64_t k = 0; k < chains; ++k) one(k);
    else
        parallel(chains, one);
}

}  // namespace equibayes
