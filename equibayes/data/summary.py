"""A summary of a data set, as text and as a dictionary."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from equibayes.data.dataset import Dataset
from equibayes.data.elements import formula, symbol
from equibayes.data.plausibility import rms_force
from equibayes.data.reference import suggest_kind
from equibayes.plural import counted
from equibayes.units import KINDS, factor


@dataclass(frozen=True)
class Summary:
    """`lines()` pairs a heading with its text; `to_dict()` holds the same as plain values for JSON, in eV and Å."""

    values: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.values

    def lines(self) -> list[tuple[str, str]]:
        """Heading and text of every line."""
        v = self.values
        result = [("data", v["name"])]
        if v["format"]:
            result.append(("format", v["format"]))
        result.append(("frames", f"{v['frames']} (numbered from 0)"))
        if v["frames"]:
            low, high = v["atoms_per_frame"]
            result.append(("atoms", f"{low} per frame" if low == high else f"{low} to {high} per frame"))
            species = ", ".join(f"{name} {count}" for name, count in v["species"].items())
            result.append(("species", f"{species} (atoms in all frames)"))
            shown = ", ".join(list(v["formulas"])[:6]) + (", …" if len(v["formulas"]) > 6 else "")
            result.append(("formulas", shown if len(v["formulas"]) < 2 else f"{len(v['formulas'])}: {shown}"))
            result.append(("periodic", v["periodic"]))
        for label in ("energy", "forces", "stress"):
            found = v["labels"][label]
            key = f" under '{found['key']}'" if found["key"] else ""
            words = f"{found['count']} of {v['frames']}{key}" if found["count"] else "none"
            ignored = found.get("ignored")
            without = f"; {ignored} ignored, not periodic in three directions" if ignored else ""
            result.append((label, words + without))
        result += zip(("missing", "", ""), self._missing_lines())
        result += zip(("units", ""), self._unit_lines())
        if v["energy_range"]:
            low, high = v["energy_range"]
            result.append(("energy range", f"{low:.6f} to {high:.6f} eV"))
        if v["meV_per_atom_above_min"] is not None:
            above = f"up to {v['meV_per_atom_above_min']:.4g} meV/atom above the lowest frame of the same formula"
            result.append(("", above))
            lacking = [name for name in v["species"] if v["isolated_atoms"] and name not in v["isolated_atoms"]]
            without = f"; no free atom of {', '.join(lacking)}" if lacking else ""
            result.append(("reference", f"{v['reference']} (suggested{without})"))
        if v["rms_force"] is not None:
            result.append(("RMS force", f"{v['rms_force']:.4g} eV/Å per component"))
        if v["weights"]:
            low, high, total = v["weights"]
            result.append(("weights", f"{low:g} to {high:g}; in all as much as {total:g} frames of weight 1"))
        if v["isolated_atoms"]:
            text = ", ".join(f"{name} {energy:.6f}" for name, energy in v["isolated_atoms"].items())
            result.append(("isolated atoms", f"{text} eV (kept apart from the frames)"))
        return result + [("note", note) for note in v["notes"]]

    def _missing_lines(self) -> list[str]:
        """Labels that sampling and evaluation would miss, each with what to do about it."""
        frames, lines = self.values["frames"], []
        for label, missing in self.values["missing"].items():
            if not missing["count"]:
                continue
            if missing["count"] == frames:
                name = f"name its key with --{label}-key if the file has one under another name"
                lines.append(f"{label} in all of {counted(frames, 'frame')}: {missing['hint'] or name}")
            else:
                first = ", ".join(map(str, missing["first"])) + (
                    ", …" if missing["count"] > len(missing["first"]) else ""
                )
                where = f"{missing['count']} of {counted(frames, 'frame')} (frame {first})"
                lines.append(f"{label} in {where}: label these frames or leave them out")
        needed = "`equibayes sample` needs energy and forces in every frame; `predict` and `md` need neither"
        return [*lines, needed] if lines else []

    def _unit_lines(self) -> list[str]:
        units = self.values["units"]
        if not units:
            return ["eV, Å"]
        named = f"{', '.join(units[kind] for kind in KINDS if kind in units)} ({self.values['units_origin']})"
        factors = {kind: factor(kind, units[kind]) for kind in KINDS if kind in units}
        if all(value == 1.0 for value in factors.values()):
            return [named]
        told = ", ".join(f"{kind} × {value:.10g}" for kind, value in factors.items() if value != 1.0)
        return [named, f"converted to eV, Å: {told}"]

    def __str__(self) -> str:
        lines = self.lines()
        width = max(len(heading) for heading, _ in lines)
        return "\n".join(f"{heading:<{width}}  {text}" for heading, text in lines)


def summarize(data: Dataset) -> Summary:
    """Count and measure."""
    report = data.report
    numbers = Counter(int(z) for s in data for z in s.numbers.tolist())
    formulas = Counter(formula(s.numbers) for s in data)
    energies = [(s.energy, len(s), formula(s.numbers)) for s in data if s.energy is not None]
    n_atoms = data.n_atoms
    return Summary(
        {
            "name": data.name,
            "format": report.format if report else None,
            "frames": len(data),
            "atoms_per_frame": [int(n_atoms.min()), int(n_atoms.max())] if len(data) else None,
            "species": {symbol(z): numbers[z] for z in sorted(numbers)},
            "formulas": dict(formulas),
            "periodic": _periodic(data),
            "labels": {label: _label(data, label) for label in ("energy", "forces", "stress")},
            "missing": _missing(data),
            "units": dict(report.units) if report else {},
            "units_origin": report.units_origin if report else "",
            "energy_range": [min(energies)[0], max(energies)[0]] if energies else None,
            "meV_per_atom_above_min": _finite(_spread(energies)),
            "reference": suggest_kind(data),
            "rms_force": _finite(rms_force(data)),
            "weights": _weights(data),
            "isolated_atoms": {symbol(z): energy for z, energy in sorted(data.isolated_atoms.items())},
            "notes": list(report.notes) if report else [],
            "fingerprint": data.fingerprint(),
        }
    )


def _label(data: Dataset, label: str) -> dict[str, Any]:
    """How many frames have a label, and under which key; of the stress also how many cannot be learned from."""
    count = sum(getattr(s, label) is not None for s in data)
    found = {"count": count, "key": data.report.keys.get(label) if data.report else None}
    if label == "stress":
        found["ignored"] = count - sum(s.stress_label is not None for s in data)
    return found


def _weights(data: Dataset) -> list[float] | None:
    """Smallest, largest and sum; None where all are 1."""
    weights = data.weights
    return [float(weights.min()), float(weights.max()), float(weights.sum())] if data.weighted else None


def _missing(data: Dataset) -> dict[str, dict[str, Any]]:
    """How many frames have no energy, how many no forces; the first of them, and where the label may be."""
    hints = data.report.hints if data.report else {}
    found = {}
    for label in ("energy", "forces"):
        frames = [i for i, structure in enumerate(data) if getattr(structure, label) is None]
        found[label] = {"count": len(frames), "first": frames[:5], "hint": hints.get(label)}
    return found


def _spread(energies: list[tuple[float, int, str]]) -> float | None:
    """Largest energy above the lowest of the same formula, meV/atom: totals of different formulas do not compare."""
    lowest: dict[str, float] = {}
    for energy, _, name in energies:
        lowest[name] = min(lowest.get(name, np.inf), energy)
    return max(((energy - lowest[name]) / n * 1000 for energy, n, name in energies), default=None)


def _finite(value: float | None) -> float | None:
    """Labels near the largest float overflow when squared; JSON has no infinity."""
    return value if value is not None and np.isfinite(value) else None


def _periodic(data: Dataset) -> str:
    kinds = Counter("yes" if s.pbc.all() else "no" if not s.pbc.any() else "in some directions" for s in data)
    if len(kinds) < 2:
        return next(iter(kinds), "no")
    return ", ".join(f"{kind}: {counted(count, 'frame')}" for kind, count in kinds.items())
