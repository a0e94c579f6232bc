"""Formats that ASE reads: extended xyz, trajectories, databases.  ASE is imported only when one of them is read."""

from __future__ import annotations

import re
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equibayes.data.files import foreign_reader, one_line, require_file, text_lines
from equibayes.data.labels import AseFrame, find_keys, to_structure
from equibayes.data.parsed import FileUnits, LabelKeys, Parsed
from equibayes.data.structures import ISOLATED_ATOM
from equibayes.errors import InputError, InputWarning
from equibayes.plural import counted

if TYPE_CHECKING:
    from ase import Atoms

_BY_ASE = FileUnits(origin="ASE's convention")
_ASSUMED = FileUnits(origin="assumed; name others with energy_unit (--energy-unit), length_unit, …")
_DAMAGED = "the file is damaged or cut short: write or download it again"

# ASE requires nine values under these names and fails on Voigt's six, so they are renamed until ASE has read them.
_STRESS_WORD = re.compile(r"(^|\s)(stress|virials?)(\s*=)")
_DISGUISE = "equibayes_"


def parse_extxyz(path: Path, keys: LabelKeys, file: str) -> Parsed:
    """Extended xyz, plain or gzipped.

    The file is cut into frames here, each then read by ASE on its own: so an error is reported with its frame, and a
    count that does not match its rows is distinguished from other damage.
    """
    require_file(path)
    lines = list(text_lines(path))
    frames = [read_frame(each, index, file) for index, each in enumerate(cut_into_frames(lines, file))]
    return _finish(frames, keys, file, "extended xyz", _ASSUMED)


def read_frame(lines: list[str], index: int, file: str) -> AseFrame:
    """One frame of extended xyz, read by ASE."""
    from ase.io.extxyz import key_val_str_to_dict, read_xyz

    def parser(comment: str) -> Any:
        return key_val_str_to_dict(_STRESS_WORD.sub(rf"\1{_DISGUISE}\2\3", comment))

    source = f"{file}, frame {index}"
    with foreign_reader(source, f"check its comment line and its {lines[0].strip()} rows (frames count from 0)"):
        (atoms,) = read_xyz(StringIO("\n".join(lines) + "\n"), slice(None), properties_parser=parser)
        return _from_atoms(atoms, _plain_keys(atoms.info), source)


def cut_into_frames(lines: Iterable[str], file: str) -> Iterator[list[str]]:
    """Lines of each frame: a count, a comment, as many rows as counted, cell vectors of ADF's dialect."""
    found, rest = 0, iter(lines)
    line = next(rest, None)
    while line is not None:
        if not line.strip():  # blank lines between frames, and at the end
            line = next(rest, None)
            continue
        where = f"{file}, frame {found}"
        word = line.strip()
        if not (word.isascii() and word.isdigit()):
            told = "the count of the frame before does not match its rows" if found else "not an xyz file"
            raise InputError(f"{where}: begins with '{one_line(word, 40)}' instead of an atom count; {told}")
        count = int(word) if len(word) < 12 else 10**12
        if count == 0:
            raise InputError(f"{where}: has no atoms; remove the frame")
        frame = [line, *islice(rest, 1 + count)]
        rows = frame[2:]
        if len(rows) < count or not rows[-1].strip():
            n = sum(bool(row.strip()) for row in rows)
            raise InputError(
                f"{where}: {counted(word, 'atom')} announced, {n} rows there; cut short or count wrong: write it again"
            )
        line = next(rest, None)
        while line is not None and line.lstrip().startswith("VEC"):
            frame.append(line)
            line = next(rest, None)
        yield frame
        found += 1


def _plain_keys(info: dict[str, Any]) -> dict[str, Any]:
    return {str(key).removeprefix(_DISGUISE): value for key, value in info.items()}


def parse_traj(path: Path, keys: LabelKeys, file: str) -> Parsed:
    """ASE trajectory (.traj)."""
    from ase.io.trajectory import TrajectoryReader

    require_file(path)
    frames = []
    with foreign_reader(file, "not an ASE trajectory, or damaged: write it again"):
        reader = TrajectoryReader(str(path))
        count = len(reader)
    with reader:
        for index in range(count):
            source = f"{file}, frame {index}"
            with foreign_reader(source, _DAMAGED):
                atoms = reader[index]
                frames.append(_from_atoms(atoms, dict(atoms.info), source))
    return _finish(frames, keys, file, "ASE trajectory", _BY_ASE)


def parse_db(path: Path, keys: LabelKeys, file: str) -> Parsed:
    """ASE database, sqlite (.db) or JSON (.json); rows in the order of their ids are the frames 0, 1, …"""
    from ase.db import connect

    require_file(path)
    if path.suffix == ".db":
        _require_ase_tables(path, file)
    frames = []
    with foreign_reader(file, "not an ASE database, or damaged: write it again"):
        # No lock file: reading must not write next to the user's data.
        database = connect(str(path), type=path.suffix[1:], use_lock_file=False)
        rows = list(database.select(sort="id"))
    for index, row in enumerate(rows):
        source = f"{file}, frame {index}"
        with foreign_reader(source, _DAMAGED):
            frames.append(_from_atoms(row.toatoms(), {**row.key_value_pairs, **row.data}, source))
    return _finish(frames, keys, file, "ASE database", _BY_ASE)


def parse_other(path: Path, keys: LabelKeys, file: str) -> Parsed:
    """Whatever else ASE reads: POSCAR, CIF, …"""
    from ase.io import read

    require_file(path)
    frames = []
    with foreign_reader(file, "give extended xyz, POSCAR, CIF or another file that ASE reads, with its usual name"):
        images = read(str(path), ":", do_not_split_by_at_sign=True)
    for index, atoms in enumerate(images):
        source = f"{file}, frame {index}"
        with foreign_reader(source, _DAMAGED):
            frames.append(_from_atoms(atoms, dict(atoms.info), source))
    return _finish(frames, keys, file, "read by ASE", _BY_ASE)


def _require_ase_tables(path: Path, file: str) -> None:
    """Stop before ASE opens a database that is not its own: it would create its tables in it."""
    with foreign_reader(file, "not an sqlite database, or damaged: write it again"):
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        finally:
            connection.close()
    if "systems" not in tables:
        raise InputError(f"{file}: an sqlite database without ASE's table 'systems'; write it with ase.db")


def _from_atoms(atoms: Atoms, info: dict[str, Any], source: str) -> AseFrame:
    # The results themselves, not atoms.get_forces(): that zeroes the forces on constrained atoms.
    results = dict(getattr(atoms.calc, "results", None) or {})
    arrays = dict(atoms.arrays)
    geometry = (atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc)
    return AseFrame(*geometry, info, arrays, results, source, tuple(atoms.constraints))


def _finish(frames: list[AseFrame], keys: LabelKeys, file: str, what: str, units: FileUnits) -> Parsed:
    if not frames:
        raise InputError(f"{file}: holds no frames; write or download it again")
    found, hints = find_keys(frames, keys, file)
    _warn_of_charges(frames, file)
    return Parsed([to_structure(frame, found) for frame in frames], what, found, hints, units)


def _warn_of_charges(frames: list[AseFrame], file: str) -> None:
    """The network sees elements and positions; frames that differ in charge or spin look the same to it.

    Free atoms (config_type=IsolatedAtom) may have any spin but must be neutral.
    """
    for key in ("charge", "total_charge", "spin", "multiplicity"):
        is_charge = "charge" in key
        first: dict[str, str] = {}  # value: the frame that has it first
        for frame in frames:
            free = frame.info.get("config_type") == ISOLATED_ATOM
            value = frame.info.get(key, 0 if is_charge else None)  # no charge given means a charge of 0
            if value is None or (free and (value == 0 or not is_charge)):
                continue
            told = f"{float(value):g}" if isinstance(value, (int, float)) else one_line(str(value), 20)
            first.setdefault(told, frame.source.rpartition(", ")[2])
        if len(first) > 1:
            values = ", ".join(f"{value} in {where}" for value, where in list(first.items())[:3])
            told = f"{file}: frames differ in '{key}' ({values}); the network cannot tell them apart"
            warnings.warn(f"{told}: keep them in different files", InputWarning, stacklevel=2)
