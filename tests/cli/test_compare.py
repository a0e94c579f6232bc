"""`equibayes compare`: trains what is missing, once; one table."""

import json
from pathlib import Path

import pytest

from equibayes.evaluation.comparison import Row, comparison_table
from tests.cli.program import run

WORDS = [
    *("compare", "bundled:ethanol@0:20", "--test", "bundled:ethanol@500:510", "--network", "tiny", "-o", "all"),
    *("--chains", "2", "--samples", "2", "burn_in.steps=20", "data.validation=4", "guard.interval=10"),
]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("compare")
    status, out, err = run([*WORDS, "--json", "c.json"], folder)
    assert status == 0, err
    return folder, out


def test_one_row_a_method_with_its_cost(compared: tuple[Path, str]) -> None:
    _, out = compared
    table = out[out.index("method ") :].splitlines()
    assert [line.split()[0] for line in table[1:5]] == ["bayes", "ensemble", "dropout", "point"]
    assert [line.split()[-3:-1] for line in table[1:5]] == [["2", "20"], ["2", "20"], ["1", "20"], ["1", "20"]]
    assert all(int(line.split()[-1]) >= 0 for line in table[1:5])


def test_json_holds_every_metric(compared: tuple[Path, str]) -> None:
    folder, _ = compared
    content = json.loads((folder / "c.json").read_text())
    rows = content["bundled:ethanol@500:510"]
    assert set(rows) == {"bayes", "ensemble", "dropout", "point"}
    assert rows["ensemble"]["values"]["force_mae"] > 0
    assert rows["point"]["values"]["force_epistemic_share"] == 0
    assert rows["ensemble"]["seconds"] > 0


def test_what_is_there_is_not_trained_again(compared: tuple[Path, str]) -> None:
    folder, out = compared
    files = sorted((folder / "all").glob("*.posterior"))
    before = [file.stat().st_mtime_ns for file in files]
    status, again, _ = run(WORDS, folder)
    assert status == 0
    assert [file.stat().st_mtime_ns for file in files] == before
    assert again[again.index("method ") :] == out[out.index("method ") : out.index("every metric")]


def test_other_settings_are_refused(compared: tuple[Path, str]) -> None:
    folder, _ = compared
    status, _, err = run([*WORDS, "burn_in.steps=60"], folder)
    assert status == 2
    assert "bayes.posterior: was made with other settings; name another folder with -o, or add --overwrite" in err
    assert err.count("\n") == 1


def test_other_data_are_refused(compared: tuple[Path, str]) -> None:
    folder, _ = compared
    words = [word.replace("@0:20", "@1:21") for word in WORDS]
    status, _, err = run([*words, "--methods", "point"], folder)
    assert status == 2
    assert "was made with other" in err


def test_unknown_method(tmp_path: Path) -> None:
    status, _, err = run([*WORDS, "--methods", "bayes,forest"], tmp_path)
    assert status == 2
    assert "choose from bayes, ensemble, dropout, point" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n\nO 0 0 0\n", "t.xyz: has neither energies nor forces to compare with"),
        ("1\nREF_energy=-1\nN 0 0 0\n", "t.xyz, frame 0: species N unknown to this model, which knows H, C, O"),
    ],
)
def test_a_test_set_of_no_use_is_refused_before_the_training(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.xyz").write_text(text)
    status, _, err = run(["compare", "bundled:ethanol@0:60", "--test", "t.xyz", "-o", "c"], tmp_path)
    assert status == 2
    assert message in err
    assert not (tmp_path / "c").exists()


def test_winners() -> None:
    """Low errors, high likelihood and AUC, coverage near its nominal value; equals share, and nothing wins against
    nobody."""

    def row(method: str, **values: float | None) -> Row:
        return Row(method, values, 1, 10, None)

    table = comparison_table(
        "set",
        [
            row("a", force_mae=0.0100, force_mll=2.0, force_auc=0.9, force_coverage_68=0.90, energy_mae=0.001),
            row("b", force_mae=0.0200, force_mll=3.0, force_auc=0.9, force_coverage_68=0.65, energy_mae=None),
        ],
    )
    cells = {heading: [line[i].strip() for line in table.rows] for i, heading in enumerate(table.headings)}
    assert cells["MAE-F"] == ["10.0*", "20.0"]
    assert cells["MLL-F"] == ["2.000", "3.000*"]
    assert cells["ROC AUC"] == ["0.900*", "0.900*"]
    assert cells["in 68 %"] == ["90.0", "65.0*"]
    assert cells["MAE-E"] == ["1.0", "–"]
    assert cells["MLL-E"] == ["–", "–"]
    assert cells["seconds"] == ["–", "–"]


def test_training_frames_are_left_out(compared: tuple[Path, str]) -> None:
    """The four held-back frames of the training file remain to compare on."""
    folder, _ = compared
    words = ["bundled:ethanol@0:20" if word == "bundled:ethanol@500:510" else word for word in WORDS]
    status, out, err = run([*words, "--json", "own.json"], folder)
    assert status == 0, err
    assert "note: bundled:ethanol@0:20: the posterior learned from 16 of these frames; the other 4 are used" in out
    rows = json.loads((folder / "own.json").read_text())["bundled:ethanol@0:20"]
    assert rows["bayes"]["values"]["n_frames"] == 4
