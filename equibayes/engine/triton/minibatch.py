"""Kernels that gather a minibatch: the frames of each chain in a step, from data that stay on the device."""

import triton
import triton.language as tl


@triton.jit
def program_rows(count, BLOCK: tl.constexpr):
    """Rows of this program, its chain, and which of the rows exist."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return row, tl.program_id(1).to(tl.int64), row < count


@triton.jit
def frame_at(frames, counter, chain, b, valid, batch, chains):
    """The frame in place b of the minibatch that the counter points to; frames [S, K, B]."""
    return tl.load(frames + (tl.load(counter) * chains + chain) * batch + b, mask=valid, other=0)


@triton.jit(do_not_specialize=["atoms", "slots", "batch", "pair_rows", "chains"])
def gather_atoms(
    frames, counter, f_species, f_degree, f_sender, f_pair, norms, species, degree, sender, pair, norm, atoms, slots, batch, pair_rows,
    chains, BLOCK: tl.constexpr,
):  # fmt: skip
    """The atoms of this step's frames: atom a of the frame in place b is row a·B + b, so that species stay sorted."""
    row, chain, valid = program_rows(atoms * batch, BLOCK)
    a, b = row // batch, row % batch
    place = frame_at(frames, counter, chain, b, valid, batch, chains) * atoms + a
    out = chain * atoms * batch + row
    kind = tl.load(f_species + place, mask=valid, other=0)
    tl.store(species + out, kind, mask=valid)
    tl.store(norm + out, tl.load(norms + kind, mask=valid, other=0.0), mask=valid)
    tl.store(degree + out, tl.load(f_degree + place, mask=valid, other=0), mask=valid)
    for d in range(slots):
        neighbour = tl.load(f_sender + place * slots + d, mask=valid, other=0)
        tl.store(sender + out * slots + d, neighbour * batch + b, mask=valid)
        code = tl.load(f_pair + place * slots + d, mask=valid, other=0)
        tl.store(pair + out * slots + d, code + 2 * pair_rows * b, mask=valid)


@triton.jit(do_not_specialize=["batch", "pair_rows", "chains"])
def gather_pairs(frames, counter, f_vector, f_ends, vector, ends, batch, pair_rows, chains, BLOCK: tl.constexpr):  # fmt: skip
    """Their pairs: pair p of the frame in place b is row b·P + p."""
    row, chain, valid = program_rows(batch * pair_rows, BLOCK)
    b, p = row // pair_rows, row % pair_rows
    place = frame_at(frames, counter, chain, b, valid, batch, chains) * pair_rows + p
    out = chain * batch * pair_rows + row
    for i in tl.static_range(3):
        tl.store(vector + out * 3 + i, tl.load(f_vector + place * 3 + i, mask=valid, other=0.0), mask=valid)
    for i in tl.static_range(2):
        tl.store(ends + out * 2 + i, tl.load(f_ends + place * 2 + i, mask=valid, other=0) * batch + b, mask=valid)


@triton.jit(do_not_specialize=["atoms", "batch", "chains", "seed"])
def dropout(
    mask, frames, counter, f_order, first_step, identities, seed, stream, below, kept, atoms, batch, chains, CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The dropout mask of this step: 0 where a word of the counter-based noise is small, else `kept`.

    Four channels share a counter; it counts atoms frame by frame in their own order, as the reference does.
    """
    QUADS: tl.constexpr = CHANNELS // 4
    i, chain, valid = program_rows(atoms * batch * QUADS, BLOCK)
    row, quad = i // QUADS, i % QUADS
    a, b = row // batch, row % batch
    frame = frame_at(frames, counter, chain, b, valid, batch, chains)
    atom = tl.load(f_order + frame * atoms + a, mask=valid, other=0).to(tl.int32)
    zero = i * 0
    step = (tl.load(first_step) + tl.load(counter)).to(tl.int32)
    count = (b * atoms + atom) * QUADS + quad
    w0, w1, w2, w3 = tl.philox(seed, count, zero + step, zero + tl.load(identities + chain), zero + stream)
    out = mask + (chain * atoms * batch + row) * CHANNELS + quad * 4
    tl.store(out, tl.where(w0.to(tl.int64) < below, 0.0, kept), mask=valid)
    tl.store(out + 1, tl.where(w1.to(tl.int64) < below, 0.0, kept), mask=valid)
    tl.store(out + 2, tl.where(w2.to(tl.int64) < below, 0.0, kept), mask=valid)
    tl.store(out + 3, tl.where(w3.to(tl.int64) < below, 0.0, kept), mask=valid)


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
