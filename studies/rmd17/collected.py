"""The results of the study in a folder: CASE/METHOD.json."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from studies.shared.results import read_json

MOLECULES = ("ethanol", "malonaldehyde", "aspirin", "toluene", "benzene", "azobenzene")
FEW = (50, 200)
FEW_MOLECULES = ("ethanol", "aspirin")
METHODS = {
    "bayes": "posterior, 8 chains",
    "single": "posterior, one chain",
    "paper-chain": "one chain, the paper's steps",
    "ensemble": "deep ensemble",
    "dropout": "dropout",
    "point": "point NequIP",
}
# force MAE of NequIP on rMD17 as published (Batzner et al. 2022), meV/Å
PUBLISHED = {
    "aspirin": 8.2,
    "azobenzene": 2.9,
    "benzene": 0.3,
    "ethanol": 2.8,
    "malonaldehyde": 5.1,
    "toluene": 1.6,
}
EXPECTED = ("bayes", "single", "ensemble", "dropout", "point")
Content = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """ethanol, or ethanol-50, with the results of its methods in the order of METHODS."""

    name: str
    results: dict[str, Content]

    @property
    def molecule(self) -> str:
        return self.name.split("-")[0]

    @property
    def few(self) -> int | None:
        """Number of training frames, where they are few."""
        return int(self.name.split("-")[1]) if "-" in self.name else None

    @property
    def missing(self) -> list[str]:
        return [method for method in EXPECTED if method not in self.results]

    def value(self, method: str, key: str, part: str = "raw", k: int | None = None) -> float | None:
        """A metric, for the largest k unless given; `kcal_mol.force_nece` is nested; None where it is missing."""
        by_k = self.results.get(method, {}).get(part, {})
        found: Any = by_k.get(str(k)) if k else (list(by_k.values()) or [None])[-1]
        for word in key.split("."):
            found = found.get(word) if isinstance(found, dict) else None
        return found


def read_cases(folder: Path) -> list[Case]:
    """Full data first, then the few; in the order of MOLECULES, others after them."""
    found = {path.name: _results(path) for path in folder.iterdir() if path.is_dir()}
    return sorted((Case(name, results) for name, results in found.items() if results), key=_place)


def absent(cases: list[Case]) -> Iterator[str]:
    """Missing results; few frames and the paper's chain are missing only where other results with few frames are."""
    there = {case.name: case for case in cases}
    few = any(case.few for case in cases)
    wanted = [*MOLECULES, *(f"{molecule}-{count}" for molecule in FEW_MOLECULES for count in FEW if few)]
    for name in wanted:
        if name not in there:
            yield f"{name} (all methods)"
        elif there[name].missing:
            yield f"{name} ({', '.join(there[name].missing)})"
    if few and "ethanol" in there and "paper-chain" not in there["ethanol"].results:
        yield "ethanol (paper-chain)"


def _results(folder: Path) -> dict[str, Content]:
    found = {method: read_json(folder / f"{method}.json") for method in METHODS}
    return {method: content for method, content in found.items() if content}


def _place(case: Case) -> tuple[bool, int, str, int]:
    known = case.molecule in MOLECULES
    return (
        case.few is not None,
        MOLECULES.index(case.molecule) if known else len(MOLECULES),
        case.molecule,
        case.few or 0,
    )
