"""The standard normal distribution on arrays.  numpy has no error function; torch has, exact to float64."""

import math
from statistics import NormalDist

import numpy as np
import torch


def cdf(x: np.ndarray) -> np.ndarray:
    """Φ(x), elementwise, float64; the lower tail keeps all its digits, which torch.special.ndtr loses below −8."""
    scaled = np.asarray(x, dtype=np.float64) * (-1 / math.sqrt(2))
    return 0.5 * torch.special.erfc(torch.from_numpy(scaled)).numpy()


def pdf(x: np.ndarray) -> np.ndarray:
    """φ(x), elementwise, float64."""
    return np.exp(-0.5 * np.square(np.asarray(x, dtype=np.float64))) / math.sqrt(2 * math.pi)


def central_width(level: float) -> float:
    """Half the width of the central interval that holds the share `level`: 0.6827 gives 1, 0.95 gives 1.96."""
    if not 0 < level < 1:
        raise ValueError(f"level {level}: a share between 0 and 1 is needed")
    return NormalDist().inv_cdf(0.5 + level / 2)


def chi_squared_3(x: np.ndarray) -> np.ndarray:
    """Probability that the squared length of three standard normal numbers is below x."""
    x = np.asarray(x, dtype=np.float64)
    return 2 * cdf(np.sqrt(x)) - 1 - np.sqrt(2 * x / math.pi) * np.exp(-x / 2)
