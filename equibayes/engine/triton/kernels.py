"""The kernels that do not depend on the irreps: linears, weight gradients, embedding, forces and the radial basis.

Linears and weight gradients are lists of *jobs*: a row of numbers says where a job reads and writes, so that one
launch does a whole stage of the network for all irreps, components and chains.  Every sum has a fixed order, so
results are the same from run to run.
"""

import triton
import triton.language as tl

JOB = 16  # numbers of a job


@triton.jit
def tile_of(start, stride, inner, column, TRANSPOSED: tl.constexpr):
    """Addresses [inner, column] of a tile of a matrix, or of its transpose, and the distance of its inner rows."""
    if TRANSPOSED:
        return start + column[None, :] * stride + inner[:, None], 1
    else:
        return start + inner[:, None] * stride + column[None, :], stride


@triton.jit
def rows_of_type(ranges, chain, kind, graph_nodes, TYPES: tl.constexpr):
    """The first and (one past) the last row of the atoms of one type; see `minibatch.type_ranges`."""
    own = ranges + (chain * (graph_nodes > 0) * TYPES + kind) * 2
    return tl.load(own), tl.load(own + 1)


@triton.jit(do_not_specialize=["rows", "graph_nodes"])
def linear(
    source, weights, out, species, jobs, rows, chain_source, chain_weights, chain_out, graph_nodes,
    TRANSPOSED: tl.constexpr, TYPED: tl.constexpr, TWIN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    INNER: tl.constexpr, PREC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """out = source W + source₂ W₂[species], a tile of ROWS × COLUMNS per program; W transposed in the adjoint passes.

    job: out, its row stride; source, row stride, inner length; W, row stride; source₂, row stride, inner length; W₂,
    stride of a type, row stride.
    TWIN: source is the sum of two arrays; the eighth number of the job is their distance.
    """
    job = jobs + tl.program_id(1) * 16
    chain = tl.program_id(2).to(tl.int64)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    valid = (row < rows)[:, None]
    column, inner = tl.arange(0, COLUMNS), tl.arange(0, INNER)
    source += chain * chain_source
    weights += chain * chain_weights
    out += chain * chain_out
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    length = tl.load(job + 4).to(tl.int32)
    stride = tl.multiple_of(tl.load(job + 3), 16)
    here = source + tl.multiple_of(tl.load(job + 2), 16) + row[:, None] * stride + inner[None, :]
    weight_stride = tl.multiple_of(tl.load(job + 6), 16)
    start = weights + tl.multiple_of(tl.load(job + 5), 16)
    matrix, along = tile_of(start, weight_stride, inner, column, TRANSPOSED)
    if TWIN:
        there = here + tl.multiple_of(tl.load(job + 7), 16)
    for k in tl.range(0, length, INNER, num_stages=STAGES):
        a = tl.load(here + k, mask=valid, other=0.0)
        if TWIN:
            a += tl.load(there + k, mask=valid, other=0.0)
        total = tl.dot(a, tl.load(matrix + k * along), total, input_precision=PREC)
    if TYPED:
        length = tl.load(job + 9).to(tl.int32)
        if length > 0:
            kind = tl.load(species + chain * graph_nodes + row, mask=row < rows, other=-1)
            # rows are sorted by species as far as possible, so a tile seldom has more than one or two
            low = tl.min(tl.where(kind < 0, 1 << 20, kind), 0)
            high = tl.max(kind, 0)
            stride = tl.multiple_of(tl.load(job + 8), 16)
            here = source + tl.multiple_of(tl.load(job + 7), 16) + row[:, None] * stride + inner[None, :]
            type_stride = tl.multiple_of(tl.load(job + 11), 16)
            weight_stride = tl.multiple_of(tl.load(job + 12), 16)
            start = weights + tl.multiple_of(tl.load(job + 10), 16)
            matrix, along = tile_of(start, weight_stride, inner, column, TRANSPOSED)
            turns = length // INNER
            for turn in tl.range(low * turns, (high + 1) * turns, num_stages=STAGES):
                t = turn // turns
                k = (turn - t * turns) * INNER
                a = tl.load(here + k, mask=(kind == t)[:, None], other=0.0)
                total = tl.dot(a, tl.load(matrix + t * type_stride + k * along), total, input_precision=PREC)
    row_stride = tl.multiple_of(tl.load(job + 1), 16)
    out += tl.multiple_of(tl.load(job), 16)
    tl.store(out + row[:, None] * row_stride + column[None, :], total, mask=valid)


@triton.jit(do_not_specialize=["rows"])
def wide_linear(
    source, weights, out, jobs, rows, chain_source, chain_weights, chain_out,
    ROWS: tl.constexpr, INNER: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr, PREC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """out = source W for a wide W: a program keeps its rows of the source and goes through the columns.

    job: out, row stride of out and W; source, row stride; W; how many columns.
    WIDE: the inner length padded to a power of two.
    """
    job = jobs + tl.program_id(1) * 16
    chain = tl.program_id(2).to(tl.int64)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    valid = (row < rows)[:, None]
    column, inner = tl.arange(0, COLUMNS), tl.arange(0, WIDE)
    columns = tl.multiple_of(tl.load(job + 1), 16)
    source += chain * chain_source + tl.multiple_of(tl.load(job + 2), 16)
    weights += chain * chain_weights + tl.multiple_of(tl.load(job + 4), 16)
    out += chain * chain_out + tl.multiple_of(tl.load(job), 16)
    stride = tl.multiple_of(tl.load(job + 3), 16)
    a = tl.load(source + row[:, None] * stride + inner[None, :], mask=valid & (inner < INNER)[None, :], other=0.0)
    for c in tl.range(0, tl.load(job + 5).to(tl.int32), COLUMNS, num_stages=STAGES):
        matrix = weights + inner[:, None] * columns + c + column[None, :]
        if INNER == WIDE:
            w = tl.load(matrix)
        else:
            w = tl.load(matrix, mask=(inner < INNER)[:, None], other=0.0)
        total = tl.dot(a, w, input_precision=PREC)
        tl.store(out + row[:, None] * columns + c + column[None, :], total, mask=valid)


@triton.jit(do_not_specialize=["nodes", "graph_nodes"])
def weight_gradient(
    left, right, out, species, ranges, jobs, nodes, version, chain_left, chain_right, chain_out, part_out, graph_nodes,
    TYPES: tl.constexpr, SORTED: tl.constexpr, TWIN: tl.constexpr, ROWS: tl.constexpr, INNER: tl.constexpr,
    COLUMNS: tl.constexpr, PREC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """W̃ = xᵀ ỹ + ẋᵀ ȳ, a tile of INNER × COLUMNS per program, in partial sums over rows that the sampler adds up.

    job: out, its row stride; left, row stride; right, row stride; rows of an atom; type of the atoms (−1: all);
    versions; TWIN: distance of a second array to be added to the right one.
    SORTED: no other atoms lie between those of one type.
    """
    job = jobs + tl.program_id(0) * 16
    chain = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    left += chain * chain_left + tl.multiple_of(tl.load(job + 2), 16)
    right += chain * chain_right + tl.multiple_of(tl.load(job + 4), 16)
    inner, column, lane = tl.arange(0, INNER), tl.arange(0, COLUMNS), tl.arange(0, ROWS)
    left_stride, right_stride = tl.multiple_of(tl.load(job + 3), 16), tl.multiple_of(tl.load(job + 5), 16)
    components, kind = tl.load(job + 6).to(tl.int32), tl.load(job + 7).to(tl.int32)
    versions = tl.load(job + 8).to(tl.int32)
    low, high = 0, nodes
    species += chain * graph_nodes
    if kind >= 0:
        low, high = rows_of_type(ranges, chain, kind, graph_nodes, TYPES)
    low, high = low * components, high * components
    turns = (high - low + ROWS - 1) // ROWS
    count = versions * turns
    share = (count + tl.num_programs(2) - 1) // tl.num_programs(2)
    if TWIN:
        twin = tl.multiple_of(tl.load(job + 9), 16)
    total = tl.zeros([INNER, COLUMNS], tl.float32)
    # nothing in this loop depends on what another load brings, so that loads can run ahead
    for i in tl.range(part * share, tl.minimum(count, part * share + share), num_stages=STAGES):
        v = i // turns
        number = low + (i - v * turns) * ROWS + lane
        valid = number < high
        if not SORTED:
            own = tl.load(species + number // components, mask=valid, other=0)
            valid = valid & ((own == kind) | (own * 0 + kind < 0))
        row = number.to(tl.int64)[:, None]
        # versions: value with tilde, then tangent with adjoint
        a = tl.load(left + v * 2 * version + row * left_stride + inner[None, :], mask=valid[:, None], other=0.0)
        here = right + (1 - v) * 2 * version + row * right_stride + column[None, :]
        b = tl.load(here, mask=valid[:, None], other=0.0)
        if TWIN:
            b += tl.load(here + twin, mask=valid[:, None], other=0.0)
        total = tl.dot(tl.trans(a), b, total, input_precision=PREC)
    out += chain * chain_out + part.to(tl.int64) * part_out + tl.multiple_of(tl.load(job), 16)
    tl.store(out + inner[:, None] * tl.multiple_of(tl.load(job + 1), 16) + column[None, :], total)


@triton.jit
def pieced(place, apart, valid, PIECES: tl.constexpr):
    """The sum of the pieces into which linears have divided a result, stored in place of the first piece."""
    total = tl.load(place, mask=valid, other=0.0)
    if PIECES > 1:
        for piece in tl.static_range(1, PIECES):
            total += tl.load(place + piece * apart, mask=valid, other=0.0)
        tl.store(place, total, mask=valid)
    return total


@triton.jit(do_not_specialize=["nodes", "start", "embedding", "graph_nodes"])
def embed(
    arena, weights, species, nodes, start, embedding, chain_arena, chain_weights, graph_nodes, CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """x = embedding[species]."""
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    chain = tl.program_id(1).to(tl.int64)
    n = i // CHANNELS
    valid = n < nodes
    kind = tl.load(species + chain * graph_nodes + n, mask=valid, other=0)
    value = tl.load(weights + chain * chain_weights + embedding + kind * CHANNELS + i % CHANNELS, mask=valid, other=0.0)
    tl.store(arena + chain * chain_arena + start + i, value, mask=valid)


@triton.jit(do_not_specialize=["start", "embedding", "graph_nodes"])
def embedding_gradient(
    arena, out, species, ranges, start, embedding, chain_arena, chain_out, graph_nodes, TYPES: tl.constexpr,
    CHANNELS: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The sum of x̃ over the atoms of one type."""
    kind = tl.program_id(0)
    chain = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, WIDE)
    used = (c < CHANNELS)[None, :]
    total = tl.zeros([ROWS, WIDE], tl.float32)
    low, high = rows_of_type(ranges, chain, kind, graph_nodes, TYPES)
    for first in range(low, high, ROWS):
        n = (first + tl.arange(0, ROWS)).to(tl.int64)
        own = tl.load(species + chain * graph_nodes + n, mask=n < high, other=-1) == kind
        here = arena + chain * chain_arena + start + n[:, None] * CHANNELS + c[None, :]
        total += tl.load(here, mask=own[:, None] & used, other=0.0)
    tl.store(out + chain * chain_out + embedding + kind * CHANNELS + c, tl.sum(total, 0), mask=c < CHANNELS)


@triton.jit(do_not_specialize=["parts", "size"])
def add_partial(
    partial, out, places, parts, size, chain_out, LAYERS: tl.constexpr, BESSELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Adds up the partial sums of the radial networks; those of the frequencies also over the layers."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chain = tl.program_id(1).to(tl.int64)
    partial += chain * parts * LAYERS * size
    total = tl.zeros([BLOCK], tl.float32)
    own = size - BESSELS  # numbers of a layer besides the frequencies
    layer, rest = i // own, i % own
    valid = i < LAYERS * own
    for part in range(parts):
        total += tl.load(partial + (part * LAYERS + layer) * size + rest, mask=valid, other=0.0)
    frequency = (i >= LAYERS * own) & (i < LAYERS * own + BESSELS)
    for row in range(parts * LAYERS):
        total += tl.load(partial + row * size + own + i - LAYERS * own, mask=frequency, other=0.0)
    place = tl.load(places + i, mask=valid | frequency, other=0)
    tl.store(out + chain * chain_out + place, total, mask=valid | frequency)


@triton.jit(do_not_specialize=["nodes", "slots", "pairs", "graph_nodes"])
def atom_forces(gradient, pair, degree, out, nodes, slots, pairs, graph_nodes, BLOCK: tl.constexpr):
    """Forces [chain, atom, 3]; see `force_on`."""
    n = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    chain = tl.program_id(1).to(tl.int64)
    pair, degree = pair + chain * graph_nodes * slots, degree + chain * graph_nodes
    x, y, z = force_on(n, gradient + chain * pairs * 3, pair, degree, nodes, slots, BLOCK)
    out += (chain * nodes + n) * 3
    tl.store(out, x.to(tl.float32), mask=n < nodes)
    tl.store(out + 1, y.to(tl.float32), mask=n < nodes)
    tl.store(out + 2, z.to(tl.float32), mask=n < nodes)


@triton.jit
def force_on(n, gradient, pair, degree, nodes, slots, BLOCK: tl.constexpr):
    """F_n = Σ_slots sign · ∂E/∂vector of the pair; the vector points from the first atom of a pair to the second."""
    count = tl.load(degree + n, mask=n < nodes, other=0)
    x, y, z = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    for d in range(tl.max(count, 0)):
        valid = d < count
        code = tl.load(pair + n * slots + d, mask=valid, other=0)
        sign = 1.0 - 2.0 * (code % 2)
        g = gradient + (code // 2).to(tl.int64) * 3
        x += sign * tl.load(g, mask=valid, other=0.0)
        y += sign * tl.load(g + 1, mask=valid, other=0.0)
        z += sign * tl.load(g + 2, mask=valid, other=0.0)
    return x, y, z


@triton.jit
def bessel_basis(
    unit, weights, p, valid, b, R_MAX: tl.constexpr, P: tl.constexpr, ON: tl.constexpr, BESSELS: tl.constexpr
):
    """Bessel functions times the cutoff (harmonics.radial_basis), their slopes, and ∂ of both by the frequencies.

    ON: where an XPLOR cutoff begins, in units of R_MAX; negative: the polynomial cutoff.
    """
    r = tl.load(unit + p * 4 + 3, mask=valid, other=2.0 * R_MAX)[:, None]
    x = tl.minimum(r / R_MAX, 1.0)
    used = (b < BESSELS)[None, :]
    w = 3.141592653589793 * (tl.load(weights + b, mask=b < BESSELS, other=0.0) + b + 1.0)[None, :]
    if ON >= 0:
        # (1 − q²)² (1 + 2q² − 3on²)/(1 − on²)³ and its derivative 12 q (1 − q²)(on² − q²)/(1 − on²)³; see xplor_cutoff
        q = tl.maximum(x, ON)
        rest = 1.0 - q * q
        scale_cut = 1.0 / ((1.0 - ON * ON) * (1.0 - ON * ON) * (1.0 - ON * ON))
        cut = rest * rest * (1.0 + 2.0 * q * q - 3.0 * ON * ON) * scale_cut
        cut1 = 12.0 * q * rest * (ON * ON - q * q) * scale_cut
    else:
        # (1 − x)³ Σ_k (k+1)(k+2)/2 xᵏ and its derivative −p(p+1)(p+2)/2 xᵖ⁻¹ (1 − x)²; see polynomial_cutoff
        cut = x * 0 + P * (P + 1) / 2
        power = x * 0 + 1.0
        for i in tl.static_range(P - 1):
            cut = cut * x + (P - 1 - i) * (P - i) / 2
            power = power * x
        rest = 1.0 - x
        cut = cut * rest * rest * rest
        cut1 = -(P * (P + 1) * (P + 2) / 2) * power * rest * rest
    sine, cosine = tl.sin(w * x), tl.cos(w * x)
    scale = 2.0 / (R_MAX * R_MAX)
    value = tl.where(used, scale * sine / x * cut, 0.0)
    slope = tl.where(used, scale / R_MAX * ((w * cosine / x - sine / (x * x)) * cut + sine / x * cut1), 0.0)
    value_w = tl.where(used, scale * 3.141592653589793 * cosine * cut, 0.0)
    slope_w = tl.where(used, scale / R_MAX * 3.141592653589793 * (cosine * cut1 - w * sine * cut), 0.0)
    return value, slope, value_w, slope_w
