"""Geometry of pairs: lengths, directions, harmonics, and their derivatives in both directions."""

from collections.abc import Iterable

from equibayes.engine.generate.dialect import Dialect
from equibayes.engine.generate.offsets import harmonics, width
from equibayes.network.config import NetworkConfig
from equibayes.network.harmonics import HARMONICS


def total(terms: Iterable[str]) -> str:
    return " + ".join(terms)


def geometry(d: Dialect) -> None:
    """Length, direction and harmonics of every pair: unit [pairs, 4] = (u, r) and harmonics [pairs, M].

    MOVING: first the vector, in the precision of the positions; `order` says which atom a row holds.
    """
    with d.kernel("geometry"):
        with d.when("MOVING"):
            for name, end in (("first", "ends + p*2"), ("second", "ends + p*2 + 1")):
                atom = d.load(f"order + {d.load(end, other=0)}")
                d.let(name, f"positions + {atom}*3")
            for i, axis in enumerate("xyz"):
                d.let(axis, f"{d.load(f'second + {i}')} - {d.load(f'first + {i}')}")
                d.add(axis, d.load(f"shift + p*3 + {i}", other=1.0))
                d.store(f"vector + p*3 + {i}", axis)
        with d.otherwise():
            _load_each(d, "xyz", "vector + p*3", other=1.0)
        d.let("r", d.sqrt("x*x + y*y + z*z"))
        for axis in "xyz":
            d.let(axis, f"{axis}/r")
        d.note("direction and length, then the harmonics as polynomials of the direction")
        for i, name in enumerate("xyzr"):
            d.store(f"unit + p*4 + {i}", name)
        for m, terms in enumerate(_harmonics(d.config)):
            d.store(f"harmonics + p*{harmonics(d.config.l_max)} + {m}", d.filled(_polynomial(d, terms), like="x"))


def pair_gradient(d: Dialect) -> None:
    """∂E/∂vector of every pair from the rows that the adjoint passes left, summed in a fixed order:

    a = Σ_m ∂E/∂Y_m ∂Y_m/∂u,    ∂E/∂vector = (a − (a·u) u)/r + ∂E/∂r u
    """
    count = harmonics(d.config.l_max)
    with d.kernel("pair_gradient"):
        d.sum_edges()
        _load_each(d, "xyzr", "unit + p*4", other=1.0)
        for m in range(1, count + 1):
            d.let(f"b{m}", d.edge_sum(m))
        for axis in "xyz":
            parts = [(m, _partial(terms, axis)) for m, terms in enumerate(_harmonics(d.config))]
            text = total(f"b{m}*({_polynomial(d, terms)})" for m, terms in parts if terms and m)
            d.let(f"a{axis}", text or "x*0")
        d.note("∂E/∂vector = (a − (a·u) u)/r + ∂E/∂r u,   a = Σ_m ∂E/∂Y_m ∂Y_m/∂u")
        d.let("along", "ax*x + ay*y + az*z")
        d.find_row("out", 3)
        for i, axis in enumerate("xyz"):
            d.store(f"out + {i}", f"(a{axis} - along*{axis})/r + b{count}*{axis}")


def pair_tangent(d: Dialect) -> None:
    """Ẏ and ṙ of every pair when atoms move along v: [pairs, width], ṙ behind the harmonics.

    v_pair = v_j − v_i,   ṙ = u·v_pair,   u̇ = (v_pair − ṙ u)/r,   Ẏ_m = ∂Y_m/∂u · u̇

    Where stress is learned, structures are strained by ε [structures, 3, 3] as well: v_pair = v_j − v_i + ε r u.
    """
    with d.kernel("pair_tangent"):
        d.let("first", d.load("ends + p*2", other=0))
        d.let("second", d.load("ends + p*2 + 1", other=0))
        _load_each(d, "xyzr", "unit + p*4", other=1.0)
        for i, axis in enumerate("xyz"):
            here, there = (d.load(f"direction + {atom}*3 + {i}", other=0.0) for atom in ("first", "second"))
            d.let(f"d{axis}", f"{there} - {here}")
        if d.config.stress_head:
            d.note("v_pair += ε r u")
            d.let("strain_row", f"strain + {d.load('structure + first', other=0)}*9")
            for i, axis in enumerate("xyz"):
                along = total(
                    f"{d.load(f'strain_row + {3 * i + k}', other=0.0)}*{other}" for k, other in enumerate("xyz")
                )
                d.add(f"d{axis}", f"r*({along})")
        d.let("length_dot", "dx*x + dy*y + dz*z")
        for axis in "xyz":
            d.let(f"d{axis}", f"(d{axis} - length_dot*{axis})/r")
        d.find_row("out", width(d.config.l_max))
        d.note("Ẏ_m = ∂Y_m/∂u · u̇, and ṙ behind them")
        for m, terms in enumerate(_harmonics(d.config)):
            parts = [(axis, _partial(terms, axis)) for axis in "xyz"]
            text = total(f"d{axis}*({_polynomial(d, partial)})" for axis, partial in parts if partial)
            d.store(f"out + {m}", text or "x*0")
        d.store(f"out + {harmonics(d.config.l_max)}", "length_dot")


def _load_each(d: Dialect, names: str, row: str, other: float) -> None:
    for i, name in enumerate(names):
        d.let(name, d.load(f"{row} + {i}", other))


def _harmonics(config: NetworkConfig) -> list[dict[str, float]]:
    return [terms for l in range(config.l_max + 1) for terms in HARMONICS[l]]


def _polynomial(d: Dialect, terms: dict[str, float]) -> str:
    parts = (d.number(value) + "".join(f"*{axis}" for axis in monomial) for monomial, value in terms.items())
    return total(parts) or d.number(0.0)


def _partial(terms: dict[str, float], axis: str) -> dict[str, float]:
    """∂/∂axis of a polynomial in the components of the unit vector."""
    result: dict[str, float] = {}
    for monomial, value in terms.items():
        if axis in monomial:
            lower = monomial.replace(axis, "", 1)
            result[lower] = result.get(lower, 0.0) + value * monomial.count(axis)
    return result
