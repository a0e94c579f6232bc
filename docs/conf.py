"""Sphinx configuration: pages in Markdown; the references are generated from the code when the site is built."""

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import docstrings
import first_posterior

from equibayes.cli.main import VERBS, main
from equibayes.version import __version__

project, author = "equibayes", "The equibayes developers"
copyright, release = author, __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
autodoc_typehints, autodoc_typehints_format, autodoc_member_order = "signature", "short", "bysource"
maximum_signature_line_length = 100
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
# notebooks are stored without outputs, and executed when the site is built
nb_execution_mode, nb_execution_raise_on_error, nb_execution_timeout = "force", True, 600
nb_execution_in_temp, nb_merge_streams = True, True
html_theme, html_title = "furo", f"equibayes {__version__}"
html_extra_path = ["_generated/extra"]
html_static_path, html_css_files, highlight_language = ["_static"], ["wrap.css", "katex/katex.min.css"], "text"
# Equations are typeset in the browser by the KaTeX files in _static, so that pages need no network.  The MathJax
# extension marks them in the page; its script is replaced by ours.
mathjax_path, myst_update_mathjax = "katex/katex.min.js", False
mathjax_options = {"defer": "defer"}
html_js_files = [("equations.js", {"defer": "defer"})]
exclude_patterns = ["_build", "_generated", "_static"]
suppress_warnings = ["myst.header"]


def _printed(words: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        main(words)
    return output.getvalue()


generated = Path(__file__).parent / "_generated"
generated.mkdir(exist_ok=True)
for verb in ("sample", "learn"):
    (generated / "extra").mkdir(exist_ok=True)
    (generated / "extra" / f"{verb}.schema.json").write_text(_printed(["template", verb, "--schema"]), encoding="utf-8")
(generated / "settings.yaml").write_text(_printed(["template", "sample"]), encoding="utf-8")
names = [verb.__name__.rsplit(".", 1)[1] for verb in VERBS]
helps = [["--help"], *([name, "--help"] for name in names)]
(generated / "commands.txt").write_text(
    "\n\n".join(f"$ equibayes {' '.join(words)}\n{_printed(words)}" for words in helps), encoding="utf-8"
)
first_posterior.write(generated / "first")


def _docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = docstrings.to_rst(lines, docstrings.known_names(thing))


def _signature(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    return signature and docstrings.short_signature(signature), returned and docstrings.short_signature(returned)


def _on_the_site(text: str) -> str:
    """Links that hold in the repository, changed for the site: links to pages stay links, other files are shown by
    name."""
    here = Path(__file__).parent

    def changed(link: re.Match[str]) -> str:
        words, target = link["words"], link["target"]
        path, hash_, anchor = target.removeprefix("../").partition("#")
        page = Path(path.lower() if path in ("CONTRIBUTING.md", "CHANGELOG.md") else path.removeprefix("docs/"))
        if "://" in target or not path:
            return link[0]
        if (here / page).is_file() and page.suffix == ".md":
            return f"[{words}]({page}{hash_}{anchor})"
        return f"`{path}`" if words.strip("`") == path else f"{words} (`{path}`)"

    return re.sub(r"(?<!!)\[(?P<words>[^\]\n]+(?:\n[^\]\n]+)?)\]\((?P<target>[^)\s]+)\)", changed, text)


def _page_read(app: Any, name: str, source: list[str]) -> None:
    source[0] = _on_the_site(source[0])


def _include_read(app: Any, path: Path, name: str, source: list[str]) -> None:
    if path.suffix == ".md":
        source[0] = _on_the_site(source[0])


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", _signature)
    app.connect("source-read", _page_read)
    app.connect("include-read", _include_read)
