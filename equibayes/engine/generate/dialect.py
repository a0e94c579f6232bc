"""What a language must offer so that the equations of this package can be written in it.

Arithmetic (`a*b + c`), addresses (`row + 3`) and conditions (`DUAL and DOT`) are the same text in Python and C++ and
stand in the equations themselves.  Everything else is a method of a `Dialect`: the head of a kernel, loops, loads,
stores, sums and matrix products. Within a kernel a dialect defines these names:

| name            | kernels           | meaning                                              |
|-----------------|-------------------|------------------------------------------------------|
| `chain`         | all but geometry  | weight set                                           |
| `p`             | pairs, radial     | pair                                                 |
| `n`, `N`        | convolution, gate | atom, number of atoms                                |
| `c`, `cs`       | convolution, gate | channel; `cs` of results that were summed over slots |
| `w`             | give              | norm of atom n                                       |
| `j`, `q`        | slots             | neighbour, pair                                      |
| `code`, `sign`  | slots             | direction in the last bit of `code`, as ±1 in `sign` |

and the arguments of the kernels, among them `arena`, `harmonics`, `tangents`, `radial` and `slope` (of the chain),
`x0` to `x3` and `z0` to `z3` (the four versions before and after the gate).  Flags: DUAL (versions 2 and 3), DOT (the
features move with the atoms), MOVING (pair vectors follow from positions), MODE (version of the gate).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import LayerPlan

Block = AbstractContextManager[None]


class Dialect(Protocol):
    """Writes one kernel.  Methods that return text give an expression; the others write statements."""

    header: str = ""
    """The text before the kernels of a module."""
    config: NetworkConfig
    _lines: list[str]
    _depth: int

    def __init__(self, config: NetworkConfig) -> None:
        self.config, self._lines, self._depth = config, [], 0

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def write(self, *lines: str) -> None:
        self._lines += ["    " * self._depth + line for line in lines]

    @contextmanager
    def indented(self) -> Iterator[None]:
        self._depth += 1
        yield
        self._depth -= 1

    def let(self, name: str, value: str) -> None:
        self.write(f"{name} = {value}")

    def add(self, name: str, value: str) -> None:
        self.write(f"{name} += {value}")

    def scalar(self, name: str, value: str) -> None:
        """Something about a slot that is the same for all channels."""
        self.let(name, value)

    def coupling(self, name: str, value: str) -> None:
        """The same for an entry of A or Ȧ, of which there are many; may be computed once for all channels."""
        self.let(name, value)

    def note(self, text: str) -> None:
        """A comment, in languages whose text is read."""
        return None

    # --- kernels and their parts ---

    def kernel(self, name: str, number: int = 0, layer: LayerPlan | None = None) -> Block:
        """Head of a kernel (of one layer), and the names and addresses that its program works with."""

    def group(self, index: int, channels: int) -> Block:
        """Part of a convolution that belongs to one group of paths with so many channels."""

    def gated(self, index: int, channels: int) -> Block:
        """Part of a gate that belongs to one irrep."""

    def slots(self, direction: str) -> Block:
        """Loop over the neighbours of atom n; `direction` is the sign with which odd harmonics are taken."""

    def when(self, condition: str) -> Block: ...
    def otherwise(self) -> Block: ...

    # --- numbers ---

    def number(self, value: float) -> str:
        """A constant in the precision of the kernel."""
        return repr(value)

    def zeros(self) -> str:
        """Zeros to add to: one per slot and channel in a convolution, one per element in a gate."""

    def load(self, address: str, other: float | None = None) -> str:
        """One number per pair, slot or element; `other` beyond the last, where the program may reach beyond it."""

    def channels(self, address: str, other: float | None = None) -> str:
        """One number per channel."""

    def filled(self, value: str, like: str) -> str:
        """A number that may be constant, one per element of `like`."""

    def pieced(self, address: str) -> str:
        """The sum of the pieces into which linears divide a result."""

    def store(self, address: str, value: str) -> None: ...
    def store_sum_over_slots(self, address: str, value: str) -> None: ...
    def choose(self, condition: str, one: str, other: str) -> str: ...
    def sqrt(self, value: str) -> str: ...
    def sigmoid(self, value: str) -> str: ...

    # --- sums over the edges of a pair: ∂E/∂Y and ∂E/∂r ---

    def find_edge_row(self) -> None:
        """Where the sums of the edge of a slot lie."""

    def store_edge_sums(self, sums: dict[int, tuple[str, str | None]]) -> None:
        """The sums of some values over the channels, each times a factor: {column: (value, factor)}."""

    def sum_edges(self) -> None:
        """Add up what both directions of a pair and all groups left."""

    def edge_sum(self, m: int) -> str:
        """Column m of that sum."""

    def find_row(self, name: str, size: int) -> None:
        """From the array `name` of all chains to the row of a pair, with `size` numbers."""
        self.add(name, f"(chain*pairs + p)*{size}")

    # --- the radial network: matrices [pairs, width] ---

    def dot(self, a: str, b: str, precision: str) -> str: ...
    def add_dot(self, name: str, a: str, b: str, precision: str) -> None: ...
    def transposed(self, a: str) -> str: ...
    def sum_over_pairs(self, value: str) -> str: ...
    def store_hidden(self, value: str, slope: str) -> None: ...

    def bessel(self) -> None:
        """Define value and slope (Bessel functions and dB/dr), value_w and slope_w (their ∂ by the frequencies)."""

    def pair_blocks(self) -> Block:
        """Set the sums t0, t1, … and frequencies to 0; loop over the pairs of a program."""

    def load_hidden_tilde(self) -> None:
        """Define e and e1: ã and ã' of the last hidden layer."""

    def store_radial_sums(self) -> None:
        """Leave t0, t1, … and frequencies as a row of partial sums."""
