"""One labelled arrangement of atoms, in eV and Å."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from equibayes.data.stress import full_to_voigt, stress_from
from equibayes.errors import InputError

if TYPE_CHECKING:
    from ase import Atoms

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

ISOLATED_ATOM = "IsolatedAtom"
"""The `config_type` of a frame that gives the energy of a free atom."""
WEIGHT_KEY, NOISE_KEY = "config_weight", "config_noise"
"""Where files keep weight and noise of a frame; without them the weight is 1 and the noise 0."""


@dataclass(frozen=True, eq=False)
class Structure:
    """Atoms, their cell and their labels.  Treat the arrays as read-only: fingerprints depend on them.

    Attributes
    ----------
    numbers: [n] int64, atomic numbers.
    positions: [n, 3] float64, Å.
    cell: [3, 3] float64, Å, one lattice vector per row; zeros where there is none.
    pbc: [3] bool, periodic along each lattice vector.
    energy: eV, or None where there is no label.
    forces: [n, 3] float64, eV/Å, or None.
    stress: [3, 3] float64, eV/Å³, ASE's sign (positive under tension), or None.
    config_type: a free word about the origin of the frame; "IsolatedAtom" marks free atoms.
    source: where it came from, such as "file.xyz, frame 12"; frames are numbered from 0.
    masses: [n] float64, u, or None for those of the elements.
    momenta: [n, 3] float64, in ASE's units, or None.
    constraints: ASE's, which hold atoms in place.  These three matter for dynamics alone and are in no fingerprint.
    weight: multiplies the frame's log likelihood; 2 counts like the same frame given twice.
    noise: eV/Å, the known standard deviation of its force labels, such as those of a cheap engine; that of the energy
        of n atoms is √n Å times it, that of the stress √n Å/V.  0 for labels that are right.
    """

    numbers: IntArray
    positions: FloatArray
    cell: FloatArray = field(default_factory=lambda: np.zeros((3, 3)))
    pbc: BoolArray = field(default_factory=lambda: np.zeros(3, dtype=bool))
    energy: float | None = None
    forces: FloatArray | None = None
    stress: FloatArray | None = None
    config_type: str = ""
    source: str = ""
    masses: FloatArray | None = None
    momenta: FloatArray | None = None
    constraints: tuple[Any, ...] = ()
    weight: float = 1.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        where = self.source or "structure"
        # Bytes must be the same on every machine for the fingerprints, hence the exact dtypes.
        self._set("numbers", _array(self.numbers, np.int64, None, f"{where}: atomic numbers"))
        self._set("pbc", _array(self.pbc, np.bool_, (3,), f"{where}: pbc"))
        per_atom = (len(self.numbers), 3)
        shapes = {"positions": per_atom, "cell": (3, 3), "energy": (), "forces": per_atom, "stress": (3, 3)}
        shapes |= {"masses": per_atom[:1], "momenta": per_atom}
        for name, shape in shapes.items():
            if getattr(self, name) is not None:
                array = _array(getattr(self, name), np.float64, shape, f"{where}: {name}")
                self._set(name, float(array) if name == "energy" else array)

        self._set("weight", _from_zero_on(self.weight, WEIGHT_KEY, where))
        self._set("noise", _from_zero_on(self.noise, NOISE_KEY, where))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # set despite the frozen dataclass, during construction only

    def __len__(self) -> int:
        """Number of atoms."""
        return len(self.numbers)

    @property
    def volume(self) -> float:
        """Volume of the cell in Å³, 0 where there is none."""
        return float(abs(np.linalg.det(self.cell)))

    @property
    def stress_label(self) -> FloatArray | None:
        """The stress, where it can be learned: without three periodic directions it refers to no volume."""
        return self.stress if self.pbc.all() else None

    @property
    def composition(self) -> tuple[tuple[int, int], ...]:
        """Pairs of atomic number and count, in rising order: methane is ((1, 4), (6, 1))."""
        species, counts = np.unique(self.numbers, return_counts=True)
        return tuple(zip(species.tolist(), counts.tolist()))

    def geometry_digest(self) -> bytes:
        """32 bytes that are equal exactly where numbers, positions, cell and pbc are equal."""
        digest = hashlib.sha256()
        digest.update(self.numbers.astype("<i8").tobytes())
        # Adding zero turns -0.0 into 0.0: the same place.
        digest.update((self.positions + 0.0).astype("<f8").tobytes())
        digest.update((self.cell + 0.0).astype("<f8").tobytes())
        digest.update(self.pbc.tobytes())
        return digest.digest()

    def label_digest(self) -> bytes:
        """32 bytes over energy, forces, stress, weight and noise; a missing label differs from any value."""
        digest = hashlib.sha256()
        for label in (self.energy, self.forces, self.stress):
            digest.update(b"-" if label is None else b"+" + np.asarray(label, dtype="<f8").tobytes())
        if self.weight != 1.0:  # digests of frames without a weight are those of earlier versions
            digest.update(b"w" + np.asarray(self.weight, dtype="<f8").tobytes())
        if self.noise:
            digest.update(b"n" + np.asarray(self.noise, dtype="<f8").tobytes())
        return digest.digest()

    @classmethod
    def from_atoms(cls, atoms: Atoms, source: str = "") -> Structure:
        """From ASE atoms (eV, Å), with the labels their calculator already holds; nothing is computed.

        Arrays are copied: atoms that move on, and calculators that reuse their arrays, do not change the structure.
        `equibayes.data.read` is the way for files: it also searches `info` and `arrays` for labels.
        """
        results = deepcopy(dict(getattr(atoms.calc, "results", None) or {}))
        stress = results.get("stress")
        if stress is not None:
            stress = stress_from(stress, virial=False, volume=atoms.cell.volume, where=source or "structure")
        return cls(
            numbers=atoms.numbers.copy(),
            positions=atoms.positions.copy(),
            cell=atoms.cell.array.copy(),
            pbc=atoms.pbc.copy(),
            energy=results.get("energy"),
            # From the results, not from get_forces(): that would zero the forces on constrained atoms.
            forces=results.get("forces"),
            stress=stress,
            config_type=str(atoms.info.get("config_type", "")),
            source=source,
            masses=atoms.get_masses() if atoms.has("masses") else None,
            momenta=atoms.get_momenta() if atoms.has("momenta") else None,
            constraints=tuple(deepcopy(atoms.constraints)),
            weight=atoms.info.get(WEIGHT_KEY, 1.0),
            noise=atoms.info.get(NOISE_KEY, 0.0),
        )

    def to_atoms(self) -> Atoms:
        """As ASE atoms (eV, Å), labels in a `SinglePointCalculator`."""
        from ase import Atoms
        from ase.calculators.singlepoint import SinglePointCalculator

        atoms = Atoms(numbers=self.numbers, positions=self.positions, cell=self.cell, pbc=self.pbc, masses=self.masses)
        atoms.set_constraint(deepcopy(list(self.constraints)))
        if self.momenta is not None:
            atoms.set_momenta(self.momenta)
        if self.config_type:
            atoms.info["config_type"] = self.config_type
        if self.weight != 1.0:
            atoms.info[WEIGHT_KEY] = self.weight
        if self.noise:
            atoms.info[NOISE_KEY] = self.noise
        results: dict[str, Any] = {"energy": self.energy, "forces": self.forces}
        if self.stress is not None:
            results["stress"] = full_to_voigt(self.stress)
        results = {name: value for name, value in results.items() if value is not None}
        if results:
            atoms.calc = SinglePointCalculator(atoms, **results)
        return atoms


def _from_zero_on(value: Any, key: str, where: str) -> float:
    """A finite number, not negative."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 <= number < float("inf"):
        raise InputError(f"{where}: {key} is {value}, not a number from 0 on; correct or remove it")
    return number


def _array(value: Any, dtype: Any, shape: tuple[int, ...] | None, what: str) -> npt.NDArray[Any]:
    """A C-ordered copy-if-needed of exact dtype and shape; `shape` None asks for one axis of any length."""
    try:
        raw = np.asarray(value)
        array = np.ascontiguousarray(raw, dtype=dtype).reshape(raw.shape)
        if not array.flags.writeable:  # a view of shared data; torch complains about those
            array = array.copy()
    except (TypeError, ValueError, OverflowError) as cause:
        raise InputError(f"{what}: not numbers; look at the file with a text editor") from cause
    if raw.dtype.kind not in "biuf":
        raise InputError(f"{what}: of type {raw.dtype}, not real numbers; look at the file with a text editor")
    if shape == () and array.size == 1:
        array = array.reshape(())  # files write a single energy as a list of one
    if shape is None and array.ndim != 1:
        raise InputError(f"{what}: of shape {array.shape} where one value per atom is needed")
    if shape is not None and array.shape != shape:
        raise InputError(f"{what}: of shape {array.shape} where {shape} is needed; atom counts differ")
    if dtype is np.int64 and raw.dtype.kind == "f" and not np.array_equal(array, raw):
        raise InputError(f"{what}: not whole numbers")
    return array
