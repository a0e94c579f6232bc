"""Whole steps of K chains on the CPU, a stretch of them in one call of C++.

The call is made in a thread of its own, because Python's signal handlers run only while the main thread is in Python;
the C++ code looks at a flag before each step.
"""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from equibayes.bayes.potential import Evaluation, Potential
from equibayes.bayes.prior import LOG_2PI, CentredNormal, Flat
from equibayes.data.resident import ResidentData
from equibayes.engine.native.target import engine_name
from equibayes.engine.table import step_table
from equibayes.sampling import sghmc
from equibayes.sampling.basis import DECAY, SHRINKAGE, Blocks
from equibayes.sampling.chain import MovingAverage, Stretch
from equibayes.sampling.noise import NoiseKey

SECONDS = 0.05
"""How long the C++ code runs before Python looks whether it shall stop."""
PIECE = 8192
"""Parameters that one thread updates at once where there is no matrix: they stay in the cache."""


def _fields(of: type, names: str) -> list[tuple[str, Any]]:
    return [(name, of) for name in names.split()]


class DataView(ctypes.Structure):
    """`Data` in include/potential.h."""

    _fields_ = (
        *_fields(ctypes.c_int64, "frames atoms slots"),
        *_fields(
            ctypes.c_void_p,
            "species sender reverse structure num_atoms vector energy forces volume stress weight noise rigid",
        ),
    )


class StretchView(ctypes.Structure):
    """`Stretch` in include/stretch.h."""

    _fields_ = (
        *_fields(ctypes.c_int64, "steps chains batch size ranges pieces matrices basis_size first_step threads"),
        *_fields(ctypes.c_void_p, "position momentum average maximum mass moving gradient"),
        *_fields(ctypes.c_void_p, "factors basis basis_back scale center stiffness"),
        *_fields(ctypes.c_void_p, "range piece matrix frames plans identities stop seen"),
        *_fields(ctypes.c_uint64, "seed dropout_seed dropped"),
        *_fields(ctypes.c_int64, "dropout_stream features"),
        *_fields(ctypes.c_double, "friction beta epsilon data_size decay"),
        *_fields(ctypes.c_float, "factor_decay shrinkage kept"),
        *_fields(ctypes.c_int32, "paper flat_prior center_per_chain"),
    )


def view(kind: type[Any], **values: Any) -> Any:
    """A structure of C, with addresses of contiguous tensors; the caller keeps the tensors."""
    plain = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            assert value.is_contiguous(), name
            value = value.data_ptr()
        plain[name] = value
    return kind(**plain)


@dataclass(frozen=True)
class PriorNumbers:
    """−ln p(θ) = ½ Σ stiffness (θ − center)² + constant; center and stiffness are None where they are 0 and 1."""

    center: torch.Tensor | None
    stiffness: torch.Tensor | None
    constant: float
    flat: bool

    @classmethod
    def of(cls, prior: object, position: torch.Tensor) -> "PriorNumbers":
        size = position.shape[1]
        constant = 0.5 * size * LOG_2PI
        if isinstance(prior, Flat):
            return cls(None, None, 0.0, True)
        if isinstance(prior, CentredNormal):
            center = prior.center.to(position).contiguous()
            stiffness = prior.width.to(position).square().reciprocal().expand(size).contiguous()
            return cls(center, stiffness, constant + float(prior.width.double().log().expand(size).sum()), False)
        return cls(None, None, constant, False)


class StepModule(Protocol):
    """The compiled code of a network, with steps."""

    @property
    def library(self) -> ctypes.CDLL: ...

    @property
    def places(self) -> torch.Tensor:
        """[P]: where each parameter lies in the forward weights."""


def ranges_of(places: torch.Tensor) -> torch.Tensor:
    """[R, 3] int64: first parameter, its place and the length of every range of parameters that lie together."""
    places = places.long()
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), (places.diff() != 1).nonzero()[:, 0] + 1])
    ends = torch.cat([starts[1:], torch.tensor([len(places)])])
    return torch.stack([starts, places[starts], ends - starts], 1).contiguous()


def matrices_of(blocks: Blocks) -> torch.Tensor:
    """[N, 7] int64: `MassMatrix` in include/basis.h, in the order of the flat buffer."""
    rows = []
    for block in blocks:
        rows_and_columns = block.rows, block.columns
        for i in range(block.count):
            places = (
                block.left.start + i * block.rows * block.row_side,
                block.right.start + i * block.columns * block.column_side,
            )
            first = block.first + i * block.rows * block.columns
            rows.append((first, *rows_and_columns, block.row_side, block.column_side, *places))
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 7)


def pieces_of(matrices: torch.Tensor, size: int) -> torch.Tensor:
    """[M, 3] int64: first parameter of a piece, their number, and which of the matrices it is, or −1."""
    found: list[tuple[int, int, int]] = []

    def fill(first: int, end: int) -> None:
        """Pieces without a matrix."""
        found.extend((p, min(PIECE, end - p), -1) for p in range(first, end, PIECE))

    end = 0
    for number, (first, rows, columns) in enumerate(matrices[:, :3].tolist()):
        fill(end, first)
        end = first + rows * columns
        found.append((first, rows * columns, number))
    fill(end, size)
    return torch.tensor(found)


class NativeStepper:
    """Steps of one run, for chains whose state stays in the same tensors."""

    def __init__(
        self,
        potential: Potential,
        state: sghmc.State,
        key: NoiseKey,
        config: sghmc.SGHMCConfig,
        *,
        module: StepModule,
        average: MovingAverage | None = None,
    ) -> None:
        """average: a moving average of the weights to keep."""
        self.engine = engine_name()
        self.potential, self.state, self.key, self.config, self.average = potential, state, key, config, average
        model, chains = potential.model, len(key.chains)
        self.library = module.library
        self.library.steps_new.restype = ctypes.c_void_p
        self.ranges = ranges_of(module.places)
        self.matrices = matrices_of(config.blocks(model.layout.shapes))
        self.pieces = pieces_of(self.matrices, model.layout.size)
        self.basis_back = torch.zeros_like(state.mass.basis)
        self.scale = model.layout.scale.like(state.position).contiguous()
        self.prior = PriorNumbers.of(potential.prior, state.position)
        words = [identity & 0xFFFFFFFF for identity in key.chains]
        self.identities = torch.tensor(words, dtype=torch.int64)
        self.gradient = torch.zeros_like(state.position)
        self.seen = torch.zeros(chains, 6, dtype=torch.float64)
        self.data, self._kept = view_of_data(potential.data)
        self._chains: dict[int, int] = {}
        self._thread = ThreadPoolExecutor(1, "equibayes steps")

    def __del__(self) -> None:
        for chains in getattr(self, "_chains", {}).values():
            self.library.steps_free(ctypes.c_void_p(chains))

    def advance(
        self, stretch: Stretch, learning_rates: torch.Tensor, stopping: Callable[[], bool] = lambda: False
    ) -> Evaluation | None:
        """The steps of a stretch with learning rates [n, K]; the evaluation of the last, or None if interrupted."""
        count, chains, batch = stretch.indices.shape
        updates, size = int(self.state.mass.updates), self.potential.data_size
        plans = step_table(stretch.plans, learning_rates, updates, self.config, size)
        stop = ctypes.c_int(0)
        work = self._view(
            steps=count,
            chains=chains,
            batch=batch,
            frames=stretch.indices.contiguous(),
            plans=plans,
            stop=ctypes.addressof(stop),
        )
        call = self._thread.submit(self.library.steps_run, self._chains_for(batch), ctypes.byref(work))
        try:
            while not wait([call], SECONDS).done:
                stop.value = stop.value or stopping()
        except BaseException:
            stop.value = 1
            raise
        finally:
            call.result()
        if stop.value:
            return None
        self.state.step.add_(count)
        self.state.mass.updates.add_(sum(not plan.mass_frozen for plan in stretch.plans))
        return self._evaluation(batch)

    def _view(self, **of_stretch: Any) -> Any:
        state, config, prior, dropout = self.state, self.config, self.prior, self.potential.dropout
        rate = 0.0 if dropout is None else dropout.rate
        atoms, channels = self.potential.data.num_atoms, self.potential.model.config.channels[0]
        center = prior.center
        return view(
            StretchView,
            **of_stretch,
            size=state.position.shape[1], ranges=len(self.ranges), pieces=len(self.pieces), matrices=len(self.matrices),
            basis_size=state.mass.basis.shape[1], first_step=int(state.step), threads=torch.get_num_threads(),
            position=state.position, momentum=state.momentum, average=state.mass.average, maximum=state.mass.maximum,
            mass=state.mass.mass, moving=None if self.average is None else self.average.weights, gradient=self.gradient,
            factors=state.mass.factors, basis=state.mass.basis, basis_back=self.basis_back, scale=self.scale, center=center,
            stiffness=prior.stiffness, range=self.ranges, piece=self.pieces, matrix=self.matrices, identities=self.identities,
            seen=self.seen, seed=self.key.seed, dropout_seed=0 if dropout is None else dropout.seed,
            dropped=int(rate * 2**32), dropout_stream=0 if dropout is None else dropout.stream,
            features=0 if dropout is None else of_stretch["batch"] * atoms * channels,
            friction=config.friction, beta=config.beta, epsilon=config.epsilon, data_size=self.potential.data_size,
            decay=0.0 if self.average is None else self.average.decay, factor_decay=DECAY, shrinkage=SHRINKAGE, kept=1 / (1 - rate),
            paper=config.integrator == "paper", flat_prior=prior.flat, center_per_chain=center is not None and center.ndim == 2,
        )  # fmt: skip

    def _chains_for(self, batch: int) -> ctypes.c_void_p:
        """Work space of the chains for minibatches of one size."""
        if batch not in self._chains:
            squares = self.potential.objective == "squares"
            made = self.library.steps_new(ctypes.byref(self.data), len(self.key.chains), batch, squares)
            self._chains[batch] = made
        return ctypes.c_void_p(self._chains[batch])

    def _evaluation(self, batch: int) -> Evaluation:
        log_p, weighted, wrong, sigma, atoms, prior = self.seen.clone().unbind(1)
        return Evaluation(
            gradient=self.gradient.clone(),
            potential=prior + self.prior.constant - self.potential.data_size / batch * weighted,
            log_likelihood=log_p / batch,
            force_mae=(wrong / atoms).to(self.gradient),
            force_sigma=(sigma / atoms).to(self.gradient),
        )


def view_of_data(data: ResidentData) -> tuple[Any, list[torch.Tensor]]:
    """The resident frames for C++, and the tensors that must be kept meanwhile."""
    frames = data.frames
    count, atoms, slots = frames.sender.shape
    tensors = {
        name: getattr(frames, name).contiguous()
        for name in ("species", "sender", "reverse", "structure", "num_atoms", "vector")
    } | {"energy": data.energy.contiguous(), "forces": data.forces.contiguous()}
    tensors["volume"] = frames.volume.double().contiguous()
    if data.stress is not None:
        tensors["stress"] = data.stress.contiguous()
    if data.weight is not None:
        tensors["weight"] = data.weight.contiguous()
    if data.noise is not None:
        tensors["noise"] = data.noise.contiguous()
    if data.rigid is not None:
        tensors["rigid"] = data.rigid.contiguous()
    return view(DataView, frames=count, atoms=atoms, slots=slots, **tensors), list(tensors.values())
