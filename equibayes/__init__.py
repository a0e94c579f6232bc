"""Interatomic forces with uncertainties.

    posterior = equibayes.sample(equibayes.read("train.xyz"), output="my.posterior")
    posterior = equibayes.load("my.posterior")
    prediction = posterior.predict(atoms)          # forces, forces_std, forces_epistemic, forces_aleatoric, energy, …
    atoms.calc = equibayes.Calculator("my.posterior")   # for ASE

Names are imported when they are first used, so that `import equibayes` is fast.
"""

import os
from typing import TYPE_CHECKING, Any

from equibayes.errors import InputError, InputWarning, TrustWarning
from equibayes.version import __version__

# Threads of torch's own operations wait for the next one without sleeping: by default for milliseconds, in which they
# take a core from the compiled engine or from another program.  This is read when torch is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

if TYPE_CHECKING:
    from equibayes.data.dataset import Dataset
    from equibayes.data.read import read
    from equibayes.data.structures import Structure
    from equibayes.evaluation.evaluated import evaluate
    from equibayes.posterior.calibrate import calibrate
    from equibayes.posterior.file import Posterior, load
    from equibayes.posterior.predict import predict
    from equibayes.posterior.prediction import Prediction
    from equibayes.posterior.sample import sample
    from equibayes.run.options import Run
    from equibayes.run.settings import sample_config
    from equibayes.simulate.calculator import Calculator
    from equibayes.solids.properties import Properties, properties

_LAZY = {
    "Dataset": "equibayes.data.dataset",
    "read": "equibayes.data.read",
    "Structure": "equibayes.data.structures",
    "evaluate": "equibayes.evaluation.evaluated",
    "calibrate": "equibayes.posterior.calibrate",
    "Posterior": "equibayes.posterior.file",
    "load": "equibayes.posterior.file",
    "sample": "equibayes.posterior.sample",
    "Run": "equibayes.run.options",
    "sample_config": "equibayes.run.settings",
    "predict": "equibayes.posterior.predict",
    "Prediction": "equibayes.posterior.prediction",
    "Calculator": "equibayes.simulate.calculator",
    "properties": "equibayes.solids.properties",
    "Properties": "equibayes.solids.properties",
}
__all__ = [
    "Calculator",
    "Dataset",
    "InputError",
    "InputWarning",
    "Posterior",
    "Prediction",
    "Properties",
    "Run",
    "Structure",
    "TrustWarning",
    "__version__",
    "calibrate",
    "evaluate",
    "load",
    "predict",
    "properties",
    "read",
    "sample",
    "sample_config",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'equibayes' has no attribute '{name}'")


def __dir__() -> list[str]:
    """For tab completion: also the names that have not been imported yet."""
    return sorted({*globals(), *__all__})
