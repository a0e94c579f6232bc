"""The documentation builds; its commands parse, its messages are those of the program, and what it names exists."""

import ast
import importlib
import importlib.util
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import equibayes
from equibayes.cli.main import parse
from equibayes.config import merge, parse_overrides
from equibayes.engine.select import VARIABLE
from equibayes.run import Run
from equibayes.run.settings import sample_config
from equibayes.sampling.diagnostics import convergence

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
FOLDERS = ("docs", "benchmarks", "examples", "results", "studies", "equibayes")
PROSE = [*ROOT.glob("*.md"), *(path for name in FOLDERS for path in sorted((ROOT / name).rglob("*.md")))]
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in [*PAGES, ROOT / "README.md"]}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", str(DOCS), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {VARIABLE: "auto"})
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
    assert "equibayes.Run(" in text
    assert "equibayes.run.options.Run" not in text
    for field in fields(Run):
        assert re.search(rf"{field.name}\s+– ", text), f"no {field.name} of Run"


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
    assert "4 samples written to ethanol.posterior" in text
    assert re.search(r"force error\s+\d+\.\d meV/Å on held-back frames", text)
    assert "calibration stored in ethanol.posterior" in text
    assert re.search(r"largest σ\s+\d+\.\d meV/Å, in step", text)


def test_notebooks_were_executed_for_the_site(site: Path) -> None:
    """With progress, rich output and a figure; in the repository they have no outputs."""
    page = (site / "dynamics-that-asks.html").read_text()
    text = re.sub(r"<[^>]+>", "", page)
    assert page.count("<progress") >= 3
    assert re.search(r"force error\d+\.\d meV/Å on held-back frames", text)
    assert re.search(r"labels; the last posterior has learned from \d+ frames", text)
    assert len(re.findall(r"mean error in the second half \d\.\d+ eV/Å", text)) == 2
    text = re.sub(r"<[^>]+>", "", (site / "fine-tuning-a-foundation-model.html").read_text())
    before, after = (
        re.search(rf"mean error of forces {when} (\d+) meV/Å", text) for when in ("before", "after 20 frames")
    )
    assert before
    assert after
    assert int(after[1]) < 0.33 * int(before[1])
    assert re.search(r"\d+ % of the errors are below σ \(", text)
    assert re.search(r"300 K: 200 steps, ended as asked", text)
    assert re.search(r"1500 K: \d+ steps, ended at step", text)
    for notebook in DOCS.glob("*.ipynb"):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        assert not any(cell.get("outputs") for cell in cells), f"{notebook.name}: remove its outputs"


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


@pytest.mark.parametrize("path", PROSE, ids=relative)
def test_lines_are_at_most_120_characters(path: Path) -> None:
    """Lines of prose: tables, figures, code blocks and lists of commits may be longer."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    long = [line for line in text.splitlines() if len(line) > 120]
    assert not [line for line in long if not line.startswith(("|", "![", "- code: "))]


@pytest.mark.parametrize("path", PROSE, ids=relative)
def test_relative_links_exist(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[\w-]*)?\)", path.read_text(encoding="utf-8")):
        assert "://" in target or (path.parent / target).exists(), f"{path}: no {target}"


@pytest.mark.parametrize("path", PROSE, ids=relative)
def test_cited_files_exist(path: Path) -> None:
    """Files and folders of the repository, and modules that are run; what has no folder here is not checked."""
    text = path.read_text(encoding="utf-8")
    packages = [name.name for name in (ROOT / "equibayes").iterdir() if name.is_dir()]
    cited = re.findall(r"`(?:bash |python )?((?:[\w.-]+/)+[\w.-]*)[^`]*`", text)
    modules = [name.replace(".", "/") for name in re.findall(r"python -m (studies\.\w+)", text)]
    for name in {*cited, *modules}:
        top = name.split("/")[0]
        places = [ROOT / "equibayes" / name if top in packages else ROOT / name, path.parent / name]
        if top in packages or (ROOT / top).is_dir():
            found = (place.exists() or place.with_suffix(".py").exists() for place in places)
            assert any(found), f"{relative(path)} cites {name}"


def test_package_layout_names_existing_files() -> None:
    rows = re.findall(r"^\| `(equibayes/\w+)` \|.*\| (.+) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    packages = {f"equibayes/{path.parent.name}" for path in (ROOT / "equibayes").glob("*/__init__.py")}
    assert {package for package, _ in rows} == packages
    for package, cell in rows:
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", cell):
            places = [ROOT / package / name, *(ROOT / package).glob(f"cluster/{name}")]
            assert any(place.exists() for place in places), f"{package} has no {name}"


def table_rows(heading: str) -> list[list[str]]:
    """Cells of the table on the design page whose first line begins with `heading`."""
    table = TEXTS["design"].split(heading)[1].split("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def importable(name: str) -> bool:
    return "triton" not in name or importlib.util.find_spec("triton") is not None


def find(name: str) -> object | None:
    """The module, function or class with this name under `equibayes`; None where there is none."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["equibayes", *words[:count]]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("equibayes"):
                raise
            continue
        for word in words[count:]:
            found = getattr(found, word, None)
        return found
    return None


@pytest.mark.parametrize("row", table_rows("| from → to | module |"), ids=lambda row: row[0])
def test_path_of_the_data_names_existing_code(row: list[str]) -> None:
    """Every module can be imported, and every function or class is in one of the modules of its row."""
    modules, functions = (re.findall(r"`([\w.]+)`", cell) for cell in row[1:])
    assert modules
    assert functions
    modules = [module for module in modules if importable(module)]
    for module in modules:
        importlib.import_module(f"equibayes.{module}")
    for function in functions if modules else []:
        assert any(find(f"{module}.{function}") for module in modules), f"{function} is in none of {modules}"


@pytest.mark.parametrize("row", table_rows("| | reference | Triton | C++ |"), ids=lambda row: row[0])
def test_engines_side_by_side_name_existing_code(row: list[str]) -> None:
    reference, fused = (re.findall(r"`([\w.]+)`", cell) for cell in row[1:3])
    native = re.findall(r"`((?:include/|source/)?\w+\.(?:h|cpp|py))`", row[3])
    assert all((ROOT / "equibayes" / "engine" / "native" / name).is_file() for name in native), native
    for name in reference:
        assert find(name), f"no {name}"
    if importable("triton"):
        for name in fused:
            assert find(f"engine.triton.{name}") or find(name), f"no {name}"


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


@pytest.mark.parametrize(
    "code",
    [code for text in TEXTS.values() for code in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)],
)
def test_python_examples_use_existing_names(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, name.name) for name in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "equibayes":
            assert hasattr(equibayes, node.attr), f"no equibayes.{node.attr}"


def test_messages_of_the_faq_are_the_programs_own() -> None:
    """Texts in the first column of its tables; … stands for the user's input."""
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "equibayes").rglob("*.py")))
    source = re.sub(r"['\"]\s*\n\s*f?['\"]", "", source)  # texts that continue on the next line
    rows = re.findall(r"^\| `(.+?)` \|", TEXTS["faq"], re.MULTILINE)
    assert len(rows) > 40
    for row in rows:
        for part in row.split("…"):
            assert part in source, f"no message says: {part}"


def test_example_of_any_density_gives_its_distribution() -> None:
    """A standard normal, with a fixed seed."""
    draws = runpy.run_path(str(DOCS / "snippets" / "any_density.py"))["draws"]
    assert draws.shape == (51, 64, 3)
    assert float(draws.mean()) == pytest.approx(0, abs=0.1)
    assert float(draws.std()) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("chains", "draws"), [(4, 20), (8, 50)])
def test_r_hat_of_perfect_chains_is_as_documented(chains: int, draws: int) -> None:
    """The median, over simulations, of the worst of 16 independent normal components."""
    components = np.random.default_rng(0).standard_normal((chains, draws, 60 * 16))
    worst = convergence(components).r_hat.reshape(60, 16).max(1)
    row = re.search(rf"^\| {chains} × {draws} .*?\| ([\d.]+) \(", TEXTS["diagnostics"], re.MULTILINE)
    assert row is not None
    assert np.median(worst) == pytest.approx(float(row[1]), abs=0.04)
