"""Small files of every format, made on the spot."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.db import connect
from ase.io import write

from tests.data.water_frames import water


@pytest.fixture(scope="session")
def frames() -> list[Atoms]:
    return [water(seed) for seed in range(4)]


@pytest.fixture
def write_as(tmp_path: Path) -> Callable[[list[Atoms], str], Path]:
    """Write frames in the format that the ending of the file name says."""

    def to_file(images: list[Atoms], name: str) -> Path:
        path = tmp_path / name
        if name.endswith((".db", ".json")):
            with connect(path) as database:
                for atoms in images:
                    database.write(atoms)
        elif name.endswith(".gz"):
            plain = path.with_suffix("")
            write(plain, images, format="extxyz")
            path.write_bytes(gzip.compress(plain.read_bytes()))
        elif name.endswith(".npz"):
            labels = [atoms.calc.results for atoms in images]
            np.savez(
                path,
                z=images[0].numbers,
                R=np.array([atoms.positions for atoms in images]),
                E=np.array([label["energy"] for label in labels]),
                F=np.array([label["forces"] for label in labels]),
            )
        else:
            write(path, images, format="traj" if name.endswith(".traj") else "extxyz")
        return path

    return to_file
