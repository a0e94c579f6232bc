// Whole steps of K chains: minibatch, gradient, noise and the update of sampling/sghmc.py, a stretch of them in one
// call.
#include <algorithm>
#include <vector>

#include "noise.h"
#include "potential.h"
#include "threads.h"
#include "update.h"

namespace equibayes {

static void draw_mask(const Stretch& s, uint32_t step, uint32_t chain, float* mask) {
    uint32_t words[4 * WIDTH];
    for (int64_t i = 0; i < s.features; i += 4 * WIDTH) {
        store_words(philox(s.dropout_seed, uint32_t(i / 4), step, chain, uint32_t(s.dropout_stream)), words);
        const int64_t count = std::min<int64_t>(4 * WIDTH, s.features - i);
        for (int64_t j = 0; j < count; ++j) mask[i + j] = words[j] >= s.dropped ? s.kept : 0.0f;
    }
}

// all steps of chain k
static void run_chain(const Stretch& s, int64_t k, Chain& chain) {
    const int count = parts(chain);
    std::vector<Seen> seen(count);
    std::vector<double> priors(s.pieces);
    std::vector<float> mask(s.features);
    float* forward = weights(chain);
    begin(s, k, forward);
    for (int64_t i = 0; i < s.steps; ++i) {
        if (s.stop->load(std::memory_order_relaxed)) return;
        const uint32_t step = uint32_t(s.first_step + i);
        const int64_t* frames = s.frames + (i * s.chains + k) * s.batch;
        if (s.features) draw_mask(s, step, uint32_t(s.identities[k]), mask.data());
        prepare(chain);
        parallel(count, [&](long part) {
            evaluate(chain, int(part), frames, s.data_size / double(s.batch), s.plans[i * s.chains + k].balance,
                     s.features ? mask.data() : nullptr, seen[part]);
        });
        parallel_if_long(s.pieces, [&](long p) { priors[p] = update(s, i, k, s.piece[p], chain, forward); });
    }
    Seen total{};
    for (const Seen& each : seen) total.add(each);
    double* out = s.seen + 6 * k;
    memcpy(out, &total, sizeof total);
    out[5] = 0;
    for (double each : priors) out[5] += each;
}

EXPORT void* steps_new(const Data* data, int chains, int batch, int squares) {
    auto* all = new std::vector<Chain*>(chains);
    for (Chain*& chain : *all) chain = make_chain(*data, batch, squares != 0);
    return all;
}

EXPORT void steps_free(void* chains) {
    auto* all = (std::vector<Chain*>*)chains;
    for (Chain* chain : *all) free_chain(chain);
    delete all;
}

EXPORT void steps_run(void* chains, const Stretch* stretch) {
    set_threads(int(stretch->threads));
    auto& all = *(std::vector<Chain*>*)chains;
    parallel(stretch->chains, [&](long k) { run_chain(*stretch, k, *all[k]); });
}

// words [size] and normals [size] of a step, for tests; size must be a multiple of 4·WIDTH
EXPORT void draw_noise(uint64_t seed, uint32_t step, uint32_t chain, uint32_t stream, long size, uint32_t* words, float* out) {
    for (long i = 0; i < size; i += 4 * WIDTH) {
        vec z[4];
        store_words(philox(seed, uint32_t(i / 4), step, chain, stream), words + i);
        normals(seed, uint32_t(i / 4), step, chain, stream, z);
        for (int k = 0; k < 4; ++k) store(out + i + k * WIDTH, z[k]);
    }
}

}  // namespace equibayes
