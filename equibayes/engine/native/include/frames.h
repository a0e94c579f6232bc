// Frames that stay in memory as graphs, and the minibatch that is made of some of them.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "graph.h"
#include "potential.h"

namespace equibayes {

// One frame: its atoms sorted by species.
struct Frame {
    int atoms, pairs;
    int range[TYPES + 1];                        // as in Graph
    std::vector<int> order;                      // the atom of the data that each row holds
    std::vector<int> first, senders, codes, ends;  // as in Graph
    std::vector<float> unit, harmonics, forces;  // [Q, 4], [Q, HARMONICS], [n, 3]
    double energy, volume, weight, noise;
    std::vector<float> radial, cutoff, rigid;  // [Q, EDGE_RADIAL], [Q], [n, 3, 6]: see covariance.h
    bool has_stress;   // a label, and a volume that it refers to
    float stress[9];   // 0 without a label

    Frame(const Data& data, long f)
        : atoms(data.num_atoms[f]),
          energy(data.energy[f]),
          volume(data.volume[f]),
          weight(data.weight ? data.weight[f] : 1.0),
          noise(data.noise ? data.noise[f] : 0.0) {
        const long D = data.slots, start = f * data.atoms * D;
        const int64_t *species = data.species + f * data.atoms, *sender = data.sender + start;
        const int64_t* reverse = data.reverse + start;
        order.resize(atoms);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return species[a] < species[b]; });
        std::vector<int> place(atoms);
        for (int i = 0; i < atoms; ++i) place[order[i]] = i;
        for (int t = 0; t <= TYPES; ++t)
            range[t] = std::count_if(species, species + atoms, [&](int64_t s) { return s < t; });
        // numbers of pairs, counted on their forward edges
        std::vector<int> number(atoms * D, -1);
        pairs = 0;
        for (long e = 0; e < atoms * D; ++e)
            if (reverse[e] > e) number[e] = number[reverse[e]] = pairs++;
        std::vector<float> vector(3 * pairs);
        ends.resize(2 * pairs);
        first.push_back(0);
        for (int row = 0; row < atoms; ++row) {
            for (long e = order[row] * D; e < (order[row] + 1) * D; ++e) {
                if (number[e] < 0) continue;
                const bool forward = reverse[e] > e;
                const int to = place[sender[e]];
                senders.push_back(to);
                codes.push_back(2 * number[e] + !forward);
                if (!forward) continue;
                ends[2 * number[e]] = row, ends[2 * number[e] + 1] = to;
                std::copy_n(data.vector + 3 * (start + e), 3, &vector[3 * number[e]]);
            }
            first.push_back(senders.size());
            const float* label = data.forces + 3 * (f * data.atoms + order[row]);
            forces.insert(forces.end(), label, label + 3);
        }
        has_stress = data.stress && volume == volume;
        for (int i = 0; i < 9; ++i) {
            stress[i] = data.stress ? data.stress[9 * f + i] : 0.0f;
            has_stress = has_stress && stress[i] == stress[i];
        }
        unit.resize(4 * pairs), harmonics.resize(HARMONICS * pairs);
        geometry<float>(vector.data(), unit.data(), harmonics.data(), (const float*)nullptr, nullptr,
                        (const float*)nullptr, nullptr, 0, pairs);
        if (COUPLINGS) edge_functions();
        if (data.rigid)
            for (int a : order) rigid.insert(rigid.end(), data.rigid + 18 * (f * data.atoms + a), data.rigid + 18 * (f * data.atoms + a + 1));
    }

  private:
    // of the distance, for the deviation network of edges
    void edge_functions() {
        for (int q = 0; q < pairs; ++q) {
            const double x = std::min(unit[4 * q + 3] / R_MAX, 1.0);
            for (int r = 1; r <= EDGE_RADIAL; ++r) radial.push_back(float(std::sqrt(2.0) * std::sin(M_PI * r * x)));
            double sum = 0, power = 1;
            for (int k = 0; k < EDGE_CUTOFF_P; ++k, power *= x) sum += (k + 1) * (k + 2) / 2 * power;
            cutoff.push_back(float(std::pow(1 - x, 3) * sum));
        }
    }
};

// Some frames as one graph, whose rows are sorted by species.
struct Minibatch {
    Graph graph;
    Buffer<float> unit, harmonics, radial, cutoff;
    Buffer<int> structure;         // [N]: the frame of each row
    std::vector<int> starts;       // [B, TYPES]: the row of the first atom of each species of each frame
    std::vector<long> pair_start;  // [B + 1]: the first pair of each frame

    int row(int b, const Frame& frame, int atom) const {
        int type = 0;
        while (atom >= frame.range[type + 1]) ++type;
        return starts[b * TYPES + type] + atom - frame.range[type];
    }

    // ∂E/∂strain of frame b, symmetric, from ∂E/∂vector of all pairs
    void virial(int b, const float* pull, double* out) const {
        std::fill(out, out + 9, 0.0);
        for (long q = pair_start[b]; q < pair_start[b + 1]; ++q) {
            const float *u = unit + 4 * q, *p = pull + 3 * q;
            for (int i = 0; i < 3; ++i)
                for (int j = 0; j < 3; ++j)
                    out[3 * i + j] += 0.5 * u[3] * ((double)u[i] * p[j] + (double)u[j] * p[i]);
        }
    }

    void gather(const std::vector<const Frame*>& frames) {
        const int B = frames.size();
        long atoms = 0, pairs = 0;
        starts.resize(B * TYPES);
        for (int t = 0; t < TYPES; ++t) {
            graph.range[t] = atoms;
            for (int b = 0; b < B; ++b) {
                starts[b * TYPES + t] = atoms;
                atoms += frames[b]->range[t + 1] - frames[b]->range[t];
            }
        }
        graph.range[TYPES] = atoms;
        for (const Frame* frame : frames) pairs += frame->pairs;
        graph.size(atoms, pairs), structure.size(atoms);
        long slots = 0;
        pair_start.assign(B + 1, 0);
        for (int b = 0; b < B; ++b) pair_start[b + 1] = pair_start[b] + frames[b]->pairs;
        for (int t = 0; t < TYPES; ++t)
            for (int b = 0; b < B; ++b) {
                const Frame& frame = *frames[b];
                for (int a = frame.range[t]; a < frame.range[t + 1]; ++a) {
                    const int n = row(b, frame, a);
                    graph.first[n] = slots, graph.species[n] = t, graph.norm[n] = NEIGHBOR_NORM[t];
                    structure[n] = b;
                    for (int s = frame.first[a]; s < frame.first[a + 1]; ++s, ++slots) {
                        graph.senders[slots] = row(b, frame, frame.senders[s]);
                        graph.codes[slots] = frame.codes[s] + 2 * pair_start[b];
                    }
                }
            }
        graph.first[atoms] = slots;
        unit.size(4 * pairs), harmonics.size(HARMONICS * pairs);
        if (COUPLINGS) radial.size(EDGE_RADIAL * pairs), cutoff.size(pairs);
        for (int b = 0; b < B; ++b) {
            const Frame& frame = *frames[b];
            for (int i = 0; i < 2 * frame.pairs; ++i) graph.ends[2 * pair_start[b] + i] = row(b, frame, frame.ends[i]);
            std::copy(frame.unit.begin(), frame.unit.end(), unit + 4 * pair_start[b]);
            std::copy(frame.harmonics.begin(), frame.harmonics.end(), harmonics + HARMONICS * pair_start[b]);
            if (!COUPLINGS) continue;
            std::copy(frame.radial.begin(), frame.radial.end(), radial + EDGE_RADIAL * pair_start[b]);
            std::copy(frame.cutoff.begin(), frame.cutoff.end(), cutoff + pair_start[b]);
        }
    }
};

}  // namespace equibayes
