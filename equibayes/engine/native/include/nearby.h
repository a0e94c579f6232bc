// The pairs of one block of atoms with their radial weights, which are computed when the block needs them.
//
// The radial weights of all pairs of many atoms do not fit into the cache, and to read them takes longer than to compute
// them again.  A pair between two blocks is computed by both.  Results are the same to the last bit.
#pragma once
#include "graph.h"
#include "radial.h"

namespace equibayes {

class Nearby {
  public:
    // copies of what belongs to the pairs of a block
    void gather(const Graph& graph, long block, const BasisRows& all, const float* all_harmonics, bool slopes) {
        own = graph.near + graph.near_start[block];
        count = graph.near_start[block + 1] - graph.near_start[block];
        rows.value = basis.size(2 * count * BESSEL_ROW), rows.slope = rows.value + count * BESSEL_ROW;
        copy(all.value, BESSEL_ROW, rows.value);
        if (slopes) copy(all.slope, BESSEL_ROW, rows.slope);
        copy(all_harmonics, HARMONICS, harmonics.size(count * HARMONICS));
    }

    // R of a layer and, with slopes, R'
    void evaluate(const Layer& layer, const float* weights, const float* back, bool slopes) {
        radial.size(2 * count * layer.columns);
        for (long from = 0; from < count; from += PAIR_BLOCK) {
            Radial block(rows, weights, back, layer, count, from, from + PAIR_BLOCK < count ? from + PAIR_BLOCK : count);
            block.out = radial;
            slopes ? radial_hidden(block) : radial_values(block);
        }
    }

    // the sums of both directions of these pairs, [2, EDGE] each
    float* take_edges(const float* all) {
        copy(all, 2 * EDGE, edge.size(2 * count * EDGE));
        return edge;
    }
    // those of the directions that the slots from `first` to `end` wrote
    void give_edges(const Graph& graph, long first, long end, float* all) const {
        for (long slot = first; slot < end; ++slot) {
            const long there = 2 * (graph.codes[slot] / 2) + 1 - graph.codes[slot] % 2;
            const long here = 2 * (graph.near_codes[slot] / 2) + 1 - graph.near_codes[slot] % 2;
            memcpy(all + there * EDGE, edge + here * EDGE, 4 * EDGE);
        }
    }

    // for the convolution of these atoms
    void give_to(Convolution& given, const Graph& graph) const {
        given.harmonics = harmonics, given.radial = radial, given.codes = graph.near_codes, given.pairs = count;
    }

  private:
    const int* own = nullptr;  // the numbers of these pairs
    long count = 0;
    BasisRows rows;
    Buffer<float> basis, harmonics, radial, edge;

    void copy(const float* all, long row, float* to) const {
        for (long i = 0; i < count; ++i) memcpy(to + i * row, all + own[i] * row, 4 * row);
    }
};

inline Pool<Nearby> nearby_pool;

}  // namespace equibayes
