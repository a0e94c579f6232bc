"""û and its gradient on the fused kernels: what `bayes.potential.Potential` computes."""

import torch
from triton import cdiv, next_power_of_2

from equibayes.bayes.potential import Evaluation, Potential
from equibayes.data.resident import ResidentData
from equibayes.engine.triton import minibatch
from equibayes.engine.triton.likelihood import likelihood
from equibayes.engine.triton.memory import Shape
from equibayes.engine.triton.pairs import pairs_of
from equibayes.engine.triton.passes import Passes
from equibayes.engine.triton.virial import SHARES, frame_virials, stress_likelihood


class TritonPotential:
    """−N/|batch| Σ ln p and its gradient for K chains with a minibatch of B frames each, without touching the host.

    frames   [S, K, B] int32  the minibatches of the next S steps
    balance  [S] float32      of energies and stress against forces in these steps (bayes/balance.py)
    counter  [1] int64        index of the current step
    The gradient is left in `passes.gradient`, as parts of forward weights; the sampler adds prior and scales.
    """

    def __init__(self, potential: Potential, chains: int, batch: int, steps: int, precision: str = "float32") -> None:
        model, data = potential.model, potential.data
        self.potential, self.batch = potential, batch
        self.device = device = data.forces.device
        self.resident = frames = pairs_of(data.frames, len(model.config.type_names))
        (self.atoms, self.slots), self.pair_rows = frames.sender.shape[1:], frames.vector.shape[1]
        self.counts = data.frames.num_atoms[:, 0].int().contiguous()
        self.labels = data.forces.gather(1, frames.order[..., None].expand(-1, -1, 3)).contiguous()
        self.scale = len(data) / batch
        shape = Shape(chains, chains, self.atoms * batch, self.slots, self.pair_rows * batch)
        masked = potential.dropout is not None
        strained = batch if model.learns_stress else 0
        self.passes = Passes(
            model, shape, device=device, training=True, precision=precision, masked=masked, strained=strained
        )
        if strained:  # rows a·B + b
            self.passes.structure.copy_(torch.arange(shape.nodes) % batch)
            self.volumes, self.stresses = data.frames.volume[:, 0].double(), stress_labels(data)
            self.virials = torch.zeros(chains, batch, SHARES, 6, dtype=torch.float64, device=device)
        self.frames = torch.zeros(steps, chains, batch, dtype=torch.int32, device=device)
        self.balance = torch.zeros(steps, dtype=torch.float32, device=device)
        self.counter = torch.zeros(1, dtype=torch.int64, device=device)
        self.summary = torch.zeros(chains, batch, 4, dtype=torch.float64, device=device)
        # if all frames have the same species in the same rows, all minibatches have
        self.same_species = bool((frames.species == frames.species[:1]).all())
        if self.same_species:
            self.passes.graph.species.copy_(frames.species[0].repeat_interleave(batch).expand(chains, -1))
            self.passes.find_types()
            self.passes.sorted = True  # rows a·B + b of frames whose atoms are sorted

    def __call__(self) -> None:
        passes, resident, batch = self.passes, self.resident, self.batch
        chains, graph = passes.shape.chains, passes.graph
        minibatch.gather_atoms[(cdiv(self.atoms * batch, 64), chains)](
            self.frames, self.counter, resident.species, resident.degree, resident.sender, resident.pair, passes.norms,
            graph.species, graph.degree, graph.sender, graph.pair, passes.norm, self.atoms, self.slots, batch, self.pair_rows,
            chains=chains, BLOCK=64, num_warps=2,
        )  # fmt: skip
        minibatch.gather_pairs[(cdiv(self.pair_rows * batch, 128), chains)](
            self.frames, self.counter, resident.vector, resident.ends, graph.vector, graph.ends, batch, self.pair_rows,
            chains=chains, BLOCK=128,
        )  # fmt: skip
        if not self.same_species:
            passes.find_types()
        passes.evaluate()
        likelihood[(batch, chains)](
            self.frames, self.counter, self.balance, self.counts, self.potential.data.energy, self.labels, passes.energies,
            passes.forces, passes.deviations, passes.direction, passes.deviation_tilde, passes.energy_bar, self.summary,
            self.atoms, batch, self.scale, chains=chains, SQUARES=self.potential.objective == "squares",
            ATOMS=max(16, next_power_of_2(self.atoms)), num_warps=1,
        )  # fmt: skip
        if passes.strained:
            self._add_stress()
        passes.differentiate()

    def _add_stress(self) -> None:
        """The likelihood of the stress, after that of energies and forces."""
        passes, batch, chains = self.passes, self.batch, self.passes.shape.chains
        frame_virials[(batch, chains, SHARES)](
            passes.graph.vector, passes.pull, passes.unit, self.virials, self.pair_rows, batch, SHARES,
            R_MAX=self.potential.model.config.r_max, BLOCK=128,
        )  # fmt: skip
        stress_likelihood[(batch, chains)](
            self.frames, self.counter, self.balance, self.counts, self.volumes, self.stresses, self.virials,
            passes.deviations[0], passes.deviations[2], passes.strain, passes.deviation_tilde[2], self.summary, self.atoms,
            batch, self.scale, chains,
            SQUARES=self.potential.objective == "squares", ATOMS=max(16, next_power_of_2(self.atoms)), SHARES=SHARES,
            num_warps=1,
        )  # fmt: skip

    def draw_mask(self, first_step: torch.Tensor, identities: torch.Tensor) -> None:
        """The dropout mask of the step that the counter points to, `first_step` being where the minibatches begin."""
        dropout, passes = self.potential.dropout, self.passes
        if dropout is None:
            return
        channels = passes.mask.shape[2]
        minibatch.dropout[(cdiv(self.atoms * self.batch * channels, 1024), passes.shape.chains)](
            passes.mask, self.frames, self.counter, self.resident.order, first_step, identities, dropout.seed, dropout.stream,
            int(dropout.rate * 2**32), 1 / (1 - dropout.rate), self.atoms, self.batch, passes.shape.chains, CHANNELS=channels,
            BLOCK=256,
        )  # fmt: skip

    def evaluation(self, gradient: torch.Tensor, neg_log_prior: torch.Tensor) -> Evaluation:
        """The evaluation of the last step; gradient [K, P] and −ln p(θ) [K] come from the sampler."""
        log_p, wrong, sigma, count = self.summary.clone().unbind(2)
        return Evaluation(
            gradient=gradient,
            potential=neg_log_prior - self.scale * log_p.sum(1),
            log_likelihood=log_p.mean(1),
            force_mae=(wrong.sum(1) / count.sum(1)).to(gradient),
            force_sigma=(sigma.sum(1) / count.sum(1)).to(gradient),
        )


def stress_labels(data: ResidentData) -> torch.Tensor:
    """[F, 6] xx, yy, zz, xy, xz, yz in eV/Å³; NaN without a label."""
    if data.stress is None:
        return data.energy.new_full((len(data), 6), torch.nan)
    return data.stress[:, [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]].double().contiguous()
