"""The kernel of the likelihood of energies and forces, with its derivatives; that of the stress is in virial.py.

L = −N/|batch| Σ ln p, without the prior.  With z = (label − mean)/σ of an energy or force component and s = ln σ:

    ∂L/∂mean = −N/|batch| z/σ,      ∂L/∂s = N/|batch| (1 − z²)
"""

import triton
import triton.language as tl


@triton.jit
def least_pull(balances, counter, deviations, n, real):
    """The balance of this step over Σ σ_F² of the atoms n of a structure; deviations: ln σ_F."""
    s = tl.load(deviations + n, mask=real, other=0.0)
    return tl.load(balances + tl.load(counter)) / tl.sum(tl.where(real, tl.exp(2.0 * s), 0.0), 0)


@triton.jit(do_not_specialize=["atoms", "batch", "chains"])
def likelihood(
    frames, counter, balances, f_count, f_energy, f_forces, energies, forces, deviations, direction, deviation_tilde,
    energy_bar, summary, atoms, batch, scale, chains, SQUARES: tl.constexpr, ATOMS: tl.constexpr,
):  # fmt: skip
    """ln p of one structure of one chain and its derivatives: v = −∂L/∂F, ∂L/∂ln σ of every atom and ∂L/∂E.

    SQUARES: no deviations, −½ Σ (ΔF)² − 3/2 n (ΔE/n)² of n atoms (up to a constant) in place of ln p.
    balances [S]: 1/σ² of the energy in ∂L/∂mean is at least this times 3 / Σ σ_F²; 0: no bound.
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
    if SQUARES:
        log_sigma = 0.5 * tl.log(count.to(tl.float32) / 3.0)
    inverse = tl.exp(-log_sigma)
    z = tl.where(known > 0, label - energy, 0.0).to(tl.float32) * inverse
    if SQUARES:
        log_p = (-0.5 * z * z).to(tl.float64)
    else:
        log_p = (known * (-0.5 * z * z - log_sigma - 0.9189385332046727)).to(tl.float64)
    pull = inverse
    if not SQUARES:
        pull = tl.maximum(inverse, least_pull(balances, counter, deviations, n, real) * 3.0 / inverse)
    tl.store(energy_bar + n, tl.where(real, -scale * z * pull, 0.0), mask=there)
    share = 0.0 if SQUARES else scale * known * (1.0 - z * z) / total
    tl.store(deviation_tilde + chains * nodes + n, tl.where(real, share * weight, 0.0), mask=there)
    # forces
    s = tl.load(deviations + n, mask=real, other=0.0)
    log_sigmas = s * 0.0 if SQUARES else s
    inverse = tl.exp(-log_sigmas)
    squares = tl.zeros([ATOMS], tl.float32)
    wrong = tl.zeros([ATOMS], tl.float32)
    for i in tl.static_range(3):
        label = tl.load(f_forces + (frame * atoms + a) * 3 + i, mask=real, other=0.0)
        error = label - tl.load(forces + n * 3 + i, mask=real, other=0.0)
        z = error * inverse
        squares += z * z
        wrong += tl.abs(error) / 3
        tl.store(direction + n * 3 + i, tl.where(real, scale * z * inverse, 0.0), mask=there)
    asked = s * 0.0 if SQUARES else scale * (3.0 - squares)
    tl.store(deviation_tilde + n, tl.where(real, asked, 0.0), mask=there)
    log_p += tl.sum(tl.where(real, -0.5 * squares - 3 * log_sigmas - 2.756815599614018, 0.0).to(tl.float64), 0)
    out = summary + (chain * batch + b) * 4
    tl.store(out, log_p)
    tl.store(out + 1, tl.sum(wrong, 0).to(tl.float64))
    tl.store(out + 2, tl.sum(tl.where(real, tl.exp(s), 0.0), 0).to(tl.float64))
    tl.store(out + 3, count.to(tl.float64))
