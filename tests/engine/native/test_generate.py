"""The C++ text of a network: readable, and free of branches that a case does not need."""

import pytest

from equibayes.bayes.model import StochasticModel
from equibayes.engine import selftest_cases
from equibayes.engine.native.layout import WeightMemory
from equibayes.engine.native.module import sources
from equibayes.network.config import NetworkConfig, preset

MIXED = NetworkConfig(l_max=2, num_features=[10, 3, 2], num_layers=3, radial_mlp_width=12, **selftest_cases.SCALES)


@pytest.mark.parametrize("width", [4, 8, 16])
def test_every_weight_has_a_place_of_its_own(width):
    model = StochasticModel(MIXED)
    memory = WeightMemory(model, width)
    assert len(memory.places) == model.layout.size == len(memory.places.unique())
    assert int(memory.places.max()) < memory.size
    for name, matrix in memory.matrices.items():
        assert matrix.columns % width == 0, name
        if any(part in name for part in ("linear", "self_connection")):
            assert matrix.rows % width == 0, name


def test_equations_stand_beside_the_loops():
    model = StochasticModel(preset("small", **selftest_cases.SCALES))
    texts = sources(model, WeightMemory(model, 16))
    assert "// S_k += R Σ_i A_ik x_i,   A_ik = Σ_m C_imk Y_m" in texts["layer1.cpp"]
    assert "MODE" not in texts["layer1.cpp"]
    assert "DUAL" not in texts["layer1.cpp"]
    for name, text in texts.items():
        assert text.count("{") == text.count("}"), name
