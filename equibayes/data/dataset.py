"""A list of structures with a name, and its fast form on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.notebook import html_table
from equibayes.plural import counted

if TYPE_CHECKING:
    from equibayes.data.summary import Summary

FORMAT_KEY = "equibayes_dataset"
"""The array that marks an npz file as one of ours; it holds the version of the format."""
FORMAT_VERSION = 1


@dataclass(frozen=True)
class ReadReport:
    """What the reader found: shown in the summary, kept with the data.

    `keys` names where each of energy, forces, stress was found (absent: nowhere).  `units` names the unit each of
    energy, length, force and, where there is one, stress had in the file; `units_origin` says how that is known.
    `hints` says where energy or forces that were not found may be.
    """

    format: str
    keys: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    units_origin: str = ""
    notes: tuple[str, ...] = ()
    hints: dict[str, str] = field(default_factory=dict)


class Dataset(Sequence[Structure]):
    """A sequence of `Structure` in eV and Å.

    Attributes
    ----------
    name: what messages call it, such as "rmd17_ethanol.npz@train_01".
    isolated_atoms: energy in eV of a free atom by atomic number, from frames with config_type=IsolatedAtom;
        those frames are not among the structures.
    report: what the reader found, None for a set made by hand.
    specs: files, with the parts of them, that `read` gives the whole set again from; empty where that is not known.
    """

    def __init__(
        self,
        structures: Iterable[Structure],
        name: str = "",
        isolated_atoms: dict[int, float] | None = None,
        report: ReadReport | None = None,
        specs: tuple[str, ...] = (),
    ) -> None:
        self.structures = tuple(structures)
        self.name = name
        self.isolated_atoms = dict(isolated_atoms or {})
        self.report = report
        self.specs = specs

    def __len__(self) -> int:
        return len(self.structures)

    @overload
    def __getitem__(self, index: int) -> Structure: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Structure | Dataset:
        if isinstance(index, slice):
            return Dataset(self.structures[index], self.name, self.isolated_atoms, self.report)
        return self.structures[index]

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {counted(len(self), 'frame')})"

    @property
    def species(self) -> tuple[int, ...]:
        """Atomic numbers that occur, rising."""
        return tuple(sorted({int(z) for structure in self.structures for z in np.unique(structure.numbers)}))

    @property
    def n_atoms(self) -> npt.NDArray[np.int64]:
        """[frames] number of atoms of each structure."""
        return np.array([len(structure) for structure in self.structures], dtype=np.int64)

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """[frames] weight of each structure in the likelihood."""
        return np.array([structure.weight for structure in self.structures], dtype=np.float64)

    @property
    def noises(self) -> npt.NDArray[np.float64]:
        """[frames] known noise of the force labels, eV/Å."""
        return np.array([structure.noise for structure in self.structures], dtype=np.float64)

    @property
    def right(self) -> Dataset:
        """Without the frames whose labels have a known noise; all, where that leaves none."""
        kept = np.flatnonzero(self.noises == 0)
        return self if len(kept) in (0, len(self)) else self.subset(kept)

    @property
    def labelled(self) -> bool:
        """Whether any structure has an energy, forces or a stress that can be learned."""
        return any(s.energy is not None or s.forces is not None or s.stress_label is not None for s in self)

    @property
    def weighted(self) -> bool:
        """Whether any weight is not 1."""
        return any(structure.weight != 1.0 for structure in self.structures)

    def subset(self, indices: npt.ArrayLike, name: str | None = None) -> Dataset:
        """The structures at these indices, in this order; an index outside the set is an `InputError`."""
        chosen = np.asarray(indices)
        if chosen.size == 0:
            chosen = chosen.astype(np.int64)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise InputError(f"{self.name}: a subset needs a list of whole numbers, not {chosen.dtype} {chosen.shape}")
        outside = chosen[(chosen < -len(self)) | (chosen >= len(self))]
        if outside.size:
            raise InputError(f"{self.name}: no frame {outside[0]}; there are {len(self)}, numbered from 0")
        picked = (self.structures[i] for i in chosen.tolist())
        return Dataset(picked, self.name if name is None else name, self.isolated_atoms, self.report)

    def noted(self, *notes: str) -> Dataset:
        """The same with notes for its reader, which its summary and the report of a posterior show."""
        report = self.report or ReadReport("")
        noted = replace(report, notes=(*report.notes, *notes))
        return Dataset(self, self.name, self.isolated_atoms, noted, self.specs)

    @classmethod
    def concatenate(cls, parts: Sequence[Dataset], name: str | None = None) -> Dataset:
        """Several sets one after another.  Free-atom energies must agree where two sets give them."""
        isolated: dict[int, float] = {}
        for part in parts:
            for number, energy in part.isolated_atoms.items():
                if abs(isolated.setdefault(number, energy) - energy) > 1e-6:
                    raise InputError(
                        f"{part.name}: free-atom energy of element {number} is {energy} eV, another set says "
                        f"{isolated[number]} eV; sets from different methods do not mix"
                    )
        reports = [part.report for part in parts if part.report is not None]
        report = reports[0] if reports and all(r == reports[0] for r in reports) else None
        joined = " + ".join(part.name for part in parts)
        specs = tuple(spec for part in parts for spec in part.specs) if all(part.specs for part in parts) else ()
        return cls((s for part in parts for s in part), joined if name is None else name, isolated, report, specs)

    def fingerprint(self) -> str:
        """sha256 (hex) over the exact numbers, positions, cells, pbc and labels in order; the same on every machine."""
        digest = hashlib.sha256(b"equibayes dataset 1")
        for structure in self.structures:
            digest.update(structure.geometry_digest())
            digest.update(structure.label_digest())
        return digest.hexdigest()

    def summary(self) -> Summary:
        """Counts, units and ranges; `str()` of it is plain text, `.to_dict()` is for JSON."""
        from equibayes.data.summary import summarize

        return summarize(self)

    def _repr_html_(self) -> str:
        return html_table(self.summary().lines())

    def save_npz(self, path: str | Path) -> None:
        """Write to one npz file that numpy alone reads back, without pickles; `read` knows it too."""
        with open(path, "wb") as file:  # an open file, since numpy would append .npz to other names
            np.savez(file, allow_pickle=False, **_to_arrays(self))


def _to_arrays(data: Dataset) -> dict[str, npt.NDArray[Any]]:
    """Frames one after another; missing labels are zeros, marked in a mask."""
    structures = data.structures
    nothing = np.zeros((0, 3))
    no_stress = np.zeros((3, 3))
    texts = {
        "name": data.name,
        "config_type": [s.config_type for s in structures],
        "source": [s.source for s in structures],
        "report": None if data.report is None else asdict(data.report),
    }
    weights = {} if not data.weighted else {"weight": data.weights}
    if data.noises.any():
        weights["noise"] = data.noises
    return {
        **weights,
        FORMAT_KEY: np.array(FORMAT_VERSION),
        "n_atoms": data.n_atoms,
        "numbers": np.concatenate([np.zeros(0, np.int64), *(s.numbers for s in structures)]),
        "positions": np.concatenate([nothing, *(s.positions for s in structures)]),
        "cell": np.array([s.cell for s in structures]).reshape(-1, 3, 3),
        "pbc": np.array([s.pbc for s in structures], dtype=bool).reshape(-1, 3),
        "energy": np.array([0.0 if s.energy is None else s.energy for s in structures], dtype=np.float64),
        "has_energy": np.array([s.energy is not None for s in structures], dtype=bool),
        "forces": np.concatenate([nothing, *(s.forces for s in structures if s.forces is not None)]),
        "has_forces": np.array([s.forces is not None for s in structures], dtype=bool),
        "stress": np.array([no_stress if s.stress is None else s.stress for s in structures]).reshape(-1, 3, 3),
        "has_stress": np.array([s.stress is not None for s in structures], dtype=bool),
        "isolated_numbers": np.array(list(data.isolated_atoms), dtype=np.int64),
        "isolated_energies": np.array(list(data.isolated_atoms.values()), dtype=np.float64),
        # Text as JSON bytes: numpy's fixed-width text takes four bytes per letter of the longest line.
        "texts": np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8),
    }


def from_arrays(arrays: dict[str, npt.NDArray[Any]]) -> Dataset:
    """The inverse of `save_npz`, given its arrays."""
    version = int(arrays[FORMAT_KEY])
    if version > FORMAT_VERSION:
        raise InputError(f"written by a newer equibayes (format {version}); update equibayes")
    texts = json.loads(arrays["texts"].tobytes().decode())
    ends = np.cumsum(arrays["n_atoms"])
    force_ends = np.cumsum(np.where(arrays["has_forces"], arrays["n_atoms"], 0))
    structures = []
    for i, (end, force_end, n) in enumerate(zip(ends.tolist(), force_ends.tolist(), arrays["n_atoms"].tolist())):
        structures.append(
            Structure(
                numbers=arrays["numbers"][end - n : end],
                positions=arrays["positions"][end - n : end],
                cell=arrays["cell"][i],
                pbc=arrays["pbc"][i],
                energy=float(arrays["energy"][i]) if arrays["has_energy"][i] else None,
                forces=arrays["forces"][force_end - n : force_end] if arrays["has_forces"][i] else None,
                stress=arrays["stress"][i] if arrays["has_stress"][i] else None,
                config_type=str(texts["config_type"][i]),
                source=str(texts["source"][i]),
                weight=float(arrays["weight"][i]) if "weight" in arrays else 1.0,
                noise=float(arrays["noise"][i]) if "noise" in arrays else 0.0,
            )
        )
    report = texts["report"] and ReadReport(**{**texts["report"], "notes": tuple(texts["report"]["notes"])})
    isolated = dict(zip(arrays["isolated_numbers"].tolist(), arrays["isolated_energies"].tolist()))
    return Dataset(structures, texts["name"], isolated, report)
