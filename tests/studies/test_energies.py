"""Data and tables of the study of energies."""

from pathlib import Path

from studies.energies.__main__ import METHODS, config_of
from studies.energies.frames import HELD_BACK, PERIODIC_SETS, SETS, frames
from studies.energies.tables import rows


def test_frames_to_learn_from_to_choose_on_and_to_judge_by_differ(tmp_path: Path) -> None:
    parts = [{s.geometry_digest() for s in part} for part in frames("pedot", tmp_path)]
    assert [len(part) for part in parts] == [100, 30, 80]
    assert len(set.union(*parts)) == 210


def test_methods_differ_in_the_balance_alone() -> None:
    for name in SETS:
        plain, balanced = (config_of(name, 0, METHODS[method], [], False).to_dict() for method in ("plain", "balanced"))
        assert (plain["burn_in"].pop("balance"), balanced["burn_in"].pop("balance")) == (0.0, 0.3)
        assert plain == balanced
        assert plain["data"]["validation"] == HELD_BACK
        assert plain["network"]["r_max"] == (5.0 if name in PERIODIC_SETS else 4.0)


def test_rows_show_ratios_to_the_point_estimate() -> None:
    def case(point: float, balanced: float) -> dict:
        methods = {"point": point, "balanced": balanced}
        found = {method: {"test": {"energy": value, "force": 2 * value}} for method, value in methods.items()}
        return {"set": "ethanol", "name": "", "methods": found}

    *_, line = rows([case(10.0, 8.0), case(30.0, 24.0)], "", "test").splitlines()
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells == ["ethanol", "2", "20.0", "–", "16.0", "–", "0.80", "40.0", "–", "32.0"]
