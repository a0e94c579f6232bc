"""Rivals that are no posteriors: last-layer prediction rigidity and exact Gaussian processes (studies/rivals)."""

import time
from collections.abc import Callable
from typing import Any

import torch

from equibayes.data import Dataset
from equibayes.evaluation.evaluated import Evaluated
from equibayes.posterior.file import Posterior
from studies.rivals import gp, llpr
from studies.rivals.kernel import group_of
from studies.rivals.process import Process
from studies.rivals.protocol import arrays_of, held_back_factors, scaled
from studies.tangent.cases import Case
from studies.tangent.measures import scored

Ask = Callable[[Dataset], Evaluated]
PERMUTATIONS = {
    "ethanol": gp.ETHANOL,
    # the two hydrogens of CH2; the two ends
    "malonaldehyde": group_of([(0, 1, 2, 3, 4, 5, 7, 6, 8), (2, 1, 0, 4, 3, 8, 6, 7, 5)]),
    # the methyl group rotates, and its mirror image
    "aspirin": group_of([(*range(18), 19, 20, 18), (*range(18), 19, 18, 20)]),
}
"""Of equivalent atoms, for the systems that the Gaussian process can treat."""
FITTED = [50]
"""Frames that its kernel is fitted on."""


def gaussian_process(system: str, case: Case) -> dict[str, Any]:
    """All that `Contest` records of a method."""
    begun = time.process_time()
    group = PERMUTATIONS[system]
    chosen, _ = gp.fitted(case.train, FITTED, group)
    positions, forces, energy = arrays_of(case.train)
    process = Process(torch.from_numpy(positions), torch.from_numpy(forces), float(energy.mean()), chosen, group)
    seconds = time.process_time() - begun
    about = {"kernel": chosen.kernel.kind, "length_per_angstrom": chosen.kernel.length, "noise": chosen.noise}
    return {"seconds": seconds, **about, "tests": _scored(lambda data: gp.asked(process, data), case)}


def rigidity(point: Posterior, case: Case) -> dict[str, Any]:
    """The same of the network `point`; seconds without its training."""
    begun = time.process_time()
    found, _, _ = llpr.fitted(point, case.train, case.held)
    seconds = time.process_time() - begun
    return {"seconds": seconds, "tests": _scored(lambda data: llpr.asked(point, found, data), case)}


def _scored(ask: Ask, case: Case) -> dict[str, Any]:
    factors = held_back_factors(ask(case.held))
    return scored(ask, lambda result: scaled(result, *factors), case.tests)
