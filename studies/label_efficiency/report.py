"""Curves, labels needed, table and figure from the JSON files of the runs."""

from pathlib import Path
from typing import Any

import numpy as np

from equibayes.errors import InputError
from equibayes.evaluation.figures.style import colour, figure, series, styled
from equibayes.files import write_text
from studies.label_efficiency.rounds import CONTROL
from studies.shared.results import read_json, save_figure, save_json
from studies.shared.tables import markdown

CURVES = ("force_mae", "force_rmse", "force_p99", "energy_mae", "force_sigma", "force_mll")


def labels_needed(labels: np.ndarray, errors: np.ndarray, target: float) -> float | None:
    """Where the curve first reaches the target, interpolated linearly between rounds; None where it never does."""
    if errors[0] <= target:
        return float(labels[0])
    for (l0, l1), (e0, e1) in zip(zip(labels, labels[1:]), zip(errors, errors[1:])):
        if e1 <= target:
            return float(l0 + (l1 - l0) * (e0 - target) / (e0 - e1))
    return None


def conclude(output: Path) -> dict[str, Any]:
    """Curves, and per seed the number of chosen labels that reach the final error of random labels."""
    records = [read_json(path) for path in sorted((output / "runs").glob("*.json"))]
    done = {(r["kind"], r["seed"]): r for r in records if r and len(r["rounds"]) == r["study"]["rounds"] + 1}
    kinds = sorted({kind for kind, _ in done}, key=lambda kind: (kind == CONTROL, kind))
    seeds = sorted(seed for seed in {seed for _, seed in done} if all((kind, seed) in done for kind in kinds))
    if CONTROL not in kinds or not seeds:
        raise InputError(f"{output / 'runs'}: no seed is done; run the study first")
    any_run = done[CONTROL, seeds[0]]
    if any(r["study"] != any_run["study"] or r["data"] != any_run["data"] for r in done.values()):
        raise InputError(f"{output / 'runs'}: holds runs of different studies; keep each in its own folder")
    curves = {kind: _curve([done[kind, seed]["rounds"] for seed in seeds]) for kind in kinds}
    labels = np.array(curves[CONTROL]["labels"], dtype=float)
    verdicts = {}
    for kind in kinds:
        for name in ("force_mae", "force_rmse", "force_p99"):
            if kind == CONTROL:
                continue
            control, chosen = np.array(curves[CONTROL][name]), np.array(curves[kind][name])
            needed = [labels_needed(labels, own, end) for own, end in zip(chosen, control[:, -1])]
            at_end = chosen[:, -1] - control[:, -1]
            verdicts[f"{kind}, {name}"] = {
                "labels_needed_by_seed": needed,
                "labels_needed_of_the_mean_curves": labels_needed(labels, chosen.mean(0), float(control[:, -1].mean())),
                "random_labels": int(labels[-1]),
                "difference_at_equal_labels": {
                    "mean_over_rounds_after_the_first": float((chosen - control)[:, 1:].mean()),
                    "at_the_end": float(at_end.mean()),
                    "standard_error_at_the_end": _standard_error(at_end),
                },
            }
    about = {name: any_run[name] for name in ("study", "data", "config", "provenance")}
    return {"seeds_done": seeds, "curves": curves, "verdicts": verdicts, **about}


def _curve(runs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """One selection over all seeds: lists [seed][round]."""
    return {
        "labels": [row["labels"] for row in runs[0]],
        **{name: [[row["test"][name] for row in rows] for rows in runs] for name in CURVES},
        "training_force_mae": [[row["train"]["force_mae"] for row in rows] for rows in runs],
        "training_force_rmse": [[row["train"]["force_rmse"] for row in rows] for rows in runs],
        "steps": [[row["steps"] for row in rows] for rows in runs],
        "seconds": [round(sum(row["seconds"] for row in rows), 1) for rows in runs],
        "cpu_seconds": [round(sum(row["cpu_seconds"] for row in rows), 1) for rows in runs],
        "events": [sum(len(row["events"]) for row in rows) for rows in runs],
    }


def _standard_error(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def table(found: dict[str, Any]) -> str:
    """Markdown: labels needed by seed, and errors at the end."""
    curves, seeds = found["curves"], found["seeds_done"]
    total = curves[CONTROL]["labels"][-1]
    words = {"force_mae": "MAE", "force_rmse": "RMSE", "force_p99": "99th percentile"}
    lines = [
        f"Labels needed for the error of {total} random ones (`>{total}`: not reached), by seed {', '.join(map(str, seeds))}:",
        "",
    ]
    rows = []
    for name, verdict in found["verdicts"].items():
        kind, measure = name.split(", ")
        gap = verdict["difference_at_equal_labels"]
        error = gap["standard_error_at_the_end"]
        cells = [_count(n, total) for n in verdict["labels_needed_by_seed"]]
        cells += [_count(verdict["labels_needed_of_the_mean_curves"], total)]
        cells += [f"{1e3 * gap['at_the_end']:+.1f}" + (f" ± {1e3 * error:.1f}" if error is not None else "")]
        rows.append([kind, words[measure], *cells])
    ends = ("mean curves", f"error with {total} labels minus that with random ones, meV/Å")
    lines += markdown(["chosen by", "error", *(f"seed {s}" for s in seeds), *ends], rows)
    lines += ["", "Force errors on the test frames, mean over seeds, and MAE on the training frames, meV/Å:", ""]
    columns = [(kind, name) for kind in curves for name in ("force_mae", "force_rmse", "training_force_mae")]
    rows = [
        [str(count), *(f"{1e3 * np.mean([row[place] for row in curves[kind][name]]):.1f}" for kind, name in columns)]
        for place, count in enumerate(curves[CONTROL]["labels"])
    ]
    heads = {"force_mae": "MAE", "force_rmse": "RMSE", "training_force_mae": "training MAE"}
    lines += markdown(["labels", *(f"{kind}: {heads[name]}" for kind, name in columns)], rows)
    return "\n".join(lines) + "\n"


def _count(needed: float | None, total: int) -> str:
    return f">{total}" if needed is None else f"{needed:.0f}"


def draw(found: dict[str, Any], path: Path) -> None:
    """Test error against labels: seeds thin, mean thick; dotted: errors on the training frames."""
    with styled():
        drawn, axes = figure(7.6, 3.4, columns=2)
        for axis, name, words in zip(axes[0], ("force_mae", "force_rmse"), ("MAE", "RMSE")):
            for index, (kind, curve) in enumerate(found["curves"].items()):
                values = 1e3 * np.array(curve[name])
                for own in values:
                    axis.plot(curve["labels"], own, alpha=0.3, linewidth=0.7, **series(index))
                axis.plot(curve["labels"], values.mean(0), marker="o", markersize=4, label=kind, **series(index))
                trained = 1e3 * np.mean(curve[f"training_{name}"], axis=0)
                axis.plot(curve["labels"], trained, linewidth=0.9, color=series(index)["color"], linestyle=":")
            end = 1e3 * np.mean([row[-1] for row in found["curves"][CONTROL][name]])
            axis.axhline(end, color=colour("muted"), linewidth=0.8)
            axis.set(xlabel="labels", ylabel=f"force error ({words}), meV/Å", ylim=(0, None))
            axis.legend()
        axes[0, 0].set_title("dotted: on the training frames", fontsize=8, fontweight="normal")
        save_figure(drawn, path)


def report(output: Path) -> None:
    found = conclude(output)
    save_json(output / "report.json", found)
    write_text(output / "table.md", table(found))
    draw(found, output / "curves.png")
    print(table(found))
