"""The result of a format reader: structures in the units of the file, and where labels and units were found."""

from dataclasses import dataclass, field

from equibayes.data.structures import Structure


@dataclass(frozen=True)
class LabelKeys:
    """Keys the user names for the labels; None asks for the search of `equibayes.data.labels`."""

    energy: str | None = None
    forces: str | None = None
    stress: str | None = None

    def named(self) -> dict[str, str]:
        """The keys that were given, by label."""
        keys = {"energy": self.energy, "forces": self.forces, "stress": self.stress}
        return {label: key for label, key in keys.items() if key is not None}


@dataclass(frozen=True)
class FileUnits:
    """Units a format has when the user names none; `origin` says how that is known."""

    energy: str = "eV"
    length: str = "Ang"
    force: str | None = None
    origin: str = "assumed"


@dataclass
class Parsed:
    """Result of a format reader.

    `found` names the key under which each label was found; `hints` says where a label that was not found might be.
    """

    structures: list[Structure]
    format: str
    found: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    units: FileUnits = field(default_factory=FileUnits)
    notes: list[str] = field(default_factory=list)
