"""What changes from step to step, as a table that a fused engine reads."""

from collections.abc import Sequence
from math import expm1, log

import torch

from equibayes.sampling import basis, sghmc
from equibayes.sampling.schedule import StepPlan

COLUMNS = 7


def step_table(
    plans: Sequence[StepPlan], learning_rates: torch.Tensor, updates: int, config: sghmc.SGHMCConfig, data_size: int
) -> torch.Tensor:
    """[n, K, COLUMNS] float32; the same double-precision numbers as `sghmc.step` uses, rounded once.

    Columns: Δt, deviation of the noise, whether the mass adapts (0: no, 1: yes, 2: for the first time), bias correction
    of the mass, weight of the prior, what happens to the basis of a matrix mass (0: nothing, 1: its factors gather the
    gradient, 2: it is refreshed as well), balance of energies and stress against forces.  updates: of the mass so far.
    """
    α = config.friction
    variance = 2 * α if config.integrator == "paper" else 1 - (1 - α) ** 2
    table = torch.zeros(*learning_rates.shape, COLUMNS, dtype=torch.float64)
    table[..., 0] = (learning_rates.double() * (α / data_size)).sqrt()
    for row, plan in zip(table, plans):
        row[:, 1] = (variance * plan.temperature) ** 0.5
        row[:, 4] = plan.prior_weight
        row[:, 6] = plan.balance
        if not plan.mass_frozen:
            row[:, 2] = 2.0 if updates == 0 else 1.0
            if config.mass == "matrix":
                row[:, 5] = float(basis.gathers(updates)) + float(basis.refreshes(updates))
            updates += 1
            row[:, 3] = -expm1(updates * log(config.beta))
    return table.float()
