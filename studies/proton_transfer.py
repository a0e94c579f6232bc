"""Barrier of the proton transfer in malonaldehyde (enol) from a nudged elastic band, beside the engine's own barrier.

The first posterior is conditioned on frames near the straight line between the two wells.  Then, in turns, the band is
relaxed with the posterior, the engine labels its images, and the posterior is updated.  The barrier has an uncertainty,
from the energies of every sample along the band.  (The molecule called malonaldehyde in rMD17 is the dialdehyde, which
has no such proton: the data are made here, with GFN2-xTB.)

    python -m studies.proton_transfer             about ten minutes on one core
    python -m studies.proton_transfer --quick     half a minute, to see that it runs
"""

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
from equibayes.labelling.labellers import Labeller
from equibayes.posterior.file import Posterior
from equibayes.simulate.calculator import Calculator
from studies.shared.labels import labelled
from studies.shared.options import add_quick, parser_of
from studies.shared.results import LABELLING_PACKAGES, provenance, save_json
from studies.shared.runs import SmallNetwork, resampled, sampled

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
class Study(SmallNetwork):
    """noise: standard deviation in Å of the frames around the straight line."""

    chains: int = 6
    radial_width: int | None = 16
    seed: int = 0
    frames: int = 120
    noise: float = 0.06
    rounds: int = 4
    images: int = 7
    relax_steps: int = 150


QUICK = Study(frames=12, rounds=2, images=5, chains=2, first=60, warm=20, features=4, relax_steps=3)


def ends(enol: Atoms) -> tuple[Atoms, Atoms]:
    """The proton at either oxygen: a mirror image with atoms exchanged."""
    last = enol.copy()
    last.positions = enol.positions[EXCHANGED] * [-1, 1, 1]
    return enol.copy(), last


def relaxed_band(calculator: Any, images: int, steps: int) -> tuple[list[Atoms], bool]:
    """A climbing-image band relaxed from the straight line, and whether it converged to 0.03 eV/Å."""
    first, last = ends(ENOL)
    band = [first, *(first.copy() for _ in range(images - 2)), last]
    for image in band:
        image.calc = calculator
    neb = NEB(band, climb=True, method="improvedtangent", allow_shared_calculator=True)
    neb.interpolate()
    return band, bool(FIRE(neb, logfile=None).run(fmax=0.03, steps=steps))


def near_the_line(study: Study) -> list[Structure]:
    """Displaced frames along the straight line between the wells."""
    rng = np.random.default_rng(study.seed)
    a, b = (atoms.positions for atoms in ends(ENOL))
    places = [a + t * (b - a) + rng.normal(scale=study.noise, size=a.shape) for t in rng.uniform(size=study.frames)]
    return [Structure.from_atoms(Atoms(ENOL.numbers, place)) for place in places]


def look(posterior: Posterior, study: Study, labeller: Labeller) -> tuple[dict[str, Any], list[Structure]]:
    """The posterior's band, its barrier with the spread over samples, and the engine's labels of the same images."""
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
    parser = parser_of(__doc__)
    add_quick(parser, "half a minute")
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
        posterior = sampled(data, study.config(study.seed))
        for number in range(study.rounds):
            numbers, new = look(posterior, study, labeller)
            rows.append({"round": number, "labels": len(data), **numbers})
            told = f"{1e3 * numbers['barrier']:.1f} ± {1e3 * numbers['barrier_spread_over_samples']:.1f} meV"
            engine_says = f"{1e3 * numbers['engine_barrier_of_the_same_images']:.1f} meV"
            print(f"{len(data)} labels: {told}; the engine on these images {engine_says}", flush=True)
            if number + 1 < study.rounds:
                more = Dataset([*data, *new], data.name)
                config = replace(study.config(study.seed), seed=study.seed + number + 1)
                posterior = resampled(posterior, more, config, study.warm_start(), seen=data)
                data = more
        engine = labeller.provenance
    report = {
        "study": asdict(study),
        "engine": engine,
        "engine_band": reference,
        "rounds": rows,
        "cpu_seconds": time.process_time() - begun,
        "provenance": provenance(packages=LABELLING_PACKAGES),
    }
    save_json(options.output / "report.json", report)


if __name__ == "__main__":
    main()
