"""What rounding in matrix products does to the gradient: the interpreter, taught to round as the matrix units of a
GPU."""

import importlib.util
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("the triton package is not installed (pip install equibayes[gpu])", allow_module_level=True)
if torch.cuda.is_available():
    pytest.skip("there is a GPU: run python -m equibayes.selftest instead", allow_module_level=True)
os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported

from triton.runtime import interpreter

from equibayes.engine import selftest_cases, selftest_checks
from equibayes.engine.triton.memory import PRECISIONS

MANTISSA = {"tf32": 10, "bf16": 7}
ASKED = {name for both in PRECISIONS.values() for name in both}


def rounded(values: np.ndarray, bits: int) -> np.ndarray:
    """Float32 to the nearest number with so many bits behind the first."""
    words = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    dropped = 23 - bits
    half, mask = np.uint32(1 << (dropped - 1)), np.uint32(0xFFFFFFFF >> dropped << dropped)
    return ((words + half) & mask).view(np.float32)


def product(a: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
    """Sums are exact here; operands are rounded, or split in two of which three products are taken."""
    if precision == "ieee":
        return a.astype(float) @ b.astype(float)
    bits = MANTISSA[precision.removesuffix("x3")]
    (a0, a1), (b0, b1) = ((high := rounded(x, bits), rounded(x - high, bits)) for x in (a, b))
    a0, a1, b0, b1 = (x.astype(float) for x in (a0, a1, b0, b1))
    return a0 @ b0 + (a0 @ b1 + a1 @ b0 if precision.endswith("x3") else 0.0)


@pytest.fixture
def matrix_units(monkeypatch):
    """The precisions that the kernels asked for are recorded."""
    asked = set()

    def dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        asked.add(input_precision.name.lower())
        total = product(a.data, b.data, input_precision.name.lower()) + d.data
        return interpreter.TensorHandle(total.astype(d.data.dtype), d.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
    builder = interpreter.interpreter_builder
    options = replace(builder.options, allowed_dot_input_precisions=tuple(ASKED))
    monkeypatch.setattr(builder, "options", options)
    return asked


def errors(precision: str) -> dict[str, float]:
    """Of the gradient, and of the force error by which the likelihood judges."""
    frames = [selftest_cases.cluster(2, 8), selftest_cases.cluster(2, 9)]
    config = replace(selftest_cases.SMALL_NETWORKS["l=1"], parity=False, radial_mlp_depth=1)
    checks = list(selftest_checks.check_gradient("", config, frames, 1, selftest_checks.TritonEngine(precision), "cpu"))
    assert not [check for check in checks if not check.passed]
    return {check.name.removeprefix(": "): check.error for check in checks}


def test_rounding():
    assert rounded(np.float32([1 + 2**-11 + 2**-20]), 10) == 1 + 2**-10
    assert rounded(np.float32([-1 - 2**-9]), 7) == -1
    x = np.float32([[1 / 3]])
    errors = [abs(float(product(x, x, p)[0, 0]) * 9 - 1) for p in ("tf32", "bf16x3", "tf32x3", "ieee")]
    assert errors[0] > 1e-4 > errors[1] > 1e-6 > errors[2]


@pytest.mark.slow
def test_the_better_the_precision_the_better_the_gradient(matrix_units):
    """Limits of the selftest hold with each, and the order is that of their bits."""
    found = {precision: errors(precision) for precision in PRECISIONS}
    error = {precision: own["gradient"] for precision, own in found.items()}
    assert matrix_units == ASKED
    assert error["tf32"] > 20 * error["bf16x3"] > 40 * error["tf32x3"]
    assert error["tf32x3"] < 5 * error["float32"]
    # energies and forces as with bf16x3, the gradient as with tf32
    assert [found["mixed"][name] for name in ("û", "force error")] == [
        found["bf16x3"][name] for name in ("û", "force error")
    ]
    assert found["tf32"]["û"] > 20 * found["mixed"]["û"]
    assert error["tf32"] / 3 < error["mixed"] < 3 * error["tf32"]
