"""The top of the page: what matters, in words, with data sets side by side."""

from equibayes.evaluation.report import words
from equibayes.evaluation.report.markup import Html, tag
from equibayes.evaluation.report.numbers import Numbers, kcal, mev, percent
from equibayes.evaluation.report.sections import Content, items, section, warnings_box
from equibayes.plural import counted
from equibayes.posterior.file import Posterior

# a symbol in addition to the colour of a badge
_SIGNS = {"right": "●", "over": "▲", "under": "▼", "unknown": "○"}


def headline(content: Content) -> Html:
    agreement, kind = words.chains(content.posterior)
    descent, moving = words.descent(content.posterior)
    return section(
        "summary",
        "In short",
        tag("div", *(_card(each) for each in content.sets), class_="cards"),
        items(words.shift(content.sets), "compare"),
        tag("p", _badge(_AGREEMENT[kind], kind), " ", agreement),
        tag("p", _badge(_DESCENT[moving], moving), " ", descent),
        warnings_box(words.warnings(content.posterior)),
        tag("p", _sigma_is(content.posterior), class_="hint"),
    )


_AGREEMENT = {"right": "chains agree", "over": "chains differ", "unknown": "agreement unknown"}
_DESCENT = {"right": "no drift", "over": "still drifting", "unknown": "drift unknown"}


def _card(numbers: Numbers) -> Html:
    word, kind = words.verdict(numbers)
    sizes = (len(numbers.result.structures), "structure"), (len(numbers.result.number), "atom"), (numbers.k, "sample")
    size = ", ".join(counted(*each) for each in sizes)
    sentences = (words.accuracy, words.meaning, words.calibration, words.outliers, words.energy, words.stress)
    return tag(
        "article",
        tag("h3", numbers.name),
        tag("p", size, class_="size"),
        _big(numbers),
        tag("p", _badge(word, kind)),
        _gauge("within ±1σ", numbers.own("coverage_68"), 0.68),
        _gauge("within ±1.96σ", numbers.own("coverage_95"), 0.95),
        *(tag("p", said) for say in sentences if (said := say(numbers))),
        class_="card",
    )


def _big(numbers: Numbers) -> Html:
    """The force error; where there are no force labels, the energy error."""
    force, energy = numbers.get("force_mae"), numbers.get("energy_mae")
    if force is None and energy is not None:
        value, what = mev(energy, "meV"), f"mean energy error of a structure, {kcal(energy, 'kcal/mol')}"
    else:
        value, what = mev(force), "mean force error" + (f", {kcal(force)}" if force is not None else "")
    return tag("p", tag("span", value, class_="value"), " ", tag("span", what, class_="unit"), class_="big")


def _gauge(name: str, share: float | None, right: float) -> Html:
    """A bar with a mark where it should end."""
    if share is None:
        return Html()
    bar = tag(
        "span",
        tag("span", class_="fill", style=f"width:{100 * share:.1f}%"),
        tag("span", class_="mark", style=f"left:{100 * right:.1f}%"),
        class_="track",
        aria_hidden="true",
    )
    value = tag("span", f"{percent(share)} (right: {percent(right)})", class_="share")
    return tag("p", tag("span", name), bar, value, class_="gauge")


def _badge(word: str, kind: str) -> Html:
    return tag("span", tag("span", _SIGNS[kind], aria_hidden="true"), " ", word, class_=f"badge {kind}")


def _sigma_is(posterior: Posterior) -> str:
    return (
        "σ is the predicted standard deviation of each force component and each energy. If it is right, and errors are "
        "Gaussian, the truth lies within ±1σ in 68 of 100 cases and within ±1.96σ in 95. "
        f"{words.recalibration(posterior)}"
    )
