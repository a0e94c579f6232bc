"""The convolution in its four versions: `collect` (value and tangent) and `give` (adjoint and its tangent)."""

from math import isqrt, sqrt

import numpy as np

from equibayes.engine.generate.dialect import Dialect
from equibayes.engine.generate.groups import collecting_groups, giving_groups
from equibayes.engine.generate.offsets import (
    collected,
    column,
    columns,
    first_collected,
    first_feature,
    harmonics,
    width,
)
from equibayes.engine.generate.pairs import total
from equibayes.network.clebsch_gordan import coupling
from equibayes.network.irreps import Irrep, LayerPlan, Path

Matrix = dict[tuple[int, int], str]  # names of the entries that are not 0


def collect(d: Dialect, number: int, layer: LayerPlan) -> None:
    """Value (version 0) and tangent (version 2) of the convolution: every atom collects from its neighbours."""
    with d.kernel("collect", number, layer):
        for index, (target, paths) in enumerate(collecting_groups(layer)):
            with d.group(index, layer.inputs[paths[0].source]):
                _collect_group(d, layer, target, paths)


def _collect_group(d: Dialect, layer: LayerPlan, target: Irrep, paths: list[Path]) -> None:
    ks = range(target.dim)
    d.note(f"S of {target}, from " + ", ".join(f"{path.source} ⊗ Y{path.edge}" for path in paths))
    for p in range(len(paths)):
        _zero(d, *(f"s{p}_{k}" for k in ks))
    with d.slots("sign"):
        d.scalar("w", d.load("norm + j"))
        _load_harmonics(d, paths)
        _find_radial(d, layer)
        for p, path in enumerate(paths):
            d.let(f"r{p}", _radial(d, layer, path))
        sources = list(dict.fromkeys(path.source for path in paths))
        for source in sources:
            _load_features(d, layer, source, "x", "y", "j")
        with d.when("DUAL"):
            _load_tangents(d, paths)
            for p, path in enumerate(paths):
                d.let(f"q{p}", f"length_dot * {_slope(d, layer, path)}")
            with d.when("DOT"):
                for source in sources:
                    _load_features(d, layer, source, "xd", "y_dot", "j")
            _collect_tangent(d, paths)
        with d.otherwise():
            _collect_value(d, paths)
    row = target.dim * layer.collected(target)
    d.let("mine", f"arena + out + {first_collected(layer, target)}*N + n*{row} + cs")
    for p, path in enumerate(paths):
        for k in ks:
            d.store_sum_over_slots(f"mine + {collected(layer, path, k)}", f"s{p}_{k}")


def _collect_value(d: Dialect, paths: list[Path]) -> None:
    """S_k += R Σ_i A_ik x_i"""
    d.note("S_k += R Σ_i A_ik x_i,   A_ik = Σ_m C_imk Y_m")
    a = Couplings(d, "Y")
    for p, path in enumerate(paths):
        matrix = a.matrix(path)
        if path.source.dim < path.target.dim:  # whichever has fewer components is multiplied by the radial weight
            for i in range(path.source.dim):
                d.let(f"p{i}", f"r{p}*x{path.source}_{i}")
            for (i, k), name in sorted(matrix.items(), key=lambda item: item[0][1]):
                d.add(f"s{p}_{k}", f"p{i}*{name}")
            continue
        for k in range(path.target.dim):
            _add_product(d, f"s{p}_{k}", f"r{p}", _to_target(matrix, f"x{path.source}", k))


def _collect_tangent(d: Dialect, paths: list[Path]) -> None:
    """Ṡ_k += ṙ R' Σ_i A_ik x_i + R Σ_i Ȧ_ik x_i, and R Σ_i A_ik ẋ_i where the features move with the atoms."""
    d.note("Ṡ_k += ṙ R' Σ_i A_ik x_i + R Σ_i Ȧ_ik x_i")
    a, z = Couplings(d, "Y"), Couplings(d, "Z")
    for p, path in enumerate(paths):
        matrix, dotted = a.matrix(path), z.matrix(path)
        for k in range(path.target.dim):
            _add_product(d, f"s{p}_{k}", f"q{p}", _to_target(matrix, f"x{path.source}", k))
            _add_product(d, f"s{p}_{k}", f"r{p}", _to_target(dotted, f"x{path.source}", k))
    with d.when("DOT"):
        d.note("Ṡ_k += R Σ_i A_ik ẋ_i")
        for p, path in enumerate(paths):
            for k in range(path.target.dim):
                _add_product(d, f"s{p}_{k}", f"r{p}", _to_target(a.matrix(path), f"xd{path.source}", k))


def give(d: Dialect, number: int, layer: LayerPlan) -> None:
    """Adjoint (version 1) and its tangent (version 3): every atom gathers what the sums of its neighbours owe to it.

    The adjoint also gives ∂E/∂Y and ∂E/∂r of the edges, a row for each group (they are summed later, in a fixed
    order); its tangent gives R̃ and R̃' of each direction of a pair.
    """
    with d.kernel("give", number, layer):
        for index, (source, paths) in enumerate(giving_groups(layer)):
            with d.group(index, layer.inputs[source]):
                _give_group(d, layer, source, paths)


def _give_group(d: Dialect, layer: LayerPlan, source: Irrep, paths: list[Path]) -> None:
    d.note(f"adjoint of {source}, to " + ", ".join(f"{path.target} over Y{path.edge}" for path in paths))
    _load_features(d, layer, source, "x", "y", "n")
    _zero(d, *(f"b{i}" for i in range(source.dim)))
    with d.when("DUAL and DOT"):
        _load_features(d, layer, source, "xd", "y_dot", "n")
    if any(path.edge for path in paths):
        with d.when("not DUAL"):
            # the same for all neighbours
            d.note("o_mk = Σ_i C_imk x_i")
            for p, path in enumerate(paths):
                for (m, k), name in _own_side(path, p).items():
                    terms = (
                        f"{d.number(value)}*x{source}_{i}" for i, m2, k2, value in _nonzero(path) if (m2, k2) == (m, k)
                    )
                    d.let(name, total(terms))
    # the edge on which n gives is the opposite of its own slot
    with d.slots("-sign"):
        d.find_edge_row()
        _load_harmonics(d, paths)
        _find_radial(d, layer)
        _find_collected(d, layer, paths, "g")
        with d.when("DUAL"):
            _give_tangent(d, layer, source, paths)
        with d.otherwise():
            _give_adjoint(d, layer, source, paths)
    channels = layer.inputs[source]
    d.let("mine", f"arena + out + {first_feature(layer, source)}*N + n*{source.dim * channels} + cs")
    for i in range(source.dim):
        d.store_sum_over_slots(f"mine + {i * channels}", f"b{i}")


def _give_tangent(d: Dialect, layer: LayerPlan, source: Irrep, paths: list[Path]) -> None:
    """Version 3 of one slot: what it adds to x̃, and R̃ and R̃' of its direction."""
    components = range(source.dim)
    _load_tangents(d, paths)
    _find_collected(d, layer, paths, "g_tilde")
    d.let("value_row", f"radial_out + ((1 - code % 2)*2*pairs + q)*{columns(layer)} + c")
    d.let("slope_row", f"value_row + pairs*{columns(layer)}")
    a, z = Couplings(d, "Y"), Couplings(d, "Z")
    for path in paths:
        matrix, dotted = a.matrix(path), z.matrix(path)
        d.note(f"{path.source} ⊗ Y{path.edge} → {path.target}:  u_i = Σ_k A_ik S̄_k,  v_i = Σ_k Ȧ_ik S̄_k + A_ik S̃_k")
        d.note("x̃_i += R v_i + ṙ R' u_i,   R̃ = Σ_i x_i v_i + ẋ_i u_i,   R̃' = ṙ Σ_i x_i u_i")
        d.let("r", _radial(d, layer, path))
        d.let("q1", f"length_dot * {_slope(d, layer, path)}")
        for k in range(path.target.dim):
            d.let(f"g{k}", d.channels(f"g_{path.target} + {collected(layer, path, k)}"))
            d.let(f"h{k}", d.channels(f"g_tilde_{path.target} + {collected(layer, path, k)}"))
        for i in components:
            d.let(f"u{i}", total(_to_source(matrix, "g", i)) or d.zeros())
            d.let(f"v{i}", total(_to_source(dotted, "g", i) + _to_source(matrix, "h", i)) or d.zeros())
            d.add(f"b{i}", f"r*v{i} + q1*u{i}")
        d.let("value", total(f"x{source}_{i}*v{i}" for i in components))
        with d.when("DOT"):
            d.add("value", total(f"xd{source}_{i}*u{i}" for i in components))
        d.store(f"value_row + {column(layer, path)}", "value")
        slope = total(f"x{source}_{i}*u{i}" for i in components)
        d.store(f"slope_row + {column(layer, path)}", f"length_dot*({slope})")


def _give_adjoint(d: Dialect, layer: LayerPlan, source: Irrep, paths: list[Path]) -> None:
    """Version 1 of one slot: what it adds to x̄, and ∂E/∂Y and ∂E/∂r of its edge."""
    components = range(source.dim)
    _zero(d, *(f"t{m}" for m in _used_harmonics(paths)), "stretch")
    a = Couplings(d, "Y")
    for p, path in enumerate(paths):
        matrix = a.matrix(path)
        d.note(f"{path.source} ⊗ Y{path.edge} → {path.target}:  u_i = Σ_k A_ik S̄_k,  x̄_i += R u_i")
        d.note("∂E/∂r = Σ R' x_i u_i,   ∂E/∂Y_m = Σ_k o_mk R S̄_k")
        d.let("r", _radial(d, layer, path))
        for k in range(path.target.dim):
            d.let(f"g{k}", d.channels(f"g_{path.target} + {collected(layer, path, k)}"))
        for i in components:
            d.let(f"u{i}", total(_to_source(matrix, "g", i)) or d.zeros())
            d.add(f"b{i}", f"r*u{i}")
        inner = total(f"x{source}_{i}*u{i}" for i in components)
        d.add("stretch", f"({inner})*{_slope(d, layer, path)}")
        if path.edge:
            for k in range(path.target.dim):
                d.let(f"g{k}", f"g{k}*r")
            for (m, k), name in _own_side(path, p).items():
                d.add(f"t{path.edge**2 + m}", f"{name}*g{k}")
    sums = {m: (f"t{m}", "w*direction" if isqrt(m) % 2 else "w") for m in _used_harmonics(paths)}
    d.store_edge_sums({**sums, harmonics(d.config.l_max): ("stretch", None)})


# --- what is read ---


def _load_harmonics(d: Dialect, paths: list[Path]) -> None:
    """Y_m times the norm w, as the collecting atom sees them: Y_l(−u) = (−1)^l Y_l(u)."""
    d.scalar("odd", "w*direction")
    d.scalar("Y0", "w")
    d.scalar("harmonics_row", f"harmonics + q*{harmonics(d.config.l_max)}")
    for m in _used_harmonics(paths):
        d.scalar(f"Y{m}", f"{d.load(f'harmonics_row + {m}')}*{_parity(m)}")


def _load_tangents(d: Dialect, paths: list[Path]) -> None:
    """ṙ, and Z_m: the tangents of Y_m."""
    d.scalar("tangents_row", f"tangents + q*{width(d.config.l_max)}")
    d.scalar("length_dot", d.load(f"tangents_row + {harmonics(d.config.l_max)}"))
    for m in _used_harmonics(paths):
        d.scalar(f"Z{m}", f"{d.load(f'tangents_row + {m}')}*{_parity(m)}")


def _used_harmonics(paths: list[Path]) -> list[int]:
    """Those that are not constant, of all l on these paths."""
    return [m for edge in sorted({path.edge for path in paths} - {0}) for m in range(edge**2, (edge + 1) ** 2)]


def _parity(m: int) -> str:
    return "odd" if isqrt(m) % 2 else "w"


def _load_features(d: Dialect, layer: LayerPlan, source: Irrep, name: str, offset: str, atom: str) -> None:
    channels = layer.inputs[source]
    d.let("row", f"arena + {offset} + {first_feature(layer, source)}*N + {atom}*{source.dim * channels} + c")
    for i in range(source.dim):
        d.let(f"{name}{source}_{i}", d.channels(f"row + {i * channels}"))


def _find_collected(d: Dialect, layer: LayerPlan, paths: list[Path], offset: str) -> None:
    for target in dict.fromkeys(path.target for path in paths):
        row = target.dim * layer.collected(target)
        d.let(f"{offset}_{target}", f"arena + {offset} + {first_collected(layer, target)}*N + j*{row} + c")


def _find_radial(d: Dialect, layer: LayerPlan) -> None:
    d.let("radial_row", f"radial + q*{columns(layer)} + c")
    d.let("slope_of_radial", f"slope + q*{columns(layer)} + c")


def _radial(d: Dialect, layer: LayerPlan, path: Path) -> str:
    return d.channels(f"radial_row + {column(layer, path)}", other=0.0)


def _slope(d: Dialect, layer: LayerPlan, path: Path) -> str:
    return d.channels(f"slope_of_radial + {column(layer, path)}", other=0.0)


# --- couplings ---


def _zero(d: Dialect, *names: str) -> None:
    for name in names:
        d.let(name, d.zeros())


def _add_product(d: Dialect, name: str, factor: str, terms: list[str]) -> None:
    if terms:
        d.add(name, f"{factor}*({total(terms)})")


def _to_target(matrix: Matrix, features: str, k: int) -> list[str]:
    """Terms of Σ_i A_ik x_i."""
    return [f"{features}_{i}*{name}" for (i, k2), name in matrix.items() if k2 == k]


def _to_source(matrix: Matrix, sums: str, i: int) -> list[str]:
    """Terms of Σ_k A_ik S_k."""
    return [f"{name}*{sums}{k}" for (i2, k), name in matrix.items() if i2 == i]


def _own_side(path: Path, p: int) -> Matrix:
    """Names of Σ_i C_imk x_i by (m, k); a path whose Y is constant needs none."""
    return {(m, k): f"o{p}_{m}_{k}" for _, m, k, _ in _nonzero(path)} if path.edge else {}


def _nonzero(path: Path) -> list[tuple[int, int, int, float]]:
    """(i, m, k, √(2·l3+1) C_imk) where it is not 0."""
    table = coupling(*path.triple) * sqrt(2 * path.target.l + 1)
    return [(int(i), int(m), int(k), float(table[i, m, k])) for i, m, k in np.argwhere(table)]


class Couplings:
    """A_ik = Σ_m C_imk Y_m as named scalars of a slot, written once for each triple."""

    def __init__(self, d: Dialect, harmonic: str) -> None:
        self.d, self.harmonic = d, harmonic
        self.known: dict[tuple[int, int, int], Matrix] = {}

    def matrix(self, path: Path) -> Matrix:
        if self.harmonic == "Z" and path.edge == 0:
            return {}  # Y_0 is constant
        if path.triple not in self.known:
            terms: dict[tuple[int, int], list[str]] = {}
            for i, m, k, value in _nonzero(path):
                terms.setdefault((i, k), []).append(f"{self.d.number(value)}*{self.harmonic}{path.edge**2 + m}")
            names = {}
            for (i, k), parts in terms.items():
                names[i, k] = f"{self.harmonic}_{''.join(map(str, path.triple))}_{i}{k}"
                self.d.coupling(names[i, k], total(parts))
            self.known[path.triple] = names
        return self.known[path.triple]
