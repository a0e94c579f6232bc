"""The radial network, forward to its last hidden layer and back, for value and slope together.

Forward, with B and B' = dB/dr of the Bessel functions, hidden layers h_0 = B W_0, h_i = silu(h_{i−1}) W_i:

    a_i = silu(h_i),   a'_i = silu'(h_i) h'_i

Backward, from ã and ã' of the last one:

    h̃'_i = silu'(h_i) ã'_i,    h̃_i = silu'(h_i) ã_i + silu''(h_i) h'_i ã'_i,    W̃_i = a_{i−1}ᵀ h̃_i + a'_{i−1}ᵀ h̃'_i
"""

from equibayes.engine.generate.writing import Writer
from equibayes.network.config import NetworkConfig

CONSTANTS = ", ".join(f"{name}: tl.constexpr" for name in ("R_MAX", "P", "BESSELS", "FIRST_PREC", "PREC", "BLOCK"))


def radial(config: NetworkConfig) -> str:
    """Both kernels; the basis functions are in kernels.py."""
    return "\n\n\n".join([Radial(config).hidden(), Radial(config).backward()])


class Radial:
    """Writes the kernels of one radial network; its widths are filled up to powers of two."""

    def __init__(self, config: NetworkConfig) -> None:
        self.write = Writer()
        self.depth, self.size = config.radial_mlp_depth, config.radial_mlp_width
        self.used_bessels = config.num_bessels
        self.bessels = max(16, 1 << (config.num_bessels - 1).bit_length())
        self.columns = 1 << (self.size - 1).bit_length()
        whole = self.columns == self.size
        self.fits = "" if whole else f", mask=(c[:, None] < {self.size}) & (c[None, :] < {self.size})"
        self.rows = "valid[:, None]" if whole else f"valid[:, None] & (c[None, :] < {self.size})"

    def hidden(self) -> str:
        write, size, last = self.write, self.size, self.depth - 1
        write(
            '@triton.jit(do_not_specialize=["pairs", "bessel", "graph_pairs"])',
            "def radial_hidden(unit, weights, hidden, offsets, pairs, bessel, chain_weights, graph_pairs, LAYERS: tl.constexpr,",
            f"    {CONSTANTS}):",
        )
        with write:
            write("p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)", "valid = p < pairs")
            self._begin()
            self._forward()
            write(
                f"out = hidden + ((chain*LAYERS + layer)*2*pairs + p[:, None])*{size} + c[None, :]",
                f"tl.store(out, a{last}, mask={self.rows})",
                f"tl.store(out + pairs.to(tl.int64)*{size}, d{last}, mask={self.rows})",
            )
        return write.text

    def backward(self) -> str:
        """Leaves a row of partial sums for each part and layer: W̃_0, W̃_1, …, frequencies."""
        write, size = self.write, self.size
        write(
            '@triton.jit(do_not_specialize=["pairs", "bessel", "turns", "graph_pairs"])',
            "def radial_backward(unit, weights, hidden_tilde, partial, offsets, pairs, bessel, turns, chain_weights, graph_pairs,",
            f"    LAYERS: tl.constexpr, SIZE: tl.constexpr, {CONSTANTS}):",
        )
        with write:
            write("part = tl.program_id(0)")
            self._begin()
            write(f"t0 = tl.zeros([{self.bessels}, {self.columns}], tl.float32)")
            write(*(f"t{i} = tl.zeros([{self.columns}, {self.columns}], tl.float32)" for i in range(1, self.depth)))
            write(f"frequencies = tl.zeros([{self.bessels}], tl.float32)")
            with write.block("for turn in range(turns):"):
                write("p = ((part*turns + turn)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)", "valid = p < pairs")
                self._forward()
                write(
                    f"start = hidden_tilde + ((chain*LAYERS + layer)*2*pairs + p[:, None])*{size} + c[None, :]",
                    f"e = tl.load(start, mask={self.rows}, other=0.0)",
                    f"e1 = tl.load(start + pairs.to(tl.int64)*{size}, mask={self.rows}, other=0.0)",
                )
                self._back()
                write("frequencies += tl.sum(e*value_w + e1*slope_w, 0)")
            write(
                "partial += ((chain*tl.num_programs(0) + part)*LAYERS + layer)*SIZE",
                f"tl.store(partial + b[:, None]*{size} + c[None, :], t0, mask=used)",
            )
            place = self.used_bessels * size
            for i in range(1, self.depth):
                write(f"tl.store(partial + {place} + c[:, None]*{size} + c[None, :], t{i}{self.fits})")
                place += size * size
            write(f"tl.store(partial + {place} + b, frequencies, mask=b < BESSELS)")
        return write.text

    def _begin(self) -> None:
        """Which layer and chain, and its weights w0, w1, …"""
        size, depth = self.size, self.depth
        self.write(
            "layer = tl.program_id(1)",
            "chain = tl.program_id(2).to(tl.int64)",
            "unit += chain*graph_pairs*4",
            "weights += chain*chain_weights",
            f"c = tl.arange(0, {self.columns})",
            f"b = tl.arange(0, {self.bessels})",
            f"used = (b[:, None] < BESSELS) & (c[None, :] < {size})",
            f"w0 = tl.load(weights + tl.load(offsets + layer*{depth}) + b[:, None]*{size} + c[None, :], mask=used, other=0.0)",
        )
        other = ", other=0.0" if self.fits else ""
        for i in range(1, depth):
            start = f"weights + tl.load(offsets + layer*{depth} + {i})"
            self.write(f"w{i} = tl.load({start} + c[:, None]*{size} + c[None, :]{self.fits}{other})")

    def _forward(self) -> None:
        self.write(
            "value, slope, value_w, slope_w = bessel_basis(unit, weights + bessel, p, valid, b, R_MAX, P, BESSELS)"
        )
        for i in range(self.depth):
            value, slope = self._inputs(i)
            precision = "PREC" if i else "FIRST_PREC"
            self.write(
                f"h{i} = tl.dot({value}, w{i}, input_precision={precision})",
                f"g{i} = tl.dot({slope}, w{i}, input_precision={precision})",
                f"s{i} = tl.sigmoid(h{i})",
                f"a{i} = h{i}*s{i}",
                f"f{i} = s{i}*(1 + h{i}*(1 - s{i}))",
                f"d{i} = f{i}*g{i}",
            )

    def _back(self) -> None:
        for i in reversed(range(self.depth)):
            value, slope = self._inputs(i)
            self.write(
                f"k = f{i}*e + s{i}*(1 - s{i})*(2 + h{i}*(1 - 2*s{i}))*g{i}*e1",
                f"k1 = f{i}*e1",
                f"t{i} = tl.dot(tl.trans({value}), k, t{i}, input_precision=PREC)",
                f"t{i} = tl.dot(tl.trans({slope}), k1, t{i}, input_precision=PREC)",
                f"e = tl.dot(k, tl.trans(w{i}), input_precision=PREC)",
                f"e1 = tl.dot(k1, tl.trans(w{i}), input_precision=PREC)",
            )

    def _inputs(self, i: int) -> tuple[str, str]:
        return ("value", "slope") if i == 0 else (f"a{i - 1}", f"d{i - 1}")
