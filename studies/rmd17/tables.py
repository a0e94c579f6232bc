"""Tables and figures of the finished results of the rMD17 study.

    python -m studies.rmd17.tables results/rmd17             README.md and PNG files in that folder
    python -m studies.rmd17.tables results/rmd17 --small     then leaves curves out of the JSON files

Tables 4, 5, 6 and appendix D of the paper, few training frames, costs; figures 4 and 5.  The text of notes.md in the
folder, written by hand, comes first.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from equibayes.errors import InputError
from equibayes.files import write_text
from studies.rmd17.collected import METHODS, PUBLISHED, Case, absent, read_cases
from studies.rmd17.compact import NOTE
from studies.rmd17.figures import draw_all
from studies.rmd17.metric_tables import accuracy, calibration, markdown, outliers
from studies.shared.options import parser_of, start
from studies.shared.results import read_json, save_json
from studies.shared.tables import number, paragraph

INTRODUCTION = """Made by `python -m studies.rmd17.tables` from the JSON files in this folder, which
`python -m studies.rmd17` wrote; they hold settings, seed, commit, hardware and time. Training set: 1000 frames of the
official split `train_01`, of which 30 are held back; test set: all other frames of the file. All methods use the same
network and frames, and as many steps per network as one chain of the posterior (the single chain alone continues
through its cycles). k = 8 networks, samples or masks; `point` is one network. Recalibrated: σ rescaled on the
held-back frames (`equibayes calibrate`). F: force components, E: energies. **Bold**: best for a molecule. Settings of
these results:"""
ABOUT_COSTS = """Seconds are wall time on a device shared with other runs, including compilation. R-hat and ESS of
predicted forces over the cycles (R-hat 1: the chains agree); rivals have no cycles. Values from fewer than 20 draws
per chain say little; the present version leaves them undefined."""
ABOUT_HALF = """Half precision was measured with all eight samples, on the first 1000 test frames. Stored files keep two
of them, recalibrated on the same held-back frames; the repository contains that of ethanol."""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="folder with MOLECULE/METHOD.json")
    parser.add_argument("--small", action="store_true", help="halve the JSON files: leave out what figures are made of")
    options = parser.parse_args()
    write_page(options.folder)
    if options.small:
        leave_out_curves(options.folder)


def write_page(folder: Path) -> None:
    """README.md and figures of the results in the folder."""
    cases = read_cases(folder) if folder.is_dir() else []
    if not cases:
        raise InputError(f"{folder}: holds no results; run python -m studies.rmd17 with --output {folder} first")
    pictures = draw_all(cases, folder)
    write_text(folder / "README.md", "\n".join(page(cases, pictures, folder)) + "\n")
    print(f"{folder / 'README.md'} and {', '.join(pictures)}")


def leave_out_curves(folder: Path) -> None:
    """Keep numbers and provenance of all results."""
    for case in read_cases(folder):
        for method, content in case.results.items():
            kept = {name: value for name, value in content.items() if name not in ("curves", "history")}
            save_json(folder / case.name / f"{method}.json", kept, indent=None)


def page(cases: Sequence[Case], pictures: dict[str, str], folder: Path) -> Iterator[str]:
    """The lines of README.md."""
    full, few = [c for c in cases if c.few is None], [c for c in cases if c.few is not None]
    yield "# The paper's study on revised MD17"
    notes = folder / "notes.md"
    if notes.exists():
        yield from ("", notes.read_text(encoding="utf-8").strip())
    yield ""
    yield from paragraph(INTRODUCTION)
    yield ""
    yield from settings(full or few)
    missing = list(absent(list(cases)))
    if missing:
        yield ""
        yield f"**Missing**: {'; '.join(missing)}."
    yield from section("Table 4: accuracy and likelihood", accuracy(full))
    yield from section("Table 5: outlier detection by σ (ROC AUC)", outliers(full), picture=pictures.get("roc"))
    yield from section("Table 6: calibration", calibration(full), picture=pictures.get("calibration"))
    if "density" in pictures:
        yield from section("Figure 5: densities of force errors", [], picture=pictures["density"])
    yield from section("Appendix D: one sample, and NequIP", appendix_d(full))
    yield from section("By number of samples", by_k(full))
    for count in sorted({case.few for case in few if case.few}):
        own = [case for case in few if case.few == count]
        title = f"Few data: {count} training frames"
        yield from section(title, [*accuracy(own), "", *outliers(own), "", *calibration(own)])
    if "roc-few" in pictures:
        yield from section("Few data: figures", [], picture=f"{pictures['roc-few']}\n{pictures['calibration-few']}")
    yield from section("Cost and convergence", costs(cases), picture=pictures.get("history"))
    yield from section("Half precision", half_precision(cases, folder))
    yield from section("Provenance", provenance(cases))


def section(title: str, lines: Sequence[str] | Iterator[str], picture: str | None = None) -> Iterator[str]:
    body = list(lines)
    if not body and not picture:
        return
    yield from ("", f"## {title}")
    for part in (body, [picture] if picture else []):
        if part:
            yield from ("", *part)


def appendix_d(cases: Sequence[Case]) -> Iterator[str]:
    """Forces and energies of single networks, and published errors."""
    rows = []
    for case in cases:
        error, energy = (
            [number(case.value(m, key, k=1), ".2f", 1e3) for m in ("bayes", "single", "paper-chain", "point")]
            for key in ("force_mae", "energy_mae")
        )
        rows.append([case.name, *error, number(PUBLISHED.get(case.molecule), ".1f"), *energy])
    heads = ["8 chains, k = 1", "one chain, k = 1", "the paper's steps, k = 1", "point NequIP"]
    yield from markdown(["", *(f"F: {h}" for h in heads), "F: published NequIP", *(f"E: {h}" for h in heads)], rows)
    yield ""
    yield "MAE in meV/Å and meV."


def by_k(cases: Sequence[Case]) -> Iterator[str]:
    rows = []
    for case in cases:
        for method in ("bayes", "single", "paper-chain", "ensemble", "dropout"):
            for key, scale, form, words in (
                ("force_mae", 1e3, ".2f", "MAE-F, meV/Å"),
                ("force_mll", 1, ".3f", "MLL-F"),
                ("force_miscalibration_area", 1, ".4f", "area-F"),
            ):
                values = [case.value(method, key, k=k) for k in (1, 2, 4, 8)]
                if any(value is not None for value in values):
                    rows.append([case.name, METHODS[method], words, *(number(v, form, scale) for v in values)])
    yield from markdown(["", "method", "raw", "k = 1", "2", "4", "8"], rows)


def costs(cases: Sequence[Case]) -> Iterator[str]:
    rows = []
    for case in cases:
        for method, found in case.results.items():
            verdict = found["verdict"]
            rows.append([
                case.name, METHODS[method], str(found["networks"]), str(found["steps"]), number(found["seconds"], ".0f"),
                number(found["prediction_seconds"], ".1f"), number(verdict.get("r_hat_forces"), ".2f"),
                number(verdict.get("ess_forces"), ".0f"), number(verdict.get("kinetic_temperature"), ".2f"),
                str(len(verdict.get("failed_chains", []))), found["recalibration"]["forces"]["method"],
            ])  # fmt: skip
    heads = [
        "networks",
        "steps each",
        "seconds",
        "to predict, s",
        "R-hat",
        "ESS",
        "temperature",
        "failed chains",
        "recalibration of forces",
    ]
    yield from markdown(["", "method", *heads], rows)
    yield ""
    yield from paragraph(ABOUT_COSTS)


def half_precision(cases: Sequence[Case], folder: Path) -> Iterator[str]:
    rows = []
    for case in cases:
        own: dict[str, Any] | None = read_json(folder / case.name / NOTE)
        if own:
            stored = own["stored"]
            rows.append([
                case.name, number(own["force_change_rms"], ".4f", 1e3), number(own["force_change_max"], ".3f", 1e3),
                number(own["sigma_relative_change_max"], ".2f", 100),
                f"{1e3 * own['force_mae_before']:.3f} → {1e3 * own['force_mae_after']:.3f}",
                f"`{case.name}/{own['file']}`", f"{own['bytes'] / 1e6:.1f}", str(stored["members"]),
                number(stored["force_mae"], ".3f", 1e3),
            ])  # fmt: skip
    if rows:
        heads = ["RMS change of forces, meV/Å", "largest", "largest change of σ, %", "MAE-F, meV/Å"]
        yield from markdown(["", *heads, "stored file", "MB", "samples", "MAE-F, meV/Å"], rows)
        yield ""
        yield from paragraph(ABOUT_HALF)


def settings(cases: Sequence[Case]) -> Iterator[str]:
    """Settings as recorded in the results."""
    found = [result for case in cases for result in case.results.values()]
    for words, value in (
        ("training / held-back frames", lambda r: f"{r['frames']['learned']} / {r['frames']['held_back']}"),
        ("test frames", lambda r: f"{r['frames']['test']} ({r['molecule']})"),
        (
            "network",
            lambda r: "{num_layers} layers of {num_features} features, l ≤ {l_max}".format(**r["config"]["network"]),
        ),
        ("batch", lambda r: str(r["config"]["burn_in"]["batch_size"])),
        ("mass", lambda r: r["config"]["sampler"].get("mass", "diagonal")),
        ("seed", lambda r: str(r["seed"])),
    ):
        yield f"- {words}: {listed(map(value, found))}"


def provenance(cases: Sequence[Case]) -> Iterator[str]:
    found = [result for case in cases for result in case.results.values()]
    for words, value in (
        ("code", lambda r: r["commit"]),
        ("hardware", lambda r: r["hardware"].get("gpu") if r["device"].startswith("cuda") else r["hardware"]["cpu"]),
        ("torch", lambda r: r["versions"]["torch"]),
        ("engine", lambda r: r.get("engine") or "triton"),
        ("precision of matrix products on a GPU", lambda r: r["precision"] if r["device"].startswith("cuda") else "–"),
    ):
        yield f"- {words}: {listed(map(value, found))}"
    yield f"- tested {min(result['time'] for result in found)} to {max(result['time'] for result in found)}"


def listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


if __name__ == "__main__":
    start(main)
