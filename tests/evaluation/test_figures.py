"""Figures: the curves behind them have known values, and every figure becomes SVG and PDF."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.metrics import roc_curve as sklearn_roc

from equibayes.evaluation import figures
from equibayes.evaluation.figures import curves
from equibayes.evaluation.figures.densities import MOST_BINS, bin_width
from equibayes.evaluation.figures.drawing import Drawing, slug
from equibayes.evaluation.figures.run import trace
from equibayes.evaluation.figures.style import DASHES, PALETTE, SERIES, power
from equibayes.units import KCAL_PER_MOL
from tests.evaluation.made_up import made_up, made_up_posterior, stressed


def test_roc_curve_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    score = np.round(random.exponential(1, 400), 1)  # many equal scores
    outlier = random.uniform(size=400) < score / 5
    curve = curves.roc_curve(outlier, score, points=100_000)
    assert curve is not None
    x, y, _ = sklearn_roc(outlier, score, drop_intermediate=False)
    np.testing.assert_allclose(curve, (x, y))
    thinned = curves.roc_curve(outlier, score, points=20)
    assert thinned is not None
    assert len(thinned[0]) <= 22
    assert np.trapezoid(thinned[1], thinned[0]) == pytest.approx(np.trapezoid(y, x), abs=0.02)


@pytest.mark.parametrize("outlier", [np.zeros(5, bool), np.ones(5, bool)])
def test_roc_curve_needs_both_kinds(outlier: np.ndarray) -> None:
    assert curves.roc_curve(outlier, np.arange(5.0)) is None


def test_width_and_bands_of_gaussian_errors() -> None:
    random = np.random.default_rng(1)
    sigma = random.uniform(0.5, 5, 50_000)
    error = random.normal(0, 3 * sigma)
    for level in (0.6827, 0.95):
        assert curves.width_at(error, sigma, level) == pytest.approx(3, rel=0.02)
    middle, spread = curves.quantile_bands(error, sigma, (0.5, 0.6827))
    assert (np.diff(middle) > 0).all()
    np.testing.assert_allclose(spread[1] / (3 * middle), 1, atol=0.1)
    np.testing.assert_allclose(spread[0] / (3 * middle), 0.6745, atol=0.1)


def test_found_outliers() -> None:
    outlier, sigma = np.zeros(100, bool), np.arange(100.0)
    assert curves.found_outliers(outlier, sigma) is None
    outlier[[95, 99, 3, 4]] = True
    assert curves.found_outliers(outlier, sigma) == 0.5


def test_what_is_not_finite_is_left_out_and_counted() -> None:
    parts = curves.components(np.array([1.0, np.nan, 2.0, 3.0]), np.array([1.0, 1.0, 0.0, np.inf]))
    assert (parts.error.tolist(), parts.missing) == ([1.0], 3)


def test_bins_show_a_shape() -> None:
    errors = np.random.default_rng(2).normal(0, 1, 27_000)
    width = bin_width(errors)
    assert width == pytest.approx(0.01 * 2 ** round(np.log2(width / 0.01))), "the paper's width, doubled"
    assert 0.01 <= width < 0.5
    assert bin_width(np.zeros(0)) == 0.01
    assert 1e-4 < bin_width(1e-3 * errors) < 5e-4, "finer where errors are smaller than the paper's bins"
    drawn = figures.density_of_errors(made_up(size=5.0))
    assert drawn is not None
    edges = drawn.figure.axes[0].patches[0].get_data().edges
    assert 10 < len(edges) <= 2 * MOST_BINS + 2
    np.testing.assert_allclose(edges, -edges[::-1], err_msg="symmetric about zero")


def test_trace_fills_gaps_and_thins() -> None:
    steps, values = trace([{"step": 1, "a": [1.0, None]}, {"step": 2}, {"step": 3, "a": [2.0, 3.0]}], "a")
    assert steps.tolist() == [1, 3]
    assert np.isnan(values[0, 1])
    assert values[1].tolist() == [2.0, 3.0]
    assert len(trace([{"step": i, "a": 1.0} for i in range(5000)], "a")[0]) <= 400
    assert trace([], "a")[1].size == 0


@pytest.fixture(scope="module")
def drawings() -> list[Drawing]:
    """One of each; names that mean something to LaTeX and HTML."""
    near, far = made_up(), made_up("far, $x$ <b>", 20, too_small=2.0, seed=1)
    history = made_up_posterior().history
    table = [("near", [(k, {"force_mae": 0.1 / k, "kcal_mol": {"force_mll": -1.0}}) for k in (1, 2, 4)])]
    drawn = [
        figures.roc_curves([near, far], [KCAL_PER_MOL] * 2),
        figures.error_of_remaining([near, far]),
        figures.density_of_errors(far),
        figures.histogram_of_forces(far),
        figures.reliability_diagram([near, far]),
        figures.sigma_against_error(far),
        figures.by_species(far),
        figures.parity_of_stress(stressed(far)),
        figures.by_sample_count(table),
        figures.learning_history(history, [400]),
        figures.probe_traces(history),
    ]
    assert None not in drawn
    return [each for each in drawn if each is not None]


def test_every_figure_as_svg_and_pdf(drawings: list[Drawing], tmp_path: Path) -> None:
    for drawing in drawings:
        svg, pdf = drawing.save(tmp_path / "new" / "folder")
        assert (svg.name, pdf.name) == (f"{drawing.name}.svg", f"{drawing.name}.pdf")
        assert re.fullmatch(r"[a-z0-9-]+", drawing.name)
        text = svg.read_text()
        ElementTree.fromstring(text)
        assert "<text" in text, "words stay words"
        assert "<dc:date" not in text
        assert pdf.read_bytes().startswith(b"%PDF-")
        assert 4_000 < pdf.stat().st_size < 400_000
        page = drawing.inline()
        assert "http" not in page, "no external links"
        assert "var(--blue)" in page
        assert not [light for light, _ in PALETTE.values() if light in page], "every colour follows the theme"
        assert set(re.findall(r'(?:href="#|url\(#)([\w-]+)', page)) <= set(re.findall(r'id="([^"]+)"', page))


def test_axes_have_units(drawings: list[Drawing]) -> None:
    for drawing in drawings:
        svg = drawing.inline()
        words = " ".join(re.findall(r">([^<>]+)</text>", svg))
        if drawing.name in ("roc", "reliability"):
            assert "fraction" in words
        else:
            assert ("GPa" if drawing.name.startswith("stress") else "meV/Å") in words, drawing.name


def test_equal_figures_are_equal_bytes(tmp_path: Path) -> None:
    first, second = (figures.by_species(made_up()) for _ in range(2))
    other = figures.by_species(made_up(seed=5))
    assert first is not None and second is not None and other is not None  # noqa: PT018
    files = [each.save(tmp_path / folder) for each, folder in ((first, "a"), (second, "b"), (other, "c"))]
    for one, two, three in zip(*files):
        assert one.read_bytes() == two.read_bytes()
        assert one.read_bytes() != three.read_bytes()


def test_without_labels_nothing_is_drawn() -> None:
    known = made_up(frames=4)
    none = {name: np.full_like(getattr(known, name), np.nan) for name in ("force_true", "energy_true")}
    blank = replace(known, **none)
    assert figures.roc_curves([blank], [KCAL_PER_MOL]) is None
    assert figures.error_of_remaining([blank]) is None
    for draw in (
        figures.density_of_errors,
        figures.histogram_of_forces,
        figures.sigma_against_error,
        figures.by_species,
        figures.parity_of_stress,
    ):
        assert draw(blank) is None
    blank = replace(blank, energy_true=np.full_like(known.energy_true, np.nan))
    assert figures.reliability_diagram([blank]) is None
    assert figures.learning_history([]) is None
    assert figures.probe_traces([]) is None
    assert figures.by_sample_count([("near", [(4, {"force_mae": 1.0})])]) is None


def luminance(colour: str) -> float:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return float(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("theme", [0, 1])
def test_contrast(theme: int) -> None:
    """WCAG: 3:1 for lines, 4.5:1 for words."""
    paper = luminance(PALETTE["paper"][theme])

    def against_paper(name: str) -> float:
        other = luminance(PALETTE[name][theme])
        return (max(paper, other) + 0.05) / (min(paper, other) + 0.05)

    assert all(against_paper(name) >= 3 for name in SERIES)
    assert all(against_paper(name) >= 4.5 for name in ("ink", "muted"))


def test_neighbouring_series_differ_without_hue() -> None:
    """The first series can be told apart by their dashes alone."""
    assert len({str(dash) for dash in DASHES}) == len(DASHES) >= 4


def test_small_words() -> None:
    assert slug("bundled:ethanol@test") == "bundled-ethanol-test"
    assert slug("../../étc") == "tc"
    assert slug("///") == "set"
    assert (power(1e-3), power(200000), power(1)) == ("10⁻³", "2·10⁵", "10⁰")


def test_energies_alone_are_drawn() -> None:
    """Without force labels the figures are those of the energies, in meV."""
    known = made_up(frames=80)
    energies = replace(known, force_true=np.full_like(known.force_true, np.nan))
    for draw in (figures.density_of_errors, figures.sigma_against_error):
        drawing = draw(energies)
        assert drawing is not None
        assert "meV" in drawing.alt
        assert "meV/Å" not in drawing.alt
    assert "meV for all" in figures.error_of_remaining([energies]).alt
    mixed = figures.error_of_remaining([known, energies])
    assert mixed.alt.count("for all") == 1, "energies and forces do not share an axis"
    rows = [(k, {"force_mae": None, "energy_mae": 0.1 / k, "energy_auc": 0.8}) for k in (1, 2)]
    assert "energies" in figures.by_sample_count([("a", rows)]).alt


def test_figures_of_stress() -> None:
    """Its curve stands beside those of forces and energies; errors by σ in GPa, where there are enough."""
    result = stressed(made_up())
    diagram = figures.reliability_diagram([result])
    assert diagram is not None
    assert "stress of near: " in diagram.alt
    against = figures.sigma_against_error(result, stress=True)
    assert against is not None
    assert against.name == "sigma-error-stress-near"
    assert "GPa" in against.alt
    assert figures.sigma_against_error(stressed(made_up(frames=8)), stress=True) is None, "too few"
