"""All settings of `equibayes sample`, defined once, and the presets.

The command line, the YAML check, `equibayes template sample` and the reference in the documentation are derived from
these classes.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from equibayes.bayes.covariance import COVARIANCES
from equibayes.config import build, check, merge, section, setting
from equibayes.errors import InputError, one_line
from equibayes.network.config import PRESETS as NETWORKS
from equibayes.network.config import NetworkConfig
from equibayes.plural import counted
from equibayes.sampling.minibatch import steps_per_epoch
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule, whole_epochs
from equibayes.sampling.sghmc import Integrator, Mass, SGHMCConfig

READING = ("energy_key", "forces_key", "stress_key", "energy_unit", "length_unit", "force_unit", "stress_unit")
"""Settings of the section data that say how files are read; the names are those of `equibayes.data.read`."""

MOST_STEPS = 4 * 10**9
"""Of a chain: its noise counts steps in 32 bits."""


@dataclass(frozen=True)
class DataSettings:
    """How files are read, how energies are referred to zero, and how many frames are held back."""

    energy_reference: str = setting(
        "auto",
        "the zero of energy; auto: chosen from the data; zero: that of the labels, such as the ground state of each molecule",
        ("auto", "lstsq", "isolated", "per_structure", "given", "zero"),
    )
    given_energies: dict[str, float] = setting(
        {}, "per-species energies, eV, for energy_reference: given", at_least=-1e9, limit=1e9
    )
    validation: int = setting(
        30, "frames held back to monitor the run and to calibrate afterwards", at_least=0, limit=10**9
    )
    energy_key: str | None = setting(None, "key of the energies in the file; none: REF_energy, else ASE's energy")
    forces_key: str | None = setting(None, "key of the forces, likewise")
    stress_key: str | None = setting(None, "key of the stress, or of the virial if its name says so")
    energy_unit: str | None = setting(None, "energy unit of the file; none: as its format says, else eV")
    length_unit: str | None = setting(None, "length unit of the file; none: as its format says, else Ang")
    force_unit: str | None = setting(None, "force unit of the file; none: follows from the other two")
    stress_unit: str | None = setting(None, "stress unit of the file; none: likewise")

    def reading(self) -> dict[str, Any]:
        """Keys and units as keyword arguments of `equibayes.data.read`."""
        return {name: getattr(self, name) for name in READING}


@dataclass(frozen=True)
class SamplerSettings(SGHMCConfig):
    """The configuration of the sampler, with a help text for each setting."""

    integrator: Integrator = setting("baoa", "baoa: exact for Gaussians; paper: Algorithm 1 of the paper")
    friction: float = setting(0.1, "α, the fraction of momentum lost per step")
    temperature: float = setting(1.0, "1 samples the posterior; 0 is an optimiser (AMSGrad)")
    beta: float = setting(0.999, "β of the running mean of squared gradients that defines the mass")
    epsilon: float = setting(1e-3, "ε added to the mass, so that every parameter has one")
    mass: Mass = setting(
        "diagonal",
        "diagonal: a mass for each weight, the paper's; matrix: one for each weight matrix, in the eigenbasis of its gradients",
        ("diagonal", "matrix"),
    )


@dataclass(frozen=True)
class LabelSettings:
    """The noise model of the labels."""

    noise: float = setting(
        1.0,
        "share of the predicted variance σ² that is random noise of the labels; the rest is error of the network, "
        "the same whenever the structure is labelled. Below 1 the posterior is narrower (see docs, cold posteriors)",
        above=0,
        at_most=1,
    )


@dataclass(frozen=True)
class LikelihoodSettings:
    """The form of the noise that the network assigns to its predictions."""

    covariance: str = setting(
        "isotropic",
        "noise of forces. isotropic: the paper's, one σ per atom; atom: a 3×3 covariance per atom; pair: also between "
        "atoms, and none of net force and torque (see docs, trust)",
        COVARIANCES,
    )


@dataclass(frozen=True)
class BurnInSettings:
    """From random weights to the posterior."""

    steps: int = setting(20_000, "steps of the burn-in", at_least=1, limit=10**9)
    epochs: int | None = setting(
        None,
        "at most so many passes over the training frames, so that few frames do not take as long as many; none: no limit",
        at_least=1,
        limit=10**9,
    )
    batch_size: int = setting(8, "configurations per minibatch", at_least=1, limit=10**6)
    initial: float = setting(1e-2, "learning rate γ at the start", above=0, limit=1e12)
    final: float = setting(1e-5, "learning rate γ at the end", above=0, limit=1e12)
    decay: str = setting(
        "exponential",
        "decay from initial to final: exponential as in the paper; linear gives 12 to 24 % lower errors",
        ("exponential", "linear"),
    )
    freeze_mass: float = setting(
        0.9,
        "fraction of the burn-in after which the mass is constant; samples are only taken later",
        above=0,
        at_most=1,
    )
    noise_free: float = setting(
        0.0,
        "first fraction of the burn-in without noise and prior (likelihood only)",
        at_least=0,
        at_most=1,
    )
    balance: float = setting(
        0.0,
        "in that fraction, energies and stress weigh at least this times as much, relative to forces, as in NequIP's "
        "loss; 0: as in the likelihood",
        at_least=0,
        limit=1e6,
    )
    early: float = setting(
        0.0, "fraction of the burn-in with the smaller batch below (0 in the paper)", at_least=0, at_most=1
    )
    early_batch_size: int = setting(4, "configurations per minibatch during that fraction", at_least=1, limit=10**6)
    patience: int | None = setting(
        None,
        "evaluations of the held-back frames without a lower force error after which the noise-free fraction ends "
        "(at temperature 0: the training, with the best weights); none: never",
        at_least=1,
        limit=10**6,
    )

    def within(self, epoch: int) -> int:
        """Steps, but no more than the passes allowed; epoch: steps of one pass."""
        return self.steps if self.epochs is None else min(self.steps, self.epochs * epoch)


@dataclass(frozen=True)
class CycleSettings:
    """From one sample to the next."""

    kind: str = setting("rise_and_fall", "shape of the learning rate", ("rise_and_fall", "restart", "constant"))
    length: int = setting(2_000, "steps per cycle, from one sample to the next", at_least=1, limit=10**9)
    peak: float = setting(1e-3, "largest learning rate γ0 of a cycle", at_least=0, limit=1e12)
    batch_size: int = setting(8, "configurations per minibatch", at_least=1, limit=10**6)


@dataclass(frozen=True)
class PriorSettings:
    """The prior distribution of the weights."""

    center: str | None = setting(
        None,
        "on what the prior is centred: a name such as 7net-0, a checkpoint or package of SevenNet or NequIP, or a "
        "posterior; the network is then that of the centre; none: 0",
    )
    width: float | None = setting(
        1.0,
        "standard deviation of the prior; none: such that forces vary as much as those of the centre are wrong",
        at_least=1e-6,
        limit=1e6,
    )
    relative: bool = setting(
        False,
        "widths are fractions of the RMS of each array of weights of the centre (of a posterior: of its spread over "
        "samples); noise heads have width 1",
    )
    group_widths: dict[str, float] = setting(
        {},
        "standard deviation of single parameter groups, such as {readout: 0.1, layer0: 0.5}",
        at_least=1e-6,
        limit=1e6,
    )
    baseline: str | None = setting(
        None,
        "engine whose energies, forces and stress the network corrects: zbl, d3bj/pbe, gfn2-xtb, emt, a sum such as "
        "zbl+d4/pbe; kept in the posterior and added to its predictions; none: no engine",
    )
    baseline_settings: dict[str, float] = setting(
        {}, "numbers for that engine, such as {charge: 1}", at_least=-1e9, limit=1e9
    )
    free_atoms: bool = setting(
        False, "also learn the free atoms of the data (config_type=IsolatedAtom), the limit of every dissociation"
    )
    pseudo_labels: str | None = setting(
        None,
        "engine that labels compressed, stretched, displaced and torn training frames, to be learned with a noise of their own; "
        "none: no such frames",
    )
    pseudo_frames: int = setting(100, "how many such frames", at_least=1, limit=10**6)
    pseudo_noise: float | None = setting(
        None,
        "their noise, relative to the forces; none: as wrong as that engine is on the training frames",
        above=0,
        limit=1e6,
    )


@dataclass(frozen=True)
class GuardSettings:
    """Protection against learning rates too large for the curvature."""

    REMOVED: ClassVar[dict[str, str]] = {"safety": "fixed at 0.5", "iterations": "fixed at 10"}

    enabled: bool = setting(True, "detect diverging chains, roll back and retry with a smaller step")
    interval: int = setting(
        50, "steps between checks; records and checkpoints fall on the same steps", at_least=1, limit=10**5
    )
    retries: int = setting(
        6, "rollbacks after which a chain is abandoned (the others continue)", at_least=0, limit=10**6
    )


@dataclass(frozen=True)
class OutputSettings:
    """What is written while sampling."""

    checkpoint_seconds: float = setting(60.0, "time between checkpoints, s", at_least=0, limit=1e9)
    validations: int = setting(40, "evaluations of the held-back frames during the run", at_least=0, limit=10**6)
    records: int = setting(400, "records of the history kept for the run", at_least=1, limit=10**6)
    half_precision: bool = setting(False, "store samples as float16 (half the size; see docs for its effect)")
    tensorboard: bool = setting(False, "also write TensorBoard events (needs the tensorboard package)")
    wandb: str | None = setting(
        None, "project of Weights & Biases to report to as well (needs the wandb package); none: do not"
    )


@dataclass(frozen=True)
class SampleConfig:
    """All settings of a run."""

    chains: int = setting(4, "independent chains, run in parallel", at_least=1, limit=10**4)
    samples: int = setting(8, "posterior samples to keep, spread over chains and cycles", at_least=1, limit=10**5)
    seed: int = setting(0, "seed of all random numbers", at_least=0, limit=2**63 - 1)
    precision: str = setting(
        "mixed",
        "matrix products on a GPU: float32, tf32x3 (as good, faster), bf16x3 (faster still), mixed (bf16x3 for energies and forces, "
        "tf32 for the gradient by the weights)",
        ("float32", "tf32x3", "bf16x3", "mixed"),
    )
    tangent: str = setting(
        "off",
        "end with exact inference around each chain, as equibayes refine does it; auto: on a CPU, where it uses all labels "
        "and takes little time",
        ("auto", "off", "on"),
    )
    data: DataSettings = section(DataSettings, "labels and energies")
    network: NetworkConfig = section(NetworkConfig, "the NequIP network, with NequIP's names")
    prior: PriorSettings = section(PriorSettings, "the prior distribution of the weights")
    sampler: SamplerSettings = section(SamplerSettings, "adaptive SGHMC, Algorithm 1 of the paper")
    labels: LabelSettings = section(LabelSettings, "the noise model of the labels")
    likelihood: LikelihoodSettings = section(LikelihoodSettings, "the form of the predicted noise")
    burn_in: BurnInSettings = section(BurnInSettings, "from random weights to the posterior")
    cycles: CycleSettings = section(CycleSettings, "from one sample to the next")
    guard: GuardSettings = section(GuardSettings, "protection against divergence")
    output: OutputSettings = section(OutputSettings, "what is written while sampling")

    def __post_init__(self) -> None:
        check(self)
        if self.samples < self.chains:
            raise InputError(
                f"samples={self.samples} is fewer than chains={self.chains}: every chain contributes at least one"
            )
        steps = self.burn_in.steps + -(-self.samples // self.chains) * self.cycles.length
        if steps > MOST_STEPS:
            raise InputError(
                f"{counted(steps, 'step')} in all: at most {MOST_STEPS:g}; lower burn_in.steps or cycles.length"
            )

    @property
    def temperature(self) -> float:
        """T of the chains: the likelihood is raised to the power 1/T, which is the noise model of `labels.noise`."""
        return self.sampler.temperature * self.labels.noise

    def schedule(self, data_size: int) -> Schedule:
        """The schedule for N training configurations, with phases of whole epochs unless these are too long."""
        per_chain = -(-self.samples // self.chains)
        burn_in = self.burn_in
        epoch = steps_per_epoch(data_size, burn_in.batch_size)
        steps = whole_epochs(burn_in.within(epoch), epoch)
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
                balance=burn_in.balance,
            ),
            Cycles(self.cycles.kind, per_chain - 1, max(1, length), self.cycles.peak),  # type: ignore[arg-type]
            temperature=self.temperature,
            steps_per_epoch=(epoch, steps_per_epoch(data_size, self.cycles.batch_size)),
        )

    def early_steps(self, data_size: int) -> int:
        """Steps with the early batch size: whole epochs of the burn-in remain after them, if it has whole epochs."""
        epoch = steps_per_epoch(data_size, self.burn_in.batch_size)
        steps = self.schedule(data_size).burn_in_steps
        early = int(self.burn_in.early * steps)
        return early if steps % epoch else early // epoch * epoch

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """What must not change when a run is continued: not how the file is read, only what was in it counts."""
        values = asdict(self)
        values["data"] = {name: value for name, value in values["data"].items() if name not in READING}
        return values


def sample_config(preset: str | None = None, network: str | None = None, *layers: Mapping[str, Any]) -> SampleConfig:
    """Defaults ← preset ← named network ← layers of nested values (YAML file, overrides)."""
    name = preset or "quick"
    if name not in PRESETS:
        raise InputError(f"preset '{name}' does not exist; choose one of {', '.join(PRESETS)}")
    values = merge(PRESETS[name], *layers)
    chosen = network or values.pop("network_preset", None) or "small"
    values.pop("network_preset", None)
    if chosen not in tuple(NETWORKS):  # a tuple: from a file it may be a list
        raise InputError(f"network '{one_line(chosen)}' does not exist; choose one of {', '.join(NETWORKS)}")
    return build(SampleConfig, values, replace(SampleConfig(), network=NETWORKS[chosen]))


BALANCE = 0.3
"""Measured: `results/energies`."""
_PAPER = {
    "network_preset": "paper",
    "chains": 1,
    "samples": 8,
    "sampler": {"integrator": "paper"},
    "cycles": {"kind": "rise_and_fall", "length": 50_000, "peak": 1e-3},
}
TUNE = "tune"
"""The preset around a network that was trained elsewhere."""
PRESETS: dict[str, dict[str, Any]] = {
    # two minutes on two CPU cores: `make demo`
    "quick": {
        "network_preset": "medium",
        "chains": 4,
        "samples": 4,
        "sampler": {"mass": "matrix"},
        "burn_in": {
            "steps": 30_000,
            "epochs": 250,
            "batch_size": 4,
            "initial": 3e-2,
            "final": 1e-4,
            "decay": "linear",
            "noise_free": 0.9,
            "balance": BALANCE,
        },
        "cycles": {"length": 500, "batch_size": 4},
    },
    # a good posterior in a minute on one H200
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
            "balance": BALANCE,
        },
        "cycles": {"length": 2_000, "batch_size": 8},
    },
    # few frames and a network that was trained elsewhere (`--from`): minutes on two CPU cores
    TUNE: {
        "chains": 4,
        "samples": 8,
        "data": {"validation": 0},
        "prior": {"width": None, "relative": True},
        "burn_in": {"steps": 120, "batch_size": 4, "initial": 4e-3, "final": 1e-4, "decay": "linear"},
        "cycles": {"length": 20, "batch_size": 4},
        "tangent": "on",
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
            "data": {"energy_reference": "zero"},
            "burn_in": {"steps": 500_000, "batch_size": 10, "freeze_mass": 0.2, "noise_free": 0.0},
            "cycles": {"batch_size": 10},
        },
    ),
}
