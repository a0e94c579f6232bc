"""A posterior as a driver within i-PI: all beads in one evaluation, no socket.

    <ffdirect name='equibayes'>
      <pes> custom </pes>
      <pes_path> /…/equibayes/adapters/ipi_driver.py </pes_path>
      <parameters> { posterior: water.posterior, template: water.xyz } </parameters>
      <batch_size> 32 </batch_size>
    </ffdirect>

`python -m equibayes.adapters.ipi_driver` prints the path.  i-PI loads this file by its path, finds the class by the
names below, and calls it with Hartree units.  The extras are those of `equibayes serve`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from ase import units

from equibayes.posterior.file import load
from equibayes.simulate.calculator import SKIN
from equibayes.simulate.evaluator import Evaluator
from equibayes.simulate.ipi import Client
from equibayes.simulate.start import start_structure
from equibayes.simulate.trust import check_deviation

__DRIVER_NAME__ = "equibayes"
__DRIVER_CLASS__ = "EquibayesDriver"

Answer = tuple[float, np.ndarray, np.ndarray, str]
"""Energy, forces [n, 3] and virial [3, 3] in atomic units; extras as JSON."""


class EquibayesDriver:
    """Energies, forces and virials of one structure or a list of them."""

    def __init__(
        self,
        posterior: str,
        template: str,
        device: str | None = None,
        dtype: str | None = None,
        k: int | None = None,
        deviation: str = "total",
        **_: Any,
    ) -> None:
        """posterior  file
        template   file whose first frame gives the elements, in i-PI's order, and the periodic directions
        device     "cpu" or "cuda" (default: cuda if there is one)
        dtype      "float32" or "float64" (default: that of the network)
        k          use the first k samples (default: all)
        deviation  "total" or "epistemic": the σ in the extras
        """
        check_deviation(deviation)
        found = load(posterior)
        found = found if k is None else found.subset(k)
        start = start_structure(template, found)
        self.client = Client(Evaluator(found, device, dtype, SKIN), start, deviation)

    def __call__(self, cell: Any, positions: Any) -> Answer | list[Answer]:
        """cell [3, 3] with the vectors as columns and positions [n, 3], or lists of these, in Bohr."""
        single = not isinstance(cell, list)
        cells, places = ([cell], [positions]) if single else (cell, positions)
        answers = self.client.answers(
            [np.asarray(each).T * units.Bohr for each in cells], [np.asarray(each) * units.Bohr for each in places]
        )
        converted = [_in_atomic_units(*answer) for answer in answers]
        return converted[0] if single else converted


def _in_atomic_units(energy: float, forces: np.ndarray, virial: np.ndarray, extras: np.ndarray) -> Answer:
    """From eV and Å."""
    force_unit = units.Hartree / units.Bohr
    return energy / units.Hartree, forces / force_unit, virial / units.Hartree, extras.tobytes().decode()


if __name__ == "__main__":
    print(Path(__file__).resolve())
