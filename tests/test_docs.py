"""The documentation builds; its commands parse, its messages are those of the program, and its links and paths exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from equibayes.cli.main import parse
from equibayes.config import merge, parse_overrides
from equibayes.run.settings import sample_config
from equibayes.sampling.diagnostics import convergence

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
PROSE = [*PAGES, *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md"))]
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in [*PAGES, ROOT / "README.md"]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", str(DOCS), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_site_builds_without_a_warning(site: Path) -> None:
    assert "report.png" in (site / "index.html").read_text()
    assert "burn_in" in (site / "settings.html").read_text()
    assert "equibayes calibrate" in (site / "commands.html").read_text()
    assert "stability_limit" in (site / "api.html").read_text()


def test_api_page_shows_public_names_and_parameters(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "api.html").read_text())
    assert "equibayes.read(" in text
    assert "equibayes.data.read.read" not in text
    assert re.search(r"energy_key\s+–", text)  # parameter lists are rendered as such
    assert re.search(r"learning_rate\s+– γ", text)


def test_docstrings_become_field_lists() -> None:
    """All forms of parameter lists that the package uses; other blocks stay as they are."""
    sys.path.insert(0, str(DOCS))
    from docstrings import to_rst

    aligned = [
        "One *step*.",
        "",
        "gradient  ∇û [K, P]",
        "          of `state`",
        "noise     ξ, or its key",
        "",
        "    r ← r",
    ]
    assert to_rst(aligned, {"gradient", "noise"}) == [
        "One \\*step\\*.",
        "",
        ":param gradient: ∇û [K, P] of ``state``",
        ":param noise: ξ, or its key",
        "",
        "::",
        "",
        "    r ← r",
        "",
    ]
    underlined = ["Attributes", "----------", "one, two: numbers", "other: text"]
    assert to_rst(underlined, {"one", "two", "other"}) == [
        ":param one: numbers",
        ":param two: numbers",
        ":param other: text",
        "",
    ]
    assert to_rst(["gradient is a noun here"], {"noise"}) == ["gradient is a noun here", ""]


def test_equations_need_no_network(site: Path) -> None:
    text = (site / "method.html").read_text()
    assert 'class="math' in text
    scripts = re.findall(r'<(?:script|link)[^>]+(?:src|href)="([^"]+)"', text)
    assert any("katex.min.js" in script for script in scripts)
    assert any("equations.js" in script for script in scripts)
    assert not [script for script in scripts if "://" in script]
    for name in ("katex.min.js", "katex.min.css", "LICENSE", "fonts/KaTeX_Main-Regular.woff2"):
        assert (site / "_static" / "katex" / name).is_file()


def test_the_front_page_leads_to_the_others(site: Path) -> None:
    """It is the README, whose links are relative to the repository."""
    text = (site / "index.html").read_text()
    assert 'href="gpu.html"' in text
    assert 'href="contributing.html"' in text
    for page in site.glob("*.html"):
        assert 'class="xref myst"' not in page.read_text(), f"{page.name}: a broken link"


def test_the_first_posterior_was_sampled_for_the_page(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "first-posterior.html").read_text())
    assert "8 samples written to ethanol.posterior" in text
    assert re.search(r"force error\s+\d+\.\d meV/Å on held-back frames", text)
    assert "calibration stored in ethanol.posterior" in text
    assert re.search(r"largest σ\s+\d+\.\d meV/Å, in step", text)


def test_links_between_pages_exist(site: Path) -> None:
    """Pages and headings within them; files of the repository are shown by name on the site, not linked."""
    links = [
        (page.stem, *link)
        for page in PAGES
        for link in re.findall(r"\]\(([\w-]*)(?:\.md)?(#[\w-]+)?\)", TEXTS[page.stem])
    ]
    assert len(links) > 40
    for page, target, anchor in links:
        html = site / f"{target or page}.html"
        assert html.is_file(), f"{page}.md: no page {target}"
        if anchor:
            assert f'id="{anchor[1:]}"' in html.read_text(), f"{page}.md: no {target}{anchor}"


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.name)
def test_lines_are_at_most_120_characters(path: Path) -> None:
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    assert not [number for number, line in lines if len(line) > 120 and not line.startswith("|")]


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.name)
def test_cited_files_exist(path: Path) -> None:
    """Files and folders of the repository, and modules that are run; what has no folder here is not checked."""
    text = path.read_text(encoding="utf-8")
    packages = [name.name for name in (ROOT / "equibayes").iterdir() if name.is_dir()]
    cited = re.findall(r"`(?:bash |python )?((?:[\w.-]+/)+[\w.-]*)[^`]*`", text)
    modules = [name.replace(".", "/") for name in re.findall(r"python -m (studies\.\w+)", text)]
    for name in {*cited, *modules}:
        top = name.split("/")[0]
        place = ROOT / "equibayes" / name if top in packages else ROOT / name
        if top in packages or (ROOT / top).is_dir():
            assert place.exists() or place.with_suffix(".py").exists(), f"{path.name} cites {name}"


def commands() -> list[tuple[str, str]]:
    """Every line of a code block that begins with the program's name, with its page."""
    found = []
    for page, text in TEXTS.items():
        for block in re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page, line) for line in lines if line.startswith("equibayes ")]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_can_be_typed(page: str, line: str) -> None:
    arguments = parse(shlex.split(line.split(" > ")[0], comments=True)[1:])
    if hasattr(arguments, "settings") and arguments.verb in ("sample", "compare"):
        layers = [parse_overrides([word]) for word in arguments.settings if "=" in word]
        sample_config(arguments.preset, arguments.network, merge(*layers))


def test_messages_of_the_faq_are_the_programs_own() -> None:
    """Texts in the first column of its tables; … stands for the user's input."""
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "equibayes").rglob("*.py")))
    source = re.sub(r"['\"]\s*\n\s*f?['\"]", "", source)  # texts that continue on the next line
    rows = re.findall(r"^\| `(.+?)` \|", TEXTS["faq"], re.MULTILINE)
    assert len(rows) > 40
    for row in rows:
        for part in row.split("…"):
            assert part in source, f"no message says: {part}"


@pytest.mark.parametrize(("chains", "draws"), [(4, 8), (8, 4), (4, 20)])
def test_r_hat_of_perfect_chains_is_as_documented(chains: int, draws: int) -> None:
    """The median, over simulations, of the worst of 16 independent normal components."""
    components = np.random.default_rng(0).standard_normal((chains, draws, 60 * 16))
    worst = convergence(components).r_hat.reshape(60, 16).max(1)
    row = re.search(rf"^\| {chains} × {draws} .*?\| ([\d.]+) \(", TEXTS["diagnostics"], re.MULTILINE)
    assert row is not None
    assert np.median(worst) == pytest.approx(float(row[1]), abs=0.04)
