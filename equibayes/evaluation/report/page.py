"""The frame of every page: one HTML file with its style and its script, which works offline."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from string import Template

from equibayes.evaluation.figures.style import PALETTE
from equibayes.evaluation.report.markup import Html, tag, text

Part = tuple[str, str, Html | None]
"""Id and short name of a section, for the links at the top, and the section; None where there is none."""


def page(title: str, heading: str, lead: Html, parts: Sequence[Part], script: str = "") -> str:
    """The whole file.  The first part is where the skip link leads, `summary`; `script` is a file of this package."""
    links = [tag("a", word, href=f"#{name}") for name, word, part in parts if part]
    code = _file(script) if script else ""
    return Template(_file("page.html")).substitute(
        # only this script may run and nothing may be fetched, whatever the names in the data say
        script_hash=base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
        title=text(title),
        palette=_palette(),
        style=_file("style.css"),
        heading=text(heading),
        lead=lead,
        links=Html().join(links),
        body="\n".join(part for _, _, part in parts if part),
        script=code,
    )


def _palette() -> str:
    """CSS variables for the light and the dark theme; print is always light."""
    light, dark = ("".join(f"--{name}:{pair[index]};" for name, pair in PALETTE.items()) for index in (0, 1))
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
