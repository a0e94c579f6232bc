// Whole steps of K chains: minibatch, gradient, noise and the update of sampling/sghmc.py, a stretch of them in one
// call.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
#include <vector>

#include "noise.h"
#include "potential.h"
#include "threads.h"
#include "vector.h"

namespace equibayes {

constexpr long BLOCK = 8192;   // parameters that one thread updates
constexpr long CHUNK = 2048;   // parameters whose numbers stay in the cache meanwhile; a multiple of 4·WIDTH

// A parameter array: `length` parameters from `flat` on lie at `place` in the forward weights.
struct Range {
    int64_t flat, place, length;
};

// What changes from step to step, for each chain; the columns of the table that steps.py makes.
struct Plan {
    float dt, deviation, adapt, correction, prior_weight;  // adapt: 0 no, 1 yes, 2 for the first time
};

// The same as the structure in steps.py.
struct Stretch {
    int64_t steps, chains, batch, size, ranges, first_step, threads;
    // of the state, [K, P]; moving: the moving average of the weights, or null
    float *position, *momentum, *average, *maximum, *mass, *moving, *gradient;
    const float *scale, *center, *stiffness;  // [P]; [P] or [K, P], or null; [P], or null
    const Range* range;
    const int64_t* frames;      // [n, K, B]
    const Plan* plans;          // [n, K]
    const int64_t* identities;  // [K]
    const std::atomic<int>* stop;
    double* seen;  // [K, 6]: the sums of Seen, and −ln p(θ) of the prior without its constant
    uint64_t seed, dropout_seed, dropped;  // dropped: words below it drop a feature
    int64_t dropout_stream, features;      // features of all atoms of a minibatch; 0: no dropout
    double friction, beta, epsilon, data_size, decay;
    float kept;  // factor of a feature that is not dropped
    int32_t paper, flat_prior, center_per_chain;
};

static void draw_mask(const Stretch& s, uint32_t step, uint32_t chain, float* mask) {
    uint32_t words[4 * WIDTH];
    for (int64_t i = 0; i < s.features; i += 4 * WIDTH) {
        store_words(philox(s.dropout_seed, uint32_t(i / 4), step, chain, uint32_t(s.dropout_stream)), words);
        const int64_t count = std::min<int64_t>(4 * WIDTH, s.features - i);
        for (int64_t j = 0; j < count; ++j) mask[i + j] = words[j] >= s.dropped ? s.kept : 0.0f;
    }
}

// for the parameters from `first` to `end`: f(parameter, place, length) of every piece that lies together
template <class F>
static void pieces(const Stretch& s, long first, long end, F&& f) {
    const Range* range = std::upper_bound(s.range, s.range + s.ranges, first,
                                          [](long p, const Range& each) { return p < each.flat; }) - 1;
    for (; range != s.range + s.ranges && range->flat < end; ++range) {
        const long from = std::max<long>(first, range->flat), to = std::min<long>(end, range->flat + range->length);
        f(from, range->place + from - range->flat, to - from);
    }
}

// the forward weights of θ from `first` to `end`
static void place_weights(const Stretch& s, const float* position, long first, long end, float* weights) {
    pieces(s, first, end, [&](long p, long place, long length) {
        for (long i = 0; i < length; ++i) weights[place + i] = position[p + i] * s.scale[p + i];
    });
}

// the gradient by θ from `first` to `end`, its parts added in their order
static void collect_gradient(const Stretch& s, const Chain& chain, int count, long first, long end, float* out) {
    const float* source = gradient(chain, 0);
    pieces(s, first, end, [&](long p, long place, long length) {
        float* to = out + p - first;
        memcpy(to, source + place, sizeof(float) * length);
        for (int part = 1; part < count; ++part) {
            const float* more = gradient(chain, part) + place;
            for (long i = 0; i < length; ++i) to[i] += more[i];
        }
        for (long i = 0; i < length; ++i) to[i] *= s.scale[p + i];
    });
}

// Numbers of one chain that a step reads and writes, from one parameter on.
struct Row {
    float *position, *momentum, *average, *maximum, *mass;
    const float *center, *stiffness;
};

// Numbers that are the same for all parameters.
struct Constants {
    float keep, beta, rest, epsilon, per_frame, by_correction;  // 1 − α, β, 1 − β, ε, 1/N, 1/(1 − βᵗ)
    bool paper, flat_prior;
};

// One step of WIDTH parameters, or of `n` where not WHOLE; returns twice the energy of the prior, lane by lane.
// Equations: see sghmc.py and mass.py.
template <bool WHOLE>
INLINE vec update(const Row& row, long p, long n, vec& g, vec noise, const Plan& plan, const Constants& c) {
    auto get = [n, p](const float* from) { return WHOLE ? load(from + p) : load(from + p, n); };
    auto put = [n, p](float* to, vec x) { WHOLE ? store(to + p, x) : store(to + p, x, n); };
    vec theta = get(row.position), r = get(row.momentum), m = get(row.mass);
    vec away = theta, pulled = theta;
    if (c.flat_prior) {
        away = pulled = zero();
    } else if (row.center) {
        away = theta - get(row.center);
        pulled = away * get(row.stiffness);
    }
    g += plan.prior_weight * pulled;
    vec by_root;  // M^(−1/2)
    if (plan.adapt > 0) {
        const vec scaled = g * c.per_frame;
        const vec a = get(row.average) * c.beta + scaled * scaled * c.rest, before = get(row.maximum);
        const vec most = a > before ? a : before;
        const vec grown = sqrt(most * c.by_correction) + c.epsilon;
        put(row.average, a);
        put(row.maximum, most);
        put(row.mass, grown);
        by_root = 1.0f / sqrt(grown);
        if (plan.adapt < 2) r = r * (sqrt(m) * by_root);
    } else {
        by_root = 1.0f / sqrt(m);
    }
    vec h = plan.dt * by_root;
    if (c.paper) {
        r = r * c.keep - h * g + plan.deviation * noise;
        theta += h * r;
    } else {
        r = r - h * g;
        h *= 0.5f;
        theta += h * r;
        r = r * c.keep + plan.deviation * noise;
        theta += h * r;
    }
    put(row.momentum, r);
    put(row.position, theta);
    return away * pulled;
}

// One step of `count` parameters from `first` on, with their gradient g, to which that of the prior is added where
// `last`; returns the energy of the prior before it, also where `last`.
static double update_chunk(const Stretch& s, uint32_t chain, const Row& row, long first, long count, float* g,
                           uint32_t step, const Plan& plan, bool last) {
    const Constants c{float(1 - s.friction), float(s.beta), float(1 - s.beta), float(s.epsilon),
                      float(1 / s.data_size), 1 / plan.correction, s.paper != 0, s.flat_prior != 0};
    double prior = 0;
    auto one = [&](auto whole, long q, long n, vec noise) {
        constexpr bool WHOLE = decltype(whole)::value;
        vec own = WHOLE ? load(g + q) : load(g + q, n);
        const vec energy = update<WHOLE>(row, q, n, own, noise, plan, c);
        if (!last) return;
        prior += 0.5 * hsum(energy);
        WHOLE ? store(g + q, own) : store(g + q, own, n);
    };
    for (long p = 0; p < count; p += 4 * WIDTH) {
        vec noise[4] = {};
        if (plan.deviation != 0) normals(s.seed, uint32_t((first + p) / 4), step, chain, 0, noise);
        if (p + 4 * WIDTH <= count)
            for (int i = 0; i < 4; ++i) one(std::true_type{}, p + i * WIDTH, WIDTH, noise[i]);
        else
            for (int i = 0; p + i * WIDTH < count; ++i)
                one(std::false_type{}, p + i * WIDTH, std::min<long>(WIDTH, count - p - i * WIDTH), noise[i]);
    }
    return prior;
}

// One step of a block of the parameters of chain k; returns the energy of the prior before it, where it is the last.
static double update_block(const Stretch& s, int64_t k, const Chain& chain, int count, float* weights, long first,
                           uint32_t step, const Plan& plan, bool last) {
    double prior = 0;
    const long limit = std::min<long>(first + BLOCK, s.size);
    for (; first < limit; first += CHUNK) {
        const long end = std::min<long>(first + CHUNK, limit), start = k * s.size + first;
        const long centre = s.center_per_chain ? start : first;
        const Row row{s.position + start, s.momentum + start, s.average + start, s.maximum + start, s.mass + start,
                      s.center ? s.center + centre : nullptr, s.center ? s.stiffness + first : nullptr};
        alignas(64) float g[CHUNK];
        collect_gradient(s, chain, count, first, end, g);
        prior += update_chunk(s, uint32_t(s.identities[k]), row, first, end - first, g, step, plan, last);
        if (last) memcpy(s.gradient + start, g, sizeof(float) * (end - first));
        if (s.moving)
            for (long p = 0; p < end - first; ++p) {
                float& mean = s.moving[start + p];
                mean += float(1 - s.decay) * (row.position[p] - mean);
            }
        place_weights(s, row.position - first, first, end, weights);
    }
    return prior;
}

// all steps of chain k
static void run_chain(const Stretch& s, int64_t k, Chain& chain) {
    const int count = parts(chain);
    const int64_t blocks = (s.size + BLOCK - 1) / BLOCK;
    std::vector<Seen> seen(count);
    std::vector<double> priors(blocks);
    std::vector<float> mask(s.features);
    float* forward = weights(chain);
    place_weights(s, s.position + k * s.size, 0, s.size, forward);
    for (int64_t i = 0; i < s.steps; ++i) {
        if (s.stop->load(std::memory_order_relaxed)) return;
        const uint32_t step = uint32_t(s.first_step + i);
        const int64_t* frames = s.frames + (i * s.chains + k) * s.batch;
        const Plan& plan = s.plans[i * s.chains + k];
        if (s.features) draw_mask(s, step, uint32_t(s.identities[k]), mask.data());
        prepare(chain);
        parallel(count, [&](long part) {
            evaluate(chain, int(part), frames, s.data_size / double(s.batch), s.features ? mask.data() : nullptr, seen[part]);
        });
        const bool last = i + 1 == s.steps;
        parallel_if_long(blocks, [&](long b) {
            priors[b] = update_block(s, k, chain, count, forward, b * BLOCK, step, plan, last);
        });
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
