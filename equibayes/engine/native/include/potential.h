// −N/|batch| Σ ln p of one chain and its gradient by the forward weights.  The generated module defines what is
// declared here; steps.cpp uses it.
#pragma once
#include <cstdint>

namespace equibayes {

// The resident frames, padded to the same numbers of atoms and slots, as ResidentData has them.
struct Data {
    int64_t frames, atoms, slots;
    const int64_t *species, *sender, *reverse, *structure, *num_atoms;  // [F, n], [F, n, D], [F, n, D], [F, n], [F]
    const float* vector;                                                 // [F, n, D, 3]  Å
    const double* energy;                                                // [F]  eV, NaN where there is no label
    const float* forces;                                                 // [F, n, 3]  eV/Å
    const double* volume;                                                // [F]  Å³, NaN where there is none
    const float* stress;  // [F, 3, 3]  eV/Å³, NaN where there is no label; null where no frame has one
    const double* weight;                                                // [F]  of ln p, or null: all 1
    const double* noise;                                                 // [F]  eV/Å of forces, or null: all 0
    const float* rigid;  // [F, n, 3, 6]  Å/eV, see bayes/covariance.py; null where nothing asks for it
};

// Sums over frames: ln p and ln p times the weight; |ΔF| (mean of the components) and σ_F of all atoms, their number.
struct Seen {
    double log_p, weighted, wrong, sigma, atoms;

    void add(const Seen& other) {
        log_p += other.log_p, weighted += other.weighted;
        wrong += other.wrong, sigma += other.sigma, atoms += other.atoms;
    }
};

struct Chain;  // the work space of one chain

extern const long WEIGHTS;  // numbers in the forward weights of a chain, padding included

Chain* make_chain(const Data& data, int batch, bool squares);
void free_chain(Chain* chain);

// in how many parts of frames a minibatch is divided, by its size alone; they may be evaluated at the same time
int parts(const Chain& chain);
// [WEIGHTS], written by the caller, who then calls prepare
float* weights(Chain& chain);
void prepare(Chain& chain);
// frames [B] by number; scale: N/B; balance: of energies and stress against forces (bayes/balance.py)
// mask [B·n, C]: factors of the features that heads and readout see, or null
void evaluate(Chain& chain, int part, const int64_t* frames, double scale, double balance, const float* mask,
              Seen& seen);
// [WEIGHTS], of the last evaluation
const float* gradient(const Chain& chain, int part);

}  // namespace equibayes
