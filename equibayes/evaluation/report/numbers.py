"""The numbers that a report speaks of, for one data set at one k."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.figures.curves import FORCE, Quantity, found_outliers, judged, quantity_of, width_at
from equibayes.evaluation.figures.style import KCAL, MEV
from equibayes.evaluation.metrics import outlier_threshold
from equibayes.evaluation.tables import measure

Values = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Numbers:
    """values: as in METRICS.json.  The rest is used in the text; None where there is nothing to count.

    quantity: what the set is judged by, force components or (without any force label) energies; the numbers below are
    of this quantity
    threshold: error above which there is an outlier, eV/Å or eV
    relative: whether that is a multiple of the MAE
    too_small_68, too_small_95: factor by which σ would have to grow for 68.3 or 95 % of the errors to lie inside
    found: share of the outliers among the tenth of components with the largest σ
    typical_force: RMS of the force labels, eV/Å
    stated_sigma: RMS of all finite σ
    missing: components without label or finite prediction
    """

    result: Evaluated
    values: Values
    quantity: Quantity
    threshold: float
    relative: bool
    components: int
    missing: int
    outliers: int
    too_small_68: float | None
    too_small_95: float | None
    found: float | None
    typical_force: float | None
    stated_sigma: float | None

    @property
    def name(self) -> str:
        return self.result.name

    @property
    def k(self) -> int:
        return self.result.k

    def own(self, metric: str) -> float | None:
        """A metric of the quantity that the set is judged by: own("mae") is force_mae, or energy_mae."""
        return self.get(f"{self.quantity.key}_{metric}")

    def get(self, key: str, part: str | None = None) -> float | None:
        """A metric, None where it is missing or has no value."""
        values = self.values if part is None else self.values.get(part) or {}
        value = values.get(key)
        return float(value) if isinstance(value, (int, float)) and np.isfinite(value) else None


def collect(results: Sequence[Evaluated], metrics: Values | None) -> list[Numbers]:
    """For every result; metrics that were not given are computed."""
    given = metrics or {}
    threshold = given.get("threshold")
    sets = given.get("data") or {}
    found = []
    for result in results:
        by_k = sets.get(result.name) or {}
        values = by_k.get(str(result.k)) or by_k.get(result.k) or measure(result, threshold)
        found.append(_numbers(result, values, threshold))
    return found


def largest_k(numbers: Sequence[Numbers]) -> list[Numbers]:
    """Of every data set the evaluation with most samples, in the order in which the sets came."""
    best: dict[str, Numbers] = {}
    for each in numbers:
        if each.name not in best or each.k > best[each.name].k:
            best[each.name] = each
    return list(best.values())


def _numbers(result: Evaluated, values: Values, given: float | None) -> Numbers:
    """given: the threshold of outliers, None for a multiple of the MAE."""
    quantity, parts = quantity_of(result), judged(result)
    threshold = outlier_threshold(parts.error, given)
    outlier = np.abs(parts.error) > threshold
    labels = result.force_true[np.isfinite(result.force_true)]
    sigma = result.force_sigma if quantity is FORCE else result.energy_sigma
    any_labels = len(parts) > 0
    return Numbers(
        result=result,
        values=values,
        quantity=quantity,
        threshold=threshold,
        relative=given is None,
        components=len(parts),
        missing=parts.missing,
        outliers=int(outlier.sum()),
        too_small_68=width_at(parts.error, parts.sigma) if any_labels else None,
        too_small_95=width_at(parts.error, parts.sigma, 0.95) if any_labels else None,
        found=found_outliers(outlier, parts.sigma),
        typical_force=rms(labels),
        stated_sigma=rms(sigma[np.isfinite(sigma)]),
    )


def rms(values: np.ndarray) -> float | None:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else None


def mev(value: float | None, unit: str = "meV/Å") -> str:
    """From eV or eV/Å, with three significant digits: 38.2 meV/Å."""
    return "not known" if value is None else f"{digits(value * MEV)}\u00a0{unit}"


def kcal(value: float | None, unit: str = "kcal/(mol\u00a0Å)") -> str:
    """From eV or eV/Å: 0.881 kcal/(mol Å)."""
    return "not known" if value is None else f"{digits(value * KCAL)}\u00a0{unit}"


def percent(share: float | None, places: int = 0) -> str:
    return "–" if share is None else f"{100 * share:.{places}f}\u00a0%"


def digits(value: float, count: int = 3) -> str:
    """Three significant digits without exponents where people still read them: 0.0123, 1.23, 123, 12300."""
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{count - 1}e}"
    places = max(0, count - 1 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{places}f}"
