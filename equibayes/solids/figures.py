"""Figures of properties: means with σ, and behind them every member."""

from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.evaluation.figures.drawing import Drawing, save_figure
from equibayes.evaluation.figures.style import MEV, colour, figure, styled
from equibayes.solids.eos import Curves
from equibayes.solids.phonons import Bands
from equibayes.solids.properties import Properties
from equibayes.solids.quantity import Quantity
from equibayes.solids.results import TITLES, label

Draw = Callable[[Any, Properties], None]


def save_overview(found: Properties, path: str | Path) -> None:
    """All panels in one figure."""
    names = list(found.numbers)
    columns = min(2, len(names))
    with styled():
        drawn, axes = figure(4.6 * columns, 3.4 * ceil(len(names) / columns), ceil(len(names) / columns), columns)
        for panel in axes.flat[len(names) :]:
            panel.remove()
        for panel, name in zip(axes.flat, names):
            PANELS[name](panel, found)
            panel.set_title(TITLES[name])
        save_figure(drawn, path)


def drawing(found: Properties, name: str) -> Drawing:
    """The panel of one property, for the report."""
    with styled():
        drawn, axes = figure(7.4, 3.6) if name == "phonons" else figure(4.8, 3.4)
        PANELS[name](axes[0, 0], found)
    return Drawing(f"properties-{name}", f"{TITLES[name]}: mean and σ over the members", drawn)


def _lattice(axes: Any, found: Properties) -> None:
    """Deviations from the mean: the spread is too small to be seen on the scale of the lattice parameters."""
    lengths = {key: each for key, each in found.numbers["lattice"].items() if each.unit == "Å"}
    _strip(axes, {key: Quantity(each.members - each.mean, each.unit) for key, each in lengths.items()})
    axes.set_xticks(range(len(lengths)), [f"{label(key)} = {each}" for key, each in lengths.items()])
    axes.set(ylabel="deviation from the mean, Å")


def _elastic(axes: Any, found: Properties) -> None:
    _strip(axes, {key: each for key, each in found.numbers["elastic"].items() if key.startswith("C")})
    axes.set(ylabel="GPa")


def _vacancy(axes: Any, found: Properties) -> None:
    numbers = found.numbers["vacancy"]
    _strip(axes, numbers)
    axes.set_xticks(range(len(numbers)), [label(key.removeprefix("formation_energy_")) for key in numbers])
    axes.set(ylabel="formation energy, eV")


def _strip(axes: Any, quantities: dict[str, Quantity]) -> None:
    """One column for each quantity: members as dots, mean and σ beside them."""
    for place, each in enumerate(quantities.values()):
        values = each.present
        axes.plot(np.full(len(values), place - 0.12), values, "o", color=colour("sky"), markersize=3.5, alpha=0.8)
        sigma = 0.0 if each.sigma is None else float(each.sigma)
        bar = {"color": colour("ink"), "capsize": 4, "markersize": 5, "linewidth": 1.2}
        axes.errorbar([place + 0.12], [float(each.mean)], yerr=[sigma], fmt="D", **bar)
    axes.set_xticks(range(len(quantities)), [label(key) for key in quantities])
    axes.set_xlim(-0.6, len(quantities) - 0.4)
    axes.grid(False, axis="x")


def _eos(axes: Any, found: Properties) -> None:
    assert found.curves is not None
    curves: Curves = found.curves
    volumes = np.linspace(curves.volumes.present.min(), curves.volumes.present.max(), 80)
    fitted = MEV * curves.fitted(volumes)
    axes.plot(volumes, fitted.T, color=colour("sky"), linewidth=0.7, alpha=0.7)
    axes.plot(curves.volumes.present, MEV * curves.energies.present, ".", color=colour("sky"), markersize=3)
    _band(axes, volumes, Quantity(fitted, "meV"), "blue")
    axes.set(xlabel="volume per atom, Å³", ylabel="energy above the minimum, meV/atom")


def _phonons(axes: Any, found: Properties) -> None:
    assert found.bands is not None
    bands: Bands = found.bands
    for part in pieces(bands.distance):
        for branch in range(bands.frequencies.members.shape[-1]):
            _band(axes, bands.distance[part], Quantity(bands.frequencies.members[:, part, branch], "THz"), "blue")
    axes.set_xticks([place for place, _ in bands.ticks], [name for _, name in bands.ticks])
    axes.set_xlim(bands.distance[0], bands.distance[-1])
    axes.axhline(0, color=colour("line"), linewidth=0.8)
    axes.set(ylabel="frequency, THz")


def pieces(distance: np.ndarray) -> list[slice]:
    """The parts of a path between its jumps, where two points are at one distance."""
    ends = [0, *(np.flatnonzero(np.diff(distance) < 1e-9) + 1).tolist(), len(distance)]
    return [slice(first, last) for first, last in zip(ends, ends[1:])]


def _band(axes: Any, x: np.ndarray, curve: Quantity, name: str) -> None:
    """A mean with a band of ±σ."""
    mean, sigma = curve.mean, curve.sigma
    axes.plot(x, mean, color=colour(name), linewidth=1.2)
    if sigma is not None:
        axes.fill_between(x, mean - sigma, mean + sigma, color=colour(name), alpha=0.25, linewidth=0)


PANELS: dict[str, Draw] = {
    "lattice": _lattice,
    "eos": _eos,
    "elastic": _elastic,
    "phonons": _phonons,
    "vacancy": _vacancy,
}
