"""The part of an exported posterior that metatomic calls, compiled by TorchScript: neighbour lists in, tensor maps out.

Atoms of all systems are N in one row; neighbours of each are D slots, as in data/graph.py.
"""

from typing import Dict, List, Optional

import torch
from metatensor.torch import Labels, TensorBlock, TensorMap
from metatomic.torch import ModelOutput, NeighborListOptions, System

from equibayes.data.graph import EMPTY_SLOT_DISTANCE


class PosteriorModel(torch.nn.Module):
    """What metatomic calls; compiled by TorchScript."""

    mix: torch.Tensor
    centres: torch.Tensor
    species_of: torch.Tensor
    shifts: torch.Tensor
    formulas: torch.Tensor
    offsets: torch.Tensor
    knots: torch.Tensor

    def __init__(
        self, network: torch.nn.Module, reach: float, factor: float, spread: float, tables: dict[str, torch.Tensor]
    ) -> None:
        """network  (species [N], sender [N, D], vector [N, D, 3]) -> energies and ln σ_E of the atoms, two of [K, N]
        reach    cutoff, Å
        factor, spread  of a `Rescaling`
        tables   mix [k, K]      energies of the samples from those of the weight sets
                 centres [k]     the weight sets whose σ is that of the samples
                 species_of [Z]  by atomic number
                 shifts [T]      eV
                 formulas [F, T], offsets [F] eV  formulas whose energy reference is a number of its own
                 knots [2, m]    ln σ, rising, and ln r of a `Rescaling`; m = 1: none
        """
        super().__init__()
        self.network, self.reach, self.factor, self.spread = network, reach, factor, spread
        self.far = EMPTY_SLOT_DISTANCE
        for name, values in tables.items():
            self.register_buffer(name, values)

    def requested_neighbor_lists(self) -> List[NeighborListOptions]:
        """All neighbours of each atom within the cutoff."""
        return [NeighborListOptions(cutoff=self.reach, full_list=True, strict=True)]

    def forward(
        self,
        systems: List[System],
        outputs: Dict[str, ModelOutput],
        selected_atoms: Optional[Labels] = None,
    ) -> Dict[str, TensorMap]:
        """See the table at the top of this file."""
        species, system, number, sender, vector = self.graph(systems)
        atomic, log_sigma = self.network(species, sender, vector)
        energies = self.mix @ atomic + self.reference(species, system, len(systems))
        kept = torch.ones_like(system, dtype=torch.bool)
        if selected_atoms is not None:
            kept = torch.zeros_like(kept)
            first = torch.searchsorted(system, torch.arange(len(systems), device=system.device))
            chosen = selected_atoms.values.to(torch.int64)
            kept[first[chosen[:, 0]] + chosen[:, 1]] = True
        own, energies = system[kept], energies[:, kept]
        atoms = Labels(["system", "atom"], torch.stack([own, number[kept]], 1).to(torch.int32))
        whole = Labels(["system"], torch.arange(len(systems), device=own.device, dtype=torch.int32).reshape(-1, 1))
        sums = energies.new_zeros(energies.shape[0], len(systems)).index_add(1, own, energies)

        results: dict[str, TensorMap] = {}
        for name, wanted in outputs.items():
            per_atom = wanted.sample_kind == "atom"
            samples, members = (atoms, energies) if per_atom else (whole, sums)
            if name == "energy":
                results[name] = self.as_map(members.mean(0)[:, None], samples)
            elif name == "energy_ensemble":
                results[name] = self.as_map(members.transpose(0, 1), samples)
            elif name == "energy_uncertainty":
                sigma = self.uncertainty(sums, log_sigma[self.centres][:, kept], own)
                results[name] = self.as_map(sigma[:, None], whole)
        return results

    def graph(self, systems: list[System]) -> list[torch.Tensor]:
        """Species [N], systems [N] and numbers in them [N] of atoms; sender [N, D] and vector [N, D, 3] of slots."""
        species: list[torch.Tensor] = []
        system: list[torch.Tensor] = []
        number: list[torch.Tensor] = []
        pairs: list[torch.Tensor] = []
        vectors: list[torch.Tensor] = []
        count = 0
        for index, each in enumerate(systems):
            device = each.positions.device
            species.append(self.species_of[each.types.to(torch.int64)])
            system.append(torch.full((len(each),), index, device=device))
            number.append(torch.arange(len(each), device=device))
            edges = each.get_neighbor_list(self.requested_neighbor_lists()[0])
            pairs.append(edges.samples.values[:, :2].to(torch.int64) + count)
            vectors.append(edges.values.reshape(-1, 3))
            count += len(each)
        receiver, sender = torch.cat(pairs).unbind(1)
        order = torch.argsort(receiver, stable=True)
        receiver, sender = receiver[order], sender[order]
        degree = torch.bincount(receiver, minlength=count)
        width = max(1, int(degree.max())) if count > 0 else 1
        slot = torch.arange(len(receiver), device=receiver.device) - (degree.cumsum(0) - degree)[receiver]
        senders = torch.zeros(count, width, dtype=torch.int64, device=receiver.device)
        senders = senders.index_put([receiver, slot], sender)
        found = torch.cat(vectors)[order]
        far = torch.zeros(count, width, 3, dtype=found.dtype, device=found.device)
        far[:, :, 0] = self.far
        return [
            torch.cat(species),
            torch.cat(system),
            torch.cat(number),
            senders,
            far.index_put([receiver, slot], found),
        ]

    def reference(self, species: torch.Tensor, system: torch.Tensor, systems: int) -> torch.Tensor:
        """[N] eV; what belongs to a whole formula is shared equally."""
        counts = torch.zeros(systems, len(self.shifts), dtype=torch.int64, device=species.device)
        counts = counts.index_put([system, species], torch.ones_like(system), accumulate=True)
        known = counts[:, None, :].eq(self.formulas).all(2).to(self.offsets.dtype)
        extra = known @ self.offsets - known.sum(1) * (counts.to(self.shifts.dtype) @ self.shifts)
        return self.shifts[species] + (extra / counts.sum(1))[system]

    def uncertainty(self, energies: torch.Tensor, log_sigma: torch.Tensor, system: torch.Tensor) -> torch.Tensor:
        """[B] from energies of the samples [k, B] and ln σ_E of the atoms [k, n]."""
        count = torch.bincount(system, minlength=energies.shape[1])
        each = torch.zeros_like(energies).index_add(1, system, log_sigma.exp()) / count
        sigma = (each.square().mean(0) + (self.spread * energies.std(0, unbiased=False)).square()).sqrt()
        x, y = self.knots[0], self.knots[1]
        if len(x) == 1:
            return self.factor * sigma
        at = sigma.log().clamp(float(x[0]), float(x[-1]))
        right = torch.searchsorted(x, at).clamp(1, len(x) - 1)
        part = (at - x[right - 1]) / (x[right] - x[right - 1])
        return sigma * (y[right - 1] + part * (y[right] - y[right - 1])).exp()

    def as_map(self, values: torch.Tensor, samples: Labels) -> TensorMap:
        """Values [n, p] as metatensor has them."""
        numbers = torch.arange(values.shape[1], device=values.device, dtype=torch.int32).reshape(-1, 1)
        components: list[Labels] = []
        block = TensorBlock(values, samples, components, Labels(["energy"], numbers))
        key = torch.zeros(1, 1, device=values.device, dtype=torch.int32)
        return TensorMap(Labels(["_"], key), [block])
