// Atoms sorted by species, and pairs of atoms instead of directed edges.
#pragma once
#include <vector>

#include "memory.h"

namespace equibayes {

constexpr long ATOM_BLOCK = 64;  // atoms whose features are computed one stage after the other, while in the cache

struct Graph {
    long atoms = 0, pairs = 0;
    long rows = 0;               // atoms and, behind them, ghosts: neighbours whose features are computed elsewhere
    Buffer<int> species;         // [rows]
    Buffer<int> first;           // [rows + 1]: the slots of atom n are first[n] … first[n + 1] − 1
    Buffer<int> senders, codes;  // of each slot: neighbour; 2·pair + direction, 0 if the vector to it is the pair's
    Buffer<int> ends;            // [Q, 2]: first and second atom of each pair
    Buffer<float> norm;          // [rows]: 1/√(average number of neighbours) of each atom's species
    int range[TYPES + 1];        // where the atoms of each species begin

    // The pairs of each block of atoms, see nearby.h; those of block b are near[near_start[b]] … near[near_start[b+1]−1]
    Buffer<int> near, near_codes;  // near_codes: as codes, with the pairs of a block numbered by themselves
    std::vector<long> near_start;

    void size(long atoms_, long pairs_) {
        atoms = rows = atoms_, pairs = pairs_;
        species.size(rows), first.size(rows + 1), norm.size(rows);
        senders.size(2 * pairs), codes.size(2 * pairs), ends.size(2 * pairs);
    }

    void find_near() {
        const long slots = first[atoms];
        near.size(slots), near_codes.size(slots);
        std::vector<int> number(pairs);
        std::vector<long> seen(pairs, -1);  // the last block that has the pair
        near_start.assign(1, 0);
        long count = 0;
        for (long begin = 0; begin < atoms; begin += ATOM_BLOCK) {
            const long end = begin + ATOM_BLOCK < atoms ? begin + ATOM_BLOCK : atoms, start = count;
            for (long slot = first[begin]; slot < first[end]; ++slot) {
                const int pair = codes[slot] / 2;
                if (seen[pair] != begin) {
                    seen[pair] = begin, number[pair] = count - start;
                    near[count++] = pair;
                }
                near_codes[slot] = 2 * number[pair] + codes[slot] % 2;
            }
            near_start.push_back(count);
        }
    }
};

}  // namespace equibayes
