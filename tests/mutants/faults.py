"""Deliberate faults, each a plausible mistake that would change a result and raise no error; and the changes that
change nothing."""

from typing import NamedTuple

from tests.mutants.mutate import Mutant


class Fault(NamedTuple):
    """What is wrong, where, and the text before and after; `old` stands once in the file."""

    what: str
    path: str
    old: str
    new: str

    def mutant(self, source: str) -> Mutant:
        """The same as a change of the source text."""
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.path}: the text of the fault '{self.what}' stands there {source.count(self.old)} times"
            )
        start = len(source[: source.index(self.old)].encode())
        line = source[: source.index(self.old)].count("\n") + 1
        return Mutant(self.path, line, self.what, start, start + len(self.old.encode()), self.new)


SETTINGS, CHAINS, VERDICT = (f"equibayes/run/{name}.py" for name in ("settings", "chains", "verdict"))
SGHMC, SCHEDULE, MASS, NOISE = (f"equibayes/sampling/{name}.py" for name in ("sghmc", "schedule", "mass", "noise"))
SUM = "0.0) + sum_over_structures(forces.{}(-1)"
LIKELIHOOD, POTENTIAL = (f"equibayes/bayes/{name}.py" for name in ("likelihood", "potential"))
TABLES, DENSITY, METRICS = (f"equibayes/evaluation/{name}.py" for name in ("tables", "density", "metrics"))
RESCALE, CALIBRATE, CALIBRATION = (f"equibayes/posterior/{name}.py" for name in ("rescale", "calibrate", "calibration"))
PREDICT, CONFORMAL, MODEL = (
    f"equibayes/{name}.py" for name in ("posterior/predict", "posterior/conformal", "bayes/model")
)
DIAGNOSTICS = "equibayes/sampling/diagnostics.py"
TRAIN = "equibayes/baselines/train.py"

FAULTS = [
    # the paper's settings
    Fault("rMD17: batch size", SETTINGS, '1_000_000, "batch_size": 32', '1_000_000, "batch_size": 16'),
    Fault("rMD17: batch size of cycles", SETTINGS, '"cycles": {"batch_size": 32}', '"cycles": {"batch_size": 8}'),
    Fault("rMD17: freeze of the mass", SETTINGS, '32, "freeze_mass": 0.9', '32, "freeze_mass": 0.8'),
    Fault(
        "rMD17: cold start", SETTINGS, '"freeze_mass": 0.9, "noise_free": 0.0', '"freeze_mass": 0.9, "noise_free": 0.9'
    ),
    Fault("PEDOT: batch size", SETTINGS, '500_000, "batch_size": 10', '500_000, "batch_size": 32'),
    Fault("PEDOT: freeze of the mass", SETTINGS, '10, "freeze_mass": 0.2', '10, "freeze_mass": 0.9'),
    Fault(
        "PEDOT: cold start", SETTINGS, '"freeze_mass": 0.2, "noise_free": 0.0', '"freeze_mass": 0.2, "noise_free": 0.9'
    ),
    Fault("paper: integrator", SETTINGS, '{"integrator": "paper"}', '{"integrator": "baoa"}'),
    Fault("paper: length of cycles", SETTINGS, '"length": 50_000', '"length": 25_000'),
    Fault("final γ", SETTINGS, "final: float = setting(1e-5", "final: float = setting(1e-4"),
    Fault("α", SETTINGS, "friction: float = setting(0.1", "friction: float = setting(0.05"),
    Fault("ε", SETTINGS, "epsilon: float = setting(1e-3", "epsilon: float = setting(1e-8"),
    # schedule
    Fault("decay is ignored", SETTINGS, "decay=burn_in.decay,", 'decay="exponential",'),
    Fault("cycles end off epoch ends", SETTINGS, "steps_per_epoch(data_size, self.cycles.batch_size)", "1"),
    Fault("cycles have the epochs of the burn-in", SCHEDULE, "self.steps_per_epoch[1])", "self.steps_per_epoch[0])"),
    Fault("baselines freeze the mass at 10 %", TRAIN, "freeze_mass=1.0", "freeze_mass=0.1"),
    Fault("baselines have noise", TRAIN, "temperature=0.0", "temperature=1.0"),
    # starts and noise
    Fault("start weights ignore the seed", CHAINS, "config.seed, forces.dtype", "0, forces.dtype"),
    Fault(
        "starts near a centre ignore the seed",
        CHAINS,
        "standard_normal(key,",
        "standard_normal(NoiseKey(0, key.chains),",
    ),
    Fault("starts near a centre are all the same", CHAINS, "prior.width * noise.to", "prior.width * noise[:1].to"),
    Fault("first momentum from the stream of the steps", SGHMC, "position, STREAM_INITIAL_MOMENTUM)", "position)"),
    Fault(
        "first momentum with T for √T", SGHMC, "_column(temperature, position).sqrt()", "_column(temperature, position)"
    ),
    Fault("noise with √α for α", SGHMC, "state.step, 2 * α, T)", "state.step, 2 * α**0.5, T)"),
    Fault("noise with T for √T", SGHMC, "_column(T, r, factor=variance)", "_column(T * T, r, factor=variance)"),
    Fault("momentum is kept while the mass adapts", SGHMC, "before.div_(state.mass.mass)", "before.div_(before)"),
    Fault("mass without its maximum", MASS, "torch.maximum(state.maximum,", "torch.maximum(state.average,"),
    Fault("mass without correction of its early bias", MASS, "-math.expm1(int(state.updates) * math.log(beta))", "1.0"),
    # posterior density
    Fault(
        "padding atoms in the summary of forces",
        POTENTIAL,
        "graph.real.to(output.forces)",
        "torch.ones_like(output.sigma_forces)",
    ),
    Fault("prior counted twice", POTENTIAL, "gradient=gradient + self", "gradient=gradient + 2 * self"),
    Fault("likelihood of the minibatch alone", POTENTIAL, "(self.data_size / per_structure.shape[1])", "1.0"),
    Fault(
        "likelihood averaged over components",
        LIKELIHOOD,
        "return sum_over_structures(forces.sum(-1)",
        "return sum_over_structures(forces.mean(-1)",
    ),
    # metrics
    Fault("limit of R-hat", VERDICT, "R_HAT_LIMIT = 1.1", "R_HAT_LIMIT = 1.2"),
    Fault("MLL in kcal/mol", TABLES, "value + math.log(c)", "value - math.log(c)"),
    Fault("NECE in kcal/mol", TABLES, '"nece": lambda value, c: value * c', '"nece": lambda value, c: value / c'),
    Fault("MLL of force vectors", TABLES, "3 * metrics.mean_log_likelihood", "metrics.mean_log_likelihood"),
    Fault("bins of 0.01 eV", DENSITY, "BIN_WIDTH = 0.01 * KCAL_PER_MOL", "BIN_WIDTH = 0.01"),
    Fault("outliers above 1 eV", METRICS, "OUTLIER_THRESHOLD = KCAL_PER_MOL", "OUTLIER_THRESHOLD = 1.0"),
    # calibration
    Fault(
        "intervals over the aleatoric σ",
        CALIBRATE,
        "np.abs(r.error) / r.sigma.total",
        "np.abs(r.error) / r.sigma.aleatoric",
    ),
    Fault("monotone map without pooling", RESCALE, "ln_ratio = rising(ln_sigma + ln_ratio) - ln_sigma", "pass"),
    Fault("virial with the sign of a stress", "equibayes/data/stress.py", "= -stress / volume", "= stress / volume"),
    Fault("noise of the pressure", "equibayes/posterior/stress.py", "sigmas / np.sqrt(3)", "sigmas"),
    Fault("five elements of the stress", LIKELIHOOD, "- 6 * log_sigma", "- 5 * log_sigma"),
    Fault("spread of k samples", CALIBRATION, "sqrt((k + 1) / (k - 1))", "sqrt(k / (k - 1))"),
]

EQUIVALENT = {
    (DENSITY, "if last - first > 10_000_000:", "if last - first > 10000001:"): "a bound on memory",
    (
        DENSITY,
        "size = max(1, _AT_ONCE // len(typical))",
        "size = max(2, _AT_ONCE // len(typical))",
    ): "how much is computed at once",
    (
        NOISE,
        "torch.mul(c0, MULTIPLIER_0, out=product_0)",
        "torch.mul(MULTIPLIER_0, c0, out=product_0)",
    ): "a product",
    (
        DIAGNOSTICS,
        "columns = draws.reshape(chains, length, -1)",
        "columns = draws.reshape(chains, length, -2)",
    ): "numpy takes any negative number for the length that is left",
    (
        PREDICT,
        "for batch in batches(pairs, max(1, self.edges_at_once // len(self.samples))):",
        "for batch in batches(pairs, max(1, self.edges_at_once / len(self.samples))):",
    ): "a limit that whole numbers are compared with",
    (
        RESCALE,
        "knots = int(np.clip(len(data.frames) // FRAMES_PER_KNOT, 2, MOST_KNOTS))",
        "knots = int(np.clip(len(data.frames) / FRAMES_PER_KNOT, 2, MOST_KNOTS))",
    ): "int rounds it down as well",
    (
        RESCALE,
        "caution = standard_error * (CAUTION_WIDER if logarithm > 0 else CAUTION_NARROWER)",
        "caution = standard_error * (CAUTION_WIDER if logarithm >= 0 else CAUTION_NARROWER)",
    ): "where the logarithm is 0 the result is 0 either way",
    (
        RESCALE,
        "best = grid[np.argmax([data.log_density(fit).mean() for fit in fits])]",
        "best = grid[np.argmax([data.log_density(fit).sum() for fit in fits])]",
    ): "the largest mean is the largest sum",
    (
        CONFORMAL,
        "reached = np.cumsum(weight[order]) >= level - 1e-12",
        "reached = np.cumsum(weight[order]) > level - 1e-12",
    ): "sums of 1/(n + 1) never meet that number",
    (
        MODEL,
        "stress=torch.where(volume.isnan(), volume, base.virial / volume.nan_to_num(1.0)),",
        "stress=torch.where(volume.isnan(), volume, base.virial / volume.nan_to_num(2.0)),",
    ): "what it is divided by there is not used",
}
"""Changes that change no result: file, line before, line after; and why."""
