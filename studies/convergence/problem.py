"""The problem on which two samplers are compared: data, network, potential, and predictions on unseen frames."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data import bundled_ethanol
from equibayes.data.resident import ResidentData
from equibayes.network.config import NetworkConfig
from equibayes.run.chains import Chains
from equibayes.run.loop import run
from equibayes.run.prepare import Prepared, prepare
from equibayes.run.settings import BurnInSettings, CycleSettings, DataSettings, SampleConfig
from studies.convergence import hmc

NETWORK = NetworkConfig(
    l_max=1,
    parity=False,
    num_features=[4, 2],
    num_layers=2,
    num_bessels=4,
    radial_mlp_depth=1,
    radial_mlp_width=8,
    model_dtype="float64",
)
SEED = 0
PARTS = ("forces", "energy", "log_sigma_forces", "log_sigma_energy")


@dataclass(frozen=True)
class Study:
    """Sizes.  hmc: draws of the warm-up and draws that count; subject, cold, noisy: the same in cycles."""

    frames: int = 50
    unseen_frames: int = 20
    burn_in_steps: int = 2500
    chains: int = 16
    width: float = 0.1
    hmc: tuple[int, int] = (20, 45)
    subject: tuple[int, int] = (10, 80)
    cold: tuple[int, int] = (5, 10)
    noisy: tuple[int, int] = (120, 80)


QUICK = Study(burn_in_steps=200, chains=8, hmc=(5, 8), subject=(3, 8), cold=(3, 8), noisy=(3, 8))


class Problem:
    """Data, model and predictions on unseen frames."""

    def __init__(self, study: Study) -> None:
        self.study = study
        data = bundled_ethanol("train")[: study.frames]
        config = SampleConfig(
            chains=study.chains,
            samples=study.chains,
            seed=SEED,
            data=DataSettings(validation=0),
            network=NETWORK,
            burn_in=BurnInSettings(steps=study.burn_in_steps, batch_size=10, final=1e-4, noise_free=0.3),
            cycles=CycleSettings(batch_size=10),
        )
        self.prepared: Prepared = prepare(data, config)
        self.train: ResidentData = self.prepared.resident(self.prepared.train, "cpu")
        self.unseen = bundled_ethanol("test")[: study.unseen_frames]
        self.graph, self.labels = self.prepared.resident(self.unseen, "cpu").batch(torch.arange(len(self.unseen))[None])

    def potential(self, prior: Any) -> Potential:
        return Potential(self.prepared.model, self.train, prior)

    @torch.no_grad()
    def predictions(self, position: torch.Tensor) -> np.ndarray:
        """θ [K, P] → forces (eV/Å), energies (eV), ln σ_F, ln σ_E of the unseen frames, concatenated: [K, Q]."""
        output = self.prepared.model(position, self.graph)
        return torch.cat([getattr(output, name).flatten(1) for name in PARTS], 1).numpy()

    def parts(self) -> dict[str, slice]:
        """Slices of the Q predictions by kind."""
        frames, atoms = self.study.unseen_frames, self.labels.forces.shape[1]
        ends = np.cumsum([0, 3 * atoms, frames, atoms, frames])
        return {name: slice(int(a), int(b)) for name, a, b in zip(PARTS, ends, ends[1:])}


def full_target(potential: Potential) -> hmc.Target:
    """u and ∇u over all configurations."""
    everything = torch.arange(potential.data_size)[None]

    def target(position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        evaluation = potential(position, everything)
        return evaluation.potential, evaluation.gradient

    return target


def burn_in(problem: Problem) -> dict[str, np.ndarray]:
    """The package's burn-in under N(0, I): its best chain gives the centre c [P] and the frozen mass [P]."""
    potential = problem.potential(StandardNormal())
    state = run(Chains.of(potential, problem.prepared.config))
    u, _ = full_target(potential)(state.sampler.position)
    best = int(u.nan_to_num(nan=torch.inf).argmin())
    return {"center": state.sampler.position[best].numpy(), "mass": state.sampler.mass.mass[best].numpy()}


def starts(center: torch.Tensor, study: Study, share: float) -> torch.Tensor:
    """K points around c, [K, P], within a fraction of the prior's width; with 1 they are draws from the prior."""
    random = torch.Generator().manual_seed(SEED + 1)
    shift = torch.randn(study.chains, len(center), generator=random, dtype=torch.float64)
    return center + share * study.width * shift


def metric(potential: Potential, center: torch.Tensor, study: Study) -> dict[str, np.ndarray]:
    """Factor [P, P] of the covariance for HMC, from the Hessian at c; no direction is wider than the prior."""
    curvature = hmc.hessian(full_target(potential), center)
    return {"factor": hmc.covariance_factor(curvature, study.width**-2).numpy()}
