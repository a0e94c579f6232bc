"""The generator: the text of the Triton kernels is pinned, and a second dialect, plain Python, computes what the
definition says."""

import hashlib
from contextlib import contextmanager
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch

from equibayes.engine import generate
from equibayes.engine.generate.convolution import collect
from equibayes.engine.generate.dialect import Dialect
from equibayes.engine.generate.gate import gate
from equibayes.engine.generate.offsets import collected, column, columns, first_collected, first_feature
from equibayes.engine.generate.pairs import geometry, pair_tangent
from equibayes.engine.triton.dialect import TritonDialect
from equibayes.network.clebsch_gordan import coupling
from equibayes.network.config import NetworkConfig, preset
from equibayes.network.harmonics import edge_geometry
from equibayes.network.interaction import SILU_NORM
from equibayes.network.irreps import SCALAR, plan_layers

CONFIG = NetworkConfig(l_max=2, num_features=[4, 3, 2], num_layers=2, type_names=["H"], radial_mlp_width=8)
PINNED = {
    "paper": "b1c7bdd7f7af1910",
    "medium": "61327d14275023d8",
    "small": "184f7df473aba36c",
    "tiny": "87dc70dbd167101c",
}
"""Of the kernels that were measured and compared with the reference on a GPU; another text has to be checked there
again.  Since then they have one constant more, where an XPLOR cutoff begins; without it the text is the same."""
XPLOR = ("ON: tl.constexpr, ", ""), ("P, ON, BESSELS", "P, BESSELS")


@pytest.mark.parametrize("name", PINNED)
def test_the_kernels_are_those_that_were_checked_on_a_gpu(name):
    config = preset(name)
    text = generate.kernels(config, plan_layers(config), TritonDialect)
    for now, then in XPLOR:
        text = text.replace(now, then)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == PINNED[name]


HEADS = {
    "geometry": "def run(vector, unit, harmonics, pairs, MOVING=False):|for p in range(pairs):",
    "pair_tangent": "def run(unit, ends, direction, out, *strained, chain=0):|*strained, pairs = strained|start = out"
    "|if strained: structure, strain = strained|for p in range(pairs):|    out = start",
    "collect": "def run(arena, harmonics, tangents, radial, slope, slots, norm, y, y_dot, out, DUAL, DOT):"
    "|N = len(slots)|c = cs = 0|for n in range(N):",
    "gate": "def run(arena, x, z, version, N, MODE):"
    "|x0, x1, x2, x3 = (arena + x + i*version for i in range(4))|z0, z1, z2, z3 = (arena + z + i*version for i in range(4))",
}


class Pointer:
    """An address: an array of numbers and a place in it."""

    def __init__(self, array, place=0):
        self.array, self.place = array, place

    def __add__(self, distance):
        return Pointer(self.array, self.place + int(distance))

    def get(self, count=None):
        return self.array[self.place] if count is None else self.array[self.place : self.place + count].copy()

    def put(self, values):
        values = np.asarray(values)
        self.array[self.place : self.place + values.size] = values.ravel()


class Plain(Dialect):
    """Loops over pairs, atoms and slots in Python; channels are the entries of an array."""

    @contextmanager
    def kernel(self, name, number=0, layer=None):
        first, *rest = HEADS[name].split("|")
        self.write(first)
        with self.indented():
            self.write(*rest)
            with self.indented() if name != "gate" else self.when("True"):
                yield

    @contextmanager
    def block(self, head):
        self.write(head)
        with self.indented():
            self.write("pass")
            yield

    @contextmanager
    def group(self, index, channels):
        with self.block("if True:"):
            self.let("C", str(channels))
            yield

    @contextmanager
    def gated(self, index, channels):
        with self.block(f"for n in range(N): # {index}"):
            self.write("c = 0", f"C = {channels}")
            yield

    @contextmanager
    def slots(self, direction):
        with self.block("for j, q, code in slots[n]:"):
            self.write("sign = 1 - 2*(code % 2)", f"direction = {direction}")
            yield

    def when(self, condition):
        return self.block(f"if {condition}:")

    def otherwise(self):
        return self.block("else:")

    def zeros(self):
        return "np.zeros(C)"

    def load(self, address, other=None):
        return f"({address}).get()" if self._lines[0].find("version") < 0 else f"({address}).get(C)"

    def channels(self, address, other=None):
        return f"({address}).get(C)"

    def store(self, address, value):
        self.write(f"({address}).put({value})")

    store_sum_over_slots = store

    def sum_over_channels(self, value):
        return f"({value}).sum()"

    def choose(self, condition, one, other):
        return f"{one} if {condition} else {other}"

    def sqrt(self, value):
        return f"np.sqrt({value})"

    def sigmoid(self, value):
        return f"(1/(1 + np.exp(-({value}))))"

    def filled(self, value, like):
        return value

    def pieced(self, address):
        return self.channels(address)

    def sum_edges(self): ...
    def edge_sum(self, m): ...
    def dot(self, a, b, precision, onto=None): ...
    def transposed(self, a): ...
    def bessel(self): ...
    def store_hidden(self, value, slope): ...
    def pair_blocks(self): ...
    def load_hidden_tilde(self): ...
    def sum_over_pairs(self, value): ...
    def store_radial_sums(self): ...


def compiled(equations, *about, config=CONFIG):
    d = Plain(config)
    equations(d, *about)
    space = {"np": np}
    exec(d.text, space)
    return space["run"]


def test_geometry_in_another_dialect():
    rng = np.random.default_rng(0)
    vector, unit, harmonics = rng.normal(size=(5, 3)), np.zeros((5, 4)), np.zeros((5, 9))
    compiled(geometry)(*(Pointer(array.reshape(-1)) for array in (vector, unit, harmonics)), 5)
    expected = edge_geometry(torch.from_numpy(vector), 2)
    np.testing.assert_allclose(unit, np.column_stack([expected.direction, expected.length]), rtol=1e-12)
    np.testing.assert_allclose(harmonics, expected.harmonics, rtol=1e-12, atol=1e-12)

    ends, moved, tangents = rng.integers(0, 4, size=(5, 2)), rng.normal(size=(4, 3)), np.zeros((5, 16))
    compiled(pair_tangent)(*(Pointer(array.reshape(-1)) for array in (unit, ends, moved, tangents)), 5)
    along = moved[ends[:, 1]] - moved[ends[:, 0]]
    np.testing.assert_allclose(tangents[:, :9], np.einsum("pmi,pi->pm", expected.gradient, along), atol=1e-12)
    np.testing.assert_allclose(tangents[:, 9], (along * unit[:, :3]).sum(1), atol=1e-12)

    structure, strain = np.array([0, 1, 1, 0]), rng.normal(size=(2, 3, 3))
    arrays = (Pointer(array.reshape(-1)) for array in (unit, ends, moved, tangents, structure, strain))
    compiled(pair_tangent, config=replace(CONFIG, stress_head=True))(*arrays, 5)
    along += np.einsum("pij,pj->pi", strain[structure[ends[:, 0]]], vector)
    np.testing.assert_allclose(tangents[:, :9], np.einsum("pmi,pi->pm", expected.gradient, along), atol=1e-12)
    np.testing.assert_allclose(tangents[:, 9], (along * unit[:, :3]).sum(1), atol=1e-12)


def test_convolution_in_another_dialect():
    """Value and tangent of the second layer, with features of all l, against the sum over the whole table of
    couplings."""
    layer, rng, atoms, pairs = plan_layers(CONFIG)[1], np.random.default_rng(1), 3, 3
    slots = [[(1, 0, 0), (2, 1, 0)], [(0, 0, 1), (2, 2, 0)], [(0, 1, 1), (1, 2, 1)]]
    feature_size = sum(irrep.dim * layer.inputs[irrep] for irrep in layer.sources)
    sum_size = sum(irrep.dim * layer.collected(irrep) for irrep in layer.outputs)
    arena = rng.normal(size=atoms * (2 * feature_size + sum_size))
    vector, tangents = torch.from_numpy(rng.normal(size=(pairs, 3))), rng.normal(size=(pairs, 16))
    harmonics = edge_geometry(vector, 2).harmonics.numpy()
    tangents[:, 0] = 0  # Y_0 is constant
    radial, slope = rng.normal(size=(2, pairs, columns(layer)))
    norm, y_dot, out = rng.random(atoms), atoms * feature_size, 2 * atoms * feature_size
    arrays = [Pointer(array.reshape(-1)) for array in (arena, harmonics, tangents, radial, slope)]
    for dual in (False, True):
        compiled(collect, 1, layer)(*arrays, slots, Pointer(norm), 0, y_dot, out, dual, True)
        for path in layer.paths:
            table = coupling(*path.triple) * sqrt(2 * path.target.l + 1)
            width, own = layer.inputs[path.source], slice(path.edge**2, (path.edge + 1) ** 2)
            first, row = first_feature(layer, path.source) * atoms, path.source.dim * width
            x, x_dot = (
                arena[start + first :][: atoms * row].reshape(atoms, -1, width) for start in (0, atoms * feature_size)
            )
            sums = np.zeros((atoms, path.target.dim, width))
            for n, neighbours in enumerate(slots):
                for j, q, code in neighbours:
                    seen = norm[j] * (1 - 2 * code) ** path.edge
                    Y, Z, r_dot = harmonics[q, own] * seen, tangents[q, own] * seen, tangents[q, 9]
                    c = column(layer, path)
                    R, Q = radial[q, c : c + width], r_dot * slope[q, c : c + width]
                    terms = [(x[j], Y, Q), (x[j], Z, R), (x_dot[j], Y, R)] if dual else [(x[j], Y, R)]
                    sums[n] += sum(np.einsum("imk,ic,m,c->kc", table, *term) for term in terms)
            size = path.target.dim * layer.collected(path.target)
            rows = arena[out + first_collected(layer, path.target) * atoms :][: atoms * size].reshape(atoms, size)
            for k in range(path.target.dim):
                place = collected(layer, path, k)
                np.testing.assert_allclose(rows[:, place : place + width], sums[:, k], rtol=1e-9, atol=1e-9)


def test_gate_in_another_dialect():
    """Scalars pass silu, in value and tangent."""
    layer, rng, atoms = plan_layers(CONFIG)[0], np.random.default_rng(2), 2
    x_size = sum(irrep.dim * count for irrep, count in layer.outputs.items()) * atoms
    z_size = sum(irrep.dim * layer.before_gate(irrep) for irrep in layer.outputs) * atoms
    version = x_size + z_size
    arena = rng.normal(size=4 * version)
    run = compiled(gate, 0, layer)
    for mode in (0, 2):
        run(Pointer(arena), 0, x_size, version, atoms, mode)
    scalars, width = layer.outputs[SCALAR], layer.before_gate(SCALAR)
    assert next(iter(layer.outputs)) == SCALAR
    z, z_dot = (arena[i * version + x_size :][: atoms * width].reshape(atoms, -1)[:, :scalars] for i in (0, 2))
    x, x_dot = (arena[i * version :][: atoms * scalars].reshape(atoms, -1) for i in (0, 2))
    s = 1 / (1 + np.exp(-z))
    np.testing.assert_allclose(x, SILU_NORM * z * s, rtol=1e-12)
    np.testing.assert_allclose(x_dot, SILU_NORM * s * (1 + z * (1 - s)) * z_dot, rtol=1e-12)
