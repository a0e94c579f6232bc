"""Stress labels as files hold them: nine numbers, six in Voigt's order, or a virial instead."""

from typing import Any

import numpy as np
import numpy.typing as npt

from equibayes.errors import InputError

FloatArray = npt.NDArray[np.float64]

ASYMMETRY = 0.01
"""Of the largest element.  Codes print a little asymmetry from rounding; more means that this is not a stress."""


def is_virial(key: str) -> bool:
    """Whether a key holds virials, by its name."""
    return "virial" in key.lower()


def stress_from(raw: Any, *, virial: bool, volume: float, where: str) -> FloatArray:
    """The symmetric stress [3, 3] from [3, 3], [9] or Voigt's [6]: xx, yy, zz, yz, xz, xy.

    A virial is −volume times the stress.  An asymmetry of up to 1 % of the largest element is averaged away.
    """
    try:
        values = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as cause:
        raise InputError(f"{where}: stress is not numbers; look at the file with a text editor") from cause
    if values.shape == (6,):
        stress = voigt_to_full(values)
    elif values.shape in ((9,), (3, 3)):
        stress = values.reshape(3, 3)
    else:
        raise InputError(f"{where}: stress of shape {values.shape}; give 3x3, 9 or Voigt 6 values")
    with np.errstate(all="ignore"):
        if np.abs(stress - stress.T).max() > ASYMMETRY * np.abs(stress).max():
            raise InputError(f"{where}: stress is not symmetric; check what its key holds")
        stress = 0.5 * (stress + stress.T)
        if virial:
            if not volume > 0:
                raise InputError(f"{where}: a virial needs a cell with a volume to become a stress; add the cell")
            stress = -stress / volume
    return np.asarray(stress)


def voigt_to_full(voigt: FloatArray) -> FloatArray:
    """[6] in the order xx, yy, zz, yz, xz, xy to the symmetric [3, 3]."""
    xx, yy, zz, yz, xz, xy = voigt
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], dtype=np.float64)


def full_to_voigt(full: FloatArray) -> FloatArray:
    """Symmetric [3, 3] to [6] in the order xx, yy, zz, yz, xz, xy."""
    return np.array([full[0, 0], full[1, 1], full[2, 2], full[1, 2], full[0, 2], full[0, 1]], dtype=np.float64)
