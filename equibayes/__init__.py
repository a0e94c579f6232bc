"""Interatomic forces with uncertainties.

    posterior = equibayes.sample(equibayes.read("train.xyz"), output="my.posterior")
    posterior = equibayes.load("my.posterior")
    prediction = posterior.predict(atoms)          # forces, forces_std, forces_epistemic, forces_aleatoric, energy, …
    atoms.calc = equibayes.Calculator("my.posterior")   # for ASE

Names are imported when they are first used, so that `import equibayes` is fast.
"""

from typing import TYPE_CHECKING, Any

from equibayes.errors import InputError, InputWarning
from equibayes.version import __version__

if TYPE_CHECKING:
    from equibayes.data.read import read
    from equibayes.posterior.file import load
    from equibayes.posterior.predict import Prediction, predict
    from equibayes.posterior.sample import sample
    from equibayes.simulate.calculator import Calculator

_LAZY = {
    "read": "equibayes.data.read",
    "load": "equibayes.posterior.file",
    "sample": "equibayes.posterior.sample",
    "predict": "equibayes.posterior.predict",
    "Prediction": "equibayes.posterior.predict",
    "Calculator": "equibayes.simulate.calculator",
}
__all__ = ["Calculator", "InputError", "InputWarning", "Prediction", "__version__", "load", "predict", "read", "sample"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'equibayes' has no attribute '{name}'")
