"""What stands behind the network for atoms that move: all results in one array."""

import triton
import triton.language as tl

from equibayes.network.triton.kernels import force_on


@triton.jit(do_not_specialize=["nodes", "slots", "pairs", "chains"])
def pack(
    energies, deviations, pull, pair, degree, vector, unit, order, out, nodes, slots, pairs, chains, R_MAX: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """All results of a chain, float64: energy, ln σ_E, virial (9), then ln σ_F and forces of each atom.

    ln σ_E is the logarithm of the mean of the atoms' exponentials.   The first program of a chain writes energies and deviations, the
    second the virial, the others the forces on BLOCK atoms each.
    """
    chain = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    out += chain * (11 + 4 * nodes)
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
            tl.store(out + 11 + atom, tl.load(deviations + row, mask=valid, other=0.0).to(tl.float64), mask=valid)
        highest = tl.max(top, 0)
        total = tl.zeros([BLOCK], tl.float64)
        for first in range(0, nodes, BLOCK):
            n = (first + i).to(tl.int64)
            s = tl.load(deviations + (chains + chain) * nodes + n, mask=n < nodes, other=float("-inf"))
            total += tl.exp(s - highest).to(tl.float64)
        tl.store(out, tl.sum(energy, 0))
        count = tl.zeros([1], tl.float64) + nodes
        tl.store(out + 1 + tl.zeros([1], tl.int32), highest.to(tl.float64) + tl.log(tl.sum(total, 0) / count))
    elif part == 1:
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
            fx = tl.load(pull + p * 3, mask=near, other=0.0).to(tl.float64)
            fy = tl.load(pull + p * 3 + 1, mask=near, other=0.0).to(tl.float64)
            fz = tl.load(pull + p * 3 + 2, mask=near, other=0.0).to(tl.float64)
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
    else:
        n = ((part - 2) * BLOCK + i).to(tl.int64)
        x, y, z = force_on(n, pull, pair, degree, nodes, slots, BLOCK)
        mine = out + 11 + nodes + tl.load(order + n, mask=n < nodes, other=0) * 3
        tl.store(mine, x, mask=n < nodes)
        tl.store(mine + 1, y, mask=n < nodes)
        tl.store(mine + 2, z, mask=n < nodes)
