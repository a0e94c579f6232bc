"""One HTML file about the quality of a posterior: text, tables, figures and structures; it works offline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from equibayes.errors import InputError
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.report import sections
from equibayes.evaluation.report.headline import headline
from equibayes.evaluation.report.numbers import collect, largest_k
from equibayes.evaluation.report.page import Part, page
from equibayes.evaluation.report.provenance import about, provenance
from equibayes.evaluation.report.sections import Content
from equibayes.evaluation.report.viewer import viewer
from equibayes.files import write_text
from equibayes.posterior.file import Posterior


def write_report(
    path: str | Path,
    posterior: Posterior,
    results: Sequence[Evaluated],
    metrics: dict[str, Any] | None = None,
    figures_dir: str | Path | None = None,
) -> Path:
    """Write the report and return its path.

    results      data sets evaluated with this posterior, each with one or several k; others are compared with the first
    metrics      of `evaluation.tables.measure_all`; computed where they are missing
    figures_dir  folder that also gets every figure as SVG and PDF
    """
    content = _content(path, posterior, results, metrics)
    write_text(path, _page(content))
    if figures_dir is not None:
        _save_figures(content, figures_dir)
    return Path(path)


def write_figures(
    folder: str | Path, posterior: Posterior, results: Sequence[Evaluated], metrics: dict[str, Any] | None = None
) -> list[Path]:
    """Only the figures of the report, each as SVG and PDF; arguments as in `write_report`."""
    content = _content(folder, posterior, results, metrics)
    _page(content)  # its sections know which figures there are
    return _save_figures(content, folder)


def _content(
    path: str | Path, posterior: Posterior, results: Sequence[Evaluated], metrics: dict[str, Any] | None
) -> Content:
    if not results:
        raise InputError(f"{path}: there is nothing to report; evaluate at least one data set")
    numbers = collect(results, metrics)
    return Content(posterior, numbers, largest_k(numbers))


def _save_figures(content: Content, folder: str | Path) -> list[Path]:
    return [path for drawing in content.drawings for path in drawing.save(folder)]


def _page(content: Content) -> str:
    parts: list[Part] = [
        ("summary", "In short", headline(content)),
        ("accuracy", "Accuracy", sections.accuracy(content)),
        ("outliers", "Outliers", sections.outliers(content)),
        ("calibration", "Calibration", sections.calibration(content)),
        ("stress", "Stress", sections.stress(content)),
        ("structures", "Structures", viewer(content)),
        ("samples", "Samples", sections.sample_count(content)),
        ("run", "Sampling", sections.run(content)),
        ("about", "About", provenance(content)),
    ]
    title = f"equibayes: {', '.join(each.name for each in content.sets)}"
    return page(title, "How far can these forces be trusted?", about(content.posterior), parts, "viewer.js")
