"""The convolution in its four versions: `collect` (value and tangent) and `give` (adjoint and its tangent)."""

from math import sqrt

import numpy as np

from equibayes.network.clebsch_gordan import coupling
from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import Irrep, LayerPlan, Path
from equibayes.network.triton.generate.writing import Writer, collecting_groups, giving_groups, total, width

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
    with write.block("for start in range(0, count, EB):"):
        _slot(write, "w = tl.load(norm + j)", sign="sign")
        sources = list(dict.fromkeys(path.source for path in paths))
        edges = sorted({path.edge for path in paths})
        _load_harmonics(write, config, edges)
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
                for k in ks:
                    plain = total(f"x{path.source}_{i}*{name}" for (i, k2), name in a.matrix(path).items() if k2 == k)
                    if plain:
                        write(f"s{p}_{k} += r{p}*({plain})")
    for p, path in enumerate(paths):
        for k in ks:
            write(f"tl.store(arena + out + {_collected(layer, path, k, 'n')} + cs, tl.sum(s{p}_{k}, 0))")


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
    with write.block("for start in range(0, count, EB):"):
        # the edge on which n gives is the opposite of its own slot
        _slot(write, sign="-sign")
        write(f"row = (2*q + 1 - code % 2)*GROUPS*{width(config.l_max)} + (FIRST + job)*{width(config.l_max)}")
        _load_harmonics(write, config, edges)
        with write.block("if DUAL:"):
            _load_tangents(write, config, edges)
            write(f"target_row = ((1 - code % 2)*2*pairs + q)*{columns(layer)} + c")
            a, z = Couplings(write, "Y"), Couplings(write, "Z")
            for path in paths:
                matrix, dotted = a.matrix(path), z.matrix(path)
                write(f"r = {_radial(layer, path, 'value')}", f"q1 = length_dot * {_radial(layer, path, 'slope')}")
                for k in range(path.target.dim):
                    write(f"g{k} = tl.load(arena + g + {_collected(layer, path, k, 'j')} + c)")
                    write(f"h{k} = tl.load(arena + g_tilde + {_collected(layer, path, k, 'j')} + c)")
                for i in components:
                    u = total(f"{name}*g{k}" for (i2, k), name in matrix.items() if i2 == i) or ZERO
                    v = [f"{name}*g{k}" for (i2, k), name in dotted.items() if i2 == i]
                    v += [f"{name}*h{k}" for (i2, k), name in matrix.items() if i2 == i]
                    write(f"u{i} = {u}", f"v{i} = {total(v) or ZERO}", f"b{i} += r*v{i} + q1*u{i}")
                write(f"value = {total(f'x{source}_{i}*v{i}' for i in components)}")
                with write.block("if DOT:"):
                    write(f"value += {total(f'xd{source}_{i}*u{i}' for i in components)}")
                column = _column(layer, path)
                write(f"tl.store(radial_out + target_row + {column}, value, mask=valid)")
                slope = total(f"x{source}_{i}*u{i}" for i in components)
                write(
                    f"tl.store(radial_out + target_row + pairs*{columns(layer)} + {column}, length_dot*({slope}), mask=valid)"
                )
        with write.block("else:"):
            used = [m for edge in edges if edge for m in range(edge**2, (edge + 1) ** 2)]
            write(*(f"t{m} = tl.zeros([EB, CB], tl.float32)" for m in used))
            write("stretch = tl.zeros([EB, CB], tl.float32)")
            a = Couplings(write, "Y")
            for path in paths:
                matrix = a.matrix(path)
                write(f"r = {_radial(layer, path, 'value')}")
                for k in range(path.target.dim):
                    write(f"g{k} = tl.load(arena + g + {_collected(layer, path, k, 'j')} + c)")
                for i in components:
                    u = total(f"{name}*g{k}" for (i2, k), name in matrix.items() if i2 == i) or ZERO
                    write(f"u{i} = {u}", f"b{i} += r*u{i}")
                inner = total(f"x{source}_{i}*u{i}" for i in components)
                write(f"stretch += ({inner})*{_radial(layer, path, 'slope')}")
                if path.edge:
                    write(*(f"g{k} = g{k}*r" for k in range(path.target.dim)))
                    by_m: dict[int, list[str]] = {}
                    for i, m, k, value in _nonzero(path):
                        by_m.setdefault(m, []).append(f"{value!r}*(x{source}_{i}*g{k})")
                    write(*(f"t{path.edge**2 + m} += {total(terms)}" for m, terms in by_m.items()))
            for m in used:
                factor = "w*direction" if int(sqrt(m)) % 2 else "w"
                write(f"tl.store(edge_out + row + {m}, tl.sum(t{m}, 1)[:, None]*{factor}, mask=valid)")
            write(f"tl.store(edge_out + row + {(config.l_max + 1) ** 2}, tl.sum(stretch, 1)[:, None], mask=valid)")
    for i in components:
        write(f"tl.store(arena + out + {_feature(layer, source, i, 'n')} + cs, tl.sum(b{i}, 0))")


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
    """What the EB slots of one turn of the loop point to; slots beyond the last repeat the first with radial weight 0."""
    write(
        "d = start + tl.arange(0, EB)[:, None]",
        "valid = d < count",
        "d = tl.where(valid, d, 0)",
        "j = tl.load(sender + d).to(tl.int64)",
        "code = tl.load(pair + d)",
        "q = (code // 2).to(tl.int64)",
        "sign = 1.0 - 2.0*(code % 2)",
        f"direction = {sign}",
        *more,
    )


def _load_harmonics(write: Writer, config: NetworkConfig, edges: list[int]) -> None:
    total = (config.l_max + 1) ** 2
    write("odd = w*direction", "Y0 = w")
    for edge in edges:
        for m in range(edge**2, (edge + 1) ** 2) if edge else ():
            write(f"Y{m} = tl.load(harmonics + q*{total} + {m})*{'odd' if edge % 2 else 'w'}")


def _load_tangents(write: Writer, config: NetworkConfig, edges: list[int]) -> None:
    row = f"tangents + q*{width(config.l_max)}"
    write(f"length_dot = tl.load({row} + {(config.l_max + 1) ** 2})")
    for edge in edges:
        for m in range(edge**2, (edge + 1) ** 2) if edge else ():
            write(f"Z{m} = tl.load({row} + {m})*{'odd' if edge % 2 else 'w'}")


def _load_features(write: Writer, layer: LayerPlan, source: Irrep, name: str, offset: str, atom: str) -> None:
    for i in range(source.dim):
        write(f"{name}{source}_{i} = tl.load(arena + {offset} + {_feature(layer, source, i, atom)} + c)")


def _feature(layer: LayerPlan, source: Irrep, i: int, atom: str) -> str:
    """Where component i of a source lies among the features after linear_1: [irrep][component, atom, channel]."""
    before = 0
    for irrep in layer.sources:
        if irrep == source:
            break
        before += irrep.dim * layer.inputs[irrep]
    channels = layer.inputs[source]
    return f"{before + i * channels}*N + {atom}*{channels}"


def _collected(layer: LayerPlan, path: Path, k: int, atom: str) -> str:
    """Where component k of a path's sum lies: [target][component, atom, (path, channel)]."""
    before = 0
    for irrep in layer.outputs:
        if irrep == path.target:
            break
        before += irrep.dim * layer.collected(irrep)
    total, column = layer.collected(path.target), 0
    for other in layer.paths_to(path.target):
        if other == path:
            break
        column += layer.inputs[other.source]
    return f"{before + k * total}*N + {atom}*{total} + {column}"


def columns(layer: LayerPlan) -> int:
    """Radial weights of a pair."""
    return sum(layer.inputs[path.source] for path in layer.paths)


def _column(layer: LayerPlan, path: Path) -> int:
    return sum(layer.inputs[other.source] for other in layer.paths[: layer.paths.index(path)])


def _radial(layer: LayerPlan, path: Path, which: str) -> str:
    base = "radial" if which == "value" else "slope"
    return f"tl.load({base} + q*{columns(layer)} + {_column(layer, path)} + c, mask=valid, other=0.0)"


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
