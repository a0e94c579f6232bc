"""Writes the kernels of one network: everything whose shape follows from its irreps.

The equations are written here once; a `Dialect` renders them in a language (dialect.py; engine/triton has one).

No derivative is taken by automatic differentiation.  A step of the sampler needs ∂L/∂θ of a loss that contains
forces. This takes four passes over the same operations, each written out by hand: every quantity x of the network has
four *versions*,

    0  x     the value
    1  x̄     ∂E/∂x, the adjoint: its end is the forces
    2  ẋ     the derivative of x along a direction v of the positions, v = −∂L/∂F:  Ė = Σ ∂L/∂F · F
    3  x̃     ∂(Ė + L_rest)/∂x, where L_rest is the rest of the loss (energies, deviations)

Where the loss contains the stress S = ∂E/∂strain / V as well, the direction is joined by a strain ε = ∂L/∂S / V of the
structure, so that Ė = Σ ∂L/∂F · F + Σ ∂L/∂S · S.  It enters where the vectors of pairs move, and nowhere else:
ṙ_ij = v_j − v_i + ε r_ij.

Since Ė depends on ẋ just as E depends on x, ∂Ė/∂ẋ = x̄, and version 1 serves twice.  A weight W of a linear y = x W
has the gradient xᵀ ỹ + ẋᵀ ȳ.  The convolution is linear in each of x, Y and R, so all its passes are partial
evaluations of one form:

    S_p[n, k]  = Σ_slots Σ_i A_ik x_i[j] R_p,   A_ik = Σ_m C_imk Y_m               value, n collects from neighbours j
    Ṡ_p[n, k]  = Σ_slots Σ_i (Ȧ_ik x_i + A_ik ẋ_i) R_p + A_ik x_i ṙ R'_p           tangent
    x̄_i[n]     = Σ_slots Σ_pk A_ik R_p S̄_p,k[j]                                    adjoint, n gives to neighbours j
    x̃_i[n]     = Σ_slots Σ_pk A_ik R_p S̃_p,k[j] + (Ȧ_ik R_p + A_ik ṙ R'_p) S̄_p,k[j]
    ∂E/∂Y_m    = Σ_pck C_imk x_i R_p S̄_p,k,      ∂E/∂r = Σ_pc R'_p Σ_ik A_ik x_i S̄_p,k
    R̃_p        = Σ_ik A_ik x_i S̃_p,k + (Ȧ_ik x_i + A_ik ẋ_i) S̄_p,k,   R̃'_p = ṙ Σ_ik A_ik x_i S̄_p,k

Radial weights R and R' = dR/dr belong to a pair of atoms, not to a direction, and are read by both of its atoms.  A
slot of atom n holds its neighbour j, the pair and the sign of the pair's vector seen from n.  The edge on which n
*gives* is the opposite of the edge on which it collects, so the adjoint passes use the same slots with the other
sign: Y_l(−u) = (−1)^l Y_l(u).
"""

from collections.abc import Callable
from typing import Any

from equibayes.engine.generate.convolution import collect, give
from equibayes.engine.generate.dialect import Dialect
from equibayes.engine.generate.gate import gate
from equibayes.engine.generate.pairs import geometry, pair_gradient, pair_tangent
from equibayes.engine.generate.radial import radial_backward, radial_hidden
from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import LayerPlan


def kernels(config: NetworkConfig, layers: list[LayerPlan], dialect: type[Dialect]) -> str:
    """The source of a module with all generated kernels."""

    def text(equations: Callable[..., None], *about: Any) -> str:
        d = dialect(config)
        equations(d, *about)
        return d.text

    parts = [dialect.header, text(geometry), text(pair_gradient), text(pair_tangent)]
    parts.append("\n\n\n".join([text(radial_hidden), text(radial_backward)]))
    for number, layer in enumerate(layers):
        parts += [text(equations, number, layer) for equations in (collect, give, gate)]
    return "\n\n".join(parts) + "\n"
