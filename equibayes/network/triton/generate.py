"""Writes the Triton kernels of one network: everything whose shape follows from its irreps.

No derivative is taken by machine.  A step of the sampler needs ∂L/∂θ of a loss that contains forces, and this is four passes over the
same operations, each written out by hand.  For every quantity x of the network there are four *versions*:

    0  x     the value
    1  x̄     ∂E/∂x, the adjoint: its end is the forces
    2  ẋ     the derivative of x along a direction v of the positions, v = −∂L/∂F:  Ė = Σ ∂L/∂F · F
    3  x̃     ∂(Ė + L_rest)/∂x, where L_rest is what the loss knows of x besides the forces (energies, deviations)

Since Ė depends on ẋ just as E depends on x, ∂Ė/∂ẋ = x̄, and version 1 serves twice.  A weight W of a linear y = x W has the gradient
xᵀ ỹ + ẋᵀ ȳ.  The convolution is linear in each of x, Y and R, so all its passes are partial evaluations of one form:

    S_p[n, k]  = Σ_slots Σ_i A_ik x_i[j] R_p,   A_ik = Σ_m C_imk Y_m               value, n collects from its neighbours j
    Ṡ_p[n, k]  = Σ_slots Σ_i (Ȧ_ik x_i + A_ik ẋ_i) R_p + A_ik x_i ṙ R'_p           tangent
    x̄_i[n]     = Σ_slots Σ_pk A_ik R_p S̄_p,k[j]                                    adjoint, n gives to its neighbours j
    x̃_i[n]     = Σ_slots Σ_pk A_ik R_p S̃_p,k[j] + (Ȧ_ik R_p + A_ik ṙ R'_p) S̄_p,k[j]
    ∂E/∂Y_m    = Σ_pck C_imk x_i R_p S̄_p,k,      ∂E/∂r = Σ_pc R'_p Σ_ik A_ik x_i S̄_p,k
    R̃_p        = Σ_ik A_ik x_i S̃_p,k + (Ȧ_ik x_i + A_ik ẋ_i) S̄_p,k,   R̃'_p = ṙ Σ_ik A_ik x_i S̄_p,k

Radial weights R and R' = dR/dr belong to a pair of atoms, not to a direction, and are read by both of its atoms.  A slot of atom n
names its neighbour j, the pair and the sign of the pair's vector seen from n; the edge on which n *gives* is the opposite of the edge
on which it collects, so the adjoint passes walk the same slots with the other sign, and Y_l(−u) = (−1)^l Y_l(u).
"""

from collections.abc import Iterable
from math import sqrt

import numpy as np

from equibayes.network.clebsch_gordan import coupling
from equibayes.network.config import NetworkConfig
from equibayes.network.harmonics import HARMONICS
from equibayes.network.interaction import SILU_NORM, TANH_NORM
from equibayes.network.irreps import SCALAR, Irrep, LayerPlan, Path

# accumulators of a receiving program; more would not fit its registers
MOST_ACCUMULATORS = 32
ZERO = "tl.zeros([EB, CB], tl.float32)"
HEADER = (
    '"""Generated from the irreps of a network; see equibayes/network/triton/generate.py."""\n\n'
    "import triton\nimport triton.language as tl\n"
)


def kernels(config: NetworkConfig, layers: list[LayerPlan]) -> str:
    """The source of a module with all generated kernels."""
    parts = [HEADER, geometry(config), pair_gradient(config), pair_tangent(config), radial_backward(config)]
    for number, layer in enumerate(layers):
        parts += [collect(number, layer, config), give(number, layer, config), gate(number, layer)]
    return "\n\n".join(parts) + "\n"


class Writer:
    """Lines of a kernel, indented."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def __call__(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def block(self, head: str) -> "Writer":
        self(head)
        return self

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


# --- shared with the engine: how work is divided ---------------------------------------------------------------------------------


def channel_block(channels: int) -> int:
    """Channels that one program works on: the largest power of two up to 64 that divides their number."""
    return next(size for size in (64, 32, 16) if channels % size == 0)


def collecting_groups(layer: LayerPlan) -> list[tuple[Irrep, list[Path]]]:
    """Paths that one program collects: the same target and number of channels, and not too many accumulators."""
    groups: list[tuple[Irrep, list[Path]]] = []
    for target in layer.outputs:
        for channels in sorted({layer.inputs[path.source] for path in layer.paths_to(target)}):
            own = [path for path in layer.paths_to(target) if layer.inputs[path.source] == channels]
            at_once = max(1, MOST_ACCUMULATORS // target.dim)
            groups += [(target, own[first : first + at_once]) for first in range(0, len(own), at_once)]
    return groups


def giving_groups(layer: LayerPlan) -> list[tuple[Irrep, list[Path]]]:
    """Paths over which one program gives: all of one source."""
    return [(source, [path for path in layer.paths if path.source == source]) for source in layer.sources]


def blocks(layer: LayerPlan, channels_at_once: int) -> int:
    """Programs side by side that share the channels of a group."""
    return max(layer.inputs[source] for source in layer.sources) // channels_at_once


def width(l_max: int) -> int:
    """Harmonics and one more number (what belongs to the length) of a pair, filled up to a power of two."""
    return 1 << ((l_max + 1) ** 2).bit_length()


# --- convolution -----------------------------------------------------------------------------------------------------------------


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
                    plain = _sum(f"x{path.source}_{i}*{name}" for (i, k2), name in matrix.items() if k2 == k)
                    turned = _sum(f"x{path.source}_{i}*{name}" for (i, k2), name in dotted.items() if k2 == k)
                    if plain:
                        write(f"s{p}_{k} += q{p}*({plain})")
                    if turned:
                        write(f"s{p}_{k} += r{p}*({turned})")
            with write.block("if DOT:"):
                for p, path in enumerate(paths):
                    for k in ks:
                        plain = _sum(
                            f"xd{path.source}_{i}*{name}" for (i, k2), name in a.matrix(path).items() if k2 == k
                        )
                        if plain:
                            write(f"s{p}_{k} += r{p}*({plain})")
        with write.block("else:"):
            a = Couplings(write, "Y")
            for p, path in enumerate(paths):
                for k in ks:
                    plain = _sum(f"x{path.source}_{i}*{name}" for (i, k2), name in a.matrix(path).items() if k2 == k)
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
            write(f"target_row = ((1 - code % 2)*2*pairs + q)*{_columns(layer)} + c")
            a, z = Couplings(write, "Y"), Couplings(write, "Z")
            for path in paths:
                matrix, dotted = a.matrix(path), z.matrix(path)
                write(f"r = {_radial(layer, path, 'value')}", f"q1 = length_dot * {_radial(layer, path, 'slope')}")
                for k in range(path.target.dim):
                    write(f"g{k} = tl.load(arena + g + {_collected(layer, path, k, 'j')} + c)")
                    write(f"h{k} = tl.load(arena + g_tilde + {_collected(layer, path, k, 'j')} + c)")
                for i in components:
                    u = _sum(f"{name}*g{k}" for (i2, k), name in matrix.items() if i2 == i) or ZERO
                    v = [f"{name}*g{k}" for (i2, k), name in dotted.items() if i2 == i]
                    v += [f"{name}*h{k}" for (i2, k), name in matrix.items() if i2 == i]
                    write(f"u{i} = {u}", f"v{i} = {_sum(v) or ZERO}", f"b{i} += r*v{i} + q1*u{i}")
                write(f"value = {_sum(f'x{source}_{i}*v{i}' for i in components)}")
                with write.block("if DOT:"):
                    write(f"value += {_sum(f'xd{source}_{i}*u{i}' for i in components)}")
                column = _column(layer, path)
                write(f"tl.store(radial_out + target_row + {column}, value, mask=valid)")
                slope = _sum(f"x{source}_{i}*u{i}" for i in components)
                write(
                    f"tl.store(radial_out + target_row + pairs*{_columns(layer)} + {column}, length_dot*({slope}), mask=valid)"
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
                    u = _sum(f"{name}*g{k}" for (i2, k), name in matrix.items() if i2 == i) or ZERO
                    write(f"u{i} = {u}", f"b{i} += r*u{i}")
                inner = _sum(f"x{source}_{i}*u{i}" for i in components)
                write(f"stretch += ({inner})*{_radial(layer, path, 'slope')}")
                if path.edge:
                    write(*(f"g{k} = g{k}*r" for k in range(path.target.dim)))
                    by_m: dict[int, list[str]] = {}
                    for i, m, k, value in _nonzero(path):
                        by_m.setdefault(m, []).append(f"{value!r}*(x{source}_{i}*g{k})")
                    write(*(f"t{path.edge**2 + m} += {_sum(terms)}" for m, terms in by_m.items()))
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
        f"slope = radial + pairs.to(tl.int64)*{_columns(layer)}",
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


def _columns(layer: LayerPlan) -> int:
    """Radial weights of a pair."""
    return sum(layer.inputs[path.source] for path in layer.paths)


def _column(layer: LayerPlan, path: Path) -> int:
    return sum(layer.inputs[other.source] for other in layer.paths[: layer.paths.index(path)])


def _radial(layer: LayerPlan, path: Path, which: str) -> str:
    base = "radial" if which == "value" else "slope"
    return f"tl.load({base} + q*{_columns(layer)} + {_column(layer, path)} + c, mask=valid, other=0.0)"


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
                self.write(f"{names[i, k]} = {_sum(parts)}")
            self.known[path.triple] = names
        return self.known[path.triple]


def _sum(terms: Iterable[str]) -> str:
    return " + ".join(terms)


# --- gate ------------------------------------------------------------------------------------------------------------------------


def gate(number: int, layer: LayerPlan) -> str:
    """x = f(z) in all four versions; scalars by themselves, everything else times a scalar of its own (f = silu or tanh, normalised):

    x = f(z)                          x̄ → z̄ = f' x̄
    ẋ = f' ż                          z̃ = f' x̃ + f'' ż x̄
    """
    write = Writer()
    write(
        '@triton.jit(do_not_specialize=["nodes"])',
        f"def gate_{number}(arena, x, z, version, nodes, chain_arena, MODE: tl.constexpr, BLOCK: tl.constexpr):",
    )
    with write:
        write(
            "N = nodes.to(tl.int64)",
            "i = tl.program_id(0).to(tl.int64)*BLOCK + tl.arange(0, BLOCK)",
            "group = tl.program_id(1)",
            "arena += tl.program_id(2).to(tl.int64)*chain_arena",
            "x0 = arena + x",
            "x1 = x0 + version",
            "x2 = x1 + version",
            "x3 = x2 + version",
            "z0 = arena + z",
            "z1 = z0 + version",
            "z2 = z1 + version",
            "z3 = z2 + version",
        )
        x_before = z_before = 0
        for index, irrep in enumerate(layer.outputs):
            with write.block(f"if group == {index}:"):
                channels = layer.outputs[irrep]
                write(f"valid = i < N*{channels}", f"n = i // {channels}", f"c = i % {channels}")
                if irrep.l == 0:
                    _gate_scalar(write, layer, irrep, x_before, z_before)
                else:
                    _gate_other(write, layer, irrep, x_before, z_before)
            x_before += irrep.dim * layer.outputs[irrep]
            z_before += irrep.dim * layer.before_gate(irrep)
    return write.text


_SILU = (
    "s = tl.sigmoid(v)",
    f"f = {SILU_NORM!r}*v*s",
    f"f1 = {SILU_NORM!r}*s*(1 + v*(1 - s))",
    f"f2 = {SILU_NORM!r}*s*(1 - s)*(2 + v*(1 - 2*s))",
)
_TANH = ("t = 2*tl.sigmoid(2*v) - 1", f"f = {TANH_NORM!r}*t", f"f1 = {TANH_NORM!r}*(1 - t*t)", "f2 = -2*t*f1")


def _load(pointer: str) -> str:
    return f"tl.load({pointer}, mask=valid, other=0.0)"


def _gate_scalar(write: Writer, layer: LayerPlan, irrep: Irrep, x_before: int, z_before: int) -> None:
    write(f"xi = {x_before}*N + n*{layer.outputs[irrep]} + c", f"zi = {z_before}*N + n*{layer.before_gate(irrep)} + c")
    write(f"v = {_load('z0 + zi')}", *(_SILU if irrep == SCALAR else _TANH))
    with write.block("if MODE == 0:"):
        write("tl.store(x0 + xi, f, mask=valid)")
    with write.block("if MODE == 1:"):
        write(f"tl.store(z1 + zi, f1*{_load('x1 + xi')}, mask=valid)")
    with write.block("if MODE == 2:"):
        write(f"tl.store(x2 + xi, f1*{_load('z2 + zi')}, mask=valid)")
    with write.block("if MODE == 3:"):
        write(f"tl.store(z3 + zi, f1*{_load('x3 + xi')} + f2*{_load('z2 + zi')}*{_load('x1 + xi')}, mask=valid)")


def _gate_other(write: Writer, layer: LayerPlan, irrep: Irrep, x_before: int, z_before: int) -> None:
    channels, first = layer.outputs[irrep], layer.outputs[SCALAR]
    for other in layer.gated:
        if other == irrep:
            break
        first += layer.outputs[other]
    before = 0  # the gates lie behind the scalars, wherever those are
    for other in layer.outputs:
        if other == SCALAR:
            break
        before += other.dim * layer.before_gate(other)
    write(f"gi = {before}*N + n*{layer.before_gate(SCALAR)} + {first} + c")
    write(f"v = {_load('z0 + gi')}", *_SILU, "total = tl.zeros([BLOCK], tl.float32)")
    with write.block("if MODE >= 2:"):
        write(f"vd = {_load('z2 + gi')}")
    for k in range(irrep.dim):
        write(
            f"xi = {x_before + k * channels}*N + n*{channels} + c",
            f"zi = {z_before + k * channels}*N + n*{channels} + c",
        )
        with write.block("if MODE == 0:"):
            write(f"tl.store(x0 + xi, f*{_load('z0 + zi')}, mask=valid)")
        with write.block("if MODE == 1:"):
            write(f"b = {_load('x1 + xi')}", "tl.store(z1 + zi, f*b, mask=valid)", f"total += f1*b*{_load('z0 + zi')}")
        with write.block("if MODE == 2:"):
            write(f"tl.store(x2 + xi, f*{_load('z2 + zi')} + f1*vd*{_load('z0 + zi')}, mask=valid)")
        with write.block("if MODE == 3:"):
            write(
                f"b = {_load('x1 + xi')}",
                f"t = {_load('x3 + xi')}",
                f"u = {_load('z0 + zi')}",
                "tl.store(z3 + zi, f*t + f1*vd*b, mask=valid)",
                f"total += f1*t*u + b*(f1*{_load('z2 + zi')} + f2*vd*u)",
            )
    with write.block("if MODE == 1:"):
        write("tl.store(z1 + gi, total, mask=valid)")
    with write.block("if MODE == 3:"):
        write("tl.store(z3 + gi, total, mask=valid)")


# --- geometry of pairs -----------------------------------------------------------------------------------------------------------


def _polynomial(terms: dict[str, float]) -> str:
    return _sum(f"{value!r}" + "".join(f"*{axis}" for axis in monomial) for monomial, value in terms.items()) or "0.0"


def _partial(terms: dict[str, float], axis: str) -> dict[str, float]:
    """∂/∂axis of a polynomial in the components of the unit vector."""
    result: dict[str, float] = {}
    for monomial, value in terms.items():
        if axis in monomial:
            lower = monomial.replace(axis, "", 1)
            result[lower] = result.get(lower, 0.0) + value * monomial.count(axis)
    return result


def _harmonics(config: NetworkConfig) -> list[dict[str, float]]:
    return [terms for l in range(config.l_max + 1) for terms in HARMONICS[l]]


def geometry(config: NetworkConfig) -> str:
    """Length, direction and harmonics of every pair: unit [pairs, 4] = (u, r) and harmonics [pairs, M]."""
    write = Writer()
    write('@triton.jit(do_not_specialize=["pairs"])')
    with write.block("def geometry(vector, unit, harmonics, pairs, BLOCK: tl.constexpr):"):
        write(
            "p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)",
            "valid = p < pairs",
            *(f"{axis} = tl.load(vector + p*3 + {i}, mask=valid, other=1.0)" for i, axis in enumerate("xyz")),
            "r = tl.sqrt(x*x + y*y + z*z)",
            *(f"{axis} = {axis}/r" for axis in "xyz"),
            *(f"tl.store(unit + p*4 + {i}, {name}, mask=valid)" for i, name in enumerate("xyzr")),
        )
        for m, terms in enumerate(_harmonics(config)):
            total = (config.l_max + 1) ** 2
            write(f"tl.store(harmonics + p*{total} + {m}, {_polynomial(terms)} + x*0, mask=valid)")
    return write.text


def pair_gradient(config: NetworkConfig) -> str:
    """∂E/∂vector of every pair from the rows that the adjoint passes left, summed in a fixed order:

    a = Σ_m ∂E/∂Y_m ∂Y_m/∂u,    ∂E/∂vector = (a − (a·u) u)/r + ∂E/∂r u
    """
    row, total = width(config.l_max), (config.l_max + 1) ** 2
    write = Writer()
    write('@triton.jit(do_not_specialize=["pairs", "graph_pairs"])')
    with write.block(
        "def pair_gradient(unit, edge, out, pairs, graph_pairs, GROUPS: tl.constexpr, BLOCK: tl.constexpr):"
    ):
        write(
            "p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)",
            "chain = tl.program_id(1).to(tl.int64)",
            "valid = p < pairs",
            "unit += chain*graph_pairs*4",
            f"columns = tl.arange(0, {row})",
            f"edge += (chain*pairs + p)[:, None]*(2*GROUPS*{row}) + columns[None, :]",
            f"there = tl.zeros([BLOCK, {row}], tl.float32)",
            f"back = tl.zeros([BLOCK, {row}], tl.float32)",
        )
        with write.block("for g in range(GROUPS):"):
            write(
                f"there += tl.load(edge + g*{row}, mask=valid[:, None], other=0.0)",
                f"back += tl.load(edge + (GROUPS + g)*{row}, mask=valid[:, None], other=0.0)",
            )
        # ∂E/∂Y of the opposite direction was turned round already where it was made
        write(
            "sums = there + back",
            *(f"{axis} = tl.load(unit + p*4 + {i}, mask=valid, other=1.0)" for i, axis in enumerate("xyzr")),
            *(f"b{m} = tl.sum(tl.where(columns[None, :] == {m}, sums, 0.0), 1)" for m in range(1, total + 1)),
        )
        for axis in "xyz":
            parts = [(m, _partial(terms, axis)) for m, terms in enumerate(_harmonics(config))]
            text = _sum(f"b{m}*({_polynomial(terms)})" for m, terms in parts if terms and m)
            write(f"a{axis} = {text or 'x*0'}")
        write("along = ax*x + ay*y + az*z", "out += (chain*pairs + p)*3")
        for i, axis in enumerate("xyz"):
            write(f"tl.store(out + {i}, (a{axis} - along*{axis})/r + b{total}*{axis}, mask=valid)")
    return write.text


def pair_tangent(config: NetworkConfig) -> str:
    """Ẏ and ṙ of every pair when atoms move along v: [pairs, width], ṙ behind the harmonics.

    ṙ = u·v_pair,   u̇ = (v_pair − ṙ u)/r,   Ẏ_m = ∂Y_m/∂u · u̇
    """
    row, total = width(config.l_max), (config.l_max + 1) ** 2
    write = Writer()
    write('@triton.jit(do_not_specialize=["pairs", "nodes", "graph_pairs"])')
    with write.block("def pair_tangent(unit, ends, direction, out, pairs, nodes, graph_pairs, BLOCK: tl.constexpr):"):
        write(
            "p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)",
            "chain = tl.program_id(1).to(tl.int64)",
            "valid = p < pairs",
            "unit += chain*graph_pairs*4",
            "ends += chain*graph_pairs*2",
            "direction += chain*nodes*3",
            "first = tl.load(ends + p*2, mask=valid, other=0)",
            "second = tl.load(ends + p*2 + 1, mask=valid, other=0)",
            *(f"{axis} = tl.load(unit + p*4 + {i}, mask=valid, other=1.0)" for i, axis in enumerate("xyzr")),
            *(
                f"d{axis} = tl.load(direction + second*3 + {i}, mask=valid, other=0.0) "
                f"- tl.load(direction + first*3 + {i}, mask=valid, other=0.0)"
                for i, axis in enumerate("xyz")
            ),
            "length_dot = dx*x + dy*y + dz*z",
            *(f"d{axis} = (d{axis} - length_dot*{axis})/r" for axis in "xyz"),
            f"out += (chain*pairs + p)*{row}",
        )
        for m, terms in enumerate(_harmonics(config)):
            parts = [(axis, _partial(terms, axis)) for axis in "xyz"]
            text = _sum(f"d{axis}*({_polynomial(partial)})" for axis, partial in parts if partial)
            write(f"tl.store(out + {m}, {text or 'x*0'}, mask=valid)")
        write(f"tl.store(out + {total}, length_dot, mask=valid)")
    return write.text


# --- radial network --------------------------------------------------------------------------------------------------------------


def radial_backward(config: NetworkConfig) -> str:
    """Both directions of the radial network up to its last hidden layer, for value and slope together.

    Forward, with B and B' = dB/dr of the Bessel functions, hidden layers h_0 = B W_0, h_i = silu(h_{i−1}) W_i:

        a_i = silu(h_i),   a'_i = silu'(h_i) h'_i

    Backward, from ã and ã' of the last one:

        h̃'_i = silu'(h_i) ã'_i,    h̃_i = silu'(h_i) ã_i + silu''(h_i) h'_i ã'_i,    W̃_i = a_{i−1}ᵀ h̃_i + a'_{i−1}ᵀ h̃'_i
    """
    depth, size = config.radial_mlp_depth, config.radial_mlp_width
    write = Writer()
    write(
        "@triton.jit",
        "def _basis(unit, weights, p, valid, b, R_MAX: tl.constexpr, P: tl.constexpr, BESSELS: tl.constexpr):",
    )
    with write:
        write(
            "r = tl.load(unit + p*4 + 3, mask=valid, other=2.0*R_MAX)[:, None]",
            "x = tl.minimum(r/R_MAX, 1.0)",
            "used = (b < BESSELS)[None, :]",
            "w = 3.141592653589793*(tl.load(weights + b, mask=b < BESSELS, other=0.0) + b + 1.0)[None, :]",
            # (1 − x)³ Σ_k (k+1)(k+2)/2 x^k and its derivative −p(p+1)(p+2)/2 x^(p−1) (1 − x)²; see polynomial_cutoff
            "cut = x*0 + P*(P + 1)/2",
            "power = x*0 + 1.0",
        )
        with write.block("for i in tl.static_range(P - 1):"):
            write("cut = cut*x + (P - 1 - i)*(P - i)/2", "power = power*x")
        write(
            "rest = 1.0 - x",
            "cut = cut*rest*rest*rest",
            "cut1 = -(P*(P + 1)*(P + 2)/2)*power*rest*rest",
            "sine = tl.sin(w*x)",
            "cosine = tl.cos(w*x)",
            "scale = 2.0/(R_MAX*R_MAX)",
            "value = tl.where(used, scale*sine/x*cut, 0.0)",
            "slope = tl.where(used, scale/R_MAX*((w*cosine/x - sine/(x*x))*cut + sine/x*cut1), 0.0)",
            # by the frequency
            "value_w = tl.where(used, scale*3.141592653589793*cosine*cut, 0.0)",
            "slope_w = tl.where(used, scale/R_MAX*3.141592653589793*(cosine*cut1 - w*sine*cut), 0.0)",
            "return value, slope, value_w, slope_w",
        )

    constants = ("R_MAX", "P", "BESSELS", "FIRST_PREC", "PREC", "BLOCK")
    arguments = ", ".join(f"{name}: tl.constexpr" for name in constants)
    columns = 1 << (size - 1).bit_length()
    fits = "" if columns == size else f", mask=(c[:, None] < {size}) & (c[None, :] < {size}), other=0.0"

    def load_weights() -> None:
        write(
            f"c = tl.arange(0, {columns})",
            f"b = tl.arange(0, {max(16, 1 << (config.num_bessels - 1).bit_length())})",
            f"used = (b[:, None] < BESSELS) & (c[None, :] < {size})",
            f"w0 = tl.load(weights + tl.load(offsets + layer*{depth}) + b[:, None]*{size} + c[None, :], mask=used, other=0.0)",
        )
        for i in range(1, depth):
            start = f"weights + tl.load(offsets + layer*{depth} + {i})"
            write(f"w{i} = tl.load({start} + c[:, None]*{size} + c[None, :]{fits})")

    def forward() -> None:
        write("value, slope, value_w, slope_w = _basis(unit, weights + bessel, p, valid, b, R_MAX, P, BESSELS)")
        for i in range(depth):
            inputs = ("value", "slope") if i == 0 else (f"a{i - 1}", f"d{i - 1}")
            precision = "PREC" if i else "FIRST_PREC"
            write(
                f"h{i} = tl.dot({inputs[0]}, w{i}, input_precision={precision})",
                f"g{i} = tl.dot({inputs[1]}, w{i}, input_precision={precision})",
                f"s{i} = tl.sigmoid(h{i})",
                f"a{i} = h{i}*s{i}",
                f"f{i} = s{i}*(1 + h{i}*(1 - s{i}))",
                f"d{i} = f{i}*g{i}",
            )

    row_mask = "valid[:, None]" if columns == size else f"valid[:, None] & (c[None, :] < {size})"
    write("", "", '@triton.jit(do_not_specialize=["pairs", "bessel", "graph_pairs"])')
    write(
        "def radial_hidden(unit, weights, hidden, offsets, pairs, bessel, chain_weights, graph_pairs, LAYERS: tl.constexpr, "
        + arguments
        + "):"
    )
    with write:
        write(
            "p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)",
            "layer = tl.program_id(1)",
            "chain = tl.program_id(2).to(tl.int64)",
            "valid = p < pairs",
            "unit += chain*graph_pairs*4",
            "weights += chain*chain_weights",
        )
        load_weights()
        forward()
        write(
            f"out = hidden + ((chain*LAYERS + layer)*2*pairs + p[:, None])*{size} + c[None, :]",
            f"tl.store(out, a{depth - 1}, mask={row_mask})",
            f"tl.store(out + pairs.to(tl.int64)*{size}, d{depth - 1}, mask={row_mask})",
        )

    write("", "", '@triton.jit(do_not_specialize=["pairs", "bessel", "turns", "graph_pairs"])')
    write(
        "def radial_backward(unit, weights, hidden_tilde, partial, offsets, pairs, bessel, turns, chain_weights, graph_pairs,",
        f"    LAYERS: tl.constexpr, SIZE: tl.constexpr, {arguments}):",
    )
    bessels = max(16, 1 << (config.num_bessels - 1).bit_length())
    with write:
        write(
            "part = tl.program_id(0)",
            "layer = tl.program_id(1)",
            "chain = tl.program_id(2).to(tl.int64)",
            "unit += chain*graph_pairs*4",
            "weights += chain*chain_weights",
        )
        load_weights()
        write(f"t0 = tl.zeros([{bessels}, {columns}], tl.float32)", f"frequencies = tl.zeros([{bessels}], tl.float32)")
        write(*(f"t{i} = tl.zeros([{columns}, {columns}], tl.float32)" for i in range(1, depth)))
        with write.block("for turn in range(turns):"):
            write(
                "p = ((part*turns + turn)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)",
                "valid = p < pairs",
            )
            forward()
            write(
                f"start = hidden_tilde + ((chain*LAYERS + layer)*2*pairs + p[:, None])*{size} + c[None, :]",
                f"e = tl.load(start, mask={row_mask}, other=0.0)",
                f"e1 = tl.load(start + pairs.to(tl.int64)*{size}, mask={row_mask}, other=0.0)",
            )
            for i in reversed(range(depth)):
                inputs = ("value", "slope") if i == 0 else (f"a{i - 1}", f"d{i - 1}")
                write(
                    f"k = f{i}*e + s{i}*(1 - s{i})*(2 + h{i}*(1 - 2*s{i}))*g{i}*e1",
                    f"k1 = f{i}*e1",
                    f"t{i} = tl.dot(tl.trans({inputs[0]}), k, t{i}, input_precision=PREC)",
                    f"t{i} = tl.dot(tl.trans({inputs[1]}), k1, t{i}, input_precision=PREC)",
                    f"e = tl.dot(k, tl.trans(w{i}), input_precision=PREC)",
                    f"e1 = tl.dot(k1, tl.trans(w{i}), input_precision=PREC)",
                )
            write("frequencies += tl.sum(e*value_w + e1*slope_w, 0)")
        # a row of partial sums: W̃_0, W̃_1, …, frequencies, for each part and layer
        write(
            "partial += ((chain*tl.num_programs(0) + part)*LAYERS + layer)*SIZE",
            f"tl.store(partial + b[:, None]*{size} + c[None, :], t0, mask=used)",
        )
        place = config.num_bessels * size
        for i in range(1, depth):
            write(f"tl.store(partial + {place} + c[:, None]*{size} + c[None, :], t{i}{fits.split(', other')[0]})")
            place += size * size
        write(f"tl.store(partial + {place} + b, frequencies, mask=b < BESSELS)")
    return write.text
