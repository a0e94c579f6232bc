// A stretch of steps of K chains, as steps.py describes it.
#pragma once
#include <atomic>
#include <cstdint>

#include "basis.h"

namespace equibayes {

// A parameter array: `length` parameters from `flat` on lie at `place` in the forward weights.
struct Range {
    int64_t flat, place, length;
};

// Parameters that one thread updates: `count` from `first` on.  matrix: its number among the matrices of the mass, or −1.
struct Piece {
    int64_t first, count, matrix;
};

// What changes from step to step, for each chain; the columns of the table that engine/table.py makes.
struct Plan {
    float dt, deviation, adapt, correction, prior_weight;  // adapt: 0 no, 1 yes, 2 for the first time
    float basis;                                           // 0; 1: its factors gather the gradient; 2: refreshed as well
    float balance;                                         // of energies and stress against forces
};

// The same as the structure in steps.py.
struct Stretch {
    int64_t steps, chains, batch, size, ranges, pieces, matrices, basis_size, first_step, threads;
    // of the state, [K, P]; moving: the moving average of the weights, or null
    float *position, *momentum, *average, *maximum, *mass, *moving, *gradient;
    float *factors, *basis, *basis_back;      // of a matrix mass, [K, B]; the last one is scratch
    const float *scale, *center, *stiffness;  // [P]; [P] or [K, P], or null; [P], or null
    const Range* range;
    const Piece* piece;
    const MassMatrix* matrix;
    const int64_t* frames;      // [n, K, B]
    const Plan* plans;          // [n, K]
    const int64_t* identities;  // [K]
    const std::atomic<int>* stop;
    double* seen;  // [K, 6]: the sums of Seen, and −ln p(θ) of the prior without its constant
    uint64_t seed, dropout_seed, dropped;  // dropped: words below it drop a feature
    int64_t dropout_stream, features;      // features of all atoms of a minibatch; 0: no dropout
    double friction, beta, epsilon, data_size, decay;
    float factor_decay, shrinkage;  // of a matrix mass
    float kept;                     // factor of a feature that is not dropped
    int32_t paper, flat_prior, center_per_chain;
};

}  // namespace equibayes
