"""Tables 4, 5 and 6 of the paper: metrics by molecule and method."""

from collections.abc import Callable, Sequence

from studies.rmd17.collected import METHODS, Case
from studies.shared import tables
from studies.shared.tables import number, paragraph

Cells = list[str]
LOW, HIGH = min, max
ABOUT_LIKELIHOOD = """meV/Å and meV. MLL: mean ln likelihood with errors in eV and Å (3.14 lower in kcal/mol, the unit
of the paper); higher is better."""
ABOUT_OUTLIERS = """An outlier is a force component with an error above 1 kcal/(mol Å) = 43.4 meV/Å (–: there is
none), or above three times the method's own MAE. A constant σ gives 0.5."""
ABOUT_CALIBRATION = """NECE as in appendix A.5 of the paper: bins of 0.01 kcal/(mol Å) or kcal/mol, in the inverse of
that unit; area: miscalibration area, 0 to 0.5; in 68 %: fraction of errors inside the 68 % interval; σ-F: root mean
square of σ, not recalibrated."""


def accuracy(cases: Sequence[Case]) -> list[str]:
    """Errors in meV and meV/Å; MLL in eV and Å."""
    columns = []
    for part, letter in (("force", "F"), ("energy", "E")):
        columns += [Column(f"{kind.upper()}-{letter}", f"{part}_{kind}", 1e3, ".2f", LOW) for kind in ("mae", "rmse")]
        columns += both(f"MLL-{letter}", f"{part}_mll", ".3f", HIGH)
    return by_method(cases, columns, ABOUT_LIKELIHOOD)


def outliers(cases: Sequence[Case]) -> list[str]:
    columns = [
        Column("errors above 1 kcal/(mol Å), %", "force_outlier_share", 100, ".3f", None),
        *both("AUC", "force_auc", ".3f", HIGH),
        *both("AUC above 3 MAE", "force_auc_relative", ".3f", HIGH),
        Column("rank correlation of σ and error", "force_spearman", 1, ".3f", HIGH),
    ]
    return by_method(cases, columns, ABOUT_OUTLIERS)


def calibration(cases: Sequence[Case]) -> list[str]:
    columns = [
        *both("NECE-F", "kcal_mol.force_nece", ".3f", LOW),
        *both("area-F", "force_miscalibration_area", ".4f", LOW),
        *both("in 68 %", "force_coverage_68", ".1f", None, 100),
        *both("in 95 %", "force_coverage_95", ".1f", None, 100),
        Column("σ-F, meV/Å", "force_sharpness", 1e3, ".2f", None),
        *both("NECE-E", "kcal_mol.energy_nece", ".3f", LOW),
        *both("area-E", "energy_miscalibration_area", ".3f", LOW),
    ]
    return by_method(cases, columns, ABOUT_CALIBRATION)


class Column:
    """How a metric is found, formatted and ranked."""

    def __init__(
        self,
        heading: str,
        key: str,
        scale: float,
        form: str,
        best: Callable[..., float] | None,
        part: str = "raw",
    ) -> None:
        self.heading, self.key, self.scale, self.form, self.best, self.part = heading, key, scale, form, best, part

    def cells(self, case: Case, methods: Sequence[str]) -> Cells:
        """One per method; values equal to the best one are bold."""
        texts = [number(case.value(method, self.key, self.part), self.form, self.scale) for method in methods]
        known = [float(text) for text in texts if text != "–"]
        if self.best is None or len(known) < 2:
            return texts
        return [f"**{text}**" if text != "–" and float(text) == self.best(known) else text for text in texts]


def both(
    heading: str, key: str, form: str, best: Callable[..., float] | None, scale: float = 1
) -> tuple[Column, Column]:
    """The metric raw and recalibrated."""
    return Column(heading, key, scale, form, best), Column(f"recal. {heading}", key, scale, form, best, "recalibrated")


def by_method(cases: Sequence[Case], columns: Sequence[Column], about: str) -> list[str]:
    """One row per molecule and method, and what the columns mean."""
    rows: list[Cells] = []
    for case in cases:
        methods = list(case.results)
        table = [column.cells(case, methods) for column in columns]
        rows += [[case.name, METHODS[method], *row] for method, row in zip(methods, zip(*table))]
        rows += [[case.name, METHODS[method], "missing", *["" for _ in columns[1:]]] for method in case.missing]
    headings = ["", "method", *(column.heading for column in columns)]
    return [*markdown(headings, rows), "", *paragraph(about)]


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return tables.markdown(headings, rows) if rows else ["No results."]
