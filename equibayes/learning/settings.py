"""All settings of `equibayes learn`, defined once; `equibayes template learn` and the checks use them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from equibayes.config import build, check, merge, section, setting
from equibayes.errors import InputError
from equibayes.learning.resample import ResampleSettings
from equibayes.learning.screen import CLOSEST
from equibayes.learning.select import KINDS, MODES
from equibayes.posterior.novelty import NOVELTY
from equibayes.run.settings import SampleConfig, sample_config
from equibayes.simulate.integrators import ENSEMBLES, Conditions
from equibayes.simulate.trust import parse_level

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
    novelty_lo: float | None = setting(
        NOVELTY[0], "novelty from which a structure is never known, whatever its σ; none: none", above=0
    )
    novelty_hi: float | None = setting(None, "novelty from which it is never sent; none: however novel", above=0)
    apart: float = setting(
        0.1,
        "in a batch, a structure waits if no atom of it is further than this from those chosen, in units of novelty",
        at_least=0,
        limit=1e3,
    )
    closest: float = setting(
        CLOSEST, "fraction of the sum of two covalent radii below which atoms are too close", at_least=0, limit=10
    )


@dataclass(frozen=True)
class MdSettings:
    """Molecular dynamics that proposes structures."""

    starts: int = setting(
        4, "trajectories per round, from structures spread over the given ones", at_least=1, limit=10**6
    )
    steps: int = setting(1000, "steps of each", at_least=1, limit=10**9)
    every: int = setting(20, "steps between two proposals", at_least=1, limit=10**9)
    temperature: float = setting(300.0, "K", above=0, limit=1e9)
    ensemble: str = setting("langevin", "integrator", [name for name in ENSEMBLES if not name.startswith("npt")])
    timestep: float = setting(0.5, "fs", above=0, limit=1e6)
    tau: float = setting(100.0, "time constant of the thermostat, fs", above=0, limit=1e12)
    novelty: float | None = setting(
        NOVELTY[1], "a trajectory ends where the novelty of an atom reaches this; none: never", above=0
    )
    bias: float = setting(
        0.0, "strength of a bias towards uncertainty, see docs (molecular dynamics); 0: none", at_least=0, limit=1e6
    )
    rattle: float = setting(
        0.05, "displacement of copies, Å, where fewer structures than starts are given", at_least=0, limit=10
    )

    def conditions(self, seed: int) -> Conditions:
        return Conditions(self.ensemble, self.temperature, self.timestep, self.tau, seed=seed)


@dataclass(frozen=True)
class LearnConfig:
    """All settings of a study."""

    pool: list[str] = setting([], "files with structures to choose from, or to start dynamics from (propose: md)")
    start: str | None = setting(None, "file with labelled structures to begin with; none: some of the pool, at random")
    start_labels: int = setting(20, "how many to begin with where start is none", at_least=1, limit=10**9)
    test: str | None = setting(None, "file with labels that is never learned from, to measure errors on")
    output: str | None = setting(None, "folder for the rounds")
    propose: str = setting("pool", "source of structures", ("pool", "md"))
    labeller: str = setting("pool", "pool: the labels of the pool; or an engine: xtb, gfn2-xtb, pbe/def2-svp …")
    labeller_settings: dict[str, Any] = setting({}, "keyword arguments of the engine")
    label_seconds: float = setting(600.0, "time limit for one structure, s", above=0, limit=1e9)
    rounds: int = setting(10, "rounds after the first, at most", at_least=0, limit=10**6)
    per_round: int = setting(10, "labels to ask for in each round", at_least=1, limit=10**9)
    budget: int | None = setting(
        None, "total number of labels, initial ones included; none: no limit", at_least=1, limit=10**9
    )
    target_sigma: float | None = setting(
        None, "stop when the RMS σ of force components over the candidates is below this, eV/Å", above=0
    )
    select: SelectSettings = section(SelectSettings, "selection of structures")
    md: MdSettings = section(MdSettings, "dynamics that proposes structures")
    resample: ResampleSettings = section(ResampleSettings, "how the posterior is updated when labels are added")
    sample: SampleConfig = section(
        SampleConfig, "sampling of the first posterior, and of all later ones unless resample changes it"
    )

    def __post_init__(self) -> None:
        check(self)
        self.md.conditions(0)
        watched = self.sample.data.validation and self.sample.output.validations
        for name in ("trust_lo", "trust_hi"):
            level = getattr(self.select, name)
            multiple = level is not None and parse_level(str(level), f"select.{name}")[1]
            if multiple and not watched:
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
