"""Compares the fused engines on this machine with the float64 reference.

    python -m equibayes.selftest                        # on a GPU: all networks and precisions, about two minutes
    python -m equibayes.selftest --engine native        # on a CPU: the compiled engine, several networks
    python -m equibayes.selftest --interpret            # tiny networks under Triton's interpreter

Every line is a relative error |fused − reference| / |reference| and its limit; the exit code is 1 if one is exceeded.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.selftest_cases import (
    NATIVE_NETWORKS,
    NETWORKS,
    QUICK,
    SMALL_NETWORKS,
    cluster,
    crystal,
    structures,
    training,
)
from equibayes.engine.selftest_checks import (
    Check,
    NativeEngine,
    TritonEngine,
    check_derivative,
    check_gradient,
    check_moving,
    check_predictions,
)
from equibayes.engine.selftest_steps import check_neighbors, check_noise, check_steps


@contextmanager
def cut_for(rows: int) -> Iterator[None]:
    """Divide the work into programs as for so many atoms."""
    from equibayes.engine.triton.tuning import Tuning

    best = Tuning.best
    Tuning.best = classmethod(lambda cls, precision, _, **more: best(precision, rows, **more))  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Tuning.best = best  # type: ignore[method-assign]


def small_checks(device: str) -> Iterator[Check]:
    """Tiny networks, for the interpreter."""
    exact = TritonEngine("float32")
    yield from check_neighbors(8, device)
    yield from check_noise(1000, device)
    for name, config in SMALL_NETWORKS.items():
        for kind, frames in structures(small=True).items():
            yield from check_predictions(f"{name}, {kind}", config, frames, 2, exact, device)
        yield from check_gradient(name, config, training(config, small=True), 2, exact, device)
    yield from check_steps("l=1", SMALL_NETWORKS["l=1"], [cluster(2, 8), cluster(2, 9)], 2, exact, device)


def all_checks(device: str) -> Iterator[Check]:
    yield from check_neighbors(500, device)
    yield from check_noise(1_000_001, device)
    exact = TritonEngine("float32")
    paper, molecules = NETWORKS["paper"], training(NETWORKS["paper"], small=False)
    for name, config in NETWORKS.items():
        for kind, frames in structures(small=False).items():
            yield from check_predictions(f"{name}, {kind}", config, frames, 2, exact, device)
        yield from check_moving(name, config, crystal(8, 5.0, 6), 2, exact, device)
        yield from check_derivative(name, config, cluster(12, 13), exact, device)
        yield from check_gradient(name, config, training(config, small=False), 2, exact, device)
    for chains in (1, 3, 8, 16):
        yield from check_gradient(f"paper, K={chains}", paper, molecules, chains, exact, device)
    for rows in (500, 2000, 5000):  # the other divisions of the work, which these few atoms would not use
        with cut_for(rows):
            name = f"paper, as for {rows} atoms"
            yield from check_predictions(name, paper, molecules, 8, TritonEngine("bf16x3"), device)
            yield from check_moving(name, paper, cluster(21, 1), 8, TritonEngine("bf16x3"), device)
            yield from check_gradient(name, paper, molecules, 8, TritonEngine("mixed"), device)
    for precision in ("tf32x3", "bf16x3", "mixed", "tf32"):
        yield from check_gradient(f"paper, {precision}", paper, molecules, 2, TritonEngine(precision), device)
    yield from check_steps("paper", paper, molecules, 3, exact, device)
    yield from check_steps("stress", NETWORKS["stress"], training(NETWORKS["stress"], small=False), 3, exact, device)


def native_checks(small: bool) -> Iterator[Check]:
    """The compiled engine; small: few networks, which compile quickly."""
    engine = NativeEngine()
    for name, config in NATIVE_NETWORKS.items():
        if small and name not in QUICK:
            continue
        learned = training(config, small=False)
        for kind, frames in structures(small=False).items():
            yield from check_predictions(f"{name}, {kind}", config, frames, 2, engine, "cpu")
        yield from check_moving(name, config, crystal(8, 5.0, 6), 2, engine, "cpu")
        yield from check_derivative(name, config, cluster(12, 13), engine, "cpu")
        for chains in (1, 3):
            yield from check_gradient(f"{name}, K={chains}", config, learned, chains, engine, "cpu")
        yield from check_gradient(f"{name}, cells", config, [crystal(8, 5.0, s) for s in (6, 7, 8)], 2, engine, "cpu")
        yield from check_steps(name, config, learned, 3, engine, "cpu")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interpret", action="store_true", help="small networks on a CPU under Triton's interpreter")
    engine = "triton: for GPUs (default); native: for CPUs"
    parser.add_argument("--engine", choices=("triton", "native"), default="triton", help=engine)
    parser.add_argument("--small", action="store_true", help="native: only networks that compile in seconds")
    given = parser.parse_args()
    if given.engine == "native":
        return report(native_checks(given.small), why_no_compiler())
    if given.interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    elif not torch.cuda.is_available():
        print("no GPU is visible to PyTorch; use --interpret to test the kernels on a CPU", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = False
    return report(small_checks("cpu") if given.interpret else all_checks("cuda"))


def report(checks: Iterator[Check], impossible: str | None = None) -> int:
    """Print every check; the exit status."""
    if impossible is not None:
        print(impossible, file=sys.stderr)
        return 2
    failed = 0
    for check in checks:
        failed += not check.passed
        verdict = "ok  " if check.passed else "FAIL"
        print(f"{verdict}  {check.error:9.2e}  (limit {check.limit:.0e})  {check.name}", flush=True)
    print(f"{failed} checks failed" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
