"""Tables of results: a row per system, number of frames and method, means over seeds."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from studies.shared.results import read_json

COLUMNS = {
    "MAE": "mae",
    "ln p": "mll",
    "ln p, rescaled": "mll_rescaled",
    "in 68 %": "in_68",
    "in 95 %": "in_95",
    "AUC": "auc",
}


def of(folder: Path) -> str:
    """Markdown."""
    groups: dict[tuple[str, int, str, str], list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        own = read_json(path)
        name = path.stem.split("-", 4)[4] if path.stem.count("-") > 3 else ""
        count = 0 if own["method"] == "zero" else own["frames"]
        for kind, result in own.get("results", {"test": own["result"]}).items():
            system = own["system"] + ("" if kind == "test" else f", {kind}")
            groups[system, count, own["method"], name].append(own | {"result": result})
    lines = [f"| system | frames | method | seeds | {' | '.join(COLUMNS)} | width | CPU s |"]
    lines.append("|" + "---|" * (len(COLUMNS) + 6))
    for (system, frames, method, name), found in sorted(groups.items()):
        cells = [_mean([each["result"].get(key) for each in found]) for key in COLUMNS.values()]
        width = _mean([(each.get("zero_shot_on_training") or {}).get("width") for each in found])
        cost = _mean([each.get("cpu_seconds") for each in found])
        label = f"{method} {name}".strip()
        lines.append(
            f"| {system} | {frames or '–'} | {label} | {len(found)} | {' | '.join(cells)} | {width} | {cost} |"
        )
    return "\n".join(lines)


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{np.mean(known):.3g}" if known else "–"
