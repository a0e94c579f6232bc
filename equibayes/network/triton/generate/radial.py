"""The radial network, forward to its last hidden layer and back."""

from equibayes.network.config import NetworkConfig
from equibayes.network.triton.generate.writing import Writer


def radial(config: NetworkConfig) -> str:
    """Both directions of the radial network up to its last hidden layer, for value and slope together.

    Forward, with B and B' = dB/dr of the Bessel functions, hidden layers h_0 = B W_0, h_i = silu(h_{i−1}) W_i:

        a_i = silu(h_i),   a'_i = silu'(h_i) h'_i

    Backward, from ã and ã' of the last one:

        h̃'_i = silu'(h_i) ã'_i,    h̃_i = silu'(h_i) ã_i + silu''(h_i) h'_i ã'_i,    W̃_i = a_{i−1}ᵀ h̃_i + a'_{i−1}ᵀ h̃'_i
    """
    depth, size = config.radial_mlp_depth, config.radial_mlp_width
    write = Writer()
    write(
        "@triton.jit",
        "def _basis(unit, weights, p, valid, b, R_MAX: tl.constexpr, P: tl.constexpr, BESSELS: tl.constexpr):",
    )
    with write:
        write(
            "r = tl.load(unit + p*4 + 3, mask=valid, other=2.0*R_MAX)[:, None]",
            "x = tl.minimum(r/R_MAX, 1.0)",
            "used = (b < BESSELS)[None, :]",
            "w = 3.141592653589793*(tl.load(weights + b, mask=b < BESSELS, other=0.0) + b + 1.0)[None, :]",
            # (1 − x)³ Σ_k (k+1)(k+2)/2 x^k and its derivative −p(p+1)(p+2)/2 x^(p−1) (1 − x)²; see polynomial_cutoff
            "cut = x*0 + P*(P + 1)/2",
            "power = x*0 + 1.0",
        )
        with write.block("for i in tl.static_range(P - 1):"):
            write("cut = cut*x + (P - 1 - i)*(P - i)/2", "power = power*x")
        write(
            "rest = 1.0 - x",
            "cut = cut*rest*rest*rest",
            "cut1 = -(P*(P + 1)*(P + 2)/2)*power*rest*rest",
            "sine = tl.sin(w*x)",
            "cosine = tl.cos(w*x)",
            "scale = 2.0/(R_MAX*R_MAX)",
            "value = tl.where(used, scale*sine/x*cut, 0.0)",
            "slope = tl.where(used, scale/R_MAX*((w*cosine/x - sine/(x*x))*cut + sine/x*cut1), 0.0)",
            # by the frequency
            "value_w = tl.where(used, scale*3.141592653589793*cosine*cut, 0.0)",
            "slope_w = tl.where(used, scale/R_MAX*3.141592653589793*(cosine*cut1 - w*sine*cut), 0.0)",
            "return value, slope, value_w, slope_w",
        )

    constants = ("R_MAX", "P", "BESSELS", "FIRST_PREC", "PREC", "BLOCK")
    arguments = ", ".join(f"{name}: tl.constexpr" for name in constants)
    columns = 1 << (size - 1).bit_length()
    fits = "" if columns == size else f", mask=(c[:, None] < {size}) & (c[None, :] < {size}), other=0.0"

    def load_weights() -> None:
        write(
            f"c = tl.arange(0, {columns})",
            f"b = tl.arange(0, {max(16, 1 << (config.num_bessels - 1).bit_length())})",
            f"used = (b[:, None] < BESSELS) & (c[None, :] < {size})",
            f"w0 = tl.load(weights + tl.load(offsets + layer*{depth}) + b[:, None]*{size} + c[None, :], mask=used, other=0.0)",
        )
        for i in range(1, depth):
            start = f"weights + tl.load(offsets + layer*{depth} + {i})"
            write(f"w{i} = tl.load({start} + c[:, None]*{size} + c[None, :]{fits})")

    def forward() -> None:
        write("value, slope, value_w, slope_w = _basis(unit, weights + bessel, p, valid, b, R_MAX, P, BESSELS)")
        for i in range(depth):
            inputs = ("value", "slope") if i == 0 else (f"a{i - 1}", f"d{i - 1}")
            precision = "PREC" if i else "FIRST_PREC"
            write(
                f"h{i} = tl.dot({inputs[0]}, w{i}, input_precision={precision})",
                f"g{i} = tl.dot({inputs[1]}, w{i}, input_precision={precision})",
                f"s{i} = tl.sigmoid(h{i})",
                f"a{i} = h{i}*s{i}",
                f"f{i} = s{i}*(1 + h{i}*(1 - s{i}))",
                f"d{i} = f{i}*g{i}",
            )

    row_mask = "valid[:, None]" if columns == size else f"valid[:, None] & (c[None, :] < {size})"
    write("", "", '@triton.jit(do_not_specialize=["pairs", "bessel", "graph_pairs"])')
    write(
        "def radial_hidden(unit, weights, hidden, offsets, pairs, bessel, chain_weights, graph_pairs, LAYERS: tl.constexpr, "
        + arguments
        + "):"
    )
    with write:
        write(
            "p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)",
            "layer = tl.program_id(1)",
            "chain = tl.program_id(2).to(tl.int64)",
            "valid = p < pairs",
            "unit += chain*graph_pairs*4",
            "weights += chain*chain_weights",
        )
        load_weights()
        forward()
        write(
            f"out = hidden + ((chain*LAYERS + layer)*2*pairs + p[:, None])*{size} + c[None, :]",
            f"tl.store(out, a{depth - 1}, mask={row_mask})",
            f"tl.store(out + pairs.to(tl.int64)*{size}, d{depth - 1}, mask={row_mask})",
        )

    write("", "", '@triton.jit(do_not_specialize=["pairs", "bessel", "turns", "graph_pairs"])')
    write(
        "def radial_backward(unit, weights, hidden_tilde, partial, offsets, pairs, bessel, turns, chain_weights, graph_pairs,",
        f"    LAYERS: tl.constexpr, SIZE: tl.constexpr, {arguments}):",
    )
    bessels = max(16, 1 << (config.num_bessels - 1).bit_length())
    with write:
        write(
            "part = tl.program_id(0)",
            "layer = tl.program_id(1)",
            "chain = tl.program_id(2).to(tl.int64)",
            "unit += chain*graph_pairs*4",
            "weights += chain*chain_weights",
        )
        load_weights()
        write(f"t0 = tl.zeros([{bessels}, {columns}], tl.float32)", f"frequencies = tl.zeros([{bessels}], tl.float32)")
        write(*(f"t{i} = tl.zeros([{columns}, {columns}], tl.float32)" for i in range(1, depth)))
        with write.block("for turn in range(turns):"):
            write(
                "p = ((part*turns + turn)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)",
                "valid = p < pairs",
            )
            forward()
            write(
                f"start = hidden_tilde + ((chain*LAYERS + layer)*2*pairs + p[:, None])*{size} + c[None, :]",
                f"e = tl.load(start, mask={row_mask}, other=0.0)",
                f"e1 = tl.load(start + pairs.to(tl.int64)*{size}, mask={row_mask}, other=0.0)",
            )
            for i in reversed(range(depth)):
                inputs = ("value", "slope") if i == 0 else (f"a{i - 1}", f"d{i - 1}")
                write(
                    f"k = f{i}*e + s{i}*(1 - s{i})*(2 + h{i}*(1 - 2*s{i}))*g{i}*e1",
                    f"k1 = f{i}*e1",
                    f"t{i} = tl.dot(tl.trans({inputs[0]}), k, t{i}, input_precision=PREC)",
                    f"t{i} = tl.dot(tl.trans({inputs[1]}), k1, t{i}, input_precision=PREC)",
                    f"e = tl.dot(k, tl.trans(w{i}), input_precision=PREC)",
                    f"e1 = tl.dot(k1, tl.trans(w{i}), input_precision=PREC)",
                )
            write("frequencies += tl.sum(e*value_w + e1*slope_w, 0)")
        # a row of partial sums: W̃_0, W̃_1, …, frequencies, for each part and layer
        write(
            "partial += ((chain*tl.num_programs(0) + part)*LAYERS + layer)*SIZE",
            f"tl.store(partial + b[:, None]*{size} + c[None, :], t0, mask=used)",
        )
        place = config.num_bessels * size
        for i in range(1, depth):
            write(f"tl.store(partial + {place} + c[:, None]*{size} + c[None, :], t{i}{fits.split(', other')[0]})")
            place += size * size
        write(f"tl.store(partial + {place} + b, frequencies, mask=b < BESSELS)")
    return write.text
