"""Sphinx: pages in Markdown, references made from the code when the site is built."""

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import first_posterior

from equibayes.cli.main import VERBS, main
from equibayes.version import __version__

project, author = "equibayes", "The equibayes developers"
copyright, release = author, __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
autodoc_typehints, autodoc_typehints_format, autodoc_member_order = "signature", "short", "bysource"
maximum_signature_line_length = 100
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme, html_title = "furo", f"equibayes {__version__}"
html_static_path, html_css_files, highlight_language = ["_static"], ["wrap.css"], "text"
exclude_patterns = ["_build", "_generated"]
# links from the included README and CONTRIBUTING lead to files of the repository
suppress_warnings = ["myst.xref_missing", "myst.header"]


def _said(words: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        main(words)
    return said.getvalue()


generated = Path(__file__).parent / "_generated"
generated.mkdir(exist_ok=True)
(generated / "settings.yaml").write_text(_said(["template", "sample"]), encoding="utf-8")
names = [verb.__name__.rsplit(".", 1)[1] for verb in VERBS]
helps = [["--help"], *([name, "--help"] for name in names)]
(generated / "commands.txt").write_text(
    "\n\n".join(f"$ equibayes {' '.join(words)}\n{_said(words)}" for words in helps), encoding="utf-8"
)
first_posterior.write(generated / "first")


def _docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written for people, not in reStructuredText: the first paragraph is set as words, the rest as it stands."""
    end = lines.index("") if "" in lines else len(lines)
    words = re.sub(r"([*|\\])", r"\\\1", "\n".join(lines[:end]))
    first = re.sub(r"(?<![`:])`([^`]+)`(?!`)", r"``\1``", words).splitlines()
    rest = lines[end:]
    literal = ["", "::", "", *(f"    {line}" for line in rest), ""] if any(map(str.strip, rest)) else [""]
    lines[:] = [*(line.strip() for line in first), *literal]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _docstring)
