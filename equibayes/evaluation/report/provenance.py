"""Where the numbers come from: data, network, settings."""

import json

from equibayes.evaluation.report.markup import Html, tag
from equibayes.evaluation.report.sections import Content, section
from equibayes.evaluation.report.words import samples
from equibayes.plural import counted
from equibayes.posterior.file import Posterior
from equibayes.version import __version__


def about(posterior: Posterior) -> Html:
    """One paragraph under the title."""
    data, network = posterior.data or {}, posterior.network
    learned = ""
    if data.get("frames"):
        learned = f"Learned from {counted(data['frames'], 'structure')} of {data.get('name', 'unknown data')}. "
    return tag("p", f"{learned}A Bayesian NequIP potential for {', '.join(network.type_names)}: {samples(posterior)}")


def provenance(content: Content) -> Html:
    posterior = content.posterior
    data, network = posterior.data or {}, posterior.network
    size = counted(posterior.samples.shape[1], "weight")
    lines = [
        ("data to learn from", data.get("name", "unknown")),
        ("structures", f"{data.get('frames', '?')} to learn from, {data.get('validation_frames', '?')} held back"),
        ("fingerprint", data.get("fingerprint", "unknown")),
        (
            "network",
            f"NequIP, {counted(network.num_layers, 'layer')}, l ≤ {network.l_max}, cutoff {network.r_max:g} Å, {size}",
        ),
        ("written by", f"equibayes {posterior.version}, report by {__version__}"),
        ("units", "energies in eV, forces in eV/Å; 1 kcal/(mol Å) = 43.4 meV/Å"),
    ]
    settings = json.dumps(posterior.config, indent=2, ensure_ascii=False, default=str)
    return section(
        "about",
        "Where this comes from",
        _definitions(lines),
        tag("details", tag("summary", "Words used here"), _definitions(_WORDS)),
        tag("details", tag("summary", "All settings of the run"), tag("pre", settings)) if posterior.config else "",
    )


def _definitions(lines: list[tuple[str, str]]) -> Html:
    return tag("dl", *(part for term, what in lines for part in (tag("dt", term), tag("dd", what))))


_WORDS = [
    ("MAE, RMSE", "Mean absolute error and root mean square error, over force components or over structures."),
    ("σ", "Stated standard deviation; its tables give the root mean square."),
    (
        "epistemic, aleatoric",
        "Spread over posterior samples, and noise that each of them predicts; squares add up to σ².",
    ),
    ("MLL", "Mean log-likelihood of the labels; higher is better. It depends on the unit."),
    (
        "ROC AUC",
        "Chance that a component with a large error has a larger σ than one without; 1 is perfect, 0.5 is guessing.",
    ),
    ("miscalibration area", "Area between reliability curve and diagonal; 0 is perfect, 0.5 the worst."),
    ("ENCE", "Mean relative difference of RMS error and RMS σ over bins of σ; 0 is perfect."),
    ("CRPS", "Continuous ranked probability score, an error of the predicted distribution; lower is better."),
    (
        "ECE, NECE",
        "The paper's calibration error of the error density, and the same divided by the bin width; lower is better.",
    ),
    (
        "rank correlation",
        "Spearman's, between |error| and σ. Even a perfect σ stays well below 1, since errors are random.",
    ),
    ("R-hat", "Spread over all chains compared with the spread within each; 1 means that the chains agree."),
]
