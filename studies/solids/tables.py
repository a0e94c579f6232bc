"""Tables and a figure of all finished cases: TABLES.md and properties.png beside OUTPUT, for the README."""

from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from equibayes.files import write_text
from studies.shared.results import read_json
from studies.solids.cases import ELEMENTS

JUDGED = {
    "a, Å": ("lattice", "a"),
    "B, GPa": ("eos", "bulk_modulus"),
    "B′": ("eos", "bulk_modulus_derivative"),
    "C11, GPa": ("elastic", "C11"),
    "C12, GPa": ("elastic", "C12"),
    "C44, GPa": ("elastic", "C44"),
}
MODULI = ("B, GPa", "C11, GPa", "C12, GPa", "C44, GPa")
VIEWS = ("sampled", "refined")


def write(folder: Path) -> None:
    cases = [read_json(path) for path in sorted(folder.glob("*.json"))]
    cases = [each | {"name": f"{each['name']} (settings)".strip()} if each.get("tune") else each for each in cases]
    final = [each for each in cases if not each["name"] and each["system"] not in ELEMENTS]
    parts = [
        errors(final),
        summary(final),
        crystals(final),
        errors([each for each in cases if each["name"] and each["system"] not in ELEMENTS], place="test"),
        elements([each for each in cases if each["system"] in ELEMENTS]),
        noises([read_json(path) for path in sorted((folder.parent / "noises").glob("*.json"))]),
        slabs([read_json(path) for path in sorted((folder.parent / "slabs").glob("*.json"))]),
    ]
    write_text(folder.parent / "TABLES.md", "\n\n".join(part for part in parts if part) + "\n")
    if final:
        from studies.solids.figure import draw

        draw(final, folder.parent / "properties.png")


def table(heads: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def groups(cases: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Cases that differ by their seeds alone."""
    names = sorted({(each["system"], each["name"]) for each in cases}, key=lambda pair: (len(pair[0]), pair))
    for system, name in names:
        own = [each for each in cases if (each["system"], each["name"]) == (system, name)]
        yield f"{system} {name}".strip(), own


def errors(cases: list[dict[str, Any]], place: str = "test") -> str:
    """On frames that nothing was learned from; means over seeds."""
    rows = []
    for name, own in groups(cases):
        for view in [view for view in VIEWS if view in own[0]["views"]]:
            values = [each["views"][view][place] for each in own]
            rows.append(
                [
                    name,
                    str(len(own)),
                    view,
                    _mean(values, "force_mae", 1e3, ".1f"),
                    _mean(values, "energy_mae_per_atom", 1e3, ".2f"),
                    _mean(values, "stress_mae", 1, ".3f"),
                    *(_mean(values, f"{kind}_coverage_68", 100, ".0f") for kind in ("force", "energy", "stress")),
                    *(_mean(values, f"{kind}_coverage_95", 100, ".0f") for kind in ("force", "energy", "stress")),
                    str(round(mean(sum(each["seconds"].values()) for each in own))),
                ]
            )
    heads = ["system", "seeds", "posterior", "forces, meV/Å", "energy, meV per atom", "stress, GPa"]
    inside = [f"{kind} in {level} %" for level in (68, 95) for kind in ("F", "E", "S")]
    return table([*heads, *inside, "s"], rows)


def _mean(values: list[dict[str, Any]], key: str, factor: float, form: str) -> str:
    known = [each[key] for each in values if each.get(key) is not None]
    return format(factor * mean(known), form) if known else "–"


def compared(case: dict[str, Any], view: str) -> Iterator[tuple[str, str, float, dict[str, Any]]]:
    """crystal, quantity, number of the engine, what was found"""
    for crystal, own in case["views"][view]["properties"].items():
        for label, (group, name) in JUDGED.items():
            found = own.get(group, {}).get(name)
            if found is not None:
                yield crystal, label, float(case["engine"][crystal][group][name]["value"]), found


def inside(truth: float, found: dict[str, Any]) -> bool:
    low, high = found["interval_95"]
    return bool(low <= truth <= high)


def summary(cases: list[dict[str, Any]]) -> str:
    """Relative errors of all crystals and seeds, and how often the truth is in the 95 % interval."""
    rows = []
    for view in VIEWS:
        every = [each for case in cases if view in case["views"] for each in compared(case, view)]
        for label in (*JUDGED, "all"):
            own = [(truth, found) for _, key, truth, found in every if label in (key, "all")]
            if own:
                off = sorted(100 * abs(found["value"] / truth - 1) for truth, found in own)
                share = 100 * mean(inside(*pair) for pair in own)
                within = 100 * mean(each <= 3 for each in off)
                numbers = [f"{mean(off):.2f}", f"{off[len(off) // 2]:.2f}", f"{off[-1]:.1f}", f"{within:.0f}"]
                rows.append([view, label, str(len(own)), *numbers, f"{share:.0f}"])
    heads = ["posterior", "quantity", "number", "mean error, %", "median, %", "largest, %", "≤ 3 %", "in 95 %"]
    return table(heads, rows)


def crystals(cases: list[dict[str, Any]], view: str = "refined") -> str:
    """Each crystal: engine → mean ± σ of each seed's posterior, the seeds averaged."""
    rows = []
    for name, own in groups(cases):
        found: dict[str, dict[str, list[tuple[float, dict[str, Any]]]]] = {}
        for case in own:
            for crystal, label, truth, each in compared(case, view):
                found.setdefault(crystal, {}).setdefault(label, []).append((truth, each))
        for crystal, quantities in found.items():
            cells = [_cell(quantities.get(label, []), ".4f" if label.startswith("a") else ".1f") for label in JUDGED]
            rows.append([name, crystal, *cells])
    return table(["learned", "crystal", *JUDGED], rows)


def _cell(values: list[tuple[float, dict[str, Any]]], form: str) -> str:
    if not values:
        return "–"
    average = mean(found["value"] for _, found in values)
    sigma = mean(found["sigma"] for _, found in values)
    return f"{values[0][0]:{form}} → {average:{form}} ± {sigma:{form}}"


def elements(cases: list[dict[str, Any]]) -> str:
    """Of mlearn."""
    rows = []
    for name, own in groups(cases):
        for view in [view for view in VIEWS if view in own[0]["views"]]:
            values = [each["views"][view]["test"] for each in own]
            forms = (("force_mae", 1e3, ".0f"), ("force_rmse", 1e3, ".0f"), ("energy_mae_per_atom", 1e3, ".1f"))
            shares = (("force_coverage_68", 100, ".0f"), ("force_coverage_95", 100, ".0f"))
            cells = [_mean(values, key, factor, form) for key, factor, form in (*forms, *shares)]
            rows.append([name, str(len(own)), view, *cells])
    heads = [
        "system",
        "seeds",
        "posterior",
        "force MAE, meV/Å",
        "RMSE",
        "energy MAE, meV per atom",
        "F in 68 %",
        "F in 95 %",
    ]
    return table(heads, rows)


def noises(studies: list[dict[str, Any]]) -> str:
    """Of `studies.solids.noises`: forces on held-back frames and on others, by λ."""
    rows = []
    for each in studies:
        for one in each["noises"]:
            held, tune = one["held_back"], one["tune"]
            cells = [f"{each['system']} {each['seed']}", f"{one['noise']:g}", f"{one['size']:.2f}"]
            cells += [f"{one['held_back_log_likelihood']:.0f}", f"{1e3 * held['force_mae']:.1f}"]
            cells += [f"{1e3 * tune['force_mae']:.1f}", f"{1e3 * tune['force_rmse']:.1f}", f"{tune['stress_mae']:.3f}"]
            rows.append([*cells, f"{100 * tune['force_coverage_68']:.0f}"])
    of = ["held back: ln p", "F, meV/Å", "others: F, meV/Å", "F RMS", "stress, GPa", "F in 68 %"]
    return table(["system, seed", "λ", "size of δ", *of], rows)


def slabs(studies: list[dict[str, Any]]) -> str:
    """Force errors on slabs, and surface energies: engine → mean ± σ."""
    rows = []
    for each in studies:
        for name, view in each["views"].items():
            test, surface = view["test"], view["surface"]
            cells = [
                str(each["seed"]),
                name,
                f"{1e3 * test['force_mae']:.1f}",
                f"{100 * test['force_coverage_68']:.0f}",
            ]
            found = [f"{one['engine']:.2f} → {one['value']:.2f} ± {one['sigma']:.2f}" for one in surface.values()]
            rows.append([*cells, *found])
    heads = ["seed", "posterior", "forces of slabs, meV/Å", "F in 68 %", "γ(100), meV/Å²", "γ(111), meV/Å²"]
    return table(heads, rows)
