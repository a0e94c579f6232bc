// Atoms that move, a list of their pairs that holds meanwhile, and the graph of those within the cutoff now.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "passes.h"
#include "space.h"

namespace equibayes {

constexpr long NEAR_BY_ITSELF = 512;  // atoms up to which the order of rows does not matter

// Rows are sorted by species and, within a species, so that neighbours are close.  Results do not depend on that: sums
// over atoms are made in the order of the atoms, and sums over neighbours in an order that depends on the structure alone.
struct System {
    long atoms, structures, listed;  // listed: pairs in the list
    std::vector<int> order, place;   // the atom of each row, and the row of each atom
    std::vector<int> structure;      // of each row; `structures` for padding and ghosts
    std::vector<int> first, neighbor, numbers;   // the list by rows; numbers: 2·pair + direction
    std::vector<double> shift;       // [listed, 3]: a vector minus the difference of the positions of its ends
    std::vector<int> number;         // of each listed pair among those within the cutoff, or −1
    Graph graph;
    Ghosts ghosts;
    Buffer<double> near, unit;       // [Q, 3], [Q, 4]
    Buffer<float> harmonics;

    // arrays of a Graph of one group with D slots; positions [N, 3], or null if the vectors are all that is asked for;
    // ghost [N], or null if there are none
    System(long atoms, long D, long structures, const int64_t* species, const int64_t* sender, const int64_t* reverse,
           const double* vector, const int64_t* member, const double* positions, const uint8_t* ghost)
        : atoms(atoms), structures(structures), order(atoms), place(atoms), structure(atoms) {
        arrange(D, species, sender, reverse, vector, ghost);
        for (int row = 0; row < atoms; ++row) {
            const int atom = order[row], type = species[atom];
            place[atom] = row, structure[row] = ghost && ghost[atom] ? structures : member[atom];
            graph.species[row] = type, graph.norm[row] = NEIGHBOR_NORM[type];
        }
        list(D, sender, reverse, vector, positions);
        if (!positions) select(nullptr);
    }

    // the graph of the pairs within the cutoff, at positions [N, 3] of the atoms
    void select(const double* positions) {
        long pairs = 0;
        near.size(3 * listed);
        graph.senders.size(2 * listed), graph.codes.size(2 * listed), graph.ends.size(2 * listed);
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
        graph.near_start.clear();
        unit.size(4 * pairs), harmonics.size(HARMONICS * pairs);
        in_blocks(pairs, 1024, [&](long from, long to) {
            geometry<double>((const double*)near, (double*)unit, (float*)harmonics, (const double*)nullptr, nullptr,
                             (const double*)nullptr, nullptr, from, to);
        });
    }

  private:
    // the order of the rows: ghosts last
    void arrange(long D, const int64_t* species, const int64_t* sender, const int64_t* reverse, const double* vector,
                 const uint8_t* ghost) {
        std::iota(order.begin(), order.end(), 0);
        std::vector<uint64_t> along;
        if (atoms > NEAR_BY_ITSELF) along = places_along_curve(atoms, D, sender, reverse, vector);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
            if (ghost && ghost[a] != ghost[b]) return ghost[a] < ghost[b];
            if (species[a] != species[b]) return species[a] < species[b];
            return !along.empty() && along[a] < along[b];
        });
        graph.size(atoms, 0);
        graph.atoms = ghost ? std::count(ghost, ghost + atoms, 0) : atoms;
        for (int t = 0; t <= TYPES; ++t)
            graph.range[t] = std::count_if(order.begin(), order.begin() + graph.atoms, [&](int n) { return species[n] < t; });
    }

    // the pairs, with the slots of an atom in an order that does not depend on how the list was made
    void list(long D, const int64_t* sender, const int64_t* reverse, const double* vector, const double* positions) {
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
    }
};

}  // namespace equibayes
