"""The whole step of K chains on the GPU, from minibatch to sampler, recorded once and replayed.

What changes from step to step (frames, Δt, noise, mass adaptation) is written into tables for a stretch of steps at
once.  A counter on the device runs through them, and the host waits only at the end of a stretch.

A matrix mass has a second recording: the first ends with the gradient, the second turns it into the basis, makes the
step and turns back.  Gathering and refreshing, which most steps do not need, come between the two and are not recorded.
"""

from collections.abc import Callable
from functools import partial

import torch

from equibayes.bayes.potential import Evaluation, Potential
from equibayes.bayes.prior import LOG_2PI, CentredNormal, Flat
from equibayes.engine.table import COLUMNS, step_table
from equibayes.engine.triton.capture import Capture
from equibayes.engine.triton.potential import TritonPotential
from equibayes.engine.triton.update import collect, update
from equibayes.sampling import basis, sghmc
from equibayes.sampling.chain import MovingAverage, Stretch
from equibayes.sampling.noise import NoiseKey

QUADS = 256  # groups of four parameters that a program of the update works on


class TritonStepper:
    """Steps of one run, for chains whose state stays in the same tensors."""

    engine = "triton"

    def __init__(
        self,
        potential: Potential,
        state: sghmc.State,
        key: NoiseKey,
        config: sghmc.SGHMCConfig,
        *,
        longest: int,
        precision: str,
        average: MovingAverage | None = None,
    ) -> None:
        """longest: steps of the longest stretch; average: a moving average of the weights to keep."""
        self.potential, self.state, self.key, self.config = potential, state, key, config
        self.longest, self.precision, self.average = longest, precision, average
        self.device = potential.data.forces.device
        chains, size = state.position.shape
        self.scale = potential.model.layout.scale.like(state.position)
        self.table = torch.zeros(longest, chains, COLUMNS, dtype=torch.float32, device=self.device)
        self.first_step = torch.zeros(1, dtype=torch.int64, device=self.device)
        identities = torch.tensor([identity & 0xFFFFFFFF for identity in key.chains], dtype=torch.int64)
        self.identities = identities.to(torch.int32).to(self.device)
        self.gradient = torch.zeros_like(state.position)
        self.blocks = config.blocks(potential.model.layout.shapes)
        self.programs = -(-size // (4 * QUADS))
        self.prior_terms = torch.zeros(chains, self.programs, dtype=torch.float32, device=self.device)
        prior = potential.prior
        self.centred = isinstance(prior, CentredNormal | Flat)
        self.center = self.stiffness = self.scale
        self.constant = 0.5 * size * LOG_2PI
        if isinstance(prior, CentredNormal):
            self.center = prior.center.to(state.position).contiguous()
            self.stiffness = prior.width.to(state.position).square().reciprocal().expand(size).contiguous()
            self.constant += float(prior.width.double().log().expand(size).sum())
        if isinstance(prior, Flat):
            self.center = self.stiffness = torch.zeros_like(self.scale)
            self.constant = 0.0
        self._potentials: dict[int, TritonPotential] = {}
        self._recorded: dict[int, list[Capture[None]]] = {}

    def advance(
        self, stretch: Stretch, learning_rates: torch.Tensor, stopping: Callable[[], bool] = lambda: False
    ) -> Evaluation:
        """The steps of a stretch with learning rates [n, K]; the evaluation of the last.  Is not interrupted."""
        count, _, batch = stretch.indices.shape
        potential = self._potential(batch)
        potential.frames[:count].copy_(stretch.indices.int())
        potential.balance[:count].copy_(torch.tensor([plan.balance for plan in stretch.plans]))
        updates, size = int(self.state.mass.updates), self.potential.data_size
        self.table[:count].copy_(step_table(stretch.plans, learning_rates, updates, self.config, size))
        self.first_step.fill_(int(self.state.step))
        potential.counter.zero_()
        # the state may have been rolled back since the last stretch
        potential.passes.load_weights(self.state.position * self.scale)
        for plan in stretch.plans:
            self._step(batch, updates, adapt=not plan.mass_frozen)
            updates += not plan.mass_frozen
        self.state.step.add_(count)
        self.state.mass.updates.add_(sum(not plan.mass_frozen for plan in stretch.plans))
        neg_log_prior = self.prior_terms.double().sum(1) + self.constant
        return potential.evaluation(self.gradient.clone(), neg_log_prior)

    def _potential(self, batch: int) -> TritonPotential:
        if batch not in self._potentials:
            chains = len(self.key.chains)
            made = TritonPotential(self.potential, chains, batch, self.longest, self.precision)
            self._potentials[batch] = made
            # warming up makes real steps, which must leave no trace
            changing = self._changing(made)
            parts = (self._collect, self._move) if self.blocks else (self._whole,)
            recorded = [partial(part, made) for part in parts]
            self._recorded[batch] = [Capture(each, self.device, warm_up=2, changing=changing) for each in recorded]
        return self._potentials[batch]

    def _changing(self, potential: TritonPotential) -> list[torch.Tensor]:
        state = self.state
        own = [state.position, state.momentum, state.mass.average, state.mass.maximum, state.mass.mass, self.gradient]
        own += [] if self.average is None else [self.average.weights]
        return [*own, potential.passes.weights, potential.counter]

    def _step(self, batch: int, updates: int, *, adapt: bool) -> None:
        """updates: of the mass so far."""
        first, *second = self._recorded[batch]
        first()
        if self.blocks and adapt and basis.gathers(updates):
            scaled = self.gradient / self.potential.data_size
            sghmc.adapt_basis(self.state, scaled, updates, self.config, self.blocks)
        for each in second:
            each()

    def _whole(self, potential: TritonPotential) -> None:
        """A step with a diagonal mass."""
        potential.draw_mask(self.first_step, self.identities)
        potential()
        self._update(potential, self.gradient)
        self._end(potential)

    def _collect(self, potential: TritonPotential) -> None:
        """The gradient of a step with a matrix mass."""
        potential.draw_mask(self.first_step, self.identities)
        potential()
        passes, (chains, size) = potential.passes, self.state.position.shape
        collect[(self.programs, chains)](
            self.state.position, passes.gradient, self.gradient, self.prior_terms, self.scale, passes.places_flat, self.center,
            self.stiffness, self.table, potential.counter, size, passes.places.size, chains, PARTS=passes.parts,
            CENTRED=self.centred, CENTRE_PER_CHAIN=self.center.ndim == 2, QUADS=QUADS,
        )  # fmt: skip

    def _move(self, potential: TritonPotential) -> None:
        """The rest of it."""
        state, blocks = self.state, self.blocks
        turned = basis.into_basis(blocks, state.mass.basis, self.gradient)
        self._update(potential, turned)
        state.position.add_(basis.from_basis(blocks, state.mass.basis, turned))
        potential.passes.load_weights(state.position * self.scale)
        self._end(potential)

    def _update(self, potential: TritonPotential, gradient: torch.Tensor) -> None:
        state, passes, config = self.state, potential.passes, self.config
        chains, size = state.position.shape
        update[(self.programs, chains)](
            state.position, state.momentum, state.mass.average, state.mass.maximum, state.mass.mass, passes.gradient,
            passes.weights, gradient, self.prior_terms, self.scale, passes.places_flat, self.center, self.stiffness,
            self.table, potential.counter, self.first_step, self.identities, self.key.seed, size, passes.places.size, chains,
            config.friction, config.beta, config.epsilon, float(self.potential.data_size), PARTS=passes.parts,
            PAPER=config.integrator == "paper", CENTRED=self.centred, CENTRE_PER_CHAIN=self.center.ndim == 2,
            MATRIX=bool(self.blocks), QUADS=QUADS,
        )  # fmt: skip

    def _end(self, potential: TritonPotential) -> None:
        if self.average is not None:
            self.average.update(self.state.position)
        potential.counter.add_(1)
