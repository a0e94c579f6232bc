"""Kernels of the readout and the deviation heads: energies and ln σ of atoms, start of the adjoint passes, gradients.

Features may be multiplied by a mask x → m x before they are read (dropout); the adjoint is the same product.
"""

import triton
import triton.language as tl


@triton.jit
def _silu(x):
    s = tl.sigmoid(x)
    return x * s, s * (1 + x * (1 - s))


@triton.jit
def _features(
    arena, feature_mask, n, chain, nodes, start, chain_arena, WIDTH: tl.constexpr, WIDE: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """Where the features of some atoms lie, which of these numbers exist, the (masked) features, and their mask."""
    c = tl.arange(0, WIDE)
    here = arena + chain * chain_arena + start + n[:, None] * WIDTH + c[None, :]
    mask = (n < nodes)[:, None] & (c < WIDTH)[None, :]
    x = tl.load(here, mask=mask, other=0.0)
    kept = x
    if MASKED:
        kept = tl.load(feature_mask + (chain * nodes + n[:, None]) * WIDTH + c[None, :], mask=mask, other=0.0)
        x = x * kept
    return here, mask, x, kept


@triton.jit
def _load_head(weights, places, head, WIDTH: tl.constexpr, WIDE: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr):
    """Weights and biases of one head: [C, H1], [H1], [H1, H2], [H2], [H2], number."""
    c, i, j = tl.arange(0, WIDE), tl.arange(0, H1), tl.arange(0, H2)
    places += head * 6
    w0 = tl.load(weights + tl.load(places) + c[:, None] * H1 + i[None, :], mask=(c < WIDTH)[:, None], other=0.0)
    b0 = tl.load(weights + tl.load(places + 1) + i)
    w1 = tl.load(weights + tl.load(places + 2) + i[:, None] * H2 + j[None, :])
    b1 = tl.load(weights + tl.load(places + 3) + j)
    w2 = tl.load(weights + tl.load(places + 4) + j)
    return w0, b0, w1, b1, w2, tl.load(weights + tl.load(places + 5))


@triton.jit(do_not_specialize=["nodes", "start", "chains", "graph_nodes"])
def readout(
    arena, weights, places, species, energy_scale, feature_mask, energies, deviations, nodes, start, version, readout_place,
    shift_place, chain_arena, chain_weights, graph_nodes, unit, chains, WIDTH: tl.constexpr, WIDE: tl.constexpr,
    H1: tl.constexpr, H2: tl.constexpr, MASKED: tl.constexpr, SHIFTED: tl.constexpr, PREC: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """E_i = scale · (x·w + b) and ln σ of every atom, and where the adjoint pass begins: x̄ = scale · w.

    SHIFTED: b is that of the species, otherwise 0.  deviations [heads, chains, nodes]: ln σ_F and what the other heads
    say of each atom.  Separate programs for each head and for the energy.
    """
    n = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    chain = tl.program_id(1).to(tl.int64)
    head = tl.program_id(2) - 1
    valid = n < nodes
    weights += chain * chain_weights
    c = tl.arange(0, WIDE)
    here, mask, x, kept = _features(arena, feature_mask, n, chain, nodes, start, chain_arena, WIDTH, WIDE, MASKED)
    if head < 0:
        w = tl.load(weights + readout_place + c, mask=c < WIDTH, other=0.0)
        kind = tl.load(species + chain * graph_nodes + n, mask=valid, other=0)
        scale = tl.load(energy_scale + kind)
        adjoint = scale[:, None] * w[None, :]
        if MASKED:
            adjoint = adjoint * kept
        energy = tl.sum(x * w[None, :], 1)
        if SHIFTED:
            energy += tl.load(weights + shift_place + kind, mask=valid, other=0.0)
        tl.store(energies + chain * nodes + n, scale * energy, mask=valid)
        tl.store(here + version, adjoint, mask=mask)
    else:
        w0, b0, w1, b1, w2, b2 = _load_head(weights, places, head, WIDTH, WIDE, H1, H2)
        h, _ = _silu(tl.dot(x, w0, input_precision=PREC) + b0[None, :])
        h, _ = _silu(tl.dot(h, w1, input_precision=PREC) + b1[None, :])
        s = tl.sum(h * w2[None, :], 1) + b2 + unit
        tl.store(deviations + (head * chains + chain) * nodes + n, s, mask=valid)


@triton.jit
def _head_backward(x, s, w0, b0, w1, b1, w2, PREC: tl.constexpr):
    """Both hidden layers and their derivatives for atoms with features x and ∂L/∂ln σ = s."""
    h0, f0 = _silu(tl.dot(x, w0, input_precision=PREC) + b0[None, :])
    h1, f1 = _silu(tl.dot(h0, w1, input_precision=PREC) + b1[None, :])
    k1 = s[:, None] * w2[None, :] * f1
    k0 = tl.dot(k1, tl.trans(w1), input_precision=PREC) * f0
    return h0, h1, k0, k1


@triton.jit(do_not_specialize=["nodes", "start", "chains", "graph_nodes"])
def readout_tilde(
    arena, weights, places, species, energy_scale, feature_mask, deviation_tilde, energy_bar, nodes, start, version, readout_place,
    chain_arena, chain_weights, graph_nodes, chains, WIDTH: tl.constexpr, WIDE: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr,
    MASKED: tl.constexpr, HEADS: tl.constexpr, PREC: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Where version 3 begins: x̃ = scale ∂L/∂E w + the contribution of the heads."""
    n = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    chain = tl.program_id(1).to(tl.int64)
    weights += chain * chain_weights
    c = tl.arange(0, WIDE)
    valid = n < nodes
    here, mask, x, kept = _features(arena, feature_mask, n, chain, nodes, start, chain_arena, WIDTH, WIDE, MASKED)
    scale = tl.load(energy_scale + tl.load(species + chain * graph_nodes + n, mask=valid, other=0))
    e = tl.load(energy_bar + chain * nodes + n, mask=valid, other=0.0) * scale
    total = e[:, None] * tl.load(weights + readout_place + c, mask=c < WIDTH, other=0.0)[None, :]
    for head in tl.static_range(HEADS):
        w0, b0, w1, b1, w2, b2 = _load_head(weights, places, head, WIDTH, WIDE, H1, H2)
        s = tl.load(deviation_tilde + (head * chains + chain) * nodes + n, mask=valid, other=0.0)
        h0, h1, k0, k1 = _head_backward(x, s, w0, b0, w1, b1, w2, PREC)
        total = tl.dot(k0, tl.trans(w0), total, input_precision=PREC)
    if MASKED:
        total = total * kept
    tl.store(here + 3 * version, total, mask=mask)


@triton.jit(do_not_specialize=["nodes", "start", "turns", "chains", "graph_nodes", "num_types"])
def readout_gradient(
    arena, weights, places, species, energy_scale, feature_mask, deviation_tilde, energy_bar, out, nodes, start, version,
    readout_place, shift_place, num_types, turns, chain_arena, chain_weights, chain_out, part_out, graph_nodes, chains,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, MASKED: tl.constexpr, SHIFTED: tl.constexpr,
    TYPES: tl.constexpr, PREC: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of one head (by the chain rule) and, with the first, of the readout:

    w̃ = Σ scale (ẋ + ∂L/∂E x),  b̃ = Σ scale ∂L/∂E.    TYPES: a power of two, not below the number of species.
    """
    part = tl.program_id(0)
    chain = tl.program_id(1).to(tl.int64)
    head = tl.program_id(2)
    weights += chain * chain_weights
    out += chain * chain_out + part.to(tl.int64) * part_out
    c, i, j = tl.arange(0, WIDE), tl.arange(0, H1), tl.arange(0, H2)
    w_tilde, b_tilde, types = tl.zeros([WIDE], tl.float32), tl.zeros([TYPES], tl.float32), tl.arange(0, TYPES)
    w0, b0, w1, b1, w2, b2 = _load_head(weights, places, head, WIDTH, WIDE, H1, H2)
    t0, t1 = tl.zeros([WIDE, H1], tl.float32), tl.zeros([H1], tl.float32)
    t2, t3 = tl.zeros([H1, H2], tl.float32), tl.zeros([H2], tl.float32)
    t4, t5 = tl.zeros([H2], tl.float32), tl.zeros([ROWS], tl.float32)
    for turn in range(turns):
        n = ((part * turns + turn) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        valid = n < nodes
        here, mask, x, kept = _features(arena, feature_mask, n, chain, nodes, start, chain_arena, WIDTH, WIDE, MASKED)
        if head == 0:
            kind = tl.load(species + chain * graph_nodes + n, mask=valid, other=0)
            scale = tl.where(valid, tl.load(energy_scale + kind), 0.0)
            e = tl.load(energy_bar + chain * nodes + n, mask=valid, other=0.0) * scale
            tangent = tl.load(here + 2 * version, mask=mask, other=0.0)
            if MASKED:
                tangent = tangent * kept
            w_tilde += tl.sum(scale[:, None] * tangent + e[:, None] * x, 0)
            if SHIFTED:
                b_tilde += tl.sum(tl.where(kind[:, None] == types[None, :], e[:, None], 0.0), 0)
        s = tl.load(deviation_tilde + (head * chains + chain) * nodes + n, mask=valid, other=0.0)
        h0, h1, k0, k1 = _head_backward(x, s, w0, b0, w1, b1, w2, PREC)
        t0 = tl.dot(tl.trans(x), k0, t0, input_precision=PREC)
        t2 = tl.dot(tl.trans(h0), k1, t2, input_precision=PREC)
        t1 += tl.sum(k0, 0)
        t3 += tl.sum(k1, 0)
        t4 += tl.sum(h1 * s[:, None], 0)
        t5 += s
    places += head * 6
    tl.store(out + tl.load(places) + c[:, None] * H1 + i[None, :], t0, mask=(c < WIDTH)[:, None])
    tl.store(out + tl.load(places + 1) + i, t1)
    tl.store(out + tl.load(places + 2) + i[:, None] * H2 + j[None, :], t2)
    tl.store(out + tl.load(places + 3) + j, t3)
    tl.store(out + tl.load(places + 4) + j, t4)
    tl.store(out + tl.load(places + 5), tl.sum(t5, 0))
    if head == 0:
        tl.store(out + readout_place + c, w_tilde, mask=c < WIDTH)
        if SHIFTED:
            tl.store(out + shift_place + types, b_tilde, mask=types < num_types)
