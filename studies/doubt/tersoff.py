"""Tersoff's potential of silicon as an engine: parameters of 1989 (Phys. Rev. B 39, 5566), by matscipy."""

import warnings
from typing import Any

from matscipy.calculators.manybody import Manybody
from matscipy.calculators.manybody.explicit_forms import TersoffBrenner
from matscipy.calculators.manybody.explicit_forms.tersoff_brenner import Tersoff_PRB_39_5566_Si_C


class Silicon(Manybody):
    """An engine by the name `studies.doubt.tersoff:Silicon`."""

    def __init__(self) -> None:
        super().__init__(**TersoffBrenner(Tersoff_PRB_39_5566_Si_C))

    def calculate(self, *arguments: Any, **options: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numpy, about atoms without neighbours
            super().calculate(*arguments, **options)
