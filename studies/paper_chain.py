"""Figure and table of the paper's chain, from what `equibayes sample --preset paper-rmd17` wrote, finished or not.

    python -m studies.paper_chain                                     results/speed/ethanol-paper-chain
    python -m studies.paper_chain FOLDER --commit ef0cf8a --hardware "NVIDIA H200"
    python -m studies.paper_chain --run chain.run --frames 200        also test the newest checkpoint, on a CPU

FOLDER holds metrics.jsonl and config.yaml of the run's folder and log.txt, the output of the command.  Writes
README.md, history.png and history.json (the table) there.  The posterior itself is evaluated by `python -m
studies.rmd17`.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from equibayes.errors import InputError
from equibayes.evaluation.figures.style import MEV, colour, figure, log_ticks, series, styled
from equibayes.files import write_text
from studies.shared.options import parser_of, start
from studies.shared.results import read_json, save_figure, save_json
from studies.shared.tables import markdown, number, wrapped

Record = dict[str, Any]
ROWS = 14
"""Rows of the table, besides the ends of cycles, where samples are taken."""
WINDOW = 9
"""Records of minibatch errors in a running mean."""
PANELS = (
    ("force_mae", "validation_force_mae", MEV, "log", "force error (MAE)\n/ (meV/Å)"),
    ("force_sigma", "validation_force_sigma", MEV, "log", "σ of forces\n/ (meV/Å)"),
    ("kinetic_temperature", "", 1.0, "linear", "temperature\nof the momenta"),
    ("learning_rate", "", 1.0, "log", "learning rate"),
)


def read(folder: Path) -> tuple[list[Record], dict[str, Any], dict[str, int]]:
    """Records by step (the later one where a step was repeated), settings, and the planned steps and frames."""
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        log = (folder / "log.txt").read_text(encoding="utf-8")
    except OSError as cause:
        raise InputError(f"{cause.filename}: missing; copy it from the run's folder") from None
    records = {record["step"]: record for record in map(json.loads, filter(None, lines))}
    found = re.search(r"(\d+) steps \((\d+) burn-in\), (\d+) samples; (\d+) frames to learn from, (\d+) held back", log)
    if not records or not found:
        raise InputError(f"{folder}: metrics.jsonl is empty, or log.txt does not say how many steps were planned")
    planned = dict(zip(("steps", "burn_in", "samples", "train", "held_back"), map(int, found.groups())))
    return [records[step] for step in sorted(records)], config, planned


def value(record: Record, key: str) -> float:
    """Mean over chains; NaN where there is none."""
    known = [each for each in record.get(key) or [] if each is not None]
    return float(np.mean(known)) if known else float("nan")


def chosen(records: Sequence[Record]) -> list[Record]:
    """Evenly spaced records, the last one and the ends of all cycles."""
    even = {records[round(i)]["step"] for i in np.linspace(0, len(records) - 1, min(ROWS, len(records)))}
    return [record for record in records if record["step"] in even | set(sample_steps(records))]


def sample_steps(records: Sequence[Record]) -> list[int]:
    """Where samples were taken: the last record of the burn-in and of every finished cycle."""
    return [a["step"] for a, b in zip(records, records[1:]) if a["cycle"] != b["cycle"]]


def rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {
            "step": record["step"],
            "seconds": record.get("seconds"),
            "phase": record["phase"] if record["cycle"] < 0 else f"cycle {record['cycle'] + 1}",
            **{key: value(record, key) for key in ("learning_rate", "force_mae", "force_sigma", "kinetic_temperature")},
            **{key: value(record, key) for key in ("validation_force_mae", "validation_force_sigma")},
        }
        for record in chosen(records)
    ]


def table(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown; errors of the minibatch and of the held-back frames, meV/Å."""
    headings = (
        *("step", "minutes", "phase", "γ", "error, minibatch", "error, held back", "σ, minibatch", "σ, held back"),
        "temperature",
    )
    keys = ("force_mae", "validation_force_mae", "force_sigma", "validation_force_sigma")
    cells = [
        [
            f"{line['step']:,}".replace(",", " "),
            number(line["seconds"], ".1f", 1 / 60),
            line["phase"].replace("_", "-"),
            number(line["learning_rate"], ".1e"),
            *(number(line[key], ".1f", MEV) for key in keys),
            number(line["kinetic_temperature"], ".3f"),
        ]
        for line in lines
    ]
    return markdown(headings, cells)


def draw(records: Sequence[Record], path: Path) -> None:
    """Error, σ, temperature and learning rate, against the step on the left and against the time on the right."""
    samples = set(sample_steps(records))
    with styled():
        drawn, axes = figure(9.0, 7.2, len(PANELS), 2, sharey="row")
        for column, (name, scale_x) in enumerate((("step", 1.0), ("seconds", 1 / 60))):
            x = scale_x * np.array([record.get(name, np.nan) for record in records], dtype=float)
            for axis, (key, held_back, scale, kind, words) in zip(axes[:, column], PANELS):
                y = scale * np.array([value(record, key) for record in records])
                noisy = key.startswith("force")
                if noisy:
                    axis.plot(x, y, linewidth=0.6, alpha=0.4, **{**series(0), "linestyle": "-"})
                axis.plot(x, smooth(y) if noisy else y, label="minibatch" if noisy else None, **series(0))
                if held_back:
                    known = scale * np.array([value(record, held_back) for record in records])
                    good = np.isfinite(known)
                    if good.any():
                        axis.plot(
                            x[good], known[good], "o", markersize=2.5, color=colour("vermillion"), label="held back"
                        )
                    axis.legend()
                for place in (x_ for x_, record in zip(x, records) if record["step"] in samples):
                    axis.axvline(place, ymax=0.06, color=colour("ink"), linewidth=1.0)
                axis.set_yscale(kind)
                if kind == "log":
                    log_ticks(axis.yaxis, *axis.get_ylim())
                if not column:
                    axis.set_ylabel(words)
        axes[-1, 0].set_xlabel("step")
        axes[-1, 1].set_xlabel("minutes of sampling")
        save_figure(drawn, path)


def smooth(y: np.ndarray) -> np.ndarray:
    """Running mean, over fewer records at the ends."""
    half = WINDOW // 2
    return np.array([np.nanmean(y[max(0, i - half) : i + half + 1]) for i in range(len(y))])


def newest_network(run: Path, frames: int) -> dict[str, Any]:
    """Metrics of the network that the chain has reached, on the held-back frames and on `frames` unseen ones."""
    from equibayes.data import bundled_ethanol
    from equibayes.evaluation.evaluated import evaluate_each
    from equibayes.evaluation.metrics import OUTLIER_THRESHOLD
    from equibayes.evaluation.tables import measure
    from equibayes.posterior.file import Posterior
    from equibayes.posterior.sample import describe_data
    from equibayes.run import checkpoint
    from equibayes.run.prepare import prepare
    from equibayes.run.settings import sample_config

    found = checkpoint.load_newest(run)
    prepared = prepare(bundled_ethanol("train"), sample_config("paper-rmd17"))
    weights, step = found.tensors["sampler.position"], found.tensors["sampler.step"].reshape(1)
    about = describe_data(prepared.train, prepared.validation)
    settings = prepared.config.to_dict()
    posterior = Posterior(
        samples=weights, chain=0 * step, step=step, network=prepared.network, reference=prepared.reference, config=settings,
        data=about, history=[], verdict={},
    )  # fmt: skip
    result: dict[str, Any] = {"step": int(step)}
    for name, data in (("held back", prepared.validation), ("unseen", bundled_ethanol("test")[:frames])):
        (evaluated,) = evaluate_each(posterior, data, [1], device="cpu")
        result[name] = measure(evaluated, OUTLIER_THRESHOLD)
    return result


def network_table(found: dict[str, Any]) -> list[str]:
    lines = [
        f"The network that the chain had reached at step {found['step']} (one sample, not a posterior):",
        "",
        "| frames | force error, meV/Å (MAE) | RMS | σ, meV/Å (RMS) | within 68 % | ln likelihood | energy error, meV |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in ("held back", "unseen"):
        m = found[name]
        lines.append(
            f"| {m['n_frames']} {name} | {1e3 * m['force_mae']:.2f} | {1e3 * m['force_rmse']:.2f} | {1e3 * m['force_sharpness']:.2f} | "
            f"{100 * m['force_coverage_68']:.1f} % | {m['force_mll']:.2f} | {1e3 * m['energy_mae']:.2f} |"
        )
    return [*lines, ""]


def readme(
    records: Sequence[Record],
    config: dict[str, Any],
    planned: dict[str, int],
    lines: Sequence[dict[str, Any]],
    where: dict[str, str],
    network: dict[str, Any] | None = None,
) -> str:
    last, done = records[-1], records[-1]["step"] >= planned["steps"]
    minutes = last.get("seconds", float("nan")) / 60
    state = "" if done else ": not finished"
    pace = 1e3 * (last["seconds"] - records[0]["seconds"]) / max(1, last["step"] - records[0]["step"])
    text = [
        f"# The paper's chain on ethanol{state}",
        "",
        f"`equibayes sample bundled:ethanol@train -o chain.posterior --preset paper-rmd17 --device cuda`, seed {config['seed']}, "
        f"{where['hardware']}, precision {config['precision']}, commit {where['commit']}: {config['chains']} chain, "
        f"{planned['steps']} steps ({planned['burn_in']} of burn-in), batch {config['burn_in']['batch_size']}, {planned['train']} "
        f"training frames, {planned['held_back']} held back, {planned['samples']} samples. The last record is of step "
        f"{last['step']}, after {minutes:.1f} minutes of sampling ({pace:.2f} ms per step).",
        "",
        "![Error, σ, temperature and learning rate against step and time](history.png)",
        "",
        *(network_table(network) if network else []),
        *table(lines),
        "",
        "Errors are mean absolute errors of force components and σ is the mean predicted σ, meV/Å, for one minibatch and for the "
        "held-back frames. `metrics.jsonl` has every record, `config.yaml` every setting, `log.txt` the output. "
        "Made by `python -m studies.paper_chain`.",
    ]  # fmt: skip
    return wrapped("\n".join(text)) + "\n"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("results/speed/ethanol-paper-chain"), help="folder of the run"
    )
    parser.add_argument("--commit", help="commit of the code that sampled (default: as recorded)")
    parser.add_argument("--hardware", help="hardware that it ran on (default: as recorded)")
    parser.add_argument("--run", type=Path, help="folder with checkpoints of the run; the newest network is tested")
    parser.add_argument("--frames", type=int, default=200, help="unseen frames for --run (default 200)")
    options = parser.parse_args()
    records, config, planned = read(options.folder)
    note = options.folder / "history.json"
    before = (read_json(note) or {"where": {}})["where"]
    where = {name: getattr(options, name) or before.get(name, "unknown") for name in ("commit", "hardware")}
    kept = options.folder / "network.json"
    if options.run:
        save_json(kept, newest_network(options.run, options.frames))
    network = read_json(kept)
    lines = rows(records)
    save_json(note, {"where": where, "planned": planned, "rows": lines})
    draw(records, options.folder / "history.png")
    write_text(options.folder / "README.md", readme(records, config, planned, lines, where, network))
    print("\n".join(table(lines)))


if __name__ == "__main__":
    start(main)
