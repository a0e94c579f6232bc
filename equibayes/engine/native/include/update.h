// What a step does with the weights of one chain, piece by piece: gradient, mass, momentum, θ and the forward weights.
#pragma once
#include "potential.h"
#include "stretch.h"

namespace equibayes {

// the forward weights of chain k and, of a matrix mass, the transposed eigenvectors, from the tensors of the state
void begin(const Stretch& s, int64_t k, float* weights);

// Step i of the stretch for a piece of the parameters of chain k, whose gradient is in `chain`; writes its forward weights.
// Returns the energy of the prior before the step, where it is the last one.
double update(const Stretch& s, int64_t i, int64_t k, const Piece& piece, const Chain& chain, float* weights);

}  // namespace equibayes
