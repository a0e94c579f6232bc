"""One HTML file about the quality of a posterior: text, tables, figures and structures; it works offline."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from equibayes.errors import InputError
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.figures.style import PALETTE
from equibayes.evaluation.report import sections
from equibayes.evaluation.report.headline import headline
from equibayes.evaluation.report.markup import Html, tag, text
from equibayes.evaluation.report.numbers import collect, largest_k
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
    parts: list[tuple[str, str, Html | None]] = [
        ("summary", "In short", headline(content)),
        ("accuracy", "Accuracy", sections.accuracy(content)),
        ("outliers", "Outliers", sections.outliers(content)),
        ("calibration", "Calibration", sections.calibration(content)),
        ("structures", "Structures", viewer(content)),
        ("samples", "Samples", sections.sample_count(content)),
        ("run", "Sampling", sections.run(content)),
        ("about", "About", provenance(content)),
    ]
    links = [tag("a", word, href=f"#{name}") for name, word, part in parts if part]
    script = _file("viewer.js")
    return Template(_file("page.html")).substitute(
        # only this script may run and nothing may be fetched, whatever the names in the data say
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=text(f"equibayes: {', '.join(each.name for each in content.sets)}"),
        palette=_palette(),
        style=_file("style.css"),
        lead=about(content.posterior),
        links=Html().join(links),
        body="\n".join(part for _, _, part in parts if part),
        script=script,
    )


def _palette() -> str:
    """CSS variables for the light and the dark theme; print is always light."""
    light, dark = ("".join(f"--{name}:{pair[index]};" for name, pair in PALETTE.items()) for index in (0, 1))
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _file(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")
