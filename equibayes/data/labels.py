"""Where the labels are in frames that ASE has read.

The order is: the key the user names; else REF_energy, REF_forces, REF_stress; else the ASE results, where ASE also
puts the plain keys energy, forces, stress of an extended xyz file.  One key is chosen for the whole file, never frame
by frame: a file whose frames carry their labels under different names may hold two levels of theory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from equibayes.data.files import one_line
from equibayes.data.parsed import LabelKeys
from equibayes.data.stress import is_virial, stress_from
from equibayes.data.structures import NOISE_KEY, WEIGHT_KEY, Structure
from equibayes.errors import InputError


@dataclass(frozen=True)
class AseFrame:
    """One frame as ASE gives it: geometry, then whatever else the file held."""

    numbers: Any
    positions: Any
    cell: Any
    pbc: Any
    info: dict[str, Any]
    arrays: dict[str, Any]
    results: dict[str, Any]
    source: str
    constraints: Sequence[Any] = ()

    def places(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Places where a label can be, in the order of the search."""
        return (("info", self.info), ("arrays", self.arrays), ("ASE results", self.results))

    def get(self, key: str) -> Any:
        """The value under `key` in any of the places, None where there is none."""
        return next((place[key] for _, place in self.places() if place.get(key) is not None), None)


_DEFAULT_KEYS = {
    "energy": ("REF_energy", "energy"),
    "forces": ("REF_forces", "forces"),
    "stress": ("REF_stress", "REF_virial", "REF_virials", "stress", "virial", "virials"),
}
_LOOKS_LIKE: dict[str, Callable[[str], bool]] = {
    "energy": lambda key: "energ" in key or key in ("e", "u", "u0", "toten", "e_tot", "etot"),
    "forces": lambda key: "force" in key or "grad" in key or key in ("f", "frc"),
}


def find_keys(frames: Sequence[AseFrame], named: LabelKeys, file: str) -> tuple[dict[str, str], dict[str, str]]:
    """For each label the key used, and for energy and forces not found a hint where they may be."""
    found, hints = {}, {}
    for label, defaults in _DEFAULT_KEYS.items():
        wanted = named.named().get(label)
        candidates = defaults if wanted is None else (wanted,)
        hit = next((key for key in candidates if any(frame.get(key) is not None for frame in frames)), None)
        if hit is not None:
            found[label] = hit
        elif wanted is not None:
            raise InputError(f"{file}: no frame has the {label} key '{wanted}'; keys there: {_list_keys(frames)}")
        elif label in _LOOKS_LIKE:
            hints[label] = _hint(frames, label)
    return found, hints


def to_structure(frame: AseFrame, found: dict[str, str]) -> Structure:
    """The frame with the labels under the chosen keys, still in the units of the file."""
    labels = {label: frame.get(key) for label, key in found.items()}
    stress = labels.pop("stress", None)
    n = len(frame.numbers)
    own = {"masses": (n,), "momenta": (n, 3)}
    motion = {name: frame.arrays[name] for name, shape in own.items() if np.shape(frame.arrays.get(name, 0)) == shape}
    structure = Structure(
        numbers=frame.numbers,
        positions=frame.positions,
        cell=frame.cell,
        pbc=frame.pbc,
        config_type=one_line(frame.info.get("config_type", "")),
        source=frame.source,
        constraints=tuple(frame.constraints),
        **motion,
        weight=1.0 if (weight := frame.get(WEIGHT_KEY)) is None else weight,
        noise=0.0 if (noise := frame.get(NOISE_KEY)) is None else noise,
        **labels,
    )
    if stress is None:
        return structure
    virial = is_virial(found["stress"])
    return replace(
        structure, stress=stress_from(stress, virial=virial, volume=structure.volume, where=structure.source)
    )


def _hint(frames: Sequence[AseFrame], label: str) -> str:
    """A sentence about a key that looks like the label, or an empty one."""
    for frame in frames:
        for place, content in frame.places():
            for key, value in content.items():
                if not _LOOKS_LIKE[label](str(key).lower()) or not _right_shape(value, label, len(frame.numbers)):
                    continue
                if "grad" in str(key).lower():
                    return f"found {place} key '{key}': if it is the gradient, forces are minus it; write those"
                return f"found {place} key '{key}': pass {label}_key={key} (--{label}-key {key})"
    return ""


def _right_shape(value: Any, label: str, n_atoms: int) -> bool:
    if isinstance(value, str | bool):
        return False
    return bool(np.shape(value) == (() if label == "energy" else (n_atoms, 3)))


def _list_keys(frames: Sequence[AseFrame]) -> str:
    geometry = ("numbers", "positions")
    seen = {str(key): None for frame in frames for _, place in frame.places() for key in place if key not in geometry}
    return one_line(", ".join(seen)) or "none"
