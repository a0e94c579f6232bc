"""A training step of MACE, in an environment of its own: it needs another version of e3nn than the official NequIP.

    python -m venv mace && mace/bin/pip install torch mace-torch ase
    python benchmarks/native.py --mace mace/bin/python

`native.py` starts this program, which imports nothing of equibayes, tells it the settings in the first line, and then
the number of steps to time in each further line.  The answers are seconds of processor time.
"""

import json
import sys
import time
import warnings
from typing import Any


class MaceStep:
    """Gradient of MACE's loss of energies and forces by all its parameters."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """settings: frames (a file), r_max, l_max, channels, interactions, bessels, cutoff_p, radial, elements,
        neighbors."""
        import ase.io
        import numpy as np
        import torch
        from mace import data, modules, tools  # before e3nn, whose files newer versions of torch refuse without it
        from mace.tools import torch_geometric
        from e3nn import o3  # isort: skip

        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float32)
        torch.manual_seed(0)
        frames = ase.io.read(settings["frames"], ":")
        table = tools.AtomicNumberTable(settings["elements"])
        blocks = modules.interaction_classes
        hidden = "+".join(f"{settings['channels']}x{l}{'eo'[l % 2]}" for l in range(settings["l_max"] + 1))
        self.model = modules.ScaleShiftMACE(
            r_max=settings["r_max"],
            num_bessel=settings["bessels"],
            num_polynomial_cutoff=settings["cutoff_p"],
            max_ell=settings["l_max"],
            interaction_cls=blocks["RealAgnosticResidualInteractionBlock"],
            interaction_cls_first=blocks["RealAgnosticInteractionBlock"],
            num_interactions=settings["interactions"],
            num_elements=len(table),
            hidden_irreps=o3.Irreps(hidden),
            MLP_irreps=o3.Irreps("16x0e"),
            atomic_energies=np.zeros(len(table)),
            avg_num_neighbors=settings["neighbors"],
            atomic_numbers=table.zs,
            correlation=3,
            gate=torch.nn.functional.silu,
            radial_MLP=settings["radial"],
            atomic_inter_scale=1.0,
            atomic_inter_shift=0.0,
        )
        keys = data.KeySpecification.from_defaults()
        configs = [data.config_from_atoms(frame, key_specification=keys) for frame in frames]
        atoms = [data.AtomicData.from_config(each, z_table=table, cutoff=settings["r_max"]) for each in configs]
        loader = torch_geometric.dataloader.DataLoader(atoms, batch_size=len(atoms))
        self.batch = next(iter(loader))
        self.loss = modules.WeightedEnergyForcesLoss(energy_weight=1.0, forces_weight=1.0)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.size = sum(p.numel() for p in self.parameters)
        self.gradient = torch.autograd.grad

    def __call__(self) -> None:
        output = self.model(self.batch.to_dict(), training=True, compute_force=True)
        self.gradient(self.loss(self.batch, output), self.parameters, allow_unused=True)


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever the packages print
    warnings.simplefilter("ignore")
    step = MaceStep(json.loads(sys.stdin.readline()))
    from mace import __version__

    print(json.dumps({"version": __version__, "parameters": step.size}), file=answers, flush=True)
    for line in sys.stdin:
        start = time.process_time()
        for _ in range(int(line)):
            step()
        print(time.process_time() - start, file=answers, flush=True)


if __name__ == "__main__":
    main()
