"""The documentation builds, and what it says can be typed: commands parse, messages are the program's, links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from equibayes.cli.main import parse
from equibayes.config import merge, parse_overrides
from equibayes.run.settings import sample_config

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
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


def test_the_front_page_leads_to_the_others(site: Path) -> None:
    """It is the README, whose links are right in the repository and led nowhere on the site."""
    text = (site / "index.html").read_text()
    assert 'href="gpu.html"' in text
    assert 'href="contributing.html"' in text
    for page in site.glob("*.html"):
        assert 'class="xref myst"' not in page.read_text(), f"{page.name}: a link that leads nowhere"


def test_the_first_posterior_was_sampled_for_the_page(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "first-posterior.html").read_text())
    assert "8 samples written to ethanol.posterior" in text
    assert re.search(r"force error\s+\d+\.\d meV/Å on held-back frames", text)
    assert "calibration stored in ethanol.posterior" in text
    assert re.search(r"largest σ\s+\d+\.\d meV/Å, in step", text)


def test_links_between_pages_lead_somewhere(site: Path) -> None:
    """Pages and headings within them; files of the repository are named on the site, not linked."""
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


def commands() -> list[tuple[str, str]]:
    """Every line in a code block that begins with the program's name, with the page that it stands on."""
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
    """Texts in the first column of its tables, up to what stands for the user's input (…)."""
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "equibayes").rglob("*.py")))
    source = re.sub(r"['\"]\s*\n\s*f?['\"]", "", source)  # texts that are broken over lines
    rows = re.findall(r"^\| `(.+?)` \|", TEXTS["faq"], re.MULTILINE)
    assert len(rows) > 40
    for row in rows:
        for part in row.split("…"):
            assert part in source, f"no message says: {part}"
