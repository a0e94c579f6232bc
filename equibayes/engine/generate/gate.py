"""The gate in its four versions."""

from equibayes.engine.generate.dialect import Dialect
from equibayes.network.interaction import SILU_NORM, TANH_NORM
from equibayes.network.irreps import SCALAR, Irrep, LayerPlan


def gate(d: Dialect, number: int, layer: LayerPlan) -> None:
    """Scalars pass f = silu or tanh, normalised; other irreps are multiplied by f of a scalar:

    x = f(z)      x̄ → z̄ = f' x̄      ẋ = f' ż      z̃ = f' x̃ + f'' ż x̄

    The inputs (z, x̄, ż, x̃) may be divided into pieces, which are added up here.
    """
    with d.kernel("gate", number):
        x_before = z_before = 0
        for index, irrep in enumerate(layer.outputs):
            with d.gated(index, layer.outputs[irrep]):
                d.note(f"{irrep}: " + ("x = f(z)" if irrep.l == 0 else "x = f(gate) z") + ", f' = f1, f'' = f2")
                if irrep.l == 0:
                    _gate_scalar(d, layer, irrep, x_before, z_before)
                else:
                    _gate_other(d, layer, irrep, x_before, z_before)
            x_before += irrep.dim * layer.outputs[irrep]
            z_before += irrep.dim * layer.before_gate(irrep)


def _silu(d: Dialect) -> None:
    """f, f' and f'' of v."""
    d.let("s", d.sigmoid("v"))
    d.let("f", f"{d.number(SILU_NORM)}*v*s")
    d.let("f1", f"{d.number(SILU_NORM)}*s*(1 + v*(1 - s))")
    d.let("f2", f"{d.number(SILU_NORM)}*s*(1 - s)*(2 + v*(1 - 2*s))")


def _tanh(d: Dialect) -> None:
    d.let("t", f"2*{d.sigmoid('2*v')} - 1")
    d.let("f", f"{d.number(TANH_NORM)}*t")
    d.let("f1", f"{d.number(TANH_NORM)}*(1 - t*t)")
    d.let("f2", "-2*t*f1")


def _gate_scalar(d: Dialect, layer: LayerPlan, irrep: Irrep, x_before: int, z_before: int) -> None:
    d.let("xi", f"{x_before}*N + n*{layer.outputs[irrep]} + c")
    d.let("zi", f"{z_before}*N + n*{layer.before_gate(irrep)} + c")
    d.let("v", d.choose("MODE == 0", d.pieced("z0 + zi"), d.load("z0 + zi", other=0.0)))
    (_silu if irrep == SCALAR else _tanh)(d)
    with d.when("MODE == 0"):
        d.store("x0 + xi", "f")
    with d.when("MODE == 1"):
        d.store("z1 + zi", f"f1*{d.pieced('x1 + xi')}")
    with d.when("MODE == 2"):
        d.store("x2 + xi", f"f1*{d.pieced('z2 + zi')}")
    with d.when("MODE == 3"):
        d.note("z̃ = f' x̃ + f'' ż x̄")
        moved = f"{d.load('z2 + zi', other=0.0)}*{d.load('x1 + xi', other=0.0)}"
        d.store("z3 + zi", f"f1*{d.pieced('x3 + xi')} + f2*{moved}")


def _gate_other(d: Dialect, layer: LayerPlan, irrep: Irrep, x_before: int, z_before: int) -> None:
    row = irrep.dim * layer.outputs[irrep]
    d.let("gi", _gate_of(layer, irrep))
    d.let("v", d.choose("MODE == 0", d.pieced("z0 + gi"), d.load("z0 + gi", other=0.0)))
    _silu(d)
    d.let("total", d.zeros())
    with d.when("MODE >= 2"):
        d.let("vd", d.choose("MODE == 2", d.pieced("z2 + gi"), d.load("z2 + gi", other=0.0)))
    for k in range(irrep.dim):
        first = k * layer.outputs[irrep]
        d.let("xi", f"{x_before}*N + n*{row} + {first} + c")
        d.let("zi", f"{z_before}*N + n*{row} + {first} + c")
        with d.when("MODE == 0"):
            d.store("x0 + xi", f"f*{d.pieced('z0 + zi')}")
        with d.when("MODE == 1"):
            d.let("b", d.pieced("x1 + xi"))
            d.store("z1 + zi", "f*b")
            d.add("total", f"f1*b*{d.load('z0 + zi', other=0.0)}")
        with d.when("MODE == 2"):
            d.store("x2 + xi", f"f*{d.pieced('z2 + zi')} + f1*vd*{d.load('z0 + zi', other=0.0)}")
        with d.when("MODE == 3"):
            d.let("b", d.load("x1 + xi", other=0.0))
            d.let("t", d.pieced("x3 + xi"))
            d.let("u", d.load("z0 + zi", other=0.0))
            d.store("z3 + zi", "f*t + f1*vd*b")
            d.add("total", f"f1*t*u + b*(f1*{d.load('z2 + zi', other=0.0)} + f2*vd*u)")
    with d.when("MODE == 1"):
        d.store("z1 + gi", "total")
    with d.when("MODE == 3"):
        d.store("z3 + gi", "total")


def _gate_of(layer: LayerPlan, irrep: Irrep) -> str:
    """Where the scalars lie that gate an irrep: behind the other scalars, in the order of the gated irreps."""
    gated, outputs = list(layer.gated), list(layer.outputs)
    first = layer.outputs[SCALAR] + sum(layer.outputs[other] for other in gated[: gated.index(irrep)])
    before = sum(other.dim * layer.before_gate(other) for other in outputs[: outputs.index(SCALAR)])
    return f"{before}*N + n*{layer.before_gate(SCALAR)} + {first} + c"
