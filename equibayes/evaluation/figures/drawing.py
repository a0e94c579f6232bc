"""One finished figure: as a file for a paper, or as part of a page."""

import io
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from equibayes.evaluation.figures.style import PALETTE, colour, styled
from equibayes.files import make_folder, write_atomically


@dataclass(frozen=True, eq=False)
class Drawing:
    """name: of its files, letters, digits and hyphens;  alt: what it shows, for screen readers."""

    name: str
    alt: str
    figure: Any
    _rendered: dict[str, bytes] = field(default_factory=dict, repr=False)

    def save(self, folder: str | Path) -> list[Path]:
        """`name.svg` and `name.pdf`, in light colours; equal figures give equal bytes."""
        written = []
        for ending in ("svg", "pdf"):
            path = make_folder(folder) / f"{self.name}.{ending}"
            content = self._render(ending)
            write_atomically(path, partial(Path.write_bytes, data=content))
            written.append(path)
        return written

    def inline(self) -> str:
        """An <svg> element for an HTML page: ids of its own, colours and font of the page, no external links."""
        return _for_page(self._render("svg").decode("utf-8"), self.name)

    def _render(self, ending: str) -> bytes:
        if ending not in self._rendered:  # a figure is often used twice: on the page and as a file
            self._rendered[ending] = self._draw(ending)
        return self._rendered[ending]

    def _draw(self, ending: str) -> bytes:
        buffer = io.BytesIO()
        # no date and no program: only what is drawn decides the bytes
        absent = ("Date", "Creator", "Format", "Type") if ending == "svg" else ("CreationDate", "Creator", "Producer")
        with styled():
            self.figure.savefig(buffer, format=ending, metadata=dict.fromkeys(absent))
        self.figure.set_layout_engine("none")  # keep the layout: computing it again costs as much as drawing
        return buffer.getvalue()


def save_figure(figure: Any, path: str | Path) -> None:
    """SVG or PNG, by the suffix of `path`, on a background of its own; equal figures give equal bytes."""
    ending = Path(path).suffix.removeprefix(".")
    options: Any = {"metadata": {"Date": None} if ending == "svg" else {}, "facecolor": colour("paper"), "dpi": 150}
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=ending, **options))


def slug(text: str) -> str:
    """A file name from any words: `bundled:ethanol@test` is `bundled-ethanol-test`."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()[:60] or "set"


def _for_page(svg: str, name: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # HTML knows SVG without namespaces; without them the page holds no address at all
    svg = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", svg).replace("xlink:href", "href")
    # ids are counted from 1 in every figure: the name makes them unique on the page
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'<g id="[^"]*-(?:axis|figure|axes|xtick|ytick|line2d|patch|text|matplotlib\.axis)_\d+">', "<g>", svg)
    svg = re.sub(r"font:\s*((?:bold |italic |\d+ )*)([\d.]+)px [^;\"]*", _font, svg)
    svg = re.sub(r"font-family:[^;\"]*;?", "", svg)
    for role, (light, _) in PALETTE.items():
        svg = svg.replace(light, f"var(--{role})")
    return re.sub(r">\s+<", "><", svg).strip()


def _font(found: re.Match[str]) -> str:
    """`font: bold 9px 'DejaVu Sans'` loses its family: text takes the font of the page."""
    weight = "; font-weight: 600" if re.search(r"bold|[6-9]00", found[1]) else ""
    return f"font-size: {found[2]}px{weight}"
