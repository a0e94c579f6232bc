"""Tables of the benchmark of doubt.

python -m studies.doubt.tables results/doubt            prints them; makes OUTPUT/tables.md and frames.png
"""

from pathlib import Path
from typing import Any

from equibayes.errors import InputError
from equibayes.files import write_text
from studies.doubt.cases import CASES, INSIDE
from studies.doubt.methods import METHODS, PRIORS
from studies.shared.options import parser_of, start
from studies.shared.results import read_json
from studies.shared.tables import markdown, number

Sets = dict[str, dict[str, Any]]


def summary(found: dict[str, Any]) -> list[str]:
    """One line: inside, then everything outside taken together, without and with novelty and floor."""
    sets, alone = found["sets"], found["without_floor"]
    inside = sets[INSIDE]
    bad = sum(each["bad"] for each in sets.values())
    return [
        found["case"],
        found["method"],
        number(inside["force_mae"], ".1f", 1e3),
        f"{number(alone[INSIDE]['coverage_68'], '.0f', 100)} → {number(inside['coverage_68'], '.0f', 100)}",
        f"{number(alone[INSIDE]['spearman_sigma'], '.2f')} → {number(inside['spearman_sigma'], '.2f')}",
        number(inside["novel"], ".1f", 100),
        str(bad),
        f"{total(alone, 'bad_trusted_by_sigma')} / {total(sets, 'bad_not_novel')} / {total(sets, 'bad_trusted')}",
        f"{number(least_wide(alone), '.0f', 100)} → {number(least_wide(sets), '.0f', 100)}",
        f"{number(most_outside(alone), '.0f', 100)} → {number(most_outside(sets), '.0f', 100)}",
    ]


def total(sets: Sets, name: str) -> int:
    return sum(each[name] for each in sets.values())


def least_wide(sets: Sets) -> float:
    """The smallest share of atoms with σ ≥ error/3 of any set."""
    return float(min(each["wide_enough"] for each in sets.values()))


def most_outside(sets: Sets) -> float:
    return float(max(each["far_outside"] for each in sets.values()))


HEADS = [
    "case",
    "method",
    "force MAE inside, meV/Å",
    "in the 68 % interval, %",
    "rank correlation of σ and error",
    "false alarms, %",
    "bad frames",
    "of these trusted by σ alone / novelty alone / both",
    "atoms with σ ≥ error/3, %, in the worst set",
    "frames with error > 5 σ, %, in the worst set",
]


def by_set(found: dict[str, Any]) -> list[list[str]]:
    """A line for each set: its error, σ and what is trusted."""
    rows = []
    for kind, own in found["sets"].items():
        alone = found["without_floor"][kind]
        rows.append(
            [
                kind,
                str(own["frames"]),
                number(own["force_mae"], ".3g", 1e3),
                f"{number(alone['ratio_95'], '.2g')} → {number(own['ratio_95'], '.2g')}",
                f"{number(alone['wide_enough'], '.0f', 100)} → {number(own['wide_enough'], '.0f', 100)}",
                number(own["novel"], ".0f", 100),
                f"{number(alone['trusted_by_sigma'], '.0f', 100)} → {number(own['trusted'], '.0f', 100)}",
                str(own["bad"]),
                f"{alone['bad_trusted_by_sigma']} → {own['bad_trusted']}",
            ]
        )
    return rows


SET_HEADS = [
    "set",
    "frames",
    "force MAE, meV/Å",
    "error/σ, 95 % quantile",
    "atoms with σ ≥ error/3, %",
    "novel frames, %",
    "trusted, %",
    "bad",
    "bad and trusted",
]


def results(folder: Path) -> list[dict[str, Any]]:
    """Of all cases and methods that are there."""
    every = [read_json(folder / case / f"{method}.json") for case in CASES for method in (*METHODS, *PRIORS)]
    found = [each for each in every if each is not None]
    if not found:
        raise InputError(f"{folder}: no results there; run python -m studies.doubt first")
    return found


def tables(folder: Path) -> str:
    """All cases and methods; then the sets of the posterior."""
    found = results(folder)
    lines = markdown(HEADS, [summary(each) for each in found])
    for each in found:
        if each["method"] == "bayes":
            lines += ["", f"{each['case']}, posterior:", "", *markdown(SET_HEADS, by_set(each))]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    text = tables(folder)
    write_text(folder / "tables.md", text)
    drawn = [each for each in results(folder) if each["method"] == "bayes"]
    if drawn:
        from studies.doubt.drawing import draw  # needs matplotlib

        draw(drawn, folder / "frames.png")
    print(text)


if __name__ == "__main__":
    start(main)
