"""The parts of the page, one function each; a part without content is left out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from equibayes.evaluation import figures
from equibayes.evaluation.figures import Drawing
from equibayes.evaluation.figures.curves import FORCE
from equibayes.evaluation.metrics import OUTLIER_MULTIPLE
from equibayes.evaluation.report import tables, words
from equibayes.evaluation.report.markup import Html, tag
from equibayes.evaluation.report.numbers import Numbers
from equibayes.posterior.file import Posterior


@dataclass
class Content:
    """What a report is made of, and the drawings that it has used so far."""

    posterior: Posterior
    numbers: list[Numbers]
    sets: list[Numbers]
    drawings: list[Drawing] = field(default_factory=list)

    def figure(self, drawing: Drawing | None, title: str, caption: str, otherwise: str, *, wide: bool = False) -> Html:
        """A figure with its caption, or a sentence that says why there is none."""
        if drawing is None:
            return tag("p", tag("strong", f"{title}: "), otherwise, class_="absent")
        taken = {each.name for each in self.drawings}
        name, count = drawing.name, 2
        while name in taken:  # names of data sets may differ only in signs that a file name cannot have
            name, count = f"{drawing.name}-{count}", count + 1
        drawing = replace(drawing, name=name)
        self.drawings.append(drawing)
        return framed(drawing, title, caption, wide=wide)


def framed(drawing: Drawing, title: str, caption: str, *, wide: bool = False) -> Html:
    """A figure with its caption."""
    picture = tag("div", Html(drawing.inline()), role="img", aria_label=drawing.alt, class_="plot")
    legend = tag("figcaption", tag("strong", f"{title}. "), caption)
    return tag("figure", picture, legend, class_="wide" if wide else None)


def section(name: str, heading: str, *parts: Any) -> Html:
    return tag("section", tag("h2", heading, id=f"{name}-title"), *parts, id=name, aria_labelledby=f"{name}-title")


def figures_of_sets(content: Content, draw: Any, title: str, caption: str, otherwise: str, *, wide: bool) -> Html:
    """The same figure for every data set, side by side."""
    drawn = []
    for each in content.sets:
        own = f"{title}, {each.name}" if len(content.sets) > 1 else title
        drawn.append(content.figure(draw(each.result), own, caption, otherwise, wide=wide))
    return tag("div", *drawn, class_="figures")


def accuracy(content: Content) -> Html:
    notes = [f"{each.name}: {line}" for each in content.sets for line in words.missing(each)]
    by_species = figures_of_sets(
        content,
        figures.by_species,
        "Error and σ by species",
        "Good: the orange bar is as high as the blue one for every species. The diamond is the part of σ that comes "
        "from the disagreement of posterior samples.",
        "no force labels",
        wide=False,
    )
    histogram = figures_of_sets(
        content,
        figures.histogram_of_forces,
        "Force components, observed and predicted",
        "Good: the dashed line follows the filled area out into the tails (appendix C of the paper).",
        "no force labels",
        wide=True,
    )
    return section(
        "accuracy",
        "How far off are the predictions?",
        tables.forces(content.numbers) if any(n.quantity is FORCE for n in content.numbers) else "",
        tables.energies(content.numbers) if any(n.get("energy_mae") is not None for n in content.numbers) else "",
        items(notes, "notes"),
        tables.species(content.sets) or "",
        by_species,
        histogram,
    )


def stress(content: Content) -> Html | None:
    """None where no set has labels."""
    labelled = [each for each in content.sets if each.get("stress_mae") is not None]
    if not labelled:
        return None
    drawn = []
    for each in labelled:
        own = f", {each.name}" if len(labelled) > 1 else ""
        caption = "Good: on the dotted line, and the bars of ±1σ reach it in two of three cases."
        drawn.append(content.figure(figures.parity_of_stress(each.result), f"Stress{own}", caption, "no labels"))
        caption = "As for the forces: good is solid on dotted, rising from left to right."
        drawing = figures.sigma_against_error(each.result, stress=True)
        drawn.append(content.figure(drawing, f"Stress errors by predicted σ{own}", caption, "too few labels"))
    return section(
        "stress",
        "How good is the stress?",
        tag("p", *(f"{words.stress(each)} " for each in labelled)),
        tables.stress(content.numbers),
        tag("div", *drawn, class_="figures"),
    )


def outliers(content: Content) -> Html:
    results, first = [each.result for each in content.sets], content.sets[0]
    limit = f"{OUTLIER_MULTIPLE:g} times the MAE of the data" if first.relative else words.outlier_limit(first)
    many = " or ".join(dict.fromkeys(each.quantity.many for each in content.sets))
    roc = content.figure(
        figures.roc_curves(results, [each.threshold for each in content.sets]),
        "ROC curves",
        f"Sort all {many} by σ and flag from the top: how many of those with an error above {limit} are found, "
        "against how many good ones are flagged wrongly. Good: steep at the left, towards the upper left corner "
        "(figure 4 of the paper).",
        "no data set has both outliers and good components, so there is nothing to tell apart",
    )
    remaining = content.figure(
        figures.error_of_remaining(results),
        "Error without the most uncertain",
        f"Set the {many} with the largest σ aside, for example to compute them ab initio: the mean error of the "
        "rest. Good: falls steeply. Dotted: the best that any σ could do, sorted by the true error.",
        "too few labels",
    )
    both = tag("div", roc, remaining, class_="figures")
    return section("outliers", "Does σ find the large errors?", tables.outliers(content.numbers), both)


def novelty(content: Content) -> Html | None:
    if not any(each.get("novel_frame_share") is not None for each in content.sets):
        return None
    drawing = figures.error_by_novelty([each.result for each in content.sets])
    plot = content.figure(
        drawing,
        "Errors by novelty",
        "Good: errors are as usual left of the first dashed line, the edge of what was learned, and larger to the right of it; "
        "σ (dotted) grows with them. Beyond the second line predictions have little to do with the truth.",
        "too few force labels",
        wide=True,
    )
    return section(
        "novelty",
        "Is this like what was learned?",
        items([words.novelty(each) for each in content.sets]),
        tables.novelty(content.numbers),
        tag("div", plot, class_="figures"),
    )


def calibration(content: Content) -> Html:
    results = [each.result for each in content.sets]
    diagram = content.figure(
        figures.reliability_diagram(results),
        "Reliability diagram",
        "Take the interval around each prediction that should hold the share on the horizontal axis; the curve shows "
        "how many truths it contains. Good: on the diagonal. Below it σ is too small, above it too large.",
        "too few labels",
        wide=True,
    )
    against = figures_of_sets(
        content,
        figures.sigma_against_error,
        "Errors by predicted σ",
        "Solid lines: quantiles of the errors among components of similar σ; the bands hold half of them and nine "
        "tenths. Dotted: where these quantiles should lie. Good: solid on dotted, rising from left to right.",
        "too few labels",
        wide=False,
    )
    density = figures_of_sets(
        content,
        figures.density_of_errors,
        "Density of errors",
        "Filled: errors that occurred. Dashed: errors that the stated σ lead one to expect. Good: one on the "
        "other. A dashed "
        "line that is higher in the middle and lower in the tails means overconfidence (figures 5 and 6 of the paper).",
        "no force labels",
        wide=True,
    )
    return section(
        "calibration",
        "Does σ have the right size?",
        tables.calibration(content.numbers),
        tables.vectors(content.numbers) or "",
        tag("div", diagram, class_="figures"),
        against,
        density,
    )


def sample_count(content: Content) -> Html | None:
    by_k = sorted(content.numbers, key=lambda n: n.k)
    table = [(own.name, [(n.k, n.values) for n in by_k if n.name == own.name]) for own in content.sets]
    drawing = figures.by_sample_count(table)
    if drawing is None:
        return None
    caption = (
        "Good: errors fall, likelihood and AUC rise, and coverage comes closer to the dotted line, until more samples "
        "change nothing. Where curves still move at the right end, sample more."
    )
    shown = tag("div", content.figure(drawing, "Dependence on k", caption, "", wide=True), class_="figures")
    return section("samples", "How many samples are enough?", shown)


def run(content: Content) -> Html:
    history, posterior = content.posterior.history, content.posterior
    learned = content.figure(
        figures.learning_history(history, (posterior.step + 1).tolist()),
        "Learning history",
        "Shaded: burn-in; ticks at the bottom: samples were taken. Strong lines: held-back frames where there "
        "are any, faint: the "
        "minibatch. Good: errors level off before burn-in ends, and the temperature stays at the dotted line.",
        "the posterior file holds no history",
        wide=True,
    )
    traced = content.figure(
        figures.probe_traces(history),
        "Predictions of every chain during the cycles",
        "The force components of held-back frames over which the chains differ most. Good: all chains wander over the "
        "same range. Separate bands mean that each chain stays near its own solution.",
        "too few records of held-back frames during the cycles",
        wide=True,
    )
    events = [str(event) for event in (posterior.verdict or {}).get("events") or []]
    return section(
        "run",
        "How did the sampling go?",
        tables.diagnostics(posterior) or tag("p", "The posterior file holds no diagnostics.", class_="absent"),
        items(events[:20], "notes"),
        tag("div", learned, traced, class_="figures"),
    )


def items(lines: Sequence[str], kind: str | None = None) -> Html:
    """A list of lines; nothing where there are none."""
    return tag("ul", *(tag("li", line) for line in lines), class_=kind) if lines else Html()


def warnings_box(lines: list[str]) -> Html:
    if not lines:
        return Html()
    return tag("div", tag("strong", "The run says:"), items(lines), class_="warning", role="note")
