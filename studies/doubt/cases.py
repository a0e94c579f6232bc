"""Training frames and probes of every case, all labelled by one engine.

| case          | training frames                             | engine   | probes                                 |
|---------------|---------------------------------------------|----------|----------------------------------------|
| ethanol       | 1000 of rMD17 (bundled), labelled again     | GFN2-xTB | those of `probes.py`, hot dynamics     |
| malonaldehyde | 1000 of rMD17 (`--data`), labelled again    | GFN2-xTB | the same                               |
| 3bpa          | 500 at 300 K (studies/domain_shift/data)    | GFN2-xTB | the same; dynamics at 600 and 1200 K   |
| silicon       | 300 of the perfect crystal at 300 and 600 K | Tersoff  | scaled, defects, surfaces, phases, melt |

Of each, 30 frames are held back.  Labels are computed once and kept in a folder; a structure that the engine refuses
is left out.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from equibayes.data import Dataset, read
from equibayes.data.structures import Structure
from equibayes.files import make_folder, write_atomically
from equibayes.labelling.calculator import LabellerCalculator
from equibayes.labelling.labellers import Labeller
from equibayes.learning.propose import bare
from equibayes.run.progress import watched
from equibayes.simulate.integrators import Conditions, Integrator
from studies.domain_shift.cases import evenly
from studies.doubt import probes, silicon
from studies.shared.labels import labelled

XTB = "gfn2-xtb"
INSIDE = "in distribution"
BPA = Path(__file__).resolve().parent.parent / "domain_shift" / "data"
HOT = {"ethanol": (1000, 2000), "malonaldehyde": (1000, 2000)}
"""K; rMD17 is dynamics at 500 K."""
CASES = ("ethanol", "malonaldehyde", "3bpa", "silicon")


@dataclass(frozen=True)
class Case:
    """data: to learn from, with the frames to hold back;  probes: labelled, by kind, `INSIDE` among them."""

    name: str
    data: Dataset
    probes: dict[str, Dataset]

    def fingerprints(self) -> dict[str, str]:
        """What was used, for the record."""
        return {name: frames.fingerprint() for name, frames in {"data": self.data, **self.probes}.items()}


def make_case(name: str, folder: Path, data: Path | None = None) -> Case:
    """With labels from the folder where they are there.  data: folder with rmd17_malonaldehyde.npz and its splits."""
    kept = Kept(make_folder(folder / name), silicon.ENGINE if name == "silicon" else XTB)
    with kept:
        return _silicon(kept) if name == "silicon" else _molecule(name, kept, data)


class Kept:
    """Labelled structures by name, made once."""

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder, self.name, self._engine = folder, engine, None

    def __enter__(self) -> "Kept":
        return self

    def __exit__(self, *_: object) -> None:
        if self._engine is not None:
            self._engine.close()

    @property
    def engine(self) -> Labeller:
        if self._engine is None:
            self._engine = Labeller(self.name, time_limit_s=60.0)
        return self._engine

    def __call__(self, name: str, make: Callable[[], Iterable[Structure]]) -> Dataset:
        """Structures from the file, or made and labelled; their energies and forces are those of the engine."""
        path = self.folder / f"{name.replace(' ', '-')}.npz"
        if not path.exists():
            structures = list(make())
            found = Dataset(labelled(self.engine, watched(structures, what=name, total=len(structures))), name)
            write_atomically(path, found.save_npz)
        return read(path)


def _molecule(name: str, kept: Kept, data: Path | None) -> Case:
    if name == "3bpa":
        train, inside = read(BPA / "bpa_train.npz"), read(BPA / "bpa_300K.npz")
    else:
        source = "bundled:ethanol" if name == "ethanol" else f"{data}/rmd17_{name}.npz"
        parts = ("train", "test") if name == "ethanol" else ("train_01", "test_01")
        train, inside = (kept(part, lambda part=part: map(bare, read(f"{source}@{part}"))) for part in parts)
        known = {structure.geometry_digest() for structure in train}
        inside = inside.subset([i for i, s in enumerate(inside) if s.geometry_digest() not in known])
    few, rng = list(evenly(train, 10)), np.random.default_rng(0)
    found = {INSIDE: evenly(inside, 500)}
    found["bond scans"] = kept("bond scans", lambda: probes.bond_scans(train[0]))
    found["scaled"] = kept("scaled", lambda: probes.scaled(few[:3]))
    found["displaced"] = kept("displaced", lambda: probes.displaced(few, rng))
    found["relatives"] = kept("relatives", lambda: probes.relatives(set(train[0].numbers.tolist())))
    found["clusters"] = kept("clusters", lambda: probes.clusters(train[0].numbers, 50, rng))
    if name == "3bpa":
        found |= {f"{kelvin} K": read(BPA / f"bpa_md_{kelvin}K.npz") for kelvin in (600, 1200)}
    for kelvin in HOT.get(name, ()):
        found[f"{kelvin} K"] = kept(f"{kelvin} K", lambda kelvin=kelvin: hot(few, kelvin, kept.engine))
    return Case(name, train, found)


def hot(starts: list[Structure], temperature: float, engine: Labeller, frames: int = 15) -> list[Structure]:
    """Frames of Langevin dynamics with the engine, every 20 fs after 100 fs, from each start."""
    found = []
    for number, start in enumerate(starts):
        atoms = bare(start).to_atoms()
        atoms.calc = LabellerCalculator(engine)
        mover = Integrator(atoms, Conditions("langevin", temperature, tau=50.0, seed=number))
        for step in range(1, 200 + 40 * frames):
            mover.step()
            if step >= 200 and step % 40 == 0:
                found.append(
                    bare(Structure.from_atoms(atoms.copy(), f"{temperature:g} K, start {number}, step {step}"))
                )
    return found


def _silicon(kept: Kept) -> Case:
    train = Dataset(
        [
            *kept("train 300 K", lambda: silicon.dynamics(300.0, 150, kept.engine, 0)),
            *kept("train 600 K", lambda: silicon.dynamics(600.0, 150, kept.engine, 1)),
        ],
        "silicon",
    )
    rng = np.random.default_rng(0)
    inside = [kept(f"test {t} K", lambda t=t: silicon.dynamics(t, 40, kept.engine, t)) for t in (300, 600)]
    found = {INSIDE: Dataset.concatenate(inside)}
    found["scaled"] = kept("scaled", lambda: probes.scaled(list(train[:2])))
    found["displaced"] = kept("displaced", lambda: probes.displaced(list(train[:4]), rng))
    for name, make in (("defects", silicon.defects), ("surfaces", silicon.surfaces), ("phases", silicon.phases)):
        found[name] = kept(name, lambda make=make: make(rng))
    found["melt"] = kept("melt", lambda: silicon.liquid(30, kept.engine, 2))
    return Case("silicon", train, found)
