"""The kernel that packs all results for a moving structure into one array."""

import triton
import triton.language as tl

from equibayes.engine.triton.kernels import force_on


@triton.jit
def load_vector(place, valid):
    """Three components in float64, zeros where not valid."""
    x = tl.load(place, mask=valid, other=0.0).to(tl.float64)
    y = tl.load(place + 1, mask=valid, other=0.0).to(tl.float64)
    return x, y, tl.load(place + 2, mask=valid, other=0.0).to(tl.float64)


@triton.jit(do_not_specialize=["nodes", "slots", "pairs", "chains", "shares", "chain_out"])
def pack(
    energies, deviations, pull, pair, degree, vector, unit, order, out, nodes, slots, pairs, chains, shares, chain_out,
    R_MAX: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """All results of a chain, float64: energy, ln σ_E, ln σ_F and forces of the atoms; shares of the virial (xx, yy,
    zz, xy, xz, yz).

    ln σ_E is the logarithm of the mean of the atoms' exponentials.  The first program of a chain writes energies and
    deviations, the next ones a share of the virial each, the others the forces on BLOCK atoms each.
    """
    chain = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    out += chain * chain_out
    pull += chain * pairs * 3
    i = tl.arange(0, BLOCK)
    if part == 0:
        energy = tl.zeros([BLOCK], tl.float64)
        top = tl.zeros([BLOCK], tl.float32) + float("-inf")
        for first in range(0, nodes, BLOCK):
            n = (first + i).to(tl.int64)
            valid = n < nodes
            row = chain * nodes + n
            atom = tl.load(order + n, mask=valid, other=0)
            energy += tl.load(energies + row, mask=valid, other=0.0).to(tl.float64)
            top = tl.maximum(top, tl.load(deviations + chains * nodes + row, mask=valid, other=float("-inf")))
            tl.store(out + 2 + atom, tl.load(deviations + row, mask=valid, other=0.0).to(tl.float64), mask=valid)
        highest = tl.max(top, 0)
        total = tl.zeros([BLOCK], tl.float64)
        for first in range(0, nodes, BLOCK):
            n = (first + i).to(tl.int64)
            s = tl.load(deviations + (chains + chain) * nodes + n, mask=n < nodes, other=float("-inf"))
            total += tl.exp(s - highest).to(tl.float64)
        tl.store(out, tl.sum(energy, 0))
        count = tl.zeros([1], tl.float64) + nodes
        tl.store(out + 1 + tl.zeros([1], tl.int32), highest.to(tl.float64) + tl.log(tl.sum(total, 0) / count))
    elif part <= shares:
        xx, yy, zz = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
        xy, xz, yz = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
        for first in range((part - 1) * BLOCK, pairs, shares * BLOCK):
            p = (first + i).to(tl.int64)
            # padding rows may hold values of an earlier list
            near = (p < pairs) & (tl.load(unit + p * 4 + 3, mask=p < pairs, other=2.0 * R_MAX) < R_MAX)
            x, y, z = load_vector(vector + p * 3, near)
            fx, fy, fz = load_vector(pull + p * 3, near)
            xx += x * fx
            yy += y * fy
            zz += z * fz
            xy += (x * fy + y * fx) / 2
            xz += (x * fz + z * fx) / 2
            yz += (y * fz + z * fy) / 2
        share = out + 2 + 4 * nodes + (part - 1) * 6
        tl.store(share, tl.sum(xx, 0))
        tl.store(share + 1, tl.sum(yy, 0))
        tl.store(share + 2, tl.sum(zz, 0))
        tl.store(share + 3, tl.sum(xy, 0))
        tl.store(share + 4, tl.sum(xz, 0))
        tl.store(share + 5, tl.sum(yz, 0))
    else:
        n = ((part - 1 - shares) * BLOCK + i).to(tl.int64)
        x, y, z = force_on(n, pull, pair, degree, nodes, slots, BLOCK)
        mine = out + 2 + nodes + tl.load(order + n, mask=n < nodes, other=0) * 3
        tl.store(mine, x, mask=n < nodes)
        tl.store(mine + 1, y, mask=n < nodes)
        tl.store(mine + 2, z, mask=n < nodes)
