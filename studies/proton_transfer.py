"""The barrier of the proton transfer in malonaldehyde (enol), by a nudged elastic band with the calculator, beside the engine's own.

A first posterior knows the straight line between the two wells.  Then in turns: relax the band with the posterior, ask the engine about
its images, learn.  The barrier has an uncertainty, from every sample's energies along the band.  (The molecule called malonaldehyde in
rMD17 is the dialdehyde, which has no such proton: the data are made here, with GFN2-xTB.)

    python examples/proton_transfer.py             about ten minutes on one core
    python examples/proton_transfer.py --quick     half a minute, to see that it runs
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.mep import NEB
from ase.optimize import FIRE

from equibayes.data import Dataset
from equibayes.data.structures import Structure
from equibayes.labelling.calculator import LabellerCalculator
from equibayes.labelling.labellers import Label, Labeller
from equibayes.learning.resample import ResampleSettings, resample
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample
from equibayes.run.settings import SampleConfig, sample_config
from equibayes.simulate.calculator import Calculator

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.provenance import provenance

ENGINE = "gfn2-xtb"
# relaxed with GFN2-xTB; O, C, C, C, O around the ring, then the proton that moves, then H at the three C
ENOL = Atoms(
    "OC3OH4",
    [
        [-1.2959, -0.5545, 0],
        [-1.1919, 0.7521, 0],
        [-0.0143, 1.4266, 0],
        [1.2222, 0.6989, 0],
        [1.3024, -0.524, 0],
        [-0.3685, -0.9273, 0],
        [-2.1474, 1.2668, 0],
        [0.0042, 2.5015, 0],
        [2.1392, 1.31, 0],
    ],
)
EXCHANGED = [4, 3, 2, 1, 0, 5, 8, 7, 6]
PROTON, OXYGENS = 5, (0, 4)


@dataclass(frozen=True)
class Study:
    """Steps of a chain: `first` for the first posterior, `warm` in each round.  noise: Å by which frames leave the straight line."""

    seed: int = 0
    frames: int = 120
    noise: float = 0.06
    rounds: int = 4
    images: int = 7
    chains: int = 6
    first: int = 6000
    warm: int = 1500
    features: int = 16
    relax_steps: int = 150

    def config(self) -> SampleConfig:
        network = {"num_features": self.features, "num_layers": 2, "radial_mlp_width": 16, "radial_mlp_depth": 1}
        values = {
            "seed": self.seed,
            "chains": self.chains,
            "samples": self.chains,
            "data": {"validation": 0},
            "network": network,
            "burn_in": {"steps": self.first, "freeze_mass": 0.5, "noise_free": 0.0},
            "output": {"validations": 0},
        }
        return sample_config("quick", "small", values)


QUICK = Study(frames=12, rounds=2, images=5, chains=2, first=60, warm=20, features=4, relax_steps=3)


def ends(enol: Atoms) -> tuple[Atoms, Atoms]:
    """The proton at the one oxygen and at the other: a mirror image with atoms exchanged."""
    last = enol.copy()
    last.positions = enol.positions[EXCHANGED] * [-1, 1, 1]
    return enol.copy(), last


def relaxed_band(calculator: Any, images: int, steps: int) -> tuple[list[Atoms], bool]:
    """A climbing band between the ends, from the straight line; and whether it converged to 0.03 eV/Å."""
    first, last = ends(ENOL)
    band = [first, *(first.copy() for _ in range(images - 2)), last]
    for image in band:
        image.calc = calculator
    neb = NEB(band, climb=True, method="improvedtangent", allow_shared_calculator=True)
    neb.interpolate()
    return band, bool(FIRE(neb, logfile=None).run(fmax=0.03, steps=steps))


def labelled(labeller: Labeller, structures: list[Structure]) -> list[Structure]:
    answers = [(structure, labeller.label(structure)) for structure in structures]
    return [answer.attach(structure) for structure, answer in answers if isinstance(answer, Label)]


def near_the_line(study: Study) -> list[Structure]:
    """Displaced frames along the straight line between the wells."""
    rng = np.random.default_rng(study.seed)
    a, b = (atoms.positions for atoms in ends(ENOL))
    places = [a + t * (b - a) + rng.normal(scale=study.noise, size=a.shape) for t in rng.uniform(size=study.frames)]
    return [Structure.from_atoms(Atoms(ENOL.numbers, place)) for place in places]


def look(posterior: Posterior, study: Study, labeller: Labeller) -> tuple[dict[str, Any], list[Structure]]:
    """The band of the posterior, its barrier with the spread over samples, and what the engine says about the same images."""
    calculator = Calculator(posterior, device="cpu", members=True)
    band, converged = relaxed_band(calculator, study.images, study.relax_steps)
    found = calculator.evaluate_many(band)
    members = np.stack([each["energy_ensemble"] for each in found], axis=1)
    barriers = members.max(1) - members[:, 0]
    mean = np.array([each["energy"] for each in found])
    bare = [Structure.from_atoms(Atoms(image.numbers, image.positions)) for image in band[1:-1]]
    ends_too = [Structure.from_atoms(Atoms(image.numbers, image.positions)) for image in (band[0], band[-1])]
    known, wells = labelled(labeller, bare), labelled(labeller, ends_too)
    top = band[int(mean.argmax())]
    numbers = {
        "converged": converged,
        "barrier": float(mean.max() - mean[0]),
        "barrier_spread_over_samples": float(barriers.std()),
        "engine_barrier_of_the_same_images": max(s.energy or 0.0 for s in known) - (wells[0].energy or 0.0),
        "largest_force_sigma": max(float(each["forces_uncertainty"].max()) for each in found),
        "proton_to_oxygens_at_the_top": [float(top.get_distance(PROTON, i)) for i in OXYGENS],
    }
    return numbers, [*known, *wells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="half a minute, too short to conclude anything")
    parser.add_argument("--output", type=Path, default=Path("results/proton-transfer"), help="folder for the report")
    options = parser.parse_args()
    torch.set_num_threads(1)
    study, begun = QUICK if options.quick else Study(), time.process_time()
    rows = []
    with Labeller(ENGINE) as labeller:
        own, converged = relaxed_band(LabellerCalculator(labeller), study.images, 200)
        energies = [image.get_potential_energy() for image in own]
        reference = {"converged": converged, "barrier": float(max(energies) - energies[0])}
        print(f"{ENGINE}: {1e3 * reference['barrier']:.1f} meV", flush=True)
        data = Dataset(labelled(labeller, near_the_line(study)), "near the straight line")
        posterior = sample(data, study.config(), device="cpu")
        for number in range(study.rounds):
            numbers, new = look(posterior, study, labeller)
            rows.append({"round": number, "labels": len(data), **numbers})
            told = f"{1e3 * numbers['barrier']:.1f} ± {1e3 * numbers['barrier_spread_over_samples']:.1f} meV"
            engine_says = f"{1e3 * numbers['engine_barrier_of_the_same_images']:.1f} meV"
            print(f"{len(data)} labels: {told}; the engine on these images {engine_says}", flush=True)
            if number + 1 < study.rounds:
                more = Dataset([*data, *new], data.name)
                config = replace(study.config(), seed=study.seed + number + 1)
                share = ResampleSettings(burn_in=study.warm / study.first)
                posterior = resample(posterior, more, more[:0], config, share, seen=data, device="cpu")
                data = more
        engine = labeller.provenance
    report = {
        "study": asdict(study),
        "engine": engine,
        "engine_band": reference,
        "rounds": rows,
        "cpu_seconds": time.process_time() - begun,
        "provenance": provenance(("torch", "numpy", "equibayes", "ase", "tblite")),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "report.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
