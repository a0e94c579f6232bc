"""The report in a real browser: it loads in silence, the structures turn, and it reads in the dark, on a phone and on
paper."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from equibayes.data import Structure
from equibayes.evaluation.report import write_report
from tests.evaluation.browser import Browser, browser, find_chromium
from tests.evaluation.made_up import evaluated_of, made_up, made_up_posterior

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path; on Debian: apt-get install chromium")

HOSTILE = "far <b>$x</script>"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of molecules with a long name each, and a crystal without labels."""
    from ase.build import bulk

    salt = Structure.from_atoms(bulk("NaCl", "rocksalt", a=5.64, cubic=True))
    sets = [
        made_up("a-rather-long-name-of-a-file-without-any-space.extxyz@test", 12),
        made_up(HOSTILE, 12, size=0.1, too_small=3.0, seed=1),
        evaluated_of("salt", [salt, salt], k=4, size=0.1, too_small=1.0, seed=2),
    ]
    return write_report(tmp_path_factory.mktemp("browser") / "report.html", made_up_posterior(), sets)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    assert CHROMIUM is not None
    with browser(CHROMIUM) as opened:
        yield opened


@pytest.fixture
def page(chromium: Browser, path: Path) -> Browser:
    """Freshly loaded, light, on a wide screen."""
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.media()
    chromium.size(1280, 900)
    chromium.open(path)
    return chromium


def pixels(page: Browser, canvas: str) -> str:
    """The picture on a canvas, as a data address."""
    return page.evaluate(f"document.getElementById('{canvas}').toDataURL()")


def colours(page: Browser, canvas: str) -> int:
    """How many different colours are on a canvas."""
    script = """(() => {
      const c = document.getElementById('ID'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
      for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 0) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
      return seen.size;
    })()"""
    return page.evaluate(script.replace("ID", canvas))


def words(page: Browser, element: str) -> str:
    return page.evaluate(f"document.getElementById('{element}').textContent")


def choose(page: Browser, element: str, value: str) -> None:
    page.evaluate(
        f"{{ const s = document.getElementById('{element}'); s.value = '{value}'; s.dispatchEvent(new Event('change')); }}"
    )


def test_loads_in_silence(page: Browser, path: Path) -> None:
    assert page.complaints == []
    assert page.requests == [path.resolve().as_uri()], "only the page itself"
    assert page.evaluate("document.querySelectorAll('section').length") == 8
    assert page.evaluate("document.querySelectorAll('svg').length") == 14
    assert page.evaluate("[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().height > 100)")
    assert HOSTILE in page.evaluate("document.querySelector('h1').parentElement.parentElement.innerText")


def test_a_foreign_script_does_not_run(page: Browser) -> None:
    """The browser obeys the policy of the page: what is not the page's own script stays dead."""
    page.evaluate(
        "{ const s = document.createElement('script'); s.textContent = 'window.hit = 1'; document.body.append(s); }"
    )
    assert page.evaluate("window.hit === undefined")
    asked = """new Promise(done => {
      document.addEventListener('securitypolicyviolation', e => done(e.effectiveDirective));
      fetch('http://127.0.0.1:9/').catch(() => {});
      setTimeout(() => done('nobody objected'), 2000);
    })"""
    assert page.evaluate(asked) == "connect-src"


def test_viewer_draws(page: Browser) -> None:
    for canvas in ("viewer-most", "viewer-least"):
        assert colours(page, canvas) > 200
    assert colours(page, "viewer-bar") > 100
    assert pixels(page, "viewer-most") != pixels(page, "viewer-least")
    assert "predicted σ of an atom" in words(page, "viewer-what")
    assert "meV/Å" in words(page, "viewer-what")
    ticks = [
        float(tick)
        for tick in page.evaluate("[...document.querySelectorAll('#viewer-ticks span')].map(s => s.textContent)")
    ]
    assert ticks == sorted(ticks)
    assert len(ticks) == 5
    assert re.search("H hydrogen.*C carbon.*O oxygen", words(page, "viewer-elements"))


def test_viewer_turns_by_mouse_and_keyboard(page: Browser) -> None:
    page.evaluate("document.getElementById('viewer-least').scrollIntoView({ block: 'center', behavior: 'instant' })")
    box = page.evaluate(
        "(() => { const b = document.getElementById('viewer-least').getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
    )
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    other, seen = pixels(page, "viewer-most"), [pixels(page, "viewer-least")]
    page.mouse("mouseMoved", box[0] + 3, box[1] + 3)
    page.mouse("mousePressed", box[0] + 3, box[1] + 3)
    page.mouse("mouseMoved", x + 40, y + 10)
    page.mouse("mouseReleased", x + 40, y + 10)
    seen.append(pixels(page, "viewer-least"))
    page.evaluate("document.getElementById('viewer-least').focus()")
    for key in ("ArrowLeft", "ArrowUp", "+", "n"):
        page.press(key)
        seen.append(pixels(page, "viewer-least"))
    assert len(set(seen)) == len(seen), "every move changes the picture"
    assert re.fullmatch(r"C 0: σ [\d.]+ meV/Å, error [\d.]+ meV/Å, novelty [\d.]+", words(page, "viewer-least-atom"))
    page.press("0")
    assert pixels(page, "viewer-least") == seen[0], "0 starts again"
    assert pixels(page, "viewer-most") == other, "the other view stays"
    assert page.complaints == []


def test_viewer_points_at_atoms(page: Browser) -> None:
    """Somewhere on the canvas there are atoms that tell their values."""
    page.evaluate("document.getElementById('viewer-most').scrollIntoView({ block: 'center', behavior: 'instant' })")
    x, y, width, height = page.evaluate(
        "(() => { const b = document.getElementById('viewer-most').getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
    )
    told = set()
    for row in range(1, 10):
        for column in range(1, 12):
            page.mouse("mouseMoved", x + width * column / 12, y + height * row / 10)
            told.add(words(page, "viewer-most-atom"))
    assert len(told - {""}) >= 3


def test_viewer_shows_other_structures_and_errors(page: Browser) -> None:
    seen = [pixels(page, "viewer-least")]
    assert page.evaluate("document.getElementById('viewer-least-choice').options.length") == 6
    choose(page, "viewer-least-choice", "2")
    seen.append(pixels(page, "viewer-least"))
    choose(page, "viewer-colour", "error")
    seen.append(pixels(page, "viewer-least"))
    assert "observed error of an atom" in words(page, "viewer-what")
    choose(page, "viewer-colour", "novelty")
    seen.append(pixels(page, "viewer-least"))
    assert "1 is the edge of what was learned" in words(page, "viewer-what")
    choose(page, "viewer-colour", "error")
    choose(page, "viewer-set", "2")
    seen.append(pixels(page, "viewer-least"))
    assert "grey: not known" in words(page, "viewer-what"), "the crystal has no labels"
    assert "Na sodium" in words(page, "viewer-elements")
    assert "H hydrogen" not in words(page, "viewer-elements")
    assert len(set(seen)) == len(seen)
    assert page.complaints == []


def test_dark(page: Browser) -> None:
    def lightness(part: str) -> float:
        colour = page.evaluate(
            f"getComputedStyle(document.querySelector('{part}')).{'color' if part == 'h1' else 'backgroundColor'}"
        )
        return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3

    assert lightness("body") > 230
    assert lightness("h1") < 60
    page.media(scheme="dark")
    assert lightness("body") < 40
    assert lightness("h1") > 200
    axis = page.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
    assert min(map(int, re.findall(r"\d+", axis))) > 120, "figures follow the theme"


def overflow(page: Browser) -> list[str]:
    """What sticks out to the right although nobody can scroll there."""
    return page.evaluate("""(() => {
      const wide = document.documentElement.clientWidth + 1, out = [];
      for (const e of document.querySelectorAll('body *')) {
        if (e.closest('.scroll, .plot, pre, .skip')) continue;
        if (e.getBoundingClientRect().right > wide) out.push(e.tagName + '.' + e.className + '#' + e.id);
      }
      if (document.documentElement.scrollWidth > wide) out.push('page');
      return out;
    })()""")


@pytest.mark.parametrize("width", [390, 820, 1280])
def test_nothing_sticks_out(page: Browser, width: int) -> None:
    page.size(width, 800)
    assert overflow(page) == []


def test_words_of_figures_are_readable_on_a_phone(page: Browser) -> None:
    page.size(390, 800)
    sizes = page.evaluate(
        "[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect())"
        ".filter(b => b.width > b.height).map(b => b.height)"
    )
    assert len(sizes) > 100
    assert min(sizes) > 5.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_print(page: Browser, scheme: str, tmp_path: Path) -> None:
    page.media(scheme=scheme, kind="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is white"
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.evaluate("getComputedStyle(document.querySelector('.plot')).overflowX") == "visible", (
        "nothing is cut off"
    )
    page.media(scheme=scheme, kind="")
    content = page.pdf(tmp_path / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 40


def test_without_scripts_the_tables_remain(page: Browser, path: Path) -> None:
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(path)
        text = page.call("Accessibility.getFullAXTree")["nodes"]
        names = " ".join(str(node.get("name", {}).get("value", "")) for node in text)
        assert "The view needs JavaScript" in names
        assert "Most and least certain structures of" in names
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)
