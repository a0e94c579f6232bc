"""Tables of results: a row per system, number of frames and method, means over seeds."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from studies.shared.results import read_json

COLUMNS = {
    "MAE": "mae",
    "ln p": "mll",
    "ln p, without floor": "mll_without_floor",
    "ln p, rescaled": "mll_rescaled",
    "in 68 %": "in_68",
    "in 95 %": "in_95",
    "AUC": "auc",
}
NAMES = {"zero": "as it is", "tune": "posterior", "ensemble": "fine-tuned ensemble", "scratch": "from scratch"}
Key = tuple[str, int, str, str]
"""System with the kind of test frames, frames to learn from, method, name of other settings."""


def of(folder: Path) -> str:
    """Markdown."""
    lines = [f"| system | frames | method | seeds | {' | '.join(COLUMNS)} | width | CPU s |"]
    lines.append("|" + "---|" * (len(COLUMNS) + 6))
    for (system, frames, method, name), found in groups_of(folder).items():
        cells = [_mean([each["result"].get(key) for each in found], key) for key in COLUMNS.values()]
        width = _mean([(each.get("zero_shot_on_training") or {}).get("width") for each in found], "width")
        cost = _mean([each.get("cpu_seconds") for each in found], "cost")
        label = f"{NAMES[method]} {name}".strip()
        lines.append(
            f"| {system} | {frames or '–'} | {label} | {len(found)} | {' | '.join(cells)} | {width} | {cost} |"
        )
    return "\n".join(lines)


def groups_of(folder: Path) -> dict[Key, list[dict[str, Any]]]:
    """Results of all seeds together, each with those on one kind of test frames as `result`."""
    groups: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        own = read_json(path)
        name = path.stem.split("-", 4)[4] if path.stem.count("-") > 3 else ""
        count = 0 if own["method"] == "zero" else own["frames"]
        for kind, result in own["results"].items():
            system = own["system"] + ("" if kind == "test" else f", {kind}")
            groups[system, count, own["method"], name].append(own | {"result": result})
    return dict(sorted(groups.items(), key=lambda item: (_order(item[0][0]), *item[0][1:])))


def _order(system: str) -> tuple[str, int]:
    """Temperatures of one system in their order."""
    name, _, kelvin = system.partition(", ")
    return name, int(kelvin.split()[0]) if kelvin else 0


def _mean(values: list[float | None], key: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    digits = {"mae": 1, "in_68": 1, "in_95": 1, "cost": 0}.get(key, 2)
    return f"{np.mean(known):.{digits}f}"
