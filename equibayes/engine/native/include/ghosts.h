// Neighbours whose features are computed elsewhere: rows behind those of the atoms, filled before they are read.
#pragma once
#include <vector>

#include "layer.h"
#include "memory.h"

namespace equibayes {

// Hands `floats` of each row that others need to them and gets those of the ghosts.
using Swap = void (*)(const float* sent, float* received, int64_t floats);

class Ghosts {
  public:
    Swap swap = nullptr;
    std::vector<int> sent, received;  // rows, in the order in which `swap` has them

    // of each block that a list of linears writes (or reads) the rows of the ghosts
    void fetch(const List<Linear>& list, bool written, float* base, long N) {
        long floats = 0;
        for (const Linear& l : list) floats += row(l, written);
        float* to = out.size(sent.size() * floats);
        for (int n : sent)
            for (const Linear& l : list) {
                const long own = row(l, written);
                memcpy(to, base + (written ? l.out : l.in) * N + n * own, 4 * own);
                to += own;
            }
        const float* from = in.size(received.size() * floats);
        swap(out, in, floats);
        for (int n : received)
            for (const Linear& l : list) {
                const long own = row(l, written);
                memcpy(base + (written ? l.out : l.in) * N + n * own, from, 4 * own);
                from += own;
            }
    }

  private:
    Buffer<float> out, in;

    static long row(const Linear& l, bool written) { return (long)l.dim * (written ? l.columns : l.inner); }
};

}  // namespace equibayes
