// What update.h declares; equations: see sampling/sghmc.py, mass.py and basis.py.
#include "update.h"

#include <algorithm>
#include <cmath>

#include "memory.h"
#include "noise.h"
#include "vector.h"

namespace equibayes {

constexpr long GROUP = 4 * WIDTH;  // parameters whose noise is drawn at once

// for the parameters from `first` to `end`: f(parameter, place, length) of every range that lies together
template <class F>
static void ranges(const Stretch& s, long first, long end, F&& f) {
    const Range* range = std::upper_bound(s.range, s.range + s.ranges, first,
                                          [](long p, const Range& each) { return p < each.flat; }) - 1;
    for (; range != s.range + s.ranges && range->flat < end; ++range) {
        const long from = std::max<long>(first, range->flat), to = std::min<long>(end, range->flat + range->length);
        f(from, range->place + from - range->flat, to - from);
    }
}

// the forward weights of θ [P], from `first` to `end`
static void place_weights(const Stretch& s, const float* position, long first, long end, float* weights) {
    ranges(s, first, end, [&](long p, long place, long length) {
        for (long i = 0; i < length; ++i) weights[place + i] = position[p + i] * s.scale[p + i];
    });
}

// the gradient by θ from `first` to `end`, its parts added in their order
static void collect_gradient(const Stretch& s, const Chain& chain, long first, long end, float* out) {
    const float* source = gradient(chain, 0);
    ranges(s, first, end, [&](long p, long place, long length) {
        float* to = out + p - first;
        memcpy(to, source + place, sizeof(float) * length);
        for (int part = 1; part < parts(chain); ++part) {
            const float* more = gradient(chain, part) + place;
            for (long i = 0; i < length; ++i) to[i] += more[i];
        }
        for (long i = 0; i < length; ++i) to[i] *= s.scale[p + i];
    });
}

static Basis basis_of(const Stretch& s, int64_t k) {
    const int64_t start = k * s.basis_size;
    return {s.factors + start, s.basis + start, s.basis_back + start};
}

// the first n of WIDTH numbers
INLINE vec get(const float* from, long n) { return n == WIDTH ? load(from) : load(from, n); }
INLINE void put(float* to, vec x, long n) { n == WIDTH ? store(to, x) : store(to, x, n); }

// f(p, n): n of WIDTH parameters from p on
template <class F>
INLINE void each(long count, F&& f) {
    for (long p = 0; p + WIDTH <= count; p += WIDTH) f(p, (long)WIDTH);
    if (count % WIDTH) f(count / WIDTH * WIDTH, count % WIDTH);
}

// One step of one piece; pointers to numbers of the state begin with the piece.
struct Update {
    const Stretch& s;
    const Plan& plan;
    const Piece& piece;
    const int64_t k, start = k * s.size + piece.first;
    float *position = s.position + start, *momentum = s.momentum + start, *mass = s.mass + start;

    double add_prior(float* g) const;
    const float* draw(uint32_t step) const;
    void kick(float* g, const float* noise) const;
    void scale_momentum(bool up) const;
    void turn(const MassMatrix& matrix, const Basis& basis) const;
};

// adds the gradient of the prior; returns its energy
double Update::add_prior(float* g) const {
    if (s.flat_prior) return 0;
    const float* center = s.center ? s.center + (s.center_per_chain ? start : piece.first) : nullptr;
    const float* stiffness = s.stiffness + piece.first;
    vec twice = zero();
    each(piece.count, [&](long p, long n) {
        vec away = get(position + p, n), pulled = away;
        if (center) {
            away -= get(center + p, n);
            pulled = away * get(stiffness + p, n);
        }
        put(g + p, get(g + p, n) + plan.prior_weight * pulled, n);
        twice += away * pulled;
    });
    return 0.5 * hsum(twice);
}

// the noise of the piece, or null where there is none
const float* Update::draw(uint32_t step) const {
    static thread_local Buffer<float> buffer;
    if (plan.deviation == 0) return nullptr;
    // groups begin at multiples of GROUP among all parameters, the piece anywhere
    const long first = piece.first / GROUP * GROUP, lead = piece.first - first;
    float* noise = buffer.size(lead + piece.count + GROUP);
    for (long p = 0; p < lead + piece.count; p += GROUP) {
        vec z[4];
        normals(s.seed, uint32_t((first + p) / 4), step, uint32_t(s.identities[k]), 0, z);
        for (int i = 0; i < 4; ++i) store(noise + p + i * WIDTH, z[i]);
    }
    return noise + lead;
}

// mass and momentum; the gradient g is replaced by the move of θ
void Update::kick(float* g, const float* noise) const {
    const float keep = 1 - s.friction, beta = s.beta, rest = 1 - s.beta, epsilon = s.epsilon, per_frame = 1 / s.data_size;
    const float by_correction = 1 / plan.correction;
    float *average = s.average + start, *maximum = s.maximum + start;
    each(piece.count, [&](long p, long n) {
        const vec own = get(g + p, n), random = noise ? plan.deviation * get(noise + p, n) : zero();
        vec r = get(momentum + p, n), m = get(mass + p, n), by_root;  // M^(−1/2)
        if (plan.adapt > 0) {
            const vec scaled = own * per_frame;
            const vec a = get(average + p, n) * beta + scaled * scaled * rest, before = get(maximum + p, n);
            const vec most = a > before ? a : before;
            const vec grown = sqrt(most * by_correction) + epsilon;
            put(average + p, a, n);
            put(maximum + p, most, n);
            put(mass + p, grown, n);
            by_root = 1.0f / sqrt(grown);
            if (plan.adapt < 2) r = r * (sqrt(m) * by_root);
        } else {
            by_root = 1.0f / sqrt(m);
        }
        const vec h = plan.dt * by_root;
        vec move;
        if (s.paper) {
            r = r * keep - h * own + random;
            move = h * r;
        } else {
            r = r - h * own;
            const vec half = 0.5f * h, first = half * r;
            r = r * keep + random;
            move = first + half * r;
        }
        put(momentum + p, r, n);
        put(g + p, move, n);
    });
}

// r ← √m r, or back
void Update::scale_momentum(bool up) const {
    each(piece.count, [&](long p, long n) {
        const vec r = get(momentum + p, n), root = sqrt(get(mass + p, n));
        put(momentum + p, up ? r * root : r / root, n);
    });
}

// A new basis.  w = Q √m r stays, except before the first mass, which is a placeholder.
void Update::turn(const MassMatrix& matrix, const Basis& basis) const {
    const bool first = plan.adapt == 2;
    if (!first) {
        scale_momentum(true);
        from_basis(matrix, basis, momentum);
    }
    refresh(matrix, basis, s.shrinkage, s.epsilon);
    if (!first) {
        into_basis(matrix, basis, momentum);
        scale_momentum(false);
    }
}

void begin(const Stretch& s, int64_t k, float* weights) {
    place_weights(s, s.position + k * s.size, 0, s.size, weights);
    for (int64_t m = 0; m < s.matrices; ++m) turn_back(s.matrix[m], basis_of(s, k));
}

double update(const Stretch& s, int64_t i, int64_t k, const Piece& piece, const Chain& chain, float* weights) {
    static thread_local Buffer<float> buffer;
    float* g = buffer.size(piece.count);
    const Update own{s, s.plans[i * s.chains + k], piece, k};
    const MassMatrix* matrix = piece.matrix < 0 ? nullptr : s.matrix + piece.matrix;
    const Basis basis = basis_of(s, k);
    const long end = piece.first + piece.count;
    collect_gradient(s, chain, piece.first, end, g);
    const bool last = i == s.steps - 1;  // its potential and gradient are looked at
    const double prior = last || own.plan.prior_weight != 0 ? own.add_prior(g) : 0;
    if (last) memcpy(s.gradient + own.start, g, sizeof(float) * piece.count);
    if (matrix) {
        if (own.plan.basis > 0) gather(*matrix, basis, g, float(1 / s.data_size), s.factor_decay);
        if (own.plan.basis > 1) own.turn(*matrix, basis);
        into_basis(*matrix, basis, g);
    }
    own.kick(g, own.draw(uint32_t(s.first_step + i)));
    if (matrix) from_basis(*matrix, basis, g);
    each(piece.count, [&](long p, long n) { put(own.position + p, get(own.position + p, n) + get(g + p, n), n); });
    if (s.moving)
        for (long p = 0; p < piece.count; ++p) {
            float& mean = s.moving[own.start + p];
            mean += float(1 - s.decay) * (own.position[p] - mean);
        }
    place_weights(s, own.position - piece.first, piece.first, end, weights);
    return prior;
}

}  // namespace equibayes
