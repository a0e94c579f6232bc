"""Kernels around the network for atoms that move: from positions to vectors of pairs, and all results into one array."""

import triton
import triton.language as tl


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
