"""Atomic numbers and symbols, without ASE: a compute node need not have it."""

from collections.abc import Iterable

import numpy as np

from equibayes.errors import InputError

_TABLE = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y "
    "Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re "
    "Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds "
    "Rg Cn Nh Fl Mc Lv Ts Og "
)
_SYMBOLS = _TABLE.split()
_NUMBERS = {name: z for z, name in enumerate(_SYMBOLS, start=1)}


def symbol(number: int) -> str:
    """The symbol of an atomic number: 6 is C."""
    if not 1 <= number <= len(_SYMBOLS):
        raise InputError(f"{number} is not an atomic number; they range from 1 to {len(_SYMBOLS)}")
    return _SYMBOLS[number - 1]


def atomic_number(name: str) -> int:
    """The atomic number of a symbol: C is 6."""
    if name not in _NUMBERS:
        raise InputError(f"'{name}' is not a chemical symbol; write it as in C, H, Cl")
    return _NUMBERS[name]


def formula(numbers: Iterable[int]) -> str:
    """Hill's formula: carbon, hydrogen, then the rest by letter; C2H6O."""
    species, counts = np.unique(np.asarray(list(numbers)), return_counts=True)
    named = {symbol(int(z)): int(n) for z, n in zip(species, counts)}
    first = ("C", "H") if "C" in named else ()
    order = sorted(named, key=lambda name: (first.index(name) if name in first else len(first), name))
    return "".join(name + (str(named[name]) if named[name] > 1 else "") for name in order)
