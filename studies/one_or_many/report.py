"""Tables and figures of the study, from its JSON files.

    python -m studies.one_or_many.report                              results/one-or-many
    python -m studies.one_or_many.report FOLDER

Writes README.md and one figure per question; missing cases are listed.  The text of notes.md in the folder, written by
hand, comes first.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from equibayes.errors import InputError
from equibayes.evaluation.figures.style import MEV
from equibayes.files import write_text
from studies.one_or_many.figures import (
    SINGLE,
    Found,
    draw_against,
    draw_chains,
    mean,
    narrowest,
    of_question,
    place,
    widest,
)
from studies.one_or_many.plan import CASES
from studies.shared.options import parser_of, start
from studies.shared.tables import markdown, number, wrapped

QUESTIONS = {
    "chains": "One chain or many, at equal cost",
    "burn-in": "How long the burn-in must be",
    "cycle": "How long a cycle must be",
    "temperature": "Temperature 1 against colder",
    "integrator": "`baoa` against the paper's integrator",
}


def read(folder: Path) -> dict[str, Found]:
    """The finished cases by name."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    found = {name: case for name, case in found.items() if "views" in case}
    if "many" not in found:
        raise InputError(f"{folder}: has no many.json; run python -m studies.one_or_many --case many first")
    return found


COLUMNS: tuple[tuple[str, Callable[[Found, str], float], str], ...] = (
    ("MAE", lambda c, v: MEV * mean(c, v, "force_mae"), ".1f"),
    ("RMSE", lambda c, v: MEV * mean(c, v, "force_rmse"), ".1f"),
    ("σ", lambda c, v: MEV * mean(c, v, "force_sharpness"), ".1f"),
    ("epistemic", lambda c, v: MEV * mean(c, v, "force_epistemic"), ".1f"),
    ("MLL", lambda c, v: mean(c, v, "force_mll"), ".3f"),
    ("recal.", lambda c, v: mean(c, v, "force_mll", "recalibrated"), ".3f"),
    ("in 68 %", lambda c, v: 100 * mean(c, v, "force_coverage_68"), ".1f"),
    ("in 95 %", lambda c, v: 100 * mean(c, v, "force_coverage_95"), ".1f"),
    ("area", lambda c, v: mean(c, v, "force_miscalibration_area"), ".3f"),
    ("recal.", lambda c, v: mean(c, v, "force_miscalibration_area", "recalibrated"), ".3f"),
    ("AUC", lambda c, v: mean(c, v, "force_auc"), ".3f"),
    ("MAE-E", lambda c, v: MEV * mean(c, v, "energy_mae"), ".1f"),
)
LEGEND = (
    "MAE, RMSE, σ (RMS) and its epistemic part: force components on {test} unseen frames, meV/Å; MLL: mean ln "
    "likelihood of forces, eV and Å; area: miscalibration area; recal.: the same after recalibration on the {held} frames held back; "
    "in 68 %: fraction of errors within that interval; AUC: errors above 1 kcal/(mol Å) detected by σ; MAE-E: energies, meV. Rows "
    "with several repeats show means."
)


def metrics_table(rows: Sequence[tuple[str, Found, str]]) -> list[str]:
    """Rows: words, case, view."""
    headings = ["", "repeats", *(heading for heading, *_ in COLUMNS)]
    cells = [
        [words, str(len(case["views"][view])), *(number(find(case, view), form) for _, find, form in COLUMNS)]
        for words, case, view in rows
    ]
    return markdown(headings, cells)


AGREEMENT = (
    *(
        "case",
        "chains",
        "burn-in",
        "cycle",
        "steps",
        "ms per step",
        "s",
        "R-hat, median (95 %)",
        "ESS, median (5 %) of",
    ),
    *("within chains", "chain means", "temperature", "rollbacks"),
)


def agreement_table(cases: dict[str, Found]) -> list[str]:
    rows = []
    for name, case in cases.items():
        agree, verdict = case["agreement"], case["verdict"]
        r_hat, ess = agree["r_hat"] or {}, agree["ess"] or {}
        total = agree["chains"] * agree["draws_a_chain"]
        cells = [
            name,
            str(case["chains"]),
            str(case["burn_in_steps"]),
            str(case["cycle_steps"]),
            str(case["total_steps"]),
            number(case["seconds_a_step"], ".2f", 1e3),
            number(case["sampling_seconds"], ".1f"),
            f"{number(r_hat.get('median'), '.2f')} ({number(r_hat.get('95%'), '.2f')})",
            f"{number(ess.get('median'), '.1f')} ({number(ess.get('5%'), '.1f')}) of {total}",
            number(agree["spread_within_chains"], ".1f", MEV),
            number(agree["spread_of_chain_means"], ".1f", MEV),
            number(verdict.get("kinetic_temperature"), ".3f"),
            str(len(verdict.get("events", []))) + _failed(verdict),
        ]
        rows.append(cells)
    return markdown(AGREEMENT, rows)


def _failed(verdict: Found) -> str:
    lost = verdict.get("failed_chains") or []
    return f", {len(lost)} chains lost" if lost else ""


def readme(found: dict[str, Found], folder: Path, drawn: Sequence[str], missing: Sequence[str]) -> str:
    many = found["many"]
    plan, where = many["plan"], many["provenance"]
    gpu = where["hardware"].get("gpu") or where["hardware"]["cpu"]
    notes = folder / "notes.md"
    commits = sorted({case["provenance"]["commit"] for case in found.values()})
    lines = [
        "# One chain or many, and which steps matter",
        "",
        *([notes.read_text(encoding="utf-8").strip(), ""] if notes.exists() else []),
        f"Ethanol (bundled), {plan['train'] - plan['held_back']} training frames, {plan['held_back']} held back, network "
        f"`{plan['network']}`, preset `standard` with {many['burn_in_steps']} steps of burn-in and {plan['draws'] - 1} cycles of "
        f"{many['cycle_steps']}; {gpu}, torch {where['versions']['torch']}, precision {many['precision']}, commit "
        f"{', '.join(commits)}. Seed 0 unless stated otherwise. "
        "Made by `python -m studies.one_or_many` (one JSON file per case) and `python -m studies.one_or_many.report`.",
        "",
        LEGEND.format(test=plan["test"], held=plan["held_back"]),
        "",
    ]
    if missing:
        lines += [f"Not run: {', '.join(missing)}.", ""]
    for asks, title in QUESTIONS.items():
        cases = of_question(found, asks)
        if len(cases) < 2:
            continue
        lines += [f"## {title}", ""]
        if f"{asks}.png" in drawn:
            lines += [f"![{title}]({asks}.png)", ""]
        if asks == "chains":
            lines += [*_cost(found), ""]
            rows = [(f"many: {view}", many, view) for view in many["views"] if view != "all"]
            rows += [(f"many: all {len_all(many)}", many, "all")] if "all" in many["views"] else []
            rows += [(words, found[name], narrowest(found[name])) for name, words in SINGLE.items() if name in found]
            scatter = [name for name, case in found.items() if case["asks"] == "scatter"]
            rows += [
                (f"{name}: {view(found[name])}", found[name], view(found[name]))
                for name in scatter
                for view in (narrowest, widest)
            ]
            lines += metrics_table(rows)
            cases = {**cases, **{name: found[name] for name in scatter}}
        else:
            ordered = dict(sorted(cases.items(), key=lambda item: place(asks, item[1])))
            rows = [
                (f"{name}: {view(case)}", case, view(case))
                for name, case in ordered.items()
                for view in (narrowest, widest)
            ]
            lines += metrics_table(rows)
            cases = ordered
        lines += ["", *agreement_table(cases), ""]
    lines += [
        "R-hat and effective sample size (ESS) are of the force components predicted for the held-back frames, over chains and draws; "
        "`within chains` and `chain means`: standard deviation of draws within a chain and of the chain means, RMS over these "
        "components, meV/Å. `s`: steps times the time per step, on a GPU shared with other processes. "
        "Values from fewer than 20 draws per chain say little; the present version leaves them undefined.",
    ]
    return wrapped("\n".join(lines)) + "\n"


def len_all(case: Found) -> int:
    return int(case["views"]["all"][0]["raw"]["k"])


def _cost(found: dict[str, Found]) -> list[str]:
    """Measured meaning of equal cost."""
    lines = []
    for name, words in SINGLE.items():
        if name in found and found[name]["equal"]:
            case, equal = found[name], found[name]["equal"]
            lines.append(
                f"- {words}: {case['total_steps']} steps, {case['total_steps'] / found['many']['total_steps']:.2f} times those of each "
                f"of the many (measured in the same call: one step of one chain {1e3 * equal['seconds_a_step_of_one']:.2f} ms, of "
                f"{found['many']['chains']} chains {1e3 * equal['seconds_a_step_of_many']:.2f} ms)."
            )
    return lines


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("results/one-or-many"), help="where the JSON files are"
    )
    folder = parser.parse_args().folder
    found = read(folder)
    drawn = []
    labels = {
        "burn-in": "steps of the burn-in",
        "cycle": "steps of a cycle",
        "temperature": "temperature",
        "integrator": "initial learning rate",
    }
    if len(of_question(found, "chains")) > 1 or len(found["many"]["views"]) > 1:
        draw_chains(found, folder / "chains.png")
        drawn.append("chains.png")
    for asks, label in labels.items():
        if len(of_question(found, asks)) > 1:
            draw_against(found, asks, folder / f"{asks}.png", label)
            drawn.append(f"{asks}.png")
    missing = [name for name in CASES if name not in found]
    write_text(folder / "README.md", readme(found, folder, drawn, missing))
    print(
        f"{folder}: README.md, {', '.join(drawn)}; {len(found)} cases"
        + (f", missing: {', '.join(missing)}" if missing else "")
    )


if __name__ == "__main__":
    start(main)
