"""Extended xyz that gives every bit back: a structure must be recognised by its geometry after it was written and read.

ASE's writer keeps eight decimals.  Labels stand under REF_energy, REF_forces and REF_stress, as the reader of data files expects.
"""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from equibayes.data.dataset import Dataset
from equibayes.data.elements import symbol
from equibayes.data.read import read
from equibayes.data.structures import Structure
from equibayes.errors import InputWarning
from equibayes.files import write_text


def write_exact(path: str | Path, structures: Iterable[Structure]) -> None:
    """Write all frames; the file is whole or not there."""
    write_text(path, "".join(_frame(structure) for structure in structures))


def read_exact(path: str | Path) -> Dataset:
    """Read them back, in order, with whatever labels they have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # who gave the structures was told when they were first read
        return read(path, require_labels=False)


def _frame(structure: Structure) -> str:
    columns, names = [structure.positions], ["species:S:1:pos:R:3"]
    if structure.forces is not None:
        columns.append(structure.forces)
        names.append("REF_forces:R:3")
    words = [f"Properties={':'.join(names)}", f'pbc="{" ".join("FT"[int(p)] for p in structure.pbc)}"']
    if structure.cell.any():
        words.insert(0, f'Lattice="{_numbers(structure.cell.ravel())}"')
    if structure.energy is not None:
        words.append(f"REF_energy={_number(structure.energy)}")
    if structure.stress is not None:
        words.append(f'REF_stress="{_numbers(structure.stress.ravel())}"')
    if structure.config_type:
        words.append(f'config_type="{_quoted(structure.config_type)}"')
    if structure.source:
        words.append(f'from="{_quoted(structure.source)}"')
    values = np.concatenate(columns, axis=1)
    atoms = (f"{symbol(int(z))} {_numbers(row)}\n" for z, row in zip(structure.numbers, values))
    return f"{len(structure)}\n{' '.join(words)}\n{''.join(atoms)}"


def _numbers(values: Sequence[float] | np.ndarray) -> str:
    return " ".join(map(_number, values))


def _number(value: float) -> str:
    return repr(float(value))  # the shortest text that reads back as the same number


def _quoted(text: str) -> str:
    return " ".join(text.replace("\\", "/").replace('"', "'").split())
