// û of a minibatch and its gradient, for one chain: what potential.h declares.
#include <array>
#include <map>
#include <mutex>

#include "covariance.h"
#include "frames.h"
#include "readout.h"
#include "threads.h"

namespace equibayes {

const long WEIGHTS = WEIGHT_COUNT;

float* coupling_table(long size) {
    static thread_local Buffer<float> table;
    return table.size(size);
}

namespace {

// The frames of a data set, shared by the chains that use it.
std::shared_ptr<const std::vector<Frame>> frames_of(const Data& data) {
    static std::mutex mutex;
    using Key = std::array<const void*, 7>;
    static std::map<Key, std::weak_ptr<const std::vector<Frame>>> known;
    const Key key{data.vector, data.energy, data.forces, data.stress, data.weight, data.noise, data.rigid};
    std::lock_guard<std::mutex> lock(mutex);
    auto found = known[key].lock();
    if (!found) {
        auto made = std::make_shared<std::vector<Frame>>();
        for (long f = 0; f < data.frames; ++f) made->emplace_back(data, f);
        known[key] = found = made;
    }
    return found;
}

// One part of a minibatch.
struct Part {
    int first, count;  // its frames in the minibatch
    Buffer<float> gradient;
};

// What the evaluation of a part needs.
struct Work {
    std::vector<const Frame*> frames;
    Minibatch minibatch;
    Passes<float> passes;
    Readout readout;
    Deviation heads[HEAD_COUNT];
    ForceNoise<COUPLINGS> noise;
    std::vector<double> errors, sigma;  // of one frame: [n, 3], [n] with the noise of its labels
    Buffer<float> mask, forces, direction, strain, deviations, deviation_tilde, energy_bar;
    Buffer<double> energies;
};
Pool<Work> pool;

}  // namespace

struct Chain {
    std::shared_ptr<const std::vector<Frame>> frames;
    long padded_atoms;
    bool squares;
    Buffer<float> weights, back;
    std::vector<Part> parts;

    Chain(const Data& data, int batch, bool squares, int count)
        : frames(frames_of(data)), padded_atoms(data.atoms), squares(squares), parts(count) {
        weights.zeros(WEIGHT_COUNT), back.zeros(BACK_COUNT);
        for (int p = 0; p < count; ++p) {
            parts[p].first = (long)batch * p / count;
            parts[p].count = (long)batch * (p + 1) / count - parts[p].first;
        }
    }
};

namespace {

// mask [B·n, CHANNELS] of the data's atoms → rows of the graph
const float* arranged(Work& work, const Part& part, const float* mask, long padded_atoms) {
    if (!mask) return nullptr;
    float* out = work.mask.zeros(work.minibatch.graph.atoms * FEATURES);
    for (int b = 0; b < part.count; ++b) {
        const Frame& frame = *work.frames[b];
        for (int a = 0; a < frame.atoms; ++a) {
            const long atom = (part.first + b) * padded_atoms + frame.order[a];
            memcpy(out + work.minibatch.row(b, frame, a) * FEATURES, mask + atom * CHANNELS, 4 * CHANNELS);
        }
    }
    return out;
}

// Σ exp(values) over the atoms of a frame, as total · exp(top).
struct Sum {
    double top = -1e300, total = 0;
};
Sum sum_of_exponentials(const Work& work, int b, const float* values) {
    const Frame& frame = *work.frames[b];
    Sum sum;
    for (int a = 0; a < frame.atoms; ++a)
        sum.top = std::max(sum.top, (double)values[work.minibatch.row(b, frame, a)]);
    for (int a = 0; a < frame.atoms; ++a)
        sum.total += std::exp(values[work.minibatch.row(b, frame, a)] - sum.top);
    return sum;
}

// ln √(σ² + variance) of labels with a noise of their own (bayes/label_noise.py), and its derivative by ln σ.
struct Widened {
    double log_sigma, slope = 1;
    Widened(double own, double variance) : log_sigma(own) {
        if (variance == 0) return;
        const double squared = std::exp(2 * own);
        log_sigma = 0.5 * std::log(squared + variance), slope = squared / (squared + variance);
    }
};

// Σ σ_F² over the atoms of a frame, with the noise of their labels, (eV/Å)².
double squared_sigma_forces(const Work& work, int b) {
    double sum = work.frames[b]->atoms * work.frames[b]->noise * work.frames[b]->noise;
    for (int a = 0; a < work.frames[b]->atoms; ++a) sum += std::exp(2.0 * work.deviations[work.minibatch.row(b, *work.frames[b], a)]);
    return sum;
}

// L = −Σ scale ln p, without the prior; scale: times the weight of the frame.
// With z = (label − mean)/σ of an energy or force component and s = ln σ (of forces with a covariance see covariance.h):
//     ∂L/∂mean = −scale z/σ,    ∂L/∂s = scale (1 − z²)
// squares: no deviations, −½ Σ (ΔF)² − 3/2 n (ΔE/n)² of n atoms (up to a constant) in place of ln p.
// balance: where it is not 0, 1/σ² of the energy in ∂L/∂mean is at least balance · 3 / Σ σ_F².
void likelihood(Work& work, bool squares, double scale_of_all, double balance, Seen& seen) {
    constexpr double HALF_LOG_2PI = 0.91893853320467274178;
    const long N = work.minibatch.graph.atoms;
    float *direction = work.direction.size(3 * N), *energy_bar = work.energy_bar.size(N);
    float *force_tilde = work.deviation_tilde.size(HEAD_COUNT * N), *energy_tilde = force_tilde + N;
    const float *log_sigma_forces = work.deviations, *log_sigma_energy = log_sigma_forces + N;
    seen = {};
    for (int b = 0; b < (int)work.frames.size(); ++b) {
        const Frame& frame = *work.frames[b];
        const int count = frame.atoms;
        const double scale = scale_of_all * frame.weight, before = seen.log_p;
        double energy = 0;
        for (int a = 0; a < count; ++a) energy += work.energies[work.minibatch.row(b, frame, a)];
        const auto [top, total] = sum_of_exponentials(work, b, log_sigma_energy);
        const bool known = frame.energy == frame.energy;  // NaN: there is no label
        const double variance = squares ? 0 : frame.noise * frame.noise;
        const Widened of_energy(top + std::log(total) - std::log(count), count * variance);
        const double log_sigma = squares ? 0.5 * std::log(count / 3.0) : of_energy.log_sigma;
        const double inverse = std::exp(-log_sigma), z = known ? (frame.energy - energy) * inverse : 0;
        if (known) seen.log_p += squares ? -0.5 * z * z : -0.5 * z * z - log_sigma - HALF_LOG_2PI;
        const double share = squares || !known ? 0 : scale * of_energy.slope * (1 - z * z) / total;
        const double least = balance && !squares ? balance * 3 / squared_sigma_forces(work, b) : 0;
        const double pull = z * std::max(inverse, least / inverse);
        double of_forces = 0;
        work.errors.resize(3 * count), work.sigma.resize(count);
        for (int a = 0; a < count; ++a) {
            const int n = work.minibatch.row(b, frame, a);
            energy_bar[n] = (float)(-scale * pull);
            energy_tilde[n] = squares ? 0.0f : (float)(share * std::exp(log_sigma_energy[n] - top));
            const Widened widened(squares ? 0 : log_sigma_forces[n], variance);
            const double s = widened.log_sigma, by_sigma = std::exp(-s);
            work.sigma[a] = 1 / by_sigma;
            double sum = 0;
            for (int i = 0; i < 3; ++i) {
                const double error = (double)frame.forces[3 * a + i] - work.forces[3 * n + i], y = error * by_sigma;
                sum += y * y;
                work.errors[3 * a + i] = error;
                seen.wrong += std::fabs(error) / 3;
                direction[3 * n + i] = (float)(scale * y * by_sigma);
            }
            force_tilde[n] = squares ? 0.0f : (float)(scale * widened.slope * (3 - sum));
            of_forces += -0.5 * sum - 3 * s - 3 * HALF_LOG_2PI;
            seen.sigma += std::exp((double)log_sigma_forces[n]);
        }
        if (COUPLINGS && !squares) {
            of_forces = work.noise.likelihood(work.minibatch, b, frame, work.errors.data(), work.sigma, scale, direction, force_tilde);
            for (int a = 0; a < count && variance; ++a) {
                const int n = work.minibatch.row(b, frame, a);
                force_tilde[n] *= Widened(log_sigma_forces[n], variance).slope;
            }
        }
        seen.log_p += of_forces;
        seen.atoms += count;
        seen.weighted += frame.weight * (seen.log_p - before);
    }
}

// The stress S = ∂E/∂strain / V of the frames that have a label adds, with s = ln σ_S and the Frobenius norm,
//     ∂L/∂S = −scale (label − S)/σ²,    ∂L/∂s = scale (6 − |label − S|²/σ²)
// squares: no deviations, −½ (V²/3n) |label − S|² in place of ln p.
// balance: where it is not 0, 1/σ² in ∂L/∂S is at least balance · V² / 3 Σ σ_F².
void stress_likelihood(Work& work, bool squares, double scale_of_all, double balance, Seen& seen) {
    constexpr double THREE_LOG_2PI = 5.51363119922803604468;
    const long N = work.minibatch.graph.atoms, B = work.frames.size();
    float *strain = work.strain.zeros(9 * B), *tilde = work.deviation_tilde + 2 * N;
    const float* log_sigma_virial = work.deviations + 2 * N;
    std::fill(tilde, tilde + N, 0.0f);
    for (int b = 0; b < B; ++b) {
        const Frame& frame = *work.frames[b];
        if (!frame.has_stress) continue;
        const double scale = scale_of_all * frame.weight, volume = frame.volume;
        const auto [top, total] = sum_of_exponentials(work, b, log_sigma_virial);
        const double variance = frame.atoms * frame.noise * frame.noise / (volume * volume);
        const Widened widened(top + std::log(total) - std::log(volume), variance);
        const double log_sigma = widened.log_sigma;
        const double precision = squares ? volume * volume / (3 * frame.atoms) : std::exp(-2 * log_sigma);
        const double least = balance && !squares ? balance * volume * volume / (3 * squared_sigma_forces(work, b)) : 0;
        const double pull = std::max(precision, least);
        double virial[9], norm = 0;
        work.minibatch.virial(b, work.passes.pull, virial);
        for (int i = 0; i < 9; ++i) {
            const double error = frame.stress[i] - virial[i] / volume;
            norm += error * error;
            strain[9 * b + i] = (float)(-scale * pull * error / volume);
        }
        const double log_p = -0.5 * precision * norm - (squares ? 0 : 6 * log_sigma + THREE_LOG_2PI);
        seen.log_p += log_p, seen.weighted += frame.weight * log_p;
        if (squares) continue;
        for (int a = 0; a < frame.atoms; ++a) {
            const int n = work.minibatch.row(b, frame, a);
            tilde[n] = (float)(scale * widened.slope * (6 - precision * norm) * std::exp(log_sigma_virial[n] - top) / total);
        }
    }
}

}  // namespace

Chain* make_chain(const Data& data, int batch, bool squares) {
    const long at_once = std::max(1L, 32 / std::max(1L, (long)data.atoms));  // frames of a part
    const int count = std::max(1L, (batch + at_once - 1) / at_once);
    return new Chain(data, batch, squares, std::min(batch, count));
}
void free_chain(Chain* chain) { delete chain; }
int parts(const Chain& chain) { return chain.parts.size(); }
float* weights(Chain& chain) { return chain.weights; }
void prepare(Chain& chain) { transpose_weights(chain.weights, chain.back); }
const float* gradient(const Chain& chain, int part) { return chain.parts[part].gradient; }

void evaluate(Chain& chain, int number, const int64_t* indices, double scale, double balance, const float* mask,
              Seen& seen) {
    Part& part = chain.parts[number];
    Pool<Work>::Borrowed borrowed(pool);
    Work& work = *borrowed;
    Passes<float>& passes = work.passes;
    work.frames.resize(part.count);
    for (int b = 0; b < part.count; ++b) work.frames[b] = &(*chain.frames)[indices[part.first + b]];
    work.minibatch.gather(work.frames);
    const Graph& graph = work.minibatch.graph;
    const long N = graph.atoms;
    passes.graph = &graph;
    passes.unit = work.minibatch.unit, passes.harmonics = work.minibatch.harmonics;
    passes.weights = chain.weights, passes.back = chain.back;
    work.readout.mask = arranged(work, part, mask, chain.padded_atoms);

    passes.begin(4);
    passes.value();
    const float* features = work.readout.seen(passes.features[0], N);
    work.deviations.size(HEAD_COUNT * N);
    for (int head = 0; head < HEAD_COUNT; ++head)
        work.heads[head].forward(HEADS[head], chain.weights, features, N, work.deviations + head * N);
    work.energies.size(N);
    work.readout.energies(graph, features, chain.weights, work.energies);
    work.readout.adjoint(graph, chain.weights, passes.features[1]);
    passes.adjoint();
    passes.forces(work.forces.size(3 * N));

    const bool covariance = COUPLINGS && !chain.squares;
    if (covariance) work.noise.forward(work.minibatch, chain.weights, features);
    likelihood(work, chain.squares, scale, balance, seen);
    if (HEAD_COUNT > 2) stress_likelihood(work, chain.squares, scale, balance, seen);

    float* const gradient = part.gradient.size(WEIGHT_COUNT);
    for (const Range& range : SUMMED) memset(gradient + range.from, 0, 4 * (range.to - range.from));
    passes.tangent(work.direction, work.minibatch.structure, work.strain);
    float* const tilde = passes.features[3];
    work.readout.tilde(graph, features, passes.features[2], work.energy_bar, chain.weights, gradient, tilde);
    for (int head = 0; head < HEAD_COUNT; ++head)
        work.heads[head].backward(HEADS[head], chain.weights, chain.back, features, N,
                                  work.deviation_tilde + head * N, gradient, tilde);
    if (covariance) work.noise.backward(work.minibatch, chain.weights, chain.back, features, gradient, tilde);
    work.readout.back(tilde, N);
    passes.adjoint_tangent(gradient);
}

// One evaluation of each of K chains with its own weights [K, WEIGHTS]; gradient as these, seen [K].
EXPORT void potential_run(const Data* data, int64_t chains, int64_t batch, int squares, const int64_t* frames,
                          const float* forward, const float* mask, double scale, double balance, float* out,
                          Seen* seen, int64_t threads) {
    set_threads(int(threads));
    parallel(chains, [&](long k) {
        Chain* chain = make_chain(*data, int(batch), squares != 0);
        memcpy(weights(*chain), forward + k * WEIGHTS, 4 * WEIGHTS);
        prepare(*chain);
        seen[k] = {};
        for (int part = 0; part < parts(*chain); ++part) {
            Seen own;
            const float* masks = mask ? mask + k * batch * data->atoms * CHANNELS : nullptr;
            evaluate(*chain, part, frames + k * batch, scale, balance, masks, own);
            seen[k].add(own);
            for (long i = 0; i < WEIGHTS; ++i) out[k * WEIGHTS + i] += gradient(*chain, part)[i];
        }
        free_chain(chain);
    });
}

}  // namespace equibayes
