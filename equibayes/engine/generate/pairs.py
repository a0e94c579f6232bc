"""Geometry of pairs: lengths, directions, harmonics, and their derivatives in both directions."""

from equibayes.engine.generate.writing import Writer, total, width
from equibayes.network.config import NetworkConfig
from equibayes.network.harmonics import HARMONICS


def _polynomial(terms: dict[str, float]) -> str:
    return total(f"{value!r}" + "".join(f"*{axis}" for axis in monomial) for monomial, value in terms.items()) or "0.0"


def _partial(terms: dict[str, float], axis: str) -> dict[str, float]:
    """∂/∂axis of a polynomial in the components of the unit vector."""
    result: dict[str, float] = {}
    for monomial, value in terms.items():
        if axis in monomial:
            lower = monomial.replace(axis, "", 1)
            result[lower] = result.get(lower, 0.0) + value * monomial.count(axis)
    return result


def _harmonics(config: NetworkConfig) -> list[dict[str, float]]:
    return [terms for l in range(config.l_max + 1) for terms in HARMONICS[l]]


def geometry(config: NetworkConfig) -> str:
    """Length, direction and harmonics of every pair: unit [pairs, 4] = (u, r) and harmonics [pairs, M].

    MOVING: first the vector, in the precision of the positions; `order` says which atom a row holds.
    """
    write = Writer()
    write(
        '@triton.jit(do_not_specialize=["pairs"])',
        "def geometry(vector, unit, harmonics, positions, order, ends, shift, pairs, MOVING: tl.constexpr, BLOCK: tl.constexpr):",
    )
    with write:
        write("p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)", "valid = p < pairs")
        with write.block("if MOVING:"):
            write(
                "first = positions + tl.load(order + tl.load(ends + p*2, mask=valid, other=0))*3",
                "second = positions + tl.load(order + tl.load(ends + p*2 + 1, mask=valid, other=0))*3",
            )
            for i, axis in enumerate("xyz"):
                write(
                    f"{axis} = tl.load(second + {i}) - tl.load(first + {i})",
                    f"{axis} += tl.load(shift + p*3 + {i}, mask=valid, other=1.0)",
                    f"tl.store(vector + p*3 + {i}, {axis}, mask=valid)",
                )
        with write.block("else:"):
            write(*(f"{axis} = tl.load(vector + p*3 + {i}, mask=valid, other=1.0)" for i, axis in enumerate("xyz")))
        write(
            "r = tl.sqrt(x*x + y*y + z*z)",
            *(f"{axis} = {axis}/r" for axis in "xyz"),
            *(f"tl.store(unit + p*4 + {i}, {name}, mask=valid)" for i, name in enumerate("xyzr")),
        )
        for m, terms in enumerate(_harmonics(config)):
            count = (config.l_max + 1) ** 2
            write(f"tl.store(harmonics + p*{count} + {m}, {_polynomial(terms)} + x*0, mask=valid)")
    return write.text


def pair_gradient(config: NetworkConfig) -> str:
    """∂E/∂vector of every pair from the rows that the adjoint passes left, summed in a fixed order:

    a = Σ_m ∂E/∂Y_m ∂Y_m/∂u,    ∂E/∂vector = (a − (a·u) u)/r + ∂E/∂r u
    """
    row, count = width(config.l_max), (config.l_max + 1) ** 2
    write = Writer()
    write('@triton.jit(do_not_specialize=["pairs", "graph_pairs"])')
    with write.block(
        "def pair_gradient(unit, edge, out, pairs, graph_pairs, GROUPS: tl.constexpr, BLOCK: tl.constexpr):"
    ):
        write(
            "p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)",
            "chain = tl.program_id(1).to(tl.int64)",
            "valid = p < pairs",
            "unit += chain*graph_pairs*4",
            f"columns = tl.arange(0, {row})",
            f"edge += (chain*pairs + p)[:, None]*(2*GROUPS*{row}) + columns[None, :]",
            f"there = tl.zeros([BLOCK, {row}], tl.float32)",
            f"back = tl.zeros([BLOCK, {row}], tl.float32)",
        )
        # unrolled, so that all loads are under way together
        with write.block("for g in tl.static_range(GROUPS):"):
            write(
                f"there += tl.load(edge + g*{row}, mask=valid[:, None], other=0.0)",
                f"back += tl.load(edge + (GROUPS + g)*{row}, mask=valid[:, None], other=0.0)",
            )
        # ∂E/∂Y of the opposite direction was turned round already where it was made
        write(
            "sums = there + back",
            *(f"{axis} = tl.load(unit + p*4 + {i}, mask=valid, other=1.0)" for i, axis in enumerate("xyzr")),
            *(f"b{m} = tl.sum(tl.where(columns[None, :] == {m}, sums, 0.0), 1)" for m in range(1, count + 1)),
        )
        for axis in "xyz":
            parts = [(m, _partial(terms, axis)) for m, terms in enumerate(_harmonics(config))]
            text = total(f"b{m}*({_polynomial(terms)})" for m, terms in parts if terms and m)
            write(f"a{axis} = {text or 'x*0'}")
        write("along = ax*x + ay*y + az*z", "out += (chain*pairs + p)*3")
        for i, axis in enumerate("xyz"):
            write(f"tl.store(out + {i}, (a{axis} - along*{axis})/r + b{count}*{axis}, mask=valid)")
    return write.text


def pair_tangent(config: NetworkConfig) -> str:
    """Ẏ and ṙ of every pair when atoms move along v: [pairs, width], ṙ behind the harmonics.

    ṙ = u·v_pair,   u̇ = (v_pair − ṙ u)/r,   Ẏ_m = ∂Y_m/∂u · u̇
    """
    row, count = width(config.l_max), (config.l_max + 1) ** 2
    write = Writer()
    write('@triton.jit(do_not_specialize=["pairs", "nodes", "graph_pairs"])')
    with write.block("def pair_tangent(unit, ends, direction, out, pairs, nodes, graph_pairs, BLOCK: tl.constexpr):"):
        write(
            "p = (tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)).to(tl.int64)",
            "chain = tl.program_id(1).to(tl.int64)",
            "valid = p < pairs",
            "unit += chain*graph_pairs*4",
            "ends += chain*graph_pairs*2",
            "direction += chain*nodes*3",
            "first = tl.load(ends + p*2, mask=valid, other=0)",
            "second = tl.load(ends + p*2 + 1, mask=valid, other=0)",
            *(f"{axis} = tl.load(unit + p*4 + {i}, mask=valid, other=1.0)" for i, axis in enumerate("xyzr")),
            *(
                f"d{axis} = tl.load(direction + second*3 + {i}, mask=valid, other=0.0) "
                f"- tl.load(direction + first*3 + {i}, mask=valid, other=0.0)"
                for i, axis in enumerate("xyz")
            ),
            "length_dot = dx*x + dy*y + dz*z",
            *(f"d{axis} = (d{axis} - length_dot*{axis})/r" for axis in "xyz"),
            f"out += (chain*pairs + p)*{row}",
        )
        for m, terms in enumerate(_harmonics(config)):
            parts = [(axis, _partial(terms, axis)) for axis in "xyz"]
            text = total(f"d{axis}*({_polynomial(partial)})" for axis, partial in parts if partial)
            write(f"tl.store(out + {m}, {text or 'x*0'}, mask=valid)")
        write(f"tl.store(out + {count}, length_dot, mask=valid)")
    return write.text
