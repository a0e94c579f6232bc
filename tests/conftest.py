"""Tests pin the reference, unless they or the environment name another engine.

EQUIBAYES_ENGINE=native python -m pytest tests/run tests/sampling      the same tests with the compiled engine
"""

import os
from collections.abc import Iterator

import pytest
import torch

from equibayes.engine.select import VARIABLE

os.environ.setdefault(VARIABLE, "reference")
os.environ["EQUIBAYES_POISON"] = "1"  # undefined memory of the compiled engine is NaN


@pytest.fixture(autouse=True)
def default_dtype() -> Iterator[None]:
    """Other packages set PyTorch's default precision and leave it so; no test may depend on which ran before."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)
