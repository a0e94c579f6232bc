"""Arrays in numpy's npz files: revised MD17, the sGDML kind, and our own.  Pickles are never loaded."""

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from equibayes.data.dataset import FORMAT_KEY
from equibayes.data.files import check_archive, foreign_reader, one_line, require_file
from equibayes.data.parsed import FileUnits, LabelKeys, Parsed
from equibayes.data.stress import is_virial, stress_from
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.plural import counted

Arrays = dict[str, npt.NDArray[Any]]

_RMD17 = {"numbers": "nuclear_charges", "positions": "coords", "energy": "energies", "forces": "forces"}
_SGDML = {"numbers": "z", "positions": "R", "energy": "E", "forces": "F"}


def load_arrays(path: Path, file: str) -> Arrays:
    """Every array of an npz file; object arrays (pickles) are refused."""
    require_file(path)
    if zipfile.is_zipfile(path):  # a single array (npy) is not
        check_archive(path, file)
    remedy = "not an npz file, damaged, or with pickled objects: write plain arrays with numpy.savez"
    with foreign_reader(file, remedy), np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
        strays = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
        if strays:  # numpy returns a member of the zip that is not an array as raw bytes
            raise ValueError(f"{strays[0]} is not an array")
        return arrays


def is_ours(arrays: Arrays) -> bool:
    """Whether `Dataset.save_npz` wrote it."""
    return FORMAT_KEY in arrays


def parse_npz(arrays: Arrays, keys: LabelKeys, file: str) -> Parsed:
    """Structures from the arrays of an rMD17 or sGDML file."""
    if "nuclear_charges" in arrays and "coords" in arrays:
        names, what = _RMD17, "revised MD17 npz"
        units = FileUnits("kcal/mol", "Ang", origin="by the definition of the rMD17 archive")
    elif "z" in arrays and "R" in arrays:
        names, what = _SGDML, "sGDML npz"
        units = _sgdml_units(arrays, file)
    else:
        listed = one_line(", ".join(arrays)) or "none"
        raise InputError(
            f"{file}: arrays {listed} are of no known kind; needed: z, R, E, F or "
            "nuclear_charges, coords, energies, forces"
        )
    found = _label_names(arrays, names, keys, file)
    notes = []
    if words := _text(arrays, "units", file):  # shown, not interpreted
        notes.append(f"the file says about its units: {words}")
    return Parsed(_structures(arrays, names, found, file), what, found, _hints(arrays, found), units, notes)


def _label_names(arrays: Arrays, names: dict[str, str], keys: LabelKeys, file: str) -> dict[str, str]:
    """Which array holds which label."""
    found = {label: names[label] for label in ("energy", "forces") if names[label] in arrays}
    if stress := next((key for key in ("stress", "virial", "virials") if key in arrays), None):
        found["stress"] = stress
    for label, key in keys.named().items():
        if key not in arrays:
            raise InputError(f"{file}: no array '{key}' for the {label} key; there are: {one_line(', '.join(arrays))}")
        found[label] = key
    return found


def _hints(arrays: Arrays, found: dict[str, str]) -> dict[str, str]:
    hints = {}
    for label, words in (("energy", ("energ",)), ("forces", ("force", "grad"))):
        near = [key for key in arrays if any(word in key.lower() for word in words) and key not in found.values()]
        if label not in found and near:
            hints[label] = f"found array '{near[0]}': pass {label}_key={near[0]} (--{label}-key {near[0]})"
    return hints


def _structures(arrays: Arrays, names: dict[str, str], found: dict[str, str], file: str) -> list[Structure]:
    """Check that all arrays describe the same frames and atoms, then split them into frames."""
    positions = _numeric(arrays[names["positions"]], f"{file}: array '{names['positions']}'")
    if positions.ndim == 2:
        positions = positions[None]
    if positions.ndim != 3 or positions.shape[2] != 3:
        raise InputError(f"{file}: array '{names['positions']}' has shape {positions.shape}; give (frames, atoms, 3)")
    frames, atoms = positions.shape[:2]
    if frames == 0 or atoms == 0:
        raise InputError(f"{file}: holds no frames; write or download it again")

    def each_frame(key: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The array as [frames, *shape]; one that is given once is used for all frames."""
        array = _numeric(arrays[key], f"{file}: array '{key}'")
        if array.shape == shape and key in (names["numbers"], "cell", "lattice", "pbc"):
            return np.broadcast_to(array, (frames, *shape))
        if array.size == frames * int(np.prod(shape)) and array.shape[:1] == (frames,):
            return array.reshape(frames, *shape)
        if shape == () and array.size == 1 == frames:
            return array.reshape(1)
        raise InputError(
            f"{file}: array '{key}' of shape {array.shape} does not match {counted(frames, 'frame')} of {counted(atoms, 'atom')} in "
            f"'{names['positions']}'; all arrays must describe the same frames and atoms"
        )

    numbers = each_frame(names["numbers"], (atoms,))
    shapes: dict[str, tuple[int, ...]] = {"energy": (), "forces": (atoms, 3)}
    labels = {label: each_frame(found[label], shapes[label]) for label in shapes if label in found}
    cell = np.zeros((frames, 3, 3))
    if "cell" in arrays:
        cell = each_frame("cell", (3, 3))
    elif "lattice" in arrays:  # sGDML: one lattice vector per column
        cell = each_frame("lattice", (3, 3)).transpose(0, 2, 1)
    if "pbc" in arrays:
        pbc = each_frame("pbc", (3,)).astype(bool)
    else:  # a cell means periodic, as in extended xyz
        pbc = np.repeat(np.asarray(cell.any(axis=(1, 2)))[:, None], 3, axis=1)
    structures = [
        Structure(
            numbers=numbers[i],
            positions=positions[i],
            cell=cell[i],
            pbc=pbc[i],
            source=f"{file}, frame {i}",
            **{label: values[i] for label, values in labels.items()},
        )
        for i in range(frames)
    ]
    if "stress" not in found:
        return structures
    six = arrays[found["stress"]].size == 6 * frames
    stresses = each_frame(found["stress"], (6,) if six else (3, 3))
    virial = is_virial(found["stress"])
    return [
        replace(s, stress=stress_from(each, virial=virial, volume=s.volume, where=s.source))
        for s, each in zip(structures, stresses)
    ]


def _numeric(array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what} is of type {one_line(array.dtype, 40)}, not real numbers; write those")
    return array


def _sgdml_units(arrays: Arrays, file: str) -> FileUnits:
    """Files from the sGDML site name their units in r_unit and e_unit; others are assumed to be eV and Å."""
    energy, length = _text(arrays, "e_unit", file), _text(arrays, "r_unit", file)
    if not energy and not length:
        return FileUnits(origin="assumed; name others with energy_unit (--energy-unit), length_unit, …")
    return FileUnits(energy or "eV", length or "Ang", origin="named in the file")


def _text(arrays: Arrays, key: str, file: str) -> str:
    """A text kept as a 0-d array of characters or of bytes, as one line; empty if it is not there."""
    with foreign_reader(file, f"its array '{key}' is damaged: write it again"):  # bytes that are not characters
        for value in arrays[key].reshape(-1)[:1].tolist() if key in arrays else ():
            return one_line(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
    return ""
