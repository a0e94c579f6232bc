"""Every setting of `equibayes sample`, typed once, and the presets.

The command line, the YAML check, `equibayes template sample` and the reference in the documentation are all made from
these classes.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any

from equibayes.config import build, merge, section, setting
from equibayes.errors import InputError
from equibayes.network.config import PRESETS as NETWORKS
from equibayes.network.config import NetworkConfig
from equibayes.sampling.minibatch import steps_per_epoch
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule
from equibayes.sampling.sghmc import Integrator, SGHMCConfig


@dataclass(frozen=True)
class DataSettings:
    """How labels are read and energies are referred to zero."""

    energy_reference: str = setting(
        "auto",
        "what an energy of 0 means; auto chooses by the data",
        ("auto", "lstsq", "isolated", "per_structure", "given"),
    )
    given_energies: dict[str, float] = setting({}, "energy of each species, eV, for energy_reference: given")
    validation: int = setting(30, "frames held back to watch the run and to calibrate afterwards")


@dataclass(frozen=True)
class SamplerSettings(SGHMCConfig):
    """The sampler's own configuration, with a sentence for each of its settings."""

    integrator: Integrator = setting("baoa", "baoa: exact on Gaussians; paper: Algorithm 1 to the letter")
    friction: float = setting(0.1, "α, the share of momentum lost in a step")
    temperature: float = setting(1.0, "1 samples the posterior; 0 is an optimiser (AMSGrad)")
    beta: float = setting(0.999, "β of the running mean of squared gradients, from which the mass is made")
    epsilon: float = setting(1e-3, "ε added to the mass, so that no parameter is without")


@dataclass(frozen=True)
class BurnInSettings:
    """From random weights to the posterior."""

    steps: int = setting(20_000, "steps of the burn-in")
    batch_size: int = setting(8, "configurations in a minibatch")
    initial: float = setting(1e-2, "learning rate γ at the start")
    final: float = setting(1e-5, "learning rate γ at the end")
    decay: str = setting(
        "exponential",
        "between the two: exponential as in the paper; linear ends with errors that are 12 to 24 % lower (see results/fast-burn-in)",
        ("exponential", "linear"),
    )
    freeze_mass: float = setting(
        0.9, "share of the burn-in after which the mass is constant; no sample is taken before"
    )
    noise_free: float = setting(
        0.0, "first share of the burn-in without noise and prior: likelihood alone (see results/fast-burn-in)"
    )
    early: float = setting(0.0, "share of the burn-in with the smaller batch below (fast start; the paper has 0)")
    early_batch_size: int = setting(4, "configurations in a minibatch during that share")


@dataclass(frozen=True)
class CycleSettings:
    """From one sample to the next."""

    kind: str = setting("rise_and_fall", "shape of the learning rate", ("rise_and_fall", "restart", "constant"))
    length: int = setting(2_000, "steps of one cycle, from one sample to the next")
    peak: float = setting(1e-3, "largest learning rate γ0 of a cycle")
    batch_size: int = setting(8, "configurations in a minibatch")


@dataclass(frozen=True)
class PriorSettings:
    """What is believed of the weights before the data are seen."""

    center: str | None = setting(
        None, "posterior file or NequIP checkpoint whose weights the prior is centred on; none: 0"
    )
    width: float = setting(1.0, "standard deviation of the prior")
    group_widths: dict[str, float] = setting(
        {}, "standard deviation for single groups, such as {readout: 0.1, layer0: 0.5}"
    )


@dataclass(frozen=True)
class GuardSettings:
    """Protection against steps that the curvature does not allow."""

    enabled: bool = setting(True, "watch for diverging chains, roll back and retry with a smaller step")
    interval: int = setting(50, "steps between two looks; also the rhythm of records and checkpoints")
    retries: int = setting(6, "rollbacks after which a chain is given up (the others go on)")
    safety: float = setting(0.5, "share of the stability limit that a restart of γ may use")
    iterations: int = setting(10, "power iterations of the curvature estimate before a restart of γ")


@dataclass(frozen=True)
class OutputSettings:
    """What is written while sampling."""

    checkpoint_seconds: float = setting(60.0, "time between checkpoints, s")
    validations: int = setting(40, "how often the held-back frames are evaluated in the whole run")
    records: int = setting(400, "lines of history kept of the whole run")
    half_precision: bool = setting(False, "store samples as float16 (half the size; see docs for its effect)")
    tensorboard: bool = setting(False, "also write TensorBoard events (needs the tensorboard package)")


# what numbers must fulfil, by the names of their settings
_LIMITS: dict[str, tuple[Callable[[float], bool], str]] = {
    "at least 1": (
        lambda value: value >= 1,
        "chains samples burn_in.steps burn_in.batch_size burn_in.early_batch_size cycles.length cycles.batch_size "
        "guard.interval guard.iterations output.records",
    ),
    "at least 0": (
        lambda value: value >= 0,
        "data.validation cycles.peak guard.retries output.validations output.checkpoint_seconds",
    ),
    "positive": (
        lambda value: value > 0,
        "burn_in.initial burn_in.final burn_in.freeze_mass guard.safety prior.width",
    ),
    "a share between 0 and 1": (
        lambda value: 0 <= value <= 1,
        "burn_in.freeze_mass burn_in.noise_free burn_in.early",
    ),
}


@dataclass(frozen=True)
class SampleConfig:
    """All of it."""

    chains: int = setting(4, "independent chains, run in one pass")
    samples: int = setting(8, "posterior samples to keep, spread over chains and cycles")
    seed: int = setting(0, "everything random follows from it")
    precision: str = setting(
        "mixed",
        "matrix products on a GPU: float32, tf32x3 (as good, faster), bf16x3 (faster still), mixed (bf16x3 for energies and forces, "
        "tf32 for the gradient by the weights), tf32 (too coarse for energies)",
        ("float32", "tf32x3", "bf16x3", "mixed", "tf32"),
    )
    data: DataSettings = section(DataSettings, "labels and energies")
    network: NetworkConfig = section(NetworkConfig, "the NequIP network, with NequIP's names")
    prior: PriorSettings = section(PriorSettings, "what is believed before the data are seen")
    sampler: SamplerSettings = section(SamplerSettings, "adaptive SGHMC, Algorithm 1 of the paper")
    burn_in: BurnInSettings = section(BurnInSettings, "from random weights to the posterior")
    cycles: CycleSettings = section(CycleSettings, "from one sample to the next")
    guard: GuardSettings = section(GuardSettings, "protection against divergence")
    output: OutputSettings = section(OutputSettings, "what is written while sampling")

    def __post_init__(self) -> None:
        for condition, (fulfils, names) in _LIMITS.items():
            for name in names.split():
                value = attrgetter(name)(self)
                if not fulfils(value):
                    raise InputError(f"{name}={value}: must be {condition}")
        for group, width in self.prior.group_widths.items():
            if not width > 0:
                raise InputError(f"prior.group_widths.{group}={width}: must be positive")
        if self.samples < self.chains:
            raise InputError(
                f"samples={self.samples} is fewer than chains={self.chains}: every chain gives at least one"
            )

    def schedule(self, data_size: int) -> Schedule:
        """The schedule for N training configurations, with phases of whole epochs."""
        per_chain = -(-self.samples // self.chains)
        burn_in = self.burn_in
        epoch = steps_per_epoch(data_size, burn_in.batch_size)
        steps = -(-burn_in.steps // epoch) * epoch
        # the printed formula of rise_and_fall has the period 2K
        length = self.cycles.length // 2 if self.cycles.kind == "rise_and_fall" else self.cycles.length
        return Schedule(
            BurnIn(
                steps=steps,
                initial=burn_in.initial,
                final=burn_in.final,
                decay=burn_in.decay,  # type: ignore[arg-type]
                freeze_mass_at=min(int(burn_in.freeze_mass * steps), steps - 1),
                noise_free_fraction=burn_in.noise_free,
            ),
            Cycles(self.cycles.kind, per_chain - 1, max(1, length), self.cycles.peak),  # type: ignore[arg-type]
            temperature=self.sampler.temperature,
            steps_per_epoch=(epoch, steps_per_epoch(data_size, self.cycles.batch_size)),
        )

    def early_steps(self, data_size: int) -> int:
        """Steps with the early batch size: whole epochs of the burn-in remain after them."""
        epoch = steps_per_epoch(data_size, self.burn_in.batch_size)
        steps = self.schedule(data_size).burn_in_steps
        return int(self.burn_in.early * steps) // epoch * epoch

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def sample_config(preset: str | None = None, network: str | None = None, *layers: Mapping[str, Any]) -> SampleConfig:
    """Defaults ← preset ← named network ← layers of nested values (YAML file, overrides)."""
    name = preset or "quick"
    if name not in PRESETS:
        raise InputError(f"preset '{name}' does not exist; choose one of {', '.join(PRESETS)}")
    values = merge(PRESETS[name], *layers)
    chosen = network or values.pop("network_preset", None) or "small"
    values.pop("network_preset", None)
    if chosen not in NETWORKS:
        raise InputError(f"network '{chosen}' does not exist; choose one of {', '.join(NETWORKS)}")
    return build(SampleConfig, values, replace(SampleConfig(), network=NETWORKS[chosen]))


_PAPER = {
    "network_preset": "paper",
    "chains": 1,
    "samples": 8,
    "sampler": {"integrator": "paper"},
    "cycles": {"kind": "rise_and_fall", "length": 50_000, "peak": 1e-3},
}
PRESETS: dict[str, dict[str, Any]] = {
    # a few minutes on two CPU cores: `make demo`
    "quick": {
        "network_preset": "small",
        "chains": 4,
        "samples": 8,
        "burn_in": {
            "steps": 5_000,
            "batch_size": 4,
            "initial": 3e-2,
            "final": 1e-4,
            "decay": "linear",
            "noise_free": 0.9,
        },
        "cycles": {"length": 500, "batch_size": 4},
    },
    # a good posterior in the least time: a minute on one H200
    "standard": {
        "network_preset": "paper",
        "chains": 8,
        "samples": 16,
        "burn_in": {
            "steps": 24_000,
            "batch_size": 8,
            "initial": 1e-2,
            "final": 3e-5,
            "decay": "linear",
            "noise_free": 0.9,
        },
        "cycles": {"length": 2_000, "batch_size": 8},
    },
    # the paper's settings (appendix A.3): 1.35 million steps
    "paper-rmd17": merge(
        _PAPER,
        {
            "burn_in": {"steps": 1_000_000, "batch_size": 32, "freeze_mass": 0.9, "noise_free": 0.0},
            "cycles": {"batch_size": 32},
        },
    ),
    "paper-pedot": merge(
        _PAPER,
        {
            "burn_in": {"steps": 500_000, "batch_size": 10, "freeze_mass": 0.2, "noise_free": 0.0},
            "cycles": {"batch_size": 10},
        },
    ),
}
