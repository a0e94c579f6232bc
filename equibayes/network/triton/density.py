"""Kernels between the network and the sampler: minibatch, readout, deviation heads and the Gaussian likelihood with its derivatives.

L = −N/|batch| Σ ln p, without the prior.  With z = (label − mean)/σ of an energy or force component and s = ln σ:

    ∂L/∂mean = −N/|batch| z/σ,      ∂L/∂s = N/|batch| (1 − z²)
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["atoms", "slots", "batch", "pair_rows", "chains"])
def gather_atoms(
    frames, counter, f_species, f_degree, f_sender, f_pair, norms, species, degree, sender, pair, norm, atoms, slots, batch, pair_rows,
    chains, BLOCK: tl.constexpr,
):  # fmt: skip
    """The atoms of this step's frames: atom a of the frame in place b is row a·B + b, so that species stay sorted."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chain = tl.program_id(1).to(tl.int64)
    valid = row < atoms * batch
    a, b = row // batch, row % batch
    frame = tl.load(frames + (tl.load(counter) * chains + chain) * batch + b, mask=valid, other=0)
    place = frame * atoms + a
    out = chain * atoms * batch + row
    kind = tl.load(f_species + place, mask=valid, other=0)
    tl.store(species + out, kind, mask=valid)
    tl.store(norm + out, tl.load(norms + kind, mask=valid, other=0.0), mask=valid)
    tl.store(degree + out, tl.load(f_degree + place, mask=valid, other=0), mask=valid)
    for d in range(slots):
        tl.store(
            sender + out * slots + d, tl.load(f_sender + place * slots + d, mask=valid, other=0) * batch + b, mask=valid
        )
        code = tl.load(f_pair + place * slots + d, mask=valid, other=0)
        tl.store(pair + out * slots + d, code + 2 * pair_rows * b, mask=valid)


@triton.jit(do_not_specialize=["batch", "pair_rows", "chains"])
def gather_pairs(frames, counter, f_vector, f_ends, vector, ends, batch, pair_rows, chains, BLOCK: tl.constexpr):  # fmt: skip
    """Their pairs: pair p of the frame in place b is row b·P + p."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chain = tl.program_id(1).to(tl.int64)
    valid = row < batch * pair_rows
    b, p = row // pair_rows, row % pair_rows
    frame = tl.load(frames + (tl.load(counter) * chains + chain) * batch + b, mask=valid, other=0)
    place = frame * pair_rows + p
    out = chain * batch * pair_rows + row
    for i in tl.static_range(3):
        tl.store(vector + out * 3 + i, tl.load(f_vector + place * 3 + i, mask=valid, other=0.0), mask=valid)
    for i in tl.static_range(2):
        tl.store(ends + out * 2 + i, tl.load(f_ends + place * 2 + i, mask=valid, other=0) * batch + b, mask=valid)


@triton.jit(do_not_specialize=["nodes"])
def type_ranges(species, ranges, nodes, TYPES: tl.constexpr, BLOCK: tl.constexpr):
    """The first and (one past) the last row of each type."""
    kind = tl.program_id(0)
    chain = tl.program_id(1).to(tl.int64)
    low, high = nodes, nodes * 0
    for first in range(0, nodes, BLOCK):
        n = first + tl.arange(0, BLOCK)
        own = tl.load(species + chain * nodes + n, mask=n < nodes, other=-1) == kind
        low = tl.minimum(low, tl.min(tl.where(own, n, nodes), 0))
        high = tl.maximum(high, tl.max(tl.where(own, n + 1, 0), 0))
    tl.store(ranges + (chain * TYPES + kind) * 2, tl.minimum(low, high))
    tl.store(ranges + (chain * TYPES + kind) * 2 + 1, high)


@triton.jit
def _silu(x):
    s = tl.sigmoid(x)
    return x * s, s * (1 + x * (1 - s))


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
    arena, weights, places, species, energy_scale, energies, deviations, nodes, start, version, readout_place, chain_arena,
    chain_weights, graph_nodes, unit, chains, WIDTH: tl.constexpr, WIDE: tl.constexpr, H1: tl.constexpr,
    H2: tl.constexpr, PREC: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """E_i = scale · x·w and ln σ of every atom, and where the adjoint pass begins: x̄ = scale · w.

    deviations [2, chains, nodes]: ln σ_F and the energy head of each atom.
    """
    n = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    chain = tl.program_id(1).to(tl.int64)
    valid = n < nodes
    weights += chain * chain_weights
    c = tl.arange(0, WIDE)
    here = arena + chain * chain_arena + start + n[:, None] * WIDTH + c[None, :]
    mask = valid[:, None] & (c < WIDTH)[None, :]
    x = tl.load(here, mask=mask, other=0.0)
    w = tl.load(weights + readout_place + c, mask=c < WIDTH, other=0.0)
    scale = tl.load(energy_scale + tl.load(species + chain * graph_nodes + n, mask=valid, other=0))
    tl.store(energies + chain * nodes + n, scale * tl.sum(x * w[None, :], 1), mask=valid)
    tl.store(here + version, scale[:, None] * w[None, :], mask=mask)
    for head in tl.static_range(2):
        w0, b0, w1, b1, w2, b2 = _load_head(weights, places, head, WIDTH, WIDE, H1, H2)
        h, _ = _silu(tl.dot(x, w0, input_precision=PREC) + b0[None, :])
        h, _ = _silu(tl.dot(h, w1, input_precision=PREC) + b1[None, :])
        s = tl.sum(h * w2[None, :], 1) + b2 + unit
        tl.store(deviations + (head * chains + chain) * nodes + n, s, mask=valid)


@triton.jit(do_not_specialize=["atoms", "batch", "chains"])
def likelihood(
    frames, counter, f_count, f_energy, f_forces, energies, forces, deviations, direction, deviation_tilde, energy_bar, summary,
    atoms, batch, scale, chains, ATOMS: tl.constexpr,
):  # fmt: skip
    """ln p of one structure of one chain and its derivatives: v = −∂L/∂F, ∂L/∂ln σ of every atom and ∂L/∂E.

    summary [chains, batch, 4]: ln p, Σ|F error| over atoms (mean of the components), Σ σ_F, atoms.
    """
    b = tl.program_id(0)
    chain = tl.program_id(1).to(tl.int64)
    frame = tl.load(frames + (tl.load(counter) * chains + chain) * batch + b)
    count = tl.load(f_count + frame)
    a = tl.arange(0, ATOMS)
    real, there = a < count, a < atoms
    nodes = atoms * batch
    n = chain * nodes + a * batch + b
    # energy
    energy = tl.sum(tl.load(energies + n, mask=real, other=0.0).to(tl.float64), 0)
    s = tl.load(deviations + chains * nodes + n, mask=real, other=float("-inf"))
    top = tl.max(s, 0)
    weight = tl.where(real, tl.exp(s - top), 0.0)
    total = tl.sum(weight, 0)
    log_sigma = top + tl.log(total) - tl.log(count.to(tl.float32))
    label = tl.load(f_energy + frame)
    known = tl.where(label == label, 1.0, 0.0)  # NaN: there is no label
    inverse = tl.exp(-log_sigma)
    z = tl.where(known > 0, label - energy, 0.0).to(tl.float32) * inverse
    log_p = (known * (-0.5 * z * z - log_sigma - 0.9189385332046727)).to(tl.float64)
    tl.store(energy_bar + n, tl.where(real, -scale * z * inverse, 0.0), mask=there)
    share = scale * known * (1.0 - z * z) / total
    tl.store(deviation_tilde + chains * nodes + n, tl.where(real, share * weight, 0.0), mask=there)
    # forces
    s = tl.load(deviations + n, mask=real, other=0.0)
    inverse = tl.exp(-s)
    squares = tl.zeros([ATOMS], tl.float32)
    wrong = tl.zeros([ATOMS], tl.float32)
    for i in tl.static_range(3):
        error = tl.load(f_forces + (frame * atoms + a) * 3 + i, mask=real, other=0.0) - tl.load(
            forces + n * 3 + i, mask=real, other=0.0
        )
        z = error * inverse
        squares += z * z
        wrong += tl.abs(error) / 3
        tl.store(direction + n * 3 + i, tl.where(real, scale * z * inverse, 0.0), mask=there)
    tl.store(deviation_tilde + n, tl.where(real, scale * (3.0 - squares), 0.0), mask=there)
    log_p += tl.sum(tl.where(real, -0.5 * squares - 3 * s - 2.756815599614018, 0.0).to(tl.float64), 0)
    out = summary + (chain * batch + b) * 4
    tl.store(out, log_p)
    tl.store(out + 1, tl.sum(wrong, 0).to(tl.float64))
    tl.store(out + 2, tl.sum(tl.where(real, tl.exp(s), 0.0), 0).to(tl.float64))
    tl.store(out + 3, count.to(tl.float64))


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
    arena, weights, places, species, energy_scale, deviation_tilde, energy_bar, nodes, start, version, readout_place, chain_arena,
    chain_weights, graph_nodes, chains, WIDTH: tl.constexpr, WIDE: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr,
    PREC: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Where version 3 begins: x̃ = scale ∂L/∂E w + what the heads ask for."""
    n = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    chain = tl.program_id(1).to(tl.int64)
    weights += chain * chain_weights
    c = tl.arange(0, WIDE)
    valid = n < nodes
    here = arena + chain * chain_arena + start + n[:, None] * WIDTH + c[None, :]
    mask = valid[:, None] & (c < WIDTH)[None, :]
    x = tl.load(here, mask=mask, other=0.0)
    scale = tl.load(energy_scale + tl.load(species + chain * graph_nodes + n, mask=valid, other=0))
    e = tl.load(energy_bar + chain * nodes + n, mask=valid, other=0.0) * scale
    total = e[:, None] * tl.load(weights + readout_place + c, mask=c < WIDTH, other=0.0)[None, :]
    for head in tl.static_range(2):
        w0, b0, w1, b1, w2, b2 = _load_head(weights, places, head, WIDTH, WIDE, H1, H2)
        s = tl.load(deviation_tilde + (head * chains + chain) * nodes + n, mask=valid, other=0.0)
        h0, h1, k0, k1 = _head_backward(x, s, w0, b0, w1, b1, w2, PREC)
        total = tl.dot(k0, tl.trans(w0), total, input_precision=PREC)
    tl.store(here + 3 * version, total, mask=mask)


@triton.jit(do_not_specialize=["nodes", "start", "turns", "chains", "graph_nodes"])
def readout_gradient(
    arena, weights, places, species, energy_scale, deviation_tilde, energy_bar, out, nodes, start, version, readout_place, turns,
    chain_arena, chain_weights, chain_out, part_out, graph_nodes, chains, WIDTH: tl.constexpr, WIDE: tl.constexpr,
    H1: tl.constexpr, H2: tl.constexpr, PREC: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of one head (by the chain rule) and, with the first, of the readout: w̃ = Σ scale (ẋ + ∂L/∂E x)."""
    part = tl.program_id(0)
    chain = tl.program_id(1).to(tl.int64)
    head = tl.program_id(2)
    weights += chain * chain_weights
    out += chain * chain_out + part.to(tl.int64) * part_out
    c, i, j = tl.arange(0, WIDE), tl.arange(0, H1), tl.arange(0, H2)
    w_tilde = tl.zeros([WIDE], tl.float32)
    w0, b0, w1, b1, w2, b2 = _load_head(weights, places, head, WIDTH, WIDE, H1, H2)
    t0, t1 = tl.zeros([WIDE, H1], tl.float32), tl.zeros([H1], tl.float32)
    t2, t3 = tl.zeros([H1, H2], tl.float32), tl.zeros([H2], tl.float32)
    t4, t5 = tl.zeros([H2], tl.float32), tl.zeros([ROWS], tl.float32)
    for turn in range(turns):
        n = ((part * turns + turn) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        valid = n < nodes
        here = arena + chain * chain_arena + start + n[:, None] * WIDTH + c[None, :]
        mask = valid[:, None] & (c < WIDTH)[None, :]
        x = tl.load(here, mask=mask, other=0.0)
        if head == 0:
            scale = tl.load(energy_scale + tl.load(species + chain * graph_nodes + n, mask=valid, other=0))
            scale = tl.where(valid, scale, 0.0)
            e = tl.load(energy_bar + chain * nodes + n, mask=valid, other=0.0) * scale
            w_tilde += tl.sum(scale[:, None] * tl.load(here + 2 * version, mask=mask, other=0.0) + e[:, None] * x, 0)
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


@triton.jit(do_not_specialize=["pairs"])
def pair_vectors(positions, order, ends, shift, vector, pairs, BLOCK: tl.constexpr):
    """Vectors of all pairs from the atoms' positions, in the precision of the positions; `order`: which atom a row holds."""
    p = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    valid = p < pairs
    first = tl.load(order + tl.load(ends + p * 2, mask=valid, other=0))
    second = tl.load(order + tl.load(ends + p * 2 + 1, mask=valid, other=0))
    for i in tl.static_range(3):
        v = tl.load(positions + second * 3 + i) - tl.load(positions + first * 3 + i)
        tl.store(vector + p * 3 + i, v + tl.load(shift + p * 3 + i, mask=valid, other=0.0), mask=valid)


@triton.jit(do_not_specialize=["nodes", "pairs", "chains"])
def pack(
    energies, forces, deviations, pull, vector, unit, order, out, nodes, pairs, chains, R_MAX: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """All results of one chain, float64, for one download: energy, ln σ_E, virial (9), then ln σ_F and forces of each atom.

    ln σ_E is the logarithm of the mean of the atoms' exponentials.
    """
    chain = tl.program_id(0).to(tl.int64)
    out += chain * (11 + 4 * nodes)
    i = tl.arange(0, BLOCK)
    energy = tl.zeros([BLOCK], tl.float64)
    top = tl.zeros([BLOCK], tl.float32) + float("-inf")
    for first in range(0, nodes, BLOCK):
        n = (first + i).to(tl.int64)
        valid = n < nodes
        row = chain * nodes + n
        atom = tl.load(order + n, mask=valid, other=0)
        energy += tl.load(energies + row, mask=valid, other=0.0).to(tl.float64)
        top = tl.maximum(top, tl.load(deviations + chains * nodes + row, mask=valid, other=float("-inf")))
        tl.store(out + 11 + atom, tl.load(deviations + row, mask=valid, other=0.0).to(tl.float64), mask=valid)
        for a in tl.static_range(3):
            force = tl.load(forces + row * 3 + a, mask=valid, other=0.0).to(tl.float64)
            tl.store(out + 11 + nodes + atom * 3 + a, force, mask=valid)
    highest = tl.max(top, 0)
    total = tl.zeros([BLOCK], tl.float64)
    for first in range(0, nodes, BLOCK):
        n = (first + i).to(tl.int64)
        s = tl.load(deviations + (chains + chain) * nodes + n, mask=n < nodes, other=float("-inf"))
        total += tl.exp(s - highest).to(tl.float64)
    tl.store(out, tl.sum(energy, 0))
    count = tl.zeros([1], tl.float64) + nodes
    tl.store(out + 1 + tl.zeros([1], tl.int32), highest.to(tl.float64) + tl.log(tl.sum(total, 0) / count))
    xx, yy, zz = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    xy, xz, yz = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    for first in range(0, pairs, BLOCK):
        p = (first + i).to(tl.int64)
        # rows that only fill up may hold what an earlier list left there
        near = (p < pairs) & (tl.load(unit + p * 4 + 3, mask=p < pairs, other=2.0 * R_MAX) < R_MAX)
        x, y, z = (
            tl.load(vector + p * 3, mask=near, other=0.0),
            tl.load(vector + p * 3 + 1, mask=near, other=0.0),
            tl.load(vector + p * 3 + 2, mask=near, other=0.0),
        )
        g = pull + (chain * pairs + p) * 3
        fx = tl.load(g, mask=near, other=0.0).to(tl.float64)
        fy = tl.load(g + 1, mask=near, other=0.0).to(tl.float64)
        fz = tl.load(g + 2, mask=near, other=0.0).to(tl.float64)
        xx += x * fx
        yy += y * fy
        zz += z * fz
        xy += (x * fy + y * fx) / 2
        xz += (x * fz + z * fx) / 2
        yz += (y * fz + z * fy) / 2
    tl.store(out + 2, tl.sum(xx, 0))
    tl.store(out + 6, tl.sum(yy, 0))
    tl.store(out + 10, tl.sum(zz, 0))
    tl.store(out + 3, tl.sum(xy, 0))
    tl.store(out + 5, tl.sum(xy, 0))
    tl.store(out + 4, tl.sum(xz, 0))
    tl.store(out + 8, tl.sum(xz, 0))
    tl.store(out + 7, tl.sum(yz, 0))
    tl.store(out + 9, tl.sum(yz, 0))
