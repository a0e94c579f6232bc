"""Kernels of the virial ∂E/∂strain and of the likelihood of the stress.

L = −N/|batch| Σ ln p.  With the stress S = ∂E/∂strain / V, the error Δ = label − S, its Frobenius norm, and s = ln σ_S:

    ∂L/∂S = −N/|batch| Δ/σ²,      ∂L/∂s = N/|batch| (6 − |Δ|²/σ²)
"""

import triton
import triton.language as tl

from equibayes.engine.triton.likelihood import least_pull

SHARES = 16
"""Programs that add up the virial of a frame."""


@triton.jit
def load_vector(place, valid):
    """Three components in float64, zeros where not valid."""
    x = tl.load(place, mask=valid, other=0.0).to(tl.float64)
    y = tl.load(place + 1, mask=valid, other=0.0).to(tl.float64)
    return x, y, tl.load(place + 2, mask=valid, other=0.0).to(tl.float64)


@triton.jit
def store_virial(out, vector, pull, unit, share, shares, pairs, R_MAX: tl.constexpr, BLOCK: tl.constexpr):
    """xx, yy, zz, xy, xz, yz of the virial, symmetric, of every `shares`-th block of pairs from block `share` on.

    pull [pairs, 3]: ∂E/∂vector
    """
    xx, yy, zz = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    xy, xz, yz = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    for first in range(share * BLOCK, pairs, shares * BLOCK):
        p = (first + tl.arange(0, BLOCK)).to(tl.int64)
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
    tl.store(out, tl.sum(xx, 0))
    tl.store(out + 1, tl.sum(yy, 0))
    tl.store(out + 2, tl.sum(zz, 0))
    tl.store(out + 3, tl.sum(xy, 0))
    tl.store(out + 4, tl.sum(xz, 0))
    tl.store(out + 5, tl.sum(yz, 0))


@triton.jit(do_not_specialize=["pair_rows", "batch", "shares"])
def frame_virials(
    vector, pull, unit, out, pair_rows, batch, shares, R_MAX: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Shares of the virial of the frames of a minibatch, out [chains, batch, shares, 6]."""
    frame = tl.program_id(1).to(tl.int64) * batch + tl.program_id(0)
    share = tl.program_id(2)
    first = frame * pair_rows
    out += (frame * shares + share) * 6
    store_virial(out, vector + first * 3, pull + first * 3, unit + first * 4, share, shares, pair_rows, R_MAX, BLOCK)


@triton.jit
def component(virials, label, volume, i, SHARES: tl.constexpr):
    """The error of one component of the stress: label minus prediction."""
    value = tl.sum(tl.load(virials + tl.arange(0, SHARES) * 6 + i), 0)
    return tl.load(label + i).to(tl.float64) - value / volume


@triton.jit(do_not_specialize=["atoms", "batch", "chains"])
def stress_likelihood(
    frames, counter, balances, f_count, f_volume, f_stress, virials, force_deviations, deviations, strain, deviation_tilde,
    summary, atoms, batch, scale, chains, SQUARES: tl.constexpr, ATOMS: tl.constexpr, SHARES: tl.constexpr,
):  # fmt: skip
    """What the stress of one structure of one chain adds to ln p in `summary`, and its derivatives: the strain ε =
    ∂L/∂S / V [chains, batch, 3, 3] and ∂L/∂ln σ of every atom; 0 without a label.

    f_stress [F, 6]: xx, yy, zz, xy, xz, yz, NaN without a label;  f_volume [F]: NaN where there is none
    deviations, deviation_tilde [chains, nodes]: of the head of the stress
    balances [S]: 1/σ² in ∂L/∂S is at least this times V² / 3 Σ σ_F²; 0: no bound.  force_deviations: ln σ_F
    SQUARES: no deviations, −½ (V²/3n) |Δ|² in place of ln p.
    """
    b = tl.program_id(0)
    chain = tl.program_id(1).to(tl.int64)
    frame = tl.load(frames + (tl.load(counter) * chains + chain) * batch + b)
    count = tl.load(f_count + frame)
    volume = tl.load(f_volume + frame)
    own = chain * batch + b
    label, virials = f_stress + frame * 6, virials + own * SHARES * 6
    xx, yy = component(virials, label, volume, 0, SHARES), component(virials, label, volume, 1, SHARES)
    zz, xy = component(virials, label, volume, 2, SHARES), component(virials, label, volume, 3, SHARES)
    xz, yz = component(virials, label, volume, 4, SHARES), component(virials, label, volume, 5, SHARES)
    norm = xx * xx + yy * yy + zz * zz + 2 * (xy * xy + xz * xz + yz * yz)
    known = norm == norm  # not NaN: there are a label and a volume
    a = tl.arange(0, ATOMS)
    real, there = a < count, a < atoms
    n = chain * atoms * batch + a * batch + b
    s = tl.load(deviations + n, mask=real, other=float("-inf"))
    top = tl.max(s, 0)
    weight = tl.where(real, tl.exp(s - top), 0.0)
    total = tl.sum(weight, 0)
    log_sigma = top.to(tl.float64) + tl.log(total.to(tl.float64)) - tl.log(volume)
    if SQUARES:
        precision = volume * volume / (3.0 * count)
        log_p = -0.5 * precision * norm
        share = log_p * 0.0
        pull = precision
    else:
        precision = tl.exp(-2.0 * log_sigma)
        log_p = -0.5 * precision * norm - 6.0 * log_sigma - 5.513631199228036
        share = scale * (6.0 - precision * norm) / total.to(tl.float64)
        least = least_pull(balances, counter, force_deviations, n, real).to(tl.float64)
        pull = tl.maximum(precision, least * volume * volume / 3.0)
    out = summary + own * 4
    tl.store(out, tl.load(out) + tl.where(known, log_p, 0.0))
    asked = tl.where(known, share, 0.0).to(tl.float32) * weight
    tl.store(deviation_tilde + n, tl.where(real, asked, 0.0), mask=there)
    factor = tl.where(known, -scale * pull / volume, 0.0)
    strain += own * 9
    tl.store(strain, tl.where(known, factor * xx, 0.0).to(tl.float32))
    tl.store(strain + 4, tl.where(known, factor * yy, 0.0).to(tl.float32))
    tl.store(strain + 8, tl.where(known, factor * zz, 0.0).to(tl.float32))
    xy, xz, yz = (
        tl.where(known, factor * xy, 0.0),
        tl.where(known, factor * xz, 0.0),
        tl.where(known, factor * yz, 0.0),
    )
    tl.store(strain + 1, xy.to(tl.float32))
    tl.store(strain + 3, xy.to(tl.float32))
    tl.store(strain + 2, xz.to(tl.float32))
    tl.store(strain + 6, xz.to(tl.float32))
    tl.store(strain + 5, yz.to(tl.float32))
    tl.store(strain + 7, yz.to(tl.float32))
