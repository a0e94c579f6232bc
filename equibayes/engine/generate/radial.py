"""The radial network, forward to its last hidden layer and back, for value and slope together, or for the value alone.

Forward, with B and B' = dB/dr of the Bessel functions, hidden layers h_0 = B W_0, h_i = silu(h_{i−1}) W_i:

    a_i = silu(h_i),   a'_i = silu'(h_i) h'_i

Backward, from ã and ã' of the last one:

    h̃'_i = silu'(h_i) ã'_i,    h̃_i = silu'(h_i) ã_i + silu''(h_i) h'_i ã'_i,    W̃_i = a_{i−1}ᵀ h̃_i + a'_{i−1}ᵀ h̃'_i
"""

from equibayes.engine.generate.dialect import Dialect


def radial_values(d: Dialect) -> None:
    """The values alone, for a pass that needs no slopes."""
    with d.kernel("radial_values"):
        _forward(d, slopes=False)
        d.store("radial", f"a{d.config.radial_mlp_depth - 1}")


def radial_hidden(d: Dialect) -> None:
    last = d.config.radial_mlp_depth - 1
    with d.kernel("radial_hidden"):
        _forward(d)
        d.store_hidden(f"a{last}", f"d{last}")


def radial_backward(d: Dialect) -> None:
    """Leaves a row of partial sums for each part and layer: W̃_0, W̃_1, …, frequencies."""
    with d.kernel("radial_backward"):
        with d.pair_blocks():
            _forward(d)
            d.load_hidden_tilde()
            _back(d)
            d.add("frequencies", d.sum_over_pairs("e*value_w + e1*slope_w"))
        d.store_radial_sums()


def _forward(d: Dialect, *, slopes: bool = True) -> None:
    d.bessel()
    for i in range(d.config.radial_mlp_depth):
        value, slope = _inputs(i)
        precision = "PREC" if i else "FIRST_PREC"
        d.note(f"hidden layer {i}: h = a W, a = silu(h), and g = dh/dr, d = da/dr")
        d.let(f"h{i}", d.dot(value, f"w{i}", precision))
        if slopes:
            d.let(f"g{i}", d.dot(slope, f"w{i}", precision))
        d.let(f"s{i}", d.sigmoid(f"h{i}"))
        d.let(f"a{i}", f"h{i}*s{i}")
        if slopes:
            d.let(f"f{i}", f"s{i}*(1 + h{i}*(1 - s{i}))")
            d.let(f"d{i}", f"f{i}*g{i}")


def _back(d: Dialect) -> None:
    for i in reversed(range(d.config.radial_mlp_depth)):
        value, slope = _inputs(i)
        d.note(f"layer {i}: k = h̃, k1 = h̃' from e = ã, e1 = ã'")
        d.let("k", f"f{i}*e + s{i}*(1 - s{i})*(2 + h{i}*(1 - 2*s{i}))*g{i}*e1")
        d.let("k1", f"f{i}*e1")
        d.add_dot(f"t{i}", d.transposed(value), "k", "PREC")
        d.add_dot(f"t{i}", d.transposed(slope), "k1", "PREC")
        d.let("e", d.dot("k", d.transposed(f"w{i}"), "PREC"))
        d.let("e1", d.dot("k1", d.transposed(f"w{i}"), "PREC"))


def _inputs(i: int) -> tuple[str, str]:
    return ("value", "slope") if i == 0 else (f"a{i - 1}", f"d{i - 1}")
