"""Heads of the generated kernels in Triton: arguments, and the names and addresses of a program.

{number}: layer;  {columns}: radial weights of a pair;  {harmonics}: harmonics of a pair.
"""

from equibayes.engine.generate.offsets import columns, harmonics
from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import LayerPlan

RADIAL = ("R_MAX", "P", "ON", "BESSELS", "FIRST_PREC", "PREC", "BLOCK")
RADIAL_CONSTANTS = ", ".join(f"{name}: tl.constexpr" for name in RADIAL)

CONVOLUTION = """
    n = tl.program_id(0).to(tl.int64)
    job = tl.program_id(1)
    chain = tl.program_id(2).to(tl.int64)
    group = job // BLOCKS
    c0 = (job % BLOCKS)*CB
    cs = c0 + tl.arange(0, CB)
    c = cs[None, :]
    N = nodes.to(tl.int64)
    arena += chain*chain_arena
    radial += chain*chain_radial
    slope = radial + pairs.to(tl.int64)*{columns}
    tangents += chain*chain_tangents
    harmonics += chain*graph_pairs*{harmonics}
    norm += chain*graph_nodes
    sender += chain*graph_nodes*slots + n*slots
    pair += chain*graph_nodes*slots + n*slots
    count = tl.load(degree + chain*graph_nodes + n)"""

STRAINED = """
@triton.jit(do_not_specialize=["pairs", "nodes", "structures", "graph_pairs"])
def pair_tangent(unit, ends, direction, structure, strain, out, pairs, nodes, structures, graph_pairs, BLOCK: tl.constexpr):
    p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    chain = tl.program_id(1).to(tl.int64)
    valid = p < pairs
    unit += chain*graph_pairs*4
    ends += chain*graph_pairs*2
    direction += chain*nodes*3
    strain += chain*structures*9"""
"""The head of pair_tangent where stress is learned."""

HEADS = {
    "geometry": """
@triton.jit(do_not_specialize=["pairs"])
def geometry(vector, unit, harmonics, positions, order, ends, shift, pairs, MOVING: tl.constexpr, BLOCK: tl.constexpr):
    p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    valid = p < pairs""",
    "pair_gradient": """
@triton.jit(do_not_specialize=["pairs", "graph_pairs"])
def pair_gradient(unit, edge, out, pairs, graph_pairs, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    chain = tl.program_id(1).to(tl.int64)
    valid = p < pairs
    unit += chain*graph_pairs*4""",
    "pair_tangent": """
@triton.jit(do_not_specialize=["pairs", "nodes", "graph_pairs"])
def pair_tangent(unit, ends, direction, out, pairs, nodes, graph_pairs, BLOCK: tl.constexpr):
    p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    chain = tl.program_id(1).to(tl.int64)
    valid = p < pairs
    unit += chain*graph_pairs*4
    ends += chain*graph_pairs*2
    direction += chain*nodes*3""",
    "radial_hidden": f"""
@triton.jit(do_not_specialize=["pairs", "bessel", "graph_pairs"])
def radial_hidden(unit, weights, hidden, offsets, pairs, bessel, chain_weights, graph_pairs, LAYERS: tl.constexpr,
    {RADIAL_CONSTANTS}):
    p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    valid = p < pairs""",
    "radial_backward": f"""
@triton.jit(do_not_specialize=["pairs", "bessel", "turns", "graph_pairs"])
def radial_backward(unit, weights, hidden_tilde, partial, offsets, pairs, bessel, turns, chain_weights, graph_pairs,
    LAYERS: tl.constexpr, SIZE: tl.constexpr, {RADIAL_CONSTANTS}):
    part = tl.program_id(0)""",
    "collect": """
@triton.jit(do_not_specialize=["nodes", "slots", "pairs", "graph_pairs", "graph_nodes"])
def collect_{number}(arena, harmonics, tangents, radial, sender, pair, degree, norm, nodes, slots, pairs, y, y_dot, out,
    chain_arena, chain_radial, chain_tangents, graph_pairs, graph_nodes, DUAL: tl.constexpr, DOT: tl.constexpr,
    CB: tl.constexpr, BLOCKS: tl.constexpr, EB: tl.constexpr):"""
    + CONVOLUTION,
    "give": """
@triton.jit(do_not_specialize=["nodes", "slots", "pairs", "graph_pairs", "graph_nodes"])
def give_{number}(arena, harmonics, tangents, radial, radial_out, edge_out, sender, pair, degree, norm, nodes, slots, pairs,
    y, y_dot, g, g_tilde, out, chain_arena, chain_radial, chain_radial_out, chain_tangents, chain_edge, graph_pairs,
    graph_nodes, DUAL: tl.constexpr, DOT: tl.constexpr, FIRST: tl.constexpr, GROUPS: tl.constexpr, CB: tl.constexpr,
    BLOCKS: tl.constexpr, EB: tl.constexpr):"""
    + CONVOLUTION
    + """
    radial_out += chain*chain_radial_out
    edge_out += chain*chain_edge
    w = tl.load(norm + n)""",
    "gate": """
@triton.jit(do_not_specialize=["nodes"])
def gate_{number}(arena, x, z, version, apart, nodes, chain_arena, MODE: tl.constexpr, PIECES: tl.constexpr,
    BLOCK: tl.constexpr):
    N = nodes.to(tl.int64)
    i = tl.program_id(0).to(tl.int64)*BLOCK + tl.arange(0, BLOCK)
    group = tl.program_id(1)
    arena += tl.program_id(2).to(tl.int64)*chain_arena
    x0 = arena + x
    x1 = x0 + version
    x2 = x1 + version
    x3 = x2 + version
    z0 = arena + z
    z1 = z0 + version
    z2 = z1 + version
    z3 = z2 + version""",
}


def head(name: str, number: int, config: NetworkConfig, layer: LayerPlan | None) -> list[str]:
    """Lines from the decorator on."""
    text = STRAINED if name == "pair_tangent" and config.stress_head else HEADS[name]
    text = text.format(number=number, columns=columns(layer) if layer else 0, harmonics=harmonics(config.l_max))
    return text.strip("\n").splitlines()
