// Atoms sorted by species, and pairs of atoms instead of directed edges.
#pragma once
#include "memory.h"

namespace equibayes {

struct Graph {
    long atoms = 0, pairs = 0;
    Buffer<int> species;         // [N]
    Buffer<int> first;           // [N + 1]: the slots of atom n are first[n] … first[n + 1] − 1
    Buffer<int> senders, codes;  // of each slot: neighbour; 2·pair + direction, 0 if the vector to it is the pair's
    Buffer<int> ends;            // [Q, 2]: first and second atom of each pair
    Buffer<float> norm;          // [N]: 1/√(average number of neighbours) of each atom's species
    int range[TYPES + 1];        // where the rows of each species begin

    void size(long atoms_, long pairs_) {
        atoms = atoms_, pairs = pairs_;
        species.size(atoms), first.size(atoms + 1), norm.size(atoms);
        senders.size(2 * pairs), codes.size(2 * pairs), ends.size(2 * pairs);
    }
};

}  // namespace equibayes
