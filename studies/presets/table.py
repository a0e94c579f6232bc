"""All trials in one file and one table, in the order in which they were made."""

from pathlib import Path
from typing import Any

from studies.shared.results import read_json, save_json

COLUMNS = (
    "data",
    "trial",
    "chains × steps",
    "core s",
    "one sample",
    "mean",
    "b",
    "√v",
    "ln p",
    "in 68 %",
    "calibrated",
    "in 68 %",
    "tenth",
    "AUC",
)
NUMBERS = ("mae", "rmse", "sigma", "mll", "in_68", "in_95", "most_uncertain_tenth", "auc", "energy_mae")


def collect(folder: Path) -> list[dict[str, Any]]:
    """The trials of a folder, shortened, added to those known; trials.json holds all."""
    path = folder / "trials.json"
    known = {key(row): row for row in (read_json(path) or {"trials": []})["trials"]}
    for each in sorted(folder.glob("*.json")):
        content = read_json(each)
        if isinstance(content, dict) and "views" in content:
            row = shortened(content)
            known[key(row)] = row
            each.unlink()
    rows = list(known.values())
    save_json(path, {"trials": rows}, indent=None)
    return rows


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["data"], row["frames"], row["name"], row["seed"]


def shortened(found: dict[str, Any]) -> dict[str, Any]:
    """Settings, cost and numbers; not the course of the run."""
    last = found["views"][max(found["views"], key=int)]
    views = {name: {each: last[name][each] for each in NUMBERS} for name in last}
    kept = ("name", "data", "frames", "seed", "preset", "network", "set", "steps", "weight_set_steps", "cpu_seconds")
    members = {name: found["members"].get(name) for name in ("chains", "b2", "v")}
    one = found["views"]["1"]["raw"]["mae"]
    about = {"engine": found["engine"], "verdict": found["verdict"], "provenance": found["provenance"]}
    return {**{name: found[name] for name in kept}, "one_mae": one, "views": views, "members": members, **about}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        raw, members = row["views"]["raw"], row["members"]
        calibrated = row["views"].get("calibrated", raw)
        b, v = (max(members[name] or 0.0, 0.0) ** 0.5 for name in ("b2", "v"))
        chains = row["weight_set_steps"] // row["steps"]
        seed = f", seed {row['seed']}" if row["seed"] else ""
        numbers = [
            f"{row['data']} {row['frames']}",
            f"{row['name']} ({row['network'] or row['preset']}{seed})",
            f"{chains} × {row['steps']}",
            f"{row['cpu_seconds']:.0f}",
            *(f"{value:.2f}" for value in (row["one_mae"], raw["mae"], b, v)),
            f"{raw['mll']:.3f}",
            f"{raw['in_68']:.1f}",
            f"{calibrated['mll']:.3f}",
            f"{calibrated['in_68']:.1f}",
            f"{calibrated['most_uncertain_tenth']:.2f}",
            f"{calibrated['auc']:.3f}",
        ]
        lines.append(f"| {' | '.join(numbers)} |")
    return "\n".join(lines)
