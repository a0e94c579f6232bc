"""From a file to a `Dataset` in eV and Å: find the format, the labels, the units; check; say what was found."""

from dataclasses import replace
from pathlib import Path

from equibayes import units
from equibayes.data.checks import check_labels, check_structures
from equibayes.data.dataset import Dataset, ReadReport, from_arrays
from equibayes.data.elements import symbol
from equibayes.data.files import foreign_reader, one_line, require_file
from equibayes.data.npz import Arrays, is_ours, load_arrays, parse_npz
from equibayes.data.parsed import FileUnits, LabelKeys, Parsed
from equibayes.data.plausibility import warn_if_implausible
from equibayes.data.specs import Spec, absolute, parse_spec, select
from equibayes.data.stress import is_virial
from equibayes.data.structures import ISOLATED_ATOM, Structure
from equibayes.errors import InputError
from equibayes.plural import counted

XYZ = (".xyz", ".extxyz", ".xyz.gz", ".extxyz.gz")
EXTENSIONS = (*XYZ, ".npz", ".traj", ".db", ".json")


def read(
    spec: str | Path,
    *,
    energy_key: str | None = None,
    forces_key: str | None = None,
    stress_key: str | None = None,
    energy_unit: str | None = None,
    length_unit: str | None = None,
    force_unit: str | None = None,
    stress_unit: str | None = None,
    require_labels: bool = True,
    other_formats: bool = False,
) -> Dataset:
    """Read labelled structures.

    Parameters
    ----------
    spec: `file`, `file@0:500`, `file@::10`, `file@train_01` (from `<stem>.splits.npz`, `<stem>.splits.json` or, for
        rMD17, `splits_<molecule>.npz` next to the file), `file@splitfile:name`, or `bundled:ethanol@train`.  Frames are
        numbered from 0 in the order of the file.
    energy_key, forces_key, stress_key: keys of the labels, if not the usual ones.
    energy_unit, length_unit, force_unit, stress_unit: units of the file if not eV and Å (see `equibayes.units`);
        those of force and stress follow from the other two unless they are given.  A virial is an energy.
    require_labels: stop unless every frame has an energy and forces.
    other_formats: also read POSCAR, CIF and whatever else ASE reads.

    Frames with config_type=IsolatedAtom are removed from the frames and become `Dataset.isolated_atoms`.

    Raises `InputError` with file, frame and remedy; warns with `InputWarning` about readable input that looks wrong.
    """
    target = parse_spec(spec)
    keys = LabelKeys(energy_key, forces_key, stress_key)
    told_units = (energy_unit, length_unit, force_unit, stress_unit)
    require_file(target.path)
    arrays = load_arrays(target.path, target.file) if target.path.name.lower().endswith(".npz") else None
    if arrays is not None and is_ours(arrays):
        if keys.named() or any(told_units):
            raise InputError(f"{target.file}: saved by equibayes, already in eV and Å; leave out key and unit options")
        data = _read_ours(arrays, target, require_labels)
    else:
        parsed = parse_npz(arrays, keys, target.file) if arrays is not None else _parse(target, keys, other_formats)
        data = _finish(parsed, target, told_units, require_labels)
    warn_if_implausible(data)
    data.specs = (absolute(target),)
    return data


def bundled_ethanol(split: str | None = None) -> Dataset:
    """The bundled 2000 frames of rMD17 ethanol; `split` is train, test or a range such as "0:100"."""
    return read("bundled:ethanol" if split is None else f"bundled:ethanol@{split}")


def _parse(target: Spec, keys: LabelKeys, other_formats: bool) -> Parsed:
    """Choose the reader by the extension."""
    from equibayes.data import ase_formats

    name = target.path.name.lower()
    if name.endswith(XYZ):
        return ase_formats.parse_extxyz(target.path, keys, target.file)
    if name.endswith(".traj"):
        return ase_formats.parse_traj(target.path, keys, target.file)
    if name.endswith((".db", ".json")):
        return ase_formats.parse_db(target.path, keys, target.file)
    if other_formats:
        return ase_formats.parse_other(target.path, keys, target.file)
    raise InputError(f"{one_line(target.path)}: unknown extension; readable are {', '.join(EXTENSIONS)}")


def _read_ours(arrays: Arrays, target: Spec, require_labels: bool) -> Dataset:
    """What `Dataset.save_npz` wrote.  Its frames name the files they came from, so errors name this file too."""
    with foreign_reader(target.file, "damaged: save it again"):
        try:
            whole = from_arrays(arrays)
        except InputError as error:
            raise InputError(f"{target.file}: {error}") from None
    data = whole.subset(select(target, len(whole)), target.name)
    try:
        if require_labels:
            check_labels(data.structures, whole.report.keys if whole.report else {}, {}, target.file)
        check_structures(data.structures)
    except InputError as error:
        raise InputError(f"{target.file}: {error}") from error
    return data


def _finish(parsed: Parsed, target: Spec, told_units: tuple[str | None, ...], require_labels: bool) -> Dataset:
    """Select the requested part, separate the isolated atoms, convert, check."""
    try:
        in_file = settle_units(parsed.units, *told_units, stress_key=parsed.found.get("stress"))
    except InputError as error:  # the name may be the file's own
        raise InputError(f"{target.file}: {error}") from error
    chosen = [parsed.structures[i] for i in select(target, len(parsed.structures)).tolist()]
    kept = [s for s in chosen if s.config_type != ISOLATED_ATOM]
    if require_labels:
        check_labels(kept, parsed.found, parsed.hints, target.file)
    structures = convert(kept, in_file)
    check_structures(structures)
    atoms = _isolated_energies(convert([s for s in parsed.structures if s.config_type == ISOLATED_ATOM], in_file))
    origin, hints = _origin(parsed.units, told_units), {name: text for name, text in parsed.hints.items() if text}
    report = ReadReport(parsed.format, parsed.found, in_file, origin, tuple(parsed.notes), hints)
    return Dataset(structures, target.name, atoms, report)


def settle_units(
    default: FileUnits,
    energy: str | None,
    length: str | None,
    force: str | None,
    stress: str | None,
    *,
    stress_key: str | None,
) -> dict[str, str]:
    """The unit of each quantity in the file: what the user says, else what the format says; of stress, if it is there.

    stress_key: where the stress is, None if nowhere
    """
    chosen_energy = units.canonical("energy", energy or default.energy)
    chosen_length = units.canonical("length", length or default.length)
    chosen_force = force or (default.force if not (energy or length) else None)
    if chosen_force is None:
        chosen_force = units.force_unit_of(chosen_energy, chosen_length)
    chosen = {"energy": chosen_energy, "length": chosen_length, "force": units.canonical("force", chosen_force)}
    if stress and stress_key and is_virial(stress_key):
        raise InputError(f"stress unit {stress}: '{stress_key}' holds virials, which are energies; use the energy unit")
    if stress or stress_key:
        chosen["stress"] = units.canonical("stress", stress or units.stress_unit_of(chosen_energy, chosen_length))
    return chosen


def _origin(default: FileUnits, told_units: tuple[str | None, ...]) -> str:
    """How the units are known: from the user, from the format, or partly from each."""
    told = [kind for kind, unit in zip(units.KINDS, told_units) if unit]
    if not told:
        return default.origin
    if {"energy", "length"} <= set(told):
        return "as told"
    return f"{' and '.join(told)} unit as told, else {default.origin}"


def convert(structures: list[Structure], in_file: dict[str, str]) -> list[Structure]:
    """To eV and Å."""
    energy, length, force, stress = (
        units.factor(kind, in_file[kind]) if kind in in_file else 1.0 for kind in units.KINDS
    )
    if energy == length == force == stress == 1.0:
        return structures
    return [
        replace(
            s,
            positions=s.positions * length,
            cell=s.cell * length,
            energy=None if s.energy is None else s.energy * energy,
            forces=None if s.forces is None else s.forces * force,
            stress=None if s.stress is None else s.stress * stress,
        )
        for s in structures
    ]


def _isolated_energies(frames: list[Structure]) -> dict[int, float]:
    """Energy in eV by atomic number."""
    check_structures(frames)
    energies: dict[int, float] = {}
    for frame in frames:
        if len(frame) != 1 or frame.energy is None:
            what = "has no energy" if len(frame) == 1 else f"has {counted(len(frame), 'atom')}"
            raise InputError(f"{frame.source}: config_type=IsolatedAtom but {what}; give one atom with its energy")
        number = int(frame.numbers[0])
        if abs(energies.setdefault(number, frame.energy) - frame.energy) > 1e-6:
            raise InputError(f"{frame.source}: a second, different energy of isolated {symbol(number)}; keep one")
    return energies
