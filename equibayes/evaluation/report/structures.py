"""The most and least certain structures, for the viewer and for a table.

The viewer is our own, a few kilobytes on a 2-D canvas: chemiscope (BSD) shows more, but its script adds 3.2 MB to every
report and needs WebGL, which remote desktops and headless browsers often lack.
"""

import json
from typing import Any

import numpy as np

from equibayes.data.elements import formula, symbol
from equibayes.data.structures import Structure
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.figures.style import MEV
from equibayes.evaluation.report.markup import Html, table
from equibayes.evaluation.report.numbers import Numbers, rms

SHOWN = 6
LISTED = 3
# beyond these the page grows by megabytes and a canvas turns slowly
MOST_ATOMS = 3000
BONDS_UP_TO = 1500


def per_atom(components: np.ndarray) -> np.ndarray:
    """[A, 3] -> [A]: root mean square over the three components, so that it compares with one component."""
    return np.sqrt(np.square(components).mean(1))


def rank(result: Evaluated) -> tuple[list[int], list[int]]:
    """Frames with the smallest and with the largest σ of any of their atoms; a σ that is not finite is the largest."""
    largest = np.full(len(result.structures), -np.inf)
    np.maximum.at(largest, result.frame, np.nan_to_num(per_atom(result.force_sigma), nan=np.inf))
    order = [int(i) for i in np.argsort(largest, kind="stable") if 0 < len(result.structures[int(i)]) <= MOST_ATOMS]
    half = max(1, min(SHOWN, len(order) // 2))
    return order[:half], order[::-1][:half]


def viewer_data(sets: list[Numbers]) -> Html:
    """JSON for the viewer, safe inside a script element."""
    from matplotlib import colormaps

    stops = np.round(255 * colormaps["cividis"](np.linspace(0, 1, 33))[:, :3]).astype(int).tolist()
    content = {"colours": stops, "elements": _elements(sets), "sets": [_set(each.result) for each in sets]}
    plain = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # a name that holds </script> must not end the element
    return Html(plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def ranking_table(numbers: Numbers) -> Html | None:
    """The same structures in figures: for print, and for readers without the viewer."""
    result = numbers.result
    certain, uncertain = rank(result)
    sigma, error = per_atom(result.force_sigma), per_atom(result.force_error)
    rows = []
    for kind, frames in (("most certain", certain), ("least certain", uncertain)):
        for place, frame in enumerate(frames[:LISTED], 1):
            own = np.flatnonzero(result.frame == frame)
            worst = int(own[np.argmax(np.nan_to_num(sigma[own], nan=np.inf))])
            name = f"{symbol(int(result.number[worst]))} {worst - own[0]}"
            values = (sigma[worst], error[worst], rms(sigma[own]) or 0.0, rms(error[own]) or 0.0)
            cells = (f"{value * MEV:.1f}" if np.isfinite(value) else "–" for value in values)
            rows.append([f"{kind}, {place}", str(frame), formula(result.number[own].tolist()), name, *cells])
    headings = ["rank", "frame", "formula", "most uncertain atom"]
    headings += [f"{what}, meV/Å" for what in ("its σ", "its error", "σ of all atoms", "error of all")]
    title = f"Most and least certain structures of {numbers.name}"
    caption = f"{title}, by the largest σ of an atom; frames and atoms are numbered from 0"
    return table(caption, headings, rows, words=range(4)) if rows else None


def _elements(sets: list[Numbers]) -> dict[str, Any]:
    """Name and covalent radius (Å) by symbol, light elements first."""
    from ase.data import atomic_names

    present = np.unique(np.concatenate([each.result.number for each in sets])).tolist()
    return {symbol(z): [atomic_names[z].lower(), round(float(_radii(z)), 2)] for z in present}


def _set(result: Evaluated) -> dict[str, Any]:
    certain, uncertain = rank(result)
    sigma, error = per_atom(result.force_sigma) * MEV, per_atom(result.force_error) * MEV
    novelty = np.full(len(sigma), np.nan) if result.novelty is None else result.novelty
    shown = np.isin(result.frame, [*certain, *uncertain])
    finite = sigma[shown & np.isfinite(sigma)]
    span = [float(finite.min()), float(finite.max())] if len(finite) else [0.0, 1.0]
    atoms = None if result.vectors is None else result.vectors.atoms * MEV**2
    groups = {
        name: [
            _structure(
                result.structures[f],
                f,
                sigma[result.frame == f],
                error[result.frame == f],
                novelty[result.frame == f],
                None if atoms is None else atoms[result.frame == f],
            )
            for f in frames
        ]
        for name, frames in (("most", certain), ("least", uncertain))
    }
    return {"name": result.name, "span": span, **groups}


def _structure(
    structure: Structure,
    frame: int,
    sigma: np.ndarray,
    error: np.ndarray,
    novelty: np.ndarray,
    covariances: np.ndarray | None,
) -> dict[str, Any]:
    """covariances [n, 3, 3] of the forces on the atoms, (meV/Å)²."""
    turn, centre = _face(structure.positions)
    cell = structure.cell @ turn if structure.pbc.any() else None
    return {
        "frame": frame,
        "formula": formula(structure.numbers.tolist()),
        "symbols": [symbol(int(z)) for z in structure.numbers],
        "radii": [round(float(r), 2) for r in _radii(structure.numbers)],
        "positions": _rounded((structure.positions - centre) @ turn, 3),
        "cell": None if cell is None else [_rounded(-centre @ turn, 3), *_rounded(cell, 3)],
        "bonds": _bonds(structure),
        "sigma": _rounded(sigma, 2),
        "error": _rounded(error, 2),
        "novelty": _rounded(novelty, 3),
        "ellipsoids": None if covariances is None else _rounded(turn.T @ covariances @ turn, 3),
    }


def _face(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A rotation that shows the broad side, and the centre; never a mirror image, which would be another molecule."""
    centre = positions.mean(0)
    turn = np.linalg.svd(positions - centre, full_matrices=True)[2].T
    if np.linalg.det(turn) < 0:
        turn[:, 2] *= -1
    return turn, centre


def _radii(numbers: np.ndarray | int) -> np.ndarray:
    from ase.data import covalent_radii

    return covalent_radii[numbers]


def _bonds(structure: Structure) -> list[list[int]]:
    """Pairs closer than 1.25 times the sum of their covalent radii, within the cell as it is drawn."""
    if len(structure) > BONDS_UP_TO:
        return []
    radii = _radii(structure.numbers)
    distance = np.linalg.norm(structure.positions[:, None] - structure.positions[None], axis=-1)
    near = np.triu(distance < 1.25 * (radii[:, None] + radii[None]), k=1)
    return np.argwhere(near).tolist()


def _rounded(values: np.ndarray, places: int) -> Any:
    """Nested lists with null for what is not finite."""
    if np.ndim(values) > 1:
        return [_rounded(row, places) for row in values]
    return [round(float(v), places) if np.isfinite(v) else None for v in values]
