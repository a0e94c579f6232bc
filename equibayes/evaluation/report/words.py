"""What the numbers mean, in sentences for a chemist."""

from typing import Any

from equibayes.evaluation.figures.curves import FORCE
from equibayes.evaluation.metrics import OUTLIER_MULTIPLE
from equibayes.evaluation.print_tables import by_reason
from equibayes.evaluation.report.numbers import Numbers, digits, kcal, mev, percent
from equibayes.plural import counted
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.file import Posterior
from equibayes.posterior.novelty import NOVELTY
from equibayes.run.stationarity import EARLIER, samples_are, sentence, undefined
from equibayes.run.verdict import R_HAT_LIMIT
from equibayes.units import GPA

# σ within this factor of the errors counts as right: a few hundred labelled atoms do not tell it better
TOLERANCE = 1.1
CLEAR = 1.5
USUAL_NOVEL_SHARE = 0.01
"""Share of frames like those learned that may be novel by chance."""


def verdict(numbers: Numbers) -> tuple[str, str]:
    """A word for the badge and its kind: right, over, under or unknown."""
    factor = numbers.too_small_68
    if factor is None:
        return "not comparable: no labels", "unknown"
    if factor > TOLERANCE:
        return ("clearly " if factor > CLEAR else "somewhat ") + "overconfident", "over"
    if factor < 1 / TOLERANCE:
        return ("clearly " if factor < 1 / CLEAR else "somewhat ") + "underconfident", "under"
    return "σ fits the errors", "right"


def accuracy(numbers: Numbers) -> str:
    error, typical = numbers.get("force_mae"), numbers.typical_force
    if numbers.quantity is not FORCE:
        return "There are no force labels; the model is judged by its energies."
    if error is None:
        return f"The force error is not known{_because(numbers, 'force_mae')}."
    share = ""
    if typical:
        share = f", {digits(100 * error / typical, 2)}\u00a0% of a typical force component ({mev(typical)} RMS)"
    return f"A predicted force component is off by {mev(error)} on average ({kcal(error)}){share}."


def energy(numbers: Numbers) -> str:
    error, each = numbers.get("energy_mae"), numbers.get("energy_mae", "per_atom")
    if error is None:
        return f"Energies cannot be compared{_because(numbers, 'energy_mae')}."
    per_atom = f", {mev(each, 'meV')} per atom" if each is not None else ""
    inside = numbers.get("energy_coverage_68")
    right = f"; {percent(inside)} of them within ±1σ (68 % is right)" if inside is not None else ""
    return f"Energies are off by {mev(error, 'meV')} per structure ({kcal(error, 'kcal/mol')}){per_atom}{right}."


def stress(numbers: Numbers) -> str:
    """Empty where there is no label."""
    error, sigma = numbers.get("stress_mae"), numbers.get("stress_sharpness")
    if error is None:
        return ""
    inside = numbers.get("stress_coverage_68")
    right = f"; {percent(inside)} of them within ±1σ (68 % is right)" if inside is not None else ""
    beside = f", σ is {digits(sigma / GPA)}\u00a0GPa (RMS)" if sigma is not None else ""
    frames = counted(int(numbers.get("n_frames_with_stress") or 0), "frame")
    return f"Elements of the stress ({frames}) are off by {digits(error / GPA)}\u00a0GPa on average{beside}{right}."


def meaning(numbers: Numbers) -> str:
    """What σ is, with its size."""
    sigma, error, share = (numbers.own(key) for key in ("sharpness", "rmse", "epistemic_share"))
    sigma = numbers.stated_sigma if sigma is None else sigma  # σ is there without labels as well
    many, unit = numbers.quantity.many, numbers.quantity.unit
    if sigma is None:
        return f"The model states no finite σ for these {'forces' if numbers.quantity is FORCE else many}."
    beside = f" where the error is {mev(error, unit)}" if error is not None else ""
    parts = ""
    if share is not None:
        epistemic = f"{percent(share)} of σ² is disagreement between posterior samples, or novelty (epistemic)"
        parts = f" {epistemic}, the rest is noise that they predict."
    both = "both root mean square" if beside else "root mean square"
    median = numbers.own("median_sigma")  # a few novel atoms decide the root mean square
    half = "" if median is None else f" Half of all σ are below {mev(median, unit)}."
    return f"The model states an uncertainty σ of {mev(sigma, unit)}{beside} ({both}).{half}{parts}"


def calibration(numbers: Numbers) -> str:
    one, two = numbers.too_small_68, numbers.too_small_95
    if one is None or two is None:
        return "Without labels it cannot be checked whether σ is right."
    word, kind = verdict(numbers)
    if kind == "right":
        first = f"σ has the right size: errors are {digits(one)} times as wide as it says."
    elif kind == "over":
        first = f"The model is {word}: errors are {digits(one)} times as wide as σ says. Multiply σ by that."
    else:
        first = f"The model is {word}: errors are only {digits(one)} times as wide as σ says."
    tails = ""
    if two > one * TOLERANCE:
        tails = f" Large errors are more frequent than a Gaussian allows (factor {digits(two)} at 95 %)."
    elif two < one / TOLERANCE:
        tails = f" Large errors are rarer than a Gaussian allows (factor {digits(two)} at 95 %)."
    return first + tails


def outlier_limit(numbers: Numbers) -> str:
    """The error above which there is an outlier: 90 meV/Å (2.08 kcal/(mol Å); 3 times the MAE)."""
    own = numbers.quantity
    rule = f"; {OUTLIER_MULTIPLE:g} times the MAE" if numbers.relative else ""
    return f"{mev(numbers.threshold, own.unit)} ({kcal(numbers.threshold, own.kcal)}{rule})"


def outliers(numbers: Numbers) -> str:
    own = numbers.quantity
    if not numbers.components:
        return "Without labels outliers cannot be counted."
    auc, limit = numbers.own("auc"), outlier_limit(numbers)
    if not numbers.outliers:
        none = f"No {own.one} has an error above {limit}"
        return f"{none}: there are no outliers to find, and ROC AUC has no value."
    share = numbers.outliers / numbers.components
    of = counted(numbers.components, own.one, own.many)
    count = f"{numbers.outliers} of {of} ({percent(share, 1)}) have an error above {limit}"
    if auc is None:
        return f"{count}; ROC AUC has no value{_because(numbers, f'{own.key}_auc')}."
    # with many outliers a tenth cannot hold them all: say what could be reached
    best = min(1.0, 0.1 / share)
    found = f"; the tenth with the largest σ holds {percent(numbers.found)} of them (at best {percent(best)})"
    quality = "well" if auc >= 0.9 else "usefully" if auc >= 0.75 else "weakly" if auc > 0.55 else "not"
    if share > 0.5:
        count += ", more than half: this threshold is tight for this model"
    return f"{count}. σ finds them {quality}: ROC AUC {auc:.3f} (1 is perfect, 0.5 is guessing){found}."


def novelty(numbers: Numbers) -> str:
    """Whether the data are like those that were learned."""
    share, frames = numbers.get("novel_frame_share"), numbers.result.frame_novelty
    if share is None or frames is None:
        return f"{numbers.name}: novelty is not known."
    most = f"the largest novelty is {digits(float(frames.max()), 3)}"
    if share <= USUAL_NOVEL_SHARE:
        return f"{numbers.name}: like what was learned ({percent(share, 1)} of the structures are beyond its edge; {most})."
    far = float((frames >= NOVELTY[1]).mean())
    beyond = f"{percent(share, 1)} of the structures are beyond the edge of what was learned"
    return f"{numbers.name}: {beyond}, {percent(far, 1)} so far that the model does not know ({most})."


def shift(sets: list[Numbers]) -> list[str]:
    """How the later sets compare with the first: does σ rise where errors rise?"""
    said = []
    first = sets[0]
    base = first.own("rmse"), first.own("sharpness")
    for other in sets[1:]:
        now = other.own("rmse"), other.own("sharpness")
        if other.quantity is not first.quantity or None in base or None in now or not base[0] or not base[1]:
            continue
        error, sigma = now[0] / base[0], now[1] / base[1]  # type: ignore[operator]
        if error > TOLERANCE:
            kept = (sigma - 1) / (error - 1)
            judged = "σ follows" if kept > 0.8 else "σ follows in part" if kept > 0.3 else "σ hardly notices"
        else:
            judged = "no harder for the model"
        growth = f"errors {digits(error)} times, σ {digits(sigma)} times as large"
        said.append(f"{other.name} against {first.name}: {growth}: {judged}.")
    return said


def chains(posterior: Posterior) -> tuple[str, str]:
    """Whether the chains agree, and a kind as in `verdict`."""
    found: dict[str, Any] = posterior.verdict or {}
    origin = samples(posterior)
    r_hat, ess = found.get("r_hat_forces"), found.get("ess_forces")
    if not isinstance(r_hat, (int, float)):
        why = found.get("convergence_undefined_because") or "the run left no diagnostics"
        return f"{origin} R-hat is undefined: {why}.", "unknown"
    size = f", effective sample size {ess:.0f}" if isinstance(ess, (int, float)) else ""
    measured = f"R-hat of predicted forces {r_hat:.2f}"
    if r_hat <= R_HAT_LIMIT:
        return f"{origin} The chains agree: {measured} (1 is agreement){size}.", "right"
    apart = f"The chains stay apart: {measured} (1 is agreement){size}."
    return f"{origin} {apart} Their disagreement is part of σ.", "over"


def descent(posterior: Posterior) -> tuple[str, str]:
    """Whether the chains are still on their way, and a kind as in `verdict`."""
    found = (posterior.verdict or {}).get("stationarity") or undefined(EARLIER)
    text = f"{sentence(found)}; {samples_are(found)}"
    kind = "unknown" if found.get("moving") is None else "over" if found["moving"] else "right"
    return f"{text[:1].upper()}{text[1:]}.", kind


def samples(posterior: Posterior) -> str:
    chains = len(set(posterior.chain.tolist()))
    return f"{counted(len(posterior), 'posterior sample')} from {counted(chains, 'chain')}."


def recalibration(posterior: Posterior) -> str:
    """Whether σ was recalibrated."""
    if posterior.calibration is None:
        return "It is as predicted by the model, without recalibration."
    found = Calibration.from_dict(posterior.calibration)
    frames = f"{counted(found.data.get('frames', 'an unknown number of'), 'frame')} of {found.data.get('name', 'unknown data')}"
    methods = {what: _METHODS[part.method] for what, part in found.parts().items()}
    if len(set(methods.values())) == 1:
        return f"Calibration on {frames}: {methods['forces']}."
    return f"Calibration on {frames}: {', '.join(f'for {what} {method}' for what, method in methods.items())}."


_METHODS = {
    "none": "σ was left as it was, since no change proved better",
    "scale": "σ was multiplied by one number",
    "parts": "the epistemic and the aleatoric part of σ were multiplied by one number each",
    "species": "σ was multiplied by one number for every species",
    "monotone": "σ was mapped by a rising curve",
}


def warnings(posterior: Posterior) -> list[str]:
    """Warnings of the run itself, and notes on its data."""
    given = [*((posterior.verdict or {}).get("warnings") or []), *((posterior.data or {}).get("notes") or [])]
    return [str(line)[:1].upper() + str(line)[1:] + ("" if str(line).endswith(".") else ".") for line in given]


def missing(numbers: Numbers) -> list[str]:
    """Frames that were learned from, and what could not be compared, and why; one sentence per reason."""
    said = [f"{note}." for note in [numbers.values.get("note")] if note]
    if numbers.missing:
        total = numbers.missing + numbers.components
        count = f"{numbers.missing} of {counted(total, numbers.quantity.one, numbers.quantity.many)}"
        said.append(f"{count} have no label or no finite prediction and are not in the figures.")
    for reason, keys in by_reason(numbers.values.get("reasons") or {}).items():
        names = [_spoken(key) for key in keys]
        shown = ", ".join(names) if len(names) < 5 else f"{', '.join(names[:3])} and {len(names) - 3} more"
        said.append(f"No value for {shown}: {reason}.")
    return said


def _spoken(key: str) -> str:
    """`force_mae` as people write it: force MAE."""
    short = {"mae", "rmse", "mll", "auc", "ece", "nece", "ence", "crps"}
    return " ".join(word.upper() if word in short else word for word in key.split("_"))


def _because(numbers: Numbers, key: str) -> str:
    reason = (numbers.values.get("reasons") or {}).get(key)
    return f": {reason}" if reason else ""
