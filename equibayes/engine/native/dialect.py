"""The equations of engine/generate as C++ functions.

Channels lie in the lanes of a vector register, as do pairs in the functions of pairs; rows are padded to whole
registers.  Conditions of the equations (DUAL, DOT, MODE) are decided here: each case is a function of its own.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from equibayes.engine.generate.dialect import Dialect
from equibayes.engine.generate.offsets import columns, width
from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import LayerPlan

CONVOLUTION = (
    "const auto [arena, harmonics, tangents, radial, radial_out, edge_out, first, senders, codes, norm, N, pairs, "
    "y, y_dot, out, g, g_tilde] = given;"
)
"""The fields of `Convolution` in include/passes.h, under the names of the equations."""

PAIRS = {
    "geometry": "const Given* vector, Real* unit, float* harmonics, const Given* positions, const int* ends, "
    "const Given* shift, const int* order",
    "pair_gradient": "const Real* unit, const float* edge, Real* results",
    "pair_tangent": "const Real* unit, const int* ends, const float* direction, const int* structure, const float* strain, "
    "float* results",
}
"""Arguments of the functions of pairs, before the range of pairs."""


SLOTS = "for (long slot = first[n]; slot < first[n + 1]; ++slot)"
COUPLINGS_ROW = "// couplings"
"""Where the row of the table is found, whose length is known at the end of the loop."""


class CppDialect(Dialect):
    """One generated function; `flags` are the values of the names in conditions."""

    def __init__(self, config: NetworkConfig, name: str, flags: Mapping[str, int] | None = None) -> None:
        """name: of the function."""
        super().__init__(config)
        self._name, self._flags = name, dict(flags or {})
        self._kind, self._columns, self._count = "", 0, 0
        self._known: list[set[str]] = [set()]
        self._written = [True]  # whether the conditions around the present statement hold
        self._decided = True  # the last condition
        self._scalars: list[str] = []  # statements of a slot that do not depend on the channel
        self._couplings = 0

    def write(self, *lines: str) -> None:
        if all(self._written):
            super().write(*lines)

    def note(self, text: str) -> None:
        self.write(f"// {text}")

    def let(self, name: str, value: str) -> None:
        if not all(self._written):
            return
        known = any(name in names for names in self._known)
        self._known[-1].add(name)
        kind = "Tile" if self._kind.startswith("radial") else "auto"
        self.write(f"{name} = {value};" if known else f"{kind} {name} = {value};")

    def add(self, name: str, value: str) -> None:
        self.write(f"{name} += {value};")

    def scalar(self, name: str, value: str) -> None:
        if all(self._written):
            self._scalars.append(f"auto {name} = {value};")
        self.let(name, value)

    def coupling(self, name: str, value: str) -> None:
        """Couplings of all slots of an atom are computed before the loop over channels (see `group`)."""
        if all(self._written):
            self._scalars.append(f"row_of_couplings[{self._couplings}] = {value};")
            self.let(name, f"row_of_couplings[{self._couplings}]")
            self._couplings += 1

    # --- kernels and their parts ---

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.write(head + " {")
        self._known.append(set())
        with self.indented():
            yield
        self._known.pop()
        self.write("}")

    @contextmanager
    def kernel(self, name: str, number: int = 0, layer: LayerPlan | None = None) -> Iterator[None]:
        self._kind = name
        if layer is not None:
            self._columns = columns(layer)
            with self.block(f"void {self._name}(const Convolution& given, long begin, long end)"):
                self.write(CONVOLUTION)
                yield
        elif name == "gate":
            with self.block(f"void {self._name}(float* x0, float* z0, long version, long N, long begin, long end)"):
                self.write(*(f"float *{a}{i} = {a}{i - 1} + version;" for i in (1, 2, 3) for a in "xz"))
                yield
        elif name in PAIRS:
            self.write("template <class Real, class Given>" if name == "geometry" else "template <class Real>")
            with (
                self.block(f"void {self._name}({PAIRS[name]}, long begin, long end)"),
                self.block("for (long start = begin; start < end; start += LANES<Real>)"),
            ):
                self.write("const auto p = indices<Real>(start, end);")
                yield
        else:
            with self.block(f"void {self._name}(Radial& radial)"):
                self.write(*(f"const auto& w{i} = radial.weight[{i}];" for i in range(self.config.radial_mlp_depth)))
                yield

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        decided = bool(eval(condition, {}, self._flags))
        self._written.append(decided)
        yield
        self._written.pop()
        self._decided = decided

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        self._written.append(not self._decided)
        yield
        self._written.pop()

    @contextmanager
    def group(self, index: int, channels: int) -> Iterator[None]:
        with self.block("for (long n = begin; n < end; ++n)"):
            self.write(f"const auto slope = radial + pairs*{self._columns};")
            if self._kind == "give":
                self.write("const float w = norm[n];")
            place, self._scalars, self._couplings = len(self._lines), [], 0
            with self.block(f"for (long c = 0; c < {channels}; c += WIDTH)"):
                self.write("const long cs = c;")
                yield
            self._insert_couplings(place)

    def _insert_couplings(self, place: int) -> None:
        """Before line `place`: a loop that fills the table of couplings of all slots of an atom."""
        loop, self._lines = self._lines[place:], self._lines[:place]
        size = f"(first[n + 1] - first[n])*{self._couplings}"
        self.write(f"float* const couplings = coupling_table({size});")
        with self.block(SLOTS):
            self.write(*self._slot, self._row_of_couplings("float*"), *self._scalars)
        row = self._row_of_couplings("const float*")
        self._lines += [line.replace(COUPLINGS_ROW, row) for line in loop]

    def _row_of_couplings(self, kind: str) -> str:
        return f"{kind} const row_of_couplings = couplings + (slot - first[n])*{self._couplings};"

    @contextmanager
    def gated(self, index: int, channels: int) -> Iterator[None]:
        with (
            self.block("for (long n = begin; n < end; ++n)"),
            self.block(f"for (long c = 0; c < {channels}; c += WIDTH)"),
        ):
            yield

    @contextmanager
    def slots(self, direction: str) -> Iterator[None]:
        self._slot = (
            "const long j = senders[slot], code = codes[slot], q = code / 2;",
            f"const float sign = 1 - 2*(code % 2), direction = {direction};",
        )
        with self.block(SLOTS):
            self.write(*self._slot, COUPLINGS_ROW)
            yield

    # --- numbers ---

    def number(self, value: float) -> str:
        return f"Real({value!r})" if self._kind in PAIRS else f"{value!r}f"

    def zeros(self) -> str:
        return "zero()"

    def load(self, address: str, other: float | None = None) -> str:
        if self._kind in PAIRS:
            return f"read<Real>({address})"
        return f"load({address})" if self._kind == "gate" else f"*({address})"

    def channels(self, address: str, other: float | None = None) -> str:
        return f"load({address})"

    def filled(self, value: str, like: str) -> str:
        return f"{value} + {like}*0"

    def pieced(self, address: str) -> str:
        return f"load({address})"

    def store(self, address: str, value: str) -> None:
        self.write(f"{'write' if self._kind in PAIRS else 'store'}({address}, {value});")

    store_sum_over_slots = store

    def choose(self, condition: str, one: str, other: str) -> str:
        return one if eval(condition, {}, self._flags) else other

    def sqrt(self, value: str) -> str:
        return f"sqrt({value})"

    def sigmoid(self, value: str) -> str:
        return f"sigmoid({value})"

    # --- sums over the edges of a pair ---

    def find_edge_row(self) -> None:
        self.let("edge_row", f"edge_out + (2*q + 1 - code % 2)*{width(self.config.l_max)}")

    def store_edge_sums(self, sums: dict[int, tuple[str, str | None]]) -> None:
        """Groups and channels of an atom come one after the other, so each adds to the same row."""
        row = width(self.config.l_max)
        names = [sums.get(m, ("zero()", None))[0] for m in range(row)]
        self.write(f"const vec parts[] = {{{', '.join(names)}}};", f"const Sums<{row}> sums(parts);")
        for m, (_, factor) in sums.items():
            self.write(f"edge_row[{m}] += sums.of[{m}]" + (f"*({factor});" if factor else ";"))

    def find_row(self, name: str, size: int) -> None:
        self.let(name, f"{name}s + p*{size}" if name != "out" else f"results + p*{size}")

    def sum_edges(self) -> None:
        row = width(self.config.l_max)
        self.let("there", f"edge + p*{2 * row}")

    def edge_sum(self, m: int) -> str:
        return f"read<Real>(there + {m}) + read<Real>(there + {m + width(self.config.l_max)})"

    # --- the radial network: matrices with a row for each pair of a block ---

    def dot(self, a: str, b: str, precision: str) -> str:
        return f"dot({a}, {b})"

    def add_dot(self, name: str, a: str, b: str, precision: str) -> None:
        self.write(f"add_dot({name}, {a}, {b});")

    def transposed(self, a: str) -> str:
        return f"transposed({a})"

    def sum_over_pairs(self, value: str) -> str:
        return f"sum_over_rows({value})"

    def bessel(self) -> None:
        self.write("const auto &value = radial.value, &slope = radial.slope;")

    def store_hidden(self, value: str, slope: str) -> None:
        self.write(f"radial.last_layer({value}, {slope});")

    @contextmanager
    def pair_blocks(self) -> Iterator[None]:
        for i in range(self.config.radial_mlp_depth):
            self.write(f"auto& t{i} = radial.gradient[{i}];")
        self.write("auto& frequencies = radial.frequencies;")
        self.write("const auto &value_w = radial.value_w, &slope_w = radial.slope_w;")
        yield

    def load_hidden_tilde(self) -> None:
        last = self.config.radial_mlp_depth - 1
        self.write(f"auto [e, e1] = radial.last_layer_back(a{last}, d{last});")
        self._known[-1] |= {"e", "e1"}

    def store_radial_sums(self) -> None:
        """They are added to the gradient already."""
