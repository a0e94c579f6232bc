"""The gate in its four versions."""

from equibayes.engine.generate.writing import Writer
from equibayes.network.interaction import SILU_NORM, TANH_NORM
from equibayes.network.irreps import SCALAR, Irrep, LayerPlan


def gate(number: int, layer: LayerPlan) -> str:
    """x = f(z) in all four versions; scalars by themselves, everything else times a scalar of its own (f = silu or tanh, normalised):

    x = f(z)                          x̄ → z̄ = f' x̄
    ẋ = f' ż                          z̃ = f' x̃ + f'' ż x̄

    What comes in (z, x̄, ż, x̃) may lie in pieces, which are added up here.
    """
    write = Writer()
    write(
        '@triton.jit(do_not_specialize=["nodes"])',
        f"def gate_{number}(arena, x, z, version, apart, nodes, chain_arena, MODE: tl.constexpr, PIECES: tl.constexpr,",
        "    BLOCK: tl.constexpr):",
    )
    with write:
        write(
            "N = nodes.to(tl.int64)",
            "i = tl.program_id(0).to(tl.int64)*BLOCK + tl.arange(0, BLOCK)",
            "group = tl.program_id(1)",
            "arena += tl.program_id(2).to(tl.int64)*chain_arena",
            "x0 = arena + x",
            "x1 = x0 + version",
            "x2 = x1 + version",
            "x3 = x2 + version",
            "z0 = arena + z",
            "z1 = z0 + version",
            "z2 = z1 + version",
            "z3 = z2 + version",
        )
        x_before = z_before = 0
        for index, irrep in enumerate(layer.outputs):
            with write.block(f"if group == {index}:"):
                channels = layer.outputs[irrep]
                write(f"valid = i < N*{channels}", f"n = i // {channels}", f"c = i % {channels}")
                if irrep.l == 0:
                    _gate_scalar(write, layer, irrep, x_before, z_before)
                else:
                    _gate_other(write, layer, irrep, x_before, z_before)
            x_before += irrep.dim * layer.outputs[irrep]
            z_before += irrep.dim * layer.before_gate(irrep)
    return write.text


_SILU = (
    "s = tl.sigmoid(v)",
    f"f = {SILU_NORM!r}*v*s",
    f"f1 = {SILU_NORM!r}*s*(1 + v*(1 - s))",
    f"f2 = {SILU_NORM!r}*s*(1 - s)*(2 + v*(1 - 2*s))",
)
_TANH = ("t = 2*tl.sigmoid(2*v) - 1", f"f = {TANH_NORM!r}*t", f"f1 = {TANH_NORM!r}*(1 - t*t)", "f2 = -2*t*f1")


def _load(pointer: str) -> str:
    return f"tl.load({pointer}, mask=valid, other=0.0)"


def _pieced(pointer: str) -> str:
    return f"pieced({pointer}, apart, valid, PIECES)"


def _gate_scalar(write: Writer, layer: LayerPlan, irrep: Irrep, x_before: int, z_before: int) -> None:
    write(f"xi = {x_before}*N + n*{layer.outputs[irrep]} + c", f"zi = {z_before}*N + n*{layer.before_gate(irrep)} + c")
    write(f"v = {_pieced('z0 + zi')} if MODE == 0 else {_load('z0 + zi')}", *(_SILU if irrep == SCALAR else _TANH))
    with write.block("if MODE == 0:"):
        write("tl.store(x0 + xi, f, mask=valid)")
    with write.block("if MODE == 1:"):
        write(f"tl.store(z1 + zi, f1*{_pieced('x1 + xi')}, mask=valid)")
    with write.block("if MODE == 2:"):
        write(f"tl.store(x2 + xi, f1*{_pieced('z2 + zi')}, mask=valid)")
    with write.block("if MODE == 3:"):
        write(f"tl.store(z3 + zi, f1*{_pieced('x3 + xi')} + f2*{_load('z2 + zi')}*{_load('x1 + xi')}, mask=valid)")


def _gate_other(write: Writer, layer: LayerPlan, irrep: Irrep, x_before: int, z_before: int) -> None:
    channels, first = layer.outputs[irrep], layer.outputs[SCALAR]
    for other in layer.gated:
        if other == irrep:
            break
        first += layer.outputs[other]
    before = 0  # the gates lie behind the scalars, wherever those are
    for other in layer.outputs:
        if other == SCALAR:
            break
        before += other.dim * layer.before_gate(other)
    write(f"gi = {before}*N + n*{layer.before_gate(SCALAR)} + {first} + c")
    write(f"v = {_pieced('z0 + gi')} if MODE == 0 else {_load('z0 + gi')}", *_SILU)
    write("total = tl.zeros([BLOCK], tl.float32)")
    with write.block("if MODE >= 2:"):
        write(f"vd = {_pieced('z2 + gi')} if MODE == 2 else {_load('z2 + gi')}")
    for k in range(irrep.dim):
        write(
            f"xi = {x_before}*N + n*{irrep.dim * channels} + {k * channels} + c",
            f"zi = {z_before}*N + n*{irrep.dim * channels} + {k * channels} + c",
        )
        with write.block("if MODE == 0:"):
            write(f"tl.store(x0 + xi, f*{_pieced('z0 + zi')}, mask=valid)")
        with write.block("if MODE == 1:"):
            write(
                f"b = {_pieced('x1 + xi')}", "tl.store(z1 + zi, f*b, mask=valid)", f"total += f1*b*{_load('z0 + zi')}"
            )
        with write.block("if MODE == 2:"):
            write(f"tl.store(x2 + xi, f*{_pieced('z2 + zi')} + f1*vd*{_load('z0 + zi')}, mask=valid)")
        with write.block("if MODE == 3:"):
            write(
                f"b = {_load('x1 + xi')}",
                f"t = {_pieced('x3 + xi')}",
                f"u = {_load('z0 + zi')}",
                "tl.store(z3 + zi, f*t + f1*vd*b, mask=valid)",
                f"total += f1*t*u + b*(f1*{_load('z2 + zi')} + f2*vd*u)",
            )
    with write.block("if MODE == 1:"):
        write("tl.store(z1 + gi, total, mask=valid)")
    with write.block("if MODE == 3:"):
        write("tl.store(z3 + gi, total, mask=valid)")
