"""What the study set out to reach, and by how much each goal is met or missed."""

from collections.abc import Iterator
from dataclasses import dataclass

from collected import METHODS, Case

# force MAE of NequIP on rMD17 as published (Batzner et al. 2022), meV/Å
PUBLISHED = {
    "aspirin": 8.2,
    "azobenzene": 2.9,
    "benzene": 0.3,
    "ethanol": 2.8,
    "malonaldehyde": 5.1,
    "toluene": 1.6,
}
RIVALS = ("dropout", "ensemble")
PAPER_CHAIN = "paper-chain"


@dataclass(frozen=True)
class Goal:
    """measured shall be at most `wanted` (or above it); None where it cannot be judged."""

    case: str
    words: str
    measured: float | None
    wanted: float | None
    form: str
    above: bool = False

    @property
    def met(self) -> bool | None:
        if self.measured is None or self.wanted is None:
            return None
        return self.measured > self.wanted if self.above else self.measured <= self.wanted

    def cells(self) -> list[str]:
        shown = [f"{'–' if value is None else format(value, self.form)}" for value in (self.measured, self.wanted)]
        sign = "> " if self.above else "≤ "
        return [self.case, self.words, shown[0], sign + shown[1], self._verdict(), self._by()]

    def _verdict(self) -> str:
        return "cannot be judged" if self.met is None else "met" if self.met else "**missed**"

    def _by(self) -> str:
        """Errors as a share of what was wanted, likelihoods and areas as they are."""
        if self.measured is None or self.wanted is None:
            return ""
        if self.above:
            return format(self.measured - self.wanted, "+" + self.form)
        return f"{100 * (self.measured / self.wanted - 1):+.0f} %" if self.wanted else ""


def goals(case: Case) -> Iterator[Goal]:
    """Those of a molecule with all its frames, for the posterior of 8 chains; of the paper's chain those that need no rival.

    Rivals have as many steps a network as one of the 8 chains, fifty times fewer than the paper's chain.
    """
    yield _error(case, "bayes")
    for part in ("raw", "recalibrated"):
        for rival in RIVALS:
            yield Goal(
                case.name,
                f"MLL-F above {METHODS[rival]}, {part}",
                case.value("bayes", "force_mll", part),
                case.value(rival, "force_mll", part),
                ".3f",
                above=True,
            )
    # the paper's threshold, unless somebody has no such errors: then three times the mean error of each
    everybody = ("bayes", *(rival for rival in RIVALS if rival in case.results))
    usual = all(case.value(method, "force_auc") is not None for method in everybody)
    key, words = ("force_auc", "") if usual else ("force_auc_relative", " (errors above 3 MAE)")
    for rival in RIVALS:
        yield Goal(
            case.name,
            f"ROC AUC{words} above {METHODS[rival]}, raw",
            case.value("bayes", key),
            case.value(rival, key),
            ".3f",
            above=True,
        )
    yield from _calibration(case, "bayes", "single")
    if PAPER_CHAIN in case.results:
        yield _error(case, PAPER_CHAIN)
        yield from _calibration(case, PAPER_CHAIN, PAPER_CHAIN)


def _named(case: Case, method: str) -> str:
    return case.name if method == "bayes" else f"{case.name}, {METHODS[method]}"


def _error(case: Case, method: str) -> Goal:
    error = case.value(method, "force_mae")
    measured = None if error is None else 1e3 * error
    wanted = PUBLISHED.get(case.molecule)
    return Goal(_named(case, method), "MAE-F of published NequIP, meV/Å", measured, wanted, ".2f")


def _calibration(case: Case, method: str, chain: str) -> Iterator[Goal]:
    for key, words, form in (
        ("kcal_mol.force_nece", "NECE-F", ".3f"),
        ("force_miscalibration_area", "miscalibration area-F", ".4f"),
    ):
        raw = case.value(chain, key)
        yield Goal(
            _named(case, method),
            f"{words} recalibrated, half of the raw {'single chain' if chain != method else 'one'}",
            case.value(method, key, "recalibrated"),
            None if raw is None else raw / 2,
            form,
        )
