"""The report without a browser: what is on the page, what it says, and that nothing in the data can harm it."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from ase.build import bulk

from equibayes.cli.main import main
from equibayes.data import Structure
from equibayes.errors import InputError
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.figures import Drawing
from equibayes.evaluation.metrics import OUTLIER_THRESHOLD
from equibayes.evaluation.report import write_report
from equibayes.evaluation.report.numbers import digits
from equibayes.evaluation.report.structures import rank
from equibayes.evaluation.tables import measure_all
from equibayes.posterior.file import Posterior
from tests.evaluation.made_up import calibrated, evaluated_of, made_up, made_up_posterior, stressed

SECTIONS = ["summary", "accuracy", "outliers", "calibration", "novelty", "structures", "samples", "run", "about"]
HOSTILE = "a</script><img src=http://evil.example/x onerror=alert(1)>&\"'$y$"


class Page(HTMLParser):
    """Elements with their attributes, and the words outside of scripts and styles; complains about what is not
    closed."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input", "col"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.parts: list[str] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts.append(data)
        elif inside != "style":
            self.parts.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.parts))

    def ids(self) -> list[str]:
        return [value for _, attributes in self.elements for key, value in attributes.items() if key == "id" and value]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def report(folder: Path, results: list[Evaluated], posterior: Posterior | None = None) -> tuple[Page, str]:
    path = write_report(folder / "report.html", posterior or made_up_posterior(), results)
    html = path.read_text(encoding="utf-8")
    return Page(html), html


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are laid out but not drawn, for tests of the words around them: drawing takes most of the time."""
    monkeypatch.setattr(Drawing, "_draw", lambda drawing, ending: b"<svg></svg>")


def test_stress_has_a_section_where_there_are_labels(tmp_path: Path, quick: None) -> None:
    page, html = report(tmp_path, [stressed(made_up(), too_small=2.0), made_up("bare", 20)])
    assert "stress" in page.ids()
    assert "#stress" in [a["href"] for a in page.all("a")]
    said = page.words.replace("\u00a0", " ")
    assert re.search(r"Elements of the stress \(30 frames\) are off by \d\.\d+ GPa on average, σ is \d\.\d+ GPa", said)
    assert html.count("Elements of the stress") == 2, "on the card and in the section, of one set"
    assert "<strong>Stress. </strong>" in html
    assert "<strong>Stress errors by predicted σ. </strong>" in html
    for tag in ("table", "figure"):
        assert page.all(tag)
    assert "stress" not in report(tmp_path, [made_up()])[0].ids()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, str]:
    """Two sets, the first with two k."""
    sets = [made_up(k=2), made_up(), made_up("shifted", 20, size=0.2, too_small=2.5, seed=1)]
    return report(tmp_path_factory.mktemp("report"), sets)


def test_every_section(full: tuple[Page, str]) -> None:
    page, html = full
    ids = page.ids()
    assert len(ids) == len(set(ids)), "ids are unique"
    assert [id_ for id_ in ids if id_ in SECTIONS] == SECTIONS
    links = [a["href"] for a in page.all("a") if "class" not in a]
    assert links == [f"#{name}" for name in SECTIONS]
    titles = re.findall(r"<figcaption><strong>([^<]+)\. </strong>", html)
    for title in (
        "Error and σ by species, near",
        "Force components, observed and predicted, shifted",
        "ROC curves",
        "Error without the most uncertain",
        "Reliability diagram",
        "Errors by predicted σ, shifted",
        "Density of errors, near",
        "Errors by novelty",
        "Dependence on k",
        "Learning history",
        "Predictions of every chain during the cycles",
    ):
        assert title in titles
    assert len(page.all("svg")) == len(titles) == 15
    assert "linear (upper scale: kcal/(mol Å))" in html.replace("\u00a0", " ").replace("   ", " ")
    assert "logarithmic" in html
    for attributes in page.elements:
        if attributes[1].get("role") == "img":
            assert len(attributes[1]["aria-label"] or "") > 20, "every figure says in words what it shows"
    assert len(html) < 2_000_000


def test_nothing_is_fetched(full: tuple[Page, str]) -> None:
    page, html = full
    assert not re.search(r"https?:|//[a-z]", re.sub(r"//[^\n]*\n", "", html)), "no external links"
    for _, attributes in page.elements:
        for key in ("src", "href", "action", "data", "srcset", "poster"):
            assert str(attributes.get(key) or "#").startswith(("#", "data:,"))
        assert not [key for key in attributes if key.startswith("on")], "no script in an attribute"
    assert "@import" not in html


def test_only_its_own_script_may_run(full: tuple[Page, str]) -> None:
    page, _ = full
    policy = next(m["content"] or "" for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    script = next(text for text in page.scripts if "use strict" in text)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"


def test_words_of_a_calibrated_model(full: tuple[Page, str]) -> None:
    words = full[0].words.replace("\u00a0", " ")
    near, far = words.split("Skip to the results")[1].split(" shifted ")[:2]
    assert "σ fits the errors" in near
    assert "σ has the right size" in near
    assert "overconfident" not in near
    assert "clearly overconfident" in far
    assert re.search(r"errors are 2\.[4-6]\d? times as wide as σ says", far)
    assert re.search(r"shifted against near: errors \d+\.?\d* times, σ [34]\.\d+ times as large", words)
    assert "The chains agree: R-hat of predicted forces 1.02" in words
    assert "Whether the chains are still descending cannot be told: u at the ends of cycles was not recorded" in words
    assert "without recalibration" in words
    result = made_up()
    mae = float(np.abs(result.force_error).mean())
    assert f"{mae * 1e3:.1f} meV/Å" in words
    assert f"{mae * 23.0605:.2f} kcal/(mol Å)" in words


@pytest.mark.usefixtures("quick")
def test_underconfident(tmp_path: Path) -> None:
    page, _ = report(tmp_path, [made_up(too_small=0.5)])
    assert "clearly underconfident" in page.words
    assert "samples" not in page.ids(), "one k leaves nothing to compare"


@pytest.mark.usefixtures("quick")
def test_calibration_is_told(tmp_path: Path) -> None:
    page, _ = report(tmp_path, [made_up(frames=4)], calibrated(made_up_posterior()))
    assert (
        "Calibration on 30 frames of val.xyz: for forces σ was multiplied by one number, for energies σ was left"
        in page.words
    )
    assert "without recalibration" not in page.words


@pytest.mark.usefixtures("quick")
def test_without_outliers(tmp_path: Path) -> None:
    results = [made_up(size=1e-4)]
    metrics = measure_all(results, threshold=OUTLIER_THRESHOLD, about={})
    path = write_report(tmp_path / "r.html", made_up_posterior(), results, metrics)
    words = Page(path.read_text()).words.replace("\u00a0", " ")
    assert "No force component has an error above 43.4 meV/Å (1.00 kcal/(mol Å))" in words
    assert "ROC AUC has no value" in words
    assert "ROC curves: no data set has both outliers and good components" in words
    assert "No value for force AUC" in words
    assert "nan" not in words.lower().replace("nanoparticle", "")


@pytest.mark.usefixtures("quick")
def test_tiny_errors_keep_their_digits(tmp_path: Path) -> None:
    result = made_up(size=1e-4)
    page, _ = report(tmp_path, [result])
    mae = 1e3 * float(np.abs(result.force_error).mean())
    assert mae < 0.2
    assert f"near 4 40 {mae:.2f} " in page.words.replace("\u00a0", " ")


@pytest.mark.usefixtures("quick")
def test_threshold_of_the_metrics_is_used(tmp_path: Path) -> None:
    results = [made_up()]
    metrics = measure_all(results, threshold=0.5, about={})
    path = write_report(tmp_path / "r.html", made_up_posterior(), results, metrics)
    words = Page(path.read_text()).words.replace("\u00a0", " ")
    assert "above 500 meV/Å (11.5 kcal/(mol Å))" in words
    assert "times the MAE" not in words


@pytest.mark.usefixtures("quick")
def test_the_usual_threshold_belongs_to_the_data(tmp_path: Path) -> None:
    page, _ = report(tmp_path, [made_up(), made_up("far", size=0.5)])
    words = page.words.replace("\u00a0", " ")
    for result in (made_up(), made_up("far", size=0.5)):
        limit = 3e3 * float(np.abs(result.force_error).mean())
        assert f"error above {digits(limit)} meV/Å (" in words
    assert words.count("; 3 times the MAE)") == 2
    assert "Force components with an error above 3 times their MAE" in words


@pytest.mark.parametrize("missing", ["force", "energy"])
@pytest.mark.usefixtures("quick")
def test_missing_labels(missing: str, tmp_path: Path) -> None:
    result = made_up(frames=6)
    result = replace(result, **{f"{missing}_true": np.full_like(getattr(result, f"{missing}_true"), np.nan)})
    page, html = report(tmp_path, [result])
    words = page.words
    if missing == "force":
        assert "There are no force labels; the model is judged by its energies." in words
        assert "Energies are off by" in words
        assert "energies: % of errors within the intervals" in words.lower()
        assert "Energies with an error above 3 times their MAE" in words
        assert "Force components" not in words.replace("Force components, observed and predicted", "")
        assert "meV" in words
        assert re.search(r"[\d.]+ meV mean energy error of a structure", words.replace("\u00a0", " "))
        sigma = 1e3 * float(np.sqrt((result.energy_sigma**2).mean()))
        assert f"The model states an uncertainty σ of {sigma:.1f} meV where the error" in words.replace("\u00a0", " ")
        assert "Half of all σ are below" in words
    else:
        assert "Energies cannot be compared: energies of these molecules are known only up to a constant" in words
        assert "A predicted force component is off by" in words
    assert "viewer-data" in html, "σ can be looked at without labels"
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL).lower().replace("nanm", "")


@pytest.mark.usefixtures("quick")
def test_some_labels_missing(tmp_path: Path) -> None:
    result = made_up(frames=6)
    result.force_true[:9] = np.nan
    page, _ = report(tmp_path, [result])
    assert "27 of 162 force components have no label" in page.words


@pytest.mark.usefixtures("quick")
def test_one_sample_and_an_empty_history(tmp_path: Path) -> None:
    bare = made_up_posterior(1, history=[], verdict={}, config={}, data={})
    result = made_up(frames=3, k=1)
    result = replace(result, force_epistemic=np.zeros_like(result.force_sigma))
    page, _ = report(tmp_path, [result], bare)
    assert "1 posterior sample from 1 chain." in page.words
    assert "R-hat is undefined: the run left no diagnostics" in page.words
    assert "Learning history: the posterior file holds no history" in page.words
    assert "0 % of σ² is disagreement" in page.words.replace("\u00a0", " ")


@pytest.mark.usefixtures("quick")
def test_a_single_frame(tmp_path: Path) -> None:
    page, _ = report(tmp_path, [made_up(frames=1)])
    assert "1 structure, 9 atoms" in page.words


def test_hostile_names(tmp_path: Path) -> None:
    posterior = made_up_posterior(
        data={"name": HOSTILE, "frames": 3},
        config={"x": HOSTILE},
        verdict={"warnings": [HOSTILE], "events": [HOSTILE], "failed_chains": [HOSTILE], "r_hat_forces": 3.0},
    )
    clean, _ = report(tmp_path, [made_up(frames=4), made_up("other", 4)])
    page, html = report(tmp_path, [made_up(HOSTILE, 4), made_up("other", 4)], posterior)
    assert "<img" not in html
    assert len(page.all("script")) == len(clean.all("script")) == 2
    assert page.words.count(HOSTILE) > 10, "names are shown as they are"
    data = json.loads(next(text for text in page.scripts if text.startswith('{"colours"')))
    assert data["sets"][0]["name"] == HOSTILE


@pytest.mark.usefixtures("quick")
def test_sets_of_similar_names_have_figures_of_their_own(tmp_path: Path) -> None:
    write_report(
        tmp_path / "r.html",
        made_up_posterior(),
        [made_up("a b", 4), made_up("a/b", 4)],
        figures_dir=tmp_path / "figures",
    )
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"species-a-b.svg", "species-a-b-2.svg", "species-a-b.pdf", "remaining.pdf", "history.svg"} <= names
    assert len(names) == 2 * len({name.rpartition(".")[0] for name in names}), "SVG and PDF of each"


def test_most_and_least_certain() -> None:
    result = made_up(frames=5)
    result.force_sigma[result.frame == 3] = 9.0
    result.force_sigma[result.frame == 1] = 1e-3
    result.force_sigma[result.frame == 2, 0] = np.nan
    certain, uncertain = rank(result)
    assert certain[0] == 1
    assert uncertain == [2, 3], "what is not known is not certain"


@pytest.mark.usefixtures("quick")
def test_viewer_data_of_a_crystal(tmp_path: Path) -> None:
    salt = Structure.from_atoms(bulk("NaCl", "rocksalt", a=5.64, cubic=True))
    result = evaluated_of("salt", [salt, salt], k=4, size=0.1, too_small=1, seed=0)
    page, _ = report(tmp_path, [result])
    data = json.loads(next(text for text in page.scripts if text.startswith('{"colours"')))
    shown = data["sets"][0]["least"][0]
    assert data["elements"] == {"Na": ["sodium", 1.66], "Cl": ["chlorine", 1.02]}
    assert shown["symbols"] == salt.to_atoms().get_chemical_symbols()
    assert len(shown["cell"]) == 4
    assert shown["error"] == [None] * 8, "no labels"
    assert np.linalg.norm(shown["cell"][1]) == pytest.approx(5.64, abs=2e-3)
    # turned, never mirrored or stretched
    turned, given = np.array(shown["positions"]), salt.positions
    np.testing.assert_allclose(
        np.linalg.norm(turned[:, None] - turned, axis=-1), np.linalg.norm(given[:, None] - given, axis=-1), atol=5e-3
    )
    edges = np.array(shown["cell"][1:])
    assert np.linalg.det(edges) == pytest.approx(np.linalg.det(salt.cell), rel=1e-2)


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to report"):
        write_report(tmp_path / "r.html", made_up_posterior(), [])
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("posterior") / "made-up.posterior"
    made_up_posterior().save(path)
    return path


DATA = "bundled:ethanol@1000:1008"


def test_program(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, figures = tmp_path / "report.html", tmp_path / "figures"
    target.write_text("old")
    words = [
        str(file),
        DATA,
        "--k",
        "1,4",
        "--report",
        str(target),
        "--figures",
        str(figures),
    ]
    assert main(["evaluate", *words, "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.endswith(f"report written to {target}\nfigures written to {figures} as SVG and PDF\n")
    page = Page(target.read_text(encoding="utf-8"))
    assert {"near", "samples"} & set(page.ids()) == {"samples"}
    assert DATA in page.words
    assert target.stat().st_size < 5_000_000
    assert (figures / "roc.svg").exists()
    assert (figures / "roc.pdf").exists()


@pytest.mark.usefixtures("quick")
def test_program_with_figures_alone(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(file), DATA, "--figures", str(tmp_path / "f"), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.endswith("as SVG and PDF\n")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert len(list((tmp_path / "f").iterdir())) > 10


def test_program_refuses_before_it_works(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for words, said in (
        (["--report", str(tmp_path / "page.pdf")], "must end in .html"),
        (["--report", str(tmp_path / "no" / "page.html")], "there is no such folder"),
        (["--figures", str(taken)], "is a file; name a folder"),
    ):
        assert main(["evaluate", str(file), DATA, *words]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert said in err
    assert taken.read_text() == "mine"
