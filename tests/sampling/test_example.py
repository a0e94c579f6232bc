"""The documented example runs and says something true."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_module.py"


def test_own_module():
    result = runpy.run_path(str(EXAMPLE))["main"]()
    assert result["rmse"] < 0.15
    assert result["epistemic_in_gap"] > 1.5 * result["epistemic_at_data"]
    assert result["epistemic_outside"] > 1.5 * result["epistemic_at_data"]
    assert result["aleatoric_right"] > 1.5 * result["aleatoric_left"]
    assert abs(result["kinetic_temperature"] - 1) < 0.06
