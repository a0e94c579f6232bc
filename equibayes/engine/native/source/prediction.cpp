// Predictions of K weight sets for the atoms of one graph: energies, forces, virials and deviations.
//
// Positions, vectors, lengths, harmonics, the radial basis, the readout and the sums that give forces are in double
// precision; what enters the layers is rounded.
#include <algorithm>
#include <vector>

#include "readout.h"

namespace equibayes {

namespace {

constexpr long ONE_BY_ONE = 2000;  // atoms from which weight sets are evaluated one after the other, each by all threads

struct Work {
    Passes<double> passes;
    Readout readout;
    Deviation heads[2];
    Buffer<double> energies, forces;
    Buffer<float> deviations, mask;
};
Pool<Work> shared_pool;

// A list of pairs, which holds while atoms move a little, and the graph of those within the cutoff now.
struct System {
    long atoms, structures, listed;  // listed: pairs in the list
    std::vector<int> order, place;   // the atom of each row, and the row of each atom
    std::vector<int> structure;      // of each row; `structures` for padding
    std::vector<int> first, neighbor, numbers;   // the list by rows; numbers: 2·pair + direction
    std::vector<double> shift;       // [listed, 3]: a vector minus the difference of the positions of its ends
    std::vector<int> number;         // of each listed pair among those within the cutoff, or −1
    Pool<Work> pool;                 // of a large system: its memory is returned with the system
    long lean = 0;                   // radial weights from which those of one layer at a time are kept
    Graph graph;
    Buffer<double> near, unit;       // [Q, 3], [Q, 4]
    Buffer<float> harmonics;

    // arrays of a Graph of one group with D slots; positions [N, 3], or null if the vectors are all that is asked for
    System(long atoms, long D, long structures, const int64_t* species, const int64_t* sender, const int64_t* reverse,
           const double* vector, const int64_t* member, const double* positions)
        : atoms(atoms), structures(structures), order(atoms), place(atoms), structure(atoms) {
        for (int i = 0; i < atoms; ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return species[a] < species[b]; });
        graph.size(atoms, 0);
        for (int row = 0; row < atoms; ++row) {
            const int atom = order[row], type = species[atom];
            place[atom] = row, structure[row] = member[atom];
            graph.species[row] = type, graph.norm[row] = NEIGHBOR_NORM[type];
        }
        for (int t = 0; t <= TYPES; ++t)
            graph.range[t] = std::count_if(species, species + atoms, [&](int64_t s) { return s < t; });
        // an order of the slots that does not depend on how the list was made
        auto offset = [&](long e, int axis) {
            if (!positions) return vector[3 * e + axis];
            const double difference = positions[3 * sender[e] + axis] - positions[3 * (e / D) + axis];
            // lattice translations, freed of the rounding of the positions
            return std::nearbyint((vector[3 * e + axis] - difference) * 0x1p32) * 0x1p-32;
        };
        std::vector<int> named(atoms * D, -1);
        std::vector<long> slots;
        listed = 0;
        first.push_back(0);
        for (int row = 0; row < atoms; ++row) {
            slots.clear();
            for (long e = order[row] * D; e < (order[row] + 1) * D; ++e)
                if (reverse[e] != e) slots.push_back(e);
            std::sort(slots.begin(), slots.end(), [&](long a, long b) {
                if (sender[a] != sender[b]) return sender[a] < sender[b];
                for (int axis = 0; axis < 3; ++axis) {
                    const double x = offset(a, axis), y = offset(b, axis);
                    if (x != y) return x < y;
                }
                return a < b;
            });
            for (long e : slots) {
                const bool forward = named[reverse[e]] < 0;
                if (forward) {
                    named[e] = listed++;
                    for (int axis = 0; axis < 3; ++axis) shift.push_back(offset(e, axis));
                } else {
                    named[e] = named[reverse[e]];
                }
                neighbor.push_back(place[sender[e]]);
                numbers.push_back(2 * named[e] + !forward);
            }
            first.push_back(neighbor.size());
        }
        number.resize(listed);
        if (!positions) select(nullptr);
    }

    // the graph of the pairs within the cutoff, at positions [N, 3] of the atoms
    void select(const double* positions) {
        long pairs = 0;
        near.size(3 * listed);
        graph.size(atoms, listed);
        for (int row = 0; row < atoms; ++row)
            for (int slot = first[row]; slot < first[row + 1]; ++slot) {
                const int code = numbers[slot];
                if (code % 2) continue;
                double* v = near + 3 * pairs;
                for (int axis = 0; axis < 3; ++axis) {
                    v[axis] = shift[3 * (code / 2) + axis];
                    if (positions) v[axis] += positions[3 * order[neighbor[slot]] + axis] - positions[3 * order[row] + axis];
                }
                const bool within = v[0] * v[0] + v[1] * v[1] + v[2] * v[2] < R_MAX * R_MAX;
                number[code / 2] = within ? pairs : -1;
                if (!within) continue;
                graph.ends[2 * pairs] = row, graph.ends[2 * pairs + 1] = neighbor[slot];
                ++pairs;
            }
        long slots = 0;
        for (int row = 0; row < atoms; ++row) {
            graph.first[row] = slots;
            for (int slot = first[row]; slot < first[row + 1]; ++slot) {
                const int own = number[numbers[slot] / 2];
                if (own < 0) continue;
                graph.senders[slots] = neighbor[slot], graph.codes[slots] = 2 * own + numbers[slot] % 2;
                ++slots;
            }
        }
        graph.first[atoms] = slots;
        graph.pairs = pairs;
        unit.size(4 * pairs), harmonics.size(HARMONICS * pairs);
        in_blocks(pairs, 1024, [&](long from, long to) {
            geometry<double>((const double*)near, (double*)unit, (float*)harmonics, (const double*)nullptr, nullptr,
                             (const double*)nullptr, nullptr, from, to);
        });
    }
};

// Results of K weight sets, each as the field of ModelOutput; atoms in their own order.
struct Results {
    double *energy, *forces, *virial;  // [K, B], [K, N, 3], [K, B, 3, 3]
    double *log_sigma_energy;          // [K, B]
    float *log_sigma_forces, *features;  // [K, N], [K, N, CHANNELS] or null
    float* invariants;                   // [N, INVARIANTS] of the first weight set
};

// ln of the mean of exp over the atoms of each structure
void log_mean_exp(const System& system, const float* values, double* out) {
    std::vector<double> top(system.structures, -1e300), total(system.structures);
    std::vector<long> count(system.structures);
    for (long n = 0; n < system.atoms; ++n) {
        const int b = system.structure[n];
        if (b < system.structures) top[b] = std::max(top[b], (double)values[n]), ++count[b];
    }
    for (long n = 0; n < system.atoms; ++n) {
        const int b = system.structure[n];
        if (b < system.structures) total[b] += std::exp(values[n] - top[b]);
    }
    for (long b = 0; b < system.structures; ++b) out[b] = top[b] + std::log(total[b] / count[b]);
}

// ∂E/∂strain of each structure, symmetric
void sum_virial(const System& system, const double* pull, double* out) {
    std::fill(out, out + 9 * system.structures, 0.0);
    for (long q = 0; q < system.graph.pairs; ++q) {
        const int b = system.structure[system.graph.ends[2 * q]];
        if (b >= system.structures) continue;
        const double *v = system.near + 3 * q, *p = pull + 3 * q;
        for (int i = 0; i < 3; ++i)
            for (int j = 0; j < 3; ++j) out[9 * b + 3 * i + j] += 0.5 * (v[i] * p[j] + v[j] * p[i]);
    }
}

// the scalars of all layers, atom by atom
void copy_invariants(const System& system, const Passes<double>& passes, float* out) {
    for (const Scalars& own : SCALARS) {
        const float* from = passes.block(own.place);
        for (long n = 0; n < system.atoms; ++n)
            memcpy(out + system.order[n] * INVARIANTS, from + n * own.row, 4 * own.channels);
        out += own.channels;
    }
}

void predict(System& system, long k, const float* weights, const float* back, const float* mask, const Results& all) {
    Pool<Work>::Borrowed borrowed(system.atoms > ONE_BY_ONE ? system.pool : shared_pool);
    Work& work = *borrowed;
    const long N = system.atoms, B = system.structures;
    Passes<double>& passes = work.passes;
    passes.graph = &system.graph;
    passes.unit = system.unit, passes.harmonics = system.harmonics;
    passes.weights = weights, passes.back = back;
    passes.lean = 2 * system.graph.pairs * RADIAL_COLUMNS > system.lean;
    work.readout.mask = nullptr;
    if (mask) {
        float* rows = work.mask.zeros(N * FEATURES);
        for (long n = 0; n < N; ++n) memcpy(rows + n * FEATURES, mask + system.order[n] * CHANNELS, 4 * CHANNELS);
        work.readout.mask = rows;
    }
    passes.begin(2);
    passes.value();
    if (k == 0) copy_invariants(system, passes, all.invariants);
    const float* features = work.readout.seen(passes.features[0], N);
    float* deviations = work.deviations.size(2 * N);
    for (int head = 0; head < 2; ++head)
        work.heads[head].forward(HEADS[head], weights, features, N, deviations + head * N);
    double* energies = work.energies.size(N);
    work.readout.energies(system.graph, features, weights, energies);
    work.readout.adjoint(system.graph, weights, passes.features[1]);
    passes.adjoint();

    double* energy = all.energy + k * B;
    std::fill(energy, energy + B, 0.0);
    for (long n = 0; n < N; ++n) {
        if (system.structure[n] < B) energy[system.structure[n]] += energies[n];
        all.log_sigma_forces[k * N + system.order[n]] = deviations[n];
        if (all.features)
            memcpy(all.features + (k * N + system.order[n]) * CHANNELS, features + n * FEATURES, 4 * CHANNELS);
    }
    log_mean_exp(system, deviations + N, all.log_sigma_energy + k * B);
    passes.forces((double*)work.forces.size(3 * N));
    for (long n = 0; n < N; ++n)
        std::copy_n(work.forces + 3 * n, 3, all.forces + 3 * (k * N + system.order[n]));
    sum_virial(system, passes.pull, all.virial + 9 * k * B);
}

}  // namespace

EXPORT int64_t back_size() { return BACK_COUNT; }

// the transposed matrices of K weight sets
EXPORT void prepare_weights(int64_t chains, const float* weights, float* back) {
    for (int64_t k = 0; k < chains; ++k) transpose_weights(weights + k * WEIGHT_COUNT, back + k * BACK_COUNT);
}

EXPORT void* system_new(int64_t atoms, int64_t slots, int64_t structures, const int64_t* species, const int64_t* sender,
                        const int64_t* reverse, const double* vector, const int64_t* member, const double* positions) {
    return new System(atoms, slots, structures, species, sender, reverse, vector, member, positions);
}

EXPORT void system_free(void* system) { delete (System*)system; }

// at positions [N, 3], or, if null, with the vectors of the list; masks [K, N, CHANNELS] or null
EXPORT void system_predict(void* given, const double* positions, int64_t chains, const float* weights,
                           const float* back, const float* masks, const Results* results, int64_t lean,
                           int64_t threads) {
    set_threads(int(threads));
    System& system = *(System*)given;
    if (positions) system.select(positions);
    system.lean = lean;
    auto one = [&](long k) {
        const float* mask = masks ? masks + k * system.atoms * CHANNELS : nullptr;
        predict(system, k, weights + k * WEIGHT_COUNT, back + k * BACK_COUNT, mask, *results);
    };
    if (system.atoms > ONE_BY_ONE)
        for (int64_t k = 0; k < chains; ++k) one(k);
    else
        parallel(chains, one);
}

}  // namespace equibayes
