"""The entry point by which OpenMM-ML finds the potential of openmm.py.

OpenMM-ML imports this module whenever it is imported itself, so everything else is imported when a potential is made.
"""

from typing import Any

from openmmml.mlpotential import MLPotentialImpl, MLPotentialImplFactory


class Factory(MLPotentialImplFactory):
    """Makes the potential for `MLPotential("equibayes", ...)`."""

    def createImpl(self, name: str, **options: Any) -> MLPotentialImpl:
        """options: calculator, or posterior and other arguments of `equibayes.Calculator`."""
        from equibayes.adapters.openmm import Implementation

        calculator = options.pop("calculator", None)
        if calculator is None:
            from equibayes.simulate.calculator import Calculator

            calculator = Calculator(**options)
        return Implementation(name, calculator)
