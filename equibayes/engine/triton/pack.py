"""The kernel that packs all results for a moving structure into one array."""

import triton
import triton.language as tl

from equibayes.engine.triton.kernels import force_on
from equibayes.engine.triton.virial import store_virial


@triton.jit
def log_sum(deviations, nodes, BLOCK: tl.constexpr):
    """ln Σ exp over the atoms [nodes], float64, in a tensor of one number."""
    i = tl.arange(0, BLOCK)
    top = tl.zeros([BLOCK], tl.float32) + float("-inf")
    for first in range(0, nodes, BLOCK):
        n = (first + i).to(tl.int64)
        top = tl.maximum(top, tl.load(deviations + n, mask=n < nodes, other=float("-inf")))
    highest = tl.max(top, 0)
    total = tl.zeros([BLOCK], tl.float64)
    for first in range(0, nodes, BLOCK):
        n = (first + i).to(tl.int64)
        s = tl.load(deviations + n, mask=n < nodes, other=float("-inf"))
        total += tl.exp(s - highest).to(tl.float64)
    return highest.to(tl.float64) + tl.log(tl.sum(total, 0) + tl.zeros([1], tl.float64))


@triton.jit(do_not_specialize=["nodes", "slots", "pairs", "chains", "shares", "chain_out"])
def pack(
    energies, deviations, pull, pair, degree, vector, unit, order, out, nodes, slots, pairs, chains, shares, chain_out,
    STRESS: tl.constexpr, R_MAX: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """All results of a chain, float64: energy, ln σ_E, ln σ_F and forces of the atoms; shares of the virial (xx, yy,
    zz, xy, xz, yz); with STRESS also ln σ of the virial.

    ln σ_E is the logarithm of the mean of the atoms' exponentials, that of the virial of their sum.  The first program
    of a chain writes energies and deviations, the next ones a share of the virial each, the others the forces on BLOCK
    atoms each.
    """
    chain = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    out += chain * chain_out
    pull += chain * pairs * 3
    i = tl.arange(0, BLOCK)
    if part == 0:
        energy = tl.zeros([BLOCK], tl.float64)
        for first in range(0, nodes, BLOCK):
            n = (first + i).to(tl.int64)
            valid = n < nodes
            row = chain * nodes + n
            atom = tl.load(order + n, mask=valid, other=0)
            energy += tl.load(energies + row, mask=valid, other=0.0).to(tl.float64)
            tl.store(out + 2 + atom, tl.load(deviations + row, mask=valid, other=0.0).to(tl.float64), mask=valid)
        tl.store(out, tl.sum(energy, 0))
        one = tl.zeros([1], tl.int32)
        count = tl.zeros([1], tl.float64) + nodes
        tl.store(out + 1 + one, log_sum(deviations + (chains + chain) * nodes, nodes, BLOCK) - tl.log(count))
        if STRESS:
            last = out + 2 + 4 * nodes + 6 * shares
            tl.store(last + one, log_sum(deviations + (2 * chains + chain) * nodes, nodes, BLOCK))
    elif part <= shares:
        share = part - 1
        store_virial(out + 2 + 4 * nodes + share * 6, vector, pull, unit, share, shares, pairs, R_MAX, BLOCK)
    else:
        n = ((part - 1 - shares) * BLOCK + i).to(tl.int64)
        x, y, z = force_on(n, pull, pair, degree, nodes, slots, BLOCK)
        mine = out + 2 + nodes + tl.load(order + n, mask=n < nodes, other=0) * 3
        tl.store(mine, x, mask=n < nodes)
        tl.store(mine + 1, y, mask=n < nodes)
        tl.store(mine + 2, z, mask=n < nodes)
