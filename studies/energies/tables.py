"""Table of all finished cases: OUTPUT/../TABLES.md, for the README of the results."""

from pathlib import Path
from statistics import mean
from typing import Any

from equibayes.files import write_text
from studies.energies.frames import SETS
from studies.shared.results import read_json
from studies.solids.tables import table

METHODS = ("point", "plain", "balanced")


def write(folder: Path) -> None:
    cases = [read_json(path) for path in sorted(folder.glob("*.json"))]
    parts = [
        rows(cases, name, place) for name in sorted({each["name"] for each in cases}) for place in ("tune", "test")
    ]
    write_text(folder.parent / "TABLES.md", "\n\n".join(parts) + "\n")


def rows(cases: list[dict[str, Any]], name: str, place: str) -> str:
    """Errors on frames to choose by (tune) or to judge by (test), means over seeds."""
    found = []
    for which in SETS:
        own = [each["methods"] for each in cases if each["set"] == which and each["name"] == name]
        if own:
            found.append([which, str(len(own)), *_energies(own, place), *_forces(own, place)])
    heads = [
        f"{place} {name}".strip(),
        "seeds",
        *(f"E {method}, meV" for method in METHODS),
        "plain/point",
        "balanced/point",
    ]
    return table([*heads, *(f"F {method}, meV/Å" for method in METHODS)], found)


def _energies(own: list[dict[str, Any]], place: str) -> list[str]:
    values = {method: _mean(own, method, place, "energy") for method in METHODS}
    point = values["point"]
    ratios = [
        f"{values[method] / point:.2f}" if point and values[method] is not None else "–"  # type: ignore[operator]
        for method in METHODS[1:]
    ]
    return [*("–" if value is None else f"{value:.1f}" for value in values.values()), *ratios]


def _forces(own: list[dict[str, Any]], place: str) -> list[str]:
    values = [_mean(own, method, place, "force") for method in METHODS]
    return ["–" if value is None else f"{value:.1f}" for value in values]


def _mean(own: list[dict[str, Any]], method: str, place: str, key: str) -> float | None:
    known = [each[method][place][key] for each in own if method in each]
    return mean(known) if known else None
