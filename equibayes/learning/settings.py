"""All settings of `equibayes learn`, defined once; `equibayes template learn` and the checks use them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from equibayes.config import build, merge, section, setting
from equibayes.errors import InputError
from equibayes.learning.resample import ResampleSettings
from equibayes.learning.screen import CLOSEST
from equibayes.learning.select import KINDS, MODES
from equibayes.run.settings import SampleConfig, sample_config
from equibayes.simulate.integrators import ENSEMBLES, Conditions

STOPS = ("rounds", "budget", "target_sigma", "output")
"""Settings that may change when a study is continued."""


@dataclass(frozen=True)
class SelectSettings:
    """Selection of structures."""

    kind: str = setting("bald", "criterion", KINDS)
    mode: str = setting(
        "batch", "batch: do not count the same information twice; structure: rank each by itself", MODES
    )
    deviation: str = setting("total", "which σ is compared with the trust levels", ("total", "epistemic"))
    trust_lo: float | str | None = setting(
        None, "lower trust level: 0.2 eV/Å, or 3x the error on held-back frames; below: known"
    )
    trust_hi: float | str | None = setting(None, "upper trust level, likewise; above: exploded, never sent")
    closest: float = setting(CLOSEST, "fraction of the sum of two covalent radii below which atoms are too close")


@dataclass(frozen=True)
class MdSettings:
    """Molecular dynamics that proposes structures."""

    starts: int = setting(4, "trajectories per round, from start structures spread over the pool")
    steps: int = setting(1000, "steps per trajectory")
    every: int = setting(20, "steps between two proposals")
    temperature: float = setting(300.0, "K")
    ensemble: str = setting("langevin", "integrator", [name for name in ENSEMBLES if name != "npt"])
    timestep: float = setting(0.5, "fs")
    tau: float = setting(100.0, "time constant of the thermostat, fs")
    rattle: float = setting(0.05, "Å, displacement of copies if there are too few initial structures")

    def conditions(self, seed: int) -> Conditions:
        return Conditions(self.ensemble, self.temperature, self.timestep, self.tau, seed=seed)


@dataclass(frozen=True)
class LearnConfig:
    """All settings of a study."""

    pool: list[str] = setting([], "files with structures to select from, or to start dynamics from (propose: md)")
    start: str | None = setting(None, "file with initial labelled structures; none: random structures of the pool")
    start_labels: int = setting(20, "number of initial labels if start is none")
    test: str | None = setting(None, "file with labels to measure errors on; never used for training")
    output: str | None = setting(None, "folder for the rounds")
    propose: str = setting("pool", "source of structures", ("pool", "md"))
    labeller: str = setting("pool", "pool: the labels of the pool; or an engine: xtb, gfn2-xtb, pbe/def2-svp …")
    labeller_settings: dict[str, Any] = setting({}, "keyword arguments of the engine")
    label_seconds: float = setting(600.0, "time limit for one structure, s")
    rounds: int = setting(10, "largest number of rounds after the first")
    per_round: int = setting(10, "labels per round")
    budget: int | None = setting(None, "total number of labels, including the initial ones; none: no limit")
    target_sigma: float | None = setting(
        None, "stop when the RMS σ of force components of unlabelled proposals is below this, eV/Å"
    )
    select: SelectSettings = section(SelectSettings, "selection of structures")
    md: MdSettings = section(MdSettings, "dynamics that proposes structures")
    resample: ResampleSettings = section(ResampleSettings, "how the posterior is updated when labels are added")
    sample: SampleConfig = section(
        SampleConfig, "sampling of the first posterior, and of all later ones unless resample changes it"
    )

    def __post_init__(self) -> None:
        least = {"start_labels": 1, "rounds": 0, "per_round": 1, "budget": 1, "md.starts": 1, "md.steps": 1}
        for name, limit in (least | {"md.every": 1, "md.rattle": 0, "select.closest": 0}).items():
            value: Any = self
            for part in name.split("."):
                value = getattr(value, part)
            if value is not None and not value >= limit:
                raise InputError(f"{name}={value}: must be at least {limit}")
        if self.target_sigma is not None and not self.target_sigma > 0:
            raise InputError(f"target_sigma={self.target_sigma}: must be positive, in eV/Å")
        self.md.conditions(0)
        watched = self.sample.data.validation and self.sample.output.validations
        for name in ("trust_lo", "trust_hi"):
            level = getattr(self.select, name)
            if str(level).strip().endswith("x") and not watched:
                raise InputError(
                    f"select.{name}={level}: a multiple of the error on held-back frames needs some; set "
                    "sample.data.validation, or give eV/Å"
                )
        if self.propose == "md" and self.labeller == "pool":
            raise InputError("propose=md: new structures have no label in a pool; name an engine with --labeller")

    def identity(self) -> dict[str, Any]:
        """Settings that must not change when a study is continued."""
        return {name: value for name, value in asdict(self).items() if name not in STOPS}


def learn_config(preset: str | None = None, network: str | None = None, *layers: Mapping[str, Any]) -> LearnConfig:
    """Defaults ← preset and network of the sampler ← layers of nested values."""
    sampler = sample_config(preset, network, {"data": {"validation": 0}})
    return build(LearnConfig, merge(*layers), replace(LearnConfig(), sample=sampler))
