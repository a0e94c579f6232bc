"""The sampler's step, `sghmc.step`, as one kernel over the flat buffer, with its noise drawn inside."""

import triton
import triton.language as tl


@triton.jit
def normals(seed, quad, step, chain, stream):
    """Four standard normals for each counter, as in noise.py: the same Philox words, the same Box–Muller pairs."""
    zero = quad * 0
    w0, w1, w2, w3 = tl.philox(seed, quad, zero + step, zero + chain, zero + stream)
    turn: tl.constexpr = 1.4629180792671596e-09  # 2π/2³²
    unit: tl.constexpr = 2.3283064365386963e-10  # 1/2³²
    r0 = tl.sqrt(-2.0 * tl.log((w0.to(tl.float32) + 1.0) * unit))
    r1 = tl.sqrt(-2.0 * tl.log((w2.to(tl.float32) + 1.0) * unit))
    a0, a1 = w1.to(tl.float32) * turn, w3.to(tl.float32) * turn
    # order 4q, 4q+1, 4q+2, 4q+3
    even = tl.interleave(r0 * tl.cos(a0), r1 * tl.cos(a1))
    odd = tl.interleave(r0 * tl.sin(a0), r1 * tl.sin(a1))
    return tl.interleave(even, odd)


@triton.jit(do_not_specialize=["size", "seed", "stream"])
def draw(out, identities, seed, step, stream, size, QUADS: tl.constexpr):
    """The noise of a step alone, [K, size], for tests."""
    quad = tl.program_id(0) * QUADS + tl.arange(0, QUADS)
    chain = tl.program_id(1)
    p = tl.program_id(0) * 4 * QUADS + tl.arange(0, 4 * QUADS)
    z = normals(seed, quad, tl.load(step).to(tl.int32), tl.load(identities + chain), stream)
    tl.store(out + chain.to(tl.int64) * size + p, z, mask=p < size)


@triton.jit
def own_gradient(
    θ, p, row, where, valid, chain, parts, prior_terms, scale, center, precision, weight, size, padded, chains, PARTS: tl.constexpr,
    CENTRED: tl.constexpr, CENTRE_PER_CHAIN: tl.constexpr,
):  # fmt: skip
    """∇û with the prior; −ln p(θ) of the prior before the step is written, one per program."""
    g = tl.load(parts + where, mask=valid, other=0.0)
    for part in tl.static_range(1, PARTS):
        g += tl.load(parts + part * chains * padded + where, mask=valid, other=0.0)
    g = g * tl.load(scale + p, mask=valid, other=0.0)
    away, stiffness = θ, 1.0
    if CENTRED:
        c = p + chain.to(tl.int64) * size if CENTRE_PER_CHAIN else p
        away = θ - tl.load(center + c, mask=valid, other=0.0)
        stiffness = tl.load(precision + p, mask=valid, other=0.0)
    pulled = away * stiffness
    tl.store(prior_terms + chain * tl.num_programs(0) + tl.program_id(0), tl.sum(0.5 * away * pulled, 0))
    return g + weight * pulled


@triton.jit(do_not_specialize=["size", "padded", "chains"])
def collect(
    position, parts, gradient, prior_terms, scale, place, center, precision, table, counter, size, padded, chains,
    PARTS: tl.constexpr, CENTRED: tl.constexpr, CENTRE_PER_CHAIN: tl.constexpr, QUADS: tl.constexpr,
):  # fmt: skip
    """∇û of every chain alone, for a matrix mass; arguments as of `update`."""
    chain = tl.program_id(1)
    p = tl.program_id(0) * 4 * QUADS + tl.arange(0, 4 * QUADS)
    valid = p < size
    row = chain.to(tl.int64) * size + p
    θ = tl.load(position + row, mask=valid, other=0.0)
    where = chain.to(tl.int64) * padded + tl.load(place + p, mask=valid, other=0)
    weight = tl.load(table + (tl.load(counter) * chains + chain) * 7 + 4)
    g = own_gradient(
        θ, p, row, where, valid, chain, parts, prior_terms, scale, center, precision, weight, size, padded, chains, PARTS, CENTRED,
        CENTRE_PER_CHAIN,
    )  # fmt: skip
    tl.store(gradient + row, g, mask=valid)


@triton.jit(do_not_specialize=["size", "seed", "padded", "chains"])
def update(
    position, momentum, average, maximum, mass, parts, weights, gradient, prior_terms, scale, place, center, precision, table, counter,
    first_step, identities, seed, size, padded, chains, friction, beta, epsilon, data_size, PARTS: tl.constexpr, PAPER: tl.constexpr,
    CENTRED: tl.constexpr, CENTRE_PER_CHAIN: tl.constexpr, MATRIX: tl.constexpr, QUADS: tl.constexpr,
):  # fmt: skip
    """One step of every chain (the equations are in sghmc.py and mass.py).

    parts [PARTS, K, padded]: gradient by the forward weights, in sums to be added up
    place [P]: where a parameter lies there;  scale [P]: from stored to forward weights
    table [S, K, 7]: Δt, noise deviation, whether the mass adapts (2: first time), bias correction, weight of the prior
    Also written: forward weights of the next step, ∇û, and −ln p(θ) of the prior before the step, one per program.
    MATRIX: ``gradient`` is ∇û in the basis, which is replaced by the move of θ in the basis; nothing else is written.
    """
    quad = tl.program_id(0) * QUADS + tl.arange(0, QUADS)
    chain = tl.program_id(1)
    p = tl.program_id(0) * 4 * QUADS + tl.arange(0, 4 * QUADS)
    valid = p < size
    row = chain.to(tl.int64) * size + p
    now = tl.load(counter)
    table += (now * chains + chain) * 7
    dt, deviation, adapt, correction = tl.load(table), tl.load(table + 1), tl.load(table + 2), tl.load(table + 3)
    r = tl.load(momentum + row, mask=valid, other=0.0)
    m = tl.load(mass + row, mask=valid, other=1.0)
    where = chain.to(tl.int64) * padded + tl.load(place + p, mask=valid, other=0)
    if MATRIX:
        θ = r * 0
        g = tl.load(gradient + row, mask=valid, other=0.0)
    else:
        θ = tl.load(position + row, mask=valid, other=0.0)
        g = own_gradient(
            θ, p, row, where, valid, chain, parts, prior_terms, scale, center, precision, tl.load(table + 4), size, padded, chains,
            PARTS, CENTRED, CENTRE_PER_CHAIN,
        )  # fmt: skip
        tl.store(gradient + row, g, mask=valid)
    if adapt > 0:
        scaled = g / data_size
        a = tl.load(average + row, mask=valid, other=0.0) * beta + (1 - beta) * scaled * scaled
        most = tl.maximum(tl.load(maximum + row, mask=valid, other=0.0), a)
        grown = tl.sqrt(most / correction) + epsilon
        tl.store(average + row, a, mask=valid)
        tl.store(maximum + row, most, mask=valid)
        tl.store(mass + row, grown, mask=valid)
        if adapt < 2:
            r = r * tl.sqrt(m / grown)
        m = grown
    h = dt / tl.sqrt(m)
    noise = deviation * normals(seed, quad, (tl.load(first_step) + now).to(tl.int32), tl.load(identities + chain), 0)
    if PAPER:
        r = r * (1 - friction) - h * g + noise
        θ += h * r
    else:
        r = r - h * g
        θ += 0.5 * h * r
        r = r * (1 - friction) + noise
        θ += 0.5 * h * r
    tl.store(momentum + row, r, mask=valid)
    if MATRIX:
        tl.store(gradient + row, θ, mask=valid)
    else:
        tl.store(position + row, θ, mask=valid)
        tl.store(weights + where, θ * tl.load(scale + p, mask=valid, other=0.0), mask=valid)
