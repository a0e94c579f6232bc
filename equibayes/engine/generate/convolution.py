"""The convolution in its four versions: `collect` (value and tangent) and `give` (adjoint and its tangent)."""

from math import sqrt

import numpy as np

from equibayes.engine.generate.writing import Writer, collecting_groups, giving_groups, total, width
from equibayes.network.clebsch_gordan import coupling
from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import Irrep, LayerPlan, Path

ZERO = "tl.zeros([EB, CB], tl.float32)"


def collect(number: int, layer: LayerPlan, config: NetworkConfig) -> str:
    """Value (version 0) and tangent (version 2) of the convolution: every atom collects from its neighbours."""
    write = Writer()
    write(
        '@triton.jit(do_not_specialize=["nodes", "slots", "pairs", "graph_pairs", "graph_nodes"])',
        f"def collect_{number}(arena, harmonics, tangents, radial, sender, pair, degree, norm, nodes, slots, pairs, y, y_dot, out,",
        "    chain_arena, chain_radial, chain_tangents, graph_pairs, graph_nodes, DUAL: tl.constexpr, DOT: tl.constexpr,",
        "    CB: tl.constexpr, BLOCKS: tl.constexpr, EB: tl.constexpr):",
    )
    with write:
        _preamble(write, layer, config)
        for index, (target, paths) in enumerate(collecting_groups(layer)):
            with write.block(f"if group == {index} and c0 < {layer.inputs[paths[0].source]}:"):
                _collect_group(write, layer, config, target, paths)
    return write.text


def _collect_group(write: Writer, layer: LayerPlan, config: NetworkConfig, target: Irrep, paths: list[Path]) -> None:
    ks = range(target.dim)
    for p in range(len(paths)):
        write(*(f"s{p}_{k} = tl.zeros([EB, CB], tl.float32)" for k in ks))
    _look_up(write, "0")
    with write.block("for start in range(0, count, EB):"):
        _slot(write, "w = tl.load(norm + j)", sign="sign")
        sources = list(dict.fromkeys(path.source for path in paths))
        edges = sorted({path.edge for path in paths})
        _load_harmonics(write, config, edges)
        _radial_rows(write, layer)
        for p, path in enumerate(paths):
            write(f"r{p} = {_radial(layer, path, 'value')}")
        for source in sources:
            _load_features(write, layer, source, "x", "y", "j")
        with write.block("if DUAL:"):
            _load_tangents(write, config, edges)
            for p, path in enumerate(paths):
                write(f"q{p} = length_dot * {_radial(layer, path, 'slope')}")
            with write.block("if DOT:"):
                for source in sources:
                    _load_features(write, layer, source, "xd", "y_dot", "j")
            a, z = Couplings(write, "Y"), Couplings(write, "Z")
            for p, path in enumerate(paths):
                matrix, dotted = a.matrix(path), z.matrix(path)
                for k in ks:
                    plain = total(f"x{path.source}_{i}*{name}" for (i, k2), name in matrix.items() if k2 == k)
                    turned = total(f"x{path.source}_{i}*{name}" for (i, k2), name in dotted.items() if k2 == k)
                    if plain:
                        write(f"s{p}_{k} += q{p}*({plain})")
                    if turned:
                        write(f"s{p}_{k} += r{p}*({turned})")
            with write.block("if DOT:"):
                for p, path in enumerate(paths):
                    for k in ks:
                        plain = total(
                            f"xd{path.source}_{i}*{name}" for (i, k2), name in a.matrix(path).items() if k2 == k
                        )
                        if plain:
                            write(f"s{p}_{k} += r{p}*({plain})")
        with write.block("else:"):
            a = Couplings(write, "Y")
            for p, path in enumerate(paths):
                matrix = a.matrix(path)
                if path.source.dim < target.dim:  # whichever has fewer components is multiplied by the radial weight
                    write(*(f"p{i} = r{p}*x{path.source}_{i}" for i in range(path.source.dim)))
                    for (i, k), name in sorted(matrix.items(), key=lambda item: item[0][1]):
                        write(f"s{p}_{k} += p{i}*{name}")
                    continue
                for k in ks:
                    plain = total(f"x{path.source}_{i}*{name}" for (i, k2), name in matrix.items() if k2 == k)
                    if plain:
                        write(f"s{p}_{k} += r{p}*({plain})")
    write(f"mine = arena + out + {_first_collected(layer, target)}*N + n*{target.dim * layer.collected(target)} + cs")
    for p, path in enumerate(paths):
        for k in ks:
            write(f"tl.store(mine + {_collected(layer, path, k)}, tl.sum(s{p}_{k}, 0))")


def give(number: int, layer: LayerPlan, config: NetworkConfig) -> str:
    """Adjoint (version 1) and its tangent (version 3): every atom gathers what its neighbours' sums owe to it.

    The adjoint also gives ∂E/∂Y and ∂E/∂r of the edges, a row for each group (their sum is taken later, in a fixed order); its tangent
    gives R̃ and R̃' of each direction of a pair.
    """
    write = Writer()
    write(
        '@triton.jit(do_not_specialize=["nodes", "slots", "pairs", "graph_pairs", "graph_nodes"])',
        f"def give_{number}(arena, harmonics, tangents, radial, radial_out, edge_out, sender, pair, degree, norm, nodes, slots, pairs,",
        "    y, y_dot, g, g_tilde, out, chain_arena, chain_radial, chain_radial_out, chain_tangents, chain_edge, graph_pairs,",
        "    graph_nodes, DUAL: tl.constexpr, DOT: tl.constexpr, FIRST: tl.constexpr, GROUPS: tl.constexpr, CB: tl.constexpr,",
        "    BLOCKS: tl.constexpr, EB: tl.constexpr):",
    )
    with write:
        _preamble(write, layer, config)
        write("radial_out += chain*chain_radial_out", "edge_out += chain*chain_edge", "w = tl.load(norm + n)")
        for index, (source, paths) in enumerate(giving_groups(layer)):
            with write.block(f"if group == {index} and c0 < {layer.inputs[source]}:"):
                _give_group(write, layer, config, source, paths)
    return write.text


def _give_group(write: Writer, layer: LayerPlan, config: NetworkConfig, source: Irrep, paths: list[Path]) -> None:
    components = range(source.dim)
    edges = sorted({path.edge for path in paths})
    _load_features(write, layer, source, "x", "y", "n")
    write(*(f"b{i} = tl.zeros([EB, CB], tl.float32)" for i in components))
    with write.block("if DUAL and DOT:"):
        _load_features(write, layer, source, "xd", "y_dot", "n")
    if edges != [0]:
        with write.block("if not DUAL:"):
            # Σ_i C_imk x_i is the same for all neighbours
            for p, path in enumerate(paths):
                for (m, k), name in _own_side(path, p).items():
                    terms = (f"{value!r}*x{source}_{i}" for i, m2, k2, value in _nonzero(path) if (m2, k2) == (m, k))
                    write(f"{name} = {total(terms)}")
    _look_up(write, "0")
    with write.block("for start in range(0, count, EB):"):
        # the edge on which n gives is the opposite of its own slot
        _slot(write, sign="-sign")
        row = width(config.l_max)
        write(f"edge_row = edge_out + (2*q + 1 - code % 2)*GROUPS*{row} + (FIRST + job)*{row}")
        _load_harmonics(write, config, edges)
        _radial_rows(write, layer)
        for target in dict.fromkeys(path.target for path in paths):
            _collected_rows(write, layer, target, "g", "j")
        with write.block("if DUAL:"):
            _give_tangent(write, layer, config, source, paths)
        with write.block("else:"):
            _give_adjoint(write, layer, config, source, paths)
    channels = layer.inputs[source]
    write(f"mine = arena + out + {_first_feature(layer, source)}*N + n*{source.dim * channels} + cs")
    for i in components:
        write(f"tl.store(mine + {i * channels}, tl.sum(b{i}, 0))")


def _give_tangent(write: Writer, layer: LayerPlan, config: NetworkConfig, source: Irrep, paths: list[Path]) -> None:
    """Version 3 of one slot: what it adds to x̃, and R̃ and R̃' of its direction."""
    components = range(source.dim)
    edges = sorted({path.edge for path in paths})
    _load_tangents(write, config, edges)
    for target in dict.fromkeys(path.target for path in paths):
        _collected_rows(write, layer, target, "g_tilde", "j")
    write(f"value_row = radial_out + ((1 - code % 2)*2*pairs + q)*{columns(layer)} + c")
    write(f"slope_row = value_row + pairs*{columns(layer)}")
    a, z = Couplings(write, "Y"), Couplings(write, "Z")
    for path in paths:
        matrix, dotted = a.matrix(path), z.matrix(path)
        write(f"r = {_radial(layer, path, 'value')}", f"q1 = length_dot * {_radial(layer, path, 'slope')}")
        for k in range(path.target.dim):
            write(f"g{k} = tl.load(g_{path.target} + {_collected(layer, path, k)})")
            write(f"h{k} = tl.load(g_tilde_{path.target} + {_collected(layer, path, k)})")
        for i in components:
            u = total(f"{name}*g{k}" for (i2, k), name in matrix.items() if i2 == i) or ZERO
            v = [f"{name}*g{k}" for (i2, k), name in dotted.items() if i2 == i]
            v += [f"{name}*h{k}" for (i2, k), name in matrix.items() if i2 == i]
            write(f"u{i} = {u}", f"v{i} = {total(v) or ZERO}", f"b{i} += r*v{i} + q1*u{i}")
        write(f"value = {total(f'x{source}_{i}*v{i}' for i in components)}")
        with write.block("if DOT:"):
            write(f"value += {total(f'xd{source}_{i}*u{i}' for i in components)}")
        column = _column(layer, path)
        write(f"tl.store(value_row + {column}, value, mask=valid)")
        slope = total(f"x{source}_{i}*u{i}" for i in components)
        write(f"tl.store(slope_row + {column}, length_dot*({slope}), mask=valid)")


def _give_adjoint(write: Writer, layer: LayerPlan, config: NetworkConfig, source: Irrep, paths: list[Path]) -> None:
    """Version 1 of one slot: what it adds to x̄, and ∂E/∂Y and ∂E/∂r of its edge."""
    components = range(source.dim)
    edges = sorted({path.edge for path in paths})
    used = [m for edge in edges if edge for m in range(edge**2, (edge + 1) ** 2)]
    write(*(f"t{m} = tl.zeros([EB, CB], tl.float32)" for m in used))
    write("stretch = tl.zeros([EB, CB], tl.float32)")
    a = Couplings(write, "Y")
    for p, path in enumerate(paths):
        matrix = a.matrix(path)
        write(f"r = {_radial(layer, path, 'value')}")
        for k in range(path.target.dim):
            write(f"g{k} = tl.load(g_{path.target} + {_collected(layer, path, k)})")
        for i in components:
            u = total(f"{name}*g{k}" for (i2, k), name in matrix.items() if i2 == i) or ZERO
            write(f"u{i} = {u}", f"b{i} += r*u{i}")
        inner = total(f"x{source}_{i}*u{i}" for i in components)
        write(f"stretch += ({inner})*{_radial(layer, path, 'slope')}")
        if path.edge:
            write(*(f"g{k} = g{k}*r" for k in range(path.target.dim)))
            write(*(f"t{path.edge**2 + m} += {name}*g{k}" for (m, k), name in _own_side(path, p).items()))
    for m in used:
        factor = "w*direction" if int(sqrt(m)) % 2 else "w"
        write(f"tl.store(edge_row + {m}, tl.sum(t{m}, 1)[:, None]*{factor}, mask=valid)")
    write(f"tl.store(edge_row + {(config.l_max + 1) ** 2}, tl.sum(stretch, 1)[:, None], mask=valid)")


def _preamble(write: Writer, layer: LayerPlan, config: NetworkConfig) -> None:
    write(
        "n = tl.program_id(0).to(tl.int64)",
        "job = tl.program_id(1)",
        "chain = tl.program_id(2).to(tl.int64)",
        "group = job // BLOCKS",
        "c0 = (job % BLOCKS)*CB",
        "cs = c0 + tl.arange(0, CB)",
        "c = cs[None, :]",
        "N = nodes.to(tl.int64)",
        "arena += chain*chain_arena",
        "radial += chain*chain_radial",
        f"slope = radial + pairs.to(tl.int64)*{columns(layer)}",
        "tangents += chain*chain_tangents",
        f"harmonics += chain*graph_pairs*{(config.l_max + 1) ** 2}",
        "norm += chain*graph_nodes",
        "sender += chain*graph_nodes*slots + n*slots",
        "pair += chain*graph_nodes*slots + n*slots",
        "count = tl.load(degree + chain*graph_nodes + n)",
    )


def _slot(write: Writer, *more: str, sign: str) -> None:
    """What the EB slots of one turn of the loop point to."""
    write(
        "valid = start + tl.arange(0, EB)[:, None] < count",
        "j = next_j.to(tl.int64)",
        "code = next_code",
    )
    _look_up(write, "start + EB")
    write(
        "q = (code // 2).to(tl.int64)",
        "sign = 1.0 - 2.0*(code % 2)",
        f"direction = {sign}",
        *more,
    )


def _look_up(write: Writer, start: str) -> None:
    """Neighbours and pairs of EB slots, a turn ahead of their use, since all other loads wait for them.

    Slots beyond the last repeat the first; their radial weights are 0.
    """
    write(
        f"d = {start} + tl.arange(0, EB)[:, None]",
        "d = tl.where(d < count, d, 0)",
        "next_j = tl.load(sender + d)",
        "next_code = tl.load(pair + d)",
    )


def _load_harmonics(write: Writer, config: NetworkConfig, edges: list[int]) -> None:
    write("odd = w*direction", "Y0 = w", f"harmonics_row = harmonics + q*{(config.l_max + 1) ** 2}")
    for edge in edges:
        for m in range(edge**2, (edge + 1) ** 2) if edge else ():
            write(f"Y{m} = tl.load(harmonics_row + {m})*{'odd' if edge % 2 else 'w'}")


def _load_tangents(write: Writer, config: NetworkConfig, edges: list[int]) -> None:
    write(f"tangents_row = tangents + q*{width(config.l_max)}")
    write(f"length_dot = tl.load(tangents_row + {(config.l_max + 1) ** 2})")
    for edge in edges:
        for m in range(edge**2, (edge + 1) ** 2) if edge else ():
            write(f"Z{m} = tl.load(tangents_row + {m})*{'odd' if edge % 2 else 'w'}")


# Where something lies: [irrep][atom, component, channel].  The row of an atom is found once, and what is in it at constant distances,
# which cost no instruction.


def _load_features(write: Writer, layer: LayerPlan, source: Irrep, name: str, offset: str, atom: str) -> None:
    channels = layer.inputs[source]
    write(f"row = arena + {offset} + {_first_feature(layer, source)}*N + {atom}*{source.dim * channels} + c")
    write(*(f"{name}{source}_{i} = tl.load(row + {i * channels})" for i in range(source.dim)))


def _first_feature(layer: LayerPlan, source: Irrep) -> int:
    """Numbers of an atom before those of a source among the features after linear_1."""
    before = layer.sources[: list(layer.sources).index(source)]
    return sum(irrep.dim * layer.inputs[irrep] for irrep in before)


def _collected_rows(write: Writer, layer: LayerPlan, target: Irrep, offset: str, atom: str) -> None:
    size = target.dim * layer.collected(target)
    write(f"{offset}_{target} = arena + {offset} + {_first_collected(layer, target)}*N + {atom}*{size} + c")


def _first_collected(layer: LayerPlan, target: Irrep) -> int:
    before = list(layer.outputs)[: list(layer.outputs).index(target)]
    return sum(irrep.dim * layer.collected(irrep) for irrep in before)


def _collected(layer: LayerPlan, path: Path, k: int) -> int:
    """Component k of a path's sum in the row of an atom and target: [component, (path, channel)]."""
    before = layer.paths_to(path.target)[: layer.paths_to(path.target).index(path)]
    return k * layer.collected(path.target) + sum(layer.inputs[other.source] for other in before)


def _own_side(path: Path, p: int) -> dict[tuple[int, int], str]:
    """Names of Σ_i C_imk x_i by (m, k); a path whose Y is constant needs none."""
    return {(m, k): f"o{p}_{m}_{k}" for _, m, k, _ in _nonzero(path)} if path.edge else {}


def _radial_rows(write: Writer, layer: LayerPlan) -> None:
    write(f"radial_row = radial + q*{columns(layer)} + c", f"slope_of_radial = slope + q*{columns(layer)} + c")


def columns(layer: LayerPlan) -> int:
    """Radial weights of a pair."""
    return sum(layer.inputs[path.source] for path in layer.paths)


def _column(layer: LayerPlan, path: Path) -> int:
    return sum(layer.inputs[other.source] for other in layer.paths[: layer.paths.index(path)])


def _radial(layer: LayerPlan, path: Path, which: str) -> str:
    row = "radial_row" if which == "value" else "slope_of_radial"
    return f"tl.load({row} + {_column(layer, path)}, mask=valid, other=0.0)"


def _nonzero(path: Path) -> list[tuple[int, int, int, float]]:
    """(i, m, k, √(2·l3+1) C_imk) where it is not 0."""
    table = coupling(*path.triple) * sqrt(2 * path.target.l + 1)
    return [(int(i), int(m), int(k), float(table[i, m, k])) for i, m, k in np.argwhere(table)]


class Couplings:
    """A_ik = Σ_m C_imk Y_m as named scalars of a slot, written once for each triple."""

    def __init__(self, write: Writer, harmonic: str) -> None:
        self.write, self.harmonic = write, harmonic
        self.known: dict[tuple[int, int, int], dict[tuple[int, int], str]] = {}

    def matrix(self, path: Path) -> dict[tuple[int, int], str]:
        if self.harmonic == "Z" and path.edge == 0:
            return {}  # Y_0 is constant
        if path.triple not in self.known:
            terms: dict[tuple[int, int], list[str]] = {}
            for i, m, k, value in _nonzero(path):
                terms.setdefault((i, k), []).append(f"{value!r}*{self.harmonic}{path.edge**2 + m}")
            names = {}
            for (i, k), parts in terms.items():
                names[i, k] = f"{self.harmonic}_{''.join(map(str, path.triple))}_{i}{k}"
                self.write(f"{names[i, k]} = {total(parts)}")
            self.known[path.triple] = names
        return self.known[path.triple]
