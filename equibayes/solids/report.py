"""One HTML page about the properties of a crystal, in the style of the report of an evaluation; it works offline."""

from pathlib import Path

import numpy as np

from equibayes.data.structures import FloatArray
from equibayes.evaluation.report.markup import Html, table, tag
from equibayes.evaluation.report.page import Part, page
from equibayes.evaluation.report.sections import framed, items, section
from equibayes.files import write_text
from equibayes.solids.figures import drawing
from equibayes.solids.properties import Properties
from equibayes.solids.quantity import Quantity
from equibayes.solids.results import TITLES, describe, label, notes

_HEADINGS = {
    "lattice": "What is the lattice at rest?",
    "eos": "How does the energy depend on the volume?",
    "elastic": "How stiff is it?",
    "phonons": "How does it vibrate?",
    "vacancy": "What does a vacancy cost?",
}
_CAPTIONS = {
    "lattice": "Dots: members. Diamond and bar: mean and σ.",
    "eos": "Thin lines: the Birch–Murnaghan fit of every member, each from its own minimum. Thick line and band: mean "
    "and σ.",
    "elastic": "Dots: members. Diamond and bar: mean and σ. Atoms are relaxed in the strained cells.",
    "phonons": "Line and band: mean and σ of each branch, in rising order at each point. Imaginary frequencies are "
    "drawn below zero.",
    "vacancy": "Dots: members. Diamond and bar: mean and σ. Relaxed at constant volume.",
}
_SIGMA = (
    "Every member relaxed its own lattice and gave its own value of every property; σ is the standard deviation over "
    "members. It shows where the training data leave the potential undetermined. It does not contain errors that all "
    "members share: those of the reference method, of the network, of the size of the supercell, and the motion of the "
    "nuclei. A calibration of the posterior is not applied."
)


def write_report(found: Properties, path: str | Path, about: str = "") -> None:
    """Write the page."""
    lead = tag("p", f"{describe(found)}. {about}")
    parts: list[Part] = [("summary", "In short", _summary(found))]
    parts += [(name, TITLES[name], _property(found, name)) for name in found.numbers]
    write_text(path, page(f"equibayes: {found.crystal.source}", "How sure are these properties?", lead, parts))


def _summary(found: Properties) -> Html:
    rows = [[TITLES[name], *_cells(key, each)] for name, own in found.numbers.items() for key, each in own.items()]
    headings = ["property", "quantity", "mean", "σ", "unit", "members"]
    said = notes(found)
    box = tag("div", tag("strong", "Left out or unstable:"), items(said), class_="warning", role="note") if said else ""
    overview = table(f"Properties of {found.crystal.source}", headings, rows, words=(0, 1, 4))
    return section("summary", "In short", box, overview, tag("p", _SIGMA, class_="hint"))


def _cells(key: str, quantity: Quantity) -> list[str]:
    number, _, rest = str(Quantity(quantity.members, "")).partition(" ± ")
    return [label(key), number, rest or "–", quantity.unit, str(len(quantity.present))]


def _property(found: Properties, name: str) -> Html:
    picture = framed(drawing(found, name), TITLES[name], _CAPTIONS[name], wide=name == "phonons")
    more = _matrix(found) if name == "elastic" else ""
    return section(name, _HEADINGS[name], tag("div", picture, class_="figures"), more)


def _matrix(found: Properties) -> Html:
    """The 6 × 6 stiffness matrix."""
    assert found.elastic is not None
    axes = ["xx", "yy", "zz", "yz", "xz", "xy"]
    members = found.elastic.matrix.members
    rows = [[axes[i], *(_entry(members[:, i, j]) for j in range(6))] for i in range(6)]
    return table("Stiffness matrix in GPa, Voigt order, standard axes of the crystal", ["", *axes], rows)


def _entry(values: FloatArray) -> str:
    """A constant with σ; 0 where symmetry makes it vanish."""
    return str(Quantity(values, "")) if np.nanmax(np.abs(values)) > 1e-6 else "0"
