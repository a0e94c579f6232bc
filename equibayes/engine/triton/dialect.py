"""The equations of engine/generate as Triton kernels.

A program works on EB slots and CB channels at once in a convolution, on BLOCK pairs or elements elsewhere; `valid`
masks what lies beyond the last.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from equibayes.engine.generate.dialect import Block, Dialect
from equibayes.engine.generate.offsets import width
from equibayes.engine.triton.heads import head
from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import LayerPlan


class TritonDialect(Dialect):
    """One generated kernel.  Widths of the radial network are padded to powers of two."""

    header = (
        '"""Generated from the irreps of a network; see equibayes/engine/generate."""\n\n'
        "import triton\nimport triton.language as tl\n\nfrom equibayes.engine.triton.kernels import bessel_basis, pieced\n"
    )

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__(config)
        self._tile = ""
        size = config.radial_mlp_width
        self._bessels = max(16, 1 << (config.num_bessels - 1).bit_length())
        self._columns = 1 << (size - 1).bit_length()
        whole = self._columns == size
        self._fits = "" if whole else f", mask=(c[:, None] < {size}) & (c[None, :] < {size})"
        self._rows = "valid[:, None]" if whole else f"valid[:, None] & (c[None, :] < {size})"

    # --- kernels and their parts ---

    @contextmanager
    def kernel(self, name: str, number: int = 0, layer: LayerPlan | None = None) -> Iterator[None]:
        self.write(*head(name, number, self.config, layer))
        self._tile = "[BLOCK]" if name == "gate" else "[EB, CB]"
        with self.indented():
            if name.startswith("radial"):
                self._load_radial_weights()
            yield

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        self.write(line)
        with self.indented():
            yield

    def when(self, condition: str) -> Block:
        return self.block(f"if {condition}:")

    def otherwise(self) -> Block:
        return self.block("else:")

    def group(self, index: int, channels: int) -> Block:
        return self.block(f"if group == {index} and c0 < {channels}:")

    @contextmanager
    def gated(self, index: int, channels: int) -> Iterator[None]:
        with self.block(f"if group == {index}:"):
            self.write(f"valid = i < N*{channels}", f"n = i // {channels}", f"c = i % {channels}")
            yield

    @contextmanager
    def slots(self, direction: str) -> Iterator[None]:
        self._look_up("0")
        with self.block("for start in range(0, count, EB):"):
            self.write(
                "valid = start + tl.arange(0, EB)[:, None] < count", "j = next_j.to(tl.int64)", "code = next_code"
            )
            self._look_up("start + EB")
            self.write("q = (code // 2).to(tl.int64)", "sign = 1.0 - 2.0*(code % 2)", f"direction = {direction}")
            yield

    def _look_up(self, start: str) -> None:
        """Neighbours and pairs of EB slots, one turn ahead of their use, since all other loads wait for them.

        Slots beyond the last repeat the first; their radial weights are 0.
        """
        self.write(
            f"d = {start} + tl.arange(0, EB)[:, None]",
            "d = tl.where(d < count, d, 0)",
            "next_j = tl.load(sender + d)",
            "next_code = tl.load(pair + d)",
        )

    # --- numbers ---

    def zeros(self) -> str:
        return f"tl.zeros({self._tile}, tl.float32)"

    def load(self, address: str, other: float | None = None) -> str:
        return f"tl.load({address})" if other is None else f"tl.load({address}, mask=valid, other={other!r})"

    channels = load

    def store(self, address: str, value: str) -> None:
        self.write(f"tl.store({address}, {value}, mask=valid)")

    def store_sum_over_slots(self, address: str, value: str) -> None:
        self.write(f"tl.store({address}, tl.sum({value}, 0))")

    def choose(self, condition: str, one: str, other: str) -> str:
        return f"{one} if {condition} else {other}"

    def sqrt(self, value: str) -> str:
        return f"tl.sqrt({value})"

    def sigmoid(self, value: str) -> str:
        return f"tl.sigmoid({value})"

    def filled(self, value: str, like: str) -> str:
        return f"{value} + {like}*0"

    def pieced(self, address: str) -> str:
        return f"pieced({address}, apart, valid, PIECES)"

    # --- sums over the edges of a pair ---

    def find_edge_row(self) -> None:
        row = width(self.config.l_max)
        self.let("edge_row", f"edge_out + (2*q + 1 - code % 2)*GROUPS*{row} + (FIRST + job)*{row}")

    def store_edge_sums(self, sums: dict[int, tuple[str, str | None]]) -> None:
        for m, (name, factor) in sums.items():
            self.store(f"edge_row + {m}", f"tl.sum({name}, 1)[:, None]" + (f"*{factor}" if factor else ""))

    def sum_edges(self) -> None:
        row = width(self.config.l_max)
        self.write(
            f"columns = tl.arange(0, {row})",
            f"edge += (chain*pairs + p)[:, None]*(2*GROUPS*{row}) + columns[None, :]",
            f"there = tl.zeros([BLOCK, {row}], tl.float32)",
            f"back = tl.zeros([BLOCK, {row}], tl.float32)",
        )
        # unrolled, so that all loads are under way together
        with self.block("for g in tl.static_range(GROUPS):"):
            self.write(
                f"there += tl.load(edge + g*{row}, mask=valid[:, None], other=0.0)",
                f"back += tl.load(edge + (GROUPS + g)*{row}, mask=valid[:, None], other=0.0)",
            )
        # the sign of ∂E/∂Y of the opposite direction was changed where it was computed
        self.write("sums = there + back")

    def edge_sum(self, m: int) -> str:
        return f"tl.sum(tl.where(columns[None, :] == {m}, sums, 0.0), 1)"

    # --- the radial network ---

    def _load_radial_weights(self) -> None:
        """Layer and chain of the program, and the weights w0, w1, …"""
        size, depth = self.config.radial_mlp_width, self.config.radial_mlp_depth
        self.write(
            "layer = tl.program_id(1)",
            "chain = tl.program_id(2).to(tl.int64)",
            "unit += chain*graph_pairs*4",
            "weights += chain*chain_weights",
            f"c = tl.arange(0, {self._columns})",
            f"b = tl.arange(0, {self._bessels})",
            f"used = (b[:, None] < BESSELS) & (c[None, :] < {size})",
            f"w0 = tl.load(weights + tl.load(offsets + layer*{depth}) + b[:, None]*{size} + c[None, :], mask=used, other=0.0)",
        )
        other = ", other=0.0" if self._fits else ""
        for i in range(1, depth):
            start = f"weights + tl.load(offsets + layer*{depth} + {i})"
            self.write(f"w{i} = tl.load({start} + c[:, None]*{size} + c[None, :]{self._fits}{other})")

    def dot(self, a: str, b: str, precision: str) -> str:
        return f"tl.dot({a}, {b}, input_precision={precision})"

    def add_dot(self, name: str, a: str, b: str, precision: str) -> None:
        self.let(name, f"tl.dot({a}, {b}, {name}, input_precision={precision})")

    def transposed(self, a: str) -> str:
        return f"tl.trans({a})"

    def bessel(self) -> None:
        call = "bessel_basis(unit, weights + bessel, p, valid, b, R_MAX, P, ON, BESSELS)"
        self.write(f"value, slope, value_w, slope_w = {call}")

    def store_hidden(self, value: str, slope: str) -> None:
        size = self.config.radial_mlp_width
        self.write(
            f"out = {self._hidden_rows('hidden')}",
            f"tl.store(out, {value}, mask={self._rows})",
            f"tl.store(out + pairs.to(tl.int64)*{size}, {slope}, mask={self._rows})",
        )

    def load_hidden_tilde(self) -> None:
        size = self.config.radial_mlp_width
        self.write(
            f"start = {self._hidden_rows('hidden_tilde')}",
            f"e = tl.load(start, mask={self._rows}, other=0.0)",
            f"e1 = tl.load(start + pairs.to(tl.int64)*{size}, mask={self._rows}, other=0.0)",
        )

    def _hidden_rows(self, array: str) -> str:
        size = self.config.radial_mlp_width
        return f"{array} + ((chain*LAYERS + layer)*2*pairs + p[:, None])*{size} + c[None, :]"

    @contextmanager
    def pair_blocks(self) -> Iterator[None]:
        for i in range(self.config.radial_mlp_depth):
            self.write(f"t{i} = tl.zeros([{self._columns if i else self._bessels}, {self._columns}], tl.float32)")
        self.write(f"frequencies = tl.zeros([{self._bessels}], tl.float32)")
        with self.block("for turn in range(turns):"):
            self.write("p = ((part*turns + turn)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)", "valid = p < pairs")
            yield

    def sum_over_pairs(self, value: str) -> str:
        return f"tl.sum({value}, 0)"

    def store_radial_sums(self) -> None:
        size, place = self.config.radial_mlp_width, self.config.num_bessels * self.config.radial_mlp_width
        self.write(
            "partial += ((chain*tl.num_programs(0) + part)*LAYERS + layer)*SIZE",
            f"tl.store(partial + b[:, None]*{size} + c[None, :], t0, mask=used)",
        )
        for i in range(1, self.config.radial_mlp_depth):
            self.write(f"tl.store(partial + {place} + c[:, None]*{size} + c[None, :], t{i}{self._fits})")
            place += size * size
        self.write(f"tl.store(partial + {place} + b, frequencies, mask=b < BESSELS)")
